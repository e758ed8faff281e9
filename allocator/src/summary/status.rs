//! Pool status as `ResourcePoolStatusRequest` tells it.
//!
//! Where the in-tree controller (`pkg/controller/resourcepoolstatusrequest`: `controller.go`, `views.go`; spec pool-status
//! §3 to §6) writes what is right, this is the same to the letter: surplus slices count, and duplicate devices twice.
//! Where it does not, the API's documentation decides; docs/DEVIATIONS.md lists each difference. Slices are taken in
//! the order of their names, so that nothing depends on the order in which they came.

use std::collections::BTreeSet;
use std::sync::Arc;

use dra_api::quantity::Quantity;
use serde::Serialize;

use super::partitions::partitions;
use super::shareable::shareable;
use crate::ids::PoolId;
use crate::inventory::Inventory;
use crate::inventory::details::Attribute;
use crate::inventory::pool::Pool;
use crate::inventory::slice::{DeviceRef, Slice};
use crate::taints;

/// The most items in a list of the status.
pub(super) const MOST_ITEMS: usize = 32;
/// The most bytes of a validation error.
const MOST_BYTES: usize = 256;
/// How the error of an incomplete pool begins.
const INCOMPLETE: &str = "PoolIncomplete:";

/// `status.pools[]` of a `ResourcePoolStatusRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool_name: String,
    /// Newest generation; 1 in place of 0, which the API refuses.
    pub generation: i64,
    /// Slices found of that generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_slice_count: Option<i32>,
    /// Devices in these slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_devices: Option<i32>,
    /// Devices of these that claims have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_devices: Option<i32>,
    /// What remains after allocated and unavailable devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_devices: Option<i32>,
    /// Tainted devices that are not allocated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable_devices: Option<i32>,
    /// The node, if all slices name the same one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// What was found wrong; at most 256 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_error: Option<String>,
    /// By partition type, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub partition_summary: Vec<PartitionTypeStatus>,
    /// Of devices that can be shared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shareable_summary: Option<ShareableSummary>,
}

/// Devices of one partition type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionTypeStatus {
    /// Attribute that names the type.
    pub attribute: String,
    /// The type.
    #[serde(rename = "type")]
    pub of_type: String,
    /// Devices.
    pub total: i32,
    /// How many more can be allocated if only devices of this type are.
    pub allocatable: i32,
}

/// Devices that can be shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareableSummary {
    /// Without any allocation.
    pub fully_available_devices: i32,
    /// With an allocation, and something left.
    pub partially_available_devices: i32,
    /// By capacity, sorted.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub capacity: Vec<ShareableCapacity>,
}

/// One capacity over all devices that can be shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShareableCapacity {
    /// Name, as published.
    pub name: String,
    /// Sum over the devices.
    pub total: Quantity,
    /// Sum over the shares of these devices.
    pub consumed: Quantity,
    /// The difference, at least zero.
    pub available: Quantity,
}

impl PoolStatus {
    /// True while slices of the newest generation are missing; then there are no numbers.
    pub fn is_incomplete(&self) -> bool {
        self.validation_error.as_deref().is_some_and(|error| error.starts_with(INCOMPLETE))
    }

    /// Adds to what was found wrong, as far as there is room.
    pub fn add_error(&mut self, error: &str) {
        let text = match self.validation_error.take() {
            Some(first) => format!("{first}; {error}"),
            None => error.to_owned(),
        };
        self.validation_error = Some(cut(text));
    }
}

pub(super) fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST_BYTES));
    text
}

/// The slices of the newest generation, in the order of their names.
fn newest(pool: &Pool) -> (i64, Vec<&Slice>) {
    let generation = pool.slots().iter().map(|slot| slot.slice.generation).max().unwrap_or_default();
    let of_generation = |slice: &&Slice| slice.generation == generation;
    (generation, pool.slots().iter().map(|slot| &*slot.slice).filter(of_generation).collect())
}

/// Whether the status of the pool depends on the attribute that a request names.
pub(super) fn uses_default(pool: &Pool) -> bool {
    let (_, slices) = newest(pool);
    slices.iter().any(|slice| !slice.counter_sets.is_empty())
        && slices.iter().any(|slice| slice.len() > 0 && own_attribute(slice).is_empty())
}

pub(super) fn status(inventory: &Inventory, pool: &Pool, default_attribute: Option<&str>) -> PoolStatus {
    let id = &pool.id;
    let (generation, slices) = newest(pool);
    let mut found = PoolStatus {
        driver: id.driver.to_string(),
        pool_name: id.pool.to_string(),
        generation: generation.max(1),
        node_name: common_node(&slices),
        ..PoolStatus::default()
    };
    // Should slices disagree, one that is missing is not overlooked.
    let announced = slices.iter().map(|slice| slice.announced).max().unwrap_or_default();
    let observed = slices.len();
    if i64::try_from(observed).is_ok_and(|observed| observed < announced) {
        found.add_error(&format!(
            "{INCOMPLETE} pool {id} is incomplete: observed {observed}/{announced} slices at generation {generation}"
        ));
        return found;
    }
    let taints = Taints::new(inventory, id);
    let devices: Vec<Member<'_>> = slices
        .iter()
        .flat_map(|slice| slice.devices())
        .map(|device| Member { device, allocated: is_allocated(pool, device), tainted: taints.of(device) })
        .collect();
    let held: BTreeSet<&str> =
        devices.iter().filter(|member| member.allocated).map(|member| member.device.name()).collect();
    let unpublished = unpublished(pool, &held);
    let unavailable = devices.iter().filter(|member| member.tainted && !member.allocated).count();
    found.resource_slice_count = Some(count(observed));
    found.total_devices = Some(count(devices.len()));
    found.allocated_devices = Some(count(held.len()));
    found.unavailable_devices = Some(count(unavailable));
    found.available_devices =
        Some(count(devices.len().saturating_sub(held.len()).saturating_sub(unavailable)));
    let partitions = partitions(pool, &slices, &devices, &unpublished, default_attribute);
    let shareable = shareable(pool, &devices);
    match (partitions, &shareable) {
        (Err(error), _) => found.add_error(&error),
        (Ok(_), Err(error)) => found.add_error(error),
        (Ok(summary), Ok(_)) => found.partition_summary = summary,
    }
    found.shareable_summary = shareable.unwrap_or_default();
    if generation == 0 {
        found.add_error(&format!(
            "PoolGenerationZero: 1 stands for generation 0, which this API cannot express, of pool {id}"
        ));
    }
    let twice: Vec<&str> = double_held(pool, &devices).collect();
    if !twice.is_empty() {
        found.add_error(&format!(
            "DeviceAllocatedTwice: devices of pool {id} are held by more than one claim: {}",
            twice.join(", ")
        ));
    }
    if !unpublished.is_empty() {
        found.add_error(&format!(
            "DeviceNotPublished: claims hold devices that pool {id} does not publish at generation {generation}: {}",
            unpublished.join(", ")
        ));
    }
    found
}

/// A published device.
pub(super) struct Member<'a> {
    pub(super) device: DeviceRef<'a>,
    /// A claim has it, not only for administration.
    pub(super) allocated: bool,
    /// A taint keeps claims away that do not tolerate it.
    pub(super) tainted: bool,
}

/// Devices that claims have beside the published ones, sorted.
pub(super) fn unpublished<'a>(pool: &'a Pool, published: &BTreeSet<&str>) -> Vec<&'a str> {
    pool.uses()
        .filter(|(name, used)| used.is_allocated() && !published.contains(&***name))
        .map(|(name, _)| &**name)
        .collect()
}

fn is_allocated(pool: &Pool, device: DeviceRef<'_>) -> bool {
    pool.device_use(device.name()).is_some_and(|used| used.is_allocated())
}

/// Devices that cannot be shared and that several claims have, sorted, each once.
pub(super) fn double_held<'a>(pool: &'a Pool, devices: &[Member<'_>]) -> impl Iterator<Item = &'a str> {
    let single: BTreeSet<&str> = devices
        .iter()
        .filter(|member| member.allocated && !member.device.allow_multiple())
        .map(|member| member.device.name())
        .collect();
    let twice: Vec<&'a str> = pool
        .uses()
        .filter(|(name, used)| single.contains(&***name) && used.claims().len() > 1)
        .map(|(name, _)| &**name)
        .collect();
    twice.into_iter()
}

fn common_node(slices: &[&Slice]) -> Option<String> {
    let node = |slice: &Slice| slice.node_name.clone().unwrap_or_else(|| Arc::from(""));
    let first = slices.first().map(|slice| node(slice))?;
    let is_common = !first.is_empty() && slices.iter().all(|slice| node(slice) == first);
    is_common.then(|| first.to_string())
}

/// Finds out which devices of a pool are tainted.
pub(super) struct Taints<'a> {
    inventory: &'a Inventory,
    id: &'a PoolId,
    /// A rule taints all of them.
    whole_pool: bool,
}

impl<'a> Taints<'a> {
    pub(super) fn new(inventory: &'a Inventory, id: &'a PoolId) -> Self {
        let whole_pool =
            inventory.taint_rules(id, None).iter().any(|rule| taints::has_effect(&rule.spec.taint));
        Self { inventory, id, whole_pool }
    }

    pub(super) fn of(&self, device: DeviceRef<'_>) -> bool {
        self.whole_pool
            || device.taints().any(|(_, taint)| taints::has_effect(taint))
            || (self.inventory.has_device_rules()
                && self
                    .inventory
                    .taint_rules(self.id, Some(&device.name().into()))
                    .iter()
                    .any(|rule| taints::has_effect(&rule.spec.taint)))
    }
}

/// The partition type of a device; `None` if it has no such attribute of type string.
pub(super) fn partition_type<'a>(device: DeviceRef<'a>, driver: &str, attribute: &str) -> Option<&'a str> {
    let value = device.attribute(attribute).or_else(|| {
        let bare = attribute.strip_prefix(driver)?.strip_prefix('/')?;
        device.attribute(bare)
    })?;
    match value {
        Attribute::Text(text) => Some(text),
        _ => None,
    }
}

/// `partitionTypeAttribute` of the slice, possibly empty.
pub(super) fn own_attribute(slice: &Slice) -> &str {
    slice.partition_type_attribute.as_deref().unwrap_or_default()
}

/// The attribute that groups each device, empty if none does: its slice's own, else the default
/// (`spec.defaultPartitionTypeAttribute` in the API's documentation).
pub(super) fn grouping<'a>(slices: &[&'a Slice], default_attribute: Option<&'a str>) -> Vec<&'a str> {
    slices
        .iter()
        .flat_map(|slice| {
            let own = own_attribute(slice);
            let attribute = if own.is_empty() { default_attribute.unwrap_or_default() } else { own };
            std::iter::repeat_n(attribute, slice.len())
        })
        .collect()
}

//! Pool status as the in-tree controller computes it (`pkg/controller/resourcepoolstatusrequest`: `controller.go`,
//! `views.go`); spec pool-status §3 to §6.
//!
//! Its weaknesses are part of the compatibility: surplus slices count, duplicate devices count twice, a device that is
//! tainted and allocated is subtracted twice, taints and compatibility groups do not touch the partition summary. Two
//! things are decided here that are left to chance there: slices are taken in the order of their names, and a text that
//! is too long is cut between characters.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_api::quantity::Quantity;
use serde::Serialize;

use crate::ids::PoolId;
use crate::inventory::Inventory;
use crate::inventory::details::Attribute;
use crate::inventory::pool::Pool;
use crate::inventory::slice::{DeviceRef, Slice};
use crate::taints;

/// The most items in a list of the status.
const MOST_ITEMS: usize = 32;
/// The most bytes of a validation error.
const MOST_BYTES: usize = 256;

/// `status.pools[]` of a `ResourcePoolStatusRequest`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolStatus {
    /// Driver.
    pub driver: String,
    /// Pool.
    pub pool_name: String,
    /// Newest generation.
    pub generation: i64,
    /// Slices found of that generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_slice_count: Option<i32>,
    /// Devices in these slices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_devices: Option<i32>,
    /// Devices that claims have, published or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_devices: Option<i32>,
    /// What remains after allocated and unavailable devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_devices: Option<i32>,
    /// Tainted devices, allocated or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unavailable_devices: Option<i32>,
    /// The node, if all slices name the same one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The first thing found wrong.
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
    /// How many more would fit if only devices of this type were allocated.
    pub allocatable: i32,
}

/// Devices that can be shared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareableSummary {
    /// Without any allocation.
    pub fully_available_devices: i32,
    /// With an allocation, even if nothing is left.
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
    /// Sum over all shares in the pool.
    pub consumed: Quantity,
    /// The difference, at least zero.
    pub available: Quantity,
}

impl Inventory {
    /// The status of each pool of `driver` that is published (only of `pool` if that is given), sorted by name.
    ///
    /// `default_attribute` is `spec.defaultPartitionTypeAttribute` of the request.
    pub fn pool_statuses(
        &self,
        driver: &str,
        pool: Option<&str>,
        default_attribute: Option<&str>,
    ) -> Vec<PoolStatus> {
        let first = PoolId::new(driver, pool.unwrap_or_default());
        self.pools_from(&first)
            .take_while(|(id, _)| *id.driver == *driver && pool.is_none_or(|pool| *id.pool == *pool))
            .filter(|(_, pool)| !pool.slots().is_empty())
            .map(|(id, pool)| status(self, id, pool, default_attribute))
            .collect()
    }
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn status(inventory: &Inventory, id: &PoolId, pool: &Pool, default_attribute: Option<&str>) -> PoolStatus {
    let generation = pool.slots().iter().map(|slot| slot.slice.generation).max().unwrap_or_default();
    let slices: Vec<&Slice> =
        pool.slots().iter().map(|slot| &*slot.slice).filter(|slice| slice.generation == generation).collect();
    let mut found = PoolStatus {
        driver: id.driver.to_string(),
        pool_name: id.pool.to_string(),
        generation,
        node_name: common_node(&slices),
        ..PoolStatus::default()
    };
    let announced = slices.first().map_or(0, |slice| slice.announced);
    if i64::try_from(slices.len()).is_ok_and(|observed| observed < announced) {
        let observed = slices.len();
        found.validation_error = Some(cut(format!(
            "PoolIncomplete: pool {id} is incomplete: observed {observed}/{announced} slices at generation {generation}"
        )));
        return found;
    }
    let devices: Vec<DeviceRef<'_>> = slices.iter().flat_map(|slice| slice.devices()).collect();
    let allocated = pool.uses().filter(|(_, used)| used.is_allocated()).count();
    let unavailable = devices.iter().filter(|device| is_tainted(inventory, id, **device)).count();
    found.resource_slice_count = Some(count(slices.len()));
    found.total_devices = Some(count(devices.len()));
    found.allocated_devices = Some(count(allocated));
    found.unavailable_devices = Some(count(unavailable));
    found.available_devices =
        Some(count(devices.len().saturating_sub(allocated).saturating_sub(unavailable)));
    let partitions = partitions(id, pool, &slices, default_attribute);
    let shareable = shareable(id, pool, &devices);
    let error = partitions.as_ref().err().or(shareable.as_ref().err()).cloned();
    found.validation_error = error.map(cut);
    if found.validation_error.is_none() {
        found.partition_summary = partitions.unwrap_or_default();
    }
    found.shareable_summary = shareable.unwrap_or_default();
    found
}

fn common_node(slices: &[&Slice]) -> Option<String> {
    let node = |slice: &Slice| slice.node_name.clone().unwrap_or_else(|| Arc::from(""));
    let first = slices.first().map(|slice| node(slice))?;
    let is_common = !first.is_empty() && slices.iter().all(|slice| node(slice) == first);
    is_common.then(|| first.to_string())
}

fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST_BYTES));
    text
}

pub(super) fn is_tainted(inventory: &Inventory, id: &PoolId, device: DeviceRef<'_>) -> bool {
    device.taints().any(|(_, taint)| taints::has_effect(taint))
        || [None, Some(device.name().into())]
            .iter()
            .flat_map(|device| inventory.taint_rules(id, device.as_ref()))
            .any(|rule| taints::has_effect(&rule.spec.taint))
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

/// Each device with the attribute that groups it; empty if nothing does.
pub(super) fn grouping<'a>(
    slices: &[&'a Slice],
    default_attribute: Option<&'a str>,
) -> Vec<(DeviceRef<'a>, &'a str)> {
    let own = |slice: &'a Slice| slice.partition_type_attribute.as_deref().unwrap_or_default();
    let declares = slices.iter().any(|slice| slice.len() > 0 && !own(slice).is_empty());
    let default = if declares { "" } else { default_attribute.unwrap_or_default() };
    slices
        .iter()
        .flat_map(|slice| {
            let attribute = if own(slice).is_empty() { default } else { own(slice) };
            slice.devices().map(move |device| (device, attribute))
        })
        .collect()
}

struct Group<'a> {
    total: usize,
    unused: Vec<DeviceRef<'a>>,
    cost: Vec<String>,
}

type Counters = BTreeMap<(String, String), Quantity>;

fn partitions(
    id: &PoolId,
    pool: &Pool,
    slices: &[&Slice],
    default_attribute: Option<&str>,
) -> Result<Vec<PartitionTypeStatus>, String> {
    let devices = grouping(slices, default_attribute);
    if devices.iter().all(|(_, attribute)| attribute.is_empty()) {
        return Ok(Vec::new());
    }
    if slices.iter().all(|slice| slice.counter_sets.is_empty()) {
        return Err(format!(
            "PartitionTypeMissing: pool {id} declares partitionTypeAttribute but publishes no sharedCounters"
        ));
    }
    let is_used =
        |device: DeviceRef<'_>| pool.device_use(device.name()).is_some_and(|used| used.is_allocated());
    let mut groups: BTreeMap<(&str, &str), Group<'_>> = BTreeMap::new();
    for (device, attribute) in &devices {
        if device.consumptions().is_empty() || attribute.is_empty() {
            continue;
        }
        let Some(of_type) = partition_type(*device, &id.driver, attribute) else {
            return Err(format!(
                "PartitionTypeMissing: device {:?} in pool {id} does not carry partition type attribute {attribute:?}",
                device.name()
            ));
        };
        let cost = cost(*device);
        let group = groups.entry((attribute, of_type)).or_insert_with(|| Group {
            total: 0,
            unused: Vec::new(),
            cost: cost.clone(),
        });
        if group.cost != cost {
            return Err(format!(
                "PartitionCostMismatch: devices of partition type {of_type:?} in pool {id} consume different counters"
            ));
        }
        group.total += 1;
        if !is_used(*device) {
            group.unused.push(*device);
        }
    }
    let baseline =
        counters_left(slices, devices.iter().map(|(device, _)| *device).filter(|one| is_used(*one)));
    let summary: Vec<_> = groups
        .into_iter()
        .map(|((attribute, of_type), group)| {
            let mut left = baseline.clone();
            let fitting = group.unused.iter().filter(|device| take(**device, &mut left)).count();
            PartitionTypeStatus {
                attribute: attribute.to_owned(),
                of_type: of_type.to_owned(),
                total: count(group.total),
                allocatable: count(fitting),
            }
        })
        .collect();
    if summary.len() > MOST_ITEMS {
        return Err(format!(
            "PartitionSummaryOverCap: pool {id} has {} partition types, exceeding the maximum of {MOST_ITEMS}",
            summary.len()
        ));
    }
    Ok(summary)
}

fn counters_of(device: DeviceRef<'_>) -> impl Iterator<Item = ((String, String), &Quantity)> {
    device.consumptions().iter().flat_map(|consumption| {
        consumption
            .counters
            .iter()
            .map(|(counter, amount)| ((consumption.set.to_string(), counter.to_string()), amount))
    })
}

/// Counter sets are part of the identity, and so is how an amount is written.
fn cost(device: DeviceRef<'_>) -> Vec<String> {
    let mut cost: Vec<_> =
        counters_of(device).map(|((set, counter), amount)| format!("{set}/{counter}={amount}")).collect();
    cost.sort();
    cost
}

fn counters_left<'a>(slices: &[&Slice], used: impl Iterator<Item = DeviceRef<'a>>) -> Counters {
    let mut left: Counters = slices
        .iter()
        .flat_map(|slice| &slice.counter_sets)
        .flat_map(|set| {
            set.counters
                .iter()
                .map(|(name, _, value)| ((set.name.to_string(), name.to_string()), value.clone()))
        })
        .collect();
    for device in used {
        for (counter, amount) in counters_of(device) {
            subtract(&mut left, &counter, amount);
        }
    }
    left
}

fn subtract(left: &mut Counters, counter: &(String, String), amount: &Quantity) {
    if let Some(value) = left.get_mut(counter)
        && let Some(less) = value.checked_sub(amount)
    {
        *value = less;
    }
}

/// Takes a device's counters if all of them suffice.
fn take(device: DeviceRef<'_>, left: &mut Counters) -> bool {
    let fits =
        counters_of(device).all(|(counter, amount)| left.get(&counter).is_some_and(|value| value >= amount));
    if fits {
        for (counter, amount) in counters_of(device) {
            subtract(left, &counter, amount);
        }
    }
    fits
}

fn add(sum: &mut Quantity, amount: &Quantity) {
    // A sum of more digits than anything real has is left as it is.
    if let Some(more) = sum.checked_add(amount) {
        *sum = more;
    }
}

fn shareable(
    id: &PoolId,
    pool: &Pool,
    devices: &[DeviceRef<'_>],
) -> Result<Option<ShareableSummary>, String> {
    let mut summary = ShareableSummary::default();
    let mut totals: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut any = false;
    for device in devices.iter().filter(|device| device.allow_multiple()) {
        any = true;
        if pool.device_use(device.name()).is_some_and(|used| used.is_allocated()) {
            summary.partially_available_devices = summary.partially_available_devices.saturating_add(1);
        } else {
            summary.fully_available_devices = summary.fully_available_devices.saturating_add(1);
        }
        for capacity in device.capacities() {
            add(totals.entry(&capacity.name).or_insert(Quantity::ZERO), &capacity.value);
        }
    }
    if !any {
        return Ok(None);
    }
    let mut consumed: BTreeMap<&str, Quantity> = BTreeMap::new();
    for (name, amount) in pool.uses().flat_map(|(_, used)| used.consumptions()).flatten() {
        add(consumed.entry(name).or_insert(Quantity::ZERO), amount);
    }
    if totals.len() > MOST_ITEMS {
        return Err(format!(
            "ShareableSummaryOverCap: pool {id} has {} shareable capacity keys, exceeding the maximum of {MOST_ITEMS}",
            totals.len()
        ));
    }
    summary.capacity = totals
        .into_iter()
        .map(|(name, total)| {
            let consumed = consumed.remove(name).unwrap_or(Quantity::ZERO);
            let available = total
                .checked_sub(&consumed)
                .filter(|available| *available >= Quantity::ZERO)
                .unwrap_or(Quantity::ZERO);
            ShareableCapacity { name: name.to_owned(), total, consumed, available }
        })
        .collect();
    Ok(Some(summary))
}

//! Requests and responses in the harness's JSON form (`wire.go`).

use std::collections::{BTreeMap, BTreeSet};

use dra_allocator::objects::{AllocationResult, DeviceClass, Node, ResourceClaim, ResourceSlice};
use dra_allocator::{Answer, DeviceId, Features, Holding, HoldingKind, Inventory, Limits};
use dra_api::quantity::Quantity;
use serde::{Deserialize, Deserializer, Serialize};

/// A question to the allocator with everything it needs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Request {
    /// Gates; those that are not named are off.
    #[serde(deserialize_with = "gates")]
    pub features: Features,
    /// What is allocated already.
    #[serde(deserialize_with = "nullable")]
    pub allocated_state: AllocatedState,
    /// Device classes.
    #[serde(deserialize_with = "nullable")]
    pub classes: Vec<DeviceClass>,
    /// Resource slices.
    #[serde(deserialize_with = "nullable")]
    pub slices: Vec<ResourceSlice>,
    /// The node to allocate on.
    #[serde(deserialize_with = "nullable")]
    pub node: Node,
    /// The claims to allocate.
    #[serde(deserialize_with = "nullable")]
    pub claims: Vec<ResourceClaim>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            features: Features::NONE,
            allocated_state: AllocatedState::default(),
            classes: Vec::new(),
            slices: Vec::new(),
            node: Node::default(),
            claims: Vec::new(),
        }
    }
}

fn nullable<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// On the wire a missing gate is off, whatever a cluster's default is.
fn gates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Features, D::Error> {
    let on: BTreeMap<String, bool> = nullable(deserializer)?;
    let is_on = |name: &str| on.get(name).copied().unwrap_or(false);
    Ok(Features {
        admin_access: is_on("AdminAccess"),
        compatibility_groups: is_on("CompatibilityGroups"),
        consumable_capacity: is_on("ConsumableCapacity"),
        derived_attributes: is_on("DerivedAttributes"),
        device_binding_and_status: is_on("DeviceBindingAndStatus"),
        device_taints: is_on("DeviceTaints"),
        fractional_capacity_range: is_on("FractionalCapacityRange"),
        list_type_attributes: is_on("ListTypeAttributes"),
        optional_node_operations: is_on("OptionalNodeOperations"),
        partitionable_devices: is_on("PartitionableDevices"),
        prioritized_list: is_on("PrioritizedList"),
    })
}

/// What is allocated already (`WireState`).
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocatedState {
    #[serde(deserialize_with = "nullable")]
    allocated_devices: Vec<WireDevice>,
    #[serde(rename = "allocatedSharedDeviceIDs", deserialize_with = "nullable")]
    allocated_shared_device_ids: Vec<WireDevice>,
    #[serde(deserialize_with = "nullable")]
    aggregated_capacity: Vec<WireCapacity>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireDevice {
    driver: String,
    pool: String,
    device: String,
    #[serde(rename = "shareID")]
    share_id: String,
}

impl WireDevice {
    fn id(&self) -> DeviceId {
        DeviceId::new(&self.driver, &self.pool, &self.device)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCapacity {
    #[serde(flatten)]
    device: WireDevice,
    #[serde(deserialize_with = "nullable")]
    consumed: BTreeMap<String, Quantity>,
}

/// The allocator's answer.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Response {
    results: Option<Vec<AllocationResult>>,
    #[serde(skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(skip_serializing_if = "is_false")]
    node_only: bool,
    num_allocate_one_invocations: u64,
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

impl Request {
    /// # Errors
    ///
    /// The text is not a request.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let mut request: Self =
            serde_json::from_slice(text).map_err(|error| format!("decode request: {error}"))?;
        request.make_names_distinct();
        Ok(request)
    }

    /// In a cluster names of slices are unique; in the upstream tests some are not. A suffix of NUL and a number keeps
    /// slices of one name together and in their order.
    fn make_names_distinct(&mut self) {
        let mut names = BTreeSet::new();
        for (position, slice) in self.slices.iter_mut().enumerate() {
            if !names.insert(slice.metadata.name.clone()) {
                slice.metadata.name = format!("{}\0{position:08}", slice.metadata.name);
            }
        }
    }

    /// An inventory that holds everything the request says.
    pub fn inventory(&self) -> Inventory {
        let mut inventory = self.without_slices();
        for slice in &self.slices {
            inventory.apply_slice(slice);
        }
        inventory
    }

    /// An inventory that holds what the request says except for the slices.
    pub fn without_slices(&self) -> Inventory {
        let mut inventory = Inventory::new(self.features);
        for class in &self.classes {
            inventory.apply_class(class);
        }
        inventory.apply_holdings("", self.holdings());
        inventory
    }

    fn holdings(&self) -> Vec<Holding> {
        let state = &self.allocated_state;
        let dedicated = state
            .allocated_devices
            .iter()
            .map(|device| Holding { device: device.id(), kind: HoldingKind::Dedicated });
        let shares = state.allocated_shared_device_ids.iter().map(|device| Holding {
            device: device.id(),
            kind: HoldingKind::Share { id: device.share_id.as_str().into() },
        });
        let consumed = state.aggregated_capacity.iter().map(|entry| Holding {
            device: entry.device.id(),
            kind: HoldingKind::Consumed { capacity: entry.consumed.clone() },
        });
        dedicated.chain(shares).chain(consumed).collect()
    }
}

/// Share identifiers; the harness ignores them.
pub fn share_ids() -> impl FnMut() -> String {
    let mut next = 0_u64;
    move || {
        next += 1;
        format!("00000000-0000-4000-8000-{next:012x}")
    }
}

/// Answers a request, however long it takes.
pub fn respond(request: &Request) -> Response {
    respond_within(request, u64::MAX)
}

/// Answers a request, or gives up after so many steps.
pub fn respond_within(request: &Request, steps: u64) -> Response {
    let inventory = request.inventory();
    let limits = Limits { steps, ..Limits::NONE };
    let outcome = inventory.allocate(&request.node, &request.claims, limits, &mut share_ids());
    let (results, error, node_only) = match outcome.answer {
        Ok(Answer::Allocated(results)) => (Some(results), String::new(), false),
        Ok(Answer::DoesNotFit) => (None, String::new(), false),
        Ok(Answer::GaveUp(why)) => (None, format!("filter operation aborted: {why:?}"), false),
        Err(error) => (None, error.to_string(), error.is_node_only()),
    };
    Response { results, error, node_only, num_allocate_one_invocations: outcome.steps }
}

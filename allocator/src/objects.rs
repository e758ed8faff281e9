//! The Kubernetes objects that the allocator reads and writes, in their `resource.k8s.io/v1` JSON form.
//!
//! Only the fields that matter to an allocation are kept, so these types are for reading, never for writing an
//! object back. Two things differ from generated types on purpose: quantities are parsed while decoding, and where
//! the scheduler tells an absent list from an empty one (binding conditions) so does the type.
//!
//! Sources: `k8s.io/api/resource/v1/types.go`, `k8s.io/api/core/v1/types.go`.

use std::collections::BTreeMap;

use dra_api::quantity::Quantity;
use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serialize};

/// Reads `null` as the default value, as Go's decoder does.
fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

// Serde passes a reference.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_false(value: &bool) -> bool {
    !value
}

/// What the allocator needs of `metadata`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ObjectMeta {
    /// Name; unique among objects of one kind and namespace.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Labels; read for nodes only.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// RFC 3339, in UTC; read for classes only, of which the newest serves an extended resource.
    #[serde(rename = "creationTimestamp", skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<String>,
}

/// A node: name, labels and declared features.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Node {
    /// Name and labels.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// Declared features.
    #[serde(deserialize_with = "nullable")]
    pub status: NodeStatus,
}

/// What the allocator needs of a node's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    /// Features that the kubelet declares.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub declared_features: Vec<String>,
}

/// A selector of nodes: terms are alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Alternatives; none matches nothing.
    #[serde(deserialize_with = "nullable")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// One alternative of a node selector; all its requirements must hold. An empty term matches nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Requirements on labels.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<NodeSelectorRequirement>,
    /// Requirements on fields; only `metadata.name` is known.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub match_fields: Vec<NodeSelectorRequirement>,
}

/// A requirement on one label or field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorRequirement {
    /// Label key or field path.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt` or `Lt`.
    #[serde(deserialize_with = "nullable")]
    pub operator: String,
    /// Operands.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

/// A resource slice: part of what one driver publishes for one pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceSlice {
    /// Name; slices of a pool are searched in the order of their names.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// Content.
    #[serde(deserialize_with = "nullable")]
    pub spec: ResourceSliceSpec,
}

/// Content of a resource slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourceSliceSpec {
    /// Name of the driver.
    #[serde(deserialize_with = "nullable")]
    pub driver: String,
    /// The pool that the slice belongs to.
    #[serde(deserialize_with = "nullable")]
    pub pool: ResourcePool,
    /// The one node that can use the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The nodes that can use the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// All nodes can use the devices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Devices, in the order in which they are tried.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Device>,
    /// Each device says itself which nodes can use it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_device_node_selection: Option<bool>,
    /// Counter sets that devices of the pool draw from; such a slice has no devices.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub shared_counters: Vec<CounterSet>,
    /// Attribute that names a device's partition type; informational.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_type_attribute: Option<String>,
    /// Node operations that are skipped for the devices.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub skip_node_operations: Vec<String>,
}

/// The pool of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ResourcePool {
    /// Name; unique within the driver.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Slices of a lower generation are out of date.
    #[serde(deserialize_with = "nullable")]
    pub generation: i64,
    /// Number of slices that make up this generation of the pool.
    #[serde(deserialize_with = "nullable")]
    pub resource_slice_count: i64,
}

/// A named set of counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CounterSet {
    /// Name; unique within the pool.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Counters by name.
    #[serde(deserialize_with = "nullable")]
    pub counters: BTreeMap<String, Counter>,
}

/// A quantity that devices share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counter {
    /// How much there is, or how much a device takes.
    pub value: Quantity,
}

/// A device as published in a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Device {
    /// Name; unique within the pool.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Attributes by name, with or without domain.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, DeviceAttribute>,
    /// Capacities by name, with or without domain.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, DeviceCapacity>,
    /// What the device takes from counter sets of its pool.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub consumes_counters: Vec<DeviceCounterConsumption>,
    /// The one node that can use the device; only with per-device node selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The nodes that can use the device; only with per-device node selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
    /// All nodes can use the device; only with per-device node selection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_nodes: Option<bool>,
    /// Taints set by the driver.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<DeviceTaint>,
    /// An allocation of this device holds on one node only.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_false")]
    pub binds_to_node: bool,
    /// Conditions that must become true before a Pod is bound. An empty list is not the same as none: it puts the
    /// pool behind others in the search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding_conditions: Option<Vec<String>>,
    /// Conditions that stop the binding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub binding_failure_conditions: Option<Vec<String>>,
    /// Several claims may share the device.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "is_false")]
    pub allow_multiple_allocations: bool,
    /// Node resources that the device stands for or needs, by resource; of no importance to an allocation.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub node_allocatable_resources: BTreeMap<String, NodeAllocatableResource>,
}

/// How a device concerns one of the node's own resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeAllocatableResource {
    /// The device is that resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mapping: Option<NodeAllocatableMapping>,
    /// The device needs that resource.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overhead: Option<NodeAllocatableOverhead>,
}

/// How much of a resource a device stands for: a multiple of a capacity, or an amount for each device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableMapping {
    /// The capacity, as it is named in the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_key: Option<String>,
    /// Units of the resource for each unit of the capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_multiplier: Option<Quantity>,
    /// Units of the resource for each device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_multiplier: Option<Quantity>,
}

/// How much of a resource a device needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAllocatableOverhead {
    /// Once for a Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<Quantity>,
    /// For each container that refers to the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<Quantity>,
}

/// An attribute's value. Exactly one field is set in valid objects; others are "unknown" to the allocator.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceAttribute {
    /// A number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub int: Option<i64>,
    /// A truth value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bool: Option<bool>,
    /// A text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,
    /// A semantic version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// A list of numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ints: Option<Vec<i64>>,
    /// A list of truth values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bools: Option<Vec<bool>>,
    /// A list of texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strings: Option<Vec<String>>,
    /// A list of semantic versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub versions: Option<Vec<String>>,
}

/// A capacity of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeviceCapacity {
    /// How much the device has.
    pub value: Quantity,
    /// Which amounts a share may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_policy: Option<Box<CapacityRequestPolicy>>,
}

/// Which amounts of a capacity a share may take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CapacityRequestPolicy {
    /// Taken by a request that does not name the capacity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Quantity>,
    /// The only amounts, ascending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_values: Option<Vec<Quantity>>,
    /// A range of amounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub valid_range: Option<CapacityRequestPolicyRange>,
}

/// A range of amounts: `min`, `min + step`, … up to `max`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapacityRequestPolicyRange {
    /// Least amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min: Option<Quantity>,
    /// Greatest amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<Quantity>,
    /// Distance between amounts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<Quantity>,
}

/// What a device takes from one counter set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceCounterConsumption {
    /// Name of the counter set.
    #[serde(deserialize_with = "nullable")]
    pub counter_set: String,
    /// Amounts by counter.
    #[serde(deserialize_with = "nullable")]
    pub counters: BTreeMap<String, Counter>,
    /// Devices on one counter set are allocated together only if all have a group in common.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub compatibility_groups: Vec<String>,
}

/// A taint on a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaint {
    /// Key.
    #[serde(deserialize_with = "nullable")]
    pub key: String,
    /// Value.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// `None`, `NoSchedule`, `NoExecute`, or one that is not known yet and has no effect.
    #[serde(deserialize_with = "nullable")]
    pub effect: String,
    /// When it was set; tolerations for a time count from here. Of no importance to an allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Timestamp>,
}

/// A rule that taints devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceTaintRule {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// Which devices, and the taint.
    #[serde(deserialize_with = "nullable")]
    pub spec: DeviceTaintRuleSpec,
}

/// Which devices a rule taints, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceTaintRuleSpec {
    /// None selects nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_selector: Option<DeviceTaintSelector>,
    /// The taint.
    #[serde(deserialize_with = "nullable")]
    pub taint: DeviceTaint,
}

/// All fields that are set must be equal; an empty selector selects every device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceTaintSelector {
    /// Driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
}

/// A class of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceClass {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// Selectors and configuration.
    #[serde(deserialize_with = "nullable")]
    pub spec: DeviceClassSpec,
}

/// Selectors and configuration of a class.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceClassSpec {
    /// All must be true of a device.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// Copied into the allocation.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceConfiguration>,
    /// The extended resource that devices of the class serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extended_resource_name: Option<String>,
}

/// A selector of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceSelector {
    /// A CEL expression; absent for a kind of selector that is not known yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cel: Option<CelDeviceSelector>,
}

/// A CEL expression on `device`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CelDeviceSelector {
    /// Must evaluate to a truth value.
    #[serde(deserialize_with = "nullable")]
    pub expression: String,
}

/// Configuration for a driver; the allocator only copies it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceConfiguration {
    /// Driver and parameters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub opaque: Option<serde_json::Value>,
}

/// A claim for devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaim {
    /// Name and namespace.
    #[serde(deserialize_with = "nullable")]
    pub metadata: ObjectMeta,
    /// What is asked for.
    #[serde(deserialize_with = "nullable")]
    pub spec: ResourceClaimSpec,
}

impl ResourceClaim {
    /// `namespace/name`, or `name` alone without a namespace.
    pub fn key(&self) -> String {
        if self.metadata.namespace.is_empty() {
            self.metadata.name.clone()
        } else {
            format!("{}/{}", self.metadata.namespace, self.metadata.name)
        }
    }
}

/// What a claim asks for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceClaimSpec {
    /// Requests, constraints and configuration.
    #[serde(deserialize_with = "nullable")]
    pub devices: DeviceClaim,
}

impl ResourceClaimSpec {
    /// Fills in what the API server fills in when a claim is created: one device, by count, and equality of tolerations
    /// (`pkg/apis/resource/v1/defaults.go`). For claims that were never stored; others are as they were written.
    pub fn apply_defaults(&mut self) {
        for request in &mut self.devices.requests {
            if let Some(exactly) = &mut request.exactly {
                default_mode(&mut exactly.allocation_mode, &mut exactly.count);
                default_operators(&mut exactly.tolerations);
            }
            for alternative in &mut request.first_available {
                default_mode(&mut alternative.allocation_mode, &mut alternative.count);
                default_operators(&mut alternative.tolerations);
            }
        }
    }
}

fn default_mode(mode: &mut String, count: &mut i64) {
    if mode.is_empty() {
        "ExactCount".clone_into(mode);
    }
    if mode == "ExactCount" && *count == 0 {
        *count = 1;
    }
}

fn default_operators(tolerations: &mut [DeviceToleration]) {
    for toleration in tolerations.iter_mut().filter(|toleration| toleration.operator.is_empty()) {
        "Equal".clone_into(&mut toleration.operator);
    }
}

/// Requests, constraints and configuration of a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceClaim {
    /// All must be satisfied, in this order.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<DeviceRequest>,
    /// Must hold across the devices of several requests.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<DeviceConstraint>,
    /// Copied into the allocation.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceClaimConfiguration>,
}

/// A request: either one kind of devices, or a list of alternatives.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequest {
    /// Name; unique within the claim in valid objects, but never relied upon.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Exactly this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exactly: Option<ExactDeviceRequest>,
    /// The first of these that fits.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub first_available: Vec<DeviceSubRequest>,
}

/// A request for one kind of devices.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExactDeviceRequest {
    /// Class.
    #[serde(deserialize_with = "nullable")]
    pub device_class_name: String,
    /// All must be true of a device.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// `ExactCount` or `All`; the allocator does not apply the API's default.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub allocation_mode: String,
    /// Number of devices with `ExactCount`.
    #[serde(deserialize_with = "nullable")]
    pub count: i64,
    /// Access for administration, to devices in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// Taints that are accepted.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// Capacity that each device must have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
    /// Attributes computed for constraints.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub derived_attributes: Vec<DeviceDerivedAttribute>,
}

/// One alternative of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceSubRequest {
    /// Name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// Class.
    #[serde(deserialize_with = "nullable")]
    pub device_class_name: String,
    /// All must be true of a device.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub selectors: Vec<DeviceSelector>,
    /// `ExactCount` or `All`; the allocator does not apply the API's default.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub allocation_mode: String,
    /// Number of devices with `ExactCount`.
    #[serde(deserialize_with = "nullable")]
    pub count: i64,
    /// Taints that are accepted.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// Capacity that each device must have left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityRequirements>,
    /// Attributes computed for constraints.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub derived_attributes: Vec<DeviceDerivedAttribute>,
}

/// Capacity that a request asks of each device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapacityRequirements {
    /// Amounts by capacity name.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub requests: BTreeMap<String, Quantity>,
}

/// An attribute that is computed per device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceDerivedAttribute {
    /// Fully qualified name; shadows the published attribute of that name.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// CEL expression on `device`.
    #[serde(deserialize_with = "nullable")]
    pub expression: String,
}

/// A taint that a request accepts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceToleration {
    /// Key; empty for any.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// `Exists`, or `Equal`, which is also the meaning of an empty one.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub operator: String,
    /// Value for `Equal`.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// Effect; empty for any.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// How long a `NoExecute` taint is tolerated, in seconds; of no importance to an allocation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// Something that must hold across devices of a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceConstraint {
    /// Requests or `request/subrequest`; empty for all.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// All devices have this attribute in common.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub match_attribute: Option<String>,
    /// All devices differ in this attribute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distinct_attribute: Option<String>,
}

/// Configuration in a claim.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceClaimConfiguration {
    /// Requests or `request/subrequest`; empty for all.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The configuration.
    #[serde(flatten)]
    pub device_configuration: DeviceConfiguration,
}

/// What a claim was given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AllocationResult {
    /// Devices and their configuration.
    #[serde(deserialize_with = "nullable")]
    pub devices: DeviceAllocationResult,
    /// Nodes on which the allocation can be used; none for all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<NodeSelector>,
}

/// Devices of an allocation and their configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceAllocationResult {
    /// Devices, in the order in which they were found.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<DeviceRequestAllocationResult>,
    /// Configuration of classes first, then of the claim.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub config: Vec<DeviceAllocationConfiguration>,
}

/// One device of an allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DeviceRequestAllocationResult {
    /// `request`, or `request/subrequest`.
    #[serde(deserialize_with = "nullable")]
    pub request: String,
    /// Driver.
    #[serde(deserialize_with = "nullable")]
    pub driver: String,
    /// Pool.
    #[serde(deserialize_with = "nullable")]
    pub pool: String,
    /// Device.
    #[serde(deserialize_with = "nullable")]
    pub device: String,
    /// Set, to true, if the device was given for administration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub admin_access: Option<bool>,
    /// All tolerations of the request.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<DeviceToleration>,
    /// The device's binding conditions.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub binding_conditions: Vec<String>,
    /// The device's binding failure conditions.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub binding_failure_conditions: Vec<String>,
    /// Identifies this share of a shared device.
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// What this share takes of each capacity of the device.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "BTreeMap::is_empty")]
    pub consumed_capacity: BTreeMap<String, Quantity>,
    /// Node operations that are skipped for the device.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub skip_node_operations: Vec<String>,
}

/// Configuration in an allocation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceAllocationConfiguration {
    /// `FromClass` or `FromClaim`.
    #[serde(deserialize_with = "nullable")]
    pub source: String,
    /// Requests or `request/subrequest`; empty for all.
    #[serde(deserialize_with = "nullable", skip_serializing_if = "Vec::is_empty")]
    pub requests: Vec<String>,
    /// The configuration.
    #[serde(flatten)]
    pub device_configuration: DeviceConfiguration,
}

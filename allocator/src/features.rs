//! The feature gates that change what the allocator does.

use serde::{Deserialize, Serialize};

/// Which Kubernetes feature gates are on. Field names are those of the structured allocator
/// (`structured/internal/types.go`); the gate's own name is in each field's description.
///
/// [`Default`] is what a v1.37 cluster has on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
#[allow(clippy::struct_excessive_bools)]
pub struct Features {
    /// `DRAAdminAccess`. Off: any request with the field `adminAccess`, even `false`, is an error.
    pub admin_access: bool,
    /// `DRADeviceCompatibilityGroups`. Off: slices that contain a group are ignored, so their pool is incomplete.
    pub compatibility_groups: bool,
    /// `DRAConsumableCapacity`. Off: capacity requests are an error, and every device is dedicated.
    pub consumable_capacity: bool,
    /// `DRADerivedAttributes`. Off: `derivedAttributes` in a request is an error.
    pub derived_attributes: bool,
    /// `DRADeviceBindingConditions` and `DRAResourceClaimDeviceStatus`. Off: devices with binding conditions are
    /// not selectable.
    pub device_binding_and_status: bool,
    /// `DRADeviceTaints`. Off: taints are ignored.
    pub device_taints: bool,
    /// `DRAFractionalCapacityRange`. Off: ranges of a capacity policy are rounded in whole units.
    pub fractional_capacity_range: bool,
    /// `DRAListTypeAttributes`. Off: constraints compare scalars only.
    pub list_type_attributes: bool,
    /// `DRAOptionalNodeOperations`. Off: devices of slices with `skipNodeOperations` are rejected.
    pub optional_node_operations: bool,
    /// `DRAPartitionableDevices`. Off: counter slices and slices with per-device node selection are ignored, and
    /// devices that consume counters cannot be allocated.
    pub partitionable_devices: bool,
    /// `DRAPrioritizedList`. Off: `firstAvailable` is an error.
    pub prioritized_list: bool,
}

impl Features {
    /// No gate on.
    pub const NONE: Self = Self {
        admin_access: false,
        compatibility_groups: false,
        consumable_capacity: false,
        derived_attributes: false,
        device_binding_and_status: false,
        device_taints: false,
        fractional_capacity_range: false,
        list_type_attributes: false,
        optional_node_operations: false,
        partitionable_devices: false,
        prioritized_list: false,
    };

    /// Every gate on.
    pub const ALL: Self = Self {
        admin_access: true,
        compatibility_groups: true,
        consumable_capacity: true,
        derived_attributes: true,
        device_binding_and_status: true,
        device_taints: true,
        fractional_capacity_range: true,
        list_type_attributes: true,
        optional_node_operations: true,
        partitionable_devices: true,
        prioritized_list: true,
    };
}

impl Default for Features {
    fn default() -> Self {
        Self {
            admin_access: true,
            consumable_capacity: true,
            device_binding_and_status: true,
            device_taints: true,
            partitionable_devices: true,
            prioritized_list: true,
            ..Self::NONE
        }
    }
}

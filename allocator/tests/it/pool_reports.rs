//! What people are told about a pool.

use dra_allocator::summary::report::PoolReport;
use dra_allocator::{Inventory, PoolId};
use serde_json::{Value, json};

use crate::world::{allocation, inventory, plain_devices, slice};

fn report(inventory: &Inventory) -> PoolReport {
    inventory.pool_report(&PoolId::new("gpu.dev", "pool"), None).unwrap()
}

/// Two GPUs, each cut into one full and two half partitions.
fn two_gpus() -> Vec<Value> {
    let count = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    let mut devices = Vec::new();
    for gpu in 0..2 {
        for (name, profile, memory) in
            [("full", "Full", "80Gi"), ("half-a", "Half", "40Gi"), ("half-b", "Half", "40Gi")]
        {
            devices.push(json!({
                "name": format!("gpu-{gpu}-{name}"),
                "attributes": {"profile": {"string": profile}},
                "consumesCounters": [{
                    "counterSet": format!("gpu-{gpu}"),
                    "counters": {"memory": {"value": memory}},
                }],
            }));
        }
    }
    let sets: Vec<Value> = (0..2)
        .map(|gpu| json!({"name": format!("gpu-{gpu}"), "counters": {"memory": {"value": "90Gi"}}}))
        .collect();
    vec![
        slice("counters", "pool", json!({"pool": count, "sharedCounters": sets})),
        slice(
            "devices",
            "pool",
            json!({"pool": count, "devices": devices, "partitionTypeAttribute": "gpu.dev/profile"}),
        ),
    ]
}

#[test]
fn a_partition_type_is_counted_over_all_gpus() {
    let mut inventory = inventory(&two_gpus());
    inventory.apply_allocation("a", &allocation(&[("pool", "gpu-0-half-a", json!({}))]));
    let found = report(&inventory);
    let types: Vec<_> = found
        .partitions
        .iter()
        .map(|one| (one.partition_type.as_str(), one.total, one.allocated, one.allocatable, one.capacity))
        .collect();
    assert_eq!(types, [("Full", 2, 0, 1, 2), ("Half", 4, 1, 3, 4)]);
    assert_eq!((found.devices, found.allocated, found.allocatable), (6, 1, 4));
}

#[test]
fn what_no_partition_can_use_is_stranded() {
    let mut inventory = inventory(&two_gpus());
    inventory.apply_allocation("a", &allocation(&[("pool", "gpu-0-full", json!({}))]));
    let counters: Vec<_> = report(&inventory)
        .counters
        .iter()
        .map(|one| format!("{} {} {} {}", one.counter_set, one.total, one.free, one.stranded))
        .collect();
    assert_eq!(counters, ["gpu-0 90Gi 10Gi 10Gi", "gpu-1 90Gi 90Gi 10Gi"]);
}

#[test]
fn each_device_is_counted_once_and_vanished_ones_are_listed() {
    let mut devices = plain_devices(3);
    devices[0]["taints"] = json!([{"key": "k", "effect": "NoExecute"}]);
    let mut inventory = inventory(&[slice("s", "pool", json!({"devices": devices}))]);
    let held = [("pool", "device-0", json!({})), ("pool", "gone", json!({}))];
    inventory.apply_allocation("a", &allocation(&held));
    let found = report(&inventory);
    assert_eq!((found.devices, found.allocated, found.tainted, found.allocatable), (3, 1, 1, 2));
    assert_eq!(found.unpublished, ["gone"]);
    assert_eq!(
        inventory
            .unpublished()
            .iter()
            .map(|(device, claims)| format!("{device} {claims:?}"))
            .collect::<Vec<_>>(),
        ["gpu.dev/pool/gone [\"a\"]"]
    );
}

#[test]
fn free_capacity_is_told_by_device_as_well_as_in_sum() {
    let device = |name: &str| {
        json!({
            "name": name,
            "allowMultipleAllocations": true,
            "capacity": {"bandwidth": {
                "value": "100G",
                "requestPolicy": {"default": "10G", "validRange": {"min": "10G", "step": "10G"}},
            }},
        })
    };
    let devices = json!([device("a"), device("b"), device("c")]);
    let mut inventory = inventory(&[slice("s", "pool", json!({"devices": devices}))]);
    let share = |amount: &str| json!({"shareID": amount, "consumedCapacity": {"bandwidth": amount}});
    inventory.apply_allocation(
        "x",
        &allocation(&[
            ("pool", "a", share("100G")),
            ("pool", "b", share("95G")),
            ("pool", "c", share("40G")),
        ]),
    );
    let found = serde_json::to_value(&report(&inventory).shareable).unwrap();
    assert_eq!(
        found,
        json!([{
            "capacity": "bandwidth", "devices": 3, "unused": 0, "full": 1, "total": "300G", "free": "65G",
            "largestFree": "60G", "stranded": "5G",
        }])
    );
}

#[test]
fn a_pool_that_cannot_be_used_says_why() {
    let two = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    let incomplete = inventory(&[slice("s", "pool", json!({"devices": plain_devices(1), "pool": two}))]);
    assert_eq!(report(&incomplete).problem.as_deref(), Some("incomplete: 1 of 2 slices"));
    let twice = json!([{"name": "d"}, {"name": "d"}]);
    let invalid = inventory(&[slice("s", "pool", json!({"devices": twice}))]);
    assert_eq!(report(&invalid).problem.as_deref(), Some("duplicate device name d"));
    assert_eq!(report(&invalid).allocatable, 0);
}

//! The rows of `controller_test.go` and `views_test.go` of the in-tree controller that concern the computation
//! (pool-status §10.1, §10.2).

use std::sync::Arc;

use dra_allocator::Inventory;
use dra_allocator::summary::status::PoolStatus;
use serde_json::{Value, json};

use crate::world::{allocation, inventory, object, plain_devices, rule, slice};

pub(crate) fn statuses(inventory: &Inventory) -> Vec<Arc<PoolStatus>> {
    inventory.pool_statuses("gpu.dev", None, None, 1000).1
}

/// Total, allocated, available, unavailable.
pub(crate) fn counts(status: &PoolStatus) -> (i32, i32, i32, i32) {
    (
        status.total_devices.unwrap(),
        status.allocated_devices.unwrap(),
        status.available_devices.unwrap(),
        status.unavailable_devices.unwrap(),
    )
}

fn four_devices() -> Inventory {
    inventory(&[slice("s", "pool-1", json!({"devices": plain_devices(4)}))])
}

fn of_pool(count: i64) -> Value {
    json!({"name": "pool-1", "generation": 1, "resourceSliceCount": count})
}

#[test]
fn devices_that_claims_have_are_counted_once() {
    let mut inventory = four_devices();
    assert_eq!(counts(&statuses(&inventory)[0]), (4, 0, 4, 0));
    for claim in ["a", "b", "c"] {
        inventory.apply_allocation(claim, &allocation(&[("pool-1", "device-0", json!({}))]));
    }
    assert_eq!(counts(&statuses(&inventory)[0]), (4, 1, 3, 0));
    inventory.apply_allocation("d", &allocation(&[("pool-1", "device-1", json!({}))]));
    assert_eq!(counts(&statuses(&inventory)[0]), (4, 2, 2, 0));
    inventory.apply_allocation("admin", &allocation(&[("pool-1", "device-3", json!({"adminAccess": true}))]));
    assert_eq!(counts(&statuses(&inventory)[0]), (4, 2, 2, 0));
}

#[test]
fn pools_are_sorted_and_filtered_by_driver_and_name() {
    let other = json!({
        "metadata": {"name": "x"},
        "spec": {"driver": "other.dev", "pool": of_pool(1), "nodeName": "node-1", "devices": plain_devices(1)},
    });
    let inventory = inventory(&[
        slice("b", "pool-2", json!({"devices": plain_devices(8)})),
        slice("a", "pool-10", json!({"devices": plain_devices(4)})),
        other,
    ]);
    let names: Vec<_> = statuses(&inventory).iter().map(|status| status.pool_name.clone()).collect();
    assert_eq!(names, ["pool-10", "pool-2"]);
    let one = inventory.pool_statuses("gpu.dev", Some("pool-2"), None, 1000).1;
    assert_eq!(one.len(), 1);
    assert_eq!(one[0].total_devices, Some(8));
    assert_eq!(inventory.pool_statuses("unknown.dev", None, None, 1000), (0, Vec::new()));
    let (found, listed) = inventory.pool_statuses("gpu.dev", None, None, 1);
    assert_eq!((found, listed.len(), listed[0].pool_name.as_str()), (2, 1, "pool-10"));
}

#[test]
fn surplus_slices_and_duplicate_devices_count() {
    let inventory = inventory(&[
        slice("a", "pool-1", json!({"devices": plain_devices(4)})),
        slice("b", "pool-1", json!({"devices": plain_devices(4)})),
    ]);
    let found = statuses(&inventory);
    assert_eq!((found[0].total_devices, found[0].resource_slice_count), (Some(8), Some(2)));
    assert_eq!(found[0].validation_error, None);
}

#[test]
fn slices_of_an_older_generation_are_ignored() {
    let newer = json!({"name": "pool-1", "generation": 2, "resourceSliceCount": 2});
    let inventory = inventory(&[
        slice("old", "pool-1", json!({"devices": plain_devices(8)})),
        slice("new-1", "pool-1", json!({"devices": plain_devices(4), "pool": newer})),
        slice("new-2", "pool-1", json!({"devices": plain_devices(4), "pool": newer})),
    ]);
    assert_eq!((statuses(&inventory)[0].total_devices, statuses(&inventory)[0].generation), (Some(8), 2));
}

#[test]
fn an_incomplete_pool_has_only_an_error() {
    let inventory = inventory(&[
        slice("a", "pool-1", json!({"devices": plain_devices(4), "pool": of_pool(5)})),
        slice("b", "pool-1", json!({"devices": plain_devices(4), "pool": of_pool(5)})),
    ]);
    let found = &statuses(&inventory)[0];
    assert_eq!(
        found.validation_error.as_deref(),
        Some("PoolIncomplete: pool gpu.dev/pool-1 is incomplete: observed 2/5 slices at generation 1")
    );
    assert_eq!(
        (found.total_devices, found.allocated_devices, found.resource_slice_count),
        (None, None, None)
    );
    assert_eq!(found.node_name.as_deref(), Some("node-1"));
}

#[test]
fn the_node_is_named_if_all_slices_agree() {
    let node = |name: &str, node: Value| {
        slice(name, "pool-1", json!({"devices": plain_devices(4), "pool": of_pool(2), "nodeName": node}))
    };
    let name = |slices: &[Value]| statuses(&inventory(slices))[0].node_name.clone();
    assert_eq!(name(&[node("a", json!("n")), node("b", json!("n"))]).as_deref(), Some("n"));
    assert_eq!(name(&[node("a", json!("n")), node("b", json!("m"))]), None);
    assert_eq!(name(&[node("a", json!(null)), node("b", json!(null))]), None);
    assert_eq!(name(&[node("a", json!("n")), node("b", json!(null))]), None);
}

#[test]
fn tainted_devices_are_unavailable() {
    for (effect, expected) in [
        ("NoSchedule", (5, 0, 3, 2)),
        ("NoExecute", (5, 0, 3, 2)),
        ("None", (5, 0, 5, 0)),
        ("New", (5, 0, 5, 0)),
    ] {
        let mut devices = plain_devices(5);
        for device in [0, 1] {
            devices[device]["taints"] = json!([{"key": "k", "effect": effect}]);
        }
        let inventory = inventory(&[slice("s", "pool-1", json!({"devices": devices}))]);
        assert_eq!(counts(&statuses(&inventory)[0]), expected, "{effect}");
    }
}

#[test]
fn a_rule_taints_what_it_selects() {
    for (selector, unavailable) in [
        (json!({"driver": "gpu.dev", "pool": "pool-1", "device": "device-0"}), 1),
        (json!({"device": "device-0"}), 1),
        (json!({"pool": "pool-2"}), 0),
        (json!({}), 4),
    ] {
        let mut inventory = four_devices();
        inventory.apply_taint_rule(&rule("r", selector.clone(), "NoSchedule"));
        assert_eq!(statuses(&inventory)[0].unavailable_devices, Some(unavailable), "{selector}");
        inventory.remove_taint_rule("r");
        assert_eq!(statuses(&inventory)[0].unavailable_devices, Some(0));
    }
    let mut inventory = four_devices();
    inventory.apply_taint_rule(&rule("r", json!(null), "NoSchedule"));
    assert_eq!(statuses(&inventory)[0].unavailable_devices, Some(0));
}

/// A counter slice with one set of 80Gi, and a device slice: Full takes all of it, each Half a half.
pub(crate) fn partitions(attribute: Value, sizes: &[(&str, &str, &str)]) -> Vec<Value> {
    let devices: Vec<Value> = sizes
        .iter()
        .map(|(name, profile, memory)| {
            json!({
                "name": name,
                "attributes": {"profile": {"string": profile}},
                "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}],
            })
        })
        .collect();
    vec![
        slice(
            "counters",
            "pool-1",
            json!({
                "pool": of_pool(2),
                "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}],
            }),
        ),
        slice(
            "devices",
            "pool-1",
            json!({"pool": of_pool(2), "devices": devices, "partitionTypeAttribute": attribute}),
        ),
    ]
}

pub(crate) const FULL_AND_HALVES: [(&str, &str, &str); 3] =
    [("full-0", "Full", "80Gi"), ("half-0", "Half", "40Gi"), ("half-1", "Half", "40960Mi")];

pub(crate) fn summary(status: &PoolStatus) -> Vec<(String, String, i32, i32)> {
    status
        .partition_summary
        .iter()
        .map(|one| (one.attribute.clone(), one.of_type.clone(), one.total, one.allocatable))
        .collect()
}

pub(crate) fn row(of_type: &str, total: i32, allocatable: i32) -> (String, String, i32, i32) {
    ("gpu.dev/profile".to_owned(), of_type.to_owned(), total, allocatable)
}

#[test]
fn each_partition_type_is_counted_on_its_own() {
    let mut inventory = inventory(&partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 1), row("Half", 2, 2)]);
    inventory.apply_allocation("a", &allocation(&[("pool-1", "full-0", json!({}))]));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 0), row("Half", 2, 0)]);
}

#[test]
fn the_request_names_the_attribute_if_no_slice_does() {
    let declared = inventory(&partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES));
    let by_default = declared.pool_statuses("gpu.dev", None, Some("gpu.dev/absent"), 1000).1;
    assert_eq!(summary(&by_default[0]), [row("Full", 1, 1), row("Half", 2, 2)]);
    let undeclared = inventory(&partitions(json!(null), &FULL_AND_HALVES));
    assert!(summary(&statuses(&undeclared)[0]).is_empty());
    let by_default = undeclared.pool_statuses("gpu.dev", None, Some("gpu.dev/profile"), 1000).1;
    assert_eq!(summary(&by_default[0]), [row("Full", 1, 1), row("Half", 2, 2)]);
}

#[test]
fn structural_problems_are_named() {
    let error =
        |slices: &[Value]| statuses(&inventory(slices))[0].validation_error.clone().unwrap_or_default();
    let mut unlike = FULL_AND_HALVES;
    unlike[2].2 = "50Gi";
    assert_eq!(
        error(&partitions(json!("gpu.dev/profile"), &unlike)),
        "PartitionCostMismatch: devices of partition type \"Half\" in pool gpu.dev/pool-1 consume different counters"
    );
    assert_eq!(
        error(&partitions(json!("gpu.dev/shape"), &FULL_AND_HALVES)),
        "PartitionTypeMissing: device \"full-0\" in pool gpu.dev/pool-1 does not carry partition type attribute \
         \"gpu.dev/shape\""
    );
    let spec = json!({"devices": plain_devices(1), "partitionTypeAttribute": "gpu.dev/shape"});
    assert_eq!(
        error(&[slice("s", "pool-1", spec)]),
        "PartitionTypeMissing: pool gpu.dev/pool-1 declares partitionTypeAttribute but publishes no sharedCounters"
    );
}

#[test]
fn too_many_partition_types_are_an_error_and_not_cut_off() {
    let names: Vec<String> = (0..33).map(|number| format!("type-{number}")).collect();
    let sizes: Vec<_> = names.iter().map(|name| (name.as_str(), name.as_str(), "1Gi")).collect();
    let inventory = inventory(&partitions(json!("gpu.dev/profile"), &sizes));
    let found = &statuses(&inventory)[0];
    assert_eq!(
        found.validation_error.as_deref(),
        Some(
            "PartitionSummaryOverCap: pool gpu.dev/pool-1 has 33 partition types, exceeding the maximum of 32"
        )
    );
    assert!(found.partition_summary.is_empty());
}

#[test]
fn shareable_capacity_is_summed_over_devices_and_shares() {
    let device = |name: &str| {
        json!({
            "name": name,
            "allowMultipleAllocations": true,
            "capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "4"}},
        })
    };
    let devices = json!([device("a"), device("b"), {"name": "plain"}]);
    let mut inventory = inventory(&[slice("s", "pool-1", json!({"devices": devices}))]);
    let share = json!({"shareID": "1", "consumedCapacity": {"memory": "10Gi", "cores": "1", "other": "7"}});
    inventory.apply_allocation("x", &allocation(&[("pool-1", "a", share)]));
    let found = serde_json::to_value(&*statuses(&inventory)[0]).unwrap();
    assert_eq!(
        found["shareableSummary"],
        json!({
            "fullyAvailableDevices": 1,
            "partiallyAvailableDevices": 1,
            "capacity": [
                {"name": "cores", "total": "8", "consumed": "1", "available": "7"},
                {"name": "memory", "total": "80Gi", "consumed": "10Gi", "available": "70Gi"},
            ],
        })
    );
    let more = json!({"shareID": "2", "consumedCapacity": {"memory": "71Gi"}});
    inventory.apply_allocation("y", &allocation(&[("pool-1", "a", more)]));
    let found = serde_json::to_value(&*statuses(&inventory)[0]).unwrap();
    assert_eq!(found["shareableSummary"]["capacity"][1]["available"], json!("0"));
    assert_eq!(found["shareableSummary"]["capacity"][1]["consumed"], json!("81Gi"));
}

#[test]
fn a_pool_without_slices_is_no_pool() {
    let mut inventory = four_devices();
    inventory.apply_allocation("a", &allocation(&[("pool-1", "device-0", json!({}))]));
    inventory.apply_slice(&object(slice("s", "pool-2", json!({"devices": []}))));
    let found = statuses(&inventory);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].pool_name.as_str(), found[0].total_devices), ("pool-2", Some(0)));
}

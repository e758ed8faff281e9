//! The rows of the in-tree `controller_test.go` and of the integration and end-to-end suites that a planner decides
//! (pool-status §10.1, §10.4, §10.5). Those that concern numbers alone are in `allocator/tests/it/pool_statuses.rs`.

use std::time::Duration;

use serde_json::json;

use crate::world::{World, counts, devices, nothing, pool};

#[test]
fn a_single_pool_is_answered_with_one_status_update() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(4), "nodeName": "node-1"}));
    let keys = world.ask("r", nothing());
    assert_eq!(keys, ["poolstatusrequest:r"]);
    let plan = world.plan("r");
    assert_eq!((plan.actions.len(), plan.lookups.len(), plan.wake_at), (1, 0, None));
    assert_eq!(
        world.status("r"),
        json!({
            "poolCount": 1,
            "pools": [{
                "driver": "gpu.dev", "poolName": "pool-1", "generation": 1, "resourceSliceCount": 1,
                "totalDevices": 4, "allocatedDevices": 0, "availableDevices": 4, "unavailableDevices": 0,
                "nodeName": "node-1",
            }],
            "conditions": [{
                "type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
                "reason": "CalculationComplete", "message": "Calculated status for 1 pools",
            }],
        })
    );
}

#[test]
fn allocations_and_other_pools_are_counted() {
    let mut world = World::new();
    world.slice("a", json!({"devices": devices(4)}));
    world.slice("b", json!({"devices": devices(8), "pool": pool("pool-2", 1, 1)}));
    world.slice("c", json!({"devices": devices(3), "driver": "other.dev"}));
    world.claim("c0", &[("pool-1", "device-0", nothing())]);
    world.claim("c1", &[("pool-1", "device-1", nothing())]);
    let status = world.answer(nothing());
    assert_eq!(status["poolCount"], 2);
    assert_eq!(counts(&status["pools"][0]), [4, 2, 2, 0]);
    assert_eq!(counts(&status["pools"][1]), [8, 0, 8, 0]);
}

#[test]
fn a_pool_name_selects_one_pool() {
    let mut world = World::new();
    world.slice("a", json!({"devices": devices(4)}));
    world.slice("b", json!({"devices": devices(2), "pool": pool("pool-2", 1, 1)}));
    let status = world.answer(json!({"poolName": "pool-2"}));
    assert_eq!((&status["poolCount"], counts(&status["pools"][0])), (&json!(1), [2, 0, 2, 0]));
}

#[test]
fn the_list_ends_at_the_limit_and_the_count_does_not() {
    let mut world = World::new();
    for name in ["b", "d", "a", "e", "c"] {
        world.slice(name, json!({"devices": devices(1), "pool": pool(name, 1, 1)}));
    }
    let status = world.answer(json!({"limit": 2}));
    assert_eq!(status["poolCount"], 5);
    let names: Vec<_> =
        status["pools"].as_array().unwrap().iter().map(|one| one["poolName"].clone()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(status["conditions"][0]["message"], "Calculated status for 2 pools");
}

#[test]
fn a_limit_that_nobody_filled_in_is_a_hundred() {
    let mut world = World::new();
    for number in 0..101 {
        let name = format!("p{number:03}");
        world.slice(&name, json!({"devices": [], "pool": pool(&name, 1, 1)}));
    }
    let status = world.answer(json!({"limit": null}));
    assert_eq!((&status["poolCount"], status["pools"].as_array().unwrap().len()), (&json!(101), 100));
}

#[test]
fn an_unknown_driver_has_no_pools_and_the_request_is_complete() {
    let mut world = World::new();
    world.ask("r", json!({"driver": "unknown.dev"}));
    world.pass(Duration::from_secs(1));
    let status = world.status("r");
    assert_eq!((&status["poolCount"], status.get("pools")), (&json!(0), None));
    assert_eq!(status["conditions"][0]["type"], "Complete");
}

#[test]
fn drivers_are_compared_byte_by_byte() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(1), "driver": "GPU.dev"}));
    world.ask("r", nothing());
    world.pass(Duration::from_secs(1));
    assert_eq!(world.status("r")["poolCount"], 0);
}

#[test]
fn an_answered_request_is_not_worked_on_again() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(1)}));
    world.ask("r", nothing());
    world.write("r", nothing());
    assert!(world.plan("r").is_settled());
    let keys = world.slice("t", json!({"devices": devices(1), "pool": pool("pool-2", 1, 1)}));
    assert!(keys.is_empty(), "{keys:?}");
    assert!(world.plan("r").is_settled());
}

#[test]
fn a_structural_error_is_written_beside_the_numbers() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(2), "partitionTypeAttribute": "gpu.dev/profile"}));
    let status = world.answer(nothing());
    let error = status["pools"][0]["validationError"].as_str().unwrap();
    assert!(error.starts_with("PartitionTypeMissing:"), "{error}");
    assert_eq!(counts(&status["pools"][0]), [2, 0, 2, 0]);
    assert_eq!(status["conditions"][0]["message"], "Calculated status for 1 pools (1 with errors)");
}

#[test]
fn a_rule_makes_a_device_unavailable() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(4)}));
    world.rule(json!({"driver": "gpu.dev", "pool": "pool-1", "device": "device-0"}), "NoSchedule");
    assert_eq!(counts(&world.answer(nothing())["pools"][0]), [4, 0, 3, 1]);
}

#[test]
fn claims_with_recorded_capacity_but_no_share_count_towards_it() {
    let mut world = World::new();
    let device = json!([{"name": "d", "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "40Gi"}, "cores": {"value": "8"}}}]);
    world.slice("s", json!({"devices": device}));
    let consumed = json!({"consumedCapacity": {"memory": "10Gi", "cores": "2"}});
    world.claim("c", &[("pool-1", "d", consumed)]);
    assert_eq!(
        world.answer(nothing())["pools"][0]["shareableSummary"],
        json!({
            "fullyAvailableDevices": 0,
            "partiallyAvailableDevices": 1,
            "capacity": [
                {"name": "cores", "total": "8", "consumed": "2", "available": "6"},
                {"name": "memory", "total": "40Gi", "consumed": "10Gi", "available": "30Gi"},
            ],
        })
    );
}

#[test]
fn a_partition_that_can_be_shared_is_in_both_views() {
    let mut world = World::new();
    let two = pool("pool-1", 1, 2);
    let sets = json!([{"name": "set", "counters": {"memory": {"value": "40Gi"}}}]);
    world.slice("counters", json!({"pool": two, "sharedCounters": sets}));
    let device = json!([{
        "name": "d", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "40Gi"}},
        "attributes": {"gpu.dev/profile": {"string": "Full"}},
        "consumesCounters": [{"counterSet": "set", "counters": {"memory": {"value": "40Gi"}}}],
    }]);
    let attribute = "gpu.dev/profile";
    world.slice("devices", json!({"pool": two, "devices": device, "partitionTypeAttribute": attribute}));
    let status = world.answer(nothing());
    let partition = json!([{"attribute": attribute, "type": "Full", "total": 1, "allocatable": 1}]);
    assert_eq!(status["pools"][0]["partitionSummary"], partition);
    assert_eq!(status["pools"][0]["shareableSummary"]["fullyAvailableDevices"], 1);
}

#[test]
fn a_pool_over_two_nodes_names_none() {
    let mut world = World::new();
    let two = pool("pool-1", 1, 2);
    world.slice("a", json!({"devices": devices(1), "pool": two, "nodeName": "node-1"}));
    world.slice("b", json!({"devices": [{"name": "x"}], "pool": two, "nodeName": "node-2"}));
    let status = world.answer(nothing());
    assert_eq!(status["pools"][0].get("nodeName"), None);
    assert_eq!(status["pools"][0]["resourceSliceCount"], 2);
}

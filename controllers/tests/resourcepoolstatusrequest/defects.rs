//! Requests that the in-tree controller leaves pending, or answers for pools that it should have waited for.

use std::time::Duration;

use dra_allocator::Features;
use dra_controllers::{
    resourcepoolstatusrequest::{SETTLE, SETTLE_QUIET},
    view::View,
};
use serde_json::json;

use crate::world::{World, counts, devices, nothing, pool};

const SECOND: Duration = Duration::from_secs(1);

fn half_a_pool(world: &mut World) {
    world.slice("half", json!({"devices": devices(2), "pool": pool("half", 1, 2)}));
}

#[test]
fn an_incomplete_pool_is_waited_for_and_answered_as_soon_as_its_slices_are_there() {
    let mut world = World::new();
    half_a_pool(&mut world);
    world.ask_now("r", nothing());
    assert!(world.plan("r").is_settled());
    assert_eq!(world.wait("r"), Some(25 * SECOND));
    assert_eq!(world.plan("r").why[0].to_string(), "waiting for slices of these pools: half");
    world.pass(12 * SECOND);
    assert_eq!(world.wait("r"), Some(13 * SECOND));
    let keys = world.slice("other", json!({"devices": [{"name": "x"}], "pool": pool("half", 1, 2)}));
    assert_eq!(keys, ["poolstatusrequest:r"], "the slice's own event wakes the request");
    assert_eq!(counts(&world.status("r")["pools"][0]), [3, 0, 3, 0]);
}

#[test]
fn an_incomplete_pool_is_written_beside_the_good_ones_before_the_documented_wait_ends() {
    let mut world = World::new();
    half_a_pool(&mut world);
    world.slice("whole", json!({"devices": devices(4), "pool": pool("whole", 1, 1)}));
    world.ask("r", nothing());
    world.pass(25 * SECOND);
    let status = world.status("r");
    assert_eq!(
        status["pools"][0],
        json!({
            "driver": "gpu.dev", "poolName": "half", "generation": 1,
            "validationError":
                "PoolIncomplete: pool gpu.dev/half is incomplete: observed 1/2 slices at generation 1",
        })
    );
    assert_eq!(counts(&status["pools"][1]), [4, 0, 4, 0]);
    assert_eq!(status["conditions"][0]["message"], "Calculated status for 2 pools (1 incomplete)");
    assert_eq!(status["conditions"][0]["type"], "Complete");
}

#[test]
fn edits_of_a_waiting_request_do_not_make_it_wait_longer() {
    let mut world = World::new();
    half_a_pool(&mut world);
    let request = world.request("r", nothing());
    world.put::<dra_api::ResourcePoolStatusRequest>(&request);
    world.pass(20 * SECOND);
    let mut edited = request;
    edited["metadata"]["labels"] = json!({"a": "b"});
    world.put::<dra_api::ResourcePoolStatusRequest>(&edited);
    assert_eq!(world.wait("r"), Some(5 * SECOND));
}

#[test]
fn a_new_generation_that_begins_while_a_request_waits_is_waited_for_too() {
    let mut world = World::new();
    world.slice("a", json!({"devices": devices(2), "pool": pool("p", 1, 1)}));
    world.slice("b", json!({"devices": devices(2), "pool": pool("p", 2, 2)}));
    world.ask_now("r", nothing());
    assert_eq!(world.wait("r"), Some(25 * SECOND));
    world.slice("a", json!({"devices": [{"name": "x"}], "pool": pool("p", 2, 2)}));
    world.pass(SETTLE);
    assert_eq!(world.status("r")["pools"][0]["generation"], 2);
}

#[test]
fn pools_behind_the_limit_are_not_waited_for() {
    let mut world = World::new();
    world.slice("a", json!({"devices": devices(1), "pool": pool("a-good", 1, 1)}));
    world.slice("z", json!({"devices": devices(1), "pool": pool("z-bad", 1, 2)}));
    let status = world.answer(json!({"limit": 1}));
    assert_eq!((&status["poolCount"], status["pools"].as_array().unwrap().len()), (&json!(2), 1));
}

#[test]
fn slices_of_other_pools_and_drivers_wake_nobody() {
    let mut world = World::new();
    half_a_pool(&mut world);
    world.ask("r", json!({"poolName": "half"}));
    world.ask("all", nothing());
    let other = world.slice("x", json!({"devices": [], "pool": pool("other", 1, 1)}));
    assert_eq!(other, ["poolstatusrequest:all"]);
    let foreign = world.slice("y", json!({"devices": [], "driver": "other.dev"}));
    assert!(foreign.is_empty(), "{foreign:?}");
    let moved = world.slice("half", json!({"devices": [], "pool": pool("other", 1, 2)}));
    assert_eq!(moved, ["poolstatusrequest:all", "poolstatusrequest:r"]);
    assert_eq!(world.remove_slice("x"), ["poolstatusrequest:all"]);
}

#[test]
fn a_request_that_is_seen_before_the_slices_of_its_driver_finds_them() {
    let mut world = World::new();
    world.ask_now("r", nothing());
    assert_eq!(world.wait("r"), Some(SECOND));
    let keys = world.slice("s", json!({"devices": devices(3)}));
    assert_eq!(keys, ["poolstatusrequest:r"]);
    world.pass(SETTLE);
    assert_eq!(world.status("r")["poolCount"], 1);
}

#[test]
fn a_request_is_not_answered_before_the_watches_can_have_shown_what_was_there_before_it() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(3)}));
    world.ask_now("r", nothing());
    assert!(world.plan("r").is_settled());
    assert_eq!(world.wait("r"), Some(SETTLE));
    world.slice("t", json!({"devices": devices(3), "pool": pool("other", 1, 1)}));
    world.pass(SETTLE);
    assert_eq!(world.status("r")["poolCount"], 2);
}

#[test]
fn a_request_in_a_quiet_cluster_is_answered_almost_at_once() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(3)}));
    world.pass(2 * SETTLE);
    world.ask_now("r", nothing());
    assert_eq!(world.wait("r"), Some(SETTLE_QUIET));
    world.pass(SETTLE_QUIET);
    assert_eq!(world.status("r")["poolCount"], 1);
    // Something moves while the next one waits.
    world.pass(SETTLE);
    world.ask_now("s", nothing());
    world.claim("c", &[("pool-1", "device-0", nothing())]);
    assert_eq!(world.wait("s"), Some(SETTLE));
}

#[test]
fn a_pool_of_generation_zero_is_answered_with_an_error() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(2), "pool": pool("zero", 0, 1)}));
    world.slice("t", json!({"devices": devices(1), "pool": pool("one", 1, 1)}));
    let status = world.answer(nothing());
    assert_eq!(counts(&status["pools"][0]), [1, 0, 1, 0]);
    let zero = &status["pools"][1];
    assert_eq!((&zero["generation"], counts(zero)), (&json!(1), [2, 0, 2, 0]));
    assert!(zero["validationError"].as_str().unwrap().starts_with("PoolGenerationZero:"), "{zero}");
}

#[test]
fn an_answer_that_the_api_server_refuses_becomes_a_failed_condition() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(1)}));
    world.ask("r", nothing());
    let uid = "r".into();
    world.view.note_answer_refused(&uid, &format!("status.pools[0]: Invalid value{}", "é".repeat(1000)));
    let status = world.status("r");
    assert_eq!((&status["poolCount"], status.get("pools")), (&json!(0), None));
    let condition = &status["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Failed"), &json!("CalculationFailed")));
    let message = condition["message"].as_str().unwrap();
    assert!(
        message.starts_with("The API server refused the calculated status: status.pools[0]"),
        "{message}"
    );
    assert!(message.len() < 1100);
}

#[test]
fn nothing_is_answered_before_the_devices_are_known() {
    let mut world = World::new();
    world.view = View::default();
    world.ask("r", nothing());
    assert!(world.plan("r").is_settled());
    world.view = View::default();
    world.view.keep_devices(Features::default());
}

/// A counter slice, and devices that each take a half of it.
fn halves(world: &mut World, generation: i64, names: &[&str]) {
    let two = pool("pool-1", generation, 2);
    let amount = |value: &str| json!({"memory": {"value": value}});
    let sets = json!([{"name": "set", "counters": amount("80Gi")}]);
    world.slice("counters", json!({"pool": two, "sharedCounters": sets}));
    let devices: Vec<_> = names
        .iter()
        .map(|name| {
            json!({"name": name, "attributes": {"profile": {"string": "Half"}},
                "consumesCounters": [{"counterSet": "set", "counters": amount("40Gi")}]})
        })
        .collect();
    let attribute = "gpu.dev/profile";
    world.slice("devices", json!({"pool": two, "devices": devices, "partitionTypeAttribute": attribute}));
}

#[test]
fn a_claim_that_is_updated_still_holds_what_its_withdrawn_device_consumes() {
    let mut world = World::new();
    halves(&mut world, 1, &["a", "b", "c"]);
    world.claim("claim", &[("pool-1", "a", nothing())]);
    halves(&mut world, 2, &["b", "c"]);
    let allocatable = |world: &mut World, name: &str| {
        world.ask(name, nothing());
        world.status(name)["pools"][0]["partitionSummary"][0]["allocatable"].clone()
    };
    assert_eq!(allocatable(&mut world, "first"), 1);
    // Its consumers and labels change all the time.
    world.claim("claim", &[("pool-1", "a", nothing())]);
    assert_eq!(allocatable(&mut world, "second"), 1);
    world.claim("claim", &[("pool-1", "a", nothing()), ("pool-1", "gone", nothing())]);
    assert_eq!(allocatable(&mut world, "third"), 1);
    world.claim("claim", &[]);
    assert_eq!(allocatable(&mut world, "fourth"), 2);
}

#[test]
fn the_status_of_a_rule_changes_no_pool() {
    let mut world = World::new();
    world.slice("s", json!({"devices": devices(2)}));
    world.rule(json!({}), "NoSchedule");
    let id = dra_allocator::PoolId::new("gpu.dev", "pool-1");
    let before = world.view.inventory().unwrap().pool_summary(&id).unwrap();
    world.rule(json!({}), "NoSchedule");
    let after = world.view.inventory().unwrap().pool_summary(&id).unwrap();
    assert!(std::sync::Arc::ptr_eq(&before, &after), "it is not computed again");
    assert_eq!(counts(&world.answer(nothing())["pools"][0]), [2, 0, 0, 2]);
    world.rule(json!({}), "None");
    world.ask("again", nothing());
    assert_eq!(counts(&world.status("again")["pools"][0]), [2, 0, 2, 0]);
}

#[test]
fn a_request_that_is_being_deleted_waits_for_nothing() {
    let mut world = World::new();
    half_a_pool(&mut world);
    let mut request = world.request("r", nothing());
    world.put::<dra_api::ResourcePoolStatusRequest>(&request);
    assert_eq!(world.view.index.unanswered_count(), 1);
    request["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.put::<dra_api::ResourcePoolStatusRequest>(&request);
    assert_eq!(world.view.index.unanswered_count(), 0);
    let keys = world.slice("other", json!({"devices": [], "pool": pool("half", 1, 2)}));
    assert!(keys.is_empty(), "{keys:?}");
}

#[test]
fn the_names_of_many_incomplete_pools_are_cut_short() {
    let mut world = World::new();
    for number in 0..100 {
        let name = format!("p{number:02}");
        world.slice(&name, json!({"devices": [], "pool": pool(&name, 1, 2)}));
    }
    world.ask("r", nothing());
    let text = world.plan("r").why[0].to_string();
    assert!(
        text.starts_with("waiting for slices of these pools: p00, p01") && text.ends_with("p09 and 90 more"),
        "{text}"
    );
}

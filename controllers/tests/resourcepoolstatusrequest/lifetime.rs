//! When requests are deleted (pool-status §1.6; the rows `IsOlderThan`, `ShouldDelete` and `CleanupExpiredRequests`).

use std::time::Duration;

use dra_api::ResourcePoolStatusRequest;
use dra_controllers::{
    plan::{Action, ExpireReason},
    resourcepoolstatusrequest::SETTLE,
};
use serde_json::{Value, json};

use crate::world::{World, devices, nothing};

const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

fn expires(world: &World, name: &str) -> Option<ExpireReason> {
    match &world.plan(name).actions[..] {
        [Action::Expire { request, reason }] => {
            assert_eq!(&*request.uid, name, "only this very object");
            Some(*reason)
        }
        _ => None,
    }
}

fn answered(world: &mut World) {
    world.slice("s", json!({"devices": devices(1)}));
    world.ask("r", nothing());
    world.write("r", nothing());
}

#[test]
fn an_answered_request_goes_one_hour_after_its_answer() {
    let mut world = World::new();
    answered(&mut world);
    assert_eq!(world.wait("r"), (HOUR + Duration::from_millis(1)).checked_sub(SETTLE));
    world.pass(59 * MINUTE);
    assert_eq!(expires(&world, "r"), None);
    world.pass(MINUTE.checked_sub(SETTLE).unwrap());
    assert_eq!(expires(&world, "r"), None, "strictly more than an hour");
    world.pass(Duration::from_millis(1));
    assert_eq!(expires(&world, "r"), Some(ExpireReason::Answered));
}

#[test]
fn only_the_expired_request_of_two_is_deleted() {
    let mut world = World::new();
    answered(&mut world);
    world.pass(2 * HOUR);
    world.ask("new", nothing());
    assert_eq!(expires(&world, "r"), Some(ExpireReason::Answered));
    assert_eq!(expires(&world, "new"), None);
}

#[test]
fn a_request_without_answer_goes_after_a_day() {
    let mut world = World::new();
    world.ask_now("r", nothing());
    world.pass(24 * HOUR);
    assert_eq!(expires(&world, "r"), None);
    world.pass(HOUR);
    assert_eq!(expires(&world, "r"), Some(ExpireReason::Unanswered));
}

fn with_status(world: &World, status: Value) -> Value {
    let mut request = world.request("r", nothing());
    request["status"] = status;
    request
}

#[test]
fn the_first_final_condition_counts_whatever_its_status_and_creation_without_one() {
    let condition = |of_type: &str, time: &str| json!({"type": of_type, "status": "False", "reason": "r", "message": "", "lastTransitionTime": time});
    let (early, late) = ("2026-01-01T00:00:00Z", "2026-01-01T05:00:00Z");
    for (conditions, gone_after_90_minutes) in [
        (json!([condition("Failed", early)]), true),
        (json!([condition("Complete", late), condition("Failed", early)]), false),
        (json!([condition("Other", late)]), true),
        (json!([]), true),
    ] {
        let mut world = World::new();
        let request = with_status(&world, json!({"poolCount": 0, "conditions": conditions}));
        world.put::<ResourcePoolStatusRequest>(&request);
        world.pass(90 * MINUTE);
        assert_eq!(expires(&world, "r").is_some(), gone_after_90_minutes, "{conditions}");
    }
}

#[test]
fn a_request_without_any_time_is_never_old() {
    let mut world = World::new();
    for status in [json!(null), json!({})] {
        let mut request = with_status(&world, status);
        request["metadata"]["creationTimestamp"] = json!(null);
        world.put::<ResourcePoolStatusRequest>(&request);
        world.pass(1000 * HOUR);
        assert_eq!(expires(&world, "r"), None);
    }
}

#[test]
fn a_request_that_is_being_deleted_or_is_gone_is_left_alone() {
    let mut world = World::new();
    let mut request = world.request("r", nothing());
    request["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    world.put::<ResourcePoolStatusRequest>(&request);
    world.pass(30 * HOUR);
    assert!(world.plan("r").is_settled() && world.plan("r").wake_at.is_none());
    assert!(world.delete::<ResourcePoolStatusRequest>(&ResourcePoolStatusRequest::key("r"), "r").is_empty());
    assert!(world.plan("r").is_settled());
}

#[test]
fn a_request_that_is_made_again_under_its_name_is_a_new_one() {
    let mut world = World::new();
    answered(&mut world);
    world.pass(2 * HOUR);
    let mut again = world.request("r", nothing());
    again["metadata"]["uid"] = json!("another");
    world.put::<ResourcePoolStatusRequest>(&again);
    world.pass(SETTLE);
    assert_eq!(world.status("r")["poolCount"], 1);
    assert_eq!(world.status("r")["conditions"][0]["lastTransitionTime"], "2026-01-01T02:00:00Z");
}

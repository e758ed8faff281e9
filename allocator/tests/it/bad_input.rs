//! Objects that no API server accepts, and numbers beyond all reason: an error or an answer, never a panic.

use std::sync::Arc;

use dra_allocator::objects::{ResourceClaim, ResourceSlice};
use dra_allocator::summary::status::PoolStatus;
use dra_allocator::{AllocateError, Answer, Inventory, Limits};
use serde_json::{Value, json};

use crate::world::{
    allocation, any, ask, claim, devices, error, exactly, inventory, node, plain_devices, slice, with_devices,
};

fn ask_for(devices: Value, more: Value) -> dra_allocator::Outcome {
    let mut exactly = exactly(1);
    for (key, value) in more.as_object().unwrap() {
        exactly[key] = value.clone();
    }
    ask(&with_devices(devices), &[claim(json!([{"name": "r", "exactly": exactly}]))])
}

#[test]
fn counts_beyond_reason_are_refused() {
    let inventory = with_devices(plain_devices(1));
    assert!(error(&ask(&inventory, &[any(i64::MAX)])).contains("exceeds the claim limit of 32"));
    assert!(error(&ask(&inventory, &[any(-1)])).contains("is negative"));
    let four: Vec<Value> =
        (0..4).map(|n| json!({"name": format!("r{n}"), "exactly": exactly(i64::MAX / 2 + 1)})).collect();
    assert!(error(&ask(&inventory, &[claim(four.into())])).contains("exceeds the claim limit of 32"));
}

#[test]
fn requests_without_content_are_refused() {
    let inventory = with_devices(plain_devices(1));
    assert!(
        error(&ask(&inventory, &[claim(json!([{"name": "r"}]))]))
            .contains("neither exactly nor firstAvailable")
    );
    assert!(error(&ask(&inventory, &[claim(json!([{}]))])).contains("neither exactly nor firstAvailable"));
    assert!(
        error(&ask_for(plain_devices(1), json!({"allocationMode": ""}))).contains("unsupported count mode")
    );
    assert!(error(&ask_for(plain_devices(1), json!({"selectors": [{}]}))).contains("CEL expression empty"));
    let empty = json!({"selectors": [{"cel": {"expression": ""}}]});
    assert!(error(&ask_for(plain_devices(1), empty)).contains("CEL compile error"));
}

#[test]
fn a_class_with_an_unknown_kind_of_selector_is_an_error() {
    let mut inventory = with_devices(plain_devices(1));
    let class = json!({"metadata": {"name": "any"}, "spec": {"selectors": [{}]}});
    inventory.apply_class(&serde_json::from_value(class).unwrap());
    assert!(error(&ask(&inventory, &[any(1)])).contains("class any: selector #0: CEL expression empty"));
}

#[test]
fn attributes_without_a_known_value_spoil_selectors_only() {
    let devices_with = json!([{"name": "d", "attributes": {"odd": {}, "future": {"complex": [1, 2]}}}]);
    assert_eq!(devices(&ask_for(devices_with.clone(), json!({}))), Some(vec!["d".to_owned()]));
    let selector = json!({"selectors": [{"cel": {"expression": "true"}}]});
    assert!(error(&ask_for(devices_with, selector)).contains("unsupported attribute value"));
}

#[test]
fn references_to_missing_counters_make_the_pool_invalid() {
    let device =
        json!([{"name": "d", "consumesCounters": [{"counterSet": "x", "counters": {"y": {"value": "1"}}}]}]);
    assert_eq!(ask_for(device, json!({})).answer, Err(AllocateError::InvalidPools));
}

#[test]
fn quantities_beyond_reason_make_the_pool_invalid_or_the_request_an_error() {
    for value in ["1e99", "-1e40", "1e2147483647"] {
        let device = json!([{"name": "d", "capacity": {"memory": {"value": value}}}]);
        assert_eq!(ask_for(device, json!({})).answer, Err(AllocateError::InvalidPools), "{value}");
    }
    let device = json!([{"name": "d", "capacity": {"memory": {"value": "1"}}}]);
    let wanted = json!({"capacity": {"requests": {"memory": "1e99"}}});
    assert!(error(&ask_for(device, wanted)).contains("cannot be represented"));
}

#[test]
fn a_nonsense_quantity_is_not_decoded() {
    let text = r#"{"spec": {"devices": [{"name": "d", "capacity": {"memory": {"value": "a lot"}}}]}}"#;
    assert!(serde_json::from_str::<ResourceSlice>(text).is_err());
}

#[test]
fn nulls_are_read_as_nothing() {
    let text = r#"{"metadata": null, "spec": {"devices": null, "pool": null, "sharedCounters": null, "driver": null}}"#;
    let slice: ResourceSlice = serde_json::from_str(text).unwrap();
    assert_eq!(slice, ResourceSlice::default());
    let claim: ResourceClaim = serde_json::from_str(r#"{"spec": {"devices": {"requests": null}}}"#).unwrap();
    assert_eq!(claim, ResourceClaim::default());
}

#[test]
fn ranges_without_a_minimum_or_with_a_step_of_zero_do_not_divide_by_zero() {
    for range in
        [json!({"step": "0", "min": "1"}), json!({"step": "2"}), json!({"step": "0"}), json!({"max": "0"})]
    {
        let device = json!([{
            "name": "d",
            "allowMultipleAllocations": true,
            "capacity": {"memory": {"value": "8", "requestPolicy": {"validRange": range}}},
        }]);
        let wanted = json!({"capacity": {"requests": {"memory": "3"}}});
        let outcome = ask_for(device, wanted);
        assert!(
            matches!(outcome.answer, Ok(Answer::DoesNotFit) | Err(AllocateError::Capacity(_))),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_pool_of_ten_thousand_devices_in_one_slice_is_searched() {
    let inventory = with_devices(plain_devices(10_000));
    assert_eq!(devices(&ask(&inventory, &[any(32)])).map(|found| found.len()), Some(32));
}

/// Total, allocated, available, unavailable.
fn counts(inventory: &Inventory) -> Vec<Option<i32>> {
    let (_, statuses): (_, Vec<Arc<PoolStatus>>) = inventory.pool_statuses("gpu.dev", Some("pool"), None, 10);
    let pool = &statuses[0];
    vec![pool.total_devices, pool.allocated_devices, pool.available_devices, pool.unavailable_devices]
}

#[test]
fn of_ten_thousand_devices_each_counts_once() {
    let mut inventory = with_devices(plain_devices(10_000));
    // Two claims have the same device, one has a device that is gone, one has one of a pool that never was.
    for (claim, pool, device) in [
        ("a", "pool", "device-7"),
        ("b", "pool", "device-7"),
        ("c", "pool", "gone"),
        ("d", "nowhere", "device-1"),
    ] {
        inventory.apply_allocation(claim, &allocation(&[(pool, device, json!({}))]));
    }
    // A device that is gone is named and not counted.
    assert_eq!(counts(&inventory), [Some(10_000), Some(1), Some(9_999), Some(0)]);
    let found = inventory.fit(&[node("node-1")], &[any(32)], Limits::NONE, u64::MAX);
    assert_eq!(found.total, 9_999 / 32);
}

#[test]
fn all_of_ten_thousand_devices_are_more_than_a_claim_can_have() {
    let inventory = with_devices(plain_devices(10_000));
    let all = claim(json!([{"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "All"}}]));
    assert!(error(&ask(&inventory, &[all])).contains("adding 10000 devices exceeds the claim limit of 32"));
}

#[test]
fn counters_below_zero_leave_nothing_and_consumption_below_zero_gives_nothing_away() {
    let pool = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    let with = |published: &str, first: &str, second: &str| {
        let device = |name: &str, value: &str| json!({"name": name, "consumesCounters": [{"counterSet": "set", "counters": {"slots": {"value": value}}}]});
        inventory(&[
            slice(
                "counters",
                "pool",
                json!({
                    "pool": pool, "sharedCounters": [{"name": "set", "counters": {"slots": {"value": published}}}],
                }),
            ),
            slice(
                "devices",
                "pool",
                json!({"pool": pool, "devices": [device("d0", first), device("d1", second)]}),
            ),
        ])
    };
    assert_eq!(devices(&ask(&with("-1", "1", "1"), &[any(1)])), None);
    assert_eq!(devices(&ask(&with("1", "1", "1"), &[any(2)])), None);
    // As in Go, what is consumed is added up, whatever its sign.
    assert_eq!(devices(&ask(&with("1", "-1", "2"), &[any(2)])).map(|found| found.len()), Some(2));
    // The second device fits only once the other has given back what the first request could not have.
    let one_by_one =
        claim(json!([{"name": "r0", "exactly": exactly(1)}, {"name": "r1", "exactly": exactly(1)}]));
    let given = devices(&ask(&with("1", "2", "-1"), &[one_by_one]));
    assert_eq!(given, Some(vec!["d1".to_owned(), "d0".to_owned()]));
    assert_eq!(devices(&ask(&with("9223372036854775807", "9223372036854775807", "1"), &[any(2)])), None);
}

#[test]
fn an_expression_without_end_or_a_quantity_without_sense_is_an_error_of_the_selector() {
    let asks = |expression: &str| {
        error(&ask_for(plain_devices(1), json!({"selectors": [{"cel": {"expression": expression}}]})))
    };
    let endless = "lists.range(1000).all(a, lists.range(1000).all(b, lists.range(1000).all(c, true)))";
    assert!(asks(endless).contains("actual cost limit exceeded"));
    assert!(asks("quantity('1e-99999999').isGreaterThan(quantity('1e'))").contains("CEL"));
    assert!(asks("device.driver").contains("must evaluate to bool"));
}

#[test]
fn capacity_requests_beyond_64_bits_never_wrap_to_a_fit() {
    let shareable = json!([{
        "name": "d", "allowMultipleAllocations": true,
        "capacity": {"memory": {"value": "8", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}},
    }]);
    // As in Go, less than the minimum is the minimum, even less than nothing.
    let negative = ask_for(shareable.clone(), json!({"capacity": {"requests": {"memory": "-1"}}}));
    assert_eq!(devices(&negative), Some(vec!["d".to_owned()]));
    for amount in ["9223372036854775808", "18446744073709551617", "1e24"] {
        let outcome = ask_for(shareable.clone(), json!({"capacity": {"requests": {"memory": amount}}}));
        assert!(
            matches!(outcome.answer, Ok(Answer::DoesNotFit) | Err(AllocateError::Capacity(_))),
            "{amount}: {outcome:?}"
        );
    }
}

#[test]
fn a_hundred_thousand_requests_for_nothing_do_not_exhaust_the_stack() {
    let inventory = with_devices(plain_devices(1));
    let requests: Vec<Value> =
        (0..100_000).map(|n| json!({"name": format!("r{n}"), "exactly": exactly(0)})).collect();
    assert_eq!(devices(&ask(&inventory, &[claim(requests.into())])), Some(Vec::new()));
}

#[test]
fn slices_without_names_and_pools_are_slices_all_the_same() {
    let inventory =
        inventory(&[json!({"spec": {"allNodes": true, "devices": [{}]}}), slice("a", "p", json!({}))]);
    // The nameless pool announces no slice but has one.
    assert_eq!(devices(&ask(&inventory, &[any(1)])), None);
}

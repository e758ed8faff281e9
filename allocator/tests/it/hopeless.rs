//! Searches that take the scheduler exponential time and end here at once.

use dra_allocator::objects::ResourceClaim;
use dra_allocator::{Answer, Inventory};
use serde_json::{Value, json};

use crate::world::{any, ask, claim, exactly, inventory, object, plain_devices, slice, with_devices};

/// Steps that it takes to find out that the claims do not fit.
fn steps(inventory: &Inventory, claims: &[ResourceClaim]) -> u64 {
    let outcome = ask(inventory, claims);
    assert_eq!(outcome.answer, Ok(Answer::DoesNotFit));
    outcome.steps
}

fn single_requests(count: usize, constraints: Value) -> ResourceClaim {
    let requests: Vec<Value> =
        (0..count).map(|number| json!({"name": format!("r{number}"), "exactly": exactly(1)})).collect();
    object(
        json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": requests, "constraints": constraints}}}),
    )
}

fn with_attribute(values: &[i64]) -> Inventory {
    let devices: Vec<Value> = values
        .iter()
        .enumerate()
        .map(|(number, value)| json!({"name": format!("d{number:02}"), "attributes": {"root": {"int": value}}}))
        .collect();
    with_devices(devices.into())
}

#[test]
fn one_device_too_many_in_a_request() {
    // All subsets of 20 devices: a million.
    assert!(steps(&with_devices(plain_devices(20)), &[any(21)]) <= 100);
}

#[test]
fn one_single_request_too_many() {
    // All orders of nine devices: two million steps.
    assert!(steps(&with_devices(plain_devices(9)), &[single_requests(10, json!([]))]) <= 100);
}

#[test]
fn one_claim_too_many() {
    let claims: Vec<_> = (0..10).map(|_| any(1)).collect();
    assert!(steps(&with_devices(plain_devices(9)), &claims) <= 100);
}

#[test]
fn one_device_too_few_with_a_matching_attribute() {
    let matching = json!([{"matchAttribute": "gpu.dev/root"}]);
    let mut one_count: ResourceClaim = claim(json!([{"name": "r", "exactly": exactly(32)}]));
    one_count.spec.devices.constraints = object(matching.clone());
    for odd in [0, 15, 31] {
        let mut values = [7; 32];
        values[odd] = 8;
        let inventory = with_attribute(&values);
        assert!(steps(&inventory, std::slice::from_ref(&one_count)) <= 200, "{odd}");
        assert!(steps(&inventory, &[single_requests(32, matching.clone())]) <= 200, "{odd}");
    }
}

#[test]
fn one_value_too_few_for_a_distinct_attribute() {
    let distinct = json!([{"distinctAttribute": "gpu.dev/root"}]);
    let values: Vec<i64> = (0..28).map(|number| number % 7).collect();
    assert!(steps(&with_attribute(&values), &[single_requests(8, distinct)]) <= 100);
}

#[test]
fn one_partition_more_than_the_counter_admits() {
    let two = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    let devices: Vec<Value> = (0..24)
        .map(|number| {
            json!({
                "name": format!("d{number}"),
                "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": "10Gi"}}}],
            })
        })
        .collect();
    let inventory = inventory(&[
        slice(
            "c",
            "pool",
            json!({"pool": two, "sharedCounters": [{"name": "s", "counters": {"memory": {"value": "119Gi"}}}]}),
        ),
        slice("d", "pool", json!({"pool": two, "devices": devices})),
    ]);
    assert!(steps(&inventory, &[any(12)]) <= 100);
    assert!(steps(&inventory, &[single_requests(12, json!([]))]) <= 100);
}

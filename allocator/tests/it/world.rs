//! Objects for tests, written as JSON.

use dra_allocator::objects::{AllocationResult, DeviceTaintRule, Node, ResourceClaim};
use dra_allocator::{Answer, Features, Inventory, Limits, Outcome};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// An object from its JSON form.
pub(crate) fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A slice of the pool `pool` of `gpu.dev`, for `node-1` unless `spec` says otherwise.
pub(crate) fn slice(name: &str, pool: &str, spec: Value) -> Value {
    let mut full = json!({
        "driver": "gpu.dev",
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-1",
    });
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    json!({"metadata": {"name": name}, "spec": full})
}

/// Devices without anything but names.
pub(crate) fn plain_devices(count: usize) -> Value {
    (0..count).map(|number| json!({"name": format!("device-{number}")})).collect()
}

/// An inventory with class `any` and these slices.
pub(crate) fn inventory(slices: &[Value]) -> Inventory {
    let mut inventory = Inventory::new(Features::ALL);
    inventory.apply_class(&object(json!({"metadata": {"name": "any"}})));
    for slice in slices {
        inventory.apply_slice(&object(slice.clone()));
    }
    inventory
}

/// An inventory with one pool `pool` of one slice with these devices.
pub(crate) fn with_devices(devices: Value) -> Inventory {
    inventory(&[slice("slice", "pool", json!({"devices": devices}))])
}

pub(crate) fn node(name: &str) -> Node {
    object(json!({"metadata": {"name": name}}))
}

/// A claim with requests in JSON.
pub(crate) fn claim(requests: Value) -> ResourceClaim {
    object(
        json!({"metadata": {"namespace": "ns", "name": "claim"}, "spec": {"devices": {"requests": requests}}}),
    )
}

/// A claim for `count` devices of class `any`.
pub(crate) fn any(count: i64) -> ResourceClaim {
    claim(json!([{"name": "r", "exactly": exactly(count)}]))
}

pub(crate) fn exactly(count: i64) -> Value {
    json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": count})
}

/// Asks for claims on `node-1`.
pub(crate) fn ask(inventory: &Inventory, claims: &[ResourceClaim]) -> Outcome {
    ask_on(inventory, "node-1", claims)
}

pub(crate) fn ask_on(inventory: &Inventory, on: &str, claims: &[ResourceClaim]) -> Outcome {
    let mut next = 0;
    let mut share_ids = || {
        next += 1;
        format!("share-{next}")
    };
    inventory.allocate(&node(on), claims, Limits::NONE, &mut share_ids)
}

/// The devices that a single claim gets; `None` if it does not fit.
pub(crate) fn devices(outcome: &Outcome) -> Option<Vec<String>> {
    match outcome.answer.as_ref().unwrap() {
        Answer::Allocated(results) => {
            Some(results[0].devices.results.iter().map(|device| device.device.clone()).collect())
        }
        _ => None,
    }
}

/// The error's text.
pub(crate) fn error(outcome: &Outcome) -> String {
    outcome.answer.as_ref().unwrap_err().to_string()
}

/// An allocation of devices of `gpu.dev`, each with more fields.
pub(crate) fn allocation(devices: &[(&str, &str, Value)]) -> AllocationResult {
    let results: Vec<Value> = devices
        .iter()
        .map(|(pool, device, more)| {
            let mut result = json!({"request": "r", "driver": "gpu.dev", "pool": pool, "device": device});
            for (key, value) in more.as_object().unwrap() {
                result[key] = value.clone();
            }
            result
        })
        .collect();
    object(json!({"devices": {"results": results}}))
}

/// A rule that taints what `selector` selects.
pub(crate) fn rule(name: &str, selector: Value, effect: &str) -> DeviceTaintRule {
    object(json!({
        "metadata": {"name": name},
        "spec": {"deviceSelector": selector, "taint": {"key": "broken", "effect": effect}},
    }))
}

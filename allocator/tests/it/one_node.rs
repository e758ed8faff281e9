//! An inventory made for one node gives the answers that one of the whole cluster gives.

use std::sync::Arc;

use dra_allocator::objects::ResourceSlice;
use dra_allocator::{Features, Inventory, Limits};
use serde_json::{Value, json};

use crate::world::{any, ask_on, claim, exactly, inventory, node, object, plain_devices, slice};

fn for_one(name: &str, slices: &[Value]) -> Inventory {
    let mut one = Inventory::new(Features::ALL);
    one.apply_class(&object(json!({"metadata": {"name": "any"}})));
    let slices: Vec<Arc<ResourceSlice>> =
        slices.iter().map(|slice| Arc::new(object(slice.clone()))).collect();
    one.apply_slices_for(&node(name), &slices);
    one
}

/// Slices for several nodes, for all of them, and of pools that are incomplete, obsolete, or invalid.
fn slices() -> Vec<Value> {
    let two = |generation: u64| json!({"name": "two", "generation": generation, "resourceSliceCount": 2});
    let part = |name: &str| json!({"name": name, "generation": 1, "resourceSliceCount": 2});
    let numbered = |first: usize, count: usize| -> Value {
        (first..first + count)
            .map(|number| {
                json!({
                    "name": format!("device-{number}"),
                    "attributes": {"numa": {"int": number % 2}, "model": {"string": "a"}, "fw": {"version": "1.2.3"}},
                    "capacity": {"memory": {"value": format!("{}Gi", 10 + number)}},
                })
            })
            .collect()
    };
    vec![
        slice("a", "own", json!({"devices": numbered(0, 4)})),
        slice("b", "other", json!({"nodeName": "node-2", "devices": numbered(0, 4)})),
        slice("c", "for-all", json!({"nodeName": null, "allNodes": true, "devices": numbered(0, 2)})),
        // A pool of two nodes.
        slice("d", "two", json!({"pool": two(1), "devices": numbered(0, 2)})),
        slice("e", "two", json!({"pool": two(1), "nodeName": "node-2", "devices": numbered(2, 2)})),
        // Only node-2 has the newer generation.
        slice("f", "updated", json!({"devices": plain_devices(1)})),
        slice(
            "g",
            "updated",
            json!({
                "pool": {"name": "updated", "generation": 2, "resourceSliceCount": 1},
                "nodeName": "node-2", "devices": plain_devices(1),
            }),
        ),
        slice("h", "incomplete", json!({"pool": part("incomplete"), "devices": plain_devices(1)})),
    ]
}

#[test]
fn answers_and_explanations_are_those_of_the_whole_cluster() {
    let whole = inventory(&slices());
    let selected = |expression: &str| {
        let mut wanted = exactly(2);
        wanted["selectors"] = json!([{"cel": {"expression": expression}}]);
        claim(json!([{"name": "r", "exactly": wanted}]))
    };
    let mut large = exactly(3);
    large["capacity"] = json!({"requests": {"memory": "12Gi"}});
    let claims = [
        any(1),
        any(12),
        any(13),
        selected("device.attributes['gpu.dev'].numa == 1"),
        selected("device.attributes['gpu.dev'].fw.isGreaterThan(semver('1.0.0'))"),
        selected("device.attributes['gpu.dev'].nothing == 1"),
        selected(
            "'nothing' in device.attributes['gpu.dev'] || device.capacity['gpu.dev'].memory.isGreaterThan(quantity('11Gi'))",
        ),
        claim(json!([{"name": "r", "exactly": large}])),
    ];
    for name in ["node-1", "node-2", "node-3"] {
        let one = for_one(name, &slices());
        for claim in &claims {
            let claims = std::slice::from_ref(claim);
            assert_eq!(ask_on(&one, name, claims), ask_on(&whole, name, claims), "{name} {claim:?}");
            assert_eq!(
                one.explain(&node(name), claims, Limits::NONE, 100),
                whole.explain(&node(name), claims, Limits::NONE, 100)
            );
        }
    }
}

#[test]
fn a_quantity_out_of_range_makes_the_pool_invalid_before_anybody_asks_for_it() {
    let devices = json!([{"name": "d", "capacity": {"memory": {"value": "1e40"}}}]);
    let slices = [slice("a", "p", json!({"devices": devices}))];
    let one = for_one("node-1", &slices);
    assert_eq!(ask_on(&one, "node-1", &[any(1)]), ask_on(&inventory(&slices), "node-1", &[any(1)]));
    assert!(ask_on(&one, "node-1", &[any(1)]).answer.is_err());
}

//! Why claims fit on no node of a cluster.

use std::cell::Cell;

use dra_allocator::objects::Node;
use dra_allocator::{ClusterExplanation, Inventory, Limits};
use serde_json::json;

use crate::world::{allocation, any, claim, exactly, inventory, node, plain_devices, rule, slice};

fn nodes(count: usize) -> Vec<Node> {
    (1..=count).map(|number| node(&format!("node-{number}"))).collect()
}

/// So many nodes with a pool of three devices each.
fn cluster(count: usize) -> Inventory {
    let slices: Vec<_> = (1..=count)
        .map(|number| {
            let name = format!("node-{number}");
            slice(&name, &format!("pool-{number}"), json!({"nodeName": name, "devices": plain_devices(3)}))
        })
        .collect();
    inventory(&slices)
}

fn explain(
    inventory: &Inventory,
    count: usize,
    claims: &[dra_allocator::objects::ResourceClaim],
) -> ClusterExplanation {
    inventory.explain_cluster(&nodes(count), claims, Limits::NONE, 10)
}

fn counts(found: &ClusterExplanation) -> (usize, usize, usize, usize, usize) {
    (found.nodes, found.fits, found.does_not_fit, found.errs, found.gave_up)
}

#[test]
fn reasons_of_all_nodes_are_added_up() {
    let mut world = cluster(3);
    for (claim, pool, device) in
        [("a", "pool-1", "device-0"), ("b", "pool-1", "device-1"), ("c", "pool-2", "device-2")]
    {
        world.apply_allocation(claim, &allocation(&[(pool, device, json!({}))]));
    }
    world.apply_taint_rule(&rule("maintenance", json!({"pool": "pool-3"}), "NoSchedule"));
    let found = explain(&world, 3, &[any(3)]);
    assert_eq!(counts(&found), (3, 0, 3, 0, 0));
    assert_eq!(
        found.text(10_000),
        "fits on 0 of 3 nodes\n  3 nodes: claim ns/claim, request r: 2 of 3 devices on node-2\n        3 allocated to \
         other claims (for example gpu.dev/pool-1/device-0)\n        3 tainted broken=:NoSchedule by rule maintenance \
         (for example gpu.dev/pool-3/device-0)\n"
    );
}

#[test]
fn nodes_on_which_the_claims_fit_are_named() {
    let mut world = cluster(4);
    world.apply_allocation("x", &allocation(&[("pool-2", "device-0", json!({}))]));
    let found = world.explain_cluster(&nodes(4), &[any(3)], Limits::NONE, 2);
    assert_eq!(counts(&found), (4, 3, 1, 0, 0));
    assert_eq!(found.fitting, ["node-1", "node-3"]);
    assert!(found.text(10_000).starts_with("fits on 3 of 4 nodes (node-1, node-3, …)\n"));
}

#[test]
fn a_device_that_all_nodes_can_use_counts_once() {
    let shared = json!({"nodeName": null, "allNodes": true, "devices": plain_devices(2)});
    let mut world = inventory(&[slice("s", "shared", shared)]);
    for device in ["device-0", "device-1"] {
        world.apply_allocation(device, &allocation(&[("shared", device, json!({}))]));
    }
    let found = explain(&world, 5, &[any(1)]);
    assert_eq!((found.failed[0].nodes, found.failed[0].summary[0].devices), (5, 2));
}

#[test]
fn the_device_that_comes_closest_is_found_on_any_node() {
    let devices = |size: &str| json!([{"name": "d", "capacity": {"memory": {"value": size}}}]);
    let world = inventory(&[
        slice("a", "pool-1", json!({"devices": devices("10Gi")})),
        slice("b", "pool-2", json!({"nodeName": "node-2", "devices": devices("30Gi")})),
        slice("c", "pool-3", json!({"nodeName": "node-3", "devices": devices("20Gi")})),
    ]);
    let mut wanted = exactly(1);
    wanted["capacity"] = json!({"requests": {"memory": "40Gi"}});
    let found = explain(&world, 3, &[claim(json!([{"name": "r", "exactly": wanted}]))]);
    let reason = &found.failed[0].summary[0];
    assert_eq!((reason.devices, reason.example.as_str()), (3, "gpu.dev/pool-2/d"));
    assert_eq!(reason.short_by.as_deref(), Some("10Gi"));
}

#[test]
fn errors_are_counted_and_so_are_nodes_that_nobody_looked_at() {
    let unknown = json!([{"name": "r", "exactly": {
        "deviceClassName": "none", "allocationMode": "ExactCount", "count": 1,
    }}]);
    let found = explain(&cluster(3), 3, &[claim(unknown)]);
    assert_eq!((counts(&found), found.errors[0].nodes), ((3, 0, 0, 3, 0), 3));
    let left = Cell::new(3);
    let cancelled = || {
        left.set(left.get() - 1);
        left.get() < 0
    };
    let limits = Limits { cancelled: &cancelled, ..Limits::NONE };
    let found = cluster(9).explain_cluster(&nodes(9), &[any(9)], limits, 10);
    assert_eq!(counts(&found), (9, 0, 3, 0, 6));
    let found = cluster(9).explain_cluster(&nodes(9), &[any(9)], Limits { steps: 5, ..Limits::NONE }, 10);
    assert_eq!(found.does_not_fit + found.gave_up, 9);
    assert!(found.gave_up > 0, "{found:?}");
}

#[test]
fn an_explanation_of_a_cluster_is_never_longer_than_the_caller_wants() {
    let mut world = cluster(60);
    for number in 1..=20 {
        world.apply_taint_rule(&rule(
            &format!("rule-{number}"),
            json!({"pool": format!("pool-{number}")}),
            "NoSchedule",
        ));
    }
    let found = explain(&world, 60, &[any(3)]);
    assert_eq!((found.fits, found.fitting.len(), found.failed[0].summary.len()), (40, 10, 10));
    let whole = found.json(100_000).unwrap();
    for limit in [0, 1, 50, 200, 300, 500, 800, 5_000] {
        assert!(found.text(limit).len() <= limit, "{limit}");
        if let Some(text) = found.json(limit) {
            assert!(text.len() <= limit, "{limit}");
        } else {
            assert!(limit < 200, "{limit}");
        }
    }
    assert_eq!(found.json(whole.len()), Some(whole));
}

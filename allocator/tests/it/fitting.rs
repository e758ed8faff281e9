//! How many more copies fit.

use dra_allocator::{Fit, FitEnd, Inventory, Limits};
use serde_json::json;

use crate::world::{allocation, any, ask, claim, devices, inventory, node, plain_devices, slice};

fn fit(inventory: &Inventory, claims: &[dra_allocator::objects::ResourceClaim], most: u64) -> Fit {
    inventory.fit(&[node("node-1"), node("node-2")], claims, Limits::NONE, most)
}

fn copies(fit: &Fit) -> Vec<u64> {
    fit.nodes.iter().map(|node| node.copies).collect()
}

#[test]
fn devices_of_nodes_add_up() {
    let mut inventory = inventory(&[
        slice("a", "p1", json!({"devices": plain_devices(5)})),
        slice("b", "p2", json!({"devices": plain_devices(4), "nodeName": "node-2"})),
    ]);
    inventory.apply_allocation("x", &allocation(&[("p1", "device-0", json!({}))]));
    let found = fit(&inventory, &[any(2)], 100);
    assert_eq!((copies(&found), found.total), (vec![2, 2], 4));
    assert_eq!(found.nodes[0].end, FitEnd::Full);
}

#[test]
fn devices_that_several_nodes_can_use_count_once_in_total() {
    let inventory = inventory(&[
        slice("a", "p1", json!({"devices": plain_devices(3), "nodeName": null, "allNodes": true})),
        slice("b", "p2", json!({"devices": plain_devices(1), "nodeName": "node-2"})),
    ]);
    let found = fit(&inventory, &[any(1)], 100);
    assert_eq!((copies(&found), found.total), (vec![3, 4], 4));
}

#[test]
fn shares_of_a_device_are_counted_by_capacity() {
    let devices = json!([{
        "name": "nic",
        "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {"value": "100G"}},
    }]);
    let inventory = inventory(&[slice("a", "p1", json!({"devices": devices}))]);
    let mut wanted = crate::world::exactly(1);
    wanted["capacity"] = json!({"requests": {"bandwidth": "30G"}});
    let found = fit(&inventory, &[claim(json!([{"name": "r", "exactly": wanted}]))], 100);
    assert_eq!((copies(&found), found.total), (vec![3, 0], 3));
}

#[test]
fn counting_stops_where_the_caller_wants_and_where_there_is_no_end() {
    let inventory = inventory(&[slice("a", "p1", json!({"devices": plain_devices(5)}))]);
    assert_eq!(fit(&inventory, &[any(1)], 3).nodes[0].end, FitEnd::Limit);
    let mut monitor = crate::world::exactly(1);
    monitor["adminAccess"] = json!(true);
    let found = fit(&inventory, &[claim(json!([{"name": "r", "exactly": monitor}]))], 7);
    assert_eq!((found.nodes[0].copies, &found.nodes[0].end), (7, &FitEnd::Limit));
}

#[test]
fn counting_records_nothing() {
    let inventory = inventory(&[slice("a", "p1", json!({"devices": plain_devices(1)}))]);
    assert_eq!(fit(&inventory, &[any(1)], 10).total, 1);
    assert_eq!(devices(&ask(&inventory, &[any(1)])), Some(vec!["device-0".to_owned()]));
}

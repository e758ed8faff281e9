//! The numbers of all pools as metrics show them.

use dra_controllers::resourcepoolstatusrequest::live::{Level, Numbers, live};
use serde_json::json;

use crate::world::{World, devices, nothing, pool};

fn two_drivers_on_two_nodes() -> World {
    let mut world = World::new();
    for (name, driver, node) in
        [("a", "gpu.dev", "n1"), ("b", "gpu.dev", "n1"), ("c", "gpu.dev", "n2"), ("d", "nic.dev", "n1")]
    {
        world.slice(
            name,
            json!({"devices": devices(4), "pool": pool(name, 1, 1), "driver": driver, "nodeName": node}),
        );
    }
    world.claim("claim", &[("a", "device-0", nothing()), ("c", "gone", nothing())]);
    world
}

fn rows(world: &World, most: usize) -> (Level, Vec<(String, Numbers)>) {
    let found = live(world.view.inventory().unwrap(), most);
    let rows = found
        .rows
        .into_iter()
        .map(|(labels, numbers)| (format!("{}|{}|{}", labels.driver, labels.node, labels.pool), numbers));
    (found.level, rows.collect())
}

#[test]
fn each_pool_is_a_row_while_there_are_few() {
    let world = two_drivers_on_two_nodes();
    let (level, rows) = rows(&world, 100);
    assert_eq!(level, Level::Pool);
    let names: Vec<_> = rows.iter().map(|(labels, _)| labels.as_str()).collect();
    assert_eq!(names, ["gpu.dev|n1|a", "gpu.dev|n1|b", "gpu.dev|n2|c", "nic.dev|n1|d"]);
    let a = &rows[0].1;
    assert_eq!((a.total, a.allocated, a.available, a.unavailable), (4, 1, 3, 0));
    assert_eq!((rows[2].1.unpublished, rows[2].1.invalid, rows[2].1.allocated), (1, 1, 0));
}

#[test]
fn many_pools_are_summed_by_node_and_more_by_driver() {
    let world = two_drivers_on_two_nodes();
    let (level, by_node) = rows(&world, 30);
    assert_eq!(level, Level::Node);
    let names: Vec<_> = by_node.iter().map(|(labels, numbers)| (labels.as_str(), numbers.total)).collect();
    assert_eq!(names, [("gpu.dev|n1|", 8), ("gpu.dev|n2|", 4), ("nic.dev|n1|", 4)]);
    let (level, by_driver) = rows(&world, 20);
    assert_eq!(level, Level::Driver);
    let names: Vec<_> = by_driver.iter().map(|(labels, numbers)| (labels.as_str(), numbers.pools)).collect();
    assert_eq!(names, [("gpu.dev||", 3), ("nic.dev||", 1)]);
}

#[test]
fn the_numbers_follow_every_event() {
    let mut world = World::new();
    let cards = json!([
        {"name": "a", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "8Gi"}}},
        {"name": "b", "allowMultipleAllocations": true, "capacity": {"memory": {"value": "8Gi"}}},
    ]);
    world.slice("s", json!({"devices": cards}));
    let memory = |world: &World| rows(world, 100).1[0].1.capacities["memory"];
    let gib = 1024.0 * 1024.0 * 1024.0;
    assert!((memory(&world).free - 16.0 * gib).abs() < 1.0);
    assert!((memory(&world).largest_free - 8.0 * gib).abs() < 1.0, "no chunk of 10Gi");
    let share = |memory: &str| json!({"shareID": "x", "consumedCapacity": {"memory": memory}});
    world.claim("one", &[("pool-1", "a", share("6Gi"))]);
    world.claim("two", &[("pool-1", "b", share("5Gi"))]);
    assert!((memory(&world).largest_free - 3.0 * gib).abs() < 1.0);
    world.slice("s", json!({"devices": [], "pool": pool("pool-1", 2, 2)}));
    let now = &rows(&world, 100).1[0].1;
    assert_eq!((now.incomplete, now.total, now.unpublished), (1, 0, 2));
}

#[test]
fn names_that_drivers_choose_never_make_more_series_than_allowed() {
    let mut world = World::new();
    for number in 0..40 {
        // Each card calls its memory by another name.
        let card = json!([{"name": "a", "allowMultipleAllocations": true,
            "capacity": {format!("memory-{number}"): {"value": "8Gi"}}}]);
        let name = format!("p{number}");
        let driver = format!("d{}.dev", number % 4);
        let spec = json!({"devices": card, "pool": pool(&name, 1, 1), "driver": driver, "nodeName": name});
        world.slice(&name, spec);
    }
    let names = |most: usize| {
        let (level, rows) = rows(&world, most);
        let total: i64 = rows.iter().map(|(_, numbers)| numbers.total).sum();
        assert_eq!(total, 40, "nothing is lost at {level:?}");
        let details: usize = rows.iter().map(|(_, numbers)| numbers.capacities.len()).sum();
        (level, rows.len(), details)
    };
    assert_eq!(names(4 * 9 + 40 * 4), (Level::Driver, 4, 40));
    assert_eq!(names(4 * 9 + 40 * 4 - 1), (Level::DriverOnly, 4, 0));
    assert_eq!(names(4 * 9 - 1), (Level::Cluster, 1, 0));
    assert_eq!(names(0), (Level::Cluster, 1, 0));
}

#[test]
fn devices_are_not_called_unpublished_while_a_new_generation_comes_slice_by_slice() {
    let mut world = World::new();
    let slice =
        |generation: i64, name: &str| json!({"devices": [{"name": name}], "pool": pool("p", generation, 2)});
    world.slice("a", slice(1, "x"));
    world.slice("b", slice(1, "y"));
    world.claim("claim", &[("p", "x", nothing()), ("p", "y", nothing())]);
    let unpublished = |world: &World| rows(world, 100).1[0].1.unpublished;
    assert_eq!(unpublished(&world), 0);
    world.slice("a", slice(2, "x"));
    assert_eq!(unpublished(&world), 0, "slice b has not been republished yet");
    world.slice("b", slice(2, "z"));
    assert_eq!(unpublished(&world), 1);
}

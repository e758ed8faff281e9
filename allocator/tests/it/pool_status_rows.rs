//! Rows of `controller_test.go` and `views_test.go` that need pools of their own (pool-status §10.1, §10.2), and what
//! upstream leaves untested.

use serde_json::{Value, json};

use crate::pool_statuses::{FULL_AND_HALVES, counts, partitions, row, statuses, summary};
use crate::world::{allocation, inventory, object, plain_devices, slice};

fn pool(generation: i64, count: i64) -> Value {
    json!({"name": "pool-1", "generation": generation, "resourceSliceCount": count})
}

fn error(slices: &[Value]) -> String {
    statuses(&inventory(slices))[0].validation_error.clone().unwrap_or_default()
}

/// `all-pools-complete-no-validation-errors`.
#[test]
fn a_pool_of_two_slices_that_are_both_there_has_no_error() {
    let part =
        |name: &str, devices: Value| slice(name, "pool-1", json!({"devices": devices, "pool": pool(1, 2)}));
    let found = statuses(&inventory(&[part("a", plain_devices(4)), part("b", plain_devices(4))]));
    assert_eq!((found[0].total_devices, found[0].resource_slice_count), (Some(8), Some(2)));
    assert_eq!(found[0].validation_error, None);
}

/// E2E `correct device counts`: a pool that is not for one node names none.
#[test]
fn pools_for_selected_or_all_nodes_name_no_node() {
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"]}]}]});
    for scope in [
        json!({"nodeSelector": selector}),
        json!({"allNodes": true}),
        json!({"perDeviceNodeSelection": true}),
    ] {
        let mut spec = scope;
        spec["nodeName"] = json!(null);
        spec["devices"] = plain_devices(10);
        let found = &statuses(&inventory(&[slice("network", "pool-1", spec)]))[0];
        assert_eq!(
            (counts(found), found.generation, found.resource_slice_count),
            ((10, 0, 10, 0), 1, Some(1))
        );
        assert_eq!((&found.node_name, &found.validation_error), (&None, &None));
        assert!(found.partition_summary.is_empty() && found.shareable_summary.is_none());
    }
}

/// `fresh-device-clamp-binds-before-counter`.
#[test]
fn no_more_partitions_can_be_allocated_than_there_are() {
    let sizes = [("a", "Full", "80Gi"), ("b", "Full", "80Gi"), ("c", "Full", "80Gi")];
    let mut slices = partitions(json!("gpu.dev/profile"), &sizes);
    slices[0]["spec"]["sharedCounters"][0]["counters"]["memory"]["value"] = json!("800Gi");
    assert_eq!(summary(&statuses(&inventory(&slices))[0]), [row("Full", 3, 3)]);
}

/// `MultiCounterSet`.
#[test]
fn the_scarcest_counter_decides_how_many_partitions_fit() {
    let sizes = [("a", "Full", "80Gi"), ("b", "Full", "80Gi")];
    let mut slices = partitions(json!("gpu.dev/profile"), &sizes);
    slices[0]["spec"]["sharedCounters"][0]["counters"] =
        json!({"memory": {"value": "160Gi"}, "sm": {"value": "8"}});
    for device in slices[1]["spec"]["devices"].as_array_mut().unwrap() {
        device["consumesCounters"][0]["counters"]["sm"] = json!({"value": "8"});
    }
    assert_eq!(summary(&statuses(&inventory(&slices))[0]), [row("Full", 2, 1)]);
}

/// `pool mixes two grouping attributes` and `differing slice attributes are each kept`.
#[test]
fn slices_that_name_different_attributes_are_grouped_by_each() {
    let mut slices = partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES);
    let device = json!({
        "name": "special",
        "attributes": {"class": {"string": "A"}},
        "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "10Gi"}}}],
    });
    let spec = json!({"devices": [device], "partitionTypeAttribute": "gpu.dev/class"});
    slices.push(slice("more", "pool-1", spec));
    for slice in &mut slices {
        slice["spec"]["pool"] = pool(1, 3);
    }
    let class = ("gpu.dev/class".to_owned(), "A".to_owned(), 1, 1);
    let found = &statuses(&inventory(&slices))[0];
    assert_eq!(summary(found), [class, row("Full", 1, 1), row("Half", 2, 2)]);
    assert_eq!(found.validation_error, None);
}

/// `ResolvePartitionType`; documented-behaviour D138.
#[test]
fn the_type_is_a_string_under_the_full_name_or_without_the_drivers_own_domain() {
    let of = |attribute: &str, attributes: Value| {
        let mut slices = partitions(json!(attribute), &[("a", "Full", "80Gi")]);
        slices[1]["spec"]["devices"][0]["attributes"] = attributes;
        let found = statuses(&inventory(&slices)).remove(0);
        match &found.validation_error {
            Some(error) if error.starts_with("PartitionTypeMissing: device \"a\"") => None,
            Some(error) => panic!("{error}"),
            None => Some(found.partition_summary[0].of_type.clone()),
        }
    };
    let text = |text: &str| json!({"string": text});
    let full = Some("Full".to_owned());
    assert_eq!(of("gpu.dev/profile", json!({"profile": text("Full")})), full);
    assert_eq!(of("gpu.dev/profile", json!({"gpu.dev/profile": text("Full")})), full);
    assert_eq!(
        of("gpu.dev/profile", json!({"gpu.dev/profile": text("Full"), "profile": text("Other")})),
        full
    );
    assert_eq!(of("gpu.dev/profile", json!({"shape": text("Full")})), None);
    for other in
        [json!({"int": 7}), json!({"bool": true}), json!({"version": "1.0.0"}), json!({"strings": ["Full"]})]
    {
        assert_eq!(of("gpu.dev/profile", json!({"profile": other})), None, "{other}");
        let both = json!({"gpu.dev/profile": other, "profile": text("Full")});
        assert_eq!(of("gpu.dev/profile", both), None, "{other} under the full name decides");
    }
    assert_eq!(of("other.dev/profile", json!({"profile": text("Full")})), None);
    assert_eq!(of("other.dev/profile", json!({"other.dev/profile": text("Full")})), full);
}

fn shared(name: &str, capacities: &[(&str, &str)]) -> Value {
    let capacity: serde_json::Map<String, Value> =
        capacities.iter().map(|(name, value)| ((*name).to_owned(), json!({"value": value}))).collect();
    json!({"name": name, "allowMultipleAllocations": true, "capacity": capacity})
}

fn shareable(slices: &[Value]) -> Value {
    serde_json::to_value(&statuses(&inventory(slices))[0].shareable_summary).unwrap()
}

/// `ShareableSummary` of the integration suite, and `NoShareableDevices`.
#[test]
fn shareable_devices_without_shares_are_fully_available_and_plain_ones_make_no_summary() {
    let devices = json!([shared("a", &[("memory", "40Gi")]), shared("b", &[("memory", "40Gi")])]);
    assert_eq!(
        shareable(&[slice("s", "pool-1", json!({"devices": devices}))]),
        json!({
            "fullyAvailableDevices": 2, "partiallyAvailableDevices": 0,
            "capacity": [{"name": "memory", "total": "80Gi", "consumed": "0", "available": "80Gi"}],
        })
    );
    assert_eq!(shareable(&[slice("s", "pool-1", json!({"devices": plain_devices(2)}))]), Value::Null);
    let bare = json!([{"name": "a", "allowMultipleAllocations": true}]);
    assert_eq!(
        shareable(&[slice("s", "pool-1", json!({"devices": bare}))]),
        json!({"fullyAvailableDevices": 1, "partiallyAvailableDevices": 0}),
        "without capacity there is no list"
    );
}

#[test]
fn too_many_shareable_capacities_are_an_error_and_not_cut_off() {
    let device = |name: &str, from: usize| {
        let names: Vec<String> = (from..from + 17).map(|number| format!("capacity-{number}")).collect();
        let list: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "1")).collect();
        shared(name, &list)
    };
    let found =
        &statuses(&inventory(&[slice("s", "pool-1", json!({"devices": [device("a", 0), device("b", 16)]}))]))
            [0];
    assert_eq!(
        found.validation_error.as_deref(),
        Some(
            "ShareableSummaryOverCap: pool gpu.dev/pool-1 has 33 shareable capacity keys, exceeding the maximum of 32"
        )
    );
    assert_eq!((counts(found), &found.shareable_summary), ((2, 0, 2, 0), &None));
}

/// pool-status §5.2: any error clears the partitions, and only its own one the shareable summary.
#[test]
fn an_error_about_partitions_leaves_the_shareable_summary() {
    let mut slices = partitions(json!("gpu.dev/shape"), &FULL_AND_HALVES);
    slices[1]["spec"]["devices"][0]["allowMultipleAllocations"] = json!(true);
    assert!(error(&slices).starts_with("PartitionTypeMissing:"), "{}", error(&slices));
    assert_eq!(shareable(&slices), json!({"fullyAvailableDevices": 1, "partiallyAvailableDevices": 0}));
}

#[test]
fn administrative_access_takes_nothing_of_shareable_devices() {
    let mut inventory =
        inventory(&[slice("s", "pool-1", json!({"devices": [shared("a", &[("memory", "40Gi")])]}))]);
    let before = statuses(&inventory);
    for (claim, more) in [
        ("whole", json!({"adminAccess": true})),
        ("share", json!({"adminAccess": true, "shareID": "s", "consumedCapacity": {"memory": "10Gi"}})),
    ] {
        inventory.apply_allocation(claim, &allocation(&[("pool-1", "a", more)]));
    }
    assert_eq!(statuses(&inventory), before);
}

/// documented-behaviour X23.
#[test]
fn a_device_with_one_share_is_allocated_and_partially_available() {
    let mut inventory =
        inventory(&[slice("s", "pool-1", json!({"devices": [shared("eth1", &[("bandwidth", "10G")])]}))]);
    let share = json!({"shareID": "s", "consumedCapacity": {"bandwidth": "1G"}});
    inventory.apply_allocation("a", &allocation(&[("pool-1", "eth1", share)]));
    assert_eq!(counts(&statuses(&inventory)[0]), (1, 1, 0, 0));
    assert_eq!(
        serde_json::to_value(&statuses(&inventory)[0].shareable_summary).unwrap(),
        json!({
            "fullyAvailableDevices": 0, "partiallyAvailableDevices": 1,
            "capacity": [{"name": "bandwidth", "total": "10G", "consumed": "1G", "available": "9G"}],
        })
    );
}

/// Deviation P11.
#[test]
fn a_shareable_device_that_a_claim_has_whole_is_used_up_whatever_shares_there_are() {
    let mut inventory =
        inventory(&[slice("s", "pool-1", json!({"devices": [shared("a", &[("memory", "40Gi")])]}))]);
    inventory.apply_allocation("whole", &allocation(&[("pool-1", "a", json!({}))]));
    let found = || serde_json::to_value(&statuses(&inventory)[0].shareable_summary).unwrap();
    assert_eq!(
        found(),
        json!({
            "fullyAvailableDevices": 0, "partiallyAvailableDevices": 0,
            "capacity": [{"name": "memory", "total": "40Gi", "consumed": "40Gi", "available": "0"}],
        })
    );
    let share = json!({"shareID": "s", "consumedCapacity": {"memory": "10Gi"}});
    inventory.apply_allocation("share", &allocation(&[("pool-1", "a", share)]));
    let found = serde_json::to_value(&statuses(&inventory)[0].shareable_summary).unwrap();
    assert_eq!(found["partiallyAvailableDevices"], 0);
    assert_eq!(found["capacity"][0]["available"], "0");
    let devices =
        json!({"devices": [shared("a", &[("memory", "40Gi")]), shared("b", &[("memory", "40Gi")])]});
    inventory.apply_slice(&object(slice("s", "pool-1", devices)));
    let found = serde_json::to_value(&statuses(&inventory)[0].shareable_summary).unwrap();
    assert_eq!(
        found,
        json!({
            "fullyAvailableDevices": 1, "partiallyAvailableDevices": 0,
            "capacity": [{"name": "memory", "total": "80Gi", "consumed": "40Gi", "available": "40Gi"}],
        }),
        "the share takes nothing of another device"
    );
}

#[test]
fn sums_are_written_the_same_in_whatever_order_claims_came() {
    let slices = [slice("s", "pool-1", json!({"devices": [shared("a", &[("memory", "40Gi")])]}))];
    let claims = [("x", "1Gi"), ("y", "1G"), ("z", "500m")];
    let written = |order: [usize; 3]| {
        let mut inventory = inventory(&slices);
        for (name, memory) in order.map(|position| claims[position]) {
            let share = json!({"shareID": name, "consumedCapacity": {"memory": memory}});
            inventory.apply_allocation(name, &allocation(&[("pool-1", "a", share)]));
        }
        serde_json::to_string(&statuses(&inventory)[0].shareable_summary).unwrap()
    };
    let first = written([0, 1, 2]);
    for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        assert_eq!(written(order), first);
    }
}

#[test]
fn pools_are_counted_beyond_those_that_are_listed() {
    let named = |name: &str, pool: &str| slice(name, pool, json!({"devices": plain_devices(1)}));
    let mut inventory = inventory(&[named("a", "p1"), named("b", "p2"), named("c", "p3"), named("d", "p3")]);
    let count = |inventory: &dra_allocator::Inventory, limit: usize| {
        let (found, listed) = inventory.pool_statuses("gpu.dev", None, None, limit);
        (found, listed.len())
    };
    assert_eq!((count(&inventory, 2), count(&inventory, 0)), ((3, 2), (3, 0)));
    inventory.apply_allocation("x", &allocation(&[("p0", "device-0", json!({}))]));
    assert_eq!(count(&inventory, 9), (3, 3), "held and not published is no pool");
    inventory.remove_slice("c");
    assert_eq!(count(&inventory, 9), (3, 3));
    inventory.remove_slice("d");
    assert_eq!(count(&inventory, 9), (2, 2));
    inventory.apply_slice(&object(named("a", "p2")));
    assert_eq!(count(&inventory, 9), (1, 1), "a slice that moves takes its pool along");
    inventory.apply_allocation("y", &allocation(&[("p2", "device-0", json!({}))]));
    inventory.remove_slice("a");
    inventory.remove_slice("b");
    assert_eq!(count(&inventory, 9), (0, 0));
}

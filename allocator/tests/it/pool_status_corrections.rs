//! Where the in-tree controller's numbers are wrong, and the public reports about them: each test fails in-tree.

use dra_allocator::{Inventory, PoolId};
use serde_json::{Value, json};

use crate::pool_statuses::{FULL_AND_HALVES, counts, partitions, row, statuses, summary};
use crate::world::{allocation, inventory, object, plain_devices, rule, slice};

fn error(inventory: &Inventory) -> String {
    statuses(inventory)[0].validation_error.clone().unwrap_or_default()
}

fn held(pool: &str, device: &str) -> dra_allocator::objects::AllocationResult {
    allocation(&[(pool, device, json!({}))])
}

fn pool(generation: i64, count: i64) -> Value {
    json!({"name": "pool-1", "generation": generation, "resourceSliceCount": count})
}

#[test]
fn a_tainted_device_in_use_is_subtracted_once() {
    let mut devices = plain_devices(2);
    devices[0]["taints"] = json!([{"key": "k", "effect": "NoSchedule"}]);
    let mut inventory = inventory(&[slice("s", "pool-1", json!({"devices": devices}))]);
    assert_eq!(counts(&statuses(&inventory)[0]), (2, 0, 1, 1));
    inventory.apply_allocation("a", &held("pool-1", "device-0"));
    assert_eq!(counts(&statuses(&inventory)[0]), (2, 1, 1, 0));
}

#[test]
fn devices_that_are_not_published_any_more_are_named_and_make_nothing_negative() {
    let mut inventory = inventory(&[slice("s", "pool-1", json!({"devices": plain_devices(1)}))]);
    let both = [("pool-1", "device-0", json!({})), ("pool-1", "gone", json!({}))];
    inventory.apply_allocation("a", &allocation(&both));
    assert_eq!(counts(&statuses(&inventory)[0]), (1, 1, 0, 0));
    assert_eq!(
        error(&inventory),
        "DeviceNotPublished: claims hold devices that pool gpu.dev/pool-1 does not publish at generation 1: gone"
    );
    inventory.remove_allocation("a");
    assert_eq!(counts(&statuses(&inventory)[0]), (1, 0, 1, 0));
    assert_eq!(error(&inventory), "");
}

#[test]
fn a_device_that_two_claims_have_counts_once_and_is_reported() {
    let mut inventory = inventory(&[slice("s", "pool-1", json!({"devices": plain_devices(3)}))]);
    inventory.apply_allocation("ns/a", &held("pool-1", "device-0"));
    inventory.apply_allocation("ns/b", &held("pool-1", "device-0"));
    assert_eq!(counts(&statuses(&inventory)[0]), (3, 1, 2, 0));
    assert_eq!(
        error(&inventory),
        "DeviceAllocatedTwice: devices of pool gpu.dev/pool-1 are held by more than one claim: device-0"
    );
    let report = &inventory.pool_summary(&PoolId::new("gpu.dev", "pool-1")).unwrap().report;
    assert_eq!(report.conflicts[0].claims, ["ns/a", "ns/b"]);
}

#[test]
fn administrative_access_changes_no_number() {
    let mut inventory = inventory(&partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES));
    let before = statuses(&inventory);
    let admin = json!({"adminAccess": true});
    inventory.apply_allocation("a", &allocation(&[("pool-1", "full-0", admin.clone())]));
    inventory.apply_allocation("b", &allocation(&[("pool-1", "gone", admin)]));
    assert_eq!(statuses(&inventory), before);
}

#[test]
fn slices_that_disagree_about_their_number_are_incomplete_in_whatever_order_they_come() {
    let slices = [
        slice("a", "pool-1", json!({"devices": plain_devices(1), "pool": pool(1, 2)})),
        slice("b", "pool-1", json!({"devices": [{"name": "x"}], "pool": pool(1, 3)})),
    ];
    let backwards: Vec<Value> = slices.iter().rev().cloned().collect();
    for list in [&slices[..], &backwards] {
        assert_eq!(
            error(&inventory(list)),
            "PoolIncomplete: pool gpu.dev/pool-1 is incomplete: observed 2/3 slices at generation 1"
        );
    }
}

#[test]
fn duplicates_and_unknown_counters_give_the_same_answer_in_every_order() {
    let device = |name: &str, profile: &str, set: &str, memory: &str| {
        json!({
            "name": name,
            "attributes": {"profile": {"string": profile}},
            "consumesCounters": [{"counterSet": set, "counters": {"memory": {"value": memory}}}],
        })
    };
    let counters = |name: &str, memory: &str| {
        let sets = json!([{"name": "gpu-0", "counters": {"memory": {"value": memory}}}]);
        slice(name, "pool-1", json!({"pool": pool(1, 4), "sharedCounters": sets}))
    };
    let devices = |name: &str, list: Value| {
        let attribute = "gpu.dev/profile";
        slice(
            name,
            "pool-1",
            json!({"pool": pool(1, 4), "devices": list, "partitionTypeAttribute": attribute}),
        )
    };
    let mut slices = vec![
        counters("a", "80Gi"),
        counters("b", "40Gi"),
        devices("c", json!([device("x", "Half", "gpu-0", "40Gi"), device("y", "Odd", "unknown", "1Gi")])),
        devices("d", json!([device("x", "Half", "gpu-0", "40Gi"), device("z", "Half", "gpu-0", "20Gi")])),
    ];
    let first = statuses(&inventory(&slices));
    assert!(
        error(&inventory(&slices)).starts_with("PartitionCostMismatch: devices of partition type \"Half\"")
    );
    slices.reverse();
    assert_eq!(statuses(&inventory(&slices)), first);
    slices.swap(0, 2);
    assert_eq!(statuses(&inventory(&slices)), first);

    let unknown = [
        counters("a", "80Gi"),
        counters("b", "40Gi"),
        devices("c", json!([device("y", "Odd", "unknown", "1Gi")])),
        devices("d", json!([device("x", "Half", "gpu-0", "40Gi"), device("x", "Half", "gpu-0", "40Gi")])),
    ];
    let found = &statuses(&inventory(&unknown))[0];
    assert_eq!(summary(found), [row("Half", 2, 1), row("Odd", 1, 0)]);
    assert_eq!((found.total_devices, found.validation_error.as_deref()), (Some(3), None));
}

#[test]
fn generation_zero_is_shown_as_one_and_said() {
    let inventory =
        inventory(&[slice("s", "pool-1", json!({"devices": plain_devices(2), "pool": pool(0, 1)}))]);
    let found = &statuses(&inventory)[0];
    assert_eq!((found.generation, found.total_devices), (1, Some(2)));
    assert_eq!(
        error(&inventory),
        "PoolGenerationZero: 1 stands for generation 0, which this API cannot express, of pool gpu.dev/pool-1"
    );
}

#[test]
fn an_empty_partition_type_is_an_error_of_its_pool() {
    let mut sizes = FULL_AND_HALVES;
    sizes[1].1 = "";
    let inventory = inventory(&partitions(json!("gpu.dev/profile"), &sizes));
    assert_eq!(
        error(&inventory),
        "PartitionTypeMissing: device \"half-0\" in pool gpu.dev/pool-1 has an empty partition type attribute \
         \"gpu.dev/profile\""
    );
    assert!(statuses(&inventory)[0].partition_summary.is_empty());
    assert_eq!(counts(&statuses(&inventory)[0]), (3, 0, 3, 0));
}

#[test]
fn the_attribute_of_a_request_puts_no_error_on_pools_without_counters() {
    let mut inventory = inventory(&partitions(json!(null), &FULL_AND_HALVES));
    inventory.apply_slice(&object(slice("plain", "pool-2", json!({"devices": plain_devices(2)}))));
    let (_, found) = inventory.pool_statuses("gpu.dev", None, Some("gpu.dev/profile"), 10);
    assert_eq!(summary(&found[0]), [row("Full", 1, 1), row("Half", 2, 2)]);
    assert_eq!((found[1].validation_error.as_deref(), found[1].partition_summary.len()), (None, 0));
}

/// The API: "this default applies only to devices whose slice does not declare one".
#[test]
fn the_attribute_of_a_request_groups_devices_whose_own_slice_names_none() {
    let mut slices = partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES);
    slices[0]["spec"]["pool"] = pool(1, 3);
    slices[1]["spec"]["pool"] = pool(1, 3);
    let small = json!({
        "name": "small",
        "attributes": {"gpu.dev/shape": {"string": "Small"}},
        "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "10Gi"}}}],
    });
    slices.push(slice("undeclared", "pool-1", json!({"pool": pool(1, 3), "devices": [small]})));
    let inventory = inventory(&slices);
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 1), row("Half", 2, 2)]);
    let (_, found) = inventory.pool_statuses("gpu.dev", None, Some("gpu.dev/shape"), 10);
    let small = ("gpu.dev/shape".to_owned(), "Small".to_owned(), 1, 1);
    assert_eq!(summary(&found[0]), [row("Full", 1, 1), row("Half", 2, 2), small]);
}

#[test]
fn tainted_partitions_cannot_be_allocated() {
    let mut slices = partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES);
    slices[1]["spec"]["devices"][1]["taints"] = json!([{"key": "k", "effect": "NoExecute"}]);
    let mut inventory = inventory(&slices);
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 1), row("Half", 2, 1)]);
    inventory.apply_taint_rule(&rule("r", json!({"device": "half-1"}), "NoSchedule"));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 1), row("Half", 2, 0)]);
    inventory.remove_taint_rule("r");
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 1), row("Half", 2, 1)]);
}

#[test]
fn a_partition_whose_compatibility_groups_clash_with_those_in_use_cannot_be_allocated() {
    let mut slices =
        partitions(json!("gpu.dev/profile"), &[("mig", "MIG", "10Gi"), ("vgpu", "vGPU", "10Gi")]);
    for (position, group) in [(0, "mig"), (1, "vgpu")] {
        slices[1]["spec"]["devices"][position]["consumesCounters"][0]["compatibilityGroups"] = json!([group]);
    }
    let mut inventory = inventory(&slices);
    assert_eq!(summary(&statuses(&inventory)[0]), [row("MIG", 1, 1), row("vGPU", 1, 1)]);
    inventory.apply_allocation("a", &held("pool-1", "mig"));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("MIG", 1, 0), row("vGPU", 1, 0)]);
}

/// Two A100 as their driver publishes them: each a counter set of memory and eight memory slices, one full device and
/// seven placements of `1g.5gb`.
fn mig_node() -> Vec<Value> {
    let amount = |value: &str| json!({"value": value});
    let mut sets = Vec::new();
    let mut devices = Vec::new();
    for gpu in 0..2 {
        let set = format!("gpu-{gpu}-counters");
        let mut all = json!({"memory": amount("40Gi")});
        for part in 0..8 {
            all[format!("memory-slice-{part}")] = amount("1");
        }
        sets.push(json!({"name": set, "counters": all}));
        let mut device = |name: String, profile: &str, counters: Value| {
            devices.push(json!({
                "name": name,
                "attributes": {"profile": {"string": profile}},
                "consumesCounters": [{"counterSet": set, "counters": counters}],
            }));
        };
        device(format!("gpu-{gpu}"), "full", all.clone());
        for placement in 0..7 {
            let counters = json!({"memory": amount("5Gi"), format!("memory-slice-{placement}"): amount("1")});
            device(format!("gpu-{gpu}-mig-1g5gb-{placement}"), "1g.5gb", counters);
        }
    }
    let attribute = "gpu.dev/profile";
    vec![
        slice("counters", "pool-1", json!({"pool": pool(1, 2), "sharedCounters": sets})),
        slice(
            "devices",
            "pool-1",
            json!({"pool": pool(1, 2), "devices": devices, "partitionTypeAttribute": attribute}),
        ),
    ]
}

#[test]
fn a_mig_node_with_two_gpus_has_fourteen_small_partitions_and_seven_after_one_gpu_is_taken() {
    let mut inventory = inventory(&mig_node());
    assert_eq!(error(&inventory), "");
    assert_eq!(summary(&statuses(&inventory)[0]), [row("1g.5gb", 14, 14), row("full", 2, 2)]);
    inventory.apply_allocation("a", &held("pool-1", "gpu-0"));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("1g.5gb", 14, 7), row("full", 2, 1)]);
    inventory.apply_allocation("b", &held("pool-1", "gpu-1-mig-1g5gb-3"));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("1g.5gb", 14, 6), row("full", 2, 0)]);
}

#[test]
fn costs_are_compared_by_value_and_not_as_they_are_written() {
    let inventory = inventory(&partitions(
        json!("gpu.dev/profile"),
        &[("a", "Tiny", "1Ki"), ("b", "Tiny", "1024"), ("c", "Tiny", "1024000m")],
    ));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Tiny", 3, 3)]);
}

#[test]
fn different_costs_of_one_type_are_an_error_even_on_different_gpus() {
    for (memory, counter) in [("6Gi", "memory"), ("5Gi", "cores")] {
        let mut slices = mig_node();
        let device = &mut slices[1]["spec"]["devices"][9];
        assert_eq!(device["name"], "gpu-1-mig-1g5gb-0");
        device["consumesCounters"][0]["counters"] =
            json!({counter: {"value": memory}, "memory-slice-0": {"value": "1"}});
        assert_eq!(
            error(&inventory(&slices)),
            "PartitionCostMismatch: devices of partition type \"1g.5gb\" in pool gpu.dev/pool-1 consume different \
             counters"
        );
    }
}

#[test]
fn a_half_that_is_held_and_dropped_from_the_next_generation_still_blocks_the_full_device() {
    let mut inventory = inventory(&partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES));
    inventory.apply_allocation("a", &held("pool-1", "half-0"));
    let mut next = partitions(json!("gpu.dev/profile"), &[FULL_AND_HALVES[0], FULL_AND_HALVES[2]]);
    for slice in &mut next {
        slice["spec"]["pool"] = pool(2, 2);
    }
    inventory.apply_slice(&object(next[0].clone()));
    inventory.apply_slice(&object(next[1].clone()));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 0), row("Half", 1, 1)]);
    assert!(error(&inventory).ends_with("at generation 2: half-0"), "{}", error(&inventory));
    inventory.remove_allocation("a");
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 1), row("Half", 1, 1)]);
    inventory.apply_allocation("b", &held("pool-1", "half-0"));
    assert_eq!(
        summary(&statuses(&inventory)[0])[0],
        row("Full", 1, 1),
        "what was never seen in use takes nothing"
    );
}

#[test]
fn a_half_that_only_an_older_slice_publishes_blocks_the_full_device_too() {
    let mut inventory = inventory(&partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES));
    let mut next = partitions(json!("gpu.dev/profile"), &FULL_AND_HALVES[..1]);
    for (slice, name) in next.iter_mut().zip(["new-counters", "new-devices"]) {
        slice["spec"]["pool"] = pool(2, 2);
        slice["metadata"]["name"] = json!(name);
        inventory.apply_slice(&object(slice.clone()));
    }
    inventory.apply_allocation("a", &held("pool-1", "half-0"));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 0)]);
}

fn shared(name: &str, memory: &str) -> Value {
    json!({"name": name, "allowMultipleAllocations": true, "capacity": {"memory": {"value": memory}}})
}

fn share(device: &str, id: &str, memory: &str) -> dra_allocator::objects::AllocationResult {
    allocation(&[("pool-1", device, json!({"shareID": id, "consumedCapacity": {"memory": memory}}))])
}

#[test]
fn three_shareable_devices_with_six_claims_on_two_of_them_are_counted_exactly() {
    let devices = json!([shared("a", "40Gi"), shared("b", "40Gi"), shared("c", "40Gi")]);
    let mut inventory = inventory(&[slice("s", "pool-1", json!({"devices": devices}))]);
    for claim in 0..4 {
        inventory.apply_allocation(&format!("a{claim}"), &share("a", &format!("s{claim}"), "10Gi"));
    }
    inventory.apply_allocation("b0", &share("b", "t0", "5Gi"));
    inventory.apply_allocation("b1", &share("b", "t1", "7Gi"));
    let found = &statuses(&inventory)[0];
    assert_eq!(counts(found), (3, 2, 1, 0));
    assert_eq!(
        serde_json::to_value(&found.shareable_summary).unwrap(),
        json!({
            "fullyAvailableDevices": 1,
            "partiallyAvailableDevices": 1,
            "capacity": [{"name": "memory", "total": "120Gi", "consumed": "52Gi", "available": "68Gi"}],
        })
    );
    assert_eq!(found.validation_error, None);
}

#[test]
fn shares_of_devices_that_are_not_published_or_not_shareable_take_nothing_of_the_capacity() {
    let devices = json!([shared("a", "40Gi"), {"name": "plain"}]);
    let mut inventory = inventory(&[slice("s", "pool-1", json!({"devices": devices}))]);
    inventory.apply_allocation("x", &share("gone", "s0", "50Gi"));
    inventory.apply_allocation("y", &share("plain", "s1", "50Gi"));
    inventory.apply_allocation("z", &share("a", "s2", "1Gi"));
    let found = serde_json::to_value(&statuses(&inventory)[0].shareable_summary).unwrap();
    assert_eq!(
        found["capacity"][0],
        json!({"name": "memory", "total": "40Gi", "consumed": "1Gi", "available": "39Gi"})
    );
}

#[test]
fn two_cards_of_eight_gigabytes_never_promise_a_chunk_of_ten() {
    let devices = json!([shared("a", "8Gi"), shared("b", "8Gi")]);
    let inventory = inventory(&[slice("s", "pool-1", json!({"devices": devices}))]);
    let found = inventory.pool_summary(&PoolId::new("gpu.dev", "pool-1")).unwrap();
    let total = found.status.as_ref().unwrap().shareable_summary.as_ref().unwrap();
    assert_eq!(total.capacity[0].available.to_string(), "16Gi");
    assert_eq!(found.report.shareable[0].largest_free.to_string(), "8Gi");
}

#[test]
fn an_error_is_never_longer_than_the_api_takes() {
    let mut inventory = inventory(&[slice("s", "pool-1", json!({"devices": []}))]);
    for device in 0..40 {
        inventory.apply_allocation(&format!("c{device}"), &held("pool-1", &format!("gerät-{device}")));
    }
    let text = error(&inventory);
    assert!(text.len() <= 256 && text.len() > 250, "{text}");
}

#[test]
fn a_summary_is_computed_again_after_each_change_and_only_then() {
    let mut inventory = inventory(&[slice("s", "pool-1", json!({"devices": plain_devices(2)}))]);
    let id = PoolId::new("gpu.dev", "pool-1");
    let first = inventory.pool_summary(&id).unwrap();
    assert!(std::sync::Arc::ptr_eq(&first, &inventory.pool_summary(&id).unwrap()));
    inventory.apply_taint_rule(&rule("other", json!({"pool": "pool-2"}), "NoSchedule"));
    assert!(std::sync::Arc::ptr_eq(&first, &inventory.pool_summary(&id).unwrap()));
    inventory.apply_taint_rule(&rule("all", json!({}), "NoSchedule"));
    assert_eq!(counts(&statuses(&inventory)[0]), (2, 0, 0, 2));
    inventory.remove_taint_rule("all");
    inventory.apply_allocation("a", &held("pool-1", "device-0"));
    assert_eq!(counts(&statuses(&inventory)[0]), (2, 1, 1, 0));
    inventory.remove_slice("s");
    assert!(inventory.pool_summary(&id).unwrap().status.is_none());
}

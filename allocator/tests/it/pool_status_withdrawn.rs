//! What claims hold of partitions that their driver does not publish any more: hardware does not come free because its
//! description is withdrawn.

use dra_allocator::Inventory;
use dra_allocator::objects::AllocationResult;
use serde_json::{Value, json};

use crate::pool_statuses::{FULL_AND_HALVES, partitions, row, statuses, summary};
use crate::world::{allocation, inventory, object};

/// The slices of a generation; their names begin with `prefix`.
fn generation(number: i64, prefix: &str, sizes: &[(&str, &str, &str)]) -> Vec<Value> {
    let mut slices = partitions(json!("gpu.dev/profile"), sizes);
    for slice in &mut slices {
        slice["spec"]["pool"] = json!({"name": "pool-1", "generation": number, "resourceSliceCount": 2});
        let name = format!("{prefix}{}", slice["metadata"]["name"].as_str().unwrap());
        slice["metadata"]["name"] = json!(name);
    }
    slices
}

fn publish(inventory: &mut Inventory, slices: Vec<Value>) {
    for slice in slices {
        inventory.apply_slice(&object(slice));
    }
}

fn held(devices: &[&str]) -> AllocationResult {
    let results: Vec<(&str, &str, Value)> =
        devices.iter().map(|device| ("pool-1", *device, json!({}))).collect();
    allocation(&results)
}

/// How many full devices can be allocated, of the one that there is.
fn full(inventory: &Inventory) -> i32 {
    let found = statuses(inventory);
    let full = found[0].partition_summary.iter().find(|one| one.of_type == "Full");
    full.unwrap_or_else(|| panic!("{found:?}")).allocatable
}

const FULL: [(&str, &str, &str); 1] = [FULL_AND_HALVES[0]];

#[test]
fn a_claim_that_changes_keeps_what_its_withdrawn_device_consumes() {
    let mut inventory = inventory(&generation(1, "", &FULL_AND_HALVES));
    inventory.apply_allocation("a", &held(&["half-0"]));
    publish(&mut inventory, generation(2, "", &FULL));
    assert_eq!(full(&inventory), 0);
    inventory.apply_allocation("a", &held(&["half-0"]));
    assert_eq!(full(&inventory), 0, "the claim has been updated and holds the same");
    inventory.apply_allocation("a", &held(&["half-0", "other"]));
    assert_eq!(full(&inventory), 0, "the claim holds one more device");
    inventory.apply_allocation("b", &held(&["half-0"]));
    inventory.remove_allocation("a");
    assert_eq!(full(&inventory), 0, "another claim holds it too");
    inventory.apply_allocation("b", &held(&["other"]));
    assert_eq!(full(&inventory), 1);
}

#[test]
fn what_the_latest_generation_said_of_a_device_counts_in_whatever_order_slices_go() {
    for first in ["old-", "new-"] {
        let mut inventory = inventory(&generation(1, "old-", &FULL_AND_HALVES));
        inventory.apply_allocation("a", &held(&["half-0"]));
        // The second generation has smaller halves, the third has none.
        let tiny = [FULL_AND_HALVES[0], ("half-0", "Half", "0")];
        publish(&mut inventory, generation(2, "new-", &tiny));
        publish(&mut inventory, generation(3, "", &FULL));
        assert_eq!(full(&inventory), 1);
        for prefix in [first, if first == "old-" { "new-" } else { "old-" }] {
            for name in ["devices", "counters"] {
                inventory.remove_slice(&format!("{prefix}{name}"));
                assert_eq!(full(&inventory), 1, "after {prefix}{name}");
            }
        }
    }
}

#[test]
fn a_device_that_was_last_published_without_counters_consumes_none() {
    let mut inventory = inventory(&generation(1, "", &FULL_AND_HALVES));
    inventory.apply_allocation("a", &held(&["half-0"]));
    let mut plain = generation(2, "", &FULL_AND_HALVES[..2]);
    plain[1]["spec"]["devices"][1].as_object_mut().unwrap().remove("consumesCounters");
    publish(&mut inventory, plain);
    publish(&mut inventory, generation(3, "", &FULL));
    assert_eq!(summary(&statuses(&inventory)[0]), [row("Full", 1, 1)]);
}

#[test]
fn many_holders_and_many_devices_are_remembered_alike() {
    // Few devices and many holders, then the other way round.
    for others in [0, 50] {
        let mut inventory = inventory(&generation(1, "", &FULL_AND_HALVES));
        inventory.apply_allocation("a", &held(&["half-1"]));
        for other in 0..others {
            inventory.apply_allocation(&format!("b{other}"), &held(&[&format!("gone-{other}")]));
        }
        publish(&mut inventory, generation(2, "", &FULL));
        assert_eq!(full(&inventory), 0);
    }
}

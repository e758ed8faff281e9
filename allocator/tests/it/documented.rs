//! What the documentation promises and shows (`documented-behaviour.md`), as far as it is the allocator's to keep.
//! docs/CONFORMANCE.md says which row each test is for.

use dra_allocator::objects::{Node, ResourceClaim};
use dra_allocator::{Answer, Features, Inventory, Limits};
use serde_json::{Value, json};

use crate::world::{
    allocation, any, ask, ask_on, claim, devices, error, exactly, inventory, object, plain_devices, rule,
    slice, with_devices,
};

/// A request named `name` for `count` devices of class `any`, with more fields.
fn request(name: &str, count: i64, more: Value) -> Value {
    let mut exactly = exactly(count);
    for (key, value) in more.as_object().unwrap() {
        exactly[key] = value.clone();
    }
    json!({"name": name, "exactly": exactly})
}

fn cel(expression: &str) -> Value {
    json!([{"cel": {"expression": expression}}])
}

fn with_constraints(requests: Value, constraints: Value) -> ResourceClaim {
    object(json!({
        "metadata": {"namespace": "ns", "name": "claim"},
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
    }))
}

/// What the claims get, as `claim request device`.
fn given(outcome: &dra_allocator::Outcome) -> Vec<String> {
    match outcome.answer.as_ref().unwrap() {
        Answer::Allocated(results) => results
            .iter()
            .enumerate()
            .flat_map(|(claim, result)| {
                result
                    .devices
                    .results
                    .iter()
                    .map(move |one| format!("{claim} {} {}", one.request, one.device))
            })
            .collect(),
        other => vec![format!("{other:?}")],
    }
}

const FULL: &str = "DoesNotFit";

#[test]
fn a_device_for_all_nodes_is_allocated_from_any_node_and_bound_to_none() {
    let cat = json!({
        "metadata": {"name": "cat-slice"},
        "spec": {
            "driver": "resource-driver.example.com",
            "pool": {"name": "black-cat-pool", "generation": 1, "resourceSliceCount": 1},
            "allNodes": true,
            "devices": [{
                "name": "large-black-cat",
                "attributes": {"color": {"string": "black"}, "size": {"string": "large"}, "cat": {"bool": true}},
            }],
        },
    });
    let mut inventory = inventory(&[cat]);
    inventory.apply_class(&object(json!({
        "metadata": {"name": "any"},
        "spec": {"selectors": cel("device.attributes['resource-driver.example.com'].cat")},
    })));
    for node in ["node-1", "node-9"] {
        let outcome = ask_on(&inventory, node, &[any(1)]);
        let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{outcome:?}") };
        assert_eq!(results[0].node_selector, None);
    }
}

#[test]
fn a_class_alone_selects_and_may_match_nothing() {
    let mut inventory = with_devices(plain_devices(2));
    inventory.apply_class(&object(json!({
        "metadata": {"name": "any"},
        "spec": {"selectors": cel("device.driver == 'other.dev'")},
    })));
    assert_eq!(given(&ask(&inventory, &[any(1)])), [FULL]);
    inventory.remove_class("any");
    assert!(error(&ask(&inventory, &[any(1)])).contains("could not retrieve device class any"));
}

#[test]
fn a_claim_without_requests_gets_nothing_and_fits() {
    let inventory = with_devices(plain_devices(1));
    assert_eq!(given(&ask(&inventory, &[claim(json!([]))])), Vec::<String>::new());
}

#[test]
fn a_claim_as_people_write_it_asks_for_one_device() {
    let mut asked: ResourceClaim = claim(json!([
        {"name": "r0", "exactly": {"deviceClassName": "any", "tolerations": [{}, {"operator": "Exists"}]}},
        {"name": "r1", "firstAvailable": [{"name": "s", "deviceClassName": "any", "allocationMode": "All"}]},
    ]));
    asked.spec.apply_defaults();
    let exactly = asked.spec.devices.requests[0].exactly.as_ref().unwrap();
    assert_eq!((exactly.allocation_mode.as_str(), exactly.count), ("ExactCount", 1));
    assert_eq!(exactly.tolerations[0].operator, "Equal");
    assert_eq!(exactly.tolerations[1].operator, "Exists");
    let all = &asked.spec.devices.requests[1].first_available[0];
    assert_eq!((all.allocation_mode.as_str(), all.count), ("All", 0));
}

#[test]
fn names_without_a_domain_belong_to_the_driver() {
    let devices_with = json!([{"name": "d", "attributes": {"model": {"string": "a"}}}]);
    let inventory = with_devices(devices_with);
    let ask_for = |expression: &str| {
        ask(&inventory, &[claim(json!([request("r", 1, json!({"selectors": cel(expression)}))]))])
    };
    assert_eq!(
        devices(&ask_for("device.attributes['gpu.dev'].model == 'a'")).map(|found| found.len()),
        Some(1)
    );
    assert_eq!(given(&ask_for("device.attributes['other.dev'].?model.hasValue()")), [FULL]);
}

#[test]
fn all_selectors_must_be_true_and_an_error_in_one_ends_the_attempt() {
    let inventory = with_devices(plain_devices(1));
    let ask_for = |selectors: Value| {
        ask(&inventory, &[claim(json!([request("r", 1, json!({"selectors": selectors}))]))])
    };
    let both = json!([{"cel": {"expression": "true"}}, {"cel": {"expression": "false"}}]);
    assert_eq!(given(&ask_for(both)), [FULL]);
    assert!(error(&ask_for(cel("device.attributes['gpu.dev'].absent == 1"))).contains("CEL runtime error"));
}

#[test]
fn pools_and_slices_are_tried_by_name_and_devices_as_published() {
    let two = |pool: &str| json!({"name": pool, "generation": 1, "resourceSliceCount": 2});
    let one = |name: &str, pool: &str, device: &str| {
        slice(
            name,
            pool,
            json!({"pool": two(pool), "devices": [{"name": device}, {"name": format!("{device}-a")}]}),
        )
    };
    let inventory = inventory(&[
        one("z", "pool-10", "z10"),
        one("a", "pool-10", "a10"),
        one("a2", "pool-2", "a2"),
        one("b2", "pool-2", "b2"),
    ]);
    let found = devices(&ask(&inventory, &[any(5)])).unwrap();
    assert_eq!(found, ["a10", "a10-a", "z10", "z10-a", "a2"]);
}

#[test]
fn pools_with_binding_conditions_come_last() {
    let inventory = inventory(&[
        slice("a", "aaa", json!({"devices": [{"name": "waits", "bindingConditions": ["ready"]}]})),
        slice("z", "zzz", json!({"devices": [{"name": "ready"}]})),
    ]);
    assert_eq!(devices(&ask(&inventory, &[any(2)])).unwrap(), ["ready", "waits"]);
}

#[test]
fn the_first_alternative_that_fits_is_taken() {
    let cat = |name: &str, size: &str, color: &str| json!({"name": name, "attributes": {"size": {"string": size}, "color": {"string": color}}});
    let alternative = |name: &str, size: &str, color: &str, count: i64| {
        let expression = format!(
            "device.attributes['gpu.dev'].size == '{size}' && device.attributes['gpu.dev'].color == '{color}'"
        );
        let mut alternative = exactly(count);
        alternative["name"] = json!(name);
        alternative["selectors"] = cel(&expression);
        alternative
    };
    let wanted = claim(json!([{
        "name": "req-0",
        "firstAvailable": [
            alternative("large-black", "large", "black", 1),
            alternative("small-white", "small", "white", 2),
        ],
    }]));
    let mut inventory = with_devices(json!([
        cat("big", "large", "black"),
        cat("w1", "small", "white"),
        cat("w2", "small", "white"),
    ]));
    assert_eq!(given(&ask(&inventory, std::slice::from_ref(&wanted))), ["0 req-0/large-black big"]);
    inventory.apply_allocation("x", &allocation(&[("pool", "big", json!({}))]));
    assert_eq!(
        given(&ask(&inventory, std::slice::from_ref(&wanted))),
        ["0 req-0/small-white w1", "0 req-0/small-white w2"]
    );
    inventory.apply_allocation("y", &allocation(&[("pool", "w2", json!({}))]));
    assert_eq!(given(&ask(&inventory, &[wanted])), [FULL]);
}

#[test]
fn admin_access_gets_all_devices_also_those_in_use() {
    let mut inventory = with_devices(plain_devices(2));
    inventory.apply_allocation("x", &allocation(&[("pool", "device-0", json!({}))]));
    let wanted = claim(json!([request("r", 0, json!({"allocationMode": "All", "adminAccess": true}))]));
    let outcome = ask(&inventory, &[wanted]);
    let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{outcome:?}") };
    assert_eq!(results[0].devices.results.len(), 2);
    assert!(results[0].devices.results.iter().all(|one| one.admin_access == Some(true)));
    inventory.apply_allocation("admin", &results[0]);
    // It takes nothing away from others.
    assert_eq!(devices(&ask(&inventory, &[any(1)])).unwrap(), ["device-1"]);
}

#[test]
fn lists_match_by_one_common_value_and_are_distinct_without_any() {
    let device = |name: &str, roots: Value| json!({"name": name, "attributes": {"root": roots}});
    let inventory = with_devices(json!([
        device("a", json!({"strings": ["x", "y"]})),
        device("b", json!({"string": "z"})),
        device("c", json!({"string": "y"})),
    ]));
    let requests = json!([request("r", 2, json!({}))]);
    let ask_for = |constraint: Value| {
        devices(&ask(&inventory, &[with_constraints(requests.clone(), json!([constraint]))]))
    };
    assert_eq!(ask_for(json!({"matchAttribute": "gpu.dev/root"})).unwrap(), ["a", "c"]);
    assert_eq!(ask_for(json!({"distinctAttribute": "gpu.dev/root"})).unwrap(), ["a", "b"]);
}

#[test]
fn includes_serves_scalars_and_lists() {
    let inventory = with_devices(json!([{
        "name": "d",
        "attributes": {"model": {"string": "model-a"}, "supported_models": {"strings": ["model-a", "model-b"]}},
    }]));
    for (expression, fits) in [
        ("device.attributes['gpu.dev'].model.includes('model-a')", true),
        ("device.attributes['gpu.dev'].model.includes('model-b')", false),
        ("device.attributes['gpu.dev'].supported_models.includes('model-b')", true),
        ("device.attributes['gpu.dev'].supported_models.includes('model-c')", false),
    ] {
        let wanted = claim(json!([request("r", 1, json!({"selectors": cel(expression)}))]));
        assert_eq!(devices(&ask(&inventory, &[wanted])).is_some(), fits, "{expression}");
    }
    // As printed in the documentation, with a hyphen, it is a subtraction.
    let hyphen = cel("device.attributes['gpu.dev'].supported-models.includes('model-a')");
    let wanted = claim(json!([request("r", 1, json!({"selectors": hyphen}))]));
    assert!(error(&ask(&inventory, &[wanted])).contains("undeclared reference"));
}

#[test]
fn derived_attributes_align_devices_that_name_things_differently() {
    let gpus = json!([
        {"name": "g0", "attributes": {"numa": {"int": 0}}},
        {"name": "g1", "attributes": {"numa": {"int": 1}}},
    ]);
    let nic = |attributes: Value| {
        json!({
            "metadata": {"name": "nics"},
            "spec": {
                "driver": "nic.dev",
                "pool": {"name": "nics", "generation": 1, "resourceSliceCount": 1},
                "nodeName": "node-1",
                "devices": [{"name": "n1", "attributes": attributes}],
            },
        })
    };
    let of = |driver: &str, expression: &str| {
        json!({
            "selectors": cel(&format!("device.driver == '{driver}'")),
            "derivedAttributes": [{"name": "derived/numa", "expression": expression}],
        })
    };
    let wanted = with_constraints(
        json!([
            request("gpu", 1, of("gpu.dev", "device.attributes['gpu.dev'].numa")),
            request("nic", 1, of("nic.dev", "device.attributes['nic.dev'].numaNode")),
        ]),
        json!([{"matchAttribute": "derived/numa"}]),
    );
    let gpu_slice = slice("gpus", "gpus", json!({"devices": gpus}));
    let world = |attributes: Value| inventory(&[gpu_slice.clone(), nic(attributes)]);
    let found = ask(&world(json!({"numaNode": {"int": 1}})), std::slice::from_ref(&wanted));
    assert_eq!(given(&found), ["0 gpu g1", "0 nic n1"]);
    let failed = ask(&world(json!({})), &[wanted]);
    assert!(
        error(&failed).starts_with(
            "evaluate derived attribute derived/numa on device nic.dev/nics/n1 failed: no such key"
        ),
        "{}",
        error(&failed)
    );
}

#[test]
fn a_derived_attribute_hides_the_published_one_in_constraints_only() {
    let device = |name: &str, model: &str| json!({"name": name, "attributes": {"model": {"string": model}}});
    let inventory = with_devices(json!([device("a", "x"), device("b", "y")]));
    let same = json!({
        "selectors": cel("device.attributes['gpu.dev'].model in ['x', 'y']"),
        "derivedAttributes": [{"name": "gpu.dev/model", "expression": "'same'"}],
    });
    let wanted =
        with_constraints(json!([request("r", 2, same)]), json!([{"matchAttribute": "gpu.dev/model"}]));
    assert_eq!(devices(&ask(&inventory, &[wanted])).unwrap(), ["a", "b"]);
}

#[test]
fn tainted_devices_are_passed_over_unless_tolerated() {
    let mut devices_with = plain_devices(3);
    devices_with[0]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoSchedule"}]);
    devices_with[1]["taints"] = json!([{"key": "k", "value": "v", "effect": "NoExecute"}]);
    let inventory = with_devices(devices_with);
    let first = |tolerations: Value| {
        let wanted = claim(json!([request("r", 1, json!({"tolerations": tolerations}))]));
        devices(&ask(&inventory, &[wanted])).unwrap()[0].clone()
    };
    assert_eq!(first(json!([])), "device-2");
    assert_eq!(first(json!([{"key": "k", "operator": "Exists"}])), "device-0");
    assert_eq!(first(json!([{"operator": "Exists"}])), "device-0");
    assert_eq!(
        first(json!([{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}])),
        "device-1"
    );
    // An empty toleration is one for an empty value.
    assert_eq!(first(json!([{}])), "device-2");
    let all = claim(json!([request("r", 0, json!({"allocationMode": "All"}))]));
    assert_eq!(given(&ask(&inventory, &[all])), [FULL]);
    let admin = claim(json!([request("r", 3, json!({"adminAccess": true}))]));
    assert_eq!(given(&ask(&inventory, &[admin])), [FULL]);
}

#[test]
fn a_rule_keeps_claims_away_like_a_taint_of_the_driver() {
    let mut inventory = with_devices(plain_devices(2));
    inventory.apply_taint_rule(&rule("one", json!({"pool": "pool", "device": "device-0"}), "NoSchedule"));
    assert_eq!(devices(&ask(&inventory, &[any(1)])).unwrap(), ["device-1"]);
    inventory.apply_taint_rule(&rule("all", json!({}), "NoExecute"));
    assert_eq!(given(&ask(&inventory, &[any(1)])), [FULL]);
    inventory.remove_taint_rule("all");
    inventory.remove_taint_rule("one");
    assert_eq!(devices(&ask(&inventory, &[any(1)])).unwrap(), ["device-0"]);
}

/// `resourceslice-with-countersets` and a slice of devices that draw on it.
fn eight_gigabytes(devices: Value) -> Vec<Value> {
    let two = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    vec![
        slice(
            "resourceslice-with-countersets",
            "pool",
            json!({
                "pool": two,
                "sharedCounters": [{"name": "gpu-1-counters", "counters": {"memory": {"value": "8Gi"}}}],
            }),
        ),
        slice("resourceslice-with-devices", "pool", json!({"pool": two, "devices": devices})),
    ]
}

fn drawing(name: &str, memory: &str, groups: Value) -> Value {
    json!({
        "name": name,
        "consumesCounters": [{
            "counterSet": "gpu-1-counters",
            "counters": {"memory": {"value": memory}},
            "compatibilityGroups": groups,
        }],
    })
}

#[test]
fn a_partition_rules_out_another_until_it_is_released() {
    let slices = eight_gigabytes(json!([
        drawing("device-1", "6Gi", json!([])),
        drawing("device-2", "6Gi", json!([]))
    ]));
    let mut world = inventory(&slices);
    assert_eq!(given(&ask(&world, &[any(2)])), [FULL]);
    assert_eq!(devices(&ask(&world, &[any(1)])).unwrap(), ["device-1"]);
    world.apply_allocation("x", &allocation(&[("pool", "device-1", json!({}))]));
    assert_eq!(given(&ask(&world, &[any(1)])), [FULL]);
    world.remove_allocation("x");
    assert_eq!(devices(&ask(&world, &[any(1)])).unwrap(), ["device-1"]);
    world.remove_slice("resourceslice-with-countersets");
    assert_eq!(given(&ask(&world, &[any(1)])), [FULL]);
}

#[test]
fn partitions_of_different_groups_do_not_coexist() {
    let slices = eight_gigabytes(json!([
        drawing("gpu-0-mig", "4Gi", json!(["mig"])),
        drawing("gpu-0-vgpu", "4Gi", json!(["vgpu"])),
    ]));
    let mut world = inventory(&slices);
    assert_eq!(given(&ask(&world, &[any(2)])), [FULL]);
    assert_eq!(given(&ask(&world, &[any(1), any(1)])), [FULL]);
    assert_eq!(devices(&ask(&world, &[any(1)])).unwrap(), ["gpu-0-mig"]);
    world.apply_allocation("x", &allocation(&[("pool", "gpu-0-mig", json!({}))]));
    assert_eq!(given(&ask(&world, &[any(1)])), [FULL]);
    let same = eight_gigabytes(json!([
        drawing("a", "4Gi", json!(["mig"])),
        drawing("b", "4Gi", json!(["mig", "x"]))
    ]));
    assert_eq!(devices(&ask(&inventory(&same), &[any(2)])).unwrap(), ["a", "b"]);
    // Without the gate a pool with groups is incomplete.
    let mut off = Inventory::new(Features { compatibility_groups: false, ..Features::ALL });
    off.apply_class(&object(json!({"metadata": {"name": "any"}})));
    for one in &slices {
        off.apply_slice(&object(one.clone()));
    }
    assert_eq!(given(&ask(&off, &[any(1)])), [FULL]);
}

/// `eth1` of the documentation: bandwidth 10G, at least 1M, in steps of 8.
fn eth1() -> Inventory {
    with_devices(json!([{
        "name": "eth1",
        "allowMultipleAllocations": true,
        "capacity": {"bandwidth": {
            "value": "10G",
            "requestPolicy": {"default": "1M", "validRange": {"min": "1M", "step": "8"}},
        }},
    }]))
}

fn bandwidth(amount: &str) -> ResourceClaim {
    claim(json!([request("r", 1, json!({"capacity": {"requests": {"bandwidth": amount}}}))]))
}

#[test]
fn shares_of_a_device_take_capacity_until_none_is_left() {
    let mut world = eth1();
    for number in 0..10 {
        let outcome = ask(&world, &[bandwidth("1G")]);
        let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{number}: {outcome:?}") };
        let share = &results[0].devices.results[0];
        assert_eq!((share.device.as_str(), share.share_id.is_some()), ("eth1", true));
        assert_eq!(share.consumed_capacity["bandwidth"].to_string(), "1G");
        world.apply_allocation(&format!("claim-{number}"), &results[0]);
    }
    assert_eq!(given(&ask(&world, &[bandwidth("1G")])), [FULL]);
}

#[test]
fn requested_capacity_is_rounded_as_the_policy_says() {
    for (amount, taken) in [("1", "1M"), ("1M", "1M"), ("1000001", "1000008"), ("1000008", "1000008")] {
        let outcome = ask(&eth1(), &[bandwidth(amount)]);
        let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{outcome:?}") };
        assert_eq!(
            results[0].devices.results[0].consumed_capacity["bandwidth"].to_string(),
            taken,
            "{amount}"
        );
    }
    let outcome = ask(&eth1(), &[any(1)]);
    let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{outcome:?}") };
    assert_eq!(results[0].devices.results[0].consumed_capacity["bandwidth"].to_string(), "1M");
}

#[test]
fn a_shareable_device_serves_several_requests_but_only_once_each() {
    let both = claim(json!([request("a", 1, json!({})), request("b", 1, json!({}))]));
    assert_eq!(given(&ask(&eth1(), &[both])), ["0 a eth1", "0 b eth1"]);
    assert_eq!(given(&ask(&eth1(), &[any(2)])), [FULL]);
    let mut devices_with = json!([{"name": "eth1", "allowMultipleAllocations": true}]);
    devices_with[0]["attributes"] = json!({"port": {"int": 1}});
    let distinct = with_constraints(
        json!([request("a", 1, json!({})), request("b", 1, json!({}))]),
        json!([{"distinctAttribute": "gpu.dev/port"}]),
    );
    assert_eq!(given(&ask(&with_devices(devices_with), &[distinct])), [FULL]);
}

#[test]
fn a_device_that_cannot_be_shared_is_taken_whole() {
    let world = with_devices(json!([{"name": "d", "capacity": {"memory": {"value": "10Gi"}}}]));
    let wanted = claim(json!([request("r", 1, json!({"capacity": {"requests": {"memory": "1Gi"}}}))]));
    let outcome = ask(&world, std::slice::from_ref(&wanted));
    let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{outcome:?}") };
    let device = &results[0].devices.results[0];
    assert!(device.share_id.is_none() && device.consumed_capacity.is_empty());
    assert_eq!(given(&ask(&world, &[wanted.clone(), wanted])), [FULL]);
}

#[test]
fn binding_conditions_are_copied_and_bind_to_the_node() {
    let device = json!({
        "name": "gpu-1",
        "bindsToNode": true,
        "bindingConditions": ["dra.example.com/is-prepared"],
        "bindingFailureConditions": ["dra.example.com/preparing-failed"],
    });
    let selector = json!({"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "accelerator-type", "operator": "In", "values": ["high-performance"]},
    ]}]});
    let mut inventory = inventory(&[slice(
        "gpu-slice-1",
        "pool",
        json!({"nodeName": null, "nodeSelector": selector, "devices": [device]}),
    )]);
    let node: Node =
        object(json!({"metadata": {"name": "n7", "labels": {"accelerator-type": "high-performance"}}}));
    let ask_node = |inventory: &Inventory, node: &Node| {
        inventory.allocate(node, &[any(1)], Limits::NONE, &mut String::new)
    };
    let outcome = ask_node(&inventory, &node);
    let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{outcome:?}") };
    assert_eq!(results[0].devices.results[0].binding_conditions, ["dra.example.com/is-prepared"]);
    assert_eq!(
        results[0].devices.results[0].binding_failure_conditions,
        ["dra.example.com/preparing-failed"]
    );
    assert_eq!(
        serde_json::to_value(&results[0].node_selector).unwrap(),
        json!({"nodeSelectorTerms": [{"matchFields": [
            {"key": "metadata.name", "operator": "In", "values": ["n7"]},
        ]}]})
    );
    assert_eq!(given(&ask_on(&inventory, "other", &[any(1)])), [FULL]);
    inventory.remove_slice("gpu-slice-1");
    assert_eq!(inventory.pools().count(), 0);
}

#[test]
fn skipped_node_operations_need_a_node_that_declares_the_feature() {
    let world = inventory(&[slice(
        "control-plane-resources",
        "pool",
        json!({"devices": [{"name": "virtual-device-1"}], "skipNodeOperations": ["*"]}),
    )]);
    assert_eq!(given(&ask(&world, &[any(1)])), [FULL]);
    let node: Node = object(json!({
        "metadata": {"name": "node-1"},
        "status": {"declaredFeatures": ["DRAOptionalNodeOperations"]},
    }));
    let outcome = world.allocate(&node, &[any(1)], Limits::NONE, &mut String::new);
    let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{outcome:?}") };
    assert_eq!(results[0].devices.results[0].skip_node_operations, ["*"]);
}

#[test]
fn configuration_of_classes_comes_before_that_of_the_claim() {
    let mut world = with_devices(plain_devices(1));
    let config = |of: &str| json!({"opaque": {"driver": "gpu.dev", "parameters": {"of": of}}});
    world.apply_class(&object(json!({"metadata": {"name": "any"}, "spec": {"config": [config("class")]}})));
    let wanted: ResourceClaim = object(json!({
        "metadata": {"name": "claim"},
        "spec": {"devices": {"requests": [request("r", 1, json!({}))], "config": [config("claim")]}},
    }));
    let outcome = ask(&world, &[wanted]);
    let Ok(Answer::Allocated(results)) = &outcome.answer else { panic!("{outcome:?}") };
    let sources: Vec<_> = results[0].devices.config.iter().map(|one| one.source.as_str()).collect();
    assert_eq!(sources, ["FromClass", "FromClaim"]);
}

#[test]
fn a_search_can_be_cancelled() {
    let world = with_devices(plain_devices(10_000));
    let limits = Limits { steps: u64::MAX, cancelled: &|| true };
    let none = claim(json!([request("r", 1, json!({"selectors": cel("false")}))]));
    let outcome = world.allocate(&crate::world::node("node-1"), &[none], limits, &mut String::new);
    assert_eq!(outcome.answer, Ok(Answer::GaveUp(dra_allocator::GaveUp::Cancelled)));
}

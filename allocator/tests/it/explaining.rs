//! Why a claim does not fit.

use dra_allocator::{Explanation, Inventory, Limits, Reason, Verdict};
use serde_json::{Value, json};

use crate::world::{
    allocation, any, claim, inventory, node, object, plain_devices, rule, slice, with_devices,
};

fn explain(inventory: &Inventory, claims: &[dra_allocator::objects::ResourceClaim]) -> Explanation {
    inventory.explain(&node("node-1"), claims, Limits::NONE, 100)
}

fn reasons(explanation: &Explanation) -> Vec<String> {
    explanation.failed[0].devices.iter().map(|one| format!("{}: {}", one.device, one.reason)).collect()
}

fn ask(more: Value) -> dra_allocator::objects::ResourceClaim {
    let mut exactly = crate::world::exactly(1);
    for (key, value) in more.as_object().unwrap() {
        exactly[key] = value.clone();
    }
    claim(json!([{"name": "r", "exactly": exactly}]))
}

#[test]
fn each_device_has_the_first_reason_that_excludes_it() {
    let mut devices = plain_devices(6);
    devices[1]["taints"] = json!([{"key": "old", "value": "yes", "effect": "NoSchedule"}]);
    devices[3]["attributes"] = json!({"model": {"string": "b"}});
    for device in [2, 4, 5] {
        devices[device]["attributes"] = json!({"model": {"string": "a"}});
    }
    devices[4]["capacity"] = json!({"memory": {"value": "10Gi"}});
    devices[5]["capacity"] = json!({"memory": {"value": "30Gi"}});
    devices[1]["attributes"] = devices[2]["attributes"].clone();
    devices[1]["capacity"] = json!({"memory": {"value": "80Gi"}});
    let mut inventory = with_devices(devices);
    inventory.apply_allocation("ns/other", &allocation(&[("pool", "device-0", json!({}))]));
    let wanted = ask(json!({
        "selectors": [{"cel": {"expression": "device.attributes['gpu.dev'].model == 'a'"}}],
        "capacity": {"requests": {"memory": "40Gi"}},
    }));
    let found = explain(&inventory, std::slice::from_ref(&wanted));
    assert_eq!(found.verdict, Verdict::DoesNotFit);
    assert_eq!(
        reasons(&found),
        [
            "gpu.dev/pool/device-0: allocated to ns/other",
            "gpu.dev/pool/device-1: tainted old=yes:NoSchedule",
            "gpu.dev/pool/device-2: has no capacity memory",
            "gpu.dev/pool/device-3: selector #0 of claim ns/claim is false: device.attributes['gpu.dev'].model == 'a'",
            "gpu.dev/pool/device-4: capacity memory is short by 30Gi",
            "gpu.dev/pool/device-5: capacity memory is short by 10Gi",
        ]
    );
    let too_small =
        found.failed[0].summary.iter().find(|one| one.what.starts_with("capacity memory")).unwrap();
    assert_eq!((too_small.devices, too_small.example.as_str()), (2, "gpu.dev/pool/device-5"));
    assert_eq!(too_small.short_by.as_deref(), Some("10Gi"));
}

#[test]
fn a_rule_that_taints_is_named() {
    let mut inventory = with_devices(plain_devices(1));
    inventory.apply_taint_rule(&rule("maintenance", json!({"device": "device-0"}), "NoExecute"));
    assert_eq!(
        reasons(&explain(&inventory, &[any(1)])),
        ["gpu.dev/pool/device-0: tainted broken=:NoExecute by rule maintenance"]
    );
}

#[test]
fn an_exhausted_counter_is_named_with_what_it_lacks() {
    let two = json!({"name": "pool", "generation": 1, "resourceSliceCount": 2});
    let device = |name: &str, memory: &str, group: &str| {
        json!({
            "name": name,
            "consumesCounters": [{
                "counterSet": "gpu-0",
                "counters": {"memory": {"value": memory}},
                "compatibilityGroups": [group],
            }],
        })
    };
    let devices = json!([device("a", "6Gi", "mig"), device("b", "4Gi", "mig"), device("c", "1Gi", "vgpu")]);
    let mut inventory = inventory(&[
        slice(
            "c",
            "pool",
            json!({
                "pool": two,
                "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "8Gi"}}}],
            }),
        ),
        slice("d", "pool", json!({"pool": two, "devices": devices})),
    ]);
    inventory.apply_allocation("x", &allocation(&[("pool", "a", json!({}))]));
    assert_eq!(
        reasons(&explain(&inventory, &[any(1)])),
        [
            "gpu.dev/pool/a: allocated to x",
            "gpu.dev/pool/b: counter gpu-0/memory is short by 2Gi",
            "gpu.dev/pool/c: compatibility groups on counter set gpu-0 differ",
        ]
    );
}

#[test]
fn the_request_that_fails_is_named_with_what_others_took_before() {
    let mut devices = plain_devices(2);
    devices[0]["attributes"] = json!({"numa": {"int": 0}});
    devices[1]["attributes"] = json!({"numa": {"int": 1}});
    let inventory = with_devices(devices);
    let both = object(json!({
        "metadata": {"name": "claim"},
        "spec": {"devices": {
            "requests": [
                {"name": "one", "exactly": crate::world::exactly(1)},
                {"name": "two", "exactly": crate::world::exactly(1)},
            ],
            "constraints": [{"matchAttribute": "gpu.dev/numa"}],
        }},
    }));
    let found = explain(&inventory, &[both]);
    assert_eq!(
        (found.failed[0].request.as_str(), found.failed[0].wanted, found.failed[0].found),
        ("two", 1, 0)
    );
    assert_eq!(
        reasons(&found),
        [
            "gpu.dev/pool/device-0: taken by claim claim, request one",
            "gpu.dev/pool/device-1: constraint #0 (matchAttribute gpu.dev/numa) would not hold",
        ]
    );
}

#[test]
fn all_alternatives_of_the_failing_request_are_explained() {
    let inventory = with_devices(plain_devices(1));
    let mut first = crate::world::exactly(2);
    first["name"] = json!("two");
    let mut second = crate::world::exactly(3);
    second["name"] = json!("three");
    let found = explain(&inventory, &[claim(json!([{"name": "r", "firstAvailable": [first, second]}]))]);
    let names: Vec<_> =
        found.failed.iter().map(|one| format!("{} {}/{}", one.request, one.found, one.wanted)).collect();
    assert_eq!(names, ["r/two 1/2", "r/three 1/3"]);
}

#[test]
fn devices_of_unusable_pools_are_told_apart() {
    let two = json!({"name": "p1", "generation": 1, "resourceSliceCount": 2});
    let inventory = inventory(&[
        slice("a", "p1", json!({"pool": two, "devices": plain_devices(1)})),
        slice("b", "p2", json!({"devices": [{"name": "d"}, {"name": "d"}]})),
    ]);
    let found = explain(&inventory, &[any(1)]);
    assert_eq!(found.verdict, Verdict::Error("invalid resource pools were encountered".to_owned()));
    assert_eq!(found.failed[0].devices[0].reason, Reason::PoolIncomplete { observed: 1, announced: 2 });
    assert_eq!(
        found.failed[0].devices[1].reason,
        Reason::PoolInvalid { problem: "duplicate device name d".to_owned() }
    );
}

#[test]
fn a_selector_that_fails_ends_the_allocation_and_says_where() {
    let inventory = with_devices(plain_devices(1));
    let wanted =
        ask(json!({"selectors": [{"cel": {"expression": "device.attributes['gpu.dev'].model == 'a'"}}]}));
    let Verdict::Error(error) = explain(&inventory, &[wanted]).verdict else { panic!("no error") };
    assert!(
        error.starts_with(
            "claim ns/claim: selector #0 on device gpu.dev/pool/device-0: CEL runtime error: no such key"
        ),
        "{error}"
    );
    assert!(error.contains("orValue"), "{error}");
}

#[test]
fn an_explanation_is_as_long_as_the_caller_wants() {
    let mut inventory = with_devices(plain_devices(50));
    for device in 0..50 {
        let held = allocation(&[("pool", &format!("device-{device}"), json!({}))]);
        inventory.apply_allocation(&format!("claim-{device}"), &held);
    }
    let found = inventory.explain(&node("node-1"), &[any(1)], Limits::NONE, 3);
    assert_eq!((found.failed[0].devices.len(), found.failed[0].omitted), (3, 47));
    assert_eq!(found.failed[0].summary[0].devices, 50);
    assert_eq!(
        found.text(10_000),
        "node node-1: does not fit\n  claim ns/claim, request r: 0 of 1 devices\n       50 allocated to other claims \
         (for example gpu.dev/pool/device-0)\n    gpu.dev/pool/device-0: allocated to claim-0\n    \
         gpu.dev/pool/device-1: allocated to claim-1\n    gpu.dev/pool/device-2: allocated to claim-2\n    and 47 \
         more devices\n"
    );
    assert_eq!(found.text(60), "node node-1: does not fit\n…\n");
    assert!(found.json(300).unwrap().len() <= 300);
    assert_eq!(found.json(10), None);
}

#[test]
fn claims_that_fit_need_no_explanation() {
    let inventory = with_devices(plain_devices(1));
    let found = explain(&inventory, &[any(1)]);
    assert_eq!((found.verdict, found.failed.len()), (Verdict::Fits, 0));
}

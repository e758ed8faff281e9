//! The lint: samples of the documentation as printed and corrected, and faults that people make.

use std::path::Path;

use dra_allocator::lint::{Finding, lint};
use dra_allocator::objects::ResourceSlice;
use serde_json::{Value, json};

/// What is wrong with the documents of a file.
fn findings_in(file: &str) -> Vec<Finding> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    let text = std::fs::read_to_string(&path).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    documents.iter().flat_map(lint).collect()
}

/// Findings in short: field and fault.
fn short(findings: &[Finding]) -> Vec<String> {
    findings.iter().map(|finding| format!("{}: {}", finding.field, finding.fault)).collect()
}

#[test]
fn the_five_samples_that_the_api_server_refuses_are_explained() {
    let printed = |sample: &str| findings_in(&format!("tests/samples/{sample}.yaml"));

    let [name] = &printed("x10-list-attribute")[..] else { panic!("one fault") };
    assert_eq!(
        name.to_string(),
        "ResourceSlice example-resourceslice: spec.devices[0].attributes[dra.example.com/supported-models]: \
         \"supported-models\" is no C identifier (letters, digits and '_', no digit first). \
         Name it dra.example.com/supported_models"
    );

    let [expression] = &printed("x11-includes")[..] else { panic!("one fault") };
    assert_eq!(expression.object, "ResourceClaim default/model-a");
    assert_eq!(expression.field, "spec.devices.requests[0].exactly.selectors[1].cel.expression");
    assert!(expression.fault.contains("undeclared reference to 'models'"), "{}", expression.fault);
    assert!(expression.remedy.contains("ask for supported_models"), "{}", expression.remedy);

    let [driver] = &printed("x16-pool-status")[..] else { panic!("one fault") };
    assert_eq!(
        driver.to_string(),
        "ResourcePoolStatusRequest check-gpus: spec.driver: \"example.com/gpu\" is no DNS subdomain (lower-case letters, \
         digits, '-' and '.'). Write the driver's name as its slices do; for example gpu.example.com"
    );

    let mapping = printed("x24-cpu-mapping");
    assert_eq!(
        short(&mapping),
        [
            "spec.devices[0].capacity[cpu.example.com/cpu]: is a quantity where an object is needed",
            "spec.devices[0].nodeAllocatableResources[mapping]: mapping is no resource: the resource comes first, then how \
             it is computed",
            "spec.devices[0].nodeAllocatableResources[mapping][cpu].capacityMultiplier: is missing, but needed with \
             capacityKey",
            "spec.devices[1].capacity[cpu.example.com/cpu]: is a quantity where an object is needed",
            "spec.devices[1].nodeAllocatableResources[mapping]: mapping is no resource: the resource comes first, then how \
             it is computed",
        ]
    );
    assert_eq!(mapping[0].remedy, "Write `{value: \"128\"}`");
    assert_eq!(mapping[1].remedy, "Write `cpu: {mapping: …}`");

    let [overhead] = &printed("x25-memory-overhead")[..] else { panic!("one fault") };
    assert_eq!(overhead.field, "spec.devices[0].nodeAllocatableResources[overhead]");
    assert_eq!(overhead.remedy, "Write `memory: {overhead: …}`");
}

#[test]
fn the_corrected_samples_and_our_own_examples_have_no_fault() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
    let mut files = 0;
    for folder in ["corrected", "cluster", "."] {
        for entry in std::fs::read_dir(examples.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                assert_eq!(findings_in(path.to_str().unwrap()), [], "{}", path.display());
                files += 1;
            }
        }
    }
    assert!(files >= 9, "{files} files");
}

#[test]
fn the_corrected_slices_can_be_read_by_the_allocator() {
    for sample in ["x10-list-attribute", "x24-cpu-mapping", "x25-memory-overhead"] {
        let read = |folder: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(format!("{sample}.yaml"));
            serde_saphyr::from_str::<ResourceSlice>(&std::fs::read_to_string(path).unwrap())
        };
        assert!(!read("../examples/corrected").unwrap().spec.devices.is_empty(), "{sample}");
    }
}

fn slice(spec: Value) -> Vec<String> {
    let mut whole = json!({
        "driver": "a.dev", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
    });
    for (name, value) in spec.as_object().unwrap() {
        whole[name] = value.clone();
    }
    short(&lint(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": whole,
    })))
}

fn claim(devices: Value) -> Vec<String> {
    short(&lint(&json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "t", "namespace": "ns"},
        "spec": {"spec": {"devices": devices}},
    })))
}

#[test]
fn faults_of_slices_are_named() {
    let one = |device: Value| slice(json!({"devices": [device]})).join("\n");
    for (device, fault) in [
        (json!({"name": "A"}), "devices[0].name: \"A\" is no DNS label"),
        (json!({"name": "d", "color": "red"}), "devices[0].color: there is no such field"),
        (json!({"name": "d", "attributes": {"x": {}}}), "attributes[x]: has 0 values"),
        (json!({"name": "d", "attributes": {"x": {"int": 1, "bool": true}}}), "attributes[x]: has 2 values"),
        (json!({"name": "d", "attributes": {"x": {"ints": []}}}), "attributes[x].ints: is empty"),
        (json!({"name": "d", "attributes": {"v": {"version": "v1.2"}}}), "\"v1.2\" is no semantic version"),
        (json!({"name": "d", "attributes": {"s": {"string": "x".repeat(65)}}}), "is longer than 64 bytes"),
        (json!({"name": "d", "attributes": {"s": {"ints": vec![0; 49]}}}), "49 values are more than 48"),
        (json!({"name": "d", "capacity": {"m": {"value": "1GiB"}}}), "capacity[m].value: \"1GiB\""),
        (
            json!({"name": "d", "capacity": {"m": {"value": "1", "requestPolicy": {}}}}),
            "is for devices that can be shared",
        ),
        (json!({"name": "d", "nodeName": "n"}), "devices[0]: says which nodes reach it"),
        (
            json!({"name": "d", "taints": [{"key": "k", "effect": "PreferNoSchedule"}]}),
            "\"PreferNoSchedule\" is no effect",
        ),
        (json!({"name": "d", "bindingConditions": ["a"]}), "has only one of bindingConditions"),
        (
            json!({"name": "d", "consumesCounters": [{"counterSet": "s", "counters": {}}]}),
            "consumesCounters[0].counters: 0 counters",
        ),
        (
            json!({"name": "d", "nodeAllocatableResources": {"nvidia.com/gpu": {"mapping": {"deviceMultiplier": 1}}}}),
            "is no resource that nodes account for",
        ),
        (
            json!({"name": "d", "nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "c", "capacityMultiplier": 0}}}}),
            "the device has no capacity \"c\"",
        ),
        (
            json!({"name": "d", "nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "-1"}}}}),
            "is negative",
        ),
    ] {
        let found = one(device);
        assert!(found.contains(fault), "{fault} in\n{found}");
    }
    assert_eq!(one(json!({"name": "d", "attributes": {"b.dev/x": {"int": 0}}})), "");
    for (spec, fault) in [
        (json!({"allNodes": true}), "spec: says in nodeName, allNodes of its fields"),
        (json!({"pool": {"name": "p"}}), "resourceSliceCount: is not greater than zero"),
        (json!({"devices": [], "sharedCounters": []}), "has both sharedCounters and devices"),
        (json!({"skipNodeOperations": ["NodePrepareResources"]}), "skips preparing but not unpreparing"),
        (json!({"devices": [{"name": "d"}, {"name": "d"}]}), "\"d\" is there twice"),
        (
            json!({"devices": (0..65).map(|n| json!({"name": format!("d{n}"), "taints": [{"key": "k", "effect": "None"}]})).collect::<Vec<_>>()}),
            "65 devices are more than 64",
        ),
    ] {
        let found = slice(spec).join("\n");
        assert!(found.contains(fault), "{fault} in\n{found}");
    }
}

#[test]
fn faults_of_claims_are_named() {
    let asking = |field: &str, value: Value| {
        let mut exactly = json!({"deviceClassName": "a"});
        exactly[field] = value;
        json!({"requests": [{"name": "r", "exactly": exactly}]})
    };
    assert_eq!(claim(asking("count", json!(2))), [""; 0]);
    for (devices, fault) in [
        (
            json!({"requests": [{"name": "r", "deviceClassName": "a"}]}),
            "has both or neither of exactly and firstAvailable",
        ),
        (asking("count", json!(-1)), "-1 is no count"),
        (asking("count", json!(33)), "33 devices are more than the 32"),
        (asking("allocationMode", json!("Some")), "\"Some\" is no mode"),
        (asking("deviceClassName", json!("")), "deviceClassName: is empty"),
        (asking("selectors", json!([{}])), "selectors[0].cel: is missing"),
        (asking("selectors", json!([{"cel": {"expression": "device.driver"}}])), "must evaluate to bool"),
        (asking("selectors", json!([{"cel": {"expression": "x".repeat(20_000)}}])), "20000 bytes long"),
        (asking("tolerations", json!([{}])), "it tolerates only taints with an empty value"),
        (asking("tolerations", json!([{"operator": "Exists", "value": "v"}])), "is set with operator Exists"),
        (
            asking("derivedAttributes", json!([{"name": "derived/numa", "expression": "1"}])),
            "no constraint on request r uses \"derived/numa\"",
        ),
        (
            json!({"requests": [], "constraints": [{"requests": ["r"], "matchAttribute": "numa"}]}),
            "constraints[0].matchAttribute: \"numa\" has no domain",
        ),
        (
            json!({"requests": [], "constraints": [{"requests": ["r"], "matchAttribute": "a.dev/numa"}]}),
            "constraints[0].requests[0]: \"r\" is no request of the claim",
        ),
        (
            json!({"requests": [{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "a"}]}], "config": [{"requests": ["r/t"]}]}),
            "config[0].requests[0]: \"r/t\" is no request of the claim",
        ),
    ] {
        let found = claim(devices).join("\n");
        assert!(found.contains(fault), "{fault} in\n{found}");
    }
}

#[test]
fn rules_that_would_taint_more_than_is_meant_are_named() {
    let rule = |spec: Value| {
        lint(&json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"}, "spec": spec,
        }))
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("\n")
    };
    let taint = json!({"key": "k", "effect": "NoExecute"});
    assert!(rule(json!({"taint": taint})).contains("the rule selects nothing"));
    assert!(rule(json!({"taint": taint, "deviceSelector": {}})).contains("selects every device"));
    let by_class = rule(json!({"taint": taint, "deviceSelector": {"deviceClassName": "gpu"}}));
    assert!(by_class.contains("spec.deviceSelector.deviceClassName: does not exist any more"), "{by_class}");
    assert_eq!(rule(json!({"taint": taint, "deviceSelector": {"driver": "a.dev"}})), "");
}

#[test]
fn anything_can_be_linted() {
    for object in [
        json!(null),
        json!([]),
        json!({"kind": "Pod", "apiVersion": "v1"}),
        json!({"kind": "ResourceSlice", "apiVersion": "resource.k8s.io/v1beta1", "spec": 7}),
        json!({"kind": "List", "items": [{"kind": "List", "items": 1}]}),
    ] {
        assert_eq!(lint(&object), []);
    }
    for kind in
        ["ResourceSlice", "ResourceClaim", "DeviceClass", "DeviceTaintRule", "ResourcePoolStatusRequest"]
    {
        for spec in
            [json!(null), json!("x"), json!({"devices": 1, "pool": [], "taint": true, "selectors": [[]]})]
        {
            let _ = lint(&json!({"apiVersion": "resource.k8s.io/v1", "kind": kind, "spec": spec}));
        }
    }
}

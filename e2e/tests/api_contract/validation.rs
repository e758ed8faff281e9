//! What is refused as invalid, kind by kind: above all what the controllers' own writes could run into.

use serde_json::{Value, json};

use crate::{
    claims::{CLAIMS, allocation, claim, spec},
    others::{EVENTS, LEASES, REQUESTS, RULES, SLICES},
    pods::{GROUPS, PODS},
    step::{APPLY, MERGE, Step, delete, patch, post, put},
};

pub(crate) fn steps() -> Vec<Step> {
    [
        pool_requests(),
        pool_statuses(),
        metadata(),
        claims(),
        allocations(),
        devices(),
        pods(),
        groups(),
        taint_rules(),
        slices(),
        rest(),
    ]
    .concat()
}

const TIME: &str = "2026-01-02T03:04:05Z";

/// Conditions of which each has something wrong.
fn conditions() -> Vec<Value> {
    let with = |field: &str, value: Value| {
        let mut condition = json!({"type": "Known", "status": "True", "reason": "Known", "message": "",
            "lastTransitionTime": TIME});
        condition[field] = value;
        condition
    };
    vec![
        with("type", json!("not qualified")),
        with("type", json!("")),
        with("status", json!("Perhaps")),
        with("reason", json!("with space")),
        with("reason", json!("")),
        with("reason", json!("x".repeat(1025))),
        with("message", json!("x".repeat(32 * 1024 + 1))),
        with("observedGeneration", json!(-1)),
        with("lastTransitionTime", Value::Null),
    ]
}

fn pool_requests() -> Vec<Step> {
    let with = |says, spec: Value| post(says, REQUESTS, json!({"metadata": {"name": "bad"}, "spec": spec}));
    let long = format!("{}.example.com", "x".repeat(60));
    vec![
        with("a driver has a form", json!({"driver": "not_a_driver"})),
        with("and is not empty", json!({"driver": ""})),
        with("a pool has a form", json!({"driver": "d.example.com", "poolName": "Not/A Pool"})),
        with("in each of its parts", json!({"driver": "d.example.com", "poolName": "a//b"})),
        with("and a length", json!({"driver": "d.example.com", "poolName": "x".repeat(254)})),
        with("a limit is at least one", json!({"driver": "d.example.com", "limit": 0})),
        with("and at most a thousand", json!({"driver": "d.example.com", "limit": 1001})),
        with(
            "an attribute has a domain",
            json!({"driver": "d.example.com", "defaultPartitionTypeAttribute": "bare"}),
        ),
        post(
            "case and length of a driver are free here",
            REQUESTS,
            json!({"metadata": {"name": "free"}, "spec": {"driver": format!("GPU-{long}"), "poolName": "a/b",
                "limit": 1000, "defaultPartitionTypeAttribute": "example.com/type"}}),
        ),
        delete("it goes", format!("{REQUESTS}/free"), Value::Null),
    ]
}

fn pool_statuses() -> Vec<Step> {
    let valid = json!({"driver": "d.example.com", "poolName": "p", "generation": 1, "resourceSliceCount": 1,
        "totalDevices": 0, "allocatedDevices": 0, "availableDevices": 0, "unavailableDevices": 0});
    let status = |says, status: Value| {
        put(
            says,
            format!("{REQUESTS}/v/status"),
            json!({"metadata": {"name": "v", "resourceVersion": "{@v.metadata.resourceVersion}"},
                "spec": {"driver": "d.example.com", "limit": 100}, "status": status}),
        )
    };
    let with = |says, field: &str, value: Value| {
        let mut pool = valid.clone();
        pool[field] = value;
        status(says, json!({"poolCount": 1, "pools": [pool]}))
    };
    let partition =
        |n: usize| json!({"attribute": "d/t", "type": format!("t{n}"), "total": 1, "allocatable": 0});
    let capacity =
        |n: usize| json!({"name": format!("c{n}"), "total": "1", "consumed": "0", "available": "1"});
    let shareable = |capacities: usize| {
        json!({"fullyAvailableDevices": 0, "partiallyAvailableDevices": 0,
            "capacity": (0..capacities).map(capacity).collect::<Vec<_>>()})
    };
    let mut steps = vec![
        post(
            "a request to answer",
            REQUESTS,
            json!({"metadata": {"name": "v"}, "spec": {"driver": "d.example.com"}}),
        )
        .keep("v"),
        status("an answer has a count", json!({"pools": [valid]})),
        status("which is not negative", json!({"poolCount": -1})),
        status("an empty answer has none", json!({})),
        status("a thousand pools and one are too many", json!({"poolCount": 1, "pools": vec![&valid; 1001]})),
        with("a generation of nought is none", "generation", json!(0)),
        with("it is not negative", "generation", json!(-1)),
        with("a pool has a driver", "driver", json!("")),
        with("which has a form", "driver", json!("a b")),
        with("and a name", "poolName", Value::Null),
        with("which has a form too", "poolName", json!("A")),
        with("it has a slice", "resourceSliceCount", json!(0)),
        with("there are no fewer devices than none", "totalDevices", json!(-1)),
        with("nor allocated ones", "allocatedDevices", json!(-1)),
        with("nor available ones", "availableDevices", json!(-1)),
        with("nor others", "unavailableDevices", json!(-1)),
        with("a node has a form", "nodeName", json!("Node 1")),
        with("an error is short", "validationError", json!("x".repeat(257))),
        with("partitions are named", "partitionSummary", json!([{}])),
        with(
            "counted",
            "partitionSummary",
            json!([{"attribute": "d/t", "type": "t", "total": -1, "allocatable": -1}]),
        ),
        with("told once", "partitionSummary", json!([partition(0), partition(1), partition(0)])),
        with("and not too many", "partitionSummary", (0..33).map(partition).collect()),
        with("shares are counted", "shareableSummary", json!({})),
        with(
            "from nought",
            "shareableSummary",
            json!({"fullyAvailableDevices": -1, "partiallyAvailableDevices": -1}),
        ),
        with("their capacity is not too long a list", "shareableSummary", shareable(33)),
        with(
            "and complete",
            "shareableSummary",
            json!({"fullyAvailableDevices": 0, "partiallyAvailableDevices": 0, "capacity": [{}]}),
        ),
        status("conditions are different", {
            let condition = json!({"type": "Complete", "status": "True", "reason": "R", "message": "",
                "lastTransitionTime": TIME});
            json!({"poolCount": 0, "conditions": [condition, condition]})
        }),
        status("and ten at most", {
            let condition = |n: usize| {
                json!({"type": format!("C{n}"), "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": TIME})
            };
            json!({"poolCount": 0, "conditions": (0..11).map(condition).collect::<Vec<_>>()})
        }),
    ];
    for condition in conditions() {
        steps.push(status("each of them has a form", json!({"poolCount": 0, "conditions": [condition]})));
    }
    let mut full = valid.clone();
    full["partitionSummary"] = (0..32).map(partition).collect();
    full["shareableSummary"] = shareable(32);
    full["validationError"] = json!("x".repeat(256));
    full["nodeName"] = json!("node-1");
    steps.extend([
        status("all that may be there", json!({"poolCount": 1000, "pools": vec![&full; 20]})).keep("v"),
        status("what is there does not change, not even to nothing", Value::Null),
        delete("it goes", format!("{REQUESTS}/v"), Value::Null),
    ]);
    steps
}

fn metadata() -> Vec<Step> {
    let with = |says, field: &str, value: Value| {
        let mut object = claim("bad");
        object["metadata"][field] = value;
        post(says, CLAIMS, object)
    };
    let owner = |field: &str, value: &str| {
        let mut owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"});
        owner[field] = json!(value);
        json!([owner])
    };
    let controller = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true});
    let template = |says, field: &str, value: Value| {
        post(
            says,
            "/apis/resource.k8s.io/v1/namespaces/contract/resourceclaimtemplates",
            json!({"metadata": {"name": "bad"}, "spec": {"metadata": {field: value}, "spec": spec()}}),
        )
    };
    vec![
        with("the key of a label has a form", "labels", json!({"a b": "c"})),
        with("so has its value", "labels", json!({"a": "b c"})),
        with("and a length", "labels", json!({"a": "x".repeat(64)})),
        with("the key of an annotation has a form", "annotations", json!({"a b": "c"})),
        with("all of them have a size", "annotations", json!({"a": "x".repeat(256 * 1024)})),
        with("a finalizer has a form", "finalizers", json!(["a b"])),
        with("and a domain", "finalizers", json!(["short", "kubernetes"])),
        patch(
            "also later",
            format!("{CLAIMS}/a"),
            MERGE,
            json!({"metadata": {"finalizers": ["short", "a b"]}}),
        ),
        patch(
            "for other kinds too",
            "/api/v1/namespaces/contract",
            MERGE,
            json!({"metadata": {"finalizers": ["short", "a b", "c d/e"]}}),
        ),
        post(
            "a rule to hold",
            RULES,
            json!({"metadata": {"name": "held"}, "spec": {"taint": {"key": "k",
            "effect": "None"}}}),
        ),
        patch(
            "and for rules",
            format!("{RULES}/held"),
            MERGE,
            json!({"metadata": {"finalizers": ["short", "a b", "c d/e"]}}),
        ),
        delete("it goes", format!("{RULES}/held"), Value::Null),
        with("an owner has a version", "ownerReferences", owner("apiVersion", "")),
        with("of at most two parts", "ownerReferences", owner("apiVersion", "a/b/c")),
        with("a kind", "ownerReferences", owner("kind", "")),
        with("a name", "ownerReferences", owner("name", "")),
        with("one owner is the controller", "ownerReferences", json!([controller("a"), controller("b")])),
        with("keys of annotations in any case", "annotations", json!({"Example.com/A": "any text"})),
        delete("it goes", format!("{CLAIMS}/bad"), Value::Null),
        template("a template's labels are those of claims", "labels", json!({"a": "b c"})),
        template("and so are its annotations", "annotations", json!({"a b": "c"})),
    ]
}

fn claims() -> Vec<Step> {
    let with = |says, devices: Value| {
        post(says, CLAIMS, json!({"metadata": {"name": "bad"}, "spec": {"devices": devices}}))
    };
    let exactly = |says, field: &str, value: Value| {
        let mut request = json!({"deviceClassName": "c"});
        request[field] = value;
        with(says, json!({"requests": [{"name": "r", "exactly": request}]}))
    };
    let request = |n: usize| json!({"name": format!("r{n}"), "exactly": {"deviceClassName": "c"}});
    let alternative = |n: usize| json!({"name": format!("a{n}"), "deviceClassName": "c"});
    let firsts = |says, alternatives: Value| {
        with(says, json!({"requests": [{"name": "r", "firstAvailable": alternatives}]}))
    };
    vec![
        with(
            "a request has a name",
            json!({"requests": [{"name": "A", "exactly": {"deviceClassName": "c"}}]}),
        ),
        with("its own", json!({"requests": [request(0), request(0)]})),
        with("there are 32 at most", json!({"requests": (0..33).map(request).collect::<Vec<_>>()})),
        exactly("a class has a name", "deviceClassName", json!("A b")),
        exactly("a count is not nought", "count", json!(-1)),
        exactly("a mode is known", "allocationMode", json!("Some")),
        with(
            "all have no count",
            json!({"requests": [{"name": "r",
                "exactly": {"deviceClassName": "c", "allocationMode": "All", "count": 2}}]}),
        ),
        exactly("a toleration is for a key", "tolerations", json!([{"key": "a b", "operator": "Exists"}])),
        exactly("its operator is known", "tolerations", json!([{"key": "k", "operator": "Like"}])),
        exactly("all values are no value", "tolerations", json!([{"operator": "Exists", "value": "v"}])),
        exactly("a value has a form", "tolerations", json!([{"key": "k", "value": "a b"}])),
        exactly(
            "an effect is known",
            "tolerations",
            json!([{"key": "k", "operator": "Exists", "effect": "Explode"}]),
        ),
        firsts("an alternative has a name", json!([{"deviceClassName": "c"}])),
        firsts("its own too", json!([alternative(0), alternative(0)])),
        firsts("and a class", json!([{"name": "a"}])),
        firsts("there are eight at most", (0..9).map(alternative).collect()),
        with(
            "one form or the other",
            json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "c"},
                "firstAvailable": [alternative(0)]}]}),
        ),
        with(
            "a constraint is about requests of the claim",
            json!({"requests": [request(0)],
                "constraints": [{"requests": ["r0", "r0", "other"], "matchAttribute": "d.example.com/a"}]}),
        ),
        with(
            "a configuration is for somebody",
            json!({"requests": [request(0)], "config": [{"requests": ["other"]},
                {"opaque": {"driver": "a b", "parameters": {"a": 1}}}]}),
        ),
    ]
}

fn allocations() -> Vec<Step> {
    let status =
        |says, status: Value| patch(says, format!("{CLAIMS}/alloc/status"), MERGE, json!({"status": status}));
    let with = |says, field: &str, value: Value| {
        let mut allocation = allocation("gpu-0");
        allocation["devices"]["results"][0][field] = value;
        status(says, json!({"allocation": allocation}))
    };
    let result = |n: usize| json!({"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": format!("gpu-{n}")});
    let config = |says, config: Value| {
        let mut allocation = allocation("gpu-0");
        allocation["devices"]["config"] = json!([config]);
        status(says, json!({"allocation": allocation}))
    };
    let opaque = json!({"driver": "gpu.example.com", "parameters": {"a": 1}});
    vec![
        post("a claim to allocate", CLAIMS, claim("alloc")),
        with("a result is for a request", "request", json!("gpu/none")),
        with("a driver has a form", "driver", json!("a b")),
        with("and a length", "driver", json!(format!("{}.example.com", "x".repeat(60)))),
        with("a pool has a form", "pool", json!("a//b")),
        with("and is needed", "pool", json!("")),
        with("it is not too long", "pool", json!("x".repeat(254))),
        with("a device has a form", "device", json!("A")),
        with("and is needed", "device", json!("")),
        with("a share has an id", "shareID", json!("1")),
        with("a toleration has an operator that is known", "tolerations", json!([{"operator": "Like"}])),
        with("conditions of binding come with those of failure", "bindingConditions", json!(["a"])),
        with("and the other way", "bindingFailureConditions", json!(["a"])),
        status("they have a form, are different and few", {
            let mut allocation = allocation("gpu-0");
            let result = &mut allocation["devices"]["results"][0];
            result["bindingConditions"] = json!(["a b", "c", "c"]);
            result["bindingFailureConditions"] = json!(["c", "d", "e", "f", "g"]);
            json!({"allocation": allocation})
        }),
        status(
            "there are 32 results at most",
            json!({"allocation": {"devices": {"results": (0..33).map(result).collect::<Vec<_>>()}}}),
        ),
        config("a configuration has a source", json!({"opaque": opaque})),
        config("which is known", json!({"source": "FromNowhere", "opaque": opaque})),
        config(
            "it is for requests of the claim",
            json!({"source": "FromClaim", "requests": ["x"], "opaque": opaque}),
        ),
        config("and for a driver", json!({"source": "FromClass"})),
        status(
            "32 results",
            json!({"allocation": {"devices": {
            "results": (0..32).map(result).collect::<Vec<_>>(),
            "config": [{"source": "FromClass", "opaque": opaque}]}}}),
        ),
        delete("it goes", format!("{CLAIMS}/alloc"), Value::Null),
    ]
}

/// What drivers tell of allocated devices.
fn devices() -> Vec<Step> {
    let with = |says, fields: Value| {
        let mut device = json!({"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"});
        for (field, value) in fields.as_object().into_iter().flatten() {
            device[field] = value.clone();
        }
        patch(says, format!("{CLAIMS}/told/status"), MERGE, json!({"status": {"devices": [device]}}))
    };
    let mut steps = vec![
        post("a claim in use", CLAIMS, claim("told")),
        patch(
            "allocated",
            format!("{CLAIMS}/told/status"),
            MERGE,
            json!({"status": {"allocation": allocation("gpu-0")}}),
        ),
        with("a device is told of", json!({})),
        with("which is one of the claim's", json!({"device": "gpu-1"})),
        with("with the share that it has", json!({"shareID": "8e5b1f5a-0d5e-4a0c-9a0e-0123456789ab"})),
        with("and a form", json!({"pool": "a//b", "driver": "", "device": "A", "shareID": "x"})),
        with("conditions are few", {
            let condition = |n: usize| {
                json!({"type": format!("C{n}"), "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": TIME})
            };
            json!({"conditions": (0..9).map(condition).collect::<Vec<_>>()})
        }),
    ];
    steps.extend(
        conditions().into_iter().map(|condition| with("and have a form", json!({"conditions": [condition]}))),
    );
    steps.push(delete("it goes", format!("{CLAIMS}/told"), Value::Null));
    steps
}

fn pods() -> Vec<Step> {
    let status =
        |says, status: Value| patch(says, format!("{PODS}/told/status"), MERGE, json!({"status": status}));
    let extended = |says, fields: Value| {
        let mut told = json!({"resourceClaimName": "told-1", "requestMappings": [
            {"containerName": "c", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}]});
        for (field, value) in fields.as_object().into_iter().flatten() {
            told[field] = value.clone();
        }
        status(says, json!({"extendedResourceClaimStatus": told}))
    };
    let mapping = |container: &str, resource: &str, request: &str| json!({"containerName": container, "resourceName": resource, "requestName": request});
    let condition = |fields: Value| {
        let mut condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager",
            "message": "m", "lastTransitionTime": TIME});
        for (field, value) in fields.as_object().into_iter().flatten() {
            condition[field] = value.clone();
        }
        json!({"conditions": [condition]})
    };
    vec![
        post(
            "a Pod with an extended resource",
            PODS,
            json!({"metadata": {"name": "told"}, "spec": {"containers": [{"name": "c", "image": "i:1",
                "resources": {"limits": {"example.com/gpu": "1"}}}]}}),
        ),
        status("a condition has a type", condition(json!({"type": "a b"}))),
        status("of an observed generation", condition(json!({"observedGeneration": -1}))),
        status("reasons are free", condition(json!({"reason": "any text", "status": "Perhaps"}))),
        patch(
            "as the controller applies it",
            format!("{PODS}/told/status?fieldManager=m&force=true"),
            APPLY,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "told"}, "status": condition(json!({}))}),
        ),
        status("a generation is not negative", json!({"observedGeneration": -1})),
        status("the class of service does not change", json!({"qosClass": "Guaranteed"})),
        status("a nominated node has a form", json!({"nominatedNodeName": "A b"})),
        extended("mappings are needed", json!({"requestMappings": []})),
        extended("a claim is needed", json!({"resourceClaimName": ""})),
        extended("with a name", json!({"resourceClaimName": "A b"})),
        extended(
            "a container is one of the Pod",
            json!({"requestMappings": [mapping("x", "example.com/gpu", "r")]}),
        ),
        extended(
            "a resource is one of the container",
            json!({"requestMappings": [mapping("c", "example.com/other", "r")]}),
        ),
        extended(
            "a request has a name",
            json!({"requestMappings": [mapping("c", "example.com/gpu", "A b")]}),
        ),
        extended(
            "a mapping is told once",
            json!({"requestMappings": [mapping("c", "example.com/gpu", "r"), mapping("c", "example.com/gpu", "r")]}),
        ),
        extended("as the scheduler writes it", json!({})),
        status("it is kept from clients that do not know it", json!({"extendedResourceClaimStatus": null})),
        delete("it goes", format!("{PODS}/told"), json!({"gracePeriodSeconds": 0})),
    ]
}

fn groups() -> Vec<Step> {
    let mut steps = vec![post(
        "a PodGroup to tell of",
        GROUPS,
        json!({"metadata": {"name": "told"}, "spec": {"schedulingPolicy": {"basic": {}}}}),
    )];
    for condition in conditions() {
        steps.push(patch(
            "its conditions have a form",
            format!("{GROUPS}/told/status"),
            MERGE,
            json!({"status": {"conditions": [condition]}}),
        ));
    }
    steps.push(delete("it goes", format!("{GROUPS}/told"), Value::Null));
    steps
}

fn taint_rules() -> Vec<Step> {
    let with = |says, selector: Value, taint: Value| {
        post(
            says,
            RULES,
            json!({"metadata": {"name": "bad"}, "spec": {"deviceSelector": selector, "taint": taint}}),
        )
    };
    let taint = json!({"key": "k", "effect": "NoExecute"});
    let mut steps = vec![
        with("a driver has a form", json!({"driver": "a b"}), taint.clone()),
        with("if there is one", json!({"driver": ""}), taint.clone()),
        with("and a length", json!({"driver": "x".repeat(64)}), taint.clone()),
        with("a pool has a form", json!({"pool": "a//b"}), taint.clone()),
        with("a device has a form", json!({"device": "A"}), taint.clone()),
        with("a key has a form", json!({}), json!({"key": "a b", "effect": "NoExecute"})),
        with("a value has a form", json!({}), json!({"key": "k", "value": "a b", "effect": "NoExecute"})),
        post("a rule to tell of", RULES, json!({"metadata": {"name": "told"}, "spec": {"taint": taint}})),
        patch("its status has eight conditions at most", format!("{RULES}/told/status"), MERGE, {
            let condition = |n: usize| {
                json!({"type": format!("C{n}"), "status": "True", "reason": "R", "message": "",
                    "lastTransitionTime": TIME})
            };
            json!({"status": {"conditions": (0..9).map(condition).collect::<Vec<_>>()}})
        }),
    ];
    for condition in conditions() {
        steps.push(patch(
            "each with a form",
            format!("{RULES}/told/status"),
            MERGE,
            json!({"status": {"conditions": [condition]}}),
        ));
    }
    steps.push(delete("it goes", format!("{RULES}/told"), Value::Null));
    steps
}

fn slices() -> Vec<Step> {
    let with = |says, fields: Value| {
        let mut spec = json!({"driver": "gpu.example.com", "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]});
        for (field, value) in fields.as_object().into_iter().flatten() {
            spec[field] = value.clone();
        }
        post(says, SLICES, json!({"metadata": {"name": "bad"}, "spec": spec}))
    };
    let device = |n: usize| json!({"name": format!("d{n}")});
    let taint = |n: usize| json!({"key": format!("k{n}"), "effect": "None"});
    vec![
        with("a driver has a form", json!({"driver": "a b"})),
        with(
            "a pool has a name with a form",
            json!({"pool": {"name": "A", "generation": 1, "resourceSliceCount": 1}}),
        ),
        with("and a slice", json!({"pool": {"name": "a", "generation": 1}})),
        with(
            "and no negative generation",
            json!({"pool": {"name": "a", "generation": -1, "resourceSliceCount": 1}}),
        ),
        with("a node has a name with a form", json!({"nodeName": "A b"})),
        with("all nodes or not said", json!({"nodeName": null, "allNodes": false})),
        with(
            "counters or devices",
            json!({"sharedCounters": [{"name": "c", "counters": {"m": {"value": "1"}}}]}),
        ),
        with("a device has a name", json!({"devices": [{}]})),
        with("128 devices at most", json!({"devices": (0..129).map(device).collect::<Vec<_>>()})),
        with(
            "16 taints at most",
            json!({"devices": [{"name": "a", "taints": (0..17).map(taint).collect::<Vec<_>>()}]}),
        ),
        with(
            "taints have a form",
            json!({"devices": [{"name": "a", "taints": [{"key": "a b", "value": "c d"}]}]}),
        ),
    ]
}

fn rest() -> Vec<Step> {
    let event = |says, fields: Value| {
        let mut event = json!({"metadata": {"name": "bad", "namespace": "contract"},
            "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "resource_claim",
            "reportingInstance": "host", "type": "Warning", "reason": "R", "action": "A", "note": "text",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "contract", "name": "p", "uid": "u"}});
        for (field, value) in fields.as_object().into_iter().flatten() {
            event[field] = value.clone();
        }
        post(says, EVENTS, event)
    };
    vec![
        event("an event has a time", json!({"eventTime": null})),
        event("a type", json!({"type": "Bad"})),
        event("a reporter with a form", json!({"reportingController": "a b"})),
        event("an instance", json!({"reportingInstance": ""})),
        event("that is short", json!({"reportingInstance": "x".repeat(129)})),
        event("a short reason", json!({"reason": "x".repeat(129)})),
        event("a short action", json!({"action": "x".repeat(129)})),
        event("a note of a kilobyte", json!({"note": "x".repeat(1025)})),
        event("in bytes", json!({"note": "é".repeat(513)})),
        event("it is about something in its namespace", json!({"regarding": {"kind": "Node", "name": "n"}})),
        event(
            "a series counts from two",
            json!({"series": {"count": 1, "lastObservedTime": "2026-01-02T03:05:05.000000Z"}}),
        ),
        event("and has been seen", json!({"series": {"count": 2}})),
        post(
            "a lease has a duration and is not taken less than never",
            LEASES,
            json!({"metadata": {"name": "bad"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 0,
                "leaseTransitions": -1}}),
        ),
    ]
}

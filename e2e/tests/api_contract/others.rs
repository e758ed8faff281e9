//! Names, and the kinds beside Pods and claims.

use serde_json::{Value, json};

use crate::{
    claims::{CLAIMS, claim, spec},
    step::{APPLY, MERGE, Step, delete, get, patch, post, put},
};

pub(crate) const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
pub(crate) const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
pub(crate) const REQUESTS: &str = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests";
const CLASSES: &str = "/apis/resource.k8s.io/v1/deviceclasses";
pub(crate) const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/contract/leases";
pub(crate) const EVENTS: &str = "/apis/events.k8s.io/v1/namespaces/contract/events";

pub(crate) fn names() -> Vec<Step> {
    vec![
        post("a namespace", "/api/v1/namespaces", json!({"metadata": {"name": "contract"}})),
        post("is made once", "/api/v1/namespaces", json!({"metadata": {"name": "contract"}})),
        get("a namespace is there", "/api/v1/namespaces/contract"),
        get("another is not", "/api/v1/namespaces/none"),
        post(
            "nothing is made in a namespace that is not there",
            "/apis/resource.k8s.io/v1/namespaces/none/resourceclaims",
            claim("a"),
        ),
        post(
            "a name is generated",
            CLAIMS,
            json!({"metadata": {"generateName": "generated-"}, "spec": spec()}),
        )
        .keep("generated"),
        delete("and can be deleted", format!("{CLAIMS}/{{@generated.metadata.name}}"), Value::Null),
        post("a name is needed", CLAIMS, json!({"metadata": {}, "spec": spec()})),
        post("a name has a form", CLAIMS, json!({"metadata": {"name": "Bad_Name"}, "spec": spec()})),
        post("a generated name too", CLAIMS, json!({"metadata": {"generateName": "Bad_"}, "spec": spec()})),
        post(
            "a new object has no version",
            CLAIMS,
            json!({"metadata": {"name": "a", "resourceVersion": "1"}, "spec": spec()}),
        ),
        post(
            "the namespace is that of the path",
            CLAIMS,
            json!({"metadata": {"name": "a", "namespace": "default"}, "spec": spec()}),
        ),
        post(
            "the kind is that of the path",
            CLAIMS,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}),
        ),
        post("a body is an object", CLAIMS, json!("text")),
        post(
            "as kubectl asks, no field may be unknown",
            format!("{RULES}?fieldValidation=Strict"),
            json!({"metadata": {"name": "typo", "lables": {}}, "spec": {"deviceselector": {},
                "taint": {"key": "a/b", "effect": "None"}}}),
        ),
        post(
            "in no element of a list",
            format!("{SLICES}?fieldValidation=Strict"),
            json!({"metadata": {"name": "typo"}, "spec": {"driver": "d.example.com", "nodeName": "n",
                "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "a"}, {"name": "b", "taint": []}]}}),
        ),
        post("there is no POST of one object", format!("{CLAIMS}/a"), claim("a")),
        get("an unknown resource", "/apis/resource.k8s.io/v1/namespaces/contract/nothings"),
        get("an unknown group", "/apis/nothing.example.com/v1/things"),
    ]
}

pub(crate) fn steps() -> Vec<Step> {
    [slices(), rules(), requests(), rest()].concat()
}

fn slice(spec: Value) -> Value {
    let mut full = json!({"driver": "gpu.example.com", "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]});
    for (field, value) in spec.as_object().into_iter().flatten() {
        full[field] = value.clone();
    }
    json!({"metadata": {"name": "s"}, "spec": full})
}

fn slices() -> Vec<Step> {
    let taint = |effect: &str| json!([{"key": "broken", "effect": effect}]);
    let device = |taints: Value| json!([{"name": "gpu-0", "taints": taints}]);
    vec![
        post("a slice", SLICES, slice(json!({}))),
        patch(
            "a taint gets its time, and the generation counts",
            format!("{SLICES}/s"),
            MERGE,
            json!({"spec": {"devices": device(taint("NoExecute"))}}),
        ),
        patch(
            "a label does not count",
            format!("{SLICES}/s"),
            MERGE,
            json!({"metadata": {"labels": {"a": "b"}}}),
        ),
        patch(
            "an unknown effect",
            format!("{SLICES}/s"),
            MERGE,
            json!({"spec": {"devices": device(taint("Explode"))}}),
        ),
        patch(
            "the driver does not change",
            format!("{SLICES}/s"),
            MERGE,
            json!({"spec": {"driver": "other.example.com"}}),
        ),
        patch(
            "the pool does not change",
            format!("{SLICES}/s"),
            MERGE,
            json!({"spec": {"pool": {"name": "other"}}}),
        ),
        patch(
            "the node does not change",
            format!("{SLICES}/s"),
            MERGE,
            json!({"spec": {"nodeName": "other"}}),
        ),
        post("a slice is for some nodes", SLICES, slice(json!({"nodeName": null}))),
        post("in one way", SLICES, slice(json!({"allNodes": true}))),
        post(
            "devices have different names",
            SLICES,
            slice(json!({"devices": [{"name": "a"}, {"name": "a"}]})),
        ),
        get("the slices of a node", format!("{SLICES}?fieldSelector=spec.nodeName=n1")),
        get("of a driver", format!("{SLICES}?fieldSelector=spec.driver=other")),
        delete("it is deleted", format!("{SLICES}/s"), Value::Null),
    ]
}

fn rules() -> Vec<Step> {
    let rule = |effect: &str| {
        json!({"metadata": {"name": "rule"}, "spec": {"deviceSelector": {"driver": "gpu.example.com"},
            "taint": {"key": "broken", "effect": effect}}})
    };
    let condition = |status: &str| {
        json!({"type": "EvictionInProgress", "status": status, "reason": "PodsPendingEviction", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2026-01-02T03:04:05Z"})
    };
    let status = |manager: &str, uid: &str, conditions: Value| {
        patch(
            "conditions of a rule are applied",
            format!("{RULES}/rule/status?fieldManager={manager}&force=true"),
            APPLY,
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
                "metadata": {"name": "rule", "uid": uid}, "status": {"conditions": conditions}}),
        )
    };
    let beta = "/apis/resource.k8s.io/v1beta2/devicetaintrules";
    let alpha = "/apis/resource.k8s.io/v1alpha3/devicetaintrules";
    let uid = "{@rule.metadata.uid}";
    vec![
        post("a rule", RULES, rule("None")).keep("rule"),
        post(
            "an effect is needed",
            RULES,
            json!({"metadata": {"name": "bad"}, "spec": {"taint": {"key": "k"}}}),
        ),
        post(
            "and is one of three",
            RULES,
            json!({"metadata": {"name": "bad"},
            "spec": {"taint": {"key": "k", "effect": "Explode"}}}),
        ),
        patch(
            "another effect has another time",
            format!("{RULES}/rule"),
            MERGE,
            json!({"spec": {"taint": {"effect": "NoExecute", "timeAdded": "2026-01-02T03:04:05Z"}}}),
        ),
        get("the same rule in an older version", format!("{beta}/rule")),
        get("and in the oldest", format!("{alpha}/rule")),
        put(
            "a PUT of the current version needs a resourceVersion",
            format!("{RULES}/rule"),
            rule("NoSchedule"),
        ),
        put("one of an older version does not", format!("{beta}/rule"), rule("NoSchedule")),
        status("device-taint-eviction-controller", uid, json!([condition("True")])),
        status("device-taint-eviction-controller", uid, json!([condition("True")])),
        status("device-taint-eviction-controller", uid, json!([condition("False")])),
        status("device-taint-eviction-controller", "other", json!([condition("True")])),
        status(
            "other",
            uid,
            json!([{"type": "Testing", "status": "True", "reason": "T", "message": "",
            "lastTransitionTime": "2026-01-02T03:04:05Z"}]),
        ),
        status("device-taint-eviction-controller", uid, json!([condition("True")])),
        status("other", uid, json!([])),
        status("other", uid, json!([{"type": "Incomplete", "status": "True"}])),
        delete("it is deleted in an older version", format!("{beta}/rule"), Value::Null),
        post("made in the oldest version", alpha, rule("NoExecute")),
        get("and read in the newest", format!("{RULES}/rule")),
        delete("it is deleted", format!("{RULES}/rule"), Value::Null),
    ]
}

fn requests() -> Vec<Step> {
    let request = json!({"metadata": {"name": "q"}, "spec": {"driver": "gpu.example.com"},
        "status": {"poolCount": 9}});
    let complete = |message: &str| {
        json!({"poolCount": 0, "conditions": [{"type": "Complete", "status": "True", "reason": "CalculationComplete",
            "message": message, "lastTransitionTime": "2026-01-02T03:04:05Z"}]})
    };
    let put_status = |says, version: &str, status: Value| {
        put(
            says,
            format!("{REQUESTS}/q/status"),
            json!({"apiVersion": "resource.k8s.io/v1alpha3",
            "kind": "ResourcePoolStatusRequest", "metadata": {"name": "q", "resourceVersion": version},
            "spec": {"driver": "gpu.example.com"}, "status": status}),
        )
    };
    vec![
        post("a pool request has no status of its own", REQUESTS, request).keep("q"),
        post("a driver is needed", REQUESTS, json!({"metadata": {"name": "bad"}, "spec": {}})),
        patch(
            "its spec does not change",
            format!("{REQUESTS}/q"),
            MERGE,
            json!({"spec": {"driver": "other.example.com"}}),
        ),
        put(
            "a PUT without a version is refused",
            format!("{REQUESTS}/q/status"),
            json!({"metadata": {"name": "q"}, "spec": {"driver": "gpu.example.com"}, "status": complete("a")}),
        ),
        put_status("its status is written", "{@q.metadata.resourceVersion}", complete("a")).keep("q2"),
        put_status("an old version is a conflict", "{@q.metadata.resourceVersion}", complete("b")),
        put_status("and never changes", "{@q2.metadata.resourceVersion}", complete("b")),
        patch("labels do", format!("{REQUESTS}/q"), MERGE, json!({"metadata": {"labels": {"a": "b"}}})),
        delete(
            "another uid is a conflict",
            format!("{REQUESTS}/q"),
            json!({"preconditions": {"uid": "other"}}),
        ),
        delete(
            "it is deleted",
            format!("{REQUESTS}/q"),
            json!({"preconditions": {"uid": "{@q.metadata.uid}"}}),
        ),
    ]
}

fn rest() -> Vec<Step> {
    let lease = |holder: &str| {
        json!({"metadata": {"name": "l"}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-02T03:04:05.000000Z", "renewTime": "2026-01-02T03:04:05.000000Z",
            "leaseTransitions": 1}})
    };
    let held = |version: &str, holder: &str| {
        let mut lease = lease(holder);
        lease["metadata"]["resourceVersion"] = json!(version);
        lease
    };
    let event = json!({"metadata": {"name": "e", "namespace": "contract"},
        "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "resource_claim",
        "reportingInstance": "host", "type": "Warning", "reason": "FailedResourceClaimCreation",
        "action": "GenerateClaim", "note": "text",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "contract", "name": "p", "uid": "u"}});
    let mut anonymous = event.clone();
    anonymous["reportingController"] = json!("");
    anonymous["metadata"]["name"] = json!("bad");
    vec![
        post(
            "a class",
            CLASSES,
            json!({"metadata": {"name": "c"},
            "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}}),
        ),
        patch("its generation counts", format!("{CLASSES}/c"), MERGE, json!({"spec": {"selectors": null}})),
        delete("it is deleted", format!("{CLASSES}/c"), Value::Null),
        post("a lease", LEASES, lease("a")).keep("l"),
        put(
            "a lease is taken over with its version",
            format!("{LEASES}/l"),
            held("{@l.metadata.resourceVersion}", "b"),
        ),
        put("once", format!("{LEASES}/l"), held("{@l.metadata.resourceVersion}", "c")),
        put("never without", format!("{LEASES}/l"), lease("d")),
        delete("it is deleted", format!("{LEASES}/l"), Value::Null),
        post("an event", EVENTS, event),
        post("an event says who reports", EVENTS, anonymous),
        patch(
            "an event becomes a series",
            format!("{EVENTS}/e"),
            MERGE,
            json!({"series": {"count": 2, "lastObservedTime": "2026-01-02T03:05:05.000000Z"}}),
        ),
        patch("and is not rewritten", format!("{EVENTS}/e"), MERGE, json!({"note": "other"})),
        delete("it is deleted", format!("{EVENTS}/e"), Value::Null),
        post(
            "a node",
            "/api/v1/nodes",
            json!({"metadata": {"name": "n1", "labels": {"zone": "a"}},
            "status": {"capacity": {"pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}}),
        ),
        delete("it is deleted", "/api/v1/nodes/n1", Value::Null),
    ]
}

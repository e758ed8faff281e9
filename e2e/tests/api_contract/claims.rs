//! ResourceClaims and templates: what the claim controller and the scheduler write.

use serde_json::{Value, json};

use crate::step::{APPLY, JSON_PATCH, MERGE, STRATEGIC, Step, delete, get, patch, post, preconditions, put};

pub(crate) const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/contract/resourceclaims";
const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/contract/resourceclaimtemplates";
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

fn path(name: &str) -> String {
    format!("{CLAIMS}/{name}")
}

fn status(name: &str) -> String {
    format!("{CLAIMS}/{name}/status")
}

pub(crate) fn spec() -> Value {
    json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}})
}

pub(crate) fn claim(name: &str) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "labels": {"app": name}}, "spec": spec()})
}

pub(crate) fn allocation(device: &str) -> Value {
    json!({"devices": {"results": [
        {"request": "gpu", "driver": "gpu.example.com", "pool": "node-1", "device": device}]}})
}

fn consumer(n: usize) -> Value {
    json!({"resource": "pods", "name": format!("pod-{n}"), "uid": format!("consumer-{n}")})
}

fn consumers(count: usize) -> Value {
    (0..count).map(consumer).collect()
}

pub(crate) fn steps() -> Vec<Step> {
    [creation(), updates(), reservations(), order(), immutability(), deletion(), templates()].concat()
}

fn creation() -> Vec<Step> {
    let mut with_status = claim("a");
    with_status["status"] = json!({"allocation": allocation("gpu-0")});
    vec![
        post("a new claim gets defaults, and its status is dropped", CLAIMS, with_status).keep("a"),
        post("a name is taken once", CLAIMS, claim("a")),
        post(
            "tolerations and alternatives get defaults too",
            CLAIMS,
            json!({"metadata": {"name": "alternatives"}, "spec": {"devices": {"requests": [{"name": "any",
                "firstAvailable": [{"name": "one", "deviceClassName": "c"},
                    {"name": "two", "deviceClassName": "c", "tolerations": [{"key": "k", "value": "v"}]}]}]}}}),
        ),
        post(
            "a request without a class is refused",
            CLAIMS,
            json!({"metadata": {"name": "bad"}, "spec": {"devices": {"requests": [{"name": "r", "exactly": {}}]}}}),
        ),
        post(
            "a request of neither form is refused",
            CLAIMS,
            json!({"metadata": {"name": "bad"}, "spec": {"devices": {"requests": [{"name": "r"}]}}}),
        ),
        post(
            "an owner reference needs a uid",
            CLAIMS,
            json!({"metadata": {"name": "bad", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "", "controller": true}]}, "spec": spec()}),
        ),
        post(
            "a generated claim as the controller makes it",
            CLAIMS,
            json!({"metadata": {"generateName": "pod-gpu-",
                "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true}]},
                "spec": spec()}),
        ),
    ]
}

fn updates() -> Vec<Step> {
    let replaced = |version: &str, uid: &str, labels: Value| {
        let mut object = claim("a");
        object["metadata"] = json!({"name": "a", "labels": labels});
        if !version.is_empty() {
            object["metadata"]["resourceVersion"] = json!(version);
        }
        if !uid.is_empty() {
            object["metadata"]["uid"] = json!(uid);
        }
        object["spec"]["devices"]["requests"][0]["exactly"] =
            json!({"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 1});
        object
    };
    let current = "{@a.metadata.resourceVersion}";
    let uid = "{@a.metadata.uid}";
    vec![
        put(
            "a PUT with the current version is accepted",
            path("a"),
            replaced(current, uid, json!({"n": "1"})),
        ),
        put("a PUT with an old version is a conflict", path("a"), replaced(current, uid, json!({"n": "2"}))),
        put("a PUT without a version is accepted", path("a"), replaced("", "", json!({"n": "3"}))),
        put("a PUT of another uid is a conflict", path("a"), replaced("", "other", json!({"n": "4"}))),
        put("a PUT that changes nothing writes nothing", path("a"), replaced("", "", json!({"n": "3"}))),
        put("a PUT of what is not there is refused", path("none"), claim("none")),
        put("a PUT names the object of its path", path("a"), claim("b")),
        put(
            "a PUT of the status leaves labels and spec",
            status("a"),
            json!({"metadata": {"name": "a", "labels": {"n": "x"}}, "spec": {"devices": {}},
                "status": {"allocation": allocation("gpu-0")}}),
        ),
        put("a PUT of the object leaves the status", path("a"), replaced("", "", json!({"n": "5"}))),
        patch(
            "a merge patch changes what it names",
            path("a"),
            MERGE,
            json!({"metadata": {"labels": {"m": "1"}}}),
        ),
        patch("null removes", path("a"), MERGE, json!({"metadata": {"labels": {"m": null}}})).keep("a"),
        patch("a patch that changes nothing writes nothing", path("a"), MERGE, json!({"metadata": {}})),
        patch(
            "a patch with the current version is accepted",
            path("a"),
            MERGE,
            json!({"metadata": {"resourceVersion": current, "uid": uid, "labels": {"m": "2"}}}),
        ),
        patch(
            "a patch with an old version is a conflict",
            path("a"),
            MERGE,
            json!({"metadata": {"resourceVersion": current, "labels": {"m": "3"}}}),
        ),
        patch("a patch with another uid is refused", path("a"), MERGE, json!({"metadata": {"uid": "other"}})),
        patch(
            "so is one of the status",
            status("a"),
            MERGE,
            json!({"metadata": {"uid": "other"}, "status": {}}),
        ),
        patch("a patch of what is not there is refused", path("none"), MERGE, json!({})),
        patch(
            "a JSON patch",
            path("a"),
            JSON_PATCH,
            json!([{"op": "test", "path": "/metadata/labels/m", "value": "2"},
                {"op": "add", "path": "/metadata/labels/j", "value": "1"}]),
        ),
        patch(
            "a JSON patch whose test fails",
            path("a"),
            JSON_PATCH,
            json!([{"op": "test", "path": "/metadata/labels/m", "value": "9"}]),
        ),
        patch("a field of the wrong type", path("a"), MERGE, json!({"metadata": {"labels": {"m": 7}}})),
        patch("an unknown media type", path("a"), "application/x-other", json!({})),
        get("after all this", path("a")),
        get("the status alone is the object too", status("a")),
    ]
}

fn reservations() -> Vec<Step> {
    let set =
        |says, count| patch(says, status("r"), MERGE, json!({"status": {"reservedFor": consumers(count)}}));
    vec![
        post("a claim to reserve", CLAIMS, claim("r")).keep("r"),
        set("without an allocation there are no consumers", 1),
        patch(
            "allocation and reservation come together",
            status("r"),
            MERGE,
            json!({"status": {"allocation": allocation("gpu-0"), "reservedFor": consumers(1)}}),
        ),
        set("256 consumers", 256),
        set("257 consumers are too many", 257),
        patch(
            "a consumer counts once",
            status("r"),
            MERGE,
            json!({"status": {"reservedFor": [consumer(0), consumer(0)]}}),
        ),
        patch(
            "a consumer has a name, a resource and a uid",
            status("r"),
            MERGE,
            json!({"status": {"reservedFor": [{"uid": "x"}]}}),
        ),
        patch(
            "an allocation does not change",
            status("r"),
            MERGE,
            json!({"status": {"allocation": allocation("gpu-1")}}),
        ),
        patch(
            "an allocation is not taken from consumers",
            status("r"),
            MERGE,
            json!({"status": {"allocation": null}}),
        ),
        patch(
            "the last consumers and the allocation go together",
            status("r"),
            MERGE,
            json!({"status": {"allocation": null, "reservedFor": null}}),
        ),
        patch(
            "an allocation is for a request of the claim",
            status("r"),
            MERGE,
            json!({"status": {"allocation": {"devices": {"results": [
                {"request": "other", "driver": "gpu.example.com", "pool": "p", "device": "d"}]}}}}),
        ),
    ]
}

/// Patches as our controller sends them.
fn order() -> Vec<Step> {
    let locked = json!({"uid": "{@o.metadata.uid}", "resourceVersion": "{@o.metadata.resourceVersion}"});
    let uid = |n: usize| json!({"uid": format!("consumer-{n}")});
    let gone = |n: usize| json!({"$patch": "delete", "uid": format!("consumer-{n}")});
    let strategic = |says, status_: Value| {
        patch(says, status("o"), STRATEGIC, json!({"metadata": locked.clone(), "status": status_})).keep("o")
    };
    vec![
        post("a claim to patch", CLAIMS, claim("o")).keep("o"),
        patch(
            "two consumers",
            status("o"),
            MERGE,
            json!({"status": {"allocation": allocation("gpu-0"), "reservedFor": consumers(2)}}),
        )
        .keep("o"),
        strategic("without an order the new one comes in front", json!({"reservedFor": [consumer(2)]})),
        strategic(
            "with an order it comes where that says",
            json!({"reservedFor": [consumer(3)],
                "$setElementOrder/reservedFor": [uid(2), uid(0), uid(1), uid(3)]}),
        ),
        strategic(
            "elements that the order does not name keep their place",
            json!({"reservedFor": [consumer(4)], "$setElementOrder/reservedFor": [uid(0), uid(4)]}),
        ),
        strategic(
            "a known consumer is merged",
            json!({"reservedFor": [{"uid": "consumer-1", "name": "renamed"}]}),
        ),
        strategic("two go by uid", json!({"reservedFor": [gone(0), gone(2)]})),
        strategic("one goes that is not there", json!({"reservedFor": [gone(77)]})),
        patch(
            "an element without its key is refused",
            status("o"),
            STRATEGIC,
            json!({"status": {"reservedFor": [{"name": "x"}]}}),
        ),
        strategic(
            "the last ones go with the allocation",
            json!({"reservedFor": [gone(1), gone(3), gone(4)], "allocation": null}),
        ),
        patch(
            "an outdated lock is a conflict",
            status("o"),
            STRATEGIC,
            json!({"metadata": {"uid": "{@o.metadata.uid}", "resourceVersion": "1"}, "status": {"allocation": null}}),
        ),
        patch(
            "a finalizer is added",
            path("o"),
            STRATEGIC,
            json!({"metadata": {"finalizers": [FINALIZER, "example.com/other"]}}),
        ),
        patch(
            "and another one",
            path("o"),
            STRATEGIC,
            json!({"metadata": {"finalizers": ["example.com/third"]}}),
        ),
        patch(
            "one finalizer goes, the others stay",
            path("o"),
            STRATEGIC,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}),
        ),
        patch(
            "a finalizer is not the status' business",
            status("o"),
            STRATEGIC,
            json!({"metadata": {"finalizers": ["example.com/fourth"]}}),
        ),
        patch(
            "a list is replaced",
            path("o"),
            STRATEGIC,
            json!({"metadata": {"labels": {"$patch": "replace", "x": "y"}}}),
        ),
        patch(
            "an object is emptied",
            path("o"),
            STRATEGIC,
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
        ),
    ]
}

fn immutability() -> Vec<Step> {
    vec![
        patch(
            "the spec of a claim does not change",
            path("o"),
            MERGE,
            json!({"spec": {"devices": {"requests": []}}}),
        ),
        patch(
            "applying a spec that differs is refused too",
            format!("{}?fieldManager=m", path("o")),
            APPLY,
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "o"},
                "spec": {"devices": {"requests": [{"name": "other", "exactly": {"deviceClassName": "x"}}]}}}),
        ),
        patch(
            "an apply creates",
            format!("{CLAIMS}/applied?fieldManager=m"),
            APPLY,
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "applied", "labels": {"a": "1", "b": "1"}}, "spec": spec()}),
        ),
        patch(
            "what is no longer applied goes away",
            format!("{CLAIMS}/applied?fieldManager=m"),
            APPLY,
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "applied", "labels": {"a": "1"}}, "spec": spec()}),
        ),
        patch(
            "an apply of an object with a uid does not create",
            format!("{CLAIMS}/none?fieldManager=m"),
            APPLY,
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
                "metadata": {"name": "none", "uid": "x"}, "spec": spec()}),
        ),
        patch(
            "an apply needs a manager",
            path("applied"),
            APPLY,
            json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "applied"}}),
        ),
    ]
}

fn deletion() -> Vec<Step> {
    vec![
        post("a claim to delete", CLAIMS, claim("d")).keep("d"),
        delete("another uid is a conflict", path("d"), preconditions(json!({"uid": "other"}))),
        delete("an old version is a conflict", path("d"), preconditions(json!({"resourceVersion": "1"}))),
        delete(
            "the very object is deleted and returned",
            path("d"),
            preconditions(
                json!({"uid": "{@d.metadata.uid}", "resourceVersion": "{@d.metadata.resourceVersion}"}),
            ),
        ),
        delete("it is gone", path("d"), Value::Null),
        get("gone is not found", path("d")),
        post(
            "a claim with a finalizer",
            CLAIMS,
            json!({"metadata": {"name": "f", "finalizers": [FINALIZER]}, "spec": spec()}),
        ),
        patch(
            "in use",
            status("f"),
            MERGE,
            json!({"status": {"allocation": allocation("gpu-0"), "reservedFor": consumers(2)}}),
        ),
        delete("it is only marked", path("f"), Value::Null),
        delete("and is marked once", path("f"), Value::Null),
        patch("it takes no consumers", status("f"), MERGE, json!({"status": {"reservedFor": consumers(3)}})),
        patch("it loses consumers", status("f"), MERGE, json!({"status": {"reservedFor": consumers(1)}})),
        patch(
            "it gets no finalizers",
            path("f"),
            STRATEGIC,
            json!({"metadata": {"finalizers": ["example.com/late"]}}),
        ),
        patch("it may still be labelled", path("f"), MERGE, json!({"metadata": {"labels": {"x": "y"}}})),
        patch(
            "it is deallocated",
            status("f"),
            MERGE,
            json!({"status": {"allocation": null, "reservedFor": null}}),
        ),
        patch(
            "with the last finalizer it is gone, and the answer shows it",
            path("f"),
            STRATEGIC,
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [FINALIZER]}}),
        ),
        get("and is not found", path("f")),
    ]
}

fn templates() -> Vec<Step> {
    let template = json!({"metadata": {"name": "t"},
        "spec": {"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}}, "spec": spec()}});
    vec![
        post("a template", TEMPLATES, template.clone()),
        patch(
            "a template does not change",
            format!("{TEMPLATES}/t"),
            MERGE,
            json!({"spec": {"metadata": {"labels": {"l": "2"}}}}),
        ),
        patch(
            "but its labels may",
            format!("{TEMPLATES}/t"),
            MERGE,
            json!({"metadata": {"labels": {"l": "2"}}}),
        ),
        get("there is no status of it", format!("{TEMPLATES}/t/status")),
        delete("it is deleted and returned", format!("{TEMPLATES}/t"), Value::Null),
    ]
}

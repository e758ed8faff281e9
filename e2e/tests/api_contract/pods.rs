//! Pods and PodGroups: claim statuses, binding, graceful deletion.

use serde_json::{Value, json};

use crate::step::{APPLY, MERGE, STRATEGIC, Step, delete, get, patch, post, preconditions};

pub(crate) const PODS: &str = "/api/v1/namespaces/contract/pods";
pub(crate) const GROUPS: &str = "/apis/scheduling.k8s.io/v1beta1/namespaces/contract/podgroups";

fn path(name: &str) -> String {
    format!("{PODS}/{name}")
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"schedulerName": "nobody", "containers": [{"name": "main", "image": "registry.example/app:1",
            "resources": {"claims": [{"name": "gpu"}]}}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"},
                {"name": "net", "resourceClaimTemplateName": "t"}, {"name": "own", "resourceClaimName": "c"}]}})
}

fn statuses(entries: &[(&str, &str)]) -> Value {
    entries.iter().map(|(name, claim)| json!({"name": name, "resourceClaimName": claim})).collect()
}

fn applied(kind: &str, name: &str, uid: &str, entries: &[(&str, &str)]) -> Value {
    let api_version = if kind == "Pod" { "v1" } else { "scheduling.k8s.io/v1beta1" };
    let mut object = json!({"apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": "contract"},
        "status": {"resourceClaimStatuses": statuses(entries)}});
    if !uid.is_empty() {
        object["metadata"]["uid"] = json!(uid);
    }
    object
}

fn apply(says: &'static str, manager: &str, force: bool, entries: &[(&str, &str)]) -> Step {
    let path = format!("{PODS}/p/status?fieldManager={manager}&force={force}");
    patch(says, path, APPLY, applied("Pod", "p", "{@p.metadata.uid}", entries))
}

fn bind(says: &'static str, name: &str, uid: Option<&str>, node: &str) -> Step {
    let mut binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    if let Some(uid) = uid {
        binding["metadata"]["uid"] = json!(uid);
    }
    post(says, format!("{PODS}/{name}/binding"), binding)
}

pub(crate) fn steps() -> Vec<Step> {
    [creation(), claim_statuses(), other_writes(), binding(), deletion(), groups()].concat()
}

fn creation() -> Vec<Step> {
    let with_claims = |claims: Value| {
        let mut object = pod("bad");
        object["spec"]["containers"][0]["resources"] = json!({});
        object["spec"]["resourceClaims"] = claims;
        object
    };
    vec![
        post("a new Pod gets defaults", PODS, pod("p")).keep("p"),
        post(
            "entries have different names",
            PODS,
            with_claims(json!([
            {"name": "a", "resourceClaimName": "c"}, {"name": "a", "resourceClaimName": "d"}])),
        ),
        post("an entry names a claim or a template", PODS, with_claims(json!([{"name": "a"}]))),
        post(
            "an entry does not name both",
            PODS,
            with_claims(json!([
            {"name": "a", "resourceClaimName": "c", "resourceClaimTemplateName": "t"}])),
        ),
        post(
            "an entry has a name that is a label",
            PODS,
            with_claims(json!([
            {"name": "A_", "resourceClaimName": "c"}])),
        ),
        post("a Pod has containers", PODS, json!({"metadata": {"name": "bad"}, "spec": {"containers": []}})),
    ]
}

fn claim_statuses() -> Vec<Step> {
    vec![
        apply(
            "claims are recorded",
            "ResourceClaimController",
            true,
            &[("gpu", "p-gpu-1"), ("net", "p-net-1")],
        )
        .keep("applied"),
        apply(
            "again changes nothing",
            "ResourceClaimController",
            true,
            &[("gpu", "p-gpu-1"), ("net", "p-net-1")],
        ),
        apply("what is left out goes away", "ResourceClaimController", true, &[("net", "p-net-1")]),
        apply("another manager adds", "other", false, &[("gpu", "p-gpu-2")]),
        apply("a different value is a conflict", "other", false, &[("gpu", "p-gpu-2"), ("net", "p-net-2")]),
        apply("unless it is forced", "other", true, &[("gpu", "p-gpu-2"), ("net", "p-net-2")]),
        apply(
            "the first manager lets go of nothing that it still owns",
            "ResourceClaimController",
            true,
            &[],
        ),
        apply("an entry that the Pod does not have", "ResourceClaimController", true, &[("x", "p-x-1")]),
        apply("a claim name that none can have", "ResourceClaimController", true, &[("gpu", "Bad_Name")]),
        patch(
            "another uid",
            format!("{PODS}/p/status?fieldManager=ResourceClaimController&force=true"),
            APPLY,
            applied("Pod", "p", "other", &[("gpu", "p-gpu-3")]),
        ),
        patch(
            "a Pod that is not there",
            format!("{PODS}/none/status?fieldManager=ResourceClaimController&force=true"),
            APPLY,
            applied("Pod", "none", "x", &[("gpu", "p-gpu-3")]),
        ),
        patch(
            "an old version",
            format!("{PODS}/p/status?fieldManager=ResourceClaimController&force=true"),
            APPLY,
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p",
                "resourceVersion": "{@p.metadata.resourceVersion}"}, "status": {"message": "m"}}),
        ),
        patch(
            "another kind",
            format!("{PODS}/p/status?fieldManager=m"),
            APPLY,
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "p"}}),
        ),
        patch(
            "a plain write takes over",
            format!("{PODS}/p/status?fieldManager=plain"),
            MERGE,
            json!({"status": {"resourceClaimStatuses": statuses(&[("gpu", "p-gpu-4"), ("net", "p-net-2")])}}),
        ),
        apply("which is a conflict for the one who applied", "other", false, &[("gpu", "p-gpu-2")]),
        patch(
            "a client that does not know claim statuses does not erase them",
            format!("{PODS}/p/status"),
            MERGE,
            json!({"status": {"resourceClaimStatuses": null}}),
        ),
        get("after all this", path("p")),
    ]
}

fn other_writes() -> Vec<Step> {
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByDeviceTaintManager",
        "message": "Device Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": "2026-01-02T03:04:05Z"});
    vec![
        patch(
            "a condition as the eviction controller sets it",
            format!("{PODS}/p/status"),
            STRATEGIC,
            json!({"metadata": {"uid": "{@p.metadata.uid}"}, "status": {
                "$setElementOrder/conditions": [{"type": "DisruptionTarget"}], "conditions": [condition]}}),
        ),
        patch(
            "under another uid",
            format!("{PODS}/p/status"),
            STRATEGIC,
            json!({"metadata": {"uid": "other"}, "status": {"conditions": [condition]}}),
        ),
        patch(
            "a second condition",
            format!("{PODS}/p/status"),
            STRATEGIC,
            json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
        ),
        patch("a phase", format!("{PODS}/p/status"), MERGE, json!({"status": {"phase": "Running"}})),
        patch(
            "the status is not the object's business",
            path("p"),
            MERGE,
            json!({"status": {"phase": "Failed"}}),
        ),
        patch(
            "the spec is not the status' business",
            format!("{PODS}/p/status"),
            MERGE,
            json!({"spec": {"nodeName": "n"}, "metadata": {"annotations": {"a": "1"}}}),
        ),
        patch("the node is not for users to set", path("p"), MERGE, json!({"spec": {"nodeName": "n"}})),
        patch("entries do not change", path("p"), MERGE, json!({"spec": {"resourceClaims": []}})),
        patch(
            "an image does",
            path("p"),
            STRATEGIC,
            json!({"spec": {"containers": [{"name": "main", "image": "registry.example/app:2"}]}}),
        ),
    ]
}

fn binding() -> Vec<Step> {
    vec![
        post("a Pod to bind", PODS, pod("b")).keep("b"),
        bind("another uid is a conflict", "b", Some("other"), "n1"),
        bind("a node is needed", "b", None, ""),
        bind("the Pod is bound", "b", Some("{@b.metadata.uid}"), "n1"),
        bind("once", "b", Some("{@b.metadata.uid}"), "n1"),
        bind("a Pod that is not there", "none", None, "n1"),
        get("it has its node", path("b")),
        delete("it is deleted gracefully", path("b"), Value::Null),
        delete("again changes nothing", path("b"), Value::Null),
        delete("the grace may be shortened", path("b"), json!({"gracePeriodSeconds": 5})),
        delete("but not made longer", path("b"), json!({"gracePeriodSeconds": 50})),
        patch(
            "it may still get a status",
            format!("{PODS}/b/status"),
            MERGE,
            json!({"status": {"phase": "Failed"}}),
        ),
        delete(
            "the kubelet ends it",
            path("b"),
            json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "{@b.metadata.uid}"}}),
        ),
        get("it is gone", path("b")),
        post("a gated Pod", PODS, {
            let mut gated = pod("g");
            gated["spec"]["schedulingGates"] = json!([{"name": "example.com/gate"}]);
            gated
        }),
        bind("is not bound", "g", None, "n1"),
        patch("its gate opens", path("g"), MERGE, json!({"spec": {"schedulingGates": null}})),
        bind("now it is", "g", None, "n1"),
        delete("force", path("g"), json!({"gracePeriodSeconds": 0})),
    ]
}

fn deletion() -> Vec<Step> {
    let eviction = |uid: &str| {
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "e"},
            "deleteOptions": {"preconditions": {"uid": uid}}})
    };
    vec![
        post("a Pod without a node", PODS, pod("u")).keep("u"),
        delete("another uid is a conflict", path("u"), preconditions(json!({"uid": "other"}))),
        delete("goes at once", path("u"), Value::Null),
        get("and is gone", path("u")),
        post("a Pod with a finalizer", PODS, {
            let mut held = pod("h");
            held["metadata"]["finalizers"] = json!(["example.com/held"]);
            held
        }),
        delete("is only marked", path("h"), Value::Null),
        bind("and cannot be bound", "h", None, "n1"),
        patch("until the finalizer goes", path("h"), MERGE, json!({"metadata": {"finalizers": null}})),
        get("then it is gone", path("h")),
        post("a Pod to end", PODS, pod("s")),
        bind("bound", "s", None, "n1"),
        patch("it ends", format!("{PODS}/s/status"), MERGE, json!({"status": {"phase": "Succeeded"}})),
        delete("an ended Pod goes at once", path("s"), Value::Null),
        get("and is gone too", path("s")),
        post("a Pod to evict", PODS, pod("e")).keep("e"),
        bind("on a node", "e", None, "n1"),
        post("another uid is a conflict", format!("{PODS}/e/eviction"), eviction("other")),
        post("it is evicted", format!("{PODS}/e/eviction"), eviction("{@e.metadata.uid}")),
        get("which is a graceful deletion", path("e")),
        delete("the end", path("e"), json!({"gracePeriodSeconds": 0})),
        post(
            "what is not there is not evicted",
            format!("{PODS}/none/eviction"),
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "none"}}),
        ),
    ]
}

fn groups() -> Vec<Step> {
    let group = json!({"metadata": {"name": "grp"}, "spec": {"schedulingPolicy": {"basic": {}},
        "resourceClaims": [{"name": "shared", "resourceClaimTemplateName": "t"}]}});
    let status = "status?fieldManager=ResourceClaimController&force=true";
    vec![
        post("a PodGroup", GROUPS, group).keep("grp"),
        post("a PodGroup needs a policy", GROUPS, json!({"metadata": {"name": "bad"}, "spec": {}})),
        patch(
            "its claims are recorded",
            format!("{GROUPS}/grp/{status}"),
            APPLY,
            applied("PodGroup", "grp", "{@grp.metadata.uid}", &[("shared", "grp-shared-1")]),
        ),
        patch(
            "not for entries that it does not have",
            format!("{GROUPS}/grp/{status}"),
            APPLY,
            applied("PodGroup", "grp", "{@grp.metadata.uid}", &[("x", "grp-x-1")]),
        ),
        patch(
            "nor for another one of that name",
            format!("{GROUPS}/grp/{status}"),
            APPLY,
            applied("PodGroup", "grp", "other", &[("shared", "grp-shared-2")]),
        ),
        patch(
            "its entries do not change",
            format!("{GROUPS}/grp"),
            MERGE,
            json!({"spec": {"resourceClaims": []}}),
        ),
        get("after all this", format!("{GROUPS}/grp")),
        delete("it is deleted", format!("{GROUPS}/grp"), Value::Null),
    ]
}

//! Discovery, lists, watches.

use serde_json::{Value, json};

use crate::{
    claims::{CLAIMS, claim},
    pods::PODS,
    step::{MERGE, Step, delete, get, patch, post, watch},
};

pub(crate) fn discovery() -> Vec<Step> {
    vec![
        get("core resources", "/api/v1"),
        get("resources of the DRA", "/apis/resource.k8s.io/v1"),
        get("resources of the DRA, beta", "/apis/resource.k8s.io/v1beta2"),
        get("PodGroups", "/apis/scheduling.k8s.io/v1beta1"),
        get("an unknown group", "/apis/nothing.example.com/v1"),
        get("an unknown version", "/apis/resource.k8s.io/v9"),
    ]
}

fn labelled(name: &str, tier: &str) -> Value {
    let mut object = claim(name);
    object["metadata"]["labels"] = json!({"list": "yes", "tier": tier});
    object
}

pub(crate) fn steps() -> Vec<Step> {
    [lists(), watches()].concat()
}

fn lists() -> Vec<Step> {
    let list = format!("{CLAIMS}?labelSelector=list%3Dyes");
    let page = |token: &str| format!("{CLAIMS}?labelSelector=list&limit=2&continue={token}");
    vec![
        post("one", CLAIMS, labelled("list-1", "a")),
        post("two", CLAIMS, labelled("list-2", "b")),
        post("three", CLAIMS, labelled("list-3", "a")),
        get("by label", list),
        get("by several", format!("{CLAIMS}?labelSelector=list,tier!=a,tier%20notin%20(c,d)")),
        get("by set", format!("{CLAIMS}?labelSelector=tier%20in%20(a,b),list")),
        get("by absence", format!("{CLAIMS}?labelSelector=!app,tier")),
        get("by name", format!("{CLAIMS}?fieldSelector=metadata.name%3Dlist-2")),
        get("a field that cannot be selected by", format!("{CLAIMS}?fieldSelector=spec.x%3Dy")),
        get("a label selector that is none", format!("{CLAIMS}?labelSelector=a%20b")),
        get("Pods by node", format!("{PODS}?fieldSelector=spec.nodeName%3Dnone")),
        get(
            "Pods by phase",
            format!("{PODS}?fieldSelector=status.phase%3DRunning,metadata.namespace%3Dcontract"),
        ),
        get("a first page", format!("{CLAIMS}?labelSelector=list&limit=2")).keep("page"),
        delete("what is deleted in between", format!("{CLAIMS}/list-3"), Value::Null),
        get("is still in the second page", page("{@page.metadata.continue}")),
        get("a token that is none", page("nonsense")),
        get("all namespaces", "/apis/resource.k8s.io/v1/resourceclaims?labelSelector=list"),
    ]
}

fn watches() -> Vec<Step> {
    let selected = "labelSelector=watched";
    let label = |says, name: &str, labels: Value| {
        patch(says, format!("{CLAIMS}/{name}"), MERGE, json!({"metadata": {"labels": labels}}))
    };
    vec![
        post("a start", CLAIMS, claim("w-0")).keep("start"),
        post("one comes", CLAIMS, {
            let mut object = claim("w-1");
            object["metadata"]["labels"] = json!({"watched": "yes"});
            object
        })
        .keep("first"),
        label("one begins to be selected", "w-0", json!({"watched": "yes"})),
        label("one changes", "w-0", json!({"watched": "yes", "more": "1"})),
        label("one is not selected any more", "w-1", json!({"watched": null})),
        delete("one goes", format!("{CLAIMS}/w-0"), Value::Null),
        delete("the other goes unseen", format!("{CLAIMS}/w-1"), Value::Null),
        watch("all that came since", format!("{CLAIMS}?resourceVersion={{@start.metadata.resourceVersion}}")),
        watch(
            "of what is selected",
            format!("{CLAIMS}?{selected}&resourceVersion={{@start.metadata.resourceVersion}}"),
        ),
        watch(
            "from later on",
            format!("{CLAIMS}?allowWatchBookmarks=true&resourceVersion={{@first.metadata.resourceVersion}}"),
        ),
        watch(
            "from any state: what is there comes first",
            format!("{CLAIMS}?labelSelector=list&resourceVersion=0"),
        ),
        watch(
            "as a list with an end",
            format!(
                "{CLAIMS}?labelSelector=list&sendInitialEvents=true&resourceVersionMatch=NotOlderThan\
                 &allowWatchBookmarks=true"
            ),
        ),
        watch("which needs to say how old it may be", format!("{CLAIMS}?sendInitialEvents=true")),
        watch("which a plain watch may not", format!("{CLAIMS}?resourceVersionMatch=NotOlderThan")),
        watch(
            "a Pod that goes at once is marked first",
            format!("{PODS}?resourceVersion={{@u.metadata.resourceVersion}}&fieldSelector=metadata.name%3Du"),
        ),
    ]
}

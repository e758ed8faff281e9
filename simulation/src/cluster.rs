//! The cluster as its other inhabitants use it: requests that are answered at once, without faults.

use std::sync::Arc;

use dra_embedded::Server;
use http::Method;
use serde_json::{Value, json};

/// The namespace that everything happens in.
pub(crate) const NAMESPACE: &str = "sim";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// The value at the end of a path of field names; null when there is none.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    static NOTHING: Value = Value::Null;
    path.iter().try_fold(object, |value, field| value.get(field)).unwrap_or(&NOTHING)
}

/// The text at the end of a path; empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The list at the end of a path; empty when there is none.
pub(crate) fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Sets a field of an object.
pub(crate) fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

pub(crate) fn version(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !at(object, &["metadata", "deletionTimestamp"]).is_null()
}

/// The uid of the controller owner, if it is of this kind.
pub(crate) fn owner<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    items(object, &["metadata", "ownerReferences"])
        .iter()
        .find(|o| at(o, &["controller"]) == true && text(o, &["kind"]) == kind)
        .map(|o| text(o, &["uid"]))
}

/// True when a Pod will never need its claims (again).
pub(crate) fn is_done(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
        || (is_deleting(pod) && text(pod, &["spec", "nodeName"]).is_empty())
}

/// A handle on the server.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) server: Server,
}

/// Where objects of a kind are.
fn collection(kind: &str) -> String {
    let namespaced = |group: &str, plural: &str| format!("{group}/namespaces/{NAMESPACE}/{plural}");
    match kind {
        "Namespace" => "/api/v1/namespaces".to_owned(),
        "Pod" => namespaced("/api/v1", "pods"),
        "PodGroup" => namespaced("/apis/scheduling.k8s.io/v1beta1", "podgroups"),
        "ResourceClaim" => namespaced("/apis/resource.k8s.io/v1", "resourceclaims"),
        "ResourceClaimTemplate" => namespaced("/apis/resource.k8s.io/v1", "resourceclaimtemplates"),
        "ResourceSlice" => "/apis/resource.k8s.io/v1/resourceslices".to_owned(),
        "DeviceTaintRule" => "/apis/resource.k8s.io/v1/devicetaintrules".to_owned(),
        "ResourcePoolStatusRequest" => "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests".to_owned(),
        _ => "/apis/resource.k8s.io/v1/deviceclasses".to_owned(),
    }
}

impl Cluster {
    pub(crate) fn all(&self, kind: &str) -> Vec<Arc<Value>> {
        self.server.objects(kind)
    }

    pub(crate) fn find(&self, kind: &str, wanted: &str) -> Option<Arc<Value>> {
        self.all(kind).into_iter().find(|o| name(o) == wanted)
    }

    fn call(&self, method: Method, path: &str, content: &str, body: &Value) -> Result<Value, u16> {
        let (code, answer) = self.server.call(method, path, content, body);
        if code < 300 { Ok(answer) } else { Err(code) }
    }

    pub(crate) fn create(&self, kind: &str, body: &Value) -> Result<Value, u16> {
        self.call(Method::POST, &collection(kind), JSON, body)
    }

    /// A merge patch of an object (`part` empty) or of its status (`/status`).
    pub(crate) fn patch(&self, kind: &str, name: &str, part: &str, patch: &Value) -> Result<Value, u16> {
        self.call(Method::PATCH, &format!("{}/{name}{part}", collection(kind)), MERGE, patch)
    }

    pub(crate) fn delete(&self, kind: &str, name: &str, options: &Value) -> Result<Value, u16> {
        self.call(Method::DELETE, &format!("{}/{name}", collection(kind)), JSON, options)
    }

    pub(crate) fn bind(&self, pod: &str, uid: &str, node: &str) -> Result<Value, u16> {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "uid": uid},
            "target": {"kind": "Node", "name": node}});
        self.call(Method::POST, &format!("{}/{pod}/binding", collection("Pod")), JSON, &binding)
    }
}

/// Which claims the entries of a Pod stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A claim of the user's.
    Direct(String),
    /// Made from a template for the Pod.
    Generated { entry: String, template: String, recorded: Option<String> },
    /// Made from a template for the Pod's PodGroup.
    Shared { entry: String, recorded: Option<String> },
}

fn recorded(owner: &Value, entry: &str) -> Option<String> {
    items(owner, &["status", "resourceClaimStatuses"])
        .iter()
        .find(|s| text(s, &["name"]) == entry)
        .and_then(|s| at(s, &["resourceClaimName"]).as_str())
        .map(str::to_owned)
}

/// The entries of a Pod, or of a PodGroup when `group` is absent.
pub(crate) fn entries(owner: &Value, group: Option<&Value>) -> Vec<Entry> {
    items(owner, &["spec", "resourceClaims"])
        .iter()
        .map(|e| {
            let (entry, template) = (text(e, &["name"]), text(e, &["resourceClaimTemplateName"]));
            if template.is_empty() {
                return Entry::Direct(text(e, &["resourceClaimName"]).to_owned());
            }
            let shared = group.is_some_and(|g| items(g, &["spec", "resourceClaims"]).contains(e));
            if shared {
                Entry::Shared { entry: entry.to_owned(), recorded: group.and_then(|g| recorded(g, entry)) }
            } else {
                let recorded = recorded(owner, entry);
                Entry::Generated { entry: entry.to_owned(), template: template.to_owned(), recorded }
            }
        })
        .collect()
}

/// The PodGroup that a Pod names, and whether it names one at all.
pub(crate) fn group_of(pod: &Value, groups: &[Arc<Value>]) -> (bool, Option<Arc<Value>>) {
    let wanted = text(pod, &["spec", "schedulingGroup", "podGroupName"]);
    (!wanted.is_empty(), groups.iter().find(|g| name(g) == wanted).cloned())
}

//! The cluster as its other inhabitants use it: requests that are answered at once, without faults.

use std::sync::Arc;

use dra_allocator::{
    Features, Inventory,
    objects::{DeviceClass, Node},
    scheduling::ExtendedResources,
};
use dra_embedded::Server;
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Who is told what happened, a line each.
pub type Tell<'a> = &'a mut dyn FnMut(&str);

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// The value at the end of a path of field names; null when there is none.
pub fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    static NOTHING: Value = Value::Null;
    path.iter().try_fold(object, |value, field| value.get(field)).unwrap_or(&NOTHING)
}

/// The text at the end of a path; empty when there is none.
pub fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The list at the end of a path; empty when there is none.
pub fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Sets a field of an object.
pub fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

/// Name of an object.
pub fn name(object: &Value) -> &str {
    text(object, &["metadata", "name"])
}

/// Namespace of an object; empty for one of the whole cluster.
pub fn namespace(object: &Value) -> &str {
    text(object, &["metadata", "namespace"])
}

/// Uid of an object.
pub fn uid(object: &Value) -> &str {
    text(object, &["metadata", "uid"])
}

/// resourceVersion of an object.
pub fn version(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

/// True from the request to delete it on.
pub fn is_deleting(object: &Value) -> bool {
    !at(object, &["metadata", "deletionTimestamp"]).is_null()
}

/// The uid of the controller owner, if it is of this kind.
pub fn owner<'a>(object: &'a Value, kind: &str) -> Option<&'a str> {
    items(object, &["metadata", "ownerReferences"])
        .iter()
        .find(|o| at(o, &["controller"]) == true && text(o, &["kind"]) == kind)
        .map(|o| text(o, &["uid"]))
}

/// True when a Pod will never need its claims (again).
pub fn is_done(pod: &Value) -> bool {
    matches!(text(pod, &["status", "phase"]), "Succeeded" | "Failed")
        || (is_deleting(pod) && text(pod, &["spec", "nodeName"]).is_empty())
}

/// A handle on the server, and the namespace that requests for namespaced kinds go to.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// The server.
    pub server: Server,
    /// The namespace.
    pub namespace: String,
}

impl Cluster {
    /// A handle.
    pub fn new(server: Server, namespace: &str) -> Self {
        Self { server, namespace: namespace.to_owned() }
    }

    /// A handle for the namespace of an object.
    #[must_use]
    pub fn beside(&self, object: &Value) -> Self {
        Self::new(self.server.clone(), namespace(object))
    }

    /// Where objects of a kind are; nowhere for a kind that nobody here writes.
    fn collection(&self, kind: &str) -> String {
        let namespaced =
            |group: &str, plural: &str| format!("{group}/namespaces/{}/{plural}", self.namespace);
        let cluster = |plural: &str| format!("/apis/resource.k8s.io/{plural}");
        match kind {
            "Namespace" => "/api/v1/namespaces".to_owned(),
            "Node" => "/api/v1/nodes".to_owned(),
            "Pod" => namespaced("/api/v1", "pods"),
            "PodGroup" => namespaced("/apis/scheduling.k8s.io/v1beta1", "podgroups"),
            "ResourceClaim" => namespaced("/apis/resource.k8s.io/v1", "resourceclaims"),
            "ResourceClaimTemplate" => namespaced("/apis/resource.k8s.io/v1", "resourceclaimtemplates"),
            "ResourceSlice" => cluster("v1/resourceslices"),
            "DeviceClass" => cluster("v1/deviceclasses"),
            "DeviceTaintRule" => cluster("v1/devicetaintrules"),
            "ResourcePoolStatusRequest" => cluster("v1alpha3/resourcepoolstatusrequests"),
            _ => "/apis/unknown".to_owned(),
        }
    }

    /// All objects of a kind in all namespaces.
    pub fn all(&self, kind: &str) -> Vec<Arc<Value>> {
        self.server.objects(kind)
    }

    /// The object of this name in the namespace, or in the cluster for kinds without namespaces.
    pub fn find(&self, kind: &str, wanted: &str) -> Option<Arc<Value>> {
        let of = |namespace: &str| self.server.object(kind, namespace, wanted);
        of(&self.namespace).or_else(|| of(""))
    }

    /// The objects of a kind that can be read as a `T`.
    fn decoded<T: DeserializeOwned>(&self, kind: &str) -> impl Iterator<Item = T> {
        self.all(kind).into_iter().filter_map(|object| serde_json::from_value(Value::clone(&object)).ok())
    }

    /// The nodes, as the scheduler looks at them.
    pub fn nodes(&self) -> Vec<Node> {
        self.decoded("Node").collect()
    }

    /// What there is and who holds it.
    pub fn inventory(&self) -> Inventory {
        let mut inventory = Inventory::new(Features::default());
        self.decoded("DeviceClass").for_each(|class| inventory.apply_class(&class));
        self.decoded("ResourceSlice").for_each(|slice| inventory.apply_slice(&slice));
        self.decoded("DeviceTaintRule").for_each(|rule| inventory.apply_taint_rule(&rule));
        for claim in self.all("ResourceClaim") {
            if let Ok(allocation) = serde_json::from_value(at(&claim, &["status", "allocation"]).clone()) {
                inventory.apply_allocation(&format!("{}/{}", namespace(&claim), name(&claim)), &allocation);
            }
        }
        inventory
    }

    /// Which classes serve extended resources.
    pub fn extended_resources(&self) -> ExtendedResources {
        let classes: Vec<DeviceClass> = self.decoded("DeviceClass").collect();
        ExtendedResources::new(&classes)
    }

    fn call(&self, method: Method, path: &str, content: &str, body: &Value) -> Result<Value, u16> {
        let (code, answer) = self.server.call(method, path, content, body);
        if code < 300 { Ok(answer) } else { Err(code) }
    }

    /// Creates an object.
    ///
    /// # Errors
    /// The HTTP status of a refusal, as of all that follow.
    pub fn create(&self, kind: &str, body: &Value) -> Result<Value, u16> {
        self.call(Method::POST, &self.collection(kind), JSON, body)
    }

    /// Writes an object under its name as a PUT does; the answer of the server as it is.
    pub fn replace(&self, kind: &str, body: &Value) -> (u16, Value) {
        self.server.call(Method::PUT, &format!("{}/{}", self.collection(kind), name(body)), JSON, body)
    }

    /// Creates an object; the answer of the server as it is.
    pub fn post(&self, kind: &str, body: &Value) -> (u16, Value) {
        self.server.call(Method::POST, &self.collection(kind), JSON, body)
    }

    /// A merge patch of an object (`part` empty) or of its status (`/status`).
    ///
    /// # Errors
    /// The HTTP status of a refusal.
    pub fn patch(&self, kind: &str, name: &str, part: &str, patch: &Value) -> Result<Value, u16> {
        self.call(Method::PATCH, &format!("{}/{name}{part}", self.collection(kind)), MERGE, patch)
    }

    /// Deletes an object; `options` may be null.
    ///
    /// # Errors
    /// The HTTP status of a refusal.
    pub fn delete(&self, kind: &str, name: &str, options: &Value) -> Result<Value, u16> {
        self.call(Method::DELETE, &format!("{}/{name}", self.collection(kind)), JSON, options)
    }

    /// Binds a Pod to a node.
    ///
    /// # Errors
    /// The HTTP status of a refusal.
    pub fn bind(&self, pod: &str, uid: &str, node: &str) -> Result<Value, u16> {
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod, "uid": uid},
            "target": {"kind": "Node", "name": node}});
        self.call(Method::POST, &format!("{}/{pod}/binding", self.collection("Pod")), JSON, &binding)
    }

    /// One pass of the garbage collector, of the namespace controller and of the one that protects PodGroups.
    pub fn collect_garbage(&self, tell: Tell<'_>) {
        let deleted = self.server.collect_garbage();
        if deleted > 0 {
            tell(&format!("garbage collector: {deleted} objects"));
        }
    }
}

/// Which claims the entries of a Pod stand for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A claim of the user's.
    Direct(String),
    /// Made from a template for the Pod.
    Generated {
        /// Name of the entry.
        entry: String,
        /// Name of the template.
        template: String,
        /// Name of the claim, as the status of the Pod says.
        recorded: Option<String>,
    },
    /// Made from a template for the Pod's PodGroup.
    Shared {
        /// Name of the entry.
        entry: String,
        /// Name of the claim, as the status of the PodGroup says.
        recorded: Option<String>,
    },
}

fn recorded(owner: &Value, entry: &str) -> Option<String> {
    items(owner, &["status", "resourceClaimStatuses"])
        .iter()
        .find(|s| text(s, &["name"]) == entry)
        .and_then(|s| at(s, &["resourceClaimName"]).as_str())
        .map(str::to_owned)
}

/// The entries of a Pod, or of a PodGroup when `group` is absent.
pub fn entries(owner: &Value, group: Option<&Value>) -> Vec<Entry> {
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

/// The claim that the scheduler made for a Pod's extended resources, as the Pod's status says.
pub fn extended_claim(pod: &Value) -> Option<&str> {
    at(pod, &["status", "extendedResourceClaimStatus", "resourceClaimName"]).as_str()
}

/// True when a container asks for a resource that a class may serve.
pub fn has_extended_resources(pod: &Value) -> bool {
    ["containers", "initContainers"].iter().flat_map(|list| items(pod, &["spec", list])).any(|container| {
        at(container, &["resources", "requests"])
            .as_object()
            .is_some_and(|requests| requests.keys().any(|resource| resource.contains('/')))
    })
}

/// Whether an object has this name and the namespace of `beside`.
pub fn is_beside(object: &Value, wanted: &str, beside: &Value) -> bool {
    name(object) == wanted && namespace(object) == namespace(beside)
}

/// Whether a claim is reserved for the Pod or PodGroup of this uid.
pub fn is_reserved_for(claim: &Value, consumer: &str) -> bool {
    items(claim, &["status", "reservedFor"]).iter().any(|c| text(c, &["uid"]) == consumer)
}

/// The annotation of claims that the scheduler makes for extended resources.
pub const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// True when the scheduler made the claim for extended resources.
pub fn is_extended(claim: &Value) -> bool {
    text(claim, &["metadata", "annotations", EXTENDED]) == "true"
}

/// The PodGroup that a Pod names, and whether it names one at all.
pub fn group_of(pod: &Value, groups: &[Arc<Value>]) -> (bool, Option<Arc<Value>>) {
    let wanted = text(pod, &["spec", "schedulingGroup", "podGroupName"]);
    let group = groups.iter().find(|g| is_beside(g, wanted, pod));
    (!wanted.is_empty(), group.cloned())
}

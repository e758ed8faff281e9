//! Objects as their authors write them: Pods, PodGroups, claims and templates in JSON.

use serde_json::{Value, json};

use super::server::Kind;

/// Namespace of everything that does not say otherwise.
pub(crate) const NS: &str = "ns";
/// The finalizer that the scheduler sets before it allocates.
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation that says which entry a claim was generated for.
pub(crate) const ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";
/// The annotation on claims that the scheduler makes for extended resources.
pub(crate) const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

/// An object that is not in the cluster yet.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) kind: Kind,
    pub(crate) body: Value,
}

fn draft(kind: Kind, name: &str, spec: &Value) -> Draft {
    let body = json!({
        "apiVersion": kind.api_version(), "kind": kind.name(),
        "metadata": {"name": name, "namespace": NS}, "spec": spec
    });
    Draft { kind, body }
}

/// A Pod without claims.
pub(crate) fn pod(name: &str) -> Draft {
    draft(Kind::Pod, name, &json!({"containers": [{"name": "c", "image": "i"}]}))
}

/// A PodGroup without claims.
pub(crate) fn group(name: &str) -> Draft {
    draft(Kind::PodGroup, name, &json!({}))
}

/// A claim with one request, as a user writes it.
pub(crate) fn claim(name: &str) -> Draft {
    draft(Kind::Claim, name, &claim_spec())
}

/// A template with one request.
pub(crate) fn template(name: &str) -> Draft {
    draft(Kind::Template, name, &json!({"spec": claim_spec()}))
}

/// A template that asks for admin access.
pub(crate) fn admin_template(name: &str) -> Draft {
    let request = json!({"name": "r", "exactly": {"deviceClassName": "gpu", "adminAccess": true}});
    draft(Kind::Template, name, &json!({"spec": {"devices": {"requests": [request]}}}))
}

/// A template whose request has alternatives.
pub(crate) fn prioritized_template(name: &str) -> Draft {
    let request = json!({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]});
    draft(Kind::Template, name, &json!({"spec": {"devices": {"requests": [request]}}}))
}

/// `spec` of a claim with one request.
pub(crate) fn claim_spec() -> Value {
    json!({"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}})
}

/// A consumer that is a Pod.
pub(crate) fn pod_consumer(name: &str, uid: &str) -> Value {
    json!({"resource": "pods", "name": name, "uid": uid})
}

/// A consumer that is a PodGroup.
pub(crate) fn group_consumer(name: &str, uid: &str) -> Value {
    json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": name, "uid": uid})
}

/// Appends to the array at `pointer`, which is made when there is none.
pub(crate) fn push(object: &mut Value, parent: &str, field: &str, item: Value) {
    let list = &mut object[parent][field];
    if !list.is_array() {
        *list = json!([]);
    }
    list.as_array_mut().unwrap().push(item);
}

impl Draft {
    /// An entry with a template.
    pub(crate) fn templated(mut self, entry: &str, template: &str) -> Self {
        let item = json!({"name": entry, "resourceClaimTemplateName": template});
        push(&mut self.body, "spec", "resourceClaims", item);
        self
    }

    /// An entry with a claim that a user made.
    pub(crate) fn direct(mut self, entry: &str, claim: &str) -> Self {
        push(&mut self.body, "spec", "resourceClaims", json!({"name": entry, "resourceClaimName": claim}));
        self
    }

    /// An entry with neither a claim nor a template: what a later API may look like to us.
    pub(crate) fn neither(mut self, entry: &str) -> Self {
        push(&mut self.body, "spec", "resourceClaims", json!({"name": entry}));
        self
    }

    /// A status entry; no name means that the entry needs no claim.
    pub(crate) fn recorded(mut self, entry: &str, claim: Option<&str>) -> Self {
        let item = match claim {
            Some(claim) => json!({"name": entry, "resourceClaimName": claim}),
            None => json!({"name": entry}),
        };
        push(&mut self.body, "status", "resourceClaimStatuses", item);
        self
    }

    /// `status.extendedResourceClaimStatus`.
    pub(crate) fn extended_status(mut self, claim: &str) -> Self {
        self.body["status"]["extendedResourceClaimStatus"] =
            json!({"resourceClaimName": claim, "requestMappings": []});
        self
    }

    /// Membership in a PodGroup.
    pub(crate) fn member_of(mut self, group: &str) -> Self {
        self.body["spec"]["schedulingGroup"] = json!({"podGroupName": group});
        self
    }

    /// `spec.nodeName`.
    pub(crate) fn on(mut self, node: &str) -> Self {
        self.body["spec"]["nodeName"] = json!(node);
        self
    }

    /// `status.phase`.
    pub(crate) fn phase(mut self, phase: &str) -> Self {
        self.body["status"]["phase"] = json!(phase);
        self
    }

    /// Marked for deletion.
    pub(crate) fn deleting(mut self) -> Self {
        self.body["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        self
    }

    /// In another namespace.
    pub(crate) fn in_namespace(mut self, namespace: &str) -> Self {
        self.body["metadata"]["namespace"] = json!(namespace);
        self
    }

    /// With this uid.
    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.body["metadata"]["uid"] = json!(uid);
        self
    }

    /// With an annotation.
    pub(crate) fn annotated(mut self, key: &str, value: &str) -> Self {
        self.body["metadata"]["annotations"][key] = json!(value);
        self
    }

    /// With a finalizer.
    pub(crate) fn finalizer(mut self, finalizer: &str) -> Self {
        push(&mut self.body, "metadata", "finalizers", json!(finalizer));
        self
    }

    /// With a controller owner.
    pub(crate) fn owned_by(mut self, api_version: &str, kind: &str, name: &str, uid: &str) -> Self {
        let owner = json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid,
            "controller": true});
        push(&mut self.body, "metadata", "ownerReferences", owner);
        self
    }

    /// Owned by a Pod and generated for one of its entries.
    pub(crate) fn generated_for(self, pod: &str, uid: &str, entry: &str) -> Self {
        self.owned_by("v1", "Pod", pod, uid).annotated(ANNOTATION, entry)
    }

    /// Owned by a PodGroup and generated for one of its entries.
    pub(crate) fn generated_for_group(self, group: &str, uid: &str, entry: &str) -> Self {
        self.owned_by("scheduling.k8s.io/v1beta1", "PodGroup", group, uid).annotated(ANNOTATION, entry)
    }

    /// The same for an owner of either kind.
    pub(crate) fn generated_by(self, kind: Kind, owner: &str, uid: &str, entry: &str) -> Self {
        match kind {
            Kind::PodGroup => self.generated_for_group(owner, uid, entry),
            _ => self.generated_for(owner, uid, entry),
        }
    }

    /// Allocated as the scheduler does it: finalizer and allocation.
    pub(crate) fn allocated(self) -> Self {
        self.finalizer(FINALIZER).allocated_without_finalizer()
    }

    /// Allocated by somebody who does not set the scheduler's finalizer.
    pub(crate) fn allocated_without_finalizer(mut self) -> Self {
        self.body["status"]["allocation"] = json!({"devices": {"results": []}});
        self
    }

    /// Allocated to devices that only one node can reach.
    pub(crate) fn allocated_at(mut self, node: &str) -> Self {
        self = self.allocated();
        self.body["status"]["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields":
            [{"key": "metadata.name", "operator": "In", "values": [node]}]}]});
        self
    }

    /// With a consumer.
    pub(crate) fn reserved_for(mut self, consumer: Value) -> Self {
        push(&mut self.body, "status", "reservedFor", consumer);
        self
    }
}

//! Objects for stories, as small as the API allows.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, PodResourceClaim, PodSchedulingGroup};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::ResourceExt as _;
use serde_json::{Value, json};

/// The driver of every fixture.
pub const DRIVER: &str = "gpu.example.com";
/// The `DeviceClass` of every fixture.
pub const DEVICE_CLASS: &str = "gpu.example.com";
/// Namespace label that allows admin access.
pub const ADMIN_ACCESS_LABEL: &str = "resource.kubernetes.io/admin-access";

/// The scheduler that Pods of fixtures name: none, so that the story itself says where they go.
const NO_SCHEDULER: &str = "e2e-story";

/// A namespace.
pub fn namespace(name: &str) -> Namespace {
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some(name.to_owned());
    namespace
}

/// A node that can run 1,000 Pods, labelled `e2e=<name>`.
///
/// # Errors
/// None in practice: the object is fixed.
pub fn node(name: &str) -> Result<Node> {
    typed(json!({
        "metadata": {"name": name, "labels": {"e2e": name}},
        "status": {
            "capacity": {"cpu": "1000", "memory": "1000Gi", "pods": "1000"},
            "allocatable": {"cpu": "1000", "memory": "1000Gi", "pods": "1000"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }))
}

/// The class of the fixtures' devices.
///
/// # Errors
/// None in practice: the object is fixed.
pub fn device_class(name: &str) -> Result<DeviceClass> {
    typed(json!({
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]},
    }))
}

/// A slice with `devices` devices called `gpu-<n>` on one node, in the pool of the node's name.
///
/// # Errors
/// None in practice: the object is fixed.
pub fn resource_slice(node: &str, devices: usize) -> Result<ResourceSlice> {
    let devices: Vec<Value> = (0..devices).map(|index| json!({"name": format!("gpu-{index}")})).collect();
    typed(json!({
        "metadata": {"name": format!("{node}-{DRIVER}")},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }))
}

fn claim_spec(class: &str, admin_access: bool) -> Value {
    let mut exactly = json!({"deviceClassName": class});
    if admin_access && let Some(exactly) = exactly.as_object_mut() {
        exactly.insert("adminAccess".to_owned(), json!(true));
    }
    json!({"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}})
}

/// A claim for one device.
///
/// # Errors
/// None in practice: the object is fixed.
pub fn claim(name: &str) -> Result<ResourceClaim> {
    typed(json!({"metadata": {"name": name}, "spec": claim_spec(DEVICE_CLASS, false)}))
}

/// A template of claims for one device, with a label and an annotation of its own.
///
/// # Errors
/// None in practice: the object is fixed.
pub fn template(name: &str) -> Result<ResourceClaimTemplate> {
    template_of_class(name, DEVICE_CLASS)
}

/// The same with another `DeviceClass`.
///
/// # Errors
/// None in practice: the object is fixed.
pub fn template_of_class(name: &str, class: &str) -> Result<ResourceClaimTemplate> {
    typed(json!({
        "metadata": {"name": name},
        "spec": {
            "metadata": {
                "labels": {"example.com/template": name},
                "annotations": {"example.com/template": name},
            },
            "spec": claim_spec(class, false),
        },
    }))
}

/// A template of claims with admin access to one device.
///
/// # Errors
/// None in practice: the object is fixed.
pub fn admin_template(name: &str) -> Result<ResourceClaimTemplate> {
    typed(json!({"metadata": {"name": name}, "spec": {"spec": claim_spec(DEVICE_CLASS, true)}}))
}

/// A Pod's claim entry that is generated from a template.
pub fn from_template(entry: &str, template: &str) -> PodResourceClaim {
    PodResourceClaim {
        name: entry.to_owned(),
        resource_claim_template_name: Some(template.to_owned()),
        ..PodResourceClaim::default()
    }
}

/// A Pod's claim entry that names a claim.
pub fn from_claim(entry: &str, claim: &str) -> PodResourceClaim {
    PodResourceClaim {
        name: entry.to_owned(),
        resource_claim_name: Some(claim.to_owned()),
        ..PodResourceClaim::default()
    }
}

/// A Pod with one container that uses every claim. No scheduler looks at it unless it is passed to [`scheduled_on`].
///
/// # Errors
/// None in practice: the object is fixed.
pub fn pod(name: &str, claims: &[PodResourceClaim]) -> Result<Pod> {
    let used: Vec<Value> = claims.iter().map(|claim| json!({"name": claim.name})).collect();
    let mut pod: Pod = typed(json!({
        "metadata": {"name": name},
        "spec": {
            "schedulerName": NO_SCHEDULER,
            "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "registry.example/app:1", "resources": {"claims": used}}],
        },
    }))?;
    if let Some(spec) = pod.spec.as_mut()
        && !claims.is_empty()
    {
        spec.resource_claims = Some(claims.to_vec());
    }
    Ok(pod)
}

/// The Pod with its node set by the user, past any scheduler.
#[must_use]
pub fn on_node(mut pod: Pod, node: &str) -> Pod {
    if let Some(spec) = pod.spec.as_mut() {
        spec.node_name = Some(node.to_owned());
    }
    pod
}

/// The Pod for kube-scheduler, which may place it on one node only.
#[must_use]
pub fn scheduled_on(mut pod: Pod, node: &str) -> Pod {
    if let Some(spec) = pod.spec.as_mut() {
        spec.scheduler_name = Some("default-scheduler".to_owned());
        spec.node_selector = Some(BTreeMap::from([("e2e".to_owned(), node.to_owned())]));
    }
    pod
}

/// The Pod as a member of a `PodGroup`.
#[must_use]
pub fn in_group(mut pod: Pod, group: &str) -> Pod {
    if let Some(spec) = pod.spec.as_mut() {
        spec.scheduling_group = Some(PodSchedulingGroup { pod_group_name: Some(group.to_owned()) });
    }
    pod
}

/// A `PodGroup` whose members are scheduled one by one, with claims of its own.
///
/// # Errors
/// None in practice: the object is fixed.
pub fn pod_group(name: &str, claims: &[PodResourceClaim]) -> Result<PodGroup> {
    // A PodGroup's entries have the fields of a Pod's.
    let claims = serde_json::to_value(claims).context("claims of a PodGroup")?;
    typed(json!({
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"basic": {}}, "resourceClaims": claims},
    }))
}

/// A Pod's phase.
pub fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// The claim that a Pod's status names for `entry`.
pub fn recorded_claim(pod: &Pod, entry: &str) -> Option<String> {
    let statuses = pod.status.as_ref()?.resource_claim_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == entry)?.resource_claim_name.clone()
}

/// The claim that a `PodGroup`'s status names for `entry`.
pub fn recorded_group_claim(group: &PodGroup, entry: &str) -> Option<String> {
    let statuses = group.status.as_ref()?.resource_claim_statuses.as_ref()?;
    statuses.iter().find(|status| status.name == entry)?.resource_claim_name.clone()
}

/// UIDs for which a claim is reserved, in order.
pub fn consumers(claim: &ResourceClaim) -> Vec<String> {
    let reserved = claim.status.as_ref().and_then(|status| status.reserved_for.as_ref());
    reserved.into_iter().flatten().map(|consumer| consumer.uid.clone()).collect()
}

/// Whether a claim is allocated.
pub fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

/// Whether a claim is controlled by the object with this UID.
pub fn is_owned_by(claim: &ResourceClaim, uid: &str) -> bool {
    claim.owner_references().iter().any(|owner| owner.controller == Some(true) && owner.uid == uid)
}

fn typed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).context("a fixture")
}

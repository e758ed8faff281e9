//! What kube-scheduler does to claims, one step at a time.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::api::scheduling::v1beta1::PodGroup;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use serde_json::{Value, json};

use crate::fixtures::DRIVER;

/// The finalizer that the scheduler sets before it allocates.
pub const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Consumer entry of a Pod.
pub fn pod_consumer(pod: &Pod) -> Value {
    json!({"resource": "pods", "name": pod.name_any(), "uid": pod.uid().unwrap_or_default()})
}

/// Consumer entry of a `PodGroup`.
pub fn group_consumer(group: &PodGroup) -> Value {
    let uid = group.uid().unwrap_or_default();
    json!({"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": group.name_any(), "uid": uid})
}

/// Allocates the device `<pool>/<device>` to a claim and reserves it for `consumers`: the finalizer first, then
/// allocation and reservation in one status write, as kube-scheduler does.
///
/// # Errors
/// The API server refuses a write, as it does when somebody else changes the claim at the same time.
pub async fn allocate(
    claims: &Api<ResourceClaim>,
    name: &str,
    pool: &str,
    device: &str,
    consumers: &[Value],
) -> Result<ResourceClaim> {
    let mut claim = claims.get(name).await.with_context(|| format!("reading claim {name}"))?;
    let finalizers = claim.finalizers_mut();
    if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
        finalizers.push(FINALIZER.to_owned());
    }
    let claim = claims
        .replace(name, &PostParams::default(), &claim)
        .await
        .with_context(|| format!("setting the finalizer of claim {name}"))?;
    let result = json!({"request": "gpu", "driver": DRIVER, "pool": pool, "device": device});
    set_status(
        claims,
        &claim,
        &json!({"allocation": {"devices": {"results": [result]}}, "reservedFor": consumers}),
    )
    .await
}

/// Adds consumers to an allocated claim.
///
/// # Errors
/// As for [`allocate`].
pub async fn reserve(claims: &Api<ResourceClaim>, name: &str, consumers: &[Value]) -> Result<ResourceClaim> {
    let claim = claims.get(name).await.with_context(|| format!("reading claim {name}"))?;
    let present = claim.status.as_ref().and_then(|status| status.reserved_for.clone()).unwrap_or_default();
    let mut all = match serde_json::to_value(present)? {
        Value::Array(all) => all,
        other => anyhow::bail!("reservedFor is {other}"),
    };
    all.extend_from_slice(consumers);
    set_status(claims, &claim, &json!({"reservedFor": all})).await
}

async fn set_status(
    claims: &Api<ResourceClaim>,
    claim: &ResourceClaim,
    status: &Value,
) -> Result<ResourceClaim> {
    let name = claim.name_any();
    let patch = json!({"metadata": {"resourceVersion": claim.meta().resource_version}, "status": status});
    claims
        .patch_status(&name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(|| format!("writing the status of claim {name}"))
}

//! Slices, claims, rules and requests as JSON.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::{ControlPlane, wait_until};
use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// Objects of all kinds that matter here.
pub(crate) struct World {
    pub(crate) client: Client,
}

impl World {
    pub(crate) async fn of(plane: &ControlPlane) -> Result<Self> {
        Ok(Self { client: plane.client().await? })
    }

    fn api(&self, version: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("resource.k8s.io", version, kind);
        let resource = ApiResource::from_gvk_with_plural(&kind, plural);
        if plural == "resourceclaims" {
            Api::namespaced_with(self.client.clone(), "default", &resource)
        } else {
            Api::all_with(self.client.clone(), &resource)
        }
    }

    fn requests(&self) -> Api<DynamicObject> {
        self.api("v1alpha3", "ResourcePoolStatusRequest", "resourcepoolstatusrequests")
    }

    async fn create(&self, api: &Api<DynamicObject>, object: &Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(object.clone())?;
        api.create(&PostParams::default(), &object)
            .await
            .with_context(|| format!("creating {}", json!(object)))?;
        Ok(())
    }

    /// A slice on `node-1`, unless `spec` says otherwise.
    pub(crate) async fn slice(&self, name: &str, spec: Value) -> Result<()> {
        let mut full = json!({"nodeName": "node-1"});
        merge(&mut full, spec);
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": full,
        });
        self.create(&self.api("v1", "ResourceSlice", "resourceslices"), &object).await
    }

    /// A claim in `default` that holds these devices: results without their request.
    pub(crate) async fn claim(&self, name: &str, results: &[Value]) -> Result<()> {
        let api = self.api("v1", "ResourceClaim", "resourceclaims");
        let request = json!({"name": "r", "exactly": {"deviceClassName": "any"}});
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name},
            "spec": {"devices": {"requests": [request]}},
        });
        self.create(&api, &object).await?;
        let results: Vec<Value> = results
            .iter()
            .map(|result| {
                let mut result = result.clone();
                merge(&mut result, json!({"request": "r"}));
                result
            })
            .collect();
        let status = json!({"status": {"allocation": {"devices": {"results": results}}}});
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await
            .with_context(|| format!("allocating claim {name}: {status}"))?;
        Ok(())
    }

    pub(crate) async fn rule(&self, name: &str, selector: Value, effect: &str) -> Result<()> {
        let object = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": name},
            "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": effect}},
        });
        self.create(&self.api("v1", "DeviceTaintRule", "devicetaintrules"), &object).await
    }

    pub(crate) async fn ask(&self, name: &str, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest",
            "metadata": {"name": name}, "spec": spec,
        });
        self.create(&self.requests(), &object).await
    }

    /// The status, if there is one.
    pub(crate) async fn status(&self, name: &str) -> Result<Option<Value>> {
        let object = self.requests().get(name).await?;
        Ok(object.data.get("status").cloned())
    }

    /// Waits for the status.
    pub(crate) async fn answer(&self, name: &str, limit: Duration) -> Result<Value> {
        wait_until(&format!("request {name} is answered"), limit, async || {
            self.status(name).await?.context("no status")
        })
        .await
    }

    pub(crate) async fn version(&self, name: &str) -> Result<String> {
        self.requests().get(name).await?.metadata.resource_version.context("no resourceVersion")
    }

    pub(crate) async fn delete_request(&self, name: &str) -> Result<()> {
        self.requests().delete(name, &kube::api::DeleteParams::default()).await?;
        Ok(())
    }

    /// Writes into the status; the API server's refusal.
    pub(crate) async fn refusal(&self, name: &str, status: Value) -> Result<String> {
        let patch = json!({"status": status});
        let answer = self.requests().patch_status(name, &PatchParams::default(), &Patch::Merge(&patch)).await;
        ensure!(answer.is_err(), "the status of {name} was changed");
        Ok(answer.err().map(|error| error.to_string()).unwrap_or_default())
    }
}

pub(crate) fn merge(target: &mut Value, more: Value) {
    if let (Some(target), Value::Object(more)) = (target.as_object_mut(), more) {
        target.extend(more);
    }
}

/// `spec.pool`.
pub(crate) fn pool(name: &str, generation: i64, count: i64) -> Value {
    json!({"name": name, "generation": generation, "resourceSliceCount": count})
}

/// Devices with names only.
pub(crate) fn devices(count: usize) -> Vec<Value> {
    (0..count).map(|number| json!({"name": format!("device-{number}")})).collect()
}

/// The pool of that name in a status.
pub(crate) fn named<'a>(status: &'a Value, name: &str) -> Result<&'a Value> {
    let pools = status.get("pools").and_then(Value::as_array).context("no pools")?;
    pools
        .iter()
        .find(|pool| pool.get("poolName").is_some_and(|found| found == name))
        .with_context(|| format!("no pool {name} in {status}"))
}

/// Total, allocated, available, unavailable.
pub(crate) fn counts(pool: &Value) -> [Option<i64>; 4] {
    ["totalDevices", "allocatedDevices", "availableDevices", "unavailableDevices"]
        .map(|field| pool.get(field).and_then(Value::as_i64))
}

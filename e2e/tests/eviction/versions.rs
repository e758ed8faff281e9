//! API servers that do not serve DeviceTaintRules in version v1, as before Kubernetes 1.37: everything that is done about
//! rules is done through the version that there is.

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::DRIVER;
use dra_e2e::story::Story;
use dra_e2e::{ControlPlane, Manager, Options};
use k8s_openapi::api::resource::v1::DeviceClass;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::cluster::{evicted, evictor, is_leaving, pod_with_device, says, wait_for_the_end};
use crate::expansion::{are_for, expression, publish, selecting};

/// DeviceTaintRules in one version.
struct Rules {
    version: String,
    api: Api<DynamicObject>,
}

impl Rules {
    fn of(story: &Story<'_>, version: &str) -> Self {
        let api_version = format!("resource.k8s.io/{version}");
        let resource = ApiResource {
            group: "resource.k8s.io".to_owned(),
            version: version.to_owned(),
            api_version: api_version.clone(),
            kind: "DeviceTaintRule".to_owned(),
            plural: "devicetaintrules".to_owned(),
        };
        Self { version: api_version, api: Api::all_with(story.client.clone(), &resource) }
    }

    async fn create(&self, mut rule: Value) -> Result<()> {
        rule.as_object_mut().context("no object")?.insert("apiVersion".to_owned(), json!(self.version));
        self.api.create(&PostParams::default(), &serde_json::from_value(rule)?).await?;
        Ok(())
    }

    /// The devices for which there are rules that this one owns.
    async fn devices(&self, parent: &str) -> Result<Vec<String>> {
        let uid = self.api.get_opt(parent).await?.and_then(|parent| parent.metadata.uid);
        let mut devices = Vec::new();
        for child in self.api.list(&ListParams::default()).await?.items {
            let Some(owner) = child.metadata.owner_references.iter().flatten().next() else { continue };
            if owner.name != parent {
                continue;
            }
            ensure!(uid.as_ref().is_none_or(|uid| owner.uid == *uid), "{owner:?} is not {uid:?}");
            ensure!(owner.api_version == self.version && owner.kind == "DeviceTaintRule", "{owner:?}");
            let selector = child.data.pointer("/spec/deviceSelector").context("no selector")?;
            ensure!(selector["driver"] == DRIVER && selector["pool"] == parent, "{selector}");
            devices.push(selector["device"].as_str().context("no device")?.to_owned());
        }
        devices.sort();
        Ok(devices)
    }

    async fn are_for(&self, parent: &str, wanted: &[&str]) -> Result<()> {
        are_for(wanted, async || self.devices(parent).await).await
    }

    /// Status, reason and message of a rule's condition.
    async fn condition(&self, rule: &str) -> Result<Option<[String; 3]>> {
        let found = self.api.get(rule).await?;
        let conditions = found.data.pointer("/status/conditions").and_then(Value::as_array);
        let ours = conditions.into_iter().flatten().find(|c| c["type"] == "EvictionInProgress");
        let text = |c: &Value, field: &str| c[field].as_str().unwrap_or_default().to_owned();
        Ok(ours.map(|c| ["status", "reason", "message"].map(|field| text(c, field))))
    }

    async fn condition_is(&self, rule: &str, status: &str, words: &[&str]) -> Result<String> {
        says(rule, status, words, async || self.condition(rule).await).await
    }
}

/// A rule by class and expression, from its dry run to its end.
async fn a_rule_is_expanded(version: &str, unserved: &[&'static str]) -> Result<()> {
    let plane = ControlPlane::start(Options { unserved: unserved.to_vec(), ..Options::all_gates() }).await?;
    let manager = Manager::start(&plane, evictor(&plane, &[]).await?).await?;
    let story = &Story::begin(&plane, Some(&manager)).await?;
    let (name, rules) = (story.namespace.as_str(), Rules::of(story, version));
    let served = plane.kubectl(&["get", "--raw", "/apis/resource.k8s.io/v1"])?;
    ensure!(!served.contains("devicetaintrules"), "v1 is served all the same: {served}");

    let class: DeviceClass = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]},
    }))?;
    Api::all(story.client.clone()).create(&PostParams::default(), &class).await?;
    publish(story, &["old", "new", "old"]).await?;
    for device in ["gpu-0", "gpu-1", "gpu-2"] {
        pod_with_device(story, device, name, json!([])).await?;
    }
    let cel = expression(story, "old");
    let rule = selecting(story, &[("select-device-class", name), ("select-cel", &cel)], "None")?;
    rules.create(serde_json::to_value(rule)?).await?;
    let dry_run =
        "2 published devices selected. 2 allocated devices selected. 2 pods would be evicted in 1 namespace";
    rules.condition_is(name, "False", &["NoEffect", dry_run]).await?;
    rules.are_for(name, &[]).await?;

    let effect = json!({"spec": {"taint": {"effect": "NoExecute"}}});
    rules.api.patch(name, &PatchParams::default(), &Patch::Merge(&effect)).await?;
    rules.are_for(name, &["gpu-0", "gpu-2"]).await?;
    for device in ["gpu-0", "gpu-2"] {
        evicted(story, device).await?;
    }
    wait_for_the_end(story, name)?;
    let sum = "2 pods evicted since starting the controller.";
    rules.condition_is(name, "False", &["Completed", sum]).await?;
    ensure!(!is_leaving(&story.pods().get("gpu-1").await?), "a Pod on another device is evicted");

    publish(story, &["new", "old", "old"]).await?;
    rules.are_for(name, &["gpu-1", "gpu-2"]).await?;
    evicted(story, "gpu-1").await?;
    rules.api.delete(name, &DeleteParams::default()).await?;
    rules.are_for(name, &[]).await?;
    story.manager_was_allowed_everything()
}

#[tokio::test]
async fn a_rule_is_expanded_where_rules_are_served_as_v1beta2_only() -> Result<()> {
    a_rule_is_expanded("v1beta2", &["v1/devicetaintrules", "v1alpha3/devicetaintrules"]).await
}

#[tokio::test]
async fn a_rule_is_expanded_where_rules_are_served_as_v1alpha3_only() -> Result<()> {
    a_rule_is_expanded("v1alpha3", &["v1/devicetaintrules", "v1beta2/devicetaintrules"]).await
}

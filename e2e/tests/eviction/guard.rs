//! Rules as the documentation shows them, with selectors that the API server does not have any more, and what it stores
//! instead: a selector for every device of the cluster.

use anyhow::{Result, bail, ensure};
use dra_e2e::story::Story;
use serde_json::{Value, json};

use crate::cluster::{condition_is, is_leaving, pod_with_device, rules, tell};

/// Creates the rule without strict validation, as many clients do; the API server drops what it does not know.
async fn create_leniently(story: &Story<'_>, rule: &Value, validation: &str) -> Result<(), kube::Error> {
    let path = format!("/apis/resource.k8s.io/v1/devicetaintrules?fieldValidation={validation}");
    let request = http::Request::post(path)
        .header("Content-Type", "application/json")
        .body(rule.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    story.client.request_text(request).await.map(|_| ())
}

async fn documented_rule_evicts_nobody(story: &Story<'_>, selector: Value) -> Result<()> {
    let name = story.namespace.as_str();
    pod_with_device(story, "bystander", name, json!([])).await?;
    let rule = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": name, "annotations": {"kubectl.kubernetes.io/last-applied-configuration":
            json!({"spec": {"deviceSelector": selector}}).to_string()}},
        "spec": {"deviceSelector": selector, "taint": {"key": "example.com/broken", "effect": "NoExecute"}},
    });
    let Err(kube::Error::Api(refused)) = create_leniently(story, &rule, "Strict").await else {
        bail!("a strict client is not refused");
    };
    ensure!(refused.message.contains("unknown field"), "{}", refused.message);

    create_leniently(story, &rule, "Ignore").await?;
    let dropped = selector.as_object().and_then(|fields| fields.keys().next().cloned()).unwrap_or_default();
    let said = condition_is(story, name, "Unknown", &["NotConfirmed", &dropped]).await?;
    ensure!(said.contains("confirm-all-devices"), "{said}");
    ensure!(!is_leaving(&story.pods().get("bystander").await?), "the bystander is evicted");
    let described = story.plane.kubectl(&["describe", "devicetaintrule", name])?;
    ensure!(described.contains("EvictionHeld"), "{described}");
    rules(story).delete(name, &kube::api::DeleteParams::default()).await?;
    Ok(())
}

#[tokio::test]
async fn a_rule_with_a_class_selector_as_documented_never_evicts_pods_with_other_devices() -> Result<()> {
    tell(async |story| documented_rule_evicts_nobody(story, json!({"deviceClassName": "broken-gpus"})).await)
        .await
}

#[tokio::test]
async fn a_rule_with_a_cel_selector_as_documented_never_evicts_pods_with_other_devices() -> Result<()> {
    tell(async |story| {
        let selectors = json!([{"cel": {"expression": "device.driver == 'dra.example.com'"}}]);
        documented_rule_evicts_nobody(story, json!({"selectors": selectors})).await
    })
    .await
}

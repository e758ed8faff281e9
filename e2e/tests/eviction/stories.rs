//! One rule or slice, a Pod or two.

use anyhow::{Context as _, Result, ensure};
use dra_e2e::story::SOON;
use dra_e2e::{fixtures, wait_until};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::cluster::{
    condition, condition_is, create_rule, evicted, is_leaving, pod_with_device, rule, rules, tell,
    wait_for_the_end,
};

#[tokio::test]
async fn a_rule_is_tried_out_then_evicts_and_kubectl_wait_tells_the_end() -> Result<()> {
    tell(async |story| {
        let name = story.namespace.as_str();
        pod_with_device(story, "uses", name, json!([])).await?;
        pod_with_device(story, "tolerates", name, json!([{"operator": "Exists"}])).await?;
        pod_with_device(story, "elsewhere", "another-pool", json!([])).await?;
        create_rule(story, &rule(name, json!({"pool": name}), "None")?).await?;
        let wanted = "2 allocated devices selected. 1 pod would be evicted in 1 namespace if";
        condition_is(story, name, "False", &["NoEffect", wanted]).await?;
        let described = story.plane.kubectl(&["describe", "devicetaintrule", name])?;
        ensure!(described.contains("1 pod would be evicted"), "{described}");

        let effect = json!({"spec": {"taint": {"effect": "NoExecute"}}});
        rules(story).patch(name, &PatchParams::default(), &Patch::Merge(&effect)).await?;
        evicted(story, "uses").await?;
        story.event_about("uses", &["Marking for deletion", name, "ResourceClaim \"uses\""]).await?;
        wait_for_the_end(story, name)?;
        condition_is(story, name, "False", &["Completed", "1 pod evicted since starting the controller."])
            .await?;
        for stays in ["tolerates", "elsewhere"] {
            ensure!(!is_leaving(&story.pods().get(stays).await?), "{stays} is evicted");
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn taints_of_a_slice_evict_too() -> Result<()> {
    tell(async |story| {
        let pool = story.namespace.as_str();
        pod_with_device(story, "gpu-0", pool, json!([])).await?;
        let slices: Api<ResourceSlice> = Api::all(story.client.clone());
        let mut slice = fixtures::resource_slice(pool, 2)?;
        slices.create(&PostParams::default(), &slice).await?;
        slice = slices.get(slice.metadata.name.as_deref().context("a name")?).await?;
        for device in slice.spec.devices.iter_mut().flatten() {
            device.taints = Some(serde_json::from_value(json!([{"key": "broken", "effect": "NoExecute"}]))?);
        }
        slice.spec.pool.generation += 1;
        let name = slice.metadata.name.clone().context("a name")?;
        slices.replace(&name, &PostParams::default(), &slice).await?;
        evicted(story, "gpu-0").await?;
        story.event_about("gpu-0", &["Marking for deletion", "ResourceSlice", &name]).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_paused_rule_waits_and_a_foreign_condition_stays() -> Result<()> {
    tell(async |story| {
        let name = story.namespace.as_str();
        pod_with_device(story, "uses", name, json!([])).await?;
        let mut paused = rule(name, json!({"pool": name}), "NoExecute")?;
        let annotation = "dra-controller-manager.dev/pause-eviction".to_owned();
        paused.metadata.annotations = Some([(annotation.clone(), "true".to_owned())].into());
        create_rule(story, &paused).await?;
        let foreign = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": name},
            "status": {"conditions": [{"type": "Testing", "status": "True", "reason": "Test", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
        let apply = PatchParams::apply("somebody-else");
        rules(story).patch_status(name, &apply, &Patch::Apply(&foreign)).await?;
        condition_is(story, name, "True", &["1 pod needs to be evicted", "paused"]).await?;
        ensure!(!is_leaving(&story.pods().get("uses").await?), "evicted although paused");

        let resume = json!({"metadata": {"annotations": {annotation: null}}});
        rules(story).patch(name, &PatchParams::default(), &Patch::Merge(&resume)).await?;
        evicted(story, "uses").await?;
        condition_is(story, name, "False", &["Completed"]).await?;
        let types: Vec<String> = rules(story)
            .get(name)
            .await?
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default()
            .into_iter()
            .map(|c| c.type_)
            .collect();
        ensure!(types.iter().any(|t| t == "Testing"), "{types:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_rule_for_nobody_says_so_only_after_some_seconds() -> Result<()> {
    tell(async |story| {
        let name = story.namespace.as_str();
        create_rule(story, &rule(name, json!({"pool": name}), "NoExecute")?).await?;
        dra_e2e::wait::holds_for("no condition", std::time::Duration::from_secs(5), async || {
            ensure!(condition(story, name).await?.is_none(), "there is one");
            Ok(())
        })
        .await?;
        condition_is(story, name, "False", &["NotStarted"]).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn metrics_count_what_was_done() -> Result<()> {
    tell(async |story| {
        let name = story.namespace.as_str();
        pod_with_device(story, "uses", name, json!([])).await?;
        create_rule(story, &rule(name, json!({"pool": name}), "NoExecute")?).await?;
        evicted(story, "uses").await?;
        wait_until("the metrics tell", SOON, async || {
            let metrics = story.manager()?.metrics().await?;
            let deletions = metrics.sum("device_taint_eviction_controller_pod_deletions_total", &[]);
            ensure!(deletions >= 1.0, "{deletions} deletions");
            for name in [
                "device_taint_eviction_controller_pod_deletion_duration_seconds_count",
                "workqueue_depth",
                "dra_controller_manager_taint_evictions",
                "dra_controller_manager_taint_eviction_detection_to_delete_seconds_count",
                "dra_controller_manager_taint_rule_status_lag_seconds_count",
            ] {
                ensure!(metrics.has(name), "no {name}");
            }
            Ok(())
        })
        .await
    })
    .await
}

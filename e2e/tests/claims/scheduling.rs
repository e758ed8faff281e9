//! The whole way with kube-scheduler: from the template to the device and back.

use std::time::Duration;

use anyhow::{Result, ensure};
use dra_e2e::fixtures::{self, from_claim, from_template, phase, scheduled_on};
use dra_e2e::story::{SOON, Story, tell};
use dra_e2e::{FakeKubelet, kubelet, wait_until};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceSlice};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

/// A node of the story's own, named as its namespace, with `devices` devices.
pub(crate) async fn node_with_devices(story: &Story<'_>, devices: usize) -> Result<()> {
    let nodes: Api<Node> = Api::all(story.client.clone());
    nodes.create(&PostParams::default(), &fixtures::node(&story.namespace)?).await?;
    let slices: Api<ResourceSlice> = Api::all(story.client.clone());
    slices.create(&PostParams::default(), &fixtures::resource_slice(&story.namespace, devices)?).await?;
    Ok(())
}

async fn running(story: &Story<'_>) -> Result<Vec<String>> {
    let pods = story.pods().list(&ListParams::default()).await?;
    let runs = |pod: &&Pod| phase(pod) == Some("Running");
    Ok(pods.iter().filter(runs).map(ResourceExt::name_any).collect())
}

#[tokio::test]
async fn devices_of_finished_pods_go_to_the_pods_that_wait_for_them() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        node_with_devices(story, 2).await?;
        story.create(fixtures::template("tmpl")?).await?;
        for index in 0..4 {
            let pod = fixtures::pod(&format!("job-{index}"), &[from_template("gpu", "tmpl")])?;
            story.create(scheduled_on(pod, &story.namespace)).await?;
        }
        let mut finished = Vec::new();
        while finished.len() < 4 {
            let now = wait_until("two Pods run", Duration::from_mins(1), async || {
                let running = running(story).await?;
                ensure!(running.len() == 2, "running: {running:?}, finished: {finished:?}");
                Ok(running)
            })
            .await?;
            for pod in &now {
                kubelet::finish(&story.pods(), pod, "Succeeded").await?;
            }
            finished.extend(now);
        }
        wait_until("no claim is left", SOON, async || {
            let claims = story.all_claims().await?;
            ensure!(claims.is_empty(), "{claims:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn pods_that_share_a_claim_run_together() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        node_with_devices(story, 1).await?;
        story.create(fixtures::claim("shared")?).await?;
        for index in 0..3 {
            let pod = fixtures::pod(&format!("web-{index}"), &[from_claim("gpu", "shared")])?;
            story.create(scheduled_on(pod, &story.namespace)).await?;
        }
        wait_until("all three Pods run", Duration::from_mins(1), async || {
            let running = running(story).await?;
            ensure!(running.len() == 3, "running: {running:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn pod_is_scheduled_once_its_device_class_exists() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        node_with_devices(story, 1).await?;
        let class = story.namespace.clone();
        story.create(fixtures::template_of_class("tmpl", &class)?).await?;
        let pod = fixtures::pod("web", &[from_template("gpu", "tmpl")])?;
        story.create(scheduled_on(pod, &story.namespace)).await?;
        story.generated_claim("web", "gpu").await?;
        let classes: Api<DeviceClass> = Api::all(story.client.clone());
        classes.create(&PostParams::default(), &fixtures::device_class(&class)?).await?;
        wait_until("the Pod runs", Duration::from_mins(1), async || {
            ensure!(running(story).await? == ["web"], "not yet");
            Ok(())
        })
        .await
    })
    .await
}

/// The claim that the scheduler makes for an extended resource.
async fn extended_resource_claim_is_gone_when_its_pod_ends_as(phase: &str) -> Result<()> {
    tell(async |story| {
        node_with_devices(story, 1).await?;
        let resource = format!("example.com/{}", story.namespace);
        let class: DeviceClass = serde_json::from_value(json!({
            "metadata": {"name": story.namespace},
            "spec": {
                "selectors": [{"cel": {"expression": format!("device.driver == '{}'", fixtures::DRIVER)}}],
                "extendedResourceName": resource,
            },
        }))?;
        Api::all(story.client.clone()).create(&PostParams::default(), &class).await?;
        let mut pod = scheduled_on(fixtures::pod("web", &[])?, &story.namespace);
        for container in pod.spec.iter_mut().flat_map(|spec| spec.containers.iter_mut()) {
            container.resources = Some(serde_json::from_value(json!({
                "requests": {&resource: "1"}, "limits": {&resource: "1"},
            }))?);
        }
        story.create(pod).await?;
        let claim = wait_until("the scheduler has made the claim", Duration::from_mins(1), async || {
            let pod = story.pods().get("web").await?;
            let status = pod.status.and_then(|status| status.extended_resource_claim_status);
            let name = status.map(|status| status.resource_claim_name).unwrap_or_default();
            ensure!(!name.is_empty(), "not yet");
            Ok(name)
        })
        .await?;
        story
            .pod_until("web", "is bound", |pod| pod.spec.as_ref().is_some_and(|s| s.node_name.is_some()))
            .await?;
        let running = json!({"status": {"phase": "Running"}});
        story.pods().patch_status("web", &PatchParams::default(), &Patch::Merge(&running)).await?;
        ensure!(story.claims().get_opt(&claim).await?.is_some(), "the claim went while its Pod ran");
        kubelet::finish(&story.pods(), "web", phase).await?;
        story.claim_gone(&claim).await?;
        ensure!(story.pods().get_opt("web").await?.is_some(), "the Pod is gone");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn extended_resource_claim_is_gone_when_its_pod_completes() -> Result<()> {
    extended_resource_claim_is_gone_when_its_pod_ends_as("Succeeded").await
}

#[tokio::test]
async fn extended_resource_claim_is_gone_when_its_pod_fails() -> Result<()> {
    extended_resource_claim_is_gone_when_its_pod_ends_as("Failed").await
}

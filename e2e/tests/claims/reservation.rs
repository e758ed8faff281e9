//! Pods that came to their node without the scheduler, and how many may share a claim.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{self, consumers, from_claim, from_template, is_allocated, on_node, phase};
use dra_e2e::story::{Story, tell};
use dra_e2e::{FakeKubelet, holds_for, kubelet, scheduler};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

fn uid(pod: &Pod) -> Result<String> {
    pod.uid().context("a Pod without UID")
}

#[tokio::test]
async fn pre_scheduled_pod_with_an_unallocated_claim_stays_pending() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        story.create(fixtures::template("tmpl")?).await?;
        story.create(on_node(fixtures::pod("web", &[from_template("gpu", "tmpl")])?, "n")).await?;
        let name = story.generated_claim("web", "gpu").await?.name_any();
        holds_for(
            "the Pod is pending, its claim neither allocated nor reserved",
            Duration::from_secs(3),
            async || {
                let claim = story.claims().get(&name).await?;
                ensure!(!is_allocated(&claim) && consumers(&claim).is_empty(), "{:?}", claim.status);
                let pod = story.pods().get("web").await?;
                ensure!(phase(&pod) == Some("Pending"), "{:?}", pod.status);
                Ok(())
            },
        )
        .await
    })
    .await
}

#[tokio::test]
async fn pre_scheduled_pod_is_reserved_and_runs_once_another_pod_caused_the_allocation() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        story.create(fixtures::claim("shared")?).await?;
        let fixed =
            story.create(on_node(fixtures::pod("fixed", &[from_claim("gpu", "shared")])?, "n")).await?;
        let other = story.create(fixtures::pod("other", &[from_claim("gpu", "shared")])?).await?;
        scheduler::allocate(&story.claims(), "shared", "n", "gpu-0", &[scheduler::pod_consumer(&other)])
            .await?;
        let expected = [uid(&other)?, uid(&fixed)?];
        story
            .claim_until("shared", "is reserved for both Pods", |claim| consumers(claim) == expected)
            .await?;
        story.pod_runs("fixed").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pre_scheduled_pod_with_two_claims_is_reserved_for_each_as_it_is_allocated() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("first")?).await?;
        story.create(fixtures::template("tmpl")?).await?;
        let entries = [from_claim("a", "first"), from_template("b", "tmpl")];
        let pod = story.create(on_node(fixtures::pod("web", &entries)?, "n")).await?;
        let second = story.generated_claim("web", "b").await?.name_any();
        let other = story.create(fixtures::pod("other", &[from_claim("b", &second)])?).await?;
        let uid = uid(&pod)?;

        // The one that comes second in the Pod first.
        scheduler::allocate(&story.claims(), &second, "n", "gpu-1", &[scheduler::pod_consumer(&other)])
            .await?;
        story
            .claim_until(&second, "is reserved for the Pod", |claim| consumers(claim).contains(&uid))
            .await?;
        scheduler::allocate(&story.claims(), "first", "n", "gpu-0", &[]).await?;
        story
            .claim_until("first", "is reserved for the Pod", |claim| consumers(claim).contains(&uid))
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pre_scheduled_pod_whose_node_cannot_reach_the_devices_is_told() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("far")?).await?;
        let named = |node: &str| json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let far = json!({"status": {"allocation": {
            "devices": {"results": [{"request": "gpu", "driver": fixtures::DRIVER, "pool": "p", "device": "d"}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [named("there")]}]},
        }}});
        story.claims().patch_status("far", &PatchParams::default(), &Patch::Merge(&far)).await?;
        story.create(on_node(fixtures::pod("web", &[from_claim("gpu", "far")])?, "here")).await?;
        story.event_about("web", &["Warning", "here"]).await?;
        let claim = story.claims().get("far").await?;
        ensure!(consumers(&claim).is_empty(), "{:?}", claim.status);

        let near = story.create(on_node(fixtures::pod("near", &[from_claim("gpu", "far")])?, "there")).await?;
        let expected = [uid(&near)?];
        story.claim_until("far", "is reserved for the Pod beside it", |claim| consumers(claim) == expected).await?;
        Ok(())
    })
    .await
}

async fn strangers(story: &Story<'_>, claim: &str, count: usize) -> Result<()> {
    let strangers: Vec<Value> = (0..count)
        .map(|index| {
            let name = format!("machine-{index}");
            json!({"apiGroup": "vm.example.com", "resource": "machines", "name": name, "uid": name})
        })
        .collect();
    let status = json!({"status": {"reservedFor": strangers}});
    story.claims().patch_status(claim, &PatchParams::default(), &Patch::Merge(&status)).await?;
    Ok(())
}

#[tokio::test]
async fn pod_beyond_256_consumers_is_told_and_gets_the_next_free_place() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("shared")?).await?;
        scheduler::allocate(&story.claims(), "shared", "n", "gpu-0", &[]).await?;
        strangers(story, "shared", 256).await?;
        let pod = story.create(on_node(fixtures::pod("late", &[from_claim("gpu", "shared")])?, "n")).await?;
        story.event_about("late", &["Warning", "256"]).await?;

        // No request is wasted on a claim that is full.
        let full = story.claims().get("shared").await?.resource_version();
        holds_for("the claim is left alone", Duration::from_secs(1), async || {
            ensure!(story.claims().get("shared").await?.resource_version() == full, "it was written to");
            Ok(())
        })
        .await?;
        strangers(story, "shared", 255).await?;
        let uid = uid(&pod)?;
        story
            .claim_until("shared", "is reserved for the Pod", |claim| consumers(claim).contains(&uid))
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn finished_pod_is_never_reserved_again() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("shared")?).await?;
        let entry = [from_claim("gpu", "shared")];
        let done = story.create(on_node(fixtures::pod("done", &entry)?, "n")).await?;
        let stays = story.create(on_node(fixtures::pod("stays", &entry)?, "n")).await?;
        scheduler::allocate(&story.claims(), "shared", "n", "gpu-0", &[scheduler::pod_consumer(&stays)])
            .await?;
        let both = [uid(&stays)?, uid(&done)?];
        story.claim_until("shared", "is reserved for both Pods", |claim| consumers(claim) == both).await?;

        kubelet::finish(&story.pods(), "done", "Succeeded").await?;
        let one = [uid(&stays)?];
        let released =
            story.claim_until("shared", "is released by the finished Pod", |claim| consumers(claim) == one);
        let released = released.await?.resource_version();
        holds_for("nobody writes to the claim", Duration::from_secs(3), async || {
            let claim = story.claims().get("shared").await?;
            ensure!(claim.resource_version() == released, "it was written to: {:?}", claim.status);
            Ok(())
        })
        .await
    })
    .await
}

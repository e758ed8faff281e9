//! Consumers that are gone, deallocation, the finalizer, and the end of claims.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{self, consumers, from_claim, from_template, is_allocated, on_node};
use dra_e2e::scheduler::{FINALIZER, allocate, pod_consumer};
use dra_e2e::story::{Story, tell};
use dra_e2e::{FakeKubelet, holds_for, kubelet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

fn is_free(claim: &ResourceClaim) -> bool {
    consumers(claim).is_empty() && !is_allocated(claim) && !has_finalizer(claim)
}

fn has_finalizer(claim: &ResourceClaim) -> bool {
    claim.finalizers().iter().any(|finalizer| finalizer == FINALIZER)
}

/// A Pod on a node that uses the claim `shared`, which is allocated and reserved for it.
async fn pod_with_its_claim(story: &Story<'_>) -> Result<Pod> {
    story.create(fixtures::claim("shared")?).await?;
    let pod = story.create(on_node(fixtures::pod("web", &[from_claim("gpu", "shared")])?, "n")).await?;
    allocate(&story.claims(), "shared", "n", "gpu-0", &[pod_consumer(&pod)]).await?;
    Ok(pod)
}

/// A Pod on a node whose generated claim is allocated and reserved for it; the claim's name.
async fn pod_with_generated_claim(story: &Story<'_>) -> Result<String> {
    story.create(fixtures::template("tmpl")?).await?;
    let pod = story.create(on_node(fixtures::pod("web", &[from_template("gpu", "tmpl")])?, "n")).await?;
    let claim = story.generated_claim("web", "gpu").await?.name_any();
    allocate(&story.claims(), &claim, "n", "gpu-0", &[pod_consumer(&pod)]).await?;
    Ok(claim)
}

#[tokio::test]
async fn finished_pod_releases_its_claim_which_is_then_deallocated() -> Result<()> {
    tell(async |story| {
        pod_with_its_claim(story).await?;
        kubelet::finish(&story.pods(), "web", "Failed").await?;
        let claim = story.claim_until("shared", "is free", is_free).await?;
        ensure!(
            claim.metadata.deletion_timestamp.is_none(),
            "a user's claim is deleted: {:?}",
            claim.metadata
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn only_the_finished_pod_of_two_is_released() -> Result<()> {
    tell(async |story| {
        let first = pod_with_its_claim(story).await?;
        let second =
            story.create(on_node(fixtures::pod("second", &[from_claim("gpu", "shared")])?, "n")).await?;
        let both = [first.uid().context("no UID")?, second.uid().context("no UID")?];
        story.claim_until("shared", "is reserved for both", |claim| consumers(claim) == both).await?;
        kubelet::finish(&story.pods(), "web", "Succeeded").await?;
        let claim = story
            .claim_until("shared", "is reserved for the second", |claim| consumers(claim) == both[1..])
            .await?;
        ensure!(is_allocated(&claim) && has_finalizer(&claim), "{claim:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn generated_claim_is_deleted_when_its_pod_is_done_and_never_made_again() -> Result<()> {
    tell(async |story| {
        let claim = pod_with_generated_claim(story).await?;
        kubelet::finish(&story.pods(), "web", "Succeeded").await?;
        story.claim_gone(&claim).await?;
        let recorded = story.pods().get("web").await?.resource_version();
        // An event on the finished Pod and one on its template.
        let touch = json!({"metadata": {"labels": {"touched": "yes"}}});
        story.pods().patch("web", &PatchParams::default(), &Patch::Merge(&touch)).await?;
        story.templates().patch("tmpl", &PatchParams::default(), &Patch::Merge(&touch)).await?;
        let touched = story.pods().get("web").await?.resource_version();
        ensure!(recorded != touched, "the Pod was not touched");
        holds_for("no claim comes back", Duration::from_secs(3), async || {
            let claims = story.all_claims().await?;
            ensure!(claims.is_empty(), "{claims:?}");
            ensure!(story.pods().get("web").await?.resource_version() == touched, "the Pod was written to");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn generated_claim_survives_a_restarting_container() -> Result<()> {
    tell(async |story| {
        let claim = pod_with_generated_claim(story).await?;
        let before = story.claims().get(&claim).await?;
        for restarts in 1..4 {
            let status = json!({"status": {"phase": "Running", "containerStatuses": [{
                "name": "main", "image": "i", "imageID": "i", "ready": false, "restartCount": restarts,
                "lastState": {"terminated": {"exitCode": 1}},
            }]}});
            story.pods().patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await?;
        }
        holds_for("the claim is left alone", Duration::from_secs(2), async || {
            ensure!(story.claims().get(&claim).await? == before, "it was written to");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn generated_claim_goes_with_its_deleted_pod() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        let claim = pod_with_generated_claim(story).await?;
        story.pods().delete("web", &DeleteParams::default()).await?;
        story.claim_gone(&claim).await
    })
    .await
}

#[tokio::test]
async fn unused_generated_claim_goes_with_a_pod_that_never_ran() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::template("tmpl")?).await?;
        story.create(fixtures::pod("web", &[from_template("gpu", "tmpl")])?).await?;
        let claim = story.generated_claim("web", "gpu").await?.name_any();
        story.pods().delete("web", &DeleteParams::default()).await?;
        story.claim_gone(&claim).await
    })
    .await
}

#[tokio::test]
async fn terminating_pod_keeps_its_claim_until_it_is_force_deleted() -> Result<()> {
    tell(async |story| {
        let pod = pod_with_its_claim(story).await?;
        let uid = [pod.uid().context("no UID")?];
        story.pods().delete("web", &DeleteParams::default()).await?;
        story.claims().delete("shared", &DeleteParams::default()).await?;
        // No kubelet: the Pod terminates for as long as the story wants.
        holds_for("the claim is kept", Duration::from_secs(2), async || {
            let claim = story.claims().get("shared").await?;
            ensure!(is_allocated(&claim) && consumers(&claim) == uid && has_finalizer(&claim), "{claim:?}");
            Ok(())
        })
        .await?;
        kubelet::force_delete(&story.pods(), "web").await?;
        story.claim_gone("shared").await
    })
    .await
}

#[tokio::test]
async fn consumer_of_an_unknown_kind_is_kept_and_does_not_block_the_pods_beside_it() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("shared")?).await?;
        let entry = [from_claim("gpu", "shared")];
        let pod = story.create(on_node(fixtures::pod("web", &entry)?, "n")).await?;
        let machine =
            json!({"apiGroup": "vm.example.com", "resource": "machines", "name": "vm", "uid": "vm-1"});
        allocate(&story.claims(), "shared", "n", "gpu-0", &[machine, pod_consumer(&pod)]).await?;
        kubelet::finish(&story.pods(), "web", "Succeeded").await?;
        let kept = story
            .claim_until("shared", "is released by the Pod", |claim| consumers(claim) == ["vm-1"])
            .await?;
        ensure!(is_allocated(&kept) && has_finalizer(&kept), "{kept:?}");

        let next = story.create(on_node(fixtures::pod("next", &entry)?, "n")).await?;
        let both = ["vm-1".to_owned(), next.uid().context("no UID")?];
        story.claim_until("shared", "is reserved for the next Pod", |claim| consumers(claim) == both).await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn allocation_without_the_finalizer_is_kept_when_its_last_pod_is_done() -> Result<()> {
    tell(async |story| {
        pod_with_its_claim(story).await?;
        let none = json!({"metadata": {"finalizers": null}});
        story.claims().patch("shared", &PatchParams::default(), &Patch::Merge(&none)).await?;
        kubelet::finish(&story.pods(), "web", "Succeeded").await?;
        let claim = story.claim_until("shared", "is released", |claim| consumers(claim).is_empty()).await?;
        ensure!(is_allocated(&claim), "{claim:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn finalizers_of_others_outlive_the_deallocation() -> Result<()> {
    tell(async |story| {
        pod_with_its_claim(story).await?;
        let two = json!({"metadata": {"finalizers": ["example.com/first", FINALIZER, "example.com/last"]}});
        story.claims().patch("shared", &PatchParams::default(), &Patch::Merge(&two)).await?;
        kubelet::finish(&story.pods(), "web", "Succeeded").await?;
        let claim = story.claim_until("shared", "is free", is_free).await?;
        ensure!(claim.finalizers() == ["example.com/first", "example.com/last"], "{:?}", claim.finalizers());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn allocated_claim_that_was_never_reserved_stays_allocated_until_it_is_deleted() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("kept")?).await?;
        let kept = allocate(&story.claims(), "kept", "n", "gpu-0", &[]).await?;
        holds_for("the claim is left alone", Duration::from_secs(2), async || {
            ensure!(story.claims().get("kept").await? == kept, "it was written to");
            Ok(())
        })
        .await?;
        story.claims().delete("kept", &DeleteParams::default()).await?;
        story.claim_gone("kept").await
    })
    .await
}

#[tokio::test]
async fn reservation_for_a_pod_that_was_replaced_under_its_name_is_dropped() -> Result<()> {
    tell(async |story| {
        let first = pod_with_its_claim(story).await?;
        kubelet::force_delete(&story.pods(), "web").await?;
        let second =
            story.create(on_node(fixtures::pod("web", &[from_claim("gpu", "shared")])?, "n")).await?;
        ensure!(first.uid() != second.uid());
        let gone = first.uid().context("no UID")?;
        story
            .claim_until("shared", "forgets the first Pod", |claim| !consumers(claim).contains(&gone))
            .await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn claim_reserved_for_a_pod_without_a_node_is_no_garbage() -> Result<()> {
    tell(async |story| {
        // Between reservation and binding the scheduler may wait for minutes, for binding conditions.
        story.create(fixtures::claim("shared")?).await?;
        let pod = story.create(fixtures::pod("web", &[from_claim("gpu", "shared")])?).await?;
        let reserved = allocate(&story.claims(), "shared", "n", "gpu-0", &[pod_consumer(&pod)]).await?;
        holds_for("the claim is left alone", Duration::from_secs(2), async || {
            ensure!(story.claims().get("shared").await? == reserved, "it was written to");
            Ok(())
        })
        .await?;
        // Terminating without a node, held by a finalizer: it will never run.
        let hold = json!({"metadata": {"finalizers": ["example.com/hold"]}});
        story.pods().patch("web", &PatchParams::default(), &Patch::Merge(&hold)).await?;
        story.pods().delete("web", &DeleteParams::default()).await?;
        story.claim_until("shared", "is free", is_free).await?;
        ensure!(story.pods().get_opt("web").await?.is_some(), "the Pod is gone");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn status_of_devices_goes_with_the_allocation() -> Result<()> {
    tell(async |story| {
        pod_with_its_claim(story).await?;
        let reported = json!({"status": {"devices": [{
            "driver": fixtures::DRIVER, "pool": "n", "device": "gpu-0",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        }]}});
        story.claims().patch_status("shared", &PatchParams::default(), &Patch::Merge(&reported)).await?;
        kubelet::finish(&story.pods(), "web", "Succeeded").await?;
        let claim = story.claim_until("shared", "is free", is_free).await?;
        let devices = claim.status.and_then(|status| status.devices).unwrap_or_default();
        ensure!(devices.is_empty(), "{devices:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn generated_claim_goes_with_its_own_pod_though_another_pod_names_it() -> Result<()> {
    tell(async |story| {
        let claim = pod_with_generated_claim(story).await?;
        let borrower = fixtures::pod("borrower", &[from_claim("gpu", &claim)])?;
        story.create(borrower).await?;
        kubelet::finish(&story.pods(), "web", "Succeeded").await?;
        story.claim_gone(&claim).await
    })
    .await
}

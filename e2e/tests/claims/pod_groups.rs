//! Claims of `PodGroups`.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{
    self, consumers, from_claim, from_template, in_group, is_allocated, is_owned_by, on_node, recorded_claim,
    recorded_group_claim, scheduled_on,
};
use dra_e2e::scheduler::{allocate, group_consumer};
use dra_e2e::story::{SOON, Story, tell};
use dra_e2e::{FakeKubelet, holds_for, kubelet, wait_until};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::scheduling::node_with_devices;

/// Waits until the `PodGroup`'s status names a claim for `entry` and returns that claim.
async fn group_claim(story: &Story<'_>, group: &str, entry: &str) -> Result<ResourceClaim> {
    wait_until(&format!("PodGroup {group} has its claim {entry}"), SOON, async || {
        let group = story.groups().get(group).await?;
        let name =
            recorded_group_claim(&group, entry).with_context(|| format!("status: {:?}", group.status))?;
        Ok(story.claims().get(&name).await?)
    })
    .await
}

#[tokio::test]
async fn members_share_the_claim_of_their_group_and_have_others_of_their_own() -> Result<()> {
    tell(async |story| {
        for name in ["shared", "own"] {
            story.create(fixtures::template(name)?).await?;
        }
        let group = story.create(fixtures::pod_group("team", &[from_template("net", "shared")])?).await?;
        let entries = [from_template("net", "shared"), from_template("gpu", "own")];
        for pod in ["a", "b"] {
            story.create(in_group(fixtures::pod(pod, &entries)?, "team")).await?;
        }
        let shared = group_claim(story, "team", "net").await?;
        ensure!(shared.name_any().starts_with("team-net-"), "name: {}", shared.name_any());
        let owner = shared.owner_references().first().context("no owner")?;
        ensure!(
            (owner.api_version.as_str(), owner.kind.as_str()) == ("scheduling.k8s.io/v1beta1", "PodGroup")
                && is_owned_by(&shared, &group.uid().context("no UID")?),
            "owner: {owner:?}"
        );
        for pod in ["a", "b"] {
            ensure!(story.generated_claim(pod, "net").await?.name_any() == shared.name_any());
            let uid = story.pods().get(pod).await?.uid().context("no UID")?;
            ensure!(is_owned_by(&story.generated_claim(pod, "gpu").await?, &uid));
        }
        ensure!(story.all_claims().await?.len() == 3);

        let metrics = story.manager()?.metrics().await?;
        let of_groups =
            [("status", "success"), ("owner_api_group", "scheduling.k8s.io"), ("owner_api_kind", "PodGroup")];
        ensure!(metrics.sum("dynamic_resource_allocation_resourceclaim_creates_total", &of_groups) >= 1.0);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn claim_of_a_group_is_kept_when_its_pods_are_gone_and_released_when_the_group_goes() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        story.create(fixtures::template("tmpl")?).await?;
        let group = story.create(fixtures::pod_group("team", &[from_template("net", "tmpl")])?).await?;
        let claim = group_claim(story, "team", "net").await?.name_any();
        for pod in ["a", "b"] {
            let pod = in_group(fixtures::pod(pod, &[from_template("net", "tmpl")])?, "team");
            story.create(on_node(pod, "n")).await?;
        }
        allocate(&story.claims(), &claim, "n", "gpu-0", &[group_consumer(&group)]).await?;
        for pod in ["a", "b"] {
            story.pod_runs(pod).await?;
        }
        kubelet::finish(&story.pods(), "a", "Succeeded").await?;
        story.pods().delete("b", &DeleteParams::default()).await?;
        wait_until("Pod b is gone", SOON, async || {
            ensure!(story.pods().get_opt("b").await?.is_none(), "it exists");
            Ok(())
        })
        .await?;
        let uid = [group.uid().context("no UID")?];
        holds_for("the claim is kept for the PodGroup", Duration::from_secs(2), async || {
            let claim = story.claims().get(&claim).await?;
            ensure!(is_allocated(&claim) && consumers(&claim) == uid, "{:?}", claim.status);
            Ok(())
        })
        .await?;
        story.groups().delete("team", &DeleteParams::default()).await?;
        story.claim_gone(&claim).await
    })
    .await
}

#[tokio::test]
async fn users_claim_reserved_for_a_group_is_released_when_the_group_goes() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("net")?).await?;
        let group = story.create(fixtures::pod_group("team", &[from_claim("net", "net")])?).await?;
        allocate(&story.claims(), "net", "n", "gpu-0", &[group_consumer(&group)]).await?;
        story.groups().delete("team", &DeleteParams::default()).await?;
        let claim = story.claim_until("net", "is released", |claim| consumers(claim).is_empty()).await?;
        ensure!(!is_allocated(&claim), "{claim:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pre_scheduled_member_reserves_the_claim_for_its_group() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("net")?).await?;
        let entry = [from_claim("net", "net")];
        let group = story.create(fixtures::pod_group("team", &entry)?).await?;
        allocate(&story.claims(), "net", "n", "gpu-0", &[]).await?;
        for pod in ["a", "b"] {
            story.create(on_node(in_group(fixtures::pod(pod, &entry)?, "team"), "n")).await?;
        }
        let uid = [group.uid().context("no UID")?];
        story.claim_until("net", "is reserved for the PodGroup", |claim| consumers(claim) == uid).await?;
        holds_for("it is reserved once", Duration::from_secs(1), async || {
            let claim = story.claims().get("net").await?;
            ensure!(consumers(&claim) == uid, "{:?}", claim.status);
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn pod_that_came_before_its_group_is_told_and_woken() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::template("tmpl")?).await?;
        let entry = [from_template("gpu", "tmpl")];
        story.create(in_group(fixtures::pod("early", &entry)?, "late-team")).await?;
        story.event_about("early", &["Warning", "late-team"]).await?;
        ensure!(story.all_claims().await?.is_empty(), "a claim was made before it was known for whom");
        // A PodGroup without claims of its own.
        story.create(fixtures::pod_group("late-team", &[])?).await?;
        story.generated_claim("early", "gpu").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn lost_status_entry_of_a_group_is_written_once_and_does_not_flap() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::template("tmpl")?).await?;
        let entries = [from_template("a", "tmpl"), from_template("b", "tmpl")];
        story.create(fixtures::pod_group("team", &entries)?).await?;
        let first = group_claim(story, "team", "a").await?.name_any();
        let second = group_claim(story, "team", "b").await?.name_any();
        let lost = json!({"status": {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": first}]}});
        story.groups().patch_status("team", &PatchParams::default(), &Patch::Merge(&lost)).await?;
        let again = group_claim(story, "team", "b").await?.name_any();
        ensure!(again == second, "{second} was replaced by {again}");
        let settled = story.groups().get("team").await?;
        ensure!(recorded_group_claim(&settled, "a").as_ref() == Some(&first), "{settled:?}");
        holds_for("the PodGroup is left alone", Duration::from_secs(2), async || {
            let now = story.groups().get("team").await?;
            ensure!(now == settled, "written to: {:?}", now.status);
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn one_group_with_thousands_of_pods_keeps_one_claim_with_one_consumer() -> Result<()> {
    tell(async |story| {
        let count = if std::env::var_os("DRACM_LONG").is_some() { 5000 } else { 300 };
        story.create(fixtures::template("tmpl")?).await?;
        let entry = [from_template("net", "tmpl")];
        let group = story.create(fixtures::pod_group("team", &entry)?).await?;
        let claim = group_claim(story, "team", "net").await?.name_any();
        allocate(&story.claims(), &claim, "n", "gpu-0", &[group_consumer(&group)]).await?;
        let pods: Vec<Pod> = futures::stream::iter(0..count)
            .map(async |index| {
                let pod = in_group(fixtures::pod(&format!("member-{index}"), &entry)?, "team");
                story.create(on_node(pod, "n")).await
            })
            .buffer_unordered(16)
            .try_collect()
            .await?;
        ensure!(pods.len() == count);
        wait_until("every member names the claim", Duration::from_mins(2), async || {
            let pods = story.pods().list(&ListParams::default()).await?;
            let named = pods.iter().filter(|pod| recorded_claim(pod, "net").as_ref() == Some(&claim)).count();
            ensure!(named == count, "{named} of {count}");
            Ok(())
        })
        .await?;
        let claims = story.all_claims().await?;
        let [only] = claims.as_slice() else { anyhow::bail!("{} claims", claims.len()) };
        ensure!(consumers(only) == [group.uid().context("no UID")?], "{:?}", only.status);
        Ok(())
    })
    .await
}

/// The example of the documentation: a `PodGroup` and a Pod that uses both its claims and two of its own.
#[tokio::test]
async fn training_group_of_the_documentation_behaves_as_documented() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        node_with_devices(story, 4).await?;
        story.create(fixtures::template("my-pod-template")?).await?;
        for name in ["my-pod-claim", "my-pg-claim"] {
            story.create(fixtures::claim(name)?).await?;
        }
        let of_group =
            [from_claim("pg-claim", "my-pg-claim"), from_template("pg-claim-template", "my-pg-template")];
        let group = story.create(fixtures::pod_group("training-group", &of_group)?).await?;
        let said = story.event_about("training-group", &["Warning FailedResourceClaimCreation"]).await?;
        ensure!(
            said.contains("PodGroupResourceClaim pg-claim-template") && said.contains("my-pg-template"),
            "{said}"
        );
        story.create(fixtures::template("my-pg-template")?).await?;
        let generated = group_claim(story, "training-group", "pg-claim-template").await?.name_any();
        let recorded = story.groups().get("training-group").await?;
        ensure!(recorded_group_claim(&recorded, "pg-claim").is_none(), "{:?}", recorded.status);

        let mut entries = vec![
            from_claim("pod-claim", "my-pod-claim"),
            from_template("pod-claim-template", "my-pod-template"),
        ];
        entries.extend(of_group);
        let pod = in_group(fixtures::pod("training-group-pod-1", &entries)?, "training-group");
        let pod = story.create(scheduled_on(pod, &story.namespace)).await?;
        story.pod_runs("training-group-pod-1").await?;
        let own = story.generated_claim("training-group-pod-1", "pod-claim-template").await?.name_any();
        let (pod_uid, group_uid) = (pod.uid().context("no UID")?, group.uid().context("no UID")?);
        for (claim, uid) in [
            ("my-pod-claim", &pod_uid),
            (own.as_str(), &pod_uid),
            ("my-pg-claim", &group_uid),
            (generated.as_str(), &group_uid),
        ] {
            story.claim_until(claim, "has its consumer", |claim| consumers(claim) == [uid.clone()]).await?;
        }
        let recorded = story.pods().get("training-group-pod-1").await?;
        ensure!(recorded_claim(&recorded, "pg-claim-template").as_ref() == Some(&generated));
        ensure!(
            recorded.status.and_then(|status| status.resource_claim_statuses).map(|all| all.len()) == Some(2)
        );

        story.pods().delete("training-group-pod-1", &DeleteParams::default()).await?;
        story.claim_until("my-pod-claim", "is released", |claim| !is_allocated(claim)).await?;
        story.claim_gone(&own).await?;
        for claim in ["my-pg-claim", &generated] {
            let claim = story.claims().get(claim).await?;
            ensure!(is_allocated(&claim) && consumers(&claim) == [group_uid.clone()], "{:?}", claim.status);
        }
        story.groups().delete("training-group", &DeleteParams::default()).await?;
        story.claim_until("my-pg-claim", "is released", |claim| !is_allocated(claim)).await?;
        story.claim_gone(&generated).await
    })
    .await
}

#[tokio::test]
async fn group_that_is_replaced_under_its_name_gets_a_claim_of_its_own() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::template("tmpl")?).await?;
        let entry = [from_template("net", "tmpl")];
        story.create(fixtures::pod_group("team", &entry)?).await?;
        let first = group_claim(story, "team", "net").await?.name_any();
        story.groups().delete("team", &DeleteParams::default()).await?;
        wait_until("the first PodGroup is gone", SOON, async || {
            ensure!(story.groups().get_opt("team").await?.is_none(), "it exists");
            Ok(())
        })
        .await?;
        let second = story.create(fixtures::pod_group("team", &entry)?).await?;
        let claim = group_claim(story, "team", "net").await?;
        ensure!(
            claim.name_any() != first && is_owned_by(&claim, &second.uid().context("no UID")?),
            "{claim:?}"
        );
        story.claim_gone(&first).await?;
        ensure!(story.all_claims().await?.len() == 1);
        Ok(())
    })
    .await
}

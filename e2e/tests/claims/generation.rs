//! Claims from templates, per Pod.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{self, from_template, is_owned_by, recorded_claim};
use dra_e2e::story::{SOON, tell};
use dra_e2e::{FakeKubelet, holds_for, wait_until};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{Namespace, Pod, ResourceQuota};
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use serde_json::json;

const ENTRY_ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";

#[tokio::test]
async fn pod_gets_its_claim_from_the_template() -> Result<()> {
    tell(async |story| {
        let template = story.create(fixtures::template("tmpl")?).await?;
        let pod = story.create(fixtures::pod("web", &[from_template("gpu", "tmpl")])?).await?;
        let claim = story.generated_claim("web", "gpu").await?;

        ensure!(claim.name_any().starts_with("web-gpu-"), "name: {}", claim.name_any());
        ensure!(claim.metadata.generate_name.as_deref() == Some("web-gpu-"), "{:?}", claim.metadata);
        let owner = claim.owner_references().first().context("no owner")?;
        let uid = pod.uid().context("a Pod without UID")?;
        ensure!(
            claim.owner_references().len() == 1
                && (owner.api_version.as_str(), owner.kind.as_str(), owner.name.as_str())
                    == ("v1", "Pod", "web")
                && owner.uid == uid
                && owner.controller == Some(true)
                && owner.block_owner_deletion.is_none(),
            "owner: {owner:?}"
        );
        let expected = BTreeMap::from([
            (ENTRY_ANNOTATION.to_owned(), "gpu".to_owned()),
            ("example.com/template".to_owned(), "tmpl".to_owned()),
        ]);
        ensure!(claim.annotations() == &expected, "annotations: {:?}", claim.annotations());
        ensure!(claim.labels().get("example.com/template").is_some_and(|value| value == "tmpl"));
        ensure!(claim.spec == template.spec.and_then(|spec| spec.spec), "spec: {:?}", claim.spec);

        let pod = story.pods().get("web").await?;
        let managers = pod.metadata.managed_fields.context("no managed fields")?;
        let applied = managers.iter().any(|fields| {
            fields.manager.as_deref() == Some("ResourceClaimController")
                && fields.operation.as_deref() == Some("Apply")
                && fields.subresource.as_deref() == Some("status")
        });
        ensure!(applied, "the status was not applied by ResourceClaimController: {managers:?}");
        ensure!(story.all_claims().await?.len() == 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn template_annotation_is_not_mixed_between_two_claims_of_one_pod() -> Result<()> {
    tell(async |story| {
        let template = story.create(fixtures::template("tmpl")?).await?;
        let entries = [from_template("first", "tmpl"), from_template("second", "tmpl")];
        story.create(fixtures::pod("web", &entries)?).await?;
        for entry in ["first", "second"] {
            let claim = story.generated_claim("web", entry).await?;
            ensure!(claim.annotations().get(ENTRY_ANNOTATION).is_some_and(|value| value == entry));
            ensure!(claim.annotations().get("example.com/template").is_some_and(|value| value == "tmpl"));
        }
        ensure!(story.templates().get("tmpl").await? == template, "the template was changed");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn template_created_after_its_pod_yields_the_claim_within_two_seconds() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::pod("web", &[from_template("gpu", "late")])?).await?;
        // By now the Pod has been looked at and waits.
        story.event_about("web", &["late"]).await?;
        let created = Instant::now();
        story.create(fixtures::template("late")?).await?;
        story.generated_claim("web", "gpu").await?;
        let took = created.elapsed();
        ensure!(took < Duration::from_secs(2), "took {took:?}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn status_list_only_grows_while_one_template_is_late() -> Result<()> {
    tell(async |story| {
        let watch = watcher(story.pods(), watcher::Config::default()).default_backoff().applied_objects();
        let mut pods = std::pin::pin!(watch);
        story.create(fixtures::template("there")?).await?;
        let entries = [from_template("a", "late"), from_template("b", "there"), from_template("c", "late")];
        story.create(fixtures::pod("web", &entries)?).await?;
        story.generated_claim("web", "b").await?;
        story.create(fixtures::template("late")?).await?;
        for entry in ["a", "b", "c"] {
            story.generated_claim("web", entry).await?;
        }

        let mut recorded: BTreeMap<&str, String> = BTreeMap::new();
        while recorded.len() < 3 {
            let pod: Pod = pods.try_next().await?.context("the watch has ended")?;
            for entry in ["a", "b", "c"] {
                let now = recorded_claim(&pod, entry);
                match (recorded.get(entry), now) {
                    (None, Some(name)) => {
                        recorded.insert(entry, name);
                    }
                    (before, now) => {
                        ensure!(before == now.as_ref(), "entry {entry}: first {before:?}, then {now:?}");
                    }
                }
            }
        }
        ensure!(story.all_claims().await?.len() == 3);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn names_of_63_characters_are_cut_to_fit() -> Result<()> {
    tell(async |story| {
        let (pod, entry) = ("p".repeat(63), "c".repeat(63));
        story.create(fixtures::template("tmpl")?).await?;
        story.create(fixtures::pod(&pod, &[from_template(&entry, "tmpl")])?).await?;
        let name = story.generated_claim(&pod, &entry).await?.name_any();
        ensure!(name.starts_with(&format!("{}-{}", "p".repeat(28), "c".repeat(28))), "name: {name}");
        ensure!(name.len() == 62, "{} characters: {name}", name.len());
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pod_name_that_is_cut_at_a_dot_still_gets_its_claim() -> Result<()> {
    tell(async |story| {
        // Cut to 28 of 41+20 characters by the in-tree rule, the Pod's part would end with the dot.
        let (pod, entry) = (format!("{}.{}", "a".repeat(40), "b".repeat(19)), "c".repeat(20));
        story.create(fixtures::template("tmpl")?).await?;
        story.create(fixtures::pod(&pod, &[from_template(&entry, "tmpl")])?).await?;
        let name = story.generated_claim(&pod, &entry).await?.name_any();
        ensure!(name.starts_with(&format!("{}-c", "a".repeat(40))), "name: {name}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn claim_deleted_by_accident_is_made_again() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::template("tmpl")?).await?;
        let pod = story.create(fixtures::pod("web", &[from_template("gpu", "tmpl")])?).await?;
        let first = story.generated_claim("web", "gpu").await?.name_any();
        story.claims().delete(&first, &DeleteParams::default()).await?;
        story
            .pod_until("web", "names another claim", |pod| {
                recorded_claim(pod, "gpu").is_some_and(|name| name != first)
            })
            .await?;
        let second = story.generated_claim("web", "gpu").await?;
        ensure!(is_owned_by(&second, &pod.uid().unwrap_or_default()));
        ensure!(story.all_claims().await?.len() == 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn claim_of_somebody_else_is_not_taken_for_the_pods_own() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::claim("theirs")?).await?;
        story.create(fixtures::pod("web", &[from_template("gpu", "tmpl")])?).await?;
        let wrong =
            json!({"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "theirs"}]}});
        story.pods().patch_status("web", &PatchParams::default(), &Patch::Merge(&wrong)).await?;
        let before = story.claims().get("theirs").await?;
        story.create(fixtures::template("tmpl")?).await?;
        story
            .pod_until("web", "names a claim of its own", |pod| {
                recorded_claim(pod, "gpu").is_some_and(|name| name != "theirs")
            })
            .await?;
        ensure!(story.claims().get("theirs").await? == before, "the other claim was changed");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pod_whose_claim_is_recorded_as_not_needed_runs_without_one() -> Result<()> {
    tell(async |story| {
        let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
        story.create(fixtures::on_node(fixtures::pod("web", &[from_template("gpu", "tmpl")])?, "n")).await?;
        let not_needed = json!({"status": {"resourceClaimStatuses": [{"name": "gpu"}]}});
        story.pods().patch_status("web", &PatchParams::default(), &Patch::Merge(&not_needed)).await?;
        story.pod_runs("web").await?;
        // Pods come to the manager in order: when the next one has its claim, the status above has been seen.
        story.create(fixtures::template("other")?).await?;
        story.create(fixtures::pod("next", &[from_template("gpu", "other")])?).await?;
        story.generated_claim("next", "gpu").await?;
        story.create(fixtures::template("tmpl")?).await?;
        // Templates, too: when this Pod has its claim, the first one has been woken by its template.
        story.create(fixtures::pod("last", &[from_template("gpu", "tmpl")])?).await?;
        story.generated_claim("last", "gpu").await?;
        holds_for("no claim is made for the first Pod", Duration::from_secs(2), async || {
            let claims = story.all_claims().await?;
            ensure!(claims.len() == 2, "{claims:?}");
            Ok(())
        })
        .await
    })
    .await
}

#[tokio::test]
async fn gated_and_unschedulable_pods_get_their_claims_too() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::template("tmpl")?).await?;
        let mut gated = fixtures::pod("gated", &[from_template("gpu", "tmpl")])?;
        if let Some(spec) = gated.spec.as_mut() {
            spec.scheduling_gates = Some(serde_json::from_value(json!([{"name": "example.com/wait"}]))?);
        }
        story.create(gated).await?;
        let nowhere = fixtures::pod("nowhere", &[from_template("gpu", "tmpl")])?;
        story.create(fixtures::scheduled_on(nowhere, "no-such-node")).await?;
        story.generated_claim("gated", "gpu").await?;
        story.generated_claim("nowhere", "gpu").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn admin_access_needs_the_namespace_label_and_is_counted() -> Result<()> {
    tell(async |story| {
        let creates = async |status: &str| -> Result<f64> {
            let labels = [("status", status), ("admin_access", "true"), ("owner_api_kind", "Pod")];
            let metrics = story.manager()?.metrics().await?;
            Ok(metrics.sum("dynamic_resource_allocation_resourceclaim_creates_total", &labels))
        };
        let namespaces: Api<Namespace> = Api::all(story.client.clone());
        let label = async |value: Option<&str>| -> Result<()> {
            let labels = json!({"metadata": {"labels": {fixtures::ADMIN_ACCESS_LABEL: value}}});
            namespaces.patch(&story.namespace, &PatchParams::default(), &Patch::Merge(&labels)).await?;
            Ok(())
        };
        let (successes, failures) = (creates("success").await?, creates("failure").await?);

        label(Some("true")).await?;
        story.create(fixtures::admin_template("admin")?).await?;
        story.create(fixtures::pod("monitor", &[from_template("gpu", "admin")])?).await?;
        story.generated_claim("monitor", "gpu").await?;
        ensure!(creates("success").await? > successes, "the creation was not counted");

        label(None).await?;
        story.create(fixtures::pod("intruder", &[from_template("gpu", "admin")])?).await?;
        let said = story.event_about("intruder", &["Warning FailedResourceClaimCreation", "gpu"]).await?;
        ensure!(said.contains("admin"), "the event does not say why: {said}");
        wait_until("the refusal is counted", SOON, async || {
            ensure!(creates("failure").await? > failures, "not yet");
            Ok(())
        })
        .await?;
        ensure!(story.all_claims().await?.len() == 1);
        Ok(())
    })
    .await
}

#[tokio::test]
async fn claim_over_quota_is_made_once_the_quota_allows() -> Result<()> {
    tell(async |story| {
        let quotas: Api<ResourceQuota> = story.api();
        let hard = |count: &str| json!({"count/resourceclaims.resource.k8s.io": count});
        let quota =
            serde_json::from_value(json!({"metadata": {"name": "claims"}, "spec": {"hard": hard("0")}}))?;
        story.create::<ResourceQuota>(quota).await?;
        // There is no quota controller to write the status, which admission goes by.
        let closed = json!({"status": {"hard": hard("0"), "used": hard("0")}});
        quotas.patch_status("claims", &PatchParams::default(), &Patch::Merge(&closed)).await?;
        story.create(fixtures::template("tmpl")?).await?;
        story.create(fixtures::pod("web", &[from_template("gpu", "tmpl")])?).await?;
        story.event_about("web", &["Warning FailedResourceClaimCreation", "quota"]).await?;

        let open = json!({"status": {"hard": hard("5")}});
        quotas.patch_status("claims", &PatchParams::default(), &Patch::Merge(&open)).await?;
        story.generated_claim("web", "gpu").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn many_pods_at_once_get_exactly_one_claim_each() -> Result<()> {
    tell(async |story| {
        const PODS: usize = 200;
        story.create(fixtures::template("tmpl")?).await?;
        let created: Vec<Pod> = futures::stream::iter(0..PODS)
            .map(async |index| {
                story.create(fixtures::pod(&format!("web-{index}"), &[from_template("gpu", "tmpl")])?).await
            })
            .buffer_unordered(16)
            .try_collect()
            .await?;
        ensure!(created.len() == PODS);
        wait_until("every Pod has its claim", SOON, async || {
            let pods = story.pods().list(&ListParams::default()).await?;
            let named = pods.iter().filter(|pod| recorded_claim(pod, "gpu").is_some()).count();
            ensure!(named == PODS, "{named} of {PODS}");
            Ok(())
        })
        .await?;
        let claims = story.all_claims().await?;
        ensure!(claims.len() == PODS, "{} claims", claims.len());
        Ok(())
    })
    .await
}

//! What users are told.

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{self, from_template};
use dra_e2e::story::{SOON, tell};
use dra_e2e::wait_until;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;

#[tokio::test]
async fn kubectl_describe_says_why_a_pod_has_no_claim_in_one_stable_line() -> Result<()> {
    tell(async |story| {
        // A template whose claims the API server refuses: it asks for admin access, and the namespace is no longer
        // labelled for that. Creation is tried again and again.
        let namespaces: Api<Namespace> = Api::all(story.client.clone());
        for (value, template) in [(Some("true"), Some("admin")), (None, None)] {
            let labels = json!({"metadata": {"labels": {fixtures::ADMIN_ACCESS_LABEL: value}}});
            namespaces.patch(&story.namespace, &PatchParams::default(), &Patch::Merge(&labels)).await?;
            if let Some(template) = template {
                story.create(fixtures::admin_template(template)?).await?;
            }
        }
        story.create(fixtures::pod("web", &[from_template("gpu", "admin")])?).await?;

        let failures = async || -> Result<Vec<Event>> {
            let all = story.api::<Event>().list(&ListParams::default()).await?.items;
            Ok(all
                .into_iter()
                .filter(|e| e.reason.as_deref() == Some("FailedResourceClaimCreation"))
                .collect())
        };
        let repeated = wait_until("the failure was repeated", SOON, async || {
            let failures = failures().await?;
            let counted =
                failures.first().and_then(|event| event.series.as_ref()).map_or(1, |series| series.count);
            ensure!(counted >= 3, "{failures:?}");
            Ok(failures)
        })
        .await?;
        ensure!(repeated.len() == 1, "more than one event for one reason: {repeated:?}");
        let event = repeated.first().context("no event")?;
        ensure!(event.type_.as_deref() == Some("Warning"), "{event:?}");
        let note = event.note.as_deref().unwrap_or_default();
        ensure!(note.starts_with("PodResourceClaim gpu: "), "note: {note}");

        let described = story.plane.kubectl(&["describe", "pod", "web", "--namespace", &story.namespace])?;
        let lines: Vec<&str> =
            described.lines().filter(|line| line.contains("FailedResourceClaimCreation")).collect();
        ensure!(
            lines.len() == 1 && lines.iter().all(|line| line.contains("PodResourceClaim gpu: ")),
            "{described}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn pod_waiting_for_a_template_says_which() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::pod("web", &[from_template("gpu", "missing")])?).await?;
        let said = story.event_about("web", &["Warning", "missing"]).await?;
        ensure!(said.contains("FailedResourceClaimCreation"), "{said}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn metrics_have_the_names_and_labels_of_the_in_tree_controller() -> Result<()> {
    tell(async |story| {
        story.create(fixtures::template("tmpl")?).await?;
        story.create(fixtures::pod("web", &[from_template("gpu", "tmpl")])?).await?;
        story.generated_claim("web", "gpu").await?;
        wait_until("the metrics show it", SOON, async || {
            let metrics = story.manager()?.metrics().await?;
            let created = [
                ("status", "success"),
                ("admin_access", "false"),
                ("owner_api_group", ""),
                ("owner_api_kind", "Pod"),
            ];
            ensure!(metrics.sum("dynamic_resource_allocation_resourceclaim_creates_total", &created) >= 1.0);
            let known =
                [("allocated", "false"), ("admin_access", "false"), ("source", "resource_claim_template")];
            ensure!(metrics.sum("dynamic_resource_allocation_resource_claims", &known) >= 1.0);
            for name in [
                "workqueue_depth",
                "workqueue_adds_total",
                "workqueue_retries_total",
                "workqueue_queue_duration_seconds_count",
                "workqueue_work_duration_seconds_count",
                "workqueue_unfinished_work_seconds",
                "workqueue_longest_running_processor_seconds",
            ] {
                ensure!(metrics.has(name), "no {name}");
            }
            ensure!(metrics.sum("workqueue_adds_total", &[("name", "resource_claim")]) >= 1.0);
            Ok(())
        })
        .await
    })
    .await
}

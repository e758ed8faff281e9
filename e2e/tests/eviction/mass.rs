//! A thousand Pods, one rule, and a manager that is killed in the middle; and PodDisruptionBudgets.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use dra_e2e::story::{SOON, Story};
use dra_e2e::{ControlPlane, FakeKubelet, Manager, Options, wait_until};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use serde_json::json;

use crate::cluster::{condition_is, create_rule, evictor, is_leaving, pod_with_device, rule};

const PODS: usize = 1000;
/// Of those, one in so many tolerates the taint.
const TOLERANT: usize = 10;
/// Evictions at once, the default.
const WORKERS: usize = 8;
/// For all of them together, on a busy machine.
const LIMIT: Duration = Duration::from_mins(3);

async fn leaving(story: &Story<'_>) -> Result<usize> {
    let pods = story.pods().list(&ListParams::default()).await?.items;
    Ok(PODS - pods.iter().filter(|pod| !is_leaving(pod)).count())
}

#[tokio::test]
async fn a_thousand_pods_are_evicted_once_each_although_the_manager_is_killed_in_the_middle() -> Result<()> {
    let kills = if std::env::var_os("DRACM_LONG").is_some() { 20 } else { 3 };
    let plane = ControlPlane::start(Options::all_gates()).await?;
    let story = Story::begin(&plane, None).await?;
    let pool = story.namespace.as_str();
    stream::iter(0..PODS)
        .map(|n| {
            let story = &story;
            async move {
                let tolerations = if n.is_multiple_of(TOLERANT) {
                    json!([{"operator": "Exists", "effect": "NoExecute"}])
                } else {
                    json!([])
                };
                pod_with_device(story, &format!("pod-{n}"), pool, tolerations).await
            }
        })
        .buffer_unordered(16)
        .try_for_each(|_| std::future::ready(Ok(())))
        .await?;
    let mut manager = Manager::start(&plane, evictor(&plane, &[]).await?).await?;
    let begun = Instant::now();
    create_rule(&story, &rule(pool, json!({"pool": pool}), "NoExecute")?).await?;
    let go = PODS - PODS / TOLERANT;
    for kill in 0..kills {
        let target = go * kill / (kills + 1) + 1;
        wait_until(&format!("it is time for kill {kill}"), LIMIT, async || {
            let now = leaving(&story).await?;
            ensure!(now >= target, "{now} of {target} Pods are leaving");
            Ok(())
        })
        .await?;
        manager.kill()?;
        manager.relaunch(&plane)?;
    }
    wait_until("all Pods that do not tolerate the taint leave", LIMIT, async || {
        let now = leaving(&story).await?;
        ensure!(now == go, "{now} of {go} are leaving");
        Ok(())
    })
    .await?;
    eprintln!("{go} Pods evicted in {:.1} s, with {kills} kills", begun.elapsed().as_secs_f64());
    condition_is(&story, pool, "False", &["Completed"]).await?;
    let requests = plane.requests_of_manager()?;
    let deletes =
        requests.iter().filter(|r| r.resource == "pods" && r.verb == "delete" && r.code == 200).count();
    // A request whose answer a killed manager did not wait for is audited without the code 200.
    let unanswered = kills * WORKERS;
    ensure!(
        deletes <= go && deletes + unanswered >= go,
        "{deletes} deletes for {go} Pods, of which at most {unanswered} can be unanswered"
    );
    ensure!(leaving(&story).await? == go, "Pods that tolerate the taint are evicted");
    story.manager_was_allowed_everything()
}

#[tokio::test]
async fn evictions_per_second_are_limited_over_all_rules() -> Result<()> {
    const QPS: usize = 2;
    const LIMITED: usize = 9;
    let plane = ControlPlane::start(Options::all_gates()).await?;
    let story = Story::begin(&plane, None).await?;
    let pool = story.namespace.as_str();
    for n in 0..LIMITED {
        pod_with_device(&story, &format!("pod-{n}"), pool, json!([])).await?;
    }
    // Both rules are there before the manager is.
    for n in 0..2 {
        let name = format!("{pool}-{n}");
        create_rule(&story, &rule(&name, json!({"pool": pool}), "NoExecute")?).await?;
    }
    let begun = Instant::now();
    let _manager =
        Manager::start(&plane, evictor(&plane, &[&format!("--eviction-qps={QPS}")]).await?).await?;
    wait_until("all Pods leave", LIMIT, async || {
        let pods = story.pods().list(&ListParams::default()).await?.items;
        let now = pods.iter().filter(|pod| is_leaving(pod)).count();
        // The first one goes at once; later ones not before their turn, however slow this machine is.
        let turns = 1 + begun.elapsed().as_millis() * QPS as u128 / 1000;
        if now as u128 > turns {
            return Ok(Err(anyhow::anyhow!("{now} left within {:?}", begun.elapsed())));
        }
        ensure!(now == LIMITED, "{now} of {LIMITED} are leaving");
        Ok(Ok(()))
    })
    .await??;
    condition_is(&story, &format!("{pool}-0"), "False", &["9 pods evicted"]).await?;
    story.manager_was_allowed_everything()
}

#[tokio::test]
async fn a_pod_disruption_budget_holds_the_eviction_up_where_asked_for() -> Result<()> {
    let plane =
        ControlPlane::start(Options { controllers: "disruption".to_owned(), ..Options::all_gates() }).await?;
    let story = Story::begin(&plane, None).await?;
    let _kubelet = FakeKubelet::that_starts_no_pod(&story.client, &story.namespace);
    let pool = story.namespace.as_str();
    let _manager = Manager::start(&plane, evictor(&plane, &["--eviction-mode=evict"]).await?).await?;
    let budget: PodDisruptionBudget = serde_json::from_value(json!({
        "metadata": {"name": "all"},
        "spec": {"minAvailable": 1, "selector": {}},
    }))?;
    pod_with_device(&story, "uses", pool, json!([])).await?;
    // Budgets protect running Pods.
    let ready = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    story
        .pods()
        .patch_status("uses", &kube::api::PatchParams::default(), &kube::api::Patch::Strategic(&ready))
        .await?;
    story.create(budget).await?;
    wait_until("the budget knows its Pod", SOON, async || {
        let budget = story.api::<PodDisruptionBudget>().get("all").await?;
        let healthy = budget.status.and_then(|status| status.current_healthy).unwrap_or_default();
        ensure!(healthy == 1, "{healthy} healthy Pods");
        Ok(())
    })
    .await?;
    create_rule(&story, &rule(pool, json!({"pool": pool}), "NoExecute")?).await?;
    condition_is(&story, pool, "True", &["1 pod is protected by its PodDisruptionBudget"]).await?;
    ensure!(!is_leaving(&story.pods().get("uses").await?), "evicted in spite of the budget");
    story.api::<PodDisruptionBudget>().delete("all", &kube::api::DeleteParams::default()).await?;
    wait_until("the Pod is gone", Duration::from_mins(2), async || {
        ensure!(story.pods().get_opt("uses").await?.is_none(), "it is there");
        Ok(())
    })
    .await?;
    condition_is(&story, pool, "False", &["Completed", "1 pod evicted"]).await?;
    story.manager_was_allowed_everything()
}

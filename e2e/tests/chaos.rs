//! The manager killed at random points while Pods come and go.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, ensure};
use dra_e2e::fixtures::{self, from_template, is_allocated, is_owned_by, on_node, phase, recorded_claim};
use dra_e2e::scheduler::{allocate, pod_consumer};
use dra_e2e::story::Story;
use dra_e2e::{ControlPlane, FakeKubelet, Manager, ManagerOptions, Options, kubelet, wait_until};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

const PODS: usize = 500;
/// For one Pod, while the manager is killed now and then and other tests run beside this one.
const LIMIT: Duration = Duration::from_mins(1);
const ENTRIES: [&str; 2] = ["a", "b"];

/// What the watchers have seen.
#[derive(Default)]
struct Seen {
    claim_events: AtomicUsize,
    kills_done: AtomicBool,
    /// The last state of each Pod.
    pods: Mutex<BTreeMap<String, Pod>>,
}

impl Seen {
    fn runs(&self, name: &str) -> Result<()> {
        let pods = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
        let pod = pods.get(name).context("not seen yet")?;
        ensure!(phase(pod) == Some("Running"), "Pod: {}", serde_json::to_string(pod)?);
        Ok(())
    }
}

fn choose_seed() -> Result<u64> {
    if let Ok(seed) = std::env::var("DRACM_SEED") {
        return seed.parse().context("DRACM_SEED");
    }
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())
}

/// Allocates each new claim for the Pod that owns it, and counts what happens to claims.
async fn schedule(story: &Story<'_>, seen: &Seen) -> Result<()> {
    let mut events = std::pin::pin!(watcher(story.claims(), watcher::Config::default()).default_backoff());
    while let Some(event) = events.try_next().await? {
        seen.claim_events.fetch_add(1, Ordering::Relaxed);
        let (watcher::Event::Apply(claim) | watcher::Event::InitApply(claim)) = event else { continue };
        if !is_allocated(&claim) && claim.metadata.deletion_timestamp.is_none() {
            schedule_claim(story, &claim).await?;
        }
    }
    Ok(())
}

async fn schedule_claim(story: &Story<'_>, claim: &ResourceClaim) -> Result<()> {
    let name = claim.name_any();
    let owner = claim.owner_references().first().map(|owner| owner.name.clone()).unwrap_or_default();
    wait_until(&format!("claim {name} is allocated or gone"), LIMIT, async || {
        // The Pod or its claim may be gone by now, as in a cluster.
        let Some(pod) = story.pods().get_opt(&owner).await? else { return Ok(()) };
        let Some(claim) = story.claims().get_opt(&name).await? else { return Ok(()) };
        if !is_allocated(&claim) && claim.metadata.deletion_timestamp.is_none() {
            allocate(&story.claims(), &name, "n", &name, &[pod_consumer(&pod)]).await?;
        }
        Ok(())
    })
    .await
}

/// Notes the phases of Pods, and fails as soon as a claim name that a Pod's status has recorded changes.
async fn no_recorded_name_changes(story: &Story<'_>, seen: &Seen) -> Result<()> {
    let mut recorded: BTreeMap<(String, &str), String> = BTreeMap::new();
    let pods = watcher(story.pods(), watcher::Config::default()).default_backoff().applied_objects();
    let mut pods = std::pin::pin!(pods);
    while let Some(pod) = pods.try_next().await? {
        for entry in ENTRIES {
            let key = (pod.uid().unwrap_or_default(), entry);
            let now = recorded_claim(&pod, entry);
            let before = recorded.get(&key);
            ensure!(
                before.is_none() || before == now.as_ref(),
                "{}: {before:?}, then {now:?}",
                pod.name_any()
            );
            if let Some(name) = now {
                recorded.insert(key, name);
            }
        }
        seen.pods.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.name_any(), pod);
    }
    Ok(())
}

async fn one_pod_comes_and_goes(story: &Story<'_>, seen: &Seen, index: usize) -> Result<()> {
    let name = format!("pod-{index}");
    let entries = ENTRIES.map(|entry| from_template(entry, "tmpl"));
    let count = if index.is_multiple_of(3) { 2 } else { 1 };
    let entries = entries.get(..count).unwrap_or_default();
    let pod = fixtures::pod(&name, entries)?;
    if index.is_multiple_of(7) {
        // Gone before anybody could do much about it.
        story.create(pod).await?;
        return kubelet::force_delete(&story.pods(), &name).await;
    }
    story.create(on_node(pod, "n")).await?;
    wait_until(&format!("Pod {name} runs"), LIMIT, async || seen.runs(&name)).await?;
    match index % 4 {
        0 => {
            kubelet::finish(&story.pods(), &name, "Succeeded").await?;
        }
        1 => {
            story.pods().delete(&name, &DeleteParams::default()).await?;
        }
        2 => kubelet::force_delete(&story.pods(), &name).await?,
        _ => {}
    }
    Ok(())
}

/// Kills the manager each time a random number of things have happened to claims since it was started.
async fn kill_at_random(
    plane: &ControlPlane,
    manager: &mut Manager,
    seen: &Seen,
    kills: usize,
    random: &mut StdRng,
) -> Result<()> {
    for kill in 0..kills {
        let target = seen.claim_events.load(Ordering::Relaxed) + random.random_range(1..60);
        wait_until(&format!("it is time for kill {kill}"), Duration::from_mins(1), async || {
            let now = seen.claim_events.load(Ordering::Relaxed);
            ensure!(now >= target, "{now} events of {target}");
            Ok(())
        })
        .await?;
        // Not on the beat of the wait above.
        tokio::time::sleep(Duration::from_micros(random.random_range(0..50_000))).await;
        manager.kill()?;
        manager.relaunch(plane)?;
    }
    seen.kills_done.store(true, Ordering::Relaxed);
    manager.wait_ready().await
}

#[tokio::test]
async fn manager_killed_at_random_leaves_no_missing_double_or_orphaned_claim() -> Result<()> {
    let long = std::env::var_os("DRACM_LONG").is_some();
    let kills = if long { 50 } else { 5 };
    let seed = choose_seed()?;
    eprintln!("DRACM_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let plane = ControlPlane::start(Options::all_gates()).await?;
    let mut manager = Manager::start(&plane, ManagerOptions::claim_controller(&plane).await?).await?;
    let story = Story::begin(&plane, None).await?;
    story.create(fixtures::template("tmpl")?).await?;
    let _kubelet = FakeKubelet::start(&story.client, &story.namespace);
    let watched = Seen::default();

    let come_and_go = async {
        // With many kills, more Pods than those come until the last kill.
        futures::stream::iter(0..)
            .take_while(|index| {
                let more = *index < PODS || !watched.kills_done.load(Ordering::Relaxed);
                std::future::ready(more)
            })
            .map(|index| one_pod_comes_and_goes(&story, &watched, index))
            .buffer_unordered(24)
            .try_for_each(|()| std::future::ready(Ok(())))
            .await
    };
    let work = async {
        let killed = kill_at_random(&plane, &mut manager, &watched, kills, &mut random);
        tokio::try_join!(come_and_go, killed)?;
        wait_until(
            "every Pod that lives has its claims and no other claim is left",
            Duration::from_mins(1),
            async || settled(&story).await,
        )
        .await
    };
    tokio::select! {
        finished = work => finished?,
        ended = schedule(&story, &watched) => { ended?; anyhow::bail!("the watch of claims has ended"); }
        changed = no_recorded_name_changes(&story, &watched) => { changed?; anyhow::bail!("the watch of Pods has ended"); }
    }
    story.manager_was_allowed_everything()
}

async fn settled(story: &Story<'_>) -> Result<()> {
    let pods = story.pods().list(&ListParams::default()).await?.items;
    let mut claims: BTreeMap<String, ResourceClaim> =
        story.all_claims().await?.into_iter().map(|claim| (claim.name_any(), claim)).collect();
    let lives = |pod: &&Pod| {
        pod.metadata.deletion_timestamp.is_none() && !matches!(phase(pod), Some("Succeeded" | "Failed"))
    };
    for pod in pods.iter().filter(lives) {
        for entry in pod.spec.iter().flat_map(|spec| spec.resource_claims.iter().flatten()) {
            let name = recorded_claim(pod, &entry.name)
                .with_context(|| format!("Pod {} names no claim for {}", pod.name_any(), entry.name))?;
            let claim = claims.remove(&name).with_context(|| format!("claim {name} is missing"))?;
            ensure!(
                is_owned_by(&claim, &pod.uid().unwrap_or_default()),
                "claim {name} is not owned by its Pod"
            );
        }
    }
    ensure!(claims.is_empty(), "{} claims too many: {:?}", claims.len(), claims.keys());
    Ok(())
}

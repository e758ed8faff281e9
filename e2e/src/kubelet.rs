//! The part of the kubelet that the controllers see: Pods start, and terminating Pods go away.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::{Pod, PodResourceClaimStatus, PodSpec};
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use crate::fixtures::{consumers, is_allocated, phase};

/// How long a write is tried again when the API server is away.
const WRITE_LIMIT: Duration = Duration::from_mins(1);
const RETRY: Duration = Duration::from_millis(100);

/// The kubelets of all nodes for the Pods of one namespace. Dropping it stops it.
#[derive(Debug)]
pub struct FakeKubelet {
    task: JoinHandle<()>,
}

impl FakeKubelet {
    /// Runs Pods once their claims are ready, and removes terminating Pods after their grace period.
    pub fn start(client: &Client, namespace: &str) -> Self {
        Self::with(client, namespace, true)
    }

    /// Only removes terminating Pods; none ever starts.
    pub fn that_starts_no_pod(client: &Client, namespace: &str) -> Self {
        Self::with(client, namespace, false)
    }

    fn with(client: &Client, namespace: &str, starts_pods: bool) -> Self {
        let pods = Api::namespaced(client.clone(), namespace);
        let claims = Api::namespaced(client.clone(), namespace);
        let node = Nodes {
            pods,
            starts_pods,
            known: BTreeMap::new(),
            claims: BTreeMap::new(),
            begun: BTreeSet::new(),
        };
        Self { task: tokio::spawn(node.watch(claims)) }
    }
}

impl Drop for FakeKubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Lets a Pod end: phase `Succeeded` or `Failed`, as the kubelet reports it.
///
/// # Errors
/// The API server refuses the write.
pub async fn finish(pods: &Api<Pod>, name: &str, phase: &str) -> Result<Pod> {
    let status = json!({"status": {"phase": phase}});
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
        .await
        .with_context(|| format!("setting phase {phase} of Pod {name}"))
}

/// Removes a Pod at once, as `kubectl delete --force --grace-period=0` does.
///
/// # Errors
/// The API server refuses the request.
pub async fn force_delete(pods: &Api<Pod>, name: &str) -> Result<()> {
    pods.delete(name, &DeleteParams::default().grace_period(0))
        .await
        .with_context(|| format!("force-deleting Pod {name}"))?;
    Ok(())
}

enum Change {
    Pod(Box<watcher::Event<Pod>>),
    Claim(Box<watcher::Event<ResourceClaim>>),
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Step {
    Run,
    Remove,
}

struct Nodes {
    pods: Api<Pod>,
    starts_pods: bool,
    known: BTreeMap<String, Pod>,
    claims: BTreeMap<String, ResourceClaim>,
    /// What has been begun, by UID: each step is taken once.
    begun: BTreeSet<(String, Step)>,
}

impl Nodes {
    async fn watch(mut self, claims: Api<ResourceClaim>) {
        let mut changes = stream::select(
            events(self.pods.clone()).map_ok(|event| Change::Pod(Box::new(event))).boxed(),
            events(claims).map_ok(|event| Change::Claim(Box::new(event))).boxed(),
        );
        let mut steps = JoinSet::new();
        while let Some(change) = changes.next().await {
            // The watcher reports an error (the API server is away) and goes on by itself.
            let Ok(change) = change else { continue };
            self.observe(change);
            for (pod, step) in self.due() {
                steps.spawn(take(self.pods.clone(), pod, step));
            }
            while let Some(done) = steps.try_join_next() {
                if let Ok(Err(error)) = done {
                    eprintln!("fake kubelet: {error:#}");
                }
            }
        }
    }

    fn observe(&mut self, change: Change) {
        match change {
            Change::Pod(event) => observe(&mut self.known, *event),
            Change::Claim(event) => observe(&mut self.claims, *event),
        }
    }

    fn due(&mut self) -> Vec<(Pod, Step)> {
        let mut due = Vec::new();
        for pod in self.known.values() {
            let Some(step) = self.next_step(pod) else { continue };
            if self.begun.insert((pod.uid().unwrap_or_default(), step)) {
                due.push((pod.clone(), step));
            }
        }
        due
    }

    fn next_step(&self, pod: &Pod) -> Option<Step> {
        let spec = pod.spec.as_ref()?;
        spec.node_name.as_ref()?;
        if pod.metadata.deletion_timestamp.is_some() {
            return Some(Step::Remove);
        }
        let pending = matches!(phase(pod), None | Some("Pending"));
        let run = self.starts_pods && pending && self.claims_are_ready(pod, spec);
        run.then_some(Step::Run)
    }

    /// As the kubelet: each claim must be allocated and reserved for the Pod or its `PodGroup`.
    fn claims_are_ready(&self, pod: &Pod, spec: &PodSpec) -> bool {
        let recorded = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref());
        let group = spec.scheduling_group.as_ref().and_then(|group| group.pod_group_name.as_deref());
        spec.resource_claims.iter().flatten().all(|entry| {
            let name = match (&entry.resource_claim_name, find(recorded, &entry.name)) {
                (Some(name), _)
                | (None, Some(PodResourceClaimStatus { resource_claim_name: Some(name), .. })) => name,
                // Recorded as not needed.
                (None, Some(_)) => return true,
                (None, None) => return false,
            };
            let Some(claim) = self.claims.get(name) else { return false };
            let for_pod = pod.uid().is_some_and(|uid| consumers(claim).contains(&uid));
            let reserved = claim.status.iter().flat_map(|status| status.reserved_for.iter().flatten());
            let for_group = group.is_some_and(|group| {
                reserved
                    .into_iter()
                    .any(|consumer| consumer.resource == "podgroups" && consumer.name == group)
            });
            is_allocated(claim) && (for_pod || for_group)
        })
    }
}

fn observe<K: kube::ResourceExt>(known: &mut BTreeMap<String, K>, event: watcher::Event<K>) {
    match event {
        watcher::Event::Apply(object) | watcher::Event::InitApply(object) => {
            known.insert(object.name_any(), object);
        }
        watcher::Event::Delete(object) => {
            known.remove(&object.name_any());
        }
        watcher::Event::Init => known.clear(),
        watcher::Event::InitDone => {}
    }
}

fn find<'a>(
    recorded: Option<&'a [PodResourceClaimStatus]>,
    entry: &str,
) -> Option<&'a PodResourceClaimStatus> {
    recorded?.iter().find(|status| status.name == entry)
}

fn events<K>(api: Api<K>) -> impl Stream<Item = watcher::Result<watcher::Event<K>>>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    watcher(api, watcher::Config::default()).default_backoff()
}

async fn take(pods: Api<Pod>, pod: Pod, step: Step) -> Result<()> {
    if step == Step::Remove {
        let grace = pod.metadata.deletion_grace_period_seconds.and_then(|grace| u64::try_from(grace).ok());
        tokio::time::sleep(Duration::from_secs(grace.unwrap_or(0))).await;
    }
    let name = pod.name_any();
    let uid = pod.uid().unwrap_or_default();
    let begun = Instant::now();
    loop {
        let done = match step {
            Step::Run => run(&pods, &name, &uid).await,
            Step::Remove => {
                let only_this = Preconditions { uid: Some(uid.clone()), resource_version: None };
                let now = DeleteParams::default().grace_period(0).preconditions(only_this);
                pods.delete(&name, &now).await.map(|_| ())
            }
        };
        match done {
            Ok(()) => return Ok(()),
            // Gone, or replaced by another Pod of this name.
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 && step == Step::Remove => return Ok(()),
            Err(error) if begun.elapsed() > WRITE_LIMIT => {
                return Err(error).with_context(|| format!("{step:?} Pod {name}"));
            }
            Err(_) => tokio::time::sleep(RETRY).await,
        }
    }
}

/// Sets the phase `Running` unless the Pod has another phase than `Pending` by then.
async fn run(pods: &Api<Pod>, name: &str, uid: &str) -> kube::Result<()> {
    let pod = pods.get(name).await?;
    if pod.uid().as_deref() != Some(uid) || phase(&pod) != Some("Pending") {
        return Ok(());
    }
    let running = json!({
        "metadata": {"uid": uid, "resourceVersion": pod.resource_version()},
        "status": {"phase": "Running"},
    });
    pods.patch_status(name, &PatchParams::default(), &Patch::Merge(&running)).await?;
    Ok(())
}

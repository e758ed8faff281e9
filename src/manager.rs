//! Wiring: which controllers there are, what they watch, and how they start and stop. Decides nothing else.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use dra_act::{EvictionMetrics, Executor, Metrics, PoolMetrics, Shared};
use dra_allocator::Features;
use dra_api::{
    Claim, ClaimTemplate, DeviceTaintRule, Object, Pod, PodGroup, ResourcePoolStatusRequest, names,
    taint::{RuleV1alpha3, RuleV1beta2, RuleVersion},
};
use dra_controllers::{
    resourceclaim::{Key, ResourceClaims},
    view::{DeviceClass, ResourceSlice, Tracked},
};
use dra_runtime::{
    Chance, Clock, events,
    queue::{Queue, QueuesMetrics},
    watch::Pace,
};
use futures::FutureExt;
use kube::Client;
use prometheus::Registry;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    cli::Settings,
    eviction::EvictionController,
    kinds::{KindStatus, WatchMetrics, follow, until_unserved, wait_until_served},
    pools::PoolController,
    server::{self, Reporter},
};

/// How often unconfirmed writes are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// How long work in progress may take after the signal to stop.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Runs the controllers until `stop` resolves, then stops within [`STOP_WITHIN`]. Metrics are served on `listener`.
///
/// # Errors
/// When something that runs in the background has ended, without which the manager would only seem to work: whoever
/// started this process starts it again.
pub(crate) async fn run(
    client: Client,
    watches: &Watches,
    settings: &Settings,
    listener: Option<TcpListener>,
    clock: Clock,
    chance: Arc<Chance>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let registry = Registry::new();
    let controller = ResourceClaims { gates: settings.gates };
    let queues = QueuesMetrics::new(&registry)?;
    let queue = Arc::new(Queue::new(queues.queue(names::CLAIM_EVENT_COMPONENT), Arc::clone(&chance)));
    let evicting = settings.eviction.as_ref();
    let eviction = evicting
        .map(|settings| EvictionController::new(settings, &queues, &registry, &chance).map(Arc::new))
        .transpose()?;
    let pools = settings
        .pools
        .map(|settings| PoolController::new(settings, &queues, &registry, &chance).map(Arc::new))
        .transpose()?;
    let shared = view_of(
        clock,
        settings.resourceclaim.then_some((controller, &queue)),
        eviction.as_ref(),
        pools.as_ref(),
    );
    let (recorder, writer) = events::recorder(names::CLAIM_EVENT_COMPONENT, instance(), clock, &registry)?;
    let metrics = Metrics::new(&registry)?;
    let executor_of = |controller, by| {
        Executor::new(client.clone(), Arc::clone(&shared), recorder.of(controller), metrics.clone())
            .journaling(settings.journal.as_ref(), by)
    };
    let evictor = if eviction.is_some() {
        let executor = executor_of(names::EVICTION_CONTROLLER, "device-taint-eviction");
        Some(Arc::new(executor.counting_evictions(EvictionMetrics::new(&registry)?)))
    } else {
        None
    };
    let answerer = if pools.is_some() {
        let executor = executor_of(names::POOL_STATUS_CONTROLLER, "resource-pool-status-request");
        Some(Arc::new(executor.counting_answers(PoolMetrics::new(&registry)?)))
    } else {
        None
    };
    let executor = Executor::new(client.clone(), Arc::clone(&shared), recorder, metrics);
    let executor = Arc::new(executor.journaling(settings.journal.as_ref(), "resourceclaim"));
    let watch_metrics = WatchMetrics::new(&registry)?;

    let mut background = JoinSet::new();
    let mut start = Start { watches, shared: &shared, metrics: &watch_metrics, chance: &chance };
    let kinds = start.kinds(&mut background, settings, controller, &queue);
    if let Some(listener) = listener {
        let (shared, queue) = (Arc::clone(&shared), Arc::clone(&queue));
        let controllers = (eviction.clone(), pools.clone());
        let reporter = Reporter::new(registry, shared, queue, controllers, kinds.clone(), settings.debug)?;
        background.spawn(async move {
            let served = axum::serve(listener, server::router(Arc::new(reporter))).await;
            format!("the metrics endpoint: {served:?}")
        });
    }
    background.spawn(async move {
        writer.run(client).await;
        "the event writer".to_owned()
    });
    background.spawn(keep_house(Arc::clone(&executor)));
    start_timers(&queue, eviction.as_ref(), pools.as_ref(), &mut background);

    let mut workers = JoinSet::new();
    let all_ready = async {
        for kind in &kinds {
            kind.ready().await;
        }
    };
    let until = async {
        tokio::select! {
            biased;
            () = stop => Ok(()),
            error = ended(&mut background) => Err(error),
        }
    };
    tokio::pin!(until);
    let result = tokio::select! {
        biased;
        result = &mut until => result,
        () = all_ready => {
            tracing::info!(workers = settings.workers, "the view is complete; work begins");
            if settings.resourceclaim {
                start_claims(controller, settings.workers, &queue, &executor, &mut workers);
            }
            if let (Some(eviction), Some(evictor)) = (&eviction, &evictor) {
                eviction.start(evictor, &mut workers);
            }
            if let (Some(pools), Some(answerer)) = (&pools, &answerer) {
                pools.start(answerer, &mut workers);
            }
            until.await
        }
    };

    tracing::info!("stopping");
    queue.close();
    if let Some(eviction) = &eviction {
        eviction.close();
    }
    if let Some(pools) = &pools {
        pools.close();
    }
    finish(workers).await;
    result
}

/// The view, which tells each controller that runs of its changes. It keeps devices only for who needs them.
fn view_of(
    clock: Clock,
    claims: Option<(ResourceClaims, &Arc<Queue<Key>>)>,
    eviction: Option<&Arc<EvictionController>>,
    pools: Option<&Arc<PoolController>>,
) -> Arc<Shared> {
    let claims = claims.map(|(controller, queue)| (controller, Arc::clone(queue)));
    let needs_devices = eviction.is_some() || pools.is_some();
    let (eviction, pools) = (eviction.cloned(), pools.cloned());
    let shared = Arc::new(Shared::new(
        clock,
        Box::new(move |view, change| {
            if let Some((controller, queue)) = &claims {
                for key in controller.affected(view, change) {
                    queue.add(key);
                }
            }
            if let Some(eviction) = &eviction {
                eviction.follow(view, change);
            }
            if let Some(pools) = &pools {
                pools.follow(view, change);
            }
        }),
    ));
    if needs_devices {
        shared.update(|view, _| {
            // Slices can name compatibility groups only where their gate is on, whatever its default.
            view.keep_devices(Features { compatibility_groups: true, ..Features::default() });
            None
        });
    }
    shared
}

/// Starts the workers of the claim controller.
fn start_claims(
    controller: ResourceClaims,
    count: usize,
    queue: &Arc<Queue<Key>>,
    executor: &Arc<Executor>,
    workers: &mut JoinSet<()>,
) {
    for _ in 0..count {
        let (queue, executor) = (Arc::clone(queue), Arc::clone(executor));
        workers.spawn(async move {
            queue
                .run_worker(|key: Key| {
                    let executor = Arc::clone(&executor);
                    async move { executor.settle(&key, |view, pass| controller.plan(view, &key, pass)).await }
                })
                .await;
        });
    }
}

/// Starts what puts keys back into the queues when their time has come.
fn start_timers(
    queue: &Arc<Queue<Key>>,
    eviction: Option<&Arc<EvictionController>>,
    pools: Option<&Arc<PoolController>>,
    background: &mut JoinSet<String>,
) {
    let queue = Arc::clone(queue);
    background.spawn(async move {
        queue.run_timer().await;
        "the timer".to_owned()
    });
    if let Some(eviction) = eviction.cloned() {
        background.spawn(async move {
            eviction.run_timers().await;
            "the timers of evictions".to_owned()
        });
    }
    if let Some(pools) = pools.cloned() {
        background.spawn(async move {
            pools.run_timer().await;
            "the timer of pool status requests".to_owned()
        });
    }
}

/// Waits for work in progress, but not for ever.
async fn finish(mut workers: JoinSet<()>) {
    let finished = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_WITHIN, finished).await.is_err() {
        tracing::warn!(
            seconds = STOP_WITHIN.as_secs(),
            "requests in progress were given up; the next start finds out what became of them"
        );
    }
}

/// Waits until a part of the manager that should run for ever has ended, and says which.
async fn ended(background: &mut JoinSet<String>) -> anyhow::Error {
    let part = background.join_next().await.unwrap_or_else(|| Ok("everything".to_owned()));
    anyhow!("a part of the manager has ended: {}", part.unwrap_or_else(|panic| panic.to_string()))
}

/// Looks after unconfirmed writes now and then, for ever.
async fn keep_house(executor: Arc<Executor>) -> String {
    loop {
        tokio::time::sleep(HOUSEKEEPING).await;
        if AssertUnwindSafe(executor.confirm_overdue()).catch_unwind().await.is_err() {
            tracing::error!("unconfirmed writes could not be looked after; trying again");
        }
    }
}

/// Where watches run.
#[derive(Clone)]
pub(crate) struct Watches {
    /// Their connections; a client's connections live on the runtime that first used them.
    pub(crate) client: Client,
    /// A runtime of their own, or the one that everything else runs on.
    pub(crate) runtime: Option<tokio::runtime::Handle>,
    /// How often that runtime's thread wakes up.
    pub(crate) pace: Pace,
}

/// What every watch needs.
struct Start<'a> {
    watches: &'a Watches,
    shared: &'a Arc<Shared>,
    metrics: &'a WatchMetrics,
    chance: &'a Arc<Chance>,
}

impl Start<'_> {
    /// Starts to watch what the controllers that run have to know.
    fn kinds(
        &mut self,
        tasks: &mut JoinSet<String>,
        settings: &Settings,
        controller: ResourceClaims,
        queue: &Arc<Queue<Key>>,
    ) -> Vec<Arc<KindStatus>> {
        let mut kinds = Vec::new();
        if settings.resourceclaim || settings.eviction.is_some() {
            kinds.push(self.follow::<Pod>(tasks, true, || {}));
        }
        let needs_devices = settings.eviction.is_some() || settings.pools.is_some();
        if settings.resourceclaim || needs_devices {
            kinds.push(self.follow::<Claim>(tasks, true, || {}));
        }
        if needs_devices {
            kinds.push(self.follow::<ResourceSlice>(tasks, true, || {}));
            let rules = settings.eviction.as_ref().is_some_and(|eviction| eviction.rules)
                || settings.pools.is_some_and(|pools| pools.rules);
            if rules {
                kinds.push(self.follow_rules(tasks));
            }
            if settings.eviction.as_ref().is_some_and(|eviction| eviction.rules) {
                // For rules that select by class. Not required: without it, these say that the class is missing.
                kinds.push(self.follow::<DeviceClass>(tasks, false, || {}));
            }
        }
        if settings.pools.is_some() {
            // They are few, and somebody waits for each answer: they are not left to gather, nor do they slow others down.
            let watches = Watches { pace: Pace::default(), ..self.watches.clone() };
            let mut start = Start { watches: &watches, ..*self };
            kinds.push(start.follow::<ResourcePoolStatusRequest>(tasks, false, || {}));
        }
        if settings.resourceclaim {
            kinds.push(self.follow::<ClaimTemplate>(tasks, true, || {}));
            if controller.wants_pod_groups() {
                let (shared, queue) = (Arc::clone(self.shared), Arc::clone(queue));
                kinds.push(self.follow::<PodGroup>(tasks, false, move || {
                    pod_groups_synced(&shared, &queue, controller);
                }));
            }
        }
        kinds
    }

    /// Starts to watch a kind, and does so again should the watch panic.
    fn follow<T: Tracked>(
        &mut self,
        tasks: &mut JoinSet<String>,
        required: bool,
        on_synced: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Arc<KindStatus> {
        let status = KindStatus::new::<T>(required);
        let Watches { client, pace, .. } = self.watches.clone();
        let (shared, metrics, chance) =
            (Arc::clone(self.shared), self.metrics.clone(), Arc::clone(self.chance));
        let returned = Arc::clone(&status);
        let task = async move {
            wait_until_served(&client, &status, &[T::KIND]).await;
            loop {
                let watch = follow::<T, T>(
                    client.clone(),
                    Arc::clone(&shared),
                    Arc::clone(&status),
                    metrics.clone(),
                    Arc::clone(&chance),
                    pace.clone(),
                    on_synced.clone(),
                );
                let panicked = AssertUnwindSafe(watch).catch_unwind().await.is_err();
                tracing::error!(kind = T::KIND.kind, panicked, "a watch has ended; it is started again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        match &self.watches.runtime {
            Some(runtime) => tasks.spawn_on(task, runtime),
            None => tasks.spawn(task),
        };
        returned
    }

    /// Starts to watch taint rules in the best version that the API server serves.
    fn follow_rules(&mut self, tasks: &mut JoinSet<String>) -> Arc<KindStatus> {
        let status = KindStatus::new::<DeviceTaintRule>(false);
        let Watches { client, pace, .. } = self.watches.clone();
        let (shared, metrics, chance) =
            (Arc::clone(self.shared), self.metrics.clone(), Arc::clone(self.chance));
        let returned = Arc::clone(&status);
        let versions = [RuleVersion::V1, RuleVersion::V1beta2, RuleVersion::V1alpha3];
        let task = async move {
            loop {
                let served = wait_until_served(&client, &status, &versions.map(RuleVersion::kind)).await;
                let version = versions.get(served).copied().unwrap_or(RuleVersion::V1);
                let kind = version.kind();
                let unserved = until_unserved(&client, &status, &kind);
                let (client, pace, status) = (client.clone(), pace.clone(), Arc::clone(&status));
                let (shared, metrics, chance) = (Arc::clone(&shared), metrics.clone(), Arc::clone(&chance));
                let watch = async move {
                    match version {
                        RuleVersion::V1 => {
                            follow_as::<DeviceTaintRule>(client, shared, status, metrics, chance, pace).await;
                        }
                        RuleVersion::V1beta2 => {
                            follow_as::<RuleV1beta2>(client, shared, status, metrics, chance, pace).await;
                        }
                        RuleVersion::V1alpha3 => {
                            follow_as::<RuleV1alpha3>(client, shared, status, metrics, chance, pace).await;
                        }
                    }
                };
                tokio::select! {
                    biased;
                    ended = AssertUnwindSafe(watch).catch_unwind() => {
                        let panicked = ended.is_err();
                        tracing::error!(kind = "DeviceTaintRule", panicked, "a watch has ended; it is started again");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                    () = unserved => {
                        let api_version = kind.api_version();
                        tracing::warn!(kind = "DeviceTaintRule", api_version, "is not served any more");
                    }
                }
            }
        };
        match &self.watches.runtime {
            Some(runtime) => tasks.spawn_on(task, runtime),
            None => tasks.spawn(task),
        };
        returned
    }
}

/// Follows taint rules in one version.
async fn follow_as<W: Object + Into<DeviceTaintRule>>(
    client: Client,
    shared: Arc<Shared>,
    status: Arc<KindStatus>,
    metrics: WatchMetrics,
    chance: Arc<Chance>,
    pace: Pace,
) {
    follow::<W, DeviceTaintRule>(client, shared, status, metrics, chance, pace, || {}).await;
}

/// PodGroups are served and known from here on. If that comes after the start, everything that waited for it is
/// looked at again.
fn pod_groups_synced(shared: &Shared, queue: &Queue<Key>, controller: ResourceClaims) {
    let mut new = false;
    shared.update(|view, _| {
        new = !std::mem::replace(&mut view.pod_groups_served, true);
        None
    });
    if new {
        for key in shared.read(|view| controller.everything(view)) {
            queue.add(key);
        }
    }
}

/// Name of this process in events: the Pod's name, which is its host name.
fn instance() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "dra-controller-manager".to_owned())
}

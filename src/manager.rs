//! Wiring: which controllers there are, what they watch, and how they start and stop. Decides nothing else.

use std::{future::Future, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use dra_act::{Executor, Metrics, Shared};
use dra_api::{Claim, ClaimTemplate, Pod, PodGroup, names};
use dra_controllers::resourceclaim::{Key, ResourceClaims};
use dra_runtime::{
    Chance, Clock, events,
    queue::{Queue, QueueMetrics},
};
use futures::FutureExt;
use kube::Client;
use prometheus::Registry;
use tokio::{net::TcpListener, task::JoinSet};

use crate::{
    cli::Settings,
    kinds::{KindStatus, WatchMetrics, follow},
    server::{self, Reporter},
};

/// How often unconfirmed writes are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// How long work in progress may take after the signal to stop.
const STOP_WITHIN: Duration = Duration::from_secs(8);

/// Runs the controllers until `stop` resolves, then stops within [`STOP_WITHIN`]. Metrics are served on `listener`.
pub(crate) async fn run(
    client: Client,
    settings: &Settings,
    listener: Option<TcpListener>,
    clock: Clock,
    chance: Arc<Chance>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let registry = Registry::new();
    let controller = ResourceClaims { gates: settings.gates };
    let queue_metrics = QueueMetrics::new(&registry, names::CLAIM_EVENT_COMPONENT)?;
    let queue = Arc::new(Queue::new(queue_metrics, Arc::clone(&chance)));
    let shared = Arc::new(Shared::new(clock, {
        let queue = Arc::clone(&queue);
        Box::new(move |view, change| {
            for key in controller.affected(view, change) {
                queue.add(key);
            }
        })
    }));
    let (recorder, writer) = events::recorder(names::CLAIM_EVENT_COMPONENT, instance(), clock, &registry)?;
    let executor =
        Arc::new(Executor::new(client.clone(), Arc::clone(&shared), recorder, Metrics::new(&registry)?));
    let watch_metrics = WatchMetrics::new(&registry)?;

    let mut background = JoinSet::new();
    let mut kinds = Vec::new();
    if settings.resourceclaim {
        let mut start = Start { client: &client, shared: &shared, metrics: &watch_metrics, chance: &chance };
        kinds.push(start.follow::<Pod>(&mut background, true, || {}));
        kinds.push(start.follow::<Claim>(&mut background, true, || {}));
        kinds.push(start.follow::<ClaimTemplate>(&mut background, true, || {}));
        if controller.wants_pod_groups() {
            let (shared, queue) = (Arc::clone(&shared), Arc::clone(&queue));
            kinds.push(start.follow::<PodGroup>(&mut background, false, move || {
                pod_groups_synced(&shared, &queue, controller);
            }));
        }
    }
    if let Some(listener) = listener {
        registry
            .register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))
            .context("cannot register process metrics")?;
        let reporter =
            Arc::new(Reporter::new(registry, Arc::clone(&shared), Arc::clone(&queue), kinds.clone())?);
        background.spawn(async move {
            if let Err(error) = axum::serve(listener, server::router(reporter)).await {
                tracing::error!(%error, "the metrics endpoint has ended");
            }
        });
    }
    background.spawn(writer.run(client));
    background.spawn({
        let executor = Arc::clone(&executor);
        async move {
            loop {
                tokio::time::sleep(HOUSEKEEPING).await;
                executor.confirm_overdue().await;
            }
        }
    });
    background.spawn({
        let queue = Arc::clone(&queue);
        async move { queue.run_timer().await }
    });

    let mut workers = JoinSet::new();
    let all_ready = async {
        for kind in &kinds {
            kind.ready().await;
        }
    };
    tokio::pin!(stop);
    tokio::select! {
        biased;
        () = &mut stop => {}
        () = all_ready => {
            tracing::info!(workers = settings.workers, "the view is complete; work begins");
            if settings.resourceclaim {
                for _ in 0..settings.workers {
                    let (queue, executor) = (Arc::clone(&queue), Arc::clone(&executor));
                    workers.spawn(async move {
                        queue
                            .run_worker(|key: Key| {
                                let executor = Arc::clone(&executor);
                                async move {
                                    executor
                                        .settle(&key, |view, pass| controller.plan(view, &key, pass))
                                        .await
                                }
                            })
                            .await;
                    });
                }
            }
            stop.await;
        }
    }

    tracing::info!("stopping");
    queue.close();
    let finished = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_WITHIN, finished).await.is_err() {
        tracing::warn!(
            seconds = STOP_WITHIN.as_secs(),
            "requests in progress were given up; the next start finds out what became of them"
        );
    }
    Ok(())
}

/// What every watch needs.
struct Start<'a> {
    client: &'a Client,
    shared: &'a Arc<Shared>,
    metrics: &'a WatchMetrics,
    chance: &'a Arc<Chance>,
}

impl Start<'_> {
    /// Starts to watch a kind, and does so again should the watch panic.
    fn follow<T: dra_controllers::view::Tracked>(
        &mut self,
        tasks: &mut JoinSet<()>,
        required: bool,
        on_synced: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Arc<KindStatus> {
        let status = KindStatus::new::<T>(required);
        let (client, shared, metrics, chance) =
            (self.client.clone(), Arc::clone(self.shared), self.metrics.clone(), Arc::clone(self.chance));
        let returned = Arc::clone(&status);
        tasks.spawn(async move {
            loop {
                let watch = follow::<T>(
                    client.clone(),
                    Arc::clone(&shared),
                    Arc::clone(&status),
                    metrics.clone(),
                    Arc::clone(&chance),
                    on_synced.clone(),
                );
                let panicked = AssertUnwindSafe(watch).catch_unwind().await.is_err();
                tracing::error!(kind = T::KIND.kind, panicked, "a watch has ended; it is started again");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        returned
    }
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

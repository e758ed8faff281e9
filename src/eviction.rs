//! The taint eviction controller's queues and workers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use dra_act::Executor;
use dra_api::names;
use dra_controllers::{
    devicetainteviction::{DeviceTaintEviction, Key},
    plan::Action,
    view::{Change, View},
};
use dra_runtime::{
    Chance,
    limit::RateLimit,
    queue::{Queue, QueuesMetrics},
};
use prometheus::{IntCounter, IntGauge, IntGaugeVec, Opts, Registry};
use tokio::{sync::watch, task::JoinSet};

use crate::cli::EvictionSettings;

/// Workers that write conditions of rules: a slow write holds up no eviction, and hardly any other condition.
const STATUS_WORKERS: usize = 4;

/// Workers that expand rules.
const EXPANSION_WORKERS: usize = 8;
/// How long changes of slices are gathered before it is worked out again what rules select by annotation.
const GATHER: Duration = Duration::from_secs(1);

/// Four queues, so that nothing waits for what takes longer: judging Pods makes no request, evicting takes two
/// requests and may be limited, conditions may be slow to write, and a rule may be expanded into a thousand.
#[derive(Debug)]
pub(crate) struct EvictionController {
    planner: DeviceTaintEviction,
    judging: Queue<Key>,
    evicting: Queue<Key>,
    reporting: Queue<Key>,
    expanding: Queue<Key>,
    workers: usize,
    limit: Option<RateLimit>,
    stopped: watch::Sender<bool>,
    states: IntGaugeVec,
    held: IntGauge,
    cancelled: IntCounter,
    expanded: IntGaugeVec,
    not_expanded: IntGauge,
}

impl EvictionController {
    pub(crate) fn new(
        settings: &EvictionSettings,
        queues: &QueuesMetrics,
        registry: &Registry,
        chance: &Arc<Chance>,
    ) -> Result<Self> {
        let queue = |name: &str| Queue::ranked(queues.queue(name), Arc::clone(chance), Key::rank);
        let states = IntGaugeVec::new(
            Opts::new(
                "dra_controller_manager_taint_evictions",
                "Pods that a taint with the effect makes go, by state: tolerated (for some time yet), due, overdue \
                 (due for more than a minute), blocked (by a PodDisruptionBudget), paused (by annotation)",
            ),
            &["effect", "state"],
        )?;
        let held = IntGauge::new(
            "dra_controller_manager_taint_rules_held",
            "NoExecute rules that select every device of the cluster and evict nobody before that is confirmed",
        )?;
        let cancelled = IntCounter::new(
            "dra_controller_manager_taint_evictions_cancelled_total",
            "Evictions that were called off because the taint went or is tolerated",
        )?;
        let expanded = IntGaugeVec::new(
            Opts::new(
                "dra_controller_manager_expanded_taint_rules",
                "DeviceTaintRules into which others are expanded that select by class or expression, by state: \
                 in_place, missing (to be created)",
            ),
            &["state"],
        )?;
        let not_expanded = IntGauge::new(
            "dra_controller_manager_taint_rules_not_expanded",
            "Rules that select by class or expression and are not expanded: the selection is not valid, its class does \
             not exist, or it selects too many devices",
        )?;
        registry.register(Box::new(expanded.clone()))?;
        registry.register(Box::new(not_expanded.clone()))?;
        registry.register(Box::new(states.clone()))?;
        registry.register(Box::new(held.clone()))?;
        registry.register(Box::new(cancelled.clone()))?;
        Ok(Self {
            planner: settings.planner,
            judging: queue("device-taint-eviction-controller-judging"),
            evicting: queue(names::EVICTION_CONTROLLER),
            reporting: queue("device-taint-eviction-controller-status"),
            expanding: queue("device-taint-eviction-controller-expansion"),
            workers: settings.workers,
            limit: settings.qps.map(|qps| RateLimit::new(qps, 1)),
            stopped: watch::channel(false).0,
            states,
            held,
            cancelled,
            expanded,
            not_expanded,
        })
    }

    /// Queues what follows from a change.
    pub(crate) fn follow(&self, view: &View, change: &Change) {
        for key in self.planner.affected(view, change) {
            match key {
                Key::Pod(_) => self.judging.add(key),
                Key::Evict { .. } => self.evicting.add(key),
                Key::Rule(_) => self.reporting.add(key),
                Key::Expand(_) if matches!(change, Change::Slice(_)) => self.expanding.add_later(key, GATHER),
                Key::Expand(_) | Key::Child { .. } => self.expanding.add(key),
            }
        }
    }

    /// Moves keys whose time has come, for ever.
    pub(crate) async fn run_timers(&self) {
        tokio::join!(
            self.judging.run_timer(),
            self.evicting.run_timer(),
            self.reporting.run_timer(),
            self.expanding.run_timer()
        );
    }

    /// Starts the workers.
    pub(crate) fn start(self: &Arc<Self>, executor: &Arc<Executor>, workers: &mut JoinSet<()>) {
        let work = |queue: fn(&Self) -> &Queue<Key>, workers: &mut JoinSet<()>| {
            let (this, executor) = (Arc::clone(self), Arc::clone(executor));
            workers.spawn(async move {
                let planner = this.planner;
                queue(&this)
                    .run_worker(|key: Key| {
                        let executor = Arc::clone(&executor);
                        async move {
                            executor.settle(&key, |view, pass| planner.plan(view, &key, pass)).await
                        }
                    })
                    .await;
            });
        };
        // One is enough for what makes no request; so all Pods of a rule are known before the first one goes.
        work(|this| &this.judging, workers);
        for _ in 0..STATUS_WORKERS {
            work(|this| &this.reporting, workers);
        }
        for _ in 0..EXPANSION_WORKERS {
            work(|this| &this.expanding, workers);
        }
        for _ in 0..self.workers {
            let (this, executor) = (Arc::clone(self), Arc::clone(executor));
            workers.spawn(async move { this.evict(executor).await });
        }
    }

    /// Evicts one Pod after the other. The turn that `--eviction-qps` gives is waited for before a Pod is chosen, and
    /// kept for the next one when nothing was left to do for that Pod.
    async fn evict(&self, executor: Arc<Executor>) {
        let has_turn = Arc::new(AtomicBool::new(false));
        let turn = || {
            let (has_turn, mut stopped) = (Arc::clone(&has_turn), self.stopped.subscribe());
            let limit = self.limit.clone().filter(|_| !has_turn.load(Ordering::Relaxed));
            async move {
                let Some(limit) = limit else { return };
                tokio::select! {
                    () = limit.turn() => has_turn.store(true, Ordering::Relaxed),
                    _ = stopped.wait_for(|stopped| *stopped) => {}
                }
            }
        };
        let planner = self.planner;
        self.evicting
            .run_worker_when(turn, |key: Key| {
                let (executor, has_turn) = (Arc::clone(&executor), Arc::clone(&has_turn));
                async move {
                    let plan = |view: &View, pass: &_| {
                        let plan = planner.plan(view, &key, pass);
                        if plan.actions.iter().any(|action| matches!(action, Action::Evict { .. })) {
                            has_turn.store(false, Ordering::Relaxed);
                        }
                        plan
                    };
                    executor.settle(&key, plan).await
                }
            })
            .await;
    }

    /// Ends the workers after the keys that they work on.
    pub(crate) fn close(&self) {
        self.stopped.send_replace(true);
        self.judging.close();
        self.evicting.close();
        self.reporting.close();
        self.expanding.close();
    }

    /// Brings the gauges up to date; call it before a scrape.
    pub(crate) fn refresh_metrics(&self, view: &View, now: dra_controllers::Elapsed) {
        for queue in [&self.judging, &self.evicting, &self.reporting, &self.expanding] {
            queue.refresh_metrics();
        }
        let counts = view.evictions.counts(now);
        for (state, count) in [
            ("tolerated", counts.tolerated),
            ("due", counts.due),
            ("overdue", counts.overdue),
            ("blocked", counts.blocked),
            ("paused", counts.paused),
        ] {
            self.states
                .with_label_values(&["NoExecute", state])
                .set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        let is_held = |rule: &&dra_api::DeviceTaintRule| {
            rule.taint.effect == dra_api::TaintEffect::NoExecute && self.planner.is_held(rule)
        };
        let held = view.taint_rules.iter().filter(is_held).count();
        self.held.set(i64::try_from(held).unwrap_or(i64::MAX));
        self.refresh_expanded(view);
        self.cancelled.inc_by(view.evictions.cancelled().saturating_sub(self.cancelled.get()));
    }

    fn refresh_expanded(&self, view: &View) {
        let (mut there, mut missing, mut refused) = (0, 0, 0);
        let names = view.index.selecting_rules.iter();
        for rule in names.filter_map(|name| view.taint_rules.get(&dra_api::DeviceTaintRule::key(name))) {
            let progress = self.planner.progress(view, rule).unwrap_or_default();
            there += progress.there;
            if self.planner.is_expansion_refused(view, rule) {
                refused += 1;
            } else {
                missing += progress.wanted.saturating_sub(progress.there);
            }
        }
        for (state, count) in [("in_place", there), ("missing", missing)] {
            self.expanded.with_label_values(&[state]).set(i64::try_from(count).unwrap_or(i64::MAX));
        }
        self.not_expanded.set(refused);
    }
}

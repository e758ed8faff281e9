//! The pool status controller's queue and workers, and the live numbers of all pools.

use std::sync::Arc;

use anyhow::Result;
use dra_act::Executor;
use dra_api::names;
use dra_controllers::{
    resourcepoolstatusrequest::{
        Key, PoolStatusRequests,
        live::{Labels, Level, Live, Numbers, live},
    },
    view::{Change, View},
};
use dra_runtime::{
    Chance,
    queue::{Queue, QueuesMetrics},
};
use prometheus::{GaugeVec, IntGauge, IntGaugeVec, Opts, Registry};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::cli::PoolSettings;

/// Workers: an answer is one request, and its computation takes the only thread.
const WORKERS: usize = 8;

#[derive(Debug)]
pub(crate) struct PoolController {
    planner: PoolStatusRequests,
    queue: Queue<Key>,
    most_series: usize,
    gauges: Gauges,
}

impl PoolController {
    pub(crate) fn new(
        settings: PoolSettings,
        queues: &QueuesMetrics,
        registry: &Registry,
        chance: &Arc<Chance>,
    ) -> Result<Self> {
        Ok(Self {
            planner: PoolStatusRequests,
            queue: Queue::new(queues.queue(names::POOL_STATUS_CONTROLLER), Arc::clone(chance)),
            most_series: settings.most_series,
            gauges: Gauges::new(registry)?,
        })
    }

    /// Queues what follows from a change.
    pub(crate) fn follow(&self, view: &View, change: &Change) {
        for key in self.planner.affected(view, change) {
            self.queue.add(key);
        }
    }

    /// Moves keys whose time has come, for ever.
    pub(crate) async fn run_timer(&self) {
        self.queue.run_timer().await;
    }

    /// Starts the workers.
    pub(crate) fn start(self: &Arc<Self>, executor: &Arc<Executor>, workers: &mut JoinSet<()>) {
        for _ in 0..WORKERS {
            let (this, executor) = (Arc::clone(self), Arc::clone(executor));
            workers.spawn(async move {
                let planner = this.planner;
                this.queue
                    .run_worker(|key: Key| {
                        let executor = Arc::clone(&executor);
                        async move {
                            executor.settle(&key, |view, pass| planner.plan(view, &key, pass)).await
                        }
                    })
                    .await;
            });
        }
    }

    /// Ends the workers after the keys that they work on.
    pub(crate) fn close(&self) {
        self.queue.close();
    }

    /// Brings the gauges up to date; call it before a scrape.
    pub(crate) fn refresh_metrics(&self, view: &View) {
        self.queue.refresh_metrics();
        if let Some(inventory) = view.inventory() {
            self.gauges.set(&live(inventory, self.most_series));
        }
        self.gauges.pending.set(i64::try_from(view.index.unanswered_count()).unwrap_or(i64::MAX));
    }
}

/// All pools as JSON: `status` as a request would be answered, `report` with what the API has no place for.
pub(crate) fn debug_pools(view: &View, driver: Option<&str>, pool: Option<&str>) -> Value {
    let wanted = |text: &str, wanted: Option<&str>| wanted.is_none_or(|wanted| wanted == text);
    let found: Vec<Value> = view
        .inventory()
        .into_iter()
        .flat_map(|inventory| {
            inventory
                .pools()
                .filter(|id| wanted(&id.driver, driver) && wanted(&id.pool, pool))
                .filter_map(|id| serde_json::to_value(&*inventory.pool_summary(id)?).ok())
        })
        .collect();
    Value::Array(found)
}

/// Live numbers. `node` and `pool` are empty where a row stands for several.
#[derive(Debug)]
struct Gauges {
    devices: IntGaugeVec,
    pools: IntGaugeVec,
    faults: IntGaugeVec,
    partitions: IntGaugeVec,
    capacity: GaugeVec,
    stranded: GaugeVec,
    level: IntGaugeVec,
    pending: IntGauge,
}

impl Gauges {
    fn new(registry: &Registry) -> Result<Self> {
        let integers = |name: &str, help: &str, labels: &[&str]| -> Result<IntGaugeVec> {
            let gauge = IntGaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let numbers = |name: &str, help: &str, labels: &[&str]| -> Result<GaugeVec> {
            let gauge = GaugeVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok(gauge)
        };
        let pending = IntGauge::new(
            "dra_controller_manager_pool_status_requests_pending",
            "ResourcePoolStatusRequests without an answer",
        )?;
        registry.register(Box::new(pending.clone()))?;
        Ok(Self {
            devices: integers(
                "dra_pool_devices",
                "Devices by state: total, allocated, available, unavailable (tainted), as a \
                 ResourcePoolStatusRequest would be answered now",
                &["driver", "node", "pool", "state"],
            )?,
            pools: integers(
                "dra_pool_pools",
                "Pools by state: published, incomplete (slices are missing), invalid (any other validation error)",
                &["driver", "node", "pool", "state"],
            )?,
            faults: integers(
                "dra_pool_faulty_devices",
                "Devices that claims have and should not: unpublished (no slice publishes them), conflict (several \
                 claims have them)",
                &["driver", "node", "pool", "fault"],
            )?,
            partitions: integers(
                "dra_pool_partitions",
                "Devices of a partition type: total, and allocatable, which is how many more fit if only this type is \
                 allocated; types are alternatives and cannot be added up",
                &["driver", "node", "pool", "attribute", "type", "state"],
            )?,
            capacity: numbers(
                "dra_pool_shareable_capacity",
                "Capacity of shareable devices: total, free, largest_free (on a single device), stranded (free, and \
                 less than a share can be)",
                &["driver", "node", "pool", "capacity", "state"],
            )?,
            stranded: numbers(
                "dra_pool_stranded_counter",
                "What is left of a shared counter when as many partitions as possible have been allocated",
                &["driver", "node", "pool", "counter"],
            )?,
            level: integers(
                "dra_pool_series_level",
                "1 for what one row of dra_pool_ metrics stands for: pool, or above --max-pool-series node, then driver",
                &["level"],
            )?,
            pending,
        })
    }

    fn set(&self, live: &Live) {
        self.devices.reset();
        self.pools.reset();
        self.faults.reset();
        self.partitions.reset();
        self.capacity.reset();
        self.stranded.reset();
        for level in [Level::Pool, Level::Node, Level::Driver] {
            self.level.with_label_values(&[level.name()]).set(i64::from(level == live.level));
        }
        for (labels, numbers) in &live.rows {
            self.set_row(labels, numbers);
        }
    }

    fn set_row(&self, Labels { driver, node, pool }: &Labels, numbers: &Numbers) {
        let labels = |last: &'static str| [driver.as_str(), node.as_str(), pool.as_str(), last];
        for (state, value) in [
            ("total", numbers.total),
            ("allocated", numbers.allocated),
            ("available", numbers.available),
            ("unavailable", numbers.unavailable),
        ] {
            self.devices.with_label_values(&labels(state)).set(value);
        }
        for (state, value) in
            [("published", numbers.pools), ("incomplete", numbers.incomplete), ("invalid", numbers.invalid)]
        {
            self.pools.with_label_values(&labels(state)).set(value);
        }
        for (fault, value) in [("unpublished", numbers.unpublished), ("conflict", numbers.conflicts)] {
            self.faults.with_label_values(&labels(fault)).set(value);
        }
        for ((attribute, of_type), partition) in &numbers.partitions {
            for (state, value) in [("total", partition.total), ("allocatable", partition.allocatable)] {
                self.partitions
                    .with_label_values(&[driver, node, pool, attribute, of_type, state])
                    .set(value);
            }
        }
        for (name, capacity) in &numbers.capacities {
            for (state, value) in [
                ("total", capacity.total),
                ("free", capacity.free),
                ("largest_free", capacity.largest_free),
                ("stranded", capacity.stranded),
            ] {
                self.capacity.with_label_values(&[driver, node, pool, name, state]).set(value);
            }
        }
        for (counter, value) in &numbers.stranded_counters {
            self.stranded.with_label_values(&[driver, node, pool, counter]).set(*value);
        }
    }
}

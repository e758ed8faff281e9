//! The pool status controller's queue and workers, and the live numbers of all pools.

use std::sync::Arc;

use anyhow::Result;
use dra_act::Executor;
use dra_allocator::{Inventory, PoolId};
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

    /// Brings the gauges of queue and requests up to date; call it before a scrape.
    pub(crate) fn refresh_metrics(&self, view: &View) {
        self.queue.refresh_metrics();
        self.gauges.pending.set(i64::try_from(view.index.unanswered_count()).unwrap_or(i64::MAX));
    }

    /// Brings the gauges of pools up to date. That takes time in a large cluster: give it a snapshot, and not the view
    /// that watches wait for.
    pub(crate) fn refresh_pools(&self, inventory: &Inventory) {
        self.gauges.set(&live(inventory, self.most_series));
    }
}

/// Pools as a JSON list: `status` as a request would be answered, `report` with what the API has no place for. All of
/// them, or those of a driver or name.
pub(crate) fn debug_pools(inventory: &Inventory, driver: Option<&str>, pool: Option<&str>) -> String {
    let wanted = |text: &str, wanted: Option<&str>| wanted.is_none_or(|wanted| wanted == text);
    let mut text = String::from("[");
    let mut add = |id: &PoolId| {
        let Some(summary) = inventory.pool_summary(id) else { return };
        let Ok(json) = serde_json::to_string(&*summary) else { return };
        if text.len() > 1 {
            text.push(',');
        }
        text.push_str(&json);
    };
    if let (Some(driver), Some(pool)) = (driver, pool) {
        add(&PoolId::new(driver, pool));
    } else {
        let found = inventory.pools().filter(|id| wanted(&id.driver, driver) && wanted(&id.pool, pool));
        found.for_each(add);
    }
    text.push(']');
    text
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
                "1 for what one row of dra_pool_ metrics stands for: pool, or above --max-pool-series node, then \
                 driver, driver_only (without partition types, capacities and counters), cluster (likewise)",
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
        for level in Level::ALL {
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

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        io,
        sync::{Mutex, MutexGuard},
        time::Duration,
    };

    use dra_allocator::{Features, objects::ResourceSlice};
    use dra_controllers::resourceclaim::Gates;
    use dra_embedded::Server;
    use dra_runtime::{Clock, watch::Pace};
    use http::Method;
    use serde_json::{Value, json};
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;
    use crate::{cli::Settings, manager};

    const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
    const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
    const TEMPLATES: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates";
    const PODS: &str = "/api/v1/namespaces/default/pods";
    const REQUESTS: &str = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests";

    fn server() -> Server {
        Server::new(1, "2026-01-01T00:00:00Z".parse().unwrap())
    }

    fn post(server: &Server, path: &str, body: &Value) -> u16 {
        server.call(Method::POST, path, "application/json", body).0
    }

    fn slice() -> Value {
        json!({"metadata": {"name": "s"}, "spec": {"driver": "gpu.dev", "allNodes": true,
            "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "a"}, {"name": "b"}]}})
    }

    fn question() -> Value {
        json!({"metadata": {"name": "r"}, "spec": {"driver": "gpu.dev"}})
    }

    /// Runs the manager until the story has been told.
    async fn run(server: &Server, rules: bool, story: impl Future<Output = ()>) {
        let settings = Settings {
            resourceclaim: true,
            gates: Gates::default(),
            workers: 1,
            limit: None,
            eviction: None,
            pools: Some(PoolSettings { most_series: 100, rules }),
            debug: false,
            journal: None,
        };
        let client = server.client();
        let watches = manager::Watches { client: client.clone(), runtime: None, pace: Pace::default() };
        let (clock, chance) = (Clock::starting_at(server.now()), Arc::new(Chance::seeded(1)));
        let manager = manager::run(client, &watches, &settings, None, clock, chance, pending());
        tokio::select! {
            result = manager => panic!("the manager has ended: {result:?}"),
            () = story => {}
        }
    }

    /// The status of the request, as soon as there is one.
    async fn answer(server: &Server) -> Value {
        loop {
            let found = server.objects("ResourcePoolStatusRequest");
            let status = found.first().and_then(|request| request.get("status").cloned());
            if let Some(status) = status.filter(|status| !status.is_null()) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
            self.0.lock().unwrap()
        }
    }

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Log {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_that_is_not_served_is_said_once_and_found_when_it_appears() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let server = server();
        server.serve("ResourcePoolStatusRequest", "v1alpha3", false);
        assert_eq!(post(&server, SLICES, &slice()), 201);
        run(&server, true, async {
            tokio::time::sleep(Duration::from_mins(5)).await;
            let template = json!({"metadata": {"name": "t"}, "spec": {"spec": {"devices": {}}}});
            assert_eq!(post(&server, TEMPLATES, &template), 201);
            let entries = json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]);
            let spec = json!({"containers": [{"name": "c", "image": "i:1"}], "resourceClaims": entries});
            assert_eq!(post(&server, PODS, &json!({"metadata": {"name": "web"}, "spec": spec})), 201);
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(server.objects("ResourceClaim").len(), 1, "everything else runs");

            server.serve("ResourcePoolStatusRequest", "v1alpha3", true);
            assert_eq!(post(&server, REQUESTS, &question()), 201);
            let status = tokio::time::timeout(Duration::from_mins(1), answer(&server)).await.unwrap();
            assert_eq!(status["pools"][0]["totalDevices"], 2, "{status}");
        })
        .await;
        let text = String::from_utf8(log.lock().clone()).unwrap();
        let said =
            text.lines().filter(|line| line.contains("does not serve") && line.contains("PoolStatusRequest"));
        assert_eq!(said.count(), 1, "{text}");
    }

    /// `taint rule applies when gate is enabled` and `… ignored when gate is disabled` of `controller_test.go`.
    #[tokio::test(start_paused = true)]
    async fn rules_count_only_where_their_gate_is_on() {
        for (gate, unavailable) in [(true, 1), (false, 0)] {
            let server = server();
            assert_eq!(post(&server, SLICES, &slice()), 201);
            let selector = json!({"driver": "gpu.dev", "pool": "p", "device": "a"});
            let rule = json!({"metadata": {"name": "rule"},
                "spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoSchedule"}}});
            assert_eq!(post(&server, RULES, &rule), 201);
            run(&server, gate, async {
                assert_eq!(post(&server, REQUESTS, &question()), 201);
                let status = tokio::time::timeout(Duration::from_mins(1), answer(&server)).await.unwrap();
                let pool = &status["pools"][0];
                assert_eq!(
                    (&pool["unavailableDevices"], &pool["totalDevices"]),
                    (&json!(unavailable), &json!(2))
                );
            })
            .await;
        }
    }

    /// End to end in virtual time: the answer, and the end of the request an hour later.
    #[tokio::test(start_paused = true)]
    async fn a_request_is_answered_at_once_and_gone_after_an_hour() {
        let server = server();
        assert_eq!(post(&server, SLICES, &slice()), 201);
        run(&server, true, async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(post(&server, REQUESTS, &question()), 201);
            let status = tokio::time::timeout(Duration::from_secs(1), answer(&server)).await.unwrap();
            assert_eq!(status["conditions"][0]["type"], "Complete");
            tokio::time::sleep(Duration::from_mins(59)).await;
            assert_eq!(server.objects("ResourcePoolStatusRequest").len(), 1);
            tokio::time::sleep(Duration::from_mins(2)).await;
            assert!(server.objects("ResourcePoolStatusRequest").is_empty());
        })
        .await;
    }

    #[test]
    fn pools_are_shown_by_driver_and_name() {
        let mut inventory = Inventory::new(Features::ALL);
        for (name, driver, pool) in [("s", "a.dev", "p"), ("t", "a.dev", "q"), ("u", "b.dev", "p")] {
            let mut slice = ResourceSlice::default();
            slice.metadata.name = name.to_owned();
            slice.spec.driver = driver.to_owned();
            slice.spec.pool.name = pool.to_owned();
            inventory.apply_slice(&slice);
        }
        let names = |driver, pool| -> Vec<String> {
            let found: Vec<Value> = serde_json::from_str(&debug_pools(&inventory, driver, pool)).unwrap();
            assert!(found.iter().all(|one| one["status"]["poolName"].is_string()), "{found:?}");
            found.iter().map(|one| one["report"]["pool"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(None, None), ["a.dev/p", "a.dev/q", "b.dev/p"]);
        assert_eq!(names(Some("a.dev"), None), ["a.dev/p", "a.dev/q"]);
        assert_eq!(names(None, Some("p")), ["a.dev/p", "b.dev/p"]);
        assert_eq!(names(Some("b.dev"), Some("p")), ["b.dev/p"]);
        assert_eq!(names(Some("b.dev"), Some("q")), [""; 0]);
    }
}

//! One rule and a great many Pods: the manager crashes in the middle, again and again, and every Pod goes once.
//!
//! Unlike a seed ([`crate::run`]) this is one story at full size, with everybody doing what is expected of them: only
//! the connection is bad and the manager dies, each time at a request that it has just made, whose answer it does not
//! live to see.

use std::{
    collections::BTreeMap,
    future::pending,
    sync::{Arc, Mutex},
    time::Duration,
};

use anyhow::{Result, anyhow};
use dra_controller_manager::Controllers;
use dra_embedded::{Exchange, Faults, Observer, Rates, Server};
use dra_inhabitants::{
    cluster::{Cluster, is_deleting, items, text, uid},
    kubelet::Kubelet,
};
use dra_runtime::{Chance, Clock};
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    judge::DISRUPTED,
    lives::{Line, client},
    run::{BEGINNING, lock, virtual_time},
    taints::condition,
};

/// Namespaces that the Pods live in.
const NAMESPACES: usize = 20;
/// Of a hundred Pods in a row, these share one claim; each other one has its own.
const SHARE: std::ops::Range<usize> = 90..100;
/// For how many seconds some claims tolerate the taint.
const PATIENCE: i64 = 60;
/// Keys that the manager works on at once; the default.
const WORKERS: usize = 8;
/// How often the kubelets look, and how often it is asked whether all is over.
const TICK: Duration = Duration::from_secs(5);
/// All is over when nobody has written anything for so long.
const QUIET: Duration = Duration::from_mins(1);
/// It must be over by then.
const OVER_BY: Duration = Duration::from_hours(1);
const DRIVER: &str = "gpu.example.com";
const RULE: &str = "broken";

/// The size of the story.
#[derive(Clone, Copy, Debug)]
pub struct Mass {
    /// What faults, crashes and names are drawn from.
    pub seed: u64,
    /// Pods with a device, whether they have to go or not.
    pub pods: usize,
    /// How often the manager crashes before the last Pod has gone.
    pub crashes: usize,
}

/// How it went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Pods that had to go.
    pub going: usize,
    /// How often the manager crashed.
    pub crashes: usize,
    /// Requests of the manager.
    pub requests: usize,
    /// Of those, changes of the status of Pods.
    pub marks: usize,
    /// Of those, deletions of Pods that were accepted.
    pub deletions: usize,
    /// Of those, changes of the status of the rule.
    pub reports: usize,
    /// Time from the beginning to the end, as the cluster's clock shows it.
    pub took: Duration,
    /// What must not be.
    pub wrong: Vec<String>,
}

/// What becomes of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lot {
    /// It goes at once.
    Goes,
    /// It goes when it has been patient for [`PATIENCE`].
    GoesLater,
    /// Its claim tolerates the taint.
    Tolerates,
    /// Its device is not selected.
    Elsewhere,
}

impl Lot {
    fn of(number: usize) -> Self {
        match number % 10 {
            _ if SHARE.contains(&(number % 100)) => Self::Goes,
            0 => Self::Tolerates,
            1 => Self::GoesLater,
            2 => Self::Elsewhere,
            _ => Self::Goes,
        }
    }

    fn goes(self) -> bool {
        matches!(self, Self::Goes | Self::GoesLater)
    }
}

/// When a life of the manager ends.
#[derive(Clone, Copy, Debug)]
struct Crash {
    /// So many Pods were evicted, by it and those before.
    evicted: usize,
    /// The last request marks a Pod, instead of deleting one.
    marking: bool,
}

#[derive(Debug, Default)]
struct Notes {
    outcome: Outcome,
    /// How often each Pod was evicted, by namespace and name.
    evicted: BTreeMap<String, usize>,
    /// How many the present life has evicted.
    by_this_life: usize,
}

struct World {
    mass: Mass,
    cluster: Cluster,
    faults: Arc<Faults>,
    random: Mutex<fastrand::Rng>,
    /// Lots by namespace and name.
    lots: BTreeMap<String, Lot>,
    notes: Arc<Mutex<Notes>>,
}

/// Lets it happen.
///
/// # Errors
/// The story cannot be prepared.
pub fn run(mass: Mass) -> Result<Outcome> {
    // The world begins inside: its time is the runtime's.
    virtual_time()?.block_on(async { Ok(World::new(mass)?.tell().await) })
}

/// Requests fail now and then, and watches lag.
fn rates() -> Rates {
    Rates {
        error: 5,
        conflict: 10,
        lost_after: 5,
        error_after: 5,
        slow: 100,
        slowest: Duration::from_millis(500),
        watch_closes: 1,
        watch_drops: 1,
        watch_lag: Duration::from_secs(2),
        ..Rates::default()
    }
}

impl World {
    fn new(mass: Mass) -> Result<Self> {
        let mut random = fastrand::Rng::with_seed(mass.seed);
        let cluster = Cluster::new(Server::new(random.u64(..), Timestamp::from_second(BEGINNING)?), "");
        let mut world = Self {
            mass,
            faults: Arc::new(Faults::seeded(random.u64(..), rates())),
            cluster,
            random: Mutex::new(random),
            lots: BTreeMap::new(),
            notes: Arc::default(),
        };
        for number in 0..mass.pods {
            world.settle(number)?;
        }
        let going = world.lots.values().filter(|lot| lot.goes()).count();
        lock(&world.notes).outcome.going = going;
        Ok(world)
    }

    /// A Pod that runs, with its claim.
    fn settle(&mut self, number: usize) -> Result<()> {
        let lot = Lot::of(number);
        let (namespace, name) = (format!("ns-{}", number / 100 % NAMESPACES), format!("pod-{number:06}"));
        let shares = SHARE.contains(&(number % 100));
        let claim = if shares { format!("shared-{:06}", number / 100) } else { name.clone() };
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "nodeName": "node",
                "containers": [{"name": "c", "image": "i"}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
            },
            "status": {"phase": "Running"},
        });
        let server = &self.cluster.server;
        let pod = server.load(pod).map_err(|error| anyhow!("Pod {name}: {error}"))?;
        self.lots.insert(format!("{namespace}/{name}"), lot);
        let mut tolerations = Vec::new();
        if lot == Lot::Tolerates {
            tolerations.push(json!({"operator": "Exists", "effect": "NoExecute"}));
        }
        if lot == Lot::GoesLater {
            tolerations.push(json!({"operator": "Exists", "tolerationSeconds": PATIENCE}));
        }
        let pool = if lot == Lot::Elsewhere { "elsewhere" } else { "here" };
        let mut consumers = match self.cluster.server.object("ResourceClaim", &namespace, &claim) {
            Some(known) => items(&known, &["status", "reservedFor"]).to_vec(),
            None => Vec::new(),
        };
        consumers.push(json!({"resource": "pods", "name": name, "uid": uid(&pod)}));
        let claim = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": claim, "namespace": namespace},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}},
            "status": {
                "allocation": {"devices": {"results": [{
                    "request": "gpu", "driver": DRIVER, "pool": pool, "device": claim, "tolerations": tolerations,
                }]}},
                "reservedFor": consumers,
            },
        });
        server.load(claim).map_err(|error| anyhow!("the claim of Pod {name}: {error}"))?;
        Ok(())
    }

    async fn tell(self) -> Outcome {
        let begun = Instant::now();
        let mut kubelet = Kubelet::new(self.cluster.clone(), self.mass.seed);
        let kubelets = tokio::spawn(async move {
            loop {
                sleep(TICK).await;
                kubelet.act(false, &mut |_| {});
            }
        });
        let cluster = self.cluster.clone();
        tokio::spawn(async move {
            // The manager knows all Pods by then.
            sleep(TICK).await;
            let rule = json!({
                "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": RULE},
                "spec": {"deviceSelector": {"driver": DRIVER, "pool": "here"},
                    "taint": {"key": "example.com/broken", "effect": "NoExecute"}},
            });
            // Should it be refused, nobody goes, which does not stay unnoticed.
            let _ = cluster.create("DeviceTaintRule", &rule);
        });
        let going = lock(&self.notes).outcome.going;
        for crash in 0..self.mass.crashes {
            let evicted = going * (crash + 1) / (self.mass.crashes + 1);
            self.live(Some(Crash { evicted, marking: crash % 2 == 1 })).await;
            // What it had sent has arrived by then.
            let pause = lock(&self.random).u64(1_000..10_000);
            sleep(Duration::from_millis(pause)).await;
        }
        self.live(None).await;
        kubelets.abort();
        self.check();
        let mut outcome = std::mem::take(&mut lock(&self.notes).outcome);
        outcome.took = begun.elapsed();
        outcome
    }

    /// One life of the manager, to its crash or until all is over.
    async fn live(&self, crash: Option<Crash>) {
        lock(&self.notes).by_this_life = 0;
        let line = Line::new(None);
        let connection = self
            .cluster
            .server
            .connection()
            .with_faults(Arc::clone(&self.faults))
            .observed(self.observer(crash, &line));
        let controllers = Controllers {
            eviction: Some(dra_controllers::devicetainteviction::DeviceTaintEviction::default()),
            resourceclaim: None,
            ..Controllers::claims(WORKERS)
        };
        let clock = Clock::starting_at(self.cluster.server.now());
        let chance = Arc::new(Chance::seeded(lock(&self.random).u64(..)));
        let manager = dra_controller_manager::run_on(
            client(connection, Arc::clone(&line), Arc::new(|_, _| ())),
            &controllers,
            clock,
            chance,
            pending(),
        );
        let over = async {
            if !self.over().await {
                lock(&self.notes).outcome.wrong.push(format!("it is not over after {OVER_BY:?}"));
            }
        };
        tokio::select! {
            biased;
            () = line.crashed() => lock(&self.notes).outcome.crashes += 1,
            result = manager => {
                lock(&self.notes).outcome.wrong.push(format!("the manager has ended: {result:?}"));
            }
            () = over => {
                if let Some(crash) = crash {
                    lock(&self.notes).outcome.wrong.push(format!("there was no occasion for {crash:?}"));
                }
            }
        }
    }

    /// Waits until nothing changes any more. False if that does not happen.
    async fn over(&self) -> bool {
        let begun = Instant::now();
        let (mut revision, mut since) = (0, begun);
        while begun.elapsed() < OVER_BY {
            sleep(TICK).await;
            let now = self.cluster.server.revision();
            if now != revision {
                (revision, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET + TICK {
                return true;
            }
        }
        false
    }

    /// Notes what the manager does, and ends it when its time has come.
    fn observer(&self, crash: Option<Crash>, line: &Arc<Line>) -> Observer {
        let (cluster, notes, line) = (self.cluster.clone(), Arc::clone(&self.notes), Arc::clone(line));
        let lots = self.lots.clone();
        Arc::new(move |exchange: &Exchange| {
            let mut notes = lock(&notes);
            notes.outcome.requests += 1;
            let path = exchange.path.split('?').next().unwrap_or_default();
            let path: Vec<&str> = path.trim_start_matches('/').split('/').collect();
            let (mut marks, mut deletes) = (false, false);
            let changed = exchange.after != exchange.before && !path.contains(&"events");
            match (&exchange.method, &path[..]) {
                (&Method::PATCH, [.., "pods", _, "status"]) => {
                    marks = true;
                    notes.outcome.marks += usize::from(changed);
                }
                (&Method::DELETE, ["api", "v1", "namespaces", namespace, "pods", name]) => {
                    deletes = true;
                    if exchange.code < 300 {
                        let pod = format!("{namespace}/{name}");
                        notes.evicted(&cluster, exchange, pod, &lots);
                    }
                }
                (&Method::PATCH, [.., "devicetaintrules", _, "status"]) => {
                    notes.outcome.reports += usize::from(changed);
                }
                _ if changed => notes.outcome.wrong.push(format!("nobody expects {exchange:?}")),
                _ => {}
            }
            if let Some(crash) = crash
                && notes.outcome.deletions >= crash.evicted
                && if crash.marking { marks } else { deletes }
            {
                line.crash();
            }
        })
    }

    /// Whether it came out as it should.
    fn check(&self) {
        let mut notes = lock(&self.notes);
        let mut wrong = Vec::new();
        for (pod, lot) in &self.lots {
            let times = notes.evicted.get(pod).copied().unwrap_or_default();
            if times != usize::from(lot.goes()) {
                wrong.push(format!("Pod {pod}, which {lot:?}, was evicted {times} times"));
            }
            let (namespace, name) = pod.split_once('/').unwrap_or_default();
            let is_there = self.cluster.server.object("Pod", namespace, name);
            if is_there.as_ref().is_some_and(|pod| !is_deleting(pod) && !is_marked(pod)) == lot.goes() {
                wrong.push(format!("Pod {pod}, which {lot:?}, is {is_there:?}"));
            }
        }
        let told = self.cluster.find("DeviceTaintRule", RULE).and_then(|rule| condition(&rule).cloned());
        let told = told.unwrap_or_default();
        let told = ["status", "reason", "message"].map(|field| text(&told, &[field]).to_owned());
        let count = match notes.by_this_life {
            1 => "1 pod".to_owned(),
            count => format!("{count} pods"),
        };
        let right = ["False", "Completed", &format!("{count} evicted since starting the controller.")];
        if told != right {
            wrong.push(format!("the condition says {told:?} instead of {right:?}"));
        }
        notes.outcome.wrong.extend(wrong);
    }
}

impl Notes {
    /// The API server has accepted that a Pod goes.
    fn evicted(&mut self, cluster: &Cluster, exchange: &Exchange, pod: String, lots: &BTreeMap<String, Lot>) {
        self.outcome.deletions += 1;
        self.by_this_life += 1;
        let was_marked = cluster
            .server
            .changes_since("Pod", exchange.before)
            .first()
            .is_some_and(|(before, _)| before.as_ref().is_some_and(|before| is_marked(before)));
        if !was_marked {
            self.outcome.wrong.push(format!("Pod {pod} was evicted without a word in its status"));
        }
        if lots.get(&pod) == Some(&Lot::GoesLater) {
            let rule = cluster.find("DeviceTaintRule", RULE).unwrap_or_default();
            let added = text(&rule, &["spec", "taint", "timeAdded"]).parse::<Timestamp>().unwrap_or_default();
            if cluster.server.now().duration_since(added) < SignedDuration::from_secs(PATIENCE) {
                self.outcome.wrong.push(format!("Pod {pod} was evicted too early"));
            }
        }
        *self.evicted.entry(pod).or_default() += 1;
    }
}

/// It says of itself why it goes.
fn is_marked(pod: &Value) -> bool {
    let (kind, status, reason, _) = DISRUPTED;
    items(pod, &["status", "conditions"])
        .iter()
        .any(|c| ["type", "status", "reason"].map(|field| text(c, &[field])) == [kind, status, reason])
}

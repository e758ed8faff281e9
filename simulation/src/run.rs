//! One seed: the cluster lives, the manager crashes and comes back, everything goes wrong, then nothing does, and the
//! outcome is checked.

use std::{
    future::pending,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use dra_allocator::objects::Node;
use dra_controller_manager::Controllers;
use dra_embedded::{Connection, Exchange, Faults, Rates, Server};
use dra_inhabitants::{cluster::Cluster, kubelet::Kubelet, scheduler::Scheduler};
use dra_runtime::{
    Chance, Clock,
    client::{ANSWER_WITHIN, consistent_initial_list},
    limit::Pacing,
};
use http::Request;
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep},
};
use tower::{Layer, Service, ServiceExt, util::MapRequestLayer};

use crate::{
    check,
    user::{NAMESPACE, NODES, User},
};

/// Steps of a seed: things that users, scheduler, kubelets and garbage collector do.
const STEPS: u32 = 160;
/// Keys that the manager works on at once.
const WORKERS: usize = 4;
/// Nothing happens for so long: longer than any retry or restored watch takes.
const QUIET: Duration = Duration::from_secs(150);
/// It must have become quiet by then.
const QUIET_BY: Duration = Duration::from_hours(1);
/// When the world begins.
const BEGINNING: i64 = 1_800_000_000;

/// What happened, for people.
#[derive(Debug)]
pub struct Story {
    started: Instant,
    lines: Vec<String>,
}

impl Story {
    pub(crate) fn tell(&mut self, line: &str) {
        self.lines.push(format!("{:9.3} {line}", self.started.elapsed().as_secs_f64()));
    }
}

/// How one seed went.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Requests of the manager.
    pub requests: u64,
    /// Those that changed something, events excluded.
    pub writes: u64,
    /// Changes that others made.
    pub changes: u64,
    /// How often the manager crashed.
    pub crashes: u64,
    /// A number that is the same for the same requests at the same times.
    pub trace: u64,
    /// What happened.
    pub story: Vec<String>,
    /// What must not be.
    pub wrong: Vec<String>,
}

/// What is noted about the manager while it runs.
#[derive(Debug)]
struct Notes {
    story: Story,
    outcome: Outcome,
}

/// A connection of one life of the manager.
#[derive(Debug)]
struct Line {
    state: Mutex<LineState>,
    crash: Notify,
}

#[derive(Debug)]
struct LineState {
    /// The manager dies when it has sent so many more requests.
    left: Option<u64>,
    dead: bool,
}

impl Line {
    fn new(left: Option<u64>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(LineState { left, dead: false }), crash: Notify::new() })
    }

    fn lock(&self) -> MutexGuard<'_, LineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_dead(&self) -> bool {
        self.lock().dead
    }

    /// No crash comes any more, unless it has begun: then this ends.
    async fn outlive(&self) {
        let dead = {
            let mut state = self.lock();
            state.left = None;
            state.dead
        };
        if !dead {
            pending::<()>().await;
        }
    }

    /// A request was carried out; its answer does not arrive if it was the last one.
    fn carried_out(&self) {
        let mut state = self.lock();
        if let Some(left) = &mut state.left {
            *left = left.saturating_sub(1);
            if *left == 0 {
                state.dead = true;
                self.crash.notify_one();
            }
        }
    }
}

/// Runs one seed to its end. A panic is an outcome too.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .context("cannot start the async runtime")?;
        // The world begins inside: its time is the runtime's.
        runtime.block_on(async { Ok::<_, anyhow::Error>(World::new(seed)?.live().await) })
    }));
    let failed = |wrong: String| Outcome { seed, wrong: vec![wrong], ..Outcome::default() };
    match outcome {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => failed(format!("{error:#}")),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
            failed(format!("panic: {}", text.unwrap_or_default()))
        }
    }
}

/// How bad the connection is: the seed decides which faults there are and how many.
fn rates(random: &mut fastrand::Rng) -> Rates {
    let mut rate = |most: u16| if random.u8(..3) == 0 { random.u16(..most) } else { 0 };
    Rates {
        refused: rate(60),
        too_many: rate(60),
        error: rate(60),
        conflict: rate(80),
        invalid: rate(60),
        lost_before: rate(40),
        lost_after: rate(60),
        error_after: rate(60),
        slow: rate(600),
        slowest: Duration::from_millis(u64::from(rate(8000))),
        watch_closes: rate(100),
        watch_drops: rate(100),
        watch_repeats: rate(200),
        watch_lag: Duration::from_millis(u64::from(rate(10_000))),
    }
}

struct World {
    random: fastrand::Rng,
    cluster: Cluster,
    faults: Arc<Faults>,
    notes: Arc<Mutex<Notes>>,
    user: User,
    scheduler: Scheduler,
    nodes: Vec<Node>,
    kubelet: Kubelet,
    calm: watch::Sender<bool>,
}

impl World {
    fn new(seed: u64) -> Result<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let server = Server::new(random.u64(..), Timestamp::from_second(BEGINNING)?);
        let cluster = Cluster::new(server, NAMESPACE);
        let faults = Arc::new(Faults::seeded(random.u64(..), rates(&mut random)));
        let story = Story { started: Instant::now(), lines: Vec::new() };
        let notes = Notes { story, outcome: Outcome { seed, ..Outcome::default() } };
        Ok(Self {
            user: User::new(cluster.clone(), random.u64(..)),
            scheduler: Scheduler::new(cluster.clone(), random.u64(..)),
            nodes: NODES.map(node).to_vec(),
            kubelet: Kubelet::new(cluster.clone(), random.u64(..)),
            calm: watch::Sender::new(false),
            notes: Arc::new(Mutex::new(notes)),
            random,
            cluster,
            faults,
        })
    }

    async fn live(mut self) -> Outcome {
        self.user.prepare(&mut lock(&self.notes).story);
        let manager = tokio::spawn(lives(Operator {
            random: fastrand::Rng::with_seed(self.random.u64(..)),
            cluster: self.cluster.clone(),
            faults: Arc::clone(&self.faults),
            notes: Arc::clone(&self.notes),
            calm: self.calm.subscribe(),
        }));
        for _ in 0..STEPS {
            self.pass_time().await;
            self.step();
        }
        self.faults.set(Rates::default());
        self.calm.send_replace(true);
        lock(&self.notes).story.tell("from here on nothing goes wrong");
        let quiet = self.become_quiet().await;
        let mut notes = lock(&self.notes);
        let mut wrong = check::settled(&self.cluster);
        if !quiet {
            wrong.insert(0, format!("it did not become quiet within {QUIET_BY:?}"));
        }
        let outcome = &mut notes.outcome;
        outcome.changes = self.cluster.server.revision().saturating_sub(outcome.writes);
        let most = outcome.changes.saturating_mul(3).saturating_add(outcome.crashes.saturating_mul(20));
        if outcome.writes > most {
            wrong.push(format!("{} writes for {} changes are too many", outcome.writes, outcome.changes));
        }
        outcome.wrong.extend(wrong);
        manager.abort();
        let mut outcome = std::mem::take(&mut notes.outcome);
        outcome.story = std::mem::take(&mut notes.story.lines);
        outcome
    }

    /// Sometimes nothing, mostly a moment, rarely a while.
    async fn pass_time(&mut self) {
        let millis = match self.random.u8(..10) {
            0..3 => 0,
            3..7 => self.random.u64(..200),
            7..9 => self.random.u64(..3_000),
            _ => self.random.u64(..40_000),
        };
        if millis > 0 {
            sleep(Duration::from_millis(millis)).await;
        } else {
            tokio::task::yield_now().await;
        }
    }

    fn step(&mut self) {
        let mut notes = lock(&self.notes);
        let story = &mut notes.story;
        match self.random.u8(..100) {
            0..30 => self.user.act(story),
            30..70 => self.scheduler.act(&self.nodes, &mut |line| story.tell(line)),
            70..88 => self.kubelet.act(true, &mut |line| story.tell(line)),
            _ => self.cluster.collect_garbage(&mut |line| story.tell(line)),
        }
    }

    /// Everybody but the users goes on until nothing changes any more. False when that does not happen.
    async fn become_quiet(&mut self) -> bool {
        let begun = Instant::now();
        let (mut revision, mut since) = (0, begun);
        while begun.elapsed() < QUIET_BY {
            sleep(Duration::from_secs(5)).await;
            {
                let mut notes = lock(&self.notes);
                let tell = &mut |line: &str| notes.story.tell(line);
                for _ in 0..20 {
                    self.scheduler.act(&self.nodes, tell);
                    if !self.scheduler.is_busy() {
                        break;
                    }
                }
                self.kubelet.act(false, tell);
                self.cluster.collect_garbage(tell);
            }
            let now = self.cluster.server.revision();
            if now != revision {
                (revision, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET && !self.scheduler.is_busy() {
                return true;
            }
        }
        false
    }
}

/// A node that is nothing but a name: what it has is in slices.
fn node(name: &str) -> Node {
    let mut node = Node::default();
    name.clone_into(&mut node.metadata.name);
    node
}

fn lock(notes: &Mutex<Notes>) -> MutexGuard<'_, Notes> {
    notes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whoever restarts the manager when it crashes.
struct Operator {
    random: fastrand::Rng,
    cluster: Cluster,
    faults: Arc<Faults>,
    notes: Arc<Mutex<Notes>>,
    calm: watch::Receiver<bool>,
}

async fn lives(mut operator: Operator) {
    loop {
        operator.one_life().await;
        lock(&operator.notes).outcome.crashes += 1;
        let millis = operator.random.u64(..20_000);
        sleep(Duration::from_millis(millis)).await;
        lock(&operator.notes).story.tell("manager: starts again");
    }
}

impl Operator {
    async fn one_life(&mut self) {
        let by_requests = self.random.bool().then(|| self.random.u64(1..200));
        let line = Line::new(by_requests);
        let connection = self
            .cluster
            .server
            .connection()
            .with_faults(Arc::clone(&self.faults))
            .observed(self.observer(&line));
        let client = client(connection, Arc::clone(&line));
        // Its clock may be wrong by a few minutes.
        let skew = SignedDuration::from_secs(self.random.i64(-300..300));
        let clock =
            Clock::starting_at(self.cluster.server.now().saturating_add(skew).unwrap_or(Timestamp::MAX));
        let chance = Arc::new(Chance::seeded(self.random.u64(..)));
        let controllers = Controllers::claims(WORKERS);
        let manager = dra_controller_manager::run_on(client, &controllers, clock, chance, pending());
        let lifetime = Duration::from_millis(self.random.u64(1..300_000));
        let polls = self.random.u8(..30);
        let mut calm = self.calm.clone();
        let crash = async {
            tokio::select! {
                biased;
                () = until_calm(&mut calm) => line.outlive().await,
                () = line.crash.notified() => {}
                () = sleep(lifetime) => {
                    // Somewhere in the middle of what happens at that moment.
                    for _ in 0..polls {
                        tokio::task::yield_now().await;
                    }
                }
            }
        };
        tokio::select! {
            biased;
            () = crash => lock(&self.notes).story.tell("manager: crashes"),
            result = manager => lock(&self.notes).outcome.wrong.push(format!("the manager has ended: {result:?}")),
        }
    }

    /// Notes what the manager does and looks whether it does harm.
    fn observer(&self, line: &Arc<Line>) -> dra_embedded::Observer {
        let (notes, cluster, line) = (Arc::clone(&self.notes), self.cluster.clone(), Arc::clone(line));
        Arc::new(move |exchange: &Exchange| {
            let mut notes = lock(&notes);
            notes.outcome.requests += 1;
            notes.outcome.trace = mixed(notes.outcome.trace, exchange);
            if exchange.after != exchange.before && !exchange.path.contains("/events") {
                notes.outcome.writes += 1;
                let path = exchange.path.split('?').next().unwrap_or_default();
                let path = path.split_once("/sim/").map_or(path, |(_, rest)| rest).to_owned();
                notes.story.tell(&format!("manager: {} {path} {}", exchange.method, exchange.code));
                for (before, after) in cluster.server.changes_since("ResourceClaim", exchange.before) {
                    if let Some(harm) = check::harm(&cluster, before.as_deref(), after.as_deref()) {
                        notes.story.tell(&format!("HARM: {harm}"));
                        notes.outcome.wrong.push(harm);
                    }
                }
            }
            line.carried_out();
        })
    }
}

async fn until_calm(calm: &mut watch::Receiver<bool>) {
    // What it returns holds a lock.
    drop(calm.wait_for(|calm| *calm).await);
}

/// The manager's client: as [`dra_runtime::client::connect`] makes it, on the embedded server. Once the line is dead,
/// nothing arrives any more.
fn client(connection: Connection, line: Arc<Line>) -> kube::Client {
    let pacing = Pacing { limit: None, answer_within: ANSWER_WITHIN };
    let paced = pacing.layer(connection);
    let consistent = MapRequestLayer::new(consistent_initial_list).layer(paced);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut inner, line) = (consistent.clone(), Arc::clone(&line));
        async move {
            if line.is_dead() {
                pending::<()>().await;
            }
            let answer = inner.ready().await?.call(request).await;
            if line.is_dead() {
                pending::<()>().await;
            }
            answer
        }
    });
    kube::Client::new(service, "default")
}

/// FNV-1a over the requests so far.
fn mixed(trace: u64, exchange: &Exchange) -> u64 {
    let text = format!("{:?} {} {} {}", exchange.at, exchange.method, exchange.path, exchange.code);
    text.bytes().fold(trace ^ 0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

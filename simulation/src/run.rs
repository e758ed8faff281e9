//! One seed: the cluster lives, the manager crashes and comes back, everything goes wrong, then nothing does, and the
//! outcome is checked.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result};
use dra_allocator::objects::Node;
use dra_embedded::{Faults, Rates, Server};
use dra_inhabitants::{kubelet::Kubelet, scheduler::Scheduler};
use jiff::{SignedDuration, Timestamp};
use tokio::{
    runtime::Runtime,
    sync::watch,
    time::{Instant, sleep},
};

use crate::{
    admin::Admin,
    check,
    history::History,
    judge,
    lives::{Life, Operator, lives},
    pools,
    publish::Drivers,
    taints::State,
    user::{NAMESPACES, NODES, User},
};
use dra_inhabitants::cluster::{Cluster, at, name};

/// Steps of a seed: things that users, drivers, administrators, scheduler, kubelets and garbage collector do.
const STEPS: u32 = 160;
/// Nothing happens for so long: longer than any retry or restored watch takes.
const QUIET: Duration = Duration::from_secs(150);
/// It must have become quiet by then.
const QUIET_BY: Duration = Duration::from_hours(1);
/// A question is answered, and a Pod whose time has come is evicted, within this time when nothing goes wrong.
const SOON: Duration = Duration::from_mins(1);
/// Times that lie further ahead are not waited for.
const PATIENCE: SignedDuration = SignedDuration::from_hours(2);
/// When the world begins.
pub(crate) const BEGINNING: i64 = 1_800_000_000;

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
    /// How often the manager ended and was started again.
    pub crashes: u64,
    /// Pods that were evicted.
    pub evictions: u64,
    /// Answers to questions about pools that were compared in all details.
    pub answers: u64,
    /// A number that is the same for the same requests at the same times.
    pub trace: u64,
    /// What happened.
    pub story: Vec<String>,
    /// What must not be.
    pub wrong: Vec<String>,
}

/// What is noted about the cluster and the manager.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) story: Story,
    pub(crate) outcome: Outcome,
    pub(crate) history: History,
    pub(crate) lives: Vec<Life>,
}

/// A runtime of one thread, whose clock goes on when everybody waits.
pub(crate) fn virtual_time() -> Result<Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("cannot start the async runtime")
}

/// Runs one seed to its end. A panic is an outcome too.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        // The world begins inside: its time is the runtime's.
        virtual_time()?.block_on(async { Ok::<_, anyhow::Error>(World::new(seed)?.live().await) })
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

/// The scheduler, and what it knows.
struct Scheduling {
    scheduler: Scheduler,
    nodes: Vec<Node>,
    /// The revision at which it found nothing to do.
    in_vain: u64,
}

impl Scheduling {
    /// So many steps, or fewer where there is nothing to do.
    fn act(&mut self, cluster: &Cluster, times: u8, story: &mut Story) {
        for _ in 0..times {
            if !self.scheduler.is_busy() && self.in_vain == cluster.server.revision() {
                return;
            }
            self.scheduler.act(&self.nodes, &mut |line| story.tell(line));
            if !self.scheduler.is_busy() {
                self.in_vain = cluster.server.revision();
            }
        }
    }
}

struct World {
    random: fastrand::Rng,
    cluster: Cluster,
    faults: Arc<Faults>,
    notes: Arc<Mutex<Notes>>,
    user: User,
    drivers: Drivers,
    admin: Admin,
    scheduling: Scheduling,
    kubelet: Kubelet,
    calm: watch::Sender<Option<Instant>>,
}

impl World {
    fn new(seed: u64) -> Result<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let server = Server::new(random.u64(..), Timestamp::from_second(BEGINNING)?);
        let cluster = Cluster::new(server, NAMESPACES[0]);
        let faults = Arc::new(Faults::seeded(random.u64(..), rates(&mut random)));
        let notes = Notes {
            story: Story { started: Instant::now(), lines: Vec::new() },
            outcome: Outcome { seed, ..Outcome::default() },
            history: History::default(),
            lives: Vec::new(),
        };
        Ok(Self {
            user: User::new(cluster.clone(), random.u64(..)),
            drivers: Drivers::new(cluster.clone(), random.u64(..)),
            admin: Admin::new(cluster.clone(), random.u64(..)),
            scheduling: Scheduling {
                scheduler: Scheduler::new(cluster.clone(), random.u64(..)),
                nodes: NODES.map(node).to_vec(),
                in_vain: 0,
            },
            kubelet: Kubelet::new(cluster.clone(), random.u64(..)),
            calm: watch::Sender::new(None),
            notes: Arc::new(Mutex::new(notes)),
            random,
            cluster,
            faults,
        })
    }

    async fn live(mut self) -> Outcome {
        {
            let mut notes = lock(&self.notes);
            let Notes { story, history, .. } = &mut *notes;
            self.user.prepare(story);
            self.drivers.prepare(story);
            history.follow(&self.cluster);
        }
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
        {
            let mut notes = lock(&self.notes);
            let Notes { story, history, .. } = &mut *notes;
            self.drivers.end(story);
            history.follow(&self.cluster);
            story.tell("from here on nothing goes wrong");
        }
        self.faults.set(Rates::default());
        self.calm.send_replace(Some(Instant::now()));
        self.end_quietly().await;
        manager.abort();
        let mut notes = lock(&self.notes);
        let outcome = &mut notes.outcome;
        outcome.changes = self.cluster.server.revision().saturating_sub(outcome.writes);
        let most = outcome.changes.saturating_mul(3).saturating_add(outcome.crashes.saturating_mul(20));
        if outcome.writes > most {
            let text = format!("{} writes for {} changes are too many", outcome.writes, outcome.changes);
            outcome.wrong.push(text);
        }
        let mut outcome = std::mem::take(&mut notes.outcome);
        let evicted = notes.lives.iter().flat_map(|life| &life.evicted).filter(|evicted| evicted.surely);
        outcome.evictions = evicted.count() as u64;
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
        let Notes { story, history, .. } = &mut *notes;
        match self.random.u8(..100) {
            0..26 => self.user.act(story),
            26..33 => self.drivers.act(story),
            33..41 => self.admin.act(story),
            41..73 => {
                let times = self.random.u8(1..6);
                self.scheduling.act(&self.cluster, times, story);
            }
            73..89 => {
                let ends = self.random.u8(..4) == 0;
                self.kubelet.act(ends, &mut |line| story.tell(line));
            }
            _ => self.cluster.collect_garbage(&mut |line| story.tell(line)),
        }
        history.follow(&self.cluster);
    }

    /// Everybody but the users goes on until nothing changes any more. False when that does not happen.
    async fn become_quiet(&mut self) -> bool {
        let begun = Instant::now();
        let (mut revision, mut since) = (0, begun);
        while begun.elapsed() < QUIET_BY {
            sleep(Duration::from_secs(5)).await;
            {
                let mut notes = lock(&self.notes);
                let Notes { story, history, .. } = &mut *notes;
                self.scheduling.act(&self.cluster, 20, story);
                let tell = &mut |line: &str| story.tell(line);
                self.kubelet.act(false, tell);
                self.cluster.collect_garbage(tell);
                history.follow(&self.cluster);
            }
            let now = self.cluster.server.revision();
            if now != revision {
                (revision, since) = (now, Instant::now());
            } else if since.elapsed() >= QUIET && !self.scheduling.scheduler.is_busy() {
                return true;
            }
        }
        false
    }

    /// Lets everything come to rest, and looks whether it is as it should be: at once, after asking, and after the
    /// times that were still to come.
    async fn end_quietly(&mut self) {
        self.rest().await;
        self.ask().await;
        if self.random.bool() {
            {
                let mut notes = lock(&self.notes);
                let Notes { story, history, .. } = &mut *notes;
                self.admin.taint_at_last(story);
                history.follow(&self.cluster);
            }
            self.rest().await;
        }
        let now = self.manager_time();
        let state = State::of(&self.cluster);
        let ahead = state.pods.iter().filter_map(|pod| state.due(pod)).filter(|due| *due > now).min();
        if let Some(wait) = ahead.map(|due| due.duration_since(now)).filter(|wait| *wait < PATIENCE) {
            sleep(Duration::try_from(wait).unwrap_or_default()).await;
            self.rest().await;
        }
        if self.random.u8(..4) == 0 {
            self.outlive_requests().await;
        }
    }

    /// What the manager's clock shows.
    fn manager_time(&self) -> Timestamp {
        lock(&self.notes).lives.last().map_or(Timestamp::MIN, |life| life.clock.now())
    }

    async fn rest(&mut self) {
        let quiet = self.become_quiet().await;
        let soon = SignedDuration::try_from(SOON).unwrap_or_default();
        let before = self.manager_time().saturating_sub(soon).unwrap_or(Timestamp::MIN);
        let mut notes = lock(&self.notes);
        let mut wrong = check::settled(&self.cluster);
        let state = State::of(&self.cluster);
        state.survivors(before, &mut wrong);
        if let Some(life) = notes.lives.last() {
            state.conditions(|rule| judge::counted(&life.evicted, rule), &mut wrong);
        }
        for request in self.cluster.all("ResourcePoolStatusRequest") {
            match judge::expiry(&request) {
                None if at(&request, &["status"]).is_null() => {
                    wrong.push(format!("ResourcePoolStatusRequest {} has no answer", name(&request)));
                }
                Some(expiry) if expiry < before => {
                    wrong.push(format!("ResourcePoolStatusRequest {} should be gone", name(&request)));
                }
                _ => {}
            }
        }
        if !quiet {
            wrong.insert(0, format!("it did not become quiet within {QUIET_BY:?}"));
        }
        notes.outcome.wrong.extend(wrong);
    }

    /// Asks about all pools, and what rules would do, and compares with what the objects say, provided that nothing
    /// else happens meanwhile.
    async fn ask(&mut self) {
        let asked = Instant::now();
        {
            let mut notes = lock(&self.notes);
            let Notes { story, history, .. } = &mut *notes;
            self.admin.ask_about_everything(story);
            history.follow(&self.cluster);
        }
        sleep(SOON).await;
        let mut notes = lock(&self.notes);
        notes.history.follow(&self.cluster);
        if notes.history.changed().is_some_and(|changed| changed > asked) {
            return;
        }
        let state = State::of(&self.cluster);
        let facts = pools::Facts { slices: &state.slices, claims: &state.claims, rules: &state.rules };
        for request in self.cluster.all("ResourcePoolStatusRequest") {
            if name(&request).starts_with("last-") {
                notes.outcome.answers += 1;
                let wrong = pools::wrong(facts, &request);
                notes.outcome.wrong.extend(wrong.map(|wrong| format!("{}: {wrong}", name(&request))));
            }
        }
        for rule in state.rules.iter().filter(|rule| name(rule).starts_with("last-")) {
            let wrong = judge::dry_run(&state, rule);
            notes.outcome.wrong.extend(wrong);
        }
    }

    /// Waits until requests about pools have been there for long enough.
    async fn outlive_requests(&mut self) {
        let now = self.manager_time();
        let requests = self.cluster.all("ResourcePoolStatusRequest");
        let last = requests.iter().filter_map(judge::expiry).max();
        let Some(wait) = last.map(|last| last.duration_since(now)).filter(|wait| *wait < PATIENCE * 2) else {
            return;
        };
        sleep(Duration::try_from(wait).unwrap_or_default() + SOON).await;
        let left = self.cluster.all("ResourcePoolStatusRequest");
        let wrong = left.iter().map(|r| format!("ResourcePoolStatusRequest {} is still there", name(r)));
        lock(&self.notes).outcome.wrong.extend(wrong);
    }
}

/// A node that is nothing but a name: what it has is in slices.
fn node(name: &str) -> Node {
    let mut node = Node::default();
    name.clone_into(&mut node.metadata.name);
    node
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

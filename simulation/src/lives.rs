//! The lives of the manager: how each begins and ends, and what it does meanwhile.

use std::{
    future::pending,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use dra_controller_manager::Controllers;
use dra_embedded::{Connection, Exchange, Faults, Observer};
use dra_runtime::{
    Chance, Clock,
    client::{ANSWER_WITHIN, consistent_initial_list},
    limit::Pacing,
};
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};
use kube::client::Body;
use serde_json::Value;
use tokio::{
    sync::{Notify, oneshot, watch},
    task::JoinSet,
    time::{Instant, sleep},
};
use tower::{BoxError, Layer, Service, ServiceExt, util::MapRequestLayer};

use crate::{
    check,
    judge::{Evicted, Writer, asked_for, judge},
    run::{Notes, lock},
};
use dra_inhabitants::cluster::{Cluster, name, namespace};

/// Keys that the manager works on at once.
const WORKERS: usize = 4;
/// A manager that is asked to stop does so within this time.
const STOPS_WITHIN: Duration = Duration::from_secs(9);
/// In quiet times, nothing older than this is still on its way to the manager.
const MEMORY: Duration = Duration::from_mins(5);

/// In the beginning of quiet times, what has happened before is still on its way for so long: the longest lag of a watch.
const LAG: Duration = Duration::from_secs(15);

/// More requests than any history has reason for.
const REQUESTS_MAX: u64 = 20_000;
/// How long a request may be under way after its sender's end.
const UNDER_WAY: Duration = Duration::from_secs(30);

/// A life of the manager.
#[derive(Debug)]
pub(crate) struct Life {
    pub(crate) clock: Clock,
    started: Instant,
    ended: Option<Instant>,
    /// Pods that it evicted, or asked to be.
    pub(crate) evicted: Vec<Evicted>,
}

/// A connection of one life of the manager.
#[derive(Debug)]
pub(crate) struct Line {
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
    pub(crate) fn new(left: Option<u64>) -> Arc<Self> {
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

    /// It dies, whatever it was meant to do.
    fn cut(&self) {
        self.lock().dead = true;
    }

    /// A request was carried out; its answer does not arrive if it was the last one.
    fn carried_out(&self) {
        let is_last = {
            let mut state = self.lock();
            if let Some(left) = &mut state.left {
                *left = left.saturating_sub(1);
            }
            state.left == Some(0)
        };
        if is_last {
            self.crash();
        }
    }

    /// It dies at this request: the answer does not arrive any more.
    pub(crate) fn crash(&self) {
        self.cut();
        self.crash.notify_one();
    }

    /// Waits for that.
    pub(crate) async fn crashed(&self) {
        self.crash.notified().await;
    }
}

/// How a life ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// In the middle of anything. Requests that are on their way still arrive.
    Crash,
    /// It is asked to stop, and its successor starts when it has, or at once.
    Stop { at_once: bool },
    /// It has lost its lease without knowing it: the successor starts, and it goes on for a while.
    Loss { after: Duration },
}

/// Whoever starts the manager (again).
pub(crate) struct Operator {
    pub(crate) random: fastrand::Rng,
    pub(crate) cluster: Cluster,
    pub(crate) faults: Arc<Faults>,
    pub(crate) notes: Arc<Mutex<Notes>>,
    /// Since when nothing goes wrong any more.
    pub(crate) calm: watch::Receiver<Option<Instant>>,
}

/// One life after the other, for ever; some overlap.
pub(crate) async fn lives(mut operator: Operator) {
    let mut running = JoinSet::new();
    loop {
        let (over, is_over) = oneshot::channel();
        let end = operator.end();
        let life = operator.life(end, over);
        running.spawn(life);
        let _ = is_over.await;
        while running.try_join_next().is_some() {}
        lock(&operator.notes).outcome.crashes += 1;
        let overlap = matches!(end, End::Stop { at_once: true } | End::Loss { .. });
        let millis = operator.random.u64(..20_000);
        if !overlap {
            sleep(Duration::from_millis(millis)).await;
        }
        lock(&operator.notes).story.tell("manager: starts again");
    }
}

impl Operator {
    fn end(&mut self) -> End {
        let after = Duration::from_millis(self.random.u64(..30_000));
        let at_once = self.random.bool();
        match self.random.u8(..4) {
            0 => End::Stop { at_once },
            1 => End::Loss { after },
            _ => End::Crash,
        }
    }

    /// A life, which tells when its successor is to start.
    fn life(&mut self, end: End, over: oneshot::Sender<()>) -> impl Future<Output = ()> + Send + 'static {
        // Whoever dies after so many requests does so without a word.
        let by_requests = (matches!(end, End::Crash) && self.random.bool()).then(|| self.random.u64(1..200));
        let line = Line::new(by_requests);
        // Its clock may be wrong by a few minutes.
        let skew = SignedDuration::from_secs(self.random.i64(-300..300));
        let wall = self.cluster.server.now().saturating_add(skew).unwrap_or(Timestamp::MAX);
        let clock = Clock::starting_at(wall);
        let chance = Arc::new(Chance::seeded(self.random.u64(..)));
        let lifetime = Duration::from_millis(self.random.u64(1..300_000));
        let polls = self.random.u8(..30);
        let number = {
            let mut notes = lock(&self.notes);
            notes.lives.push(Life { clock, started: Instant::now(), ended: None, evicted: Vec::new() });
            notes.lives.len() - 1
        };
        let connection = self
            .cluster
            .server
            .connection()
            .with_faults(Arc::clone(&self.faults))
            .observed(self.observer(number, &line));
        let deletes = note_deletes(&self.notes, &self.cluster, number);
        let client = client(connection, Arc::clone(&line), deletes);
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async {
            if stopped.await.is_err() {
                pending::<()>().await;
            }
        };
        let manager = async move {
            let controllers = Controllers::all(WORKERS);
            dra_controller_manager::run_on(client, &controllers, clock, chance, stopped).await
        };
        let (mut calm, notes) = (self.calm.clone(), Arc::clone(&self.notes));
        async move {
            tokio::pin!(manager);
            let crash = async {
                tokio::select! {
                    biased;
                    () = until_calm(&mut calm) => line.outlive().await,
                    () = line.crashed() => {}
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
                () = crash => {}
                result = &mut manager => {
                    lock(&notes).outcome.wrong.push(format!("the manager has ended: {result:?}"));
                    pending::<()>().await;
                }
            }
            match end {
                End::Crash => lock(&notes).story.tell("manager: crashes"),
                End::Stop { at_once } => {
                    lock(&notes).story.tell("manager: is asked to stop");
                    let _ = stop.send(());
                    let over = if at_once {
                        let _ = over.send(());
                        None
                    } else {
                        Some(over)
                    };
                    match tokio::time::timeout(STOPS_WITHIN, &mut manager).await {
                        Ok(Ok(())) => lock(&notes).story.tell("manager: has stopped"),
                        result => {
                            lock(&notes).outcome.wrong.push(format!("the manager did not stop: {result:?}"));
                        }
                    }
                    drop(over);
                }
                End::Loss { after } => {
                    lock(&notes).story.tell("manager: has lost its lease and does not know it");
                    let _ = over.send(());
                    tokio::select! {
                        biased;
                        () = sleep(after) => {}
                        result = &mut manager => {
                            lock(&notes).outcome.wrong.push(format!("the manager has ended: {result:?}"));
                        }
                    }
                    lock(&notes).story.tell("manager: the old one ends");
                }
            }
            if let Some(life) = lock(&notes).lives.get_mut(number) {
                life.ended = Some(Instant::now());
            }
        }
    }

    /// Notes what the manager does and looks whether it does harm.
    fn observer(&self, number: usize, line: &Arc<Line>) -> Observer {
        let (notes, cluster, line) = (Arc::clone(&self.notes), self.cluster.clone(), Arc::clone(line));
        let calm = self.calm.clone();
        Arc::new(move |exchange: &Exchange| {
            let mut notes = lock(&notes);
            notes.outcome.requests += 1;
            notes.outcome.trace = mixed(notes.outcome.trace, exchange);
            notes.history.follow(&cluster);
            if exchange.after != exchange.before && !exchange.path.contains("/events") {
                notes.outcome.writes += 1;
                let path = exchange.path.split('?').next().unwrap_or_default();
                let path = path.split_once("/namespaces/").map_or(path, |(_, rest)| rest).to_owned();
                notes.story.tell(&format!("manager {number}: {} {path} {}", exchange.method, exchange.code));
                for harm in look(&mut notes, &cluster, number, *calm.borrow(), exchange.before) {
                    notes.story.tell(&format!("HARM: {harm}"));
                    notes.outcome.wrong.push(harm);
                }
            }
            if notes.outcome.requests == REQUESTS_MAX {
                notes.outcome.wrong.push(format!("{REQUESTS_MAX} requests are too many"));
            }
            if notes.outcome.requests >= REQUESTS_MAX {
                line.cut();
            }
            line.carried_out();
        })
    }
}

/// Told of each path that a DELETE goes to, and again when it was refused for good.
pub(crate) type Deletes = Arc<dyn Fn(&str, Delete) + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delete {
    Sent,
    Refused,
}

/// Notes for which Pods a life asks for the deletion, unless it is told that this was not to be.
fn note_deletes(notes: &Arc<Mutex<Notes>>, cluster: &Cluster, number: usize) -> Deletes {
    let (notes, cluster) = (Arc::clone(notes), cluster.clone());
    Arc::new(move |path: &str, delete: Delete| {
        let mut notes = lock(&notes);
        let Notes { history, lives, .. } = &mut *notes;
        history.follow(&cluster);
        let Some(life) = lives.get_mut(number) else { return };
        if delete == Delete::Refused {
            let last = life.evicted.iter().rposition(|asked| !asked.surely && asked.path == path);
            last.map(|last| life.evicted.remove(last));
            return;
        }
        let pods = cluster.all("Pod");
        let is_meant = |pod: &&Arc<Value>| path.ends_with(&format!("/{}/pods/{}", namespace(pod), name(pod)));
        if let Some(pod) = pods.iter().find(is_meant) {
            let (from, now) = (life.started, life.clock.now());
            let writer = Writer { from, started: from, now, calm: false };
            life.evicted.push(Evicted { path: path.to_owned(), ..asked_for(history, writer, pod) });
        }
    })
}

/// What harm a life has done by its writes since a revision.
fn look(
    notes: &mut Notes,
    cluster: &Cluster,
    number: usize,
    calm: Option<Instant>,
    revision: u64,
) -> Vec<String> {
    let is_other =
        |(n, life): (usize, &Life)| n != number && life.ended.is_none_or(|at| at.elapsed() < UNDER_WAY);
    let alone = !notes.lives.iter().enumerate().any(is_other);
    let mut harm: Vec<String> = cluster
        .server
        .changes_since("ResourceClaim", revision)
        .into_iter()
        .filter_map(|(before, after)| check::harm(cluster, alone, before.as_deref(), after.as_deref()))
        .collect();
    let Some(life) = notes.lives.get_mut(number) else { return harm };
    let recently = Instant::now().checked_sub(MEMORY).filter(|_| calm.is_some()).unwrap_or(life.started);
    let calm = calm.is_some_and(|since| since.elapsed() >= LAG);
    let writer =
        Writer { from: life.started.max(recently), started: life.started, now: life.clock.now(), calm };
    let verdict = judge(cluster, &notes.history, writer, revision);
    life.evicted.extend(verdict.evicted);
    harm.extend(verdict.harm);
    harm
}

async fn until_calm(calm: &mut watch::Receiver<Option<Instant>>) {
    // What it returns holds a lock.
    drop(calm.wait_for(Option::is_some).await);
}

/// The manager's client: as [`dra_runtime::client::connect`] makes it, on the embedded server. Once the line is dead,
/// nothing arrives any more. What was sent arrives even if the manager ends meanwhile.
pub(crate) fn client(connection: Connection, line: Arc<Line>, deletes: Deletes) -> kube::Client {
    let pacing = Pacing { limit: None, answer_within: ANSWER_WITHIN };
    let sending = tower::service_fn(move |request: Request<Body>| {
        let mut connection = connection.clone();
        async move {
            let sent = tokio::spawn(async move { connection.ready().await?.call(request).await });
            sent.await.map_err(BoxError::from)?
        }
    });
    let paced = pacing.layer(sending);
    let consistent = MapRequestLayer::new(consistent_initial_list).layer(paced);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (mut inner, line, deletes) = (consistent.clone(), Arc::clone(&line), Arc::clone(&deletes));
        async move {
            if line.is_dead() {
                pending::<()>().await;
            }
            let deleted = (request.method() == Method::DELETE).then(|| request.uri().path().to_owned());
            if let Some(path) = &deleted {
                deletes(path, Delete::Sent);
            }
            let answer = inner.ready().await?.call(request).await;
            if line.is_dead() {
                pending::<()>().await;
            }
            if let (Some(path), Ok(answer)) = (&deleted, &answer)
                && answer.status().is_client_error()
            {
                deletes(path, Delete::Refused);
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

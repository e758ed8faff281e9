//! A work queue of keys: each key waits once, is worked on by one worker at a time, and comes back later when
//! its work failed or asked for it. Same semantics and metric names as client-go's.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures::FutureExt;
use prometheus::{
    Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, core::Collector,
};
use tokio::{sync::Notify, time::Instant};

use crate::clock::{Chance, exponential};

/// Delay after the first failure of a key.
const FIRST_RETRY: Duration = Duration::from_millis(5);
/// Longest delay between two attempts at a key.
const LONGEST_RETRY: Duration = Duration::from_mins(1);

/// What becomes of a key after work on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing, until an event brings it back.
    Settled,
    /// It is settled, and looked at again after about this time.
    Again(Duration),
    /// It is settled until exactly this time has passed.
    Wake(Duration),
    /// It failed: again after its exponential delay, at the earliest after this time (what the API server asked
    /// for).
    Retry(Duration),
}

/// Metrics of all queues, under the names that every Kubernetes controller uses.
#[derive(Clone, Debug)]
pub struct QueuesMetrics {
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    panics: IntCounterVec,
    waited: HistogramVec,
    worked: HistogramVec,
    unfinished: prometheus::GaugeVec,
    longest: prometheus::GaugeVec,
}

/// Metrics of one queue.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    depth: IntGauge,
    adds: IntCounter,
    retries: IntCounter,
    panics: IntCounter,
    waited: Histogram,
    worked: Histogram,
    unfinished: Gauge,
    longest: Gauge,
}

impl QueueMetrics {
    /// Metrics of the only queue, registered in `registry`.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(registry: &Registry, name: &str) -> Result<Self, prometheus::Error> {
        Ok(QueuesMetrics::new(registry)?.queue(name))
    }
}

impl QueuesMetrics {
    /// Registers the metrics of all queues in `registry`.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let opts = |metric: &str, help: &str| Opts::new(format!("workqueue_{metric}"), help);
        let depth = IntGaugeVec::new(opts("depth", "Current depth of workqueue"), &["name"])?;
        let adds =
            IntCounterVec::new(opts("adds_total", "Total number of adds handled by workqueue"), &["name"])?;
        let retries = IntCounterVec::new(
            opts("retries_total", "Total number of retries handled by workqueue"),
            &["name"],
        )?;
        let panics = IntCounterVec::new(
            opts("panics_total", "Number of times that work on a key panicked; the key was retried"),
            &["name"],
        )?;
        let unfinished = prometheus::GaugeVec::new(
            opts(
                "unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and hasn't been observed by \
                 work_duration. Large values indicate stuck threads.",
            ),
            &["name"],
        )?;
        let longest = prometheus::GaugeVec::new(
            opts(
                "longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running.",
            ),
            &["name"],
        )?;
        let histogram = |metric: &str, help: &str| {
            let buckets = prometheus::exponential_buckets(1e-8, 10.0, 10)?;
            HistogramVec::new(
                HistogramOpts::new(format!("workqueue_{metric}"), help).buckets(buckets),
                &["name"],
            )
        };
        let waited = histogram(
            "queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested.",
        )?;
        let worked = histogram(
            "work_duration_seconds",
            "How long in seconds processing an item from workqueue takes.",
        )?;
        let all: [Box<dyn Collector>; 8] = [
            Box::new(depth.clone()),
            Box::new(adds.clone()),
            Box::new(retries.clone()),
            Box::new(panics.clone()),
            Box::new(unfinished.clone()),
            Box::new(longest.clone()),
            Box::new(waited.clone()),
            Box::new(worked.clone()),
        ];
        for collector in all {
            registry.register(collector)?;
        }
        Ok(Self { depth, adds, retries, panics, waited, worked, unfinished, longest })
    }

    /// Those of the queue called `name`.
    pub fn queue(&self, name: &str) -> QueueMetrics {
        let name = &[name];
        QueueMetrics {
            depth: self.depth.with_label_values(name),
            adds: self.adds.with_label_values(name),
            retries: self.retries.with_label_values(name),
            panics: self.panics.with_label_values(name),
            waited: self.waited.with_label_values(name),
            worked: self.worked.with_label_values(name),
            unfinished: self.unfinished.with_label_values(name),
            longest: self.longest.with_label_values(name),
        }
    }
}

#[derive(Debug)]
struct State<K> {
    /// Keys that a worker may take, by rank and then oldest first.
    ready: BTreeMap<(i64, u64), K>,
    /// Number of keys that were ever ready.
    arrived: u64,
    /// Keys to be worked on, and since when; a key in work may be here too.
    dirty: BTreeMap<K, Instant>,
    working: BTreeMap<K, Instant>,
    failures: BTreeMap<K, u32>,
    /// Keys that come back by themselves.
    delayed: BTreeMap<K, Instant>,
    by_time: BTreeSet<(Instant, K)>,
    closed: bool,
}

/// A queue of keys.
#[derive(Debug)]
pub struct Queue<K> {
    state: Mutex<State<K>>,
    ready: Notify,
    timer: Notify,
    chance: Arc<Chance>,
    metrics: QueueMetrics,
    rank: fn(&K) -> i64,
}

impl<K: Ord + Clone + Display> Queue<K> {
    /// An empty queue: first come, first served.
    pub fn new(metrics: QueueMetrics, chance: Arc<Chance>) -> Self {
        Self::ranked(metrics, chance, |_| 0)
    }

    /// An empty queue in which keys of a lower rank come first.
    pub fn ranked(metrics: QueueMetrics, chance: Arc<Chance>, rank: fn(&K) -> i64) -> Self {
        Self {
            state: Mutex::new(State {
                ready: BTreeMap::new(),
                arrived: 0,
                dirty: BTreeMap::new(),
                working: BTreeMap::new(),
                failures: BTreeMap::new(),
                delayed: BTreeMap::new(),
                by_time: BTreeSet::new(),
                closed: false,
            }),
            ready: Notify::new(),
            timer: Notify::new(),
            chance,
            metrics,
            rank,
        }
    }

    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Every change of the state is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a key, unless it waits already. A key in work waits until that work is done.
    pub fn add(&self, key: K) {
        let mut state = self.state();
        self.add_locked(&mut state, key);
    }

    /// Adds a key after this time, unless it waits already or comes back before: what happens meanwhile is worked on
    /// together. A key in work waits until that work is done.
    pub fn add_later(&self, key: K, after: Duration) {
        let mut state = self.state();
        // Its work may end in another delay, which would take the place of this one.
        if state.working.contains_key(&key) {
            self.add_locked(&mut state, key);
            return;
        }
        let Some(at) = Instant::now().checked_add(after) else { return };
        let delayed = state.delayed.get(&key).copied();
        if state.closed || state.dirty.contains_key(&key) || delayed.is_some_and(|known| known <= at) {
            return;
        }
        if let Some(known) = delayed {
            state.by_time.remove(&(known, key.clone()));
        }
        state.delayed.insert(key.clone(), at);
        state.by_time.insert((at, key));
        self.timer.notify_one();
    }

    fn add_locked(&self, state: &mut State<K>, key: K) {
        if state.closed || state.dirty.contains_key(&key) {
            return;
        }
        self.metrics.adds.inc();
        state.dirty.insert(key.clone(), Instant::now());
        if !state.working.contains_key(&key) {
            self.make_ready(state, key);
        }
    }

    fn make_ready(&self, state: &mut State<K>, key: K) {
        let place = ((self.rank)(&key), state.arrived);
        state.arrived = state.arrived.wrapping_add(1);
        state.ready.insert(place, key);
        self.metrics.depth.set(i64::try_from(state.ready.len()).unwrap_or(i64::MAX));
        self.ready.notify_one();
    }

    /// The next key, or nothing once the queue is closed.
    async fn take(&self) -> Option<K> {
        loop {
            let notified = self.ready.notified();
            {
                let mut state = self.state();
                if state.closed {
                    return None;
                }
                if let Some((_, key)) = state.ready.pop_first() {
                    self.metrics.depth.set(i64::try_from(state.ready.len()).unwrap_or(i64::MAX));
                    let now = Instant::now();
                    if let Some(since) = state.dirty.remove(&key) {
                        self.metrics.waited.observe((now - since).as_secs_f64());
                    }
                    state.working.insert(key.clone(), now);
                    if !state.ready.is_empty() {
                        // A permit of `notify_one` is lost when its waiter finds the key taken by another.
                        self.ready.notify_one();
                    }
                    return Some(key);
                }
            }
            notified.await;
        }
    }

    fn finish(&self, key: K, next: Next) {
        let mut state = self.state();
        let now = Instant::now();
        if let Some(since) = state.working.remove(&key) {
            self.metrics.worked.observe((now - since).as_secs_f64());
        }
        if let Some(at) = state.delayed.remove(&key) {
            state.by_time.remove(&(at, key.clone()));
        }
        let delay = match next {
            Next::Settled => {
                state.failures.remove(&key);
                None
            }
            Next::Again(after) => {
                state.failures.remove(&key);
                Some(self.chance.jitter(after))
            }
            Next::Wake(after) => {
                state.failures.remove(&key);
                Some(after)
            }
            Next::Retry(at_least) => {
                let failures = state.failures.entry(key.clone()).or_default();
                *failures = failures.saturating_add(1);
                self.metrics.retries.inc();
                Some(self.chance.jitter(exponential(FIRST_RETRY, LONGEST_RETRY, *failures)).max(at_least))
            }
        };
        if let Some(at) = delay.filter(|_| !state.closed).and_then(|delay| now.checked_add(delay)) {
            state.delayed.insert(key.clone(), at);
            state.by_time.insert((at, key.clone()));
            self.timer.notify_one();
        }
        if state.dirty.contains_key(&key) {
            self.make_ready(&mut state, key);
        }
    }

    /// Moves delayed keys to the queue when their time has come; ends when the queue is closed. Run it beside
    /// the workers.
    pub async fn run_timer(&self) {
        loop {
            let notified = self.timer.notified();
            let first = {
                let mut state = self.state();
                if state.closed {
                    return;
                }
                let now = Instant::now();
                loop {
                    let Some((at, key)) = state.by_time.first().cloned() else {
                        break None;
                    };
                    if at > now {
                        break Some(at);
                    }
                    state.by_time.remove(&(at, key.clone()));
                    state.delayed.remove(&key);
                    self.add_locked(&mut state, key);
                }
            };
            match first {
                Some(at) => {
                    tokio::select! {
                        biased;
                        () = notified => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => notified.await,
            }
        }
    }

    /// Works on keys one after the other until the queue is closed. A panic in `work` is logged, and its key
    /// retried like any other failure. Any number of workers may run on one queue.
    pub async fn run_worker<F, Fut>(&self, work: F)
    where
        F: Fn(K) -> Fut,
        Fut: Future<Output = Next>,
    {
        self.run_worker_when(|| std::future::ready(()), work).await;
    }

    /// As [`Queue::run_worker`], and waits for `turn` before it takes each key: whatever has come with a lower rank
    /// meanwhile goes first.
    pub async fn run_worker_when<T, Turn, F, Fut>(&self, turn: T, work: F)
    where
        T: Fn() -> Turn,
        Turn: Future<Output = ()>,
        F: Fn(K) -> Fut,
        Fut: Future<Output = Next>,
    {
        loop {
            turn().await;
            let Some(key) = self.take().await else { return };
            // The closure itself may panic too, before there is a future.
            let attempt = AssertUnwindSafe(async { work(key.clone()).await }).catch_unwind().await;
            let next = attempt.unwrap_or_else(|panic| {
                self.metrics.panics.inc();
                tracing::error!(%key, panic = panic_text(&*panic), "work on a key panicked; it is retried");
                Next::Retry(Duration::ZERO)
            });
            self.finish(key, next);
        }
    }

    /// Closes the queue: workers end after the key that they work on, waiting keys are dropped.
    pub fn close(&self) {
        self.state().closed = true;
        self.ready.notify_waiters();
        self.ready.notify_one();
        self.timer.notify_waiters();
        self.timer.notify_one();
    }

    /// True when nothing waits, nothing is in work and nothing comes back by itself.
    pub fn is_idle(&self) -> bool {
        let state = self.state();
        state.dirty.is_empty() && state.working.is_empty() && state.delayed.is_empty()
    }

    /// Brings the gauges that depend on the time up to date; call it before a scrape.
    pub fn refresh_metrics(&self) {
        let state = self.state();
        let now = Instant::now();
        let running = state.working.values().map(|since| (now - *since).as_secs_f64());
        self.metrics.unfinished.set(running.clone().sum());
        self.metrics.longest.set(running.fold(0.0, f64::max));
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(no text)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn queue() -> Arc<Queue<String>> {
        let registry = Registry::new();
        let metrics = QueueMetrics::new(&registry, "test").unwrap();
        Arc::new(Queue::new(metrics, Arc::new(Chance::seeded(1))))
    }

    /// Runs workers until the queue is idle; returns the keys in the order of their attempts.
    async fn run(queue: &Arc<Queue<String>>, workers: usize, work: fn(&str, usize) -> Next) -> Vec<String> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..workers {
            let (queue, seen) = (Arc::clone(queue), Arc::clone(&seen));
            tasks.spawn(async move {
                queue
                    .run_worker(|key| {
                        let attempt = {
                            let mut seen = seen.lock().unwrap();
                            seen.push(key.clone());
                            seen.iter().filter(|k| **k == key).count()
                        };
                        async move {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            work(&key, attempt)
                        }
                    })
                    .await;
            });
        }
        let timer = tokio::spawn({
            let queue = Arc::clone(queue);
            async move { queue.run_timer().await }
        });
        while !queue.is_idle() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        queue.close();
        while tasks.join_next().await.is_some() {}
        timer.await.unwrap();
        Arc::try_unwrap(seen).unwrap().into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_twice_is_worked_on_once() {
        let queue = queue();
        queue.add("a".into());
        queue.add("b".into());
        queue.add("a".into());
        assert_eq!(run(&queue, 3, |_, _| Next::Settled).await, ["a", "b"]);
        assert_eq!(queue.metrics.adds.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_for_later_is_worked_on_together_and_an_earlier_need_comes_first() {
        let queue = queue();
        let began = Instant::now();
        for key in ["b", "a", "a", "a"] {
            queue.add_later(key.into(), Duration::from_secs(1));
        }
        queue.add_later("a".into(), Duration::from_hours(1));
        queue.add_later("b".into(), Duration::from_millis(500));
        assert_eq!(run(&queue, 1, |_, _| Next::Settled).await, ["b", "a"]);
        assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < Duration::from_secs(2));
        assert_eq!(queue.metrics.adds.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_added_for_later_while_a_key_is_in_work_is_not_lost() {
        let queue = queue();
        queue.add("a".into());
        let key = queue.take().await.unwrap();
        queue.add_later("a".into(), Duration::from_secs(1));
        queue.finish(key, Next::Settled);
        assert_eq!(run(&queue, 1, |_, _| Next::Settled).await, ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_a_lower_rank_come_first_and_others_in_the_order_of_their_arrival() {
        let metrics = QueueMetrics::new(&Registry::new(), "test").unwrap();
        let length = |key: &String| i64::try_from(key.len()).unwrap();
        let queue = Arc::new(Queue::ranked(metrics, Arc::new(Chance::seeded(1)), length));
        for key in ["bbb", "dd", "a", "cc"] {
            queue.add(key.into());
        }
        assert_eq!(run(&queue, 1, |_, _| Next::Settled).await, ["a", "dd", "cc", "bbb"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_wakes_at_exactly_the_time_it_asked_for() {
        let queue = queue();
        queue.add("a".into());
        let began = Instant::now();
        let wake = |_: &str, attempt| match attempt {
            1 => Next::Wake(Duration::from_hours(1)),
            _ => Next::Settled,
        };
        assert_eq!(run(&queue, 1, wake).await, ["a", "a"]);
        let took = began.elapsed();
        assert!(took >= Duration::from_hours(1) && took < Duration::from_secs(3601), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_added_during_its_work_is_worked_on_again_but_never_twice_at_once() {
        static AT_ONCE: AtomicUsize = AtomicUsize::new(0);
        let queue = queue();
        queue.add("a".into());
        let worker = |queue: Arc<Queue<String>>| async move {
            let inner = Arc::clone(&queue);
            queue
                .run_worker(move |_| {
                    let queue = Arc::clone(&inner);
                    async move {
                        assert_eq!(AT_ONCE.fetch_add(1, Ordering::SeqCst), 0);
                        if queue.metrics.adds.get() < 3 {
                            queue.add("a".into());
                        }
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        AT_ONCE.fetch_sub(1, Ordering::SeqCst);
                        Next::Settled
                    }
                })
                .await;
        };
        let tasks = [tokio::spawn(worker(Arc::clone(&queue))), tokio::spawn(worker(Arc::clone(&queue)))];
        while !queue.is_idle() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        queue.close();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(queue.metrics.adds.get(), 3);
        assert_eq!(queue.metrics.panics.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn failures_come_back_with_growing_delays_and_success_forgets_them() {
        let queue = queue();
        queue.add("a".into());
        let start = Instant::now();
        let seen =
            run(&queue, 1, |_, n| if n < 6 { Next::Retry(Duration::ZERO) } else { Next::Settled }).await;
        assert_eq!(seen.len(), 6);
        // Delays of 5, 10, 20, 40 and 80 ms, each between half and whole.
        let took = start.elapsed();
        assert!((Duration::from_millis(77)..Duration::from_millis(200)).contains(&took), "{took:?}");
        assert!(queue.state().failures.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_api_servers_retry_after_is_respected() {
        let queue = queue();
        queue.add("a".into());
        let start = Instant::now();
        run(&queue, 1, |_, n| if n == 1 { Next::Retry(Duration::from_secs(7)) } else { Next::Settled }).await;
        assert!(start.elapsed() >= Duration::from_secs(7));
    }

    #[tokio::test(start_paused = true)]
    async fn a_settled_key_may_ask_to_be_looked_at_again() {
        let queue = queue();
        queue.add("a".into());
        let start = Instant::now();
        run(&queue, 1, |_, n| if n == 1 { Next::Again(Duration::from_mins(30)) } else { Next::Settled })
            .await;
        assert!(start.elapsed() >= Duration::from_mins(15));
        assert_eq!(queue.metrics.retries.get(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_one_key_never_stops_the_others() {
        let queue = queue();
        for key in ["bad", "a", "b"] {
            queue.add(key.into());
        }
        let seen = run(&queue, 1, |key, n| {
            assert!(!(key == "bad" && n == 1), "bad key");
            Next::Settled
        })
        .await;
        assert_eq!(seen, ["bad", "a", "b", "bad"]);
        assert_eq!(queue.metrics.panics.get(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn many_workers_take_all_keys() {
        let queue = queue();
        for n in 0..500 {
            queue.add(format!("k{n:03}"));
        }
        assert_eq!(run(&queue, 50, |_, _| Next::Settled).await.len(), 500);
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_queue_takes_nothing_and_lets_its_workers_end() {
        let queue = queue();
        let worker = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.run_worker(|_| async { Next::Settled }).await }
        });
        tokio::task::yield_now().await;
        queue.close();
        worker.await.unwrap();
        queue.add("late".into());
        assert!(queue.is_idle());
    }
}

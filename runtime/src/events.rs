//! Events for people (`events.k8s.io/v1`): the same event again becomes a count, a flood is cut off, and neither
//! a slow nor a dead API server ever holds up a controller.

use std::{collections::BTreeMap, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use kube::Client;
use prometheus::{IntCounterVec, Opts, Registry};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::Clock;

/// Events that wait to be written. More than a burst of failures makes, little enough to bound memory.
const QUEUE: usize = 8192;
/// The same event within this time continues its series (as in client-go's events package).
const SERIES: Duration = Duration::from_mins(6);
/// A series is written again at most this often: at first soon, so that the count is seen to grow, then rarely.
const FIRST_UPDATE: Duration = Duration::from_secs(10);
const SLOWEST_UPDATE: Duration = Duration::from_mins(5);
/// New events about one object: so many at once, then one per [`REFILL`] (client-go's spam filter).
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_mins(5);
/// Series and objects that are remembered.
const REMEMBERED: usize = 4096;
/// Longest note that the API server takes, in bytes.
const LONGEST_NOTE: usize = 1024;

/// The object that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Regarding {
    /// `apiVersion`.
    pub api_version: &'static str,
    /// `kind`.
    pub kind: &'static str,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Uid.
    pub uid: Arc<str>,
}

/// How serious an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

/// One occurrence.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Occurrence {
    /// What it is about.
    pub regarding: Regarding,
    /// `type`.
    pub severity: Severity,
    /// `reason`, CamelCase.
    pub reason: &'static str,
    /// `action`: what was attempted.
    pub action: &'static str,
    /// The text. The same situation must give the same text, or it will not be counted as a repetition.
    pub note: String,
}

/// Hands events over; never waits.
#[derive(Clone, Debug)]
pub struct Recorder {
    component: &'static str,
    sender: mpsc::Sender<(&'static str, Occurrence)>,
    outcomes: IntCounterVec,
}

/// Writes what a [`Recorder`] was handed.
#[derive(Debug)]
pub struct Writer {
    receiver: mpsc::Receiver<(&'static str, Occurrence)>,
    aggregator: Aggregator,
    outcomes: IntCounterVec,
    clock: Clock,
}

/// A recorder for events reported by `component` in the process `instance`, and the writer to run beside it.
///
/// # Errors
/// When its metric is registered already.
pub fn recorder(
    component: &'static str,
    instance: String,
    clock: Clock,
    registry: &Registry,
) -> Result<(Recorder, Writer), prometheus::Error> {
    let outcomes = IntCounterVec::new(
        Opts::new(
            "dra_controller_manager_events_total",
            "Events by outcome: created, updated (series), repeated (counted, not written yet), suppressed (too \
             many about one object), dropped (queue full), failed (refused or unreachable API server)",
        ),
        &["outcome"],
    )?;
    registry.register(Box::new(outcomes.clone()))?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let aggregator = Aggregator::new(instance);
    Ok((
        Recorder { component, sender, outcomes: outcomes.clone() },
        Writer { receiver, aggregator, outcomes, clock },
    ))
}

impl Recorder {
    /// A recorder for events that another component reports, through the same writer.
    #[must_use]
    pub fn of(&self, component: &'static str) -> Self {
        Self { component, ..self.clone() }
    }

    /// Records an occurrence; drops it (and counts that) when too many wait.
    pub fn record(&self, occurrence: Occurrence) {
        if self.sender.try_send((self.component, occurrence)).is_err() {
            self.outcomes.with_label_values(&["dropped"]).inc();
        }
    }
}

impl Writer {
    /// Writes events until every recorder is gone.
    pub async fn run(mut self, client: Client) {
        while let Some((component, occurrence)) = self.receiver.recv().await {
            let written = AssertUnwindSafe(self.write(&client, component, occurrence)).catch_unwind().await;
            let outcome = written.unwrap_or_else(|_| {
                tracing::error!("an event could not be written; going on with the next");
                "failed"
            });
            self.outcomes.with_label_values(&[outcome]).inc();
        }
    }

    /// Writes one event, if it is worth a write; returns what became of it.
    async fn write(
        &mut self,
        client: &Client,
        component: &'static str,
        occurrence: Occurrence,
    ) -> &'static str {
        let (elapsed, now) = (self.clock.elapsed(), self.clock.now());
        let decision = self.aggregator.observe(component, occurrence.clone(), elapsed, now);
        let (label, request) = match decision {
            Decision::Create { namespace, body } => {
                let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
                ("created", Request::post(path).header(CONTENT_TYPE, "application/json").body(bytes(&body)))
            }
            Decision::Update { namespace, name, body } => {
                let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}");
                let patch = Request::patch(path).header(CONTENT_TYPE, "application/merge-patch+json");
                ("updated", patch.body(bytes(&body)))
            }
            Decision::Count => return "repeated",
            Decision::Suppress => return "suppressed",
        };
        let Ok(request) = request else { return "failed" };
        let answer = tokio::time::timeout(Duration::from_secs(10), client.request_text(request)).await;
        if matches!(answer, Ok(Ok(_))) {
            return label;
        }
        tracing::debug!(failed = ?answer, "an event was not written");
        // Whatever comes next about this begins a new series: the old one may not exist.
        self.aggregator.give_up(occurrence);
        "failed"
    }
}

fn bytes(body: &Value) -> Vec<u8> {
    body.to_string().into_bytes()
}

/// What to do about an occurrence.
#[derive(Debug, PartialEq)]
enum Decision {
    Create {
        namespace: Arc<str>,
        body: Value,
    },
    Update {
        namespace: Arc<str>,
        name: String,
        body: Value,
    },
    /// Part of a series that was written lately.
    Count,
    /// One too many about this object.
    Suppress,
}

#[derive(Debug)]
struct Series {
    name: String,
    count: u32,
    seen: Duration,
    written: Duration,
    pause: Duration,
}

#[derive(Debug)]
struct Budget {
    left: u32,
    refilled: Duration,
}

/// Turns occurrences into as few writes as tell the story.
#[derive(Debug)]
struct Aggregator {
    instance: String,
    series: BTreeMap<Occurrence, Series>,
    budgets: BTreeMap<Arc<str>, Budget>,
}

impl Aggregator {
    fn new(instance: String) -> Self {
        Self { instance, series: BTreeMap::new(), budgets: BTreeMap::new() }
    }

    fn observe(
        &mut self,
        component: &str,
        mut occurrence: Occurrence,
        elapsed: Duration,
        now: Timestamp,
    ) -> Decision {
        truncate(&mut occurrence.note, LONGEST_NOTE);
        let namespace = match &*occurrence.regarding.namespace {
            "" => Arc::from("default"),
            _ => Arc::clone(&occurrence.regarding.namespace),
        };
        if let Some(series) = self.series.get_mut(&occurrence)
            && elapsed.saturating_sub(series.seen) < SERIES
        {
            series.count = series.count.saturating_add(1);
            series.seen = elapsed;
            if elapsed.saturating_sub(series.written) < series.pause {
                return Decision::Count;
            }
            series.written = elapsed;
            series.pause = series.pause.saturating_mul(2).min(SLOWEST_UPDATE);
            let body = json!({"series": {"count": series.count, "lastObservedTime": micro_time(now)}});
            return Decision::Update { namespace, name: series.name.clone(), body };
        }
        if !self.spend(&occurrence.regarding.uid, elapsed) {
            return Decision::Suppress;
        }
        let name = event_name(&occurrence.regarding.name, now);
        let body = self.body(component, &occurrence, (&namespace, &name), now);
        let series = Series { name, count: 1, seen: elapsed, written: elapsed, pause: FIRST_UPDATE };
        self.series.insert(occurrence, series);
        self.forget(elapsed);
        Decision::Create { namespace, body }
    }

    fn body(
        &self,
        component: &str,
        occurrence: &Occurrence,
        (namespace, name): (&str, &str),
        now: Timestamp,
    ) -> Value {
        let regarding = &occurrence.regarding;
        json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micro_time(now),
            "reportingController": component,
            "reportingInstance": self.instance,
            "type": match occurrence.severity { Severity::Normal => "Normal", Severity::Warning => "Warning" },
            "reason": occurrence.reason,
            "action": occurrence.action,
            "note": occurrence.note,
            "regarding": {
                "apiVersion": regarding.api_version,
                "kind": regarding.kind,
                "namespace": &*regarding.namespace,
                "name": &*regarding.name,
                "uid": &*regarding.uid,
            },
        })
    }

    /// The event was not written, or is there no more.
    fn give_up(&mut self, mut occurrence: Occurrence) {
        truncate(&mut occurrence.note, LONGEST_NOTE);
        self.series.remove(&occurrence);
    }

    /// Takes one new event out of the object's budget.
    fn spend(&mut self, uid: &Arc<str>, elapsed: Duration) -> bool {
        let budget = self.budgets.entry(Arc::clone(uid)).or_insert(Budget { left: BURST, refilled: elapsed });
        while budget.left < BURST && elapsed.saturating_sub(budget.refilled) >= REFILL {
            budget.left += 1;
            budget.refilled += REFILL;
        }
        if budget.left == BURST {
            budget.refilled = elapsed;
        }
        if budget.left == 0 {
            return false;
        }
        budget.left -= 1;
        true
    }

    fn forget(&mut self, elapsed: Duration) {
        if self.series.len() > REMEMBERED {
            self.series.retain(|_, s| elapsed.saturating_sub(s.seen) < SERIES);
        }
        if self.series.len() > REMEMBERED {
            // A quarter at once, so that a flood of different events does not search the map for each of them.
            let mut seen: Vec<Duration> = self.series.values().map(|s| s.seen).collect();
            seen.sort_unstable();
            let mut surplus = REMEMBERED / 4;
            let cutoff = seen.get(surplus).copied().unwrap_or_default();
            self.series.retain(|_, s| {
                let old = s.seen <= cutoff && surplus > 0;
                surplus -= usize::from(old);
                !old
            });
        }
        if self.budgets.len() > REMEMBERED {
            // A full budget is what an unknown object has too.
            self.budgets.retain(|_, b| elapsed.saturating_sub(b.refilled) < REFILL);
        }
        while self.budgets.len() > REMEMBERED.saturating_mul(2) {
            self.budgets.pop_first();
        }
    }
}

/// `<object>.<time>`, as client-go names events; within the limit of 253 bytes for names.
fn event_name(object: &str, now: Timestamp) -> String {
    let mut object = object.to_owned();
    truncate(&mut object, 230);
    format!("{}.{:x}", object.trim_end_matches(['.', '-']), now.as_nanosecond())
}

fn micro_time(now: Timestamp) -> String {
    format!("{now:.6}")
}

fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let mut end = bytes;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occurrence(pod: &str, note: &str) -> Occurrence {
        Occurrence {
            regarding: Regarding {
                api_version: "v1",
                kind: "Pod",
                namespace: "ns".into(),
                name: pod.into(),
                uid: format!("uid-{pod}").into(),
            },
            severity: Severity::Warning,
            reason: "FailedResourceClaimCreation",
            action: "GenerateClaim",
            note: note.to_owned(),
        }
    }

    fn at(seconds: u64) -> (Duration, Timestamp) {
        let now = Timestamp::UNIX_EPOCH.saturating_add(Duration::from_secs(seconds)).unwrap();
        (Duration::from_secs(seconds), now)
    }

    fn observe(aggregator: &mut Aggregator, pod: &str, note: &str, seconds: u64) -> Decision {
        let (elapsed, now) = at(seconds);
        aggregator.observe("c", occurrence(pod, note), elapsed, now)
    }

    #[test]
    fn a_new_event_is_complete() {
        let mut a = Aggregator::new("host".into());
        let Decision::Create { namespace, body } = observe(&mut a, "p", "no template", 1) else { panic!() };
        assert_eq!(&*namespace, "ns");
        assert_eq!(body["eventTime"], "1970-01-01T00:00:01.000000Z");
        assert_eq!(body["metadata"]["name"], "p.3b9aca00");
        assert_eq!(body["regarding"]["uid"], "uid-p");
        for field in ["action", "reason", "type", "reportingController", "reportingInstance", "note"] {
            assert!(body[field].as_str().is_some_and(|t| !t.is_empty()), "{field}");
        }
    }

    #[test]
    fn repetitions_become_a_count_that_is_written_ever_more_rarely() {
        let mut a = Aggregator::new("i".into());
        let mut written = Vec::new();
        for second in 0..600 {
            match observe(&mut a, "p", "n", second) {
                Decision::Create { .. } => written.push((second, 1)),
                Decision::Update { body, .. } => {
                    written.push((second, body["series"]["count"].as_u64().unwrap()));
                }
                Decision::Count => {}
                Decision::Suppress => panic!("repetitions are not new events"),
            }
        }
        assert_eq!(written, [(0, 1), (10, 11), (30, 31), (70, 71), (150, 151), (310, 311)]);
    }

    #[test]
    fn the_same_event_after_a_long_silence_is_a_new_one() {
        let mut a = Aggregator::new("i".into());
        observe(&mut a, "p", "n", 0);
        assert!(matches!(observe(&mut a, "p", "n", 400), Decision::Create { .. }));
    }

    #[test]
    fn an_event_that_was_not_written_is_written_at_its_next_occurrence() {
        let mut a = Aggregator::new("i".into());
        observe(&mut a, "p", "n", 0);
        a.give_up(occurrence("p", "n"));
        assert!(matches!(observe(&mut a, "p", "n", 1), Decision::Create { .. }));
    }

    #[test]
    fn a_flood_about_one_object_is_cut_off_and_others_are_heard() {
        let mut a = Aggregator::new("i".into());
        let mut decisions = (0..30).map(|n| observe(&mut a, "p", &format!("text {n}"), 1));
        assert!(decisions.by_ref().take(25).all(|d| matches!(d, Decision::Create { .. })));
        assert!(decisions.all(|d| d == Decision::Suppress));
        assert!(matches!(observe(&mut a, "q", "n", 1), Decision::Create { .. }));
        assert!(matches!(observe(&mut a, "p", "later", 302), Decision::Create { .. }));
        assert_eq!(observe(&mut a, "p", "even later", 303), Decision::Suppress);
    }

    #[test]
    fn memory_is_bounded_whatever_comes() {
        let mut a = Aggregator::new("i".into());
        for n in 0..10_000 {
            observe(&mut a, &format!("p{n}"), "n", 1);
        }
        assert!(a.series.len() <= REMEMBERED && a.budgets.len() <= 2 * REMEMBERED);
    }

    #[test]
    fn long_notes_and_names_are_cut_to_what_the_api_server_takes() {
        let mut a = Aggregator::new("i".into());
        let Decision::Create { body, .. } = observe(&mut a, &"p".repeat(253), &"é".repeat(2000), 1) else {
            panic!()
        };
        assert!(body["note"].as_str().unwrap().len() <= 1024);
        assert!(body["metadata"]["name"].as_str().unwrap().len() <= 253);
    }
}

//! A cluster that goes on from a snapshot in virtual time: the real controllers, and beside them only what removes
//! objects. Nothing is scheduled, no Pod starts or ends by itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::pending,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow};
use dra_act::{Journal, journal};
use dra_allocator::summary::report::PoolReport;
use dra_api::{ObjectKey, names};
use dra_controllers::{
    devicetainteviction::{REASON_EVICTION, message},
    plan::{Action, DeleteReason, ExpireReason, ReleaseReason, SubjectKind, Why},
};
use dra_embedded::Server;
use dra_inhabitants::cluster::{Cluster, at, is_deleting, items, name, namespace, set, text, uid, version};
use dra_runtime::{Chance, Clock};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};

use super::report::{Deed, Freed, Happening, Later, Outcome, Subject, Waiting, written};
use crate::{
    cli::{RunOptions, Settings},
    run_with,
};

/// How long controllers have to themselves after a change, before others act.
const MOMENT: Duration = Duration::from_millis(200);
/// The seed of everything that is random: names, uids, back-off.
const SEED: u64 = 1;

/// What is to be simulated.
#[derive(Clone, Copy)]
pub(super) struct Scenario<'a> {
    pub(super) from: Timestamp,
    pub(super) lasts: Duration,
    pub(super) base: &'a [Value],
    /// Changes made at the beginning.
    pub(super) change: &'a [Value],
    /// Flags of `run`.
    pub(super) options: &'a RunOptions,
}

/// Runs a scenario to its end.
///
/// # Errors
/// An object cannot be used at all, or the controllers end.
pub(super) fn run(scenario: Scenario<'_>) -> Result<Outcome> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("cannot start the async runtime")?;
    runtime.block_on(async {
        let journal = Journal::default();
        let world = World::new(scenario, journal.clone())?;
        let client = world.cluster.server.client();
        let settings = Settings { journal: Some(journal), ..scenario.options.settings()? };
        let clock = Clock::starting_at(scenario.from);
        let chance = Arc::new(Chance::seeded(SEED));
        tokio::select! {
            biased;
            outcome = world.live(scenario.lasts) => Ok(outcome),
            ended = run_with(client, &settings, clock, chance, pending()) => {
                Err(ended.err().unwrap_or_else(|| anyhow!("the controllers have ended")))
            }
        }
    })
}

struct World {
    cluster: Cluster,
    from: Timestamp,
    started: Instant,
    journal: Journal,
    /// Consumers and owners by uid.
    names: BTreeMap<String, Subject>,
    /// How claims are called that are made here.
    made: BTreeMap<ObjectKey, String>,
    /// What claims hold, with the counters of each device.
    holdings: BTreeMap<ObjectKey, Vec<Freed>>,
    /// Pods that are to be evicted: when and why.
    evictions: BTreeMap<ObjectKey, (Option<Timestamp>, String)>,
    waiting: BTreeMap<(&'static str, String), Vec<String>>,
    /// Events so far.
    told: BTreeSet<(Subject, String)>,
    /// Uids of Pods that the kubelet is done with.
    removed: BTreeSet<String>,
    /// Pods that are being deleted, by namespace and name, in the order in which the server keeps them.
    ending: BTreeMap<String, Arc<Value>>,
    /// Pods are known up to here.
    pods_seen: u64,
    /// Claims that are known up to here.
    seen: u64,
    outcome: Outcome,
}

fn subject(object: &Value) -> Subject {
    Subject {
        kind: text(object, &["kind"]).to_owned(),
        namespace: namespace(object).to_owned(),
        name: name(object).to_owned(),
    }
}

fn key(object: &Value) -> ObjectKey {
    ObjectKey::new(namespace(object), name(object))
}

/// Namespace and name, as the server sorts by them.
fn place(object: &Value) -> String {
    format!("{}/{}", namespace(object), name(object))
}

fn of_key(kind: &str, key: &ObjectKey) -> Subject {
    Subject { kind: kind.to_owned(), namespace: key.namespace.to_string(), name: key.name.to_string() }
}

impl World {
    fn new(scenario: Scenario<'_>, journal: Journal) -> Result<Self> {
        let server = Server::new(SEED, scenario.from);
        for object in scenario.base {
            let named = || subject(object).to_string();
            server.load(object.clone()).map_err(|e| anyhow!("{}: {e}", named()))?;
        }
        let cluster = Cluster::new(server, "");
        let pools_before = pools(&cluster);
        let mut refused = Vec::new();
        for object in scenario.change {
            if let Err(why) = apply(&cluster, object) {
                refused.push(format!("{}: {why}", subject(object)));
            }
        }
        let mut names = BTreeMap::new();
        for kind in ["Pod", "PodGroup", "DeviceTaintRule"] {
            for object in cluster.all(kind) {
                names.insert(uid(&object).to_owned(), Subject { kind: kind.to_owned(), ..subject(&object) });
            }
        }
        let ending = cluster.all("Pod").into_iter().filter(|pod| is_deleting(pod));
        Ok(Self {
            ending: ending.map(|pod| (place(&pod), pod)).collect(),
            holdings: holdings(&cluster),
            seen: cluster.server.revision(),
            pods_seen: cluster.server.revision(),
            cluster,
            from: scenario.from,
            started: Instant::now(),
            journal,
            names,
            made: BTreeMap::new(),
            evictions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            told: BTreeSet::new(),
            removed: BTreeSet::new(),
            outcome: Outcome { pools_before, refused, ..Outcome::default() },
        })
    }

    async fn live(mut self, lasts: Duration) -> Outcome {
        let end = self.started + lasts;
        // What has ended already goes first.
        let mut next = self.remove_ended_pods();
        let mut revision = 0;
        loop {
            let wake = next.map_or(end, |next| next.min(end));
            tokio::select! {
                biased;
                () = sleep_until(wake) => {}
                () = self.cluster.server.changed(revision) => sleep(MOMENT.min(end - Instant::now())).await,
            }
            self.read_journal();
            next = self.remove_ended_pods();
            self.collect_garbage();
            revision = self.cluster.server.revision();
            if Instant::now() >= end {
                break;
            }
        }
        self.finish()
    }

    fn instant(&self, at: Timestamp) -> Instant {
        let wait = at.duration_since(self.from).try_into().unwrap_or_default();
        self.started.checked_add(wait).unwrap_or(self.started)
    }

    fn tell(&mut self, at: Timestamp, by: &'static str, action: Deed, object: Subject, reason: String) {
        let after_seconds = at.duration_since(self.from).as_secs();
        let frees = Vec::new();
        self.outcome.happenings.push(Happening { at, after_seconds, by, action, object, reason, frees });
    }

    /// What was just told frees this.
    fn it_frees(&mut self, frees: Vec<Freed>) {
        if let Some(last) = self.outcome.happenings.last_mut() {
            last.frees = frees;
        }
    }

    /// How a claim is called; one that is made here has a name that nobody can know.
    fn claim(&self, key: &ObjectKey) -> Subject {
        Subject {
            name: self.made.get(key).cloned().unwrap_or_else(|| key.name.to_string()),
            ..of_key("ResourceClaim", key)
        }
    }

    fn notice_new_claims(&mut self) {
        for (before, after) in self.cluster.server.changes_since("ResourceClaim", self.seen) {
            if let (None, Some(after)) = (before, after) {
                let called = format!("{}*", text(&after, &["metadata", "generateName"]));
                self.made.insert(key(&after), called);
            }
        }
        self.seen = self.cluster.server.revision();
    }

    fn frees(&mut self, claim: &ObjectKey) -> Vec<Freed> {
        self.holdings.remove(claim).unwrap_or_default()
    }

    // What the controllers do

    fn read_journal(&mut self) {
        self.notice_new_claims();
        for record in self.journal.take() {
            match record.what {
                journal::Happening::Done(action) => self.done(record.at, record.by, &action),
                journal::Happening::Failed { action, error } => {
                    let key = Subject { kind: "key".to_owned(), namespace: String::new(), name: record.key };
                    self.tell(record.at, record.by, Deed::Fail, key, format!("{action}: {error}"));
                }
                journal::Happening::Waiting(why) => {
                    if why.is_empty() {
                        self.waiting.remove(&(record.by, record.key));
                    } else {
                        self.waiting
                            .insert((record.by, record.key), why.iter().map(Why::to_string).collect());
                    }
                }
            }
        }
    }

    fn done(&mut self, when: Timestamp, by: &'static str, action: &Action) {
        match action {
            Action::Create(new) => {
                let object = Subject {
                    name: format!("{}*", new.generate_name),
                    ..of_key("ResourceClaim", &new.owner.key)
                };
                let lost = if new.replaces { "the claim recorded for" } else { "there is no claim for" };
                let end = if new.replaces { " is lost" } else { "" };
                let owner = of_key(new.owner.kind.name(), &new.owner.key);
                self.tell(
                    when,
                    by,
                    Deed::CreateClaim,
                    object,
                    format!("{lost} entry {} of {owner}{end}", new.entry),
                );
            }
            Action::Record { owner, statuses } => {
                let claims: Vec<String> = statuses
                    .iter()
                    .map(|(entry, claim)| {
                        format!("{entry} is {}", self.claim(&owner.key.sibling(claim)).name)
                    })
                    .collect();
                let object = of_key(owner.kind.name(), &owner.key);
                self.tell(when, by, Deed::RecordClaims, object, claims.join(", "));
            }
            Action::Reserve { claim, consumer, .. } => {
                let object = self.claim(&claim.key);
                let who = format!("for {} {}, which has a node already", consumer.resource, consumer.name);
                self.tell(when, by, Deed::ReserveClaim, object, who);
            }
            Action::Release { claim, consumers, deallocate } => {
                let object = self.claim(&claim.key);
                let mut reasons: Vec<String> = consumers
                    .iter()
                    .map(|(uid, reason)| {
                        let who = self
                            .names
                            .get(&**uid)
                            .map_or_else(|| format!("consumer {uid}"), Subject::to_string);
                        let what = match reason {
                            ReleaseReason::Gone => "is gone",
                            ReleaseReason::Replaced => "was replaced by another of its name",
                            ReleaseReason::Done => "is done",
                        };
                        format!("{who} {what}")
                    })
                    .collect();
                if consumers.is_empty() {
                    reasons.push("nobody has it".to_owned());
                }
                let frees = if *deallocate { self.frees(&claim.key) } else { Vec::new() };
                self.tell(when, by, Deed::ReleaseClaim, object, reasons.join(", "));
                self.it_frees(frees);
            }
            Action::RemoveFinalizer { claim } => {
                let object = self.claim(&claim.key);
                self.tell(when, by, Deed::RemoveFinalizer, object, "it is not allocated any more".to_owned());
            }
            Action::Delete { claim, reason } => {
                let object = self.claim(&claim.key);
                let why = match reason {
                    DeleteReason::OwnerDone => "the Pod that it was made for is done",
                    DeleteReason::Duplicate => "its owner uses another claim for the same entry",
                };
                self.tell(when, by, Deed::DeleteClaim, object, why.to_owned());
            }
            _ => self.done_to_others(when, by, action),
        }
    }

    fn done_to_others(&mut self, when: Timestamp, by: &'static str, action: &Action) {
        match action {
            Action::Notify(notice) => {
                // What an eviction is announced with stands with the eviction.
                if notice.subject.kind == SubjectKind::Pod && notice.reason == REASON_EVICTION {
                    if notice.action == "CancelEviction" {
                        let object = of_key("Pod", &notice.subject.key);
                        self.tell(when, by, Deed::CancelEviction, object, notice.note.clone());
                    }
                    return;
                }
                let object = of_key(notice.subject.kind.name(), &notice.subject.key);
                let text = format!("{}: {}", notice.reason, notice.note);
                // Repetitions are one event with a count.
                if self.told.insert((object.clone(), text.clone())) {
                    self.tell(when, by, Deed::Tell, object, text);
                }
            }
            Action::Schedule { pod, eviction: Some(eviction) } => {
                let why = (eviction.at, message::reasons(&eviction.reasons));
                self.evictions.insert(pod.key.clone(), why);
            }
            Action::Schedule { pod, eviction: None } => {
                self.evictions.remove(&pod.key);
            }
            Action::Disrupt { pod, .. } => {
                let why = format!("condition {}: {}", names::DISRUPTION_TARGET, names::DISRUPTION_REASON);
                self.tell(when, by, Deed::MarkDisrupted, of_key("Pod", &pod.key), why);
            }
            Action::Evict { pod, .. } => {
                let why = self.evictions.remove(&pod.key).map(|(_, why)| why).unwrap_or_default();
                self.tell(when, by, Deed::EvictPod, of_key("Pod", &pod.key), why);
            }
            Action::Report(report) => {
                let condition = &report.condition;
                let text = format!(
                    "{}={} ({}): {}",
                    names::EVICTION_IN_PROGRESS,
                    condition.status.name(),
                    condition.reason,
                    condition.message
                );
                self.tell(when, by, Deed::ReportCondition, of_key("DeviceTaintRule", &report.rule.key), text);
            }
            Action::CreateRule(new) => {
                let why = format!("DeviceTaintRule {} selects its device", new.parent.key);
                self.tell(when, by, Deed::CreateRule, of_key("DeviceTaintRule", &new.key), why);
            }
            Action::CorrectRule(to) => {
                let why = format!("it is not as DeviceTaintRule {} wants it", to.parent.key);
                self.tell(when, by, Deed::CorrectRule, of_key("DeviceTaintRule", &to.rule.key), why);
            }
            Action::DeleteRule { rule, .. } => {
                let why = "the rule that it was made for does not select its device any more".to_owned();
                self.tell(when, by, Deed::DeleteRule, of_key("DeviceTaintRule", &rule.key), why);
            }
            Action::Answer(answer) => {
                let text = if answer.failed { "there is no answer" } else { "all slices are there" };
                let object = of_key("ResourcePoolStatusRequest", &answer.request.key);
                self.tell(when, by, Deed::AnswerPoolRequest, object, text.to_owned());
            }
            Action::Expire { request, reason } => {
                let why = match reason {
                    ExpireReason::Answered => "it was answered long ago",
                    ExpireReason::Unanswered => "it could not be answered for too long",
                };
                let object = of_key("ResourcePoolStatusRequest", &request.key);
                self.tell(when, by, Deed::DeletePoolRequest, object, why.to_owned());
            }
            // Claims are not told of here; what a rule is expanded into is told with each of its rules.
            Action::Expand { .. }
            | Action::Create(_)
            | Action::Record { .. }
            | Action::Reserve { .. }
            | Action::Release { .. }
            | Action::RemoveFinalizer { .. }
            | Action::Delete { .. } => {}
        }
    }

    // What the others do

    /// Pods go when their grace period is over, as kubelets see to it. When the next one is due.
    fn remove_ended_pods(&mut self) -> Option<Instant> {
        for (before, after) in self.cluster.server.changes_since("Pod", self.pods_seen) {
            match (before, after) {
                (_, Some(pod)) if is_deleting(&pod) => drop(self.ending.insert(place(&pod), pod)),
                (Some(pod), _) | (None, Some(pod)) => drop(self.ending.remove(&place(&pod))),
                (None, None) => {}
            }
        }
        self.pods_seen = self.cluster.server.revision();
        let (now, mut next) = (self.cluster.server.now(), None);
        let ending: Vec<Arc<Value>> = self.ending.values().cloned().collect();
        for pod in &ending {
            let Ok(ends) = text(pod, &["metadata", "deletionTimestamp"]).parse::<Timestamp>() else {
                continue;
            };
            if ends > now {
                let at = self.instant(ends);
                next = Some(next.map_or(at, |next: Instant| next.min(at)));
                continue;
            }
            if !self.removed.insert(uid(pod).to_owned()) {
                continue;
            }
            let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": uid(pod)}});
            if self.cluster.beside(pod).delete("Pod", name(pod), &options).is_ok() {
                let object = Subject { kind: "Pod".to_owned(), ..subject(pod) };
                let why = format!("its grace period ended at {}", written(ends));
                self.tell(now, "kubelet", Deed::RemovePod, object, why);
            }
        }
        next
    }

    /// The garbage collector, level after level of owners.
    fn collect_garbage(&mut self) {
        loop {
            let before = self.cluster.server.revision();
            if self.cluster.server.collect_garbage() == 0 {
                return;
            }
            let now = self.cluster.server.now();
            for kind in ["Pod", "PodGroup", "ResourceClaim", "DeviceTaintRule"] {
                for (was, is) in self.cluster.server.changes_since(kind, before) {
                    let Some(was) = was.filter(|was| is.is_none() || !is_deleting(was)) else { continue };
                    self.collected(now, kind, &was, is.is_none());
                }
            }
        }
    }

    fn collected(&mut self, now: Timestamp, kind: &str, was: &Value, gone: bool) {
        let owners: Vec<String> = items(was, &["metadata", "ownerReferences"])
            .iter()
            .map(|owner| format!("{} {}", text(owner, &["kind"]), text(owner, &["name"])))
            .collect();
        let why = match owners.len() {
            0 => "it is being deleted and nothing holds it any more".to_owned(),
            1 => format!("its owner {} is gone", owners.join("")),
            _ => format!("its owners {} are gone", owners.join(", ")),
        };
        let key = key(was);
        let object = if kind == "ResourceClaim" { self.claim(&key) } else { of_key(kind, &key) };
        let frees = if gone && kind == "ResourceClaim" { self.frees(&key) } else { Vec::new() };
        self.tell(now, "garbage-collector", Deed::CollectGarbage, object, why);
        self.it_frees(frees);
    }

    // The end

    fn finish(mut self) -> Outcome {
        self.outcome.happenings.sort_by_key(|h| h.at);
        let here: BTreeSet<ObjectKey> =
            self.cluster.all("Pod").iter().filter(|pod| !is_deleting(pod)).map(|pod| key(pod)).collect();
        self.outcome.later = std::mem::take(&mut self.evictions)
            .into_iter()
            .filter(|(key, _)| here.contains(key))
            .map(|(key, (at, reason))| Later { pod: of_key("Pod", &key), at, reason })
            .collect();
        self.outcome.waiting = std::mem::take(&mut self.waiting)
            .into_iter()
            .map(|((by, key), reasons)| Waiting { by, key, reasons })
            .collect();
        self.outcome.pools_after = pools(&self.cluster);
        for kind in ["Pod", "PodGroup", "ResourceClaim", "DeviceTaintRule", "ResourcePoolStatusRequest"] {
            for object in self.cluster.all(kind) {
                let key = key(&object);
                let named = if kind == "ResourceClaim" { self.claim(&key) } else { of_key(kind, &key) };
                self.outcome.end.insert(named, stands(kind, &object));
            }
        }
        self.outcome
    }
}

/// How an object stands, in a line.
fn stands(kind: &str, object: &Value) -> String {
    let terminating = if is_deleting(object) { ", terminating" } else { "" };
    let state = match kind {
        "Pod" => {
            let phase = text(object, &["status", "phase"]);
            match text(object, &["spec", "nodeName"]) {
                "" => phase.to_owned(),
                node => format!("{phase} on {node}"),
            }
        }
        "ResourceClaim" => {
            let results = items(object, &["status", "allocation", "devices", "results"]);
            let devices: Vec<String> = results.iter().map(device).collect();
            let consumers: Vec<&str> =
                items(object, &["status", "reservedFor"]).iter().map(|c| text(c, &["name"])).collect();
            if at(object, &["status", "allocation"]).is_null() {
                "not allocated".to_owned()
            } else {
                format!("has {} for {}", devices.join(" "), consumers.join(" "))
            }
        }
        "DeviceTaintRule" => {
            let conditions = items(object, &["status", "conditions"]);
            let condition = conditions.iter().find(|c| text(c, &["type"]) == names::EVICTION_IN_PROGRESS);
            condition.map_or_else(String::new, |condition| {
                let field = |field: &str| text(condition, &[field]).to_owned();
                format!("{}={}: {}", names::EVICTION_IN_PROGRESS, field("status"), field("message"))
            })
        }
        "ResourcePoolStatusRequest" => {
            let answered = !items(object, &["status", "conditions"]).is_empty();
            if answered { "answered" } else { "not answered" }.to_owned()
        }
        _ => "is there".to_owned(),
    };
    format!("{state}{terminating}")
}

fn device(result: &Value) -> String {
    format!("{}/{}/{}", text(result, &["driver"]), text(result, &["pool"]), text(result, &["device"]))
}

/// All pools.
fn pools(cluster: &Cluster) -> BTreeMap<String, PoolReport> {
    let inventory = cluster.inventory();
    let ids: Vec<_> = inventory.pools().cloned().collect();
    ids.iter().filter_map(|id| Some((id.to_string(), inventory.pool_summary(id)?.report.clone()))).collect()
}

/// What each claim holds. Devices for administration are nobody's.
fn holdings(cluster: &Cluster) -> BTreeMap<ObjectKey, Vec<Freed>> {
    let mut counters: BTreeMap<String, (i64, BTreeMap<String, String>)> = BTreeMap::new();
    for slice in cluster.all("ResourceSlice") {
        let pool =
            format!("{}/{}", text(&slice, &["spec", "driver"]), text(&slice, &["spec", "pool", "name"]));
        let generation = at(&slice, &["spec", "pool", "generation"]).as_i64().unwrap_or_default();
        for published in items(&slice, &["spec", "devices"]) {
            let consumed = consumed_counters(published);
            let entry = counters.entry(format!("{pool}/{}", text(published, &["name"]))).or_default();
            if generation >= entry.0 {
                *entry = (generation, consumed);
            }
        }
    }
    let mut held = BTreeMap::new();
    for claim in cluster.all("ResourceClaim") {
        let devices: Vec<Freed> = items(&claim, &["status", "allocation", "devices", "results"])
            .iter()
            .filter(|result| at(result, &["adminAccess"]) != true)
            .map(|result| {
                let device = device(result);
                Freed {
                    counters: counters.get(&device).map(|(_, counters)| counters.clone()).unwrap_or_default(),
                    share: at(result, &["shareID"]).as_str().map(str::to_owned),
                    capacity: texts(at(result, &["consumedCapacity"])),
                    device,
                }
            })
            .collect();
        if !devices.is_empty() {
            held.insert(key(&claim), devices);
        }
    }
    held
}

fn consumed_counters(device: &Value) -> BTreeMap<String, String> {
    let mut consumed = BTreeMap::new();
    for set in items(device, &["consumesCounters"]) {
        for (counter, value) in at(set, &["counters"]).as_object().into_iter().flatten() {
            consumed
                .insert(format!("{}/{counter}", text(set, &["counterSet"])), plain(at(value, &["value"])));
        }
    }
    consumed
}

fn texts(map: &Value) -> BTreeMap<String, String> {
    map.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), plain(value))).collect()
}

/// A text without quotes; anything else as JSON.
fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Makes a change. An object with a resourceVersion comes from a server and is taken as it is; otherwise it is what a
/// user wants: its labels and annotations are added, every other part but the status is replaced.
fn apply(cluster: &Cluster, object: &Value) -> Result<(), String> {
    let cluster = Cluster::new(cluster.server.clone(), namespace(object));
    if !version(object).is_empty() {
        return cluster.server.load(object.clone()).map(drop);
    }
    let kind = text(object, &["kind"]);
    if !namespace(object).is_empty() && cluster.find("Namespace", namespace(object)).is_none() {
        cluster
            .create("Namespace", &json!({"metadata": {"name": namespace(object)}}))
            .map_err(|code| code.to_string())?;
    }
    let (code, answer) = match cluster.find(kind, name(object)) {
        None => cluster.post(kind, object),
        Some(old) => {
            let mut new = Value::clone(&old);
            for (field, value) in object.as_object().into_iter().flatten() {
                if field != "status" && field != "metadata" {
                    set(&mut new, field, value.clone());
                }
            }
            for part in ["labels", "annotations"] {
                for (key, value) in at(object, &["metadata", part]).as_object().into_iter().flatten() {
                    let mut all = at(&new, &["metadata", part]).clone();
                    if !all.is_object() {
                        all = json!({});
                    }
                    set(&mut all, key, value.clone());
                    if let Some(metadata) = new.get_mut("metadata") {
                        set(metadata, part, all);
                    }
                }
            }
            cluster.replace(kind, &new)
        }
    };
    if code < 300 { Ok(()) } else { Err(text(&answer, &["message"]).to_owned()) }
}

/// The latest time that an object tells of, except those that lie ahead of it by intention.
pub(super) fn newest(objects: &[Value]) -> Option<Timestamp> {
    objects.iter().filter_map(newest_in).max()
}

fn newest_in(object: &Value) -> Option<Timestamp> {
    let created = times(at(object, &["metadata", "creationTimestamp"]));
    let managed = items(object, &["metadata", "managedFields"]).iter().map(|m| times(at(m, &["time"])));
    let conditions = items(object, &["status", "conditions"]);
    let changed = conditions.iter().map(|c| times(at(c, &["lastTransitionTime"])));
    let started = times(at(object, &["status", "startTime"]));
    let allocated = times(at(object, &["status", "allocation", "allocationTimestamp"]));
    // The end of the grace period lies ahead.
    let grace = at(object, &["metadata", "deletionGracePeriodSeconds"]).as_i64().unwrap_or_default();
    let deleted = times(at(object, &["metadata", "deletionTimestamp"]))
        .and_then(|end| end.checked_sub(SignedDuration::from_secs(grace)).ok());
    [created, started, allocated, deleted].into_iter().chain(managed).chain(changed).flatten().max()
}

fn times(value: &Value) -> Option<Timestamp> {
    value.as_str()?.parse().ok()
}

//! What the executor does with a plan, on the tiny API server: look up, act, tell the view, plan again.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use dra_api::{Claim, ClaimTemplate, Meta, Object, ObjectKey, Pod, PodGroup, ResourceVersion, Uid};
use dra_controllers::{
    Elapsed,
    plan::{Action, Lookup, NewClaim, Notice, Pass, Precondition, Subject, SubjectKind},
    resourceclaim::{Key, ResourceClaims},
    view::{Change, Source, View},
};
use serde_json::{Value, json};

use super::{
    objects::{FINALIZER, push},
    server::{Event, Kind, Refusal, Server, Snapshot, key_of, uid_of, version_of},
};

/// Plan and act this often for one key before giving up: a planner that needs more is not settling.
const MAX_ROUNDS: usize = 40;
/// What one request takes.
const ROUND_TRIP: Duration = Duration::from_micros(10);

/// Requests by kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Verb {
    Create,
    RecordPod,
    RecordGroup,
    Reserve,
    Release,
    RemoveFinalizer,
    Delete,
    GetClaim,
    GetPod,
    GetGroup,
    ListClaims,
}

impl Verb {
    pub(crate) fn is_write(self) -> bool {
        self < Self::GetClaim
    }
}

/// A request that is going to fail.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) verb: Verb,
    /// Part of the request's target, such as the entry of a create request; empty for any.
    pub(crate) about: String,
    pub(crate) how: Refusal,
    /// For [`Refusal::Lost`]: whether the server carried it out.
    pub(crate) carried_out: bool,
    pub(crate) times: usize,
}

/// The metric that in-tree counts create requests with: success, admin access, owner's group and kind.
pub(crate) type CreateLabels = (bool, bool, &'static str, &'static str);

type Meddling = Box<dyn FnMut(&mut Server, &Action)>;

/// The controller with its queue.
#[derive(Default)]
pub(crate) struct Driver {
    pub(crate) planner: ResourceClaims,
    pub(crate) view: View,
    ready: VecDeque<Key>,
    waiting: BTreeSet<Key>,
    delayed: BTreeMap<Key, Elapsed>,
    failures: BTreeMap<Key, u32>,
    listing: BTreeMap<Kind, Snapshot>,
    pub(crate) faults: Vec<Fault>,
    /// Requests sent so far.
    pub(crate) requests: BTreeMap<Verb, usize>,
    pub(crate) creates: BTreeMap<CreateLabels, usize>,
    /// Events for people, by subject, reason and note, as they aggregate.
    pub(crate) told: BTreeMap<(String, &'static str, String), usize>,
    /// Why each key is not where it should be, by the last plan.
    pub(crate) why: BTreeMap<Key, Vec<String>>,
    /// All actions but events, as text.
    pub(crate) log: Vec<String>,
    /// The process ends after this many more writes.
    pub(crate) dies_after: Option<usize>,
    pub(crate) dead: bool,
    /// With a seed: other workers settle other keys between a plan and its requests.
    pub(crate) interleave: Option<u64>,
    busy: BTreeSet<Key>,
    /// Actions are carried out although the plan has lookups too.
    pub(crate) eager: bool,
    /// Watch events overtake the answers to our own requests.
    pub(crate) late_answers: bool,
    /// Somebody else's write between plan and action.
    pub(crate) meddle: Option<Meddling>,
}

pub(crate) fn decode<T: Object>(object: &Value) -> T {
    T::decode(&object.to_string()).unwrap_or_else(|e| panic!("{e}: {object}"))
}

fn expected(claim: &Precondition) -> (&str, u64) {
    (&claim.uid, claim.resource_version.0)
}

impl Driver {
    /// The process after a restart: nothing is known, what the test counts goes on.
    pub(crate) fn reborn(self) -> Self {
        Self {
            planner: self.planner,
            faults: self.faults,
            requests: self.requests,
            creates: self.creates,
            told: self.told,
            log: self.log,
            meddle: self.meddle,
            late_answers: self.late_answers,
            eager: self.eager,
            interleave: self.interleave,
            ..Self::default()
        }
    }

    pub(crate) fn add(&mut self, key: Key) {
        if self.waiting.insert(key.clone()) {
            self.ready.push_back(key);
        }
    }

    /// What is queued, in key order.
    pub(crate) fn queued(&self) -> Vec<Key> {
        self.waiting.iter().cloned().collect()
    }

    /// Drops what is ready; what is delayed after a failure stays.
    pub(crate) fn forget_queue(&mut self) {
        self.ready.clear();
        self.waiting.clear();
    }

    fn note(&mut self, change: Option<Change>) {
        if let Some(change) = change {
            self.view.follow(&change);
            for key in self.planner.affected(&self.view, &change) {
                self.add(key);
            }
        }
    }

    fn see(&mut self, kind: Kind, object: &Value, source: Source, now: Elapsed) {
        let change = match kind {
            Kind::Pod => self.view.observe(decode::<Pod>(object), source, now),
            Kind::PodGroup => self.view.observe(decode::<PodGroup>(object), source, now),
            Kind::Claim => self.view.observe(decode::<Claim>(object), source, now),
            Kind::Template => self.view.observe(decode::<ClaimTemplate>(object), source, now),
        };
        self.note(change);
    }

    /// One watch event.
    pub(crate) fn watched(&mut self, kind: Kind, event: &Event, now: Elapsed) {
        if !event.deleted {
            return self.see(kind, &event.object, Source::Watch, now);
        }
        let key = key_of(&event.object);
        let uid = Uid::from(uid_of(&event.object));
        let change = match kind {
            Kind::Pod => self.view.deleted::<Pod>(&key, &uid),
            Kind::PodGroup => self.view.deleted::<PodGroup>(&key, &uid),
            Kind::Claim => self.view.deleted::<Claim>(&key, &uid),
            Kind::Template => self.view.deleted::<ClaimTemplate>(&key, &uid),
        };
        self.note(change);
    }

    pub(crate) fn watches(&self, kind: Kind) -> bool {
        kind != Kind::PodGroup || (self.view.pod_groups_served && self.planner.wants_pod_groups())
    }

    pub(crate) fn list_begins(&mut self, server: &mut Server, kind: Kind) {
        if !self.watches(kind) {
            return;
        }
        match kind {
            Kind::Pod => self.view.list_begins::<Pod>(server.now),
            Kind::PodGroup => self.view.list_begins::<PodGroup>(server.now),
            Kind::Claim => self.view.list_begins::<Claim>(server.now),
            Kind::Template => self.view.list_begins::<ClaimTemplate>(server.now),
        }
        server.now += ROUND_TRIP;
        let snapshot = server.snapshot(kind);
        self.listing.insert(snapshot.kind, snapshot);
    }

    pub(crate) fn list_ends(&mut self, server: &Server, kind: Kind) {
        let Some(snapshot) = self.listing.remove(&kind) else { return };
        for object in &snapshot.objects {
            self.see(kind, object, Source::Watch, server.now);
        }
        let changes = match kind {
            Kind::Pod => self.view.list_ends::<Pod>(),
            Kind::PodGroup => self.view.list_ends::<PodGroup>(),
            Kind::Claim => self.view.list_ends::<Claim>(),
            Kind::Template => self.view.list_ends::<ClaimTemplate>(),
        };
        for change in changes {
            self.note(Some(change));
        }
    }

    /// Reads again what was written long ago and not confirmed by the watch.
    pub(crate) fn chase(&mut self, server: &mut Server) {
        for key in self.view.claims.overdue(server.now) {
            self.read(server, Kind::Claim, &key).ok();
        }
        for key in self.view.pods.overdue(server.now) {
            self.read(server, Kind::Pod, &key).ok();
        }
        for key in self.view.pod_groups.overdue(server.now) {
            self.read(server, Kind::PodGroup, &key).ok();
        }
        self.view.tidy(server.now);
    }

    fn request<R>(
        &mut self,
        server: &mut Server,
        verb: Verb,
        about: &str,
        carry_out: impl FnOnce(&mut Server) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        server.now += ROUND_TRIP;
        *self.requests.entry(verb).or_default() += 1;
        let fault =
            self.faults.iter_mut().find(|f| f.times > 0 && f.verb == verb && about.contains(&f.about));
        let answer = match fault {
            None => carry_out(server),
            Some(fault) => {
                fault.times -= 1;
                let how = fault.how.clone();
                if how == Refusal::Lost && fault.carried_out {
                    carry_out(server).ok();
                }
                Err(how)
            }
        };
        if self.late_answers {
            self.deliver(server);
        }
        // The answer is on its way; meanwhile others get on.
        self.give_way(server);
        answer
    }

    /// Takes in the watch events that are due.
    pub(crate) fn deliver(&mut self, server: &mut Server) {
        for kind in Kind::ALL {
            if self.listing.contains_key(&kind) {
                continue;
            }
            while let Some(event) = server.due(kind) {
                if self.watches(kind) {
                    self.watched(kind, &event, server.now);
                }
            }
        }
    }

    /// GET, and what the view learns from it.
    fn read(&mut self, server: &mut Server, kind: Kind, key: &ObjectKey) -> Result<(), Refusal> {
        let verb = match kind {
            Kind::Pod => Verb::GetPod,
            Kind::PodGroup => Verb::GetGroup,
            Kind::Claim | Kind::Template => Verb::GetClaim,
        };
        let served = kind != Kind::PodGroup || server.pod_groups_served;
        let before = self.known_state(kind, key).map(|(uid, _)| uid);
        let got = self.request(server, verb, &key.to_string(), |s| {
            s.get(kind, key).filter(|_| served).ok_or(Refusal::NotFound)
        });
        let now = server.now;
        let change = match (&got, kind) {
            (Ok(o), Kind::Pod) => self.view.found(decode::<Pod>(o), now),
            (Ok(o), Kind::PodGroup) => self.view.found(decode::<PodGroup>(o), now),
            (Ok(o), Kind::Claim | Kind::Template) => self.view.found(decode::<Claim>(o), now),
            (Err(Refusal::NotFound), Kind::Pod) => self.view.not_found::<Pod>(key, before.as_ref(), now),
            (Err(Refusal::NotFound), Kind::PodGroup) => {
                self.view.not_found::<PodGroup>(key, before.as_ref(), now)
            }
            (Err(Refusal::NotFound), Kind::Claim | Kind::Template) => {
                self.view.not_found::<Claim>(key, before.as_ref(), now)
            }
            (Err(_), _) => None,
        };
        self.note(change);
        match got {
            Ok(_) | Err(Refusal::NotFound) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }

    /// Reads an object to find out whether it is the one with this uid.
    fn ascertain(
        &mut self,
        server: &mut Server,
        kind: Kind,
        key: &ObjectKey,
        uid: &Uid,
    ) -> Result<(), Refusal> {
        // Keep what the server says under the key before the view forgets it again.
        let served = kind != Kind::PodGroup || server.pod_groups_served;
        self.read(server, kind, key)?;
        let there = server.get(kind, key).filter(|_| served).is_some_and(|o| uid_of(&o) == &**uid);
        if !there {
            match kind {
                Kind::PodGroup => self.view.note_gone::<PodGroup>(uid.clone()),
                _ => self.view.note_gone::<Pod>(uid.clone()),
            }
        }
        Ok(())
    }

    fn known_state(&self, kind: Kind, key: &ObjectKey) -> Option<(Uid, ResourceVersion)> {
        let meta = match kind {
            Kind::Pod => &self.view.pods.get(key)?.meta,
            Kind::PodGroup => &self.view.pod_groups.get(key)?.meta,
            Kind::Claim => &self.view.claims.get(key)?.meta,
            Kind::Template => &self.view.templates.get(key)?.meta,
        };
        Some((meta.uid.clone(), meta.resource_version))
    }

    fn look_up(&mut self, server: &mut Server, lookup: &Lookup) -> Result<(), Refusal> {
        match lookup {
            Lookup::Claim(key) => {
                let asked = server.now;
                self.read(server, Kind::Claim, key)?;
                let uid = server.get(Kind::Claim, key).map(|claim| Uid::from(uid_of(&claim)));
                self.view.note_read(key, uid.as_ref(), asked);
                Ok(())
            }
            Lookup::Pod { key, uid } => self.ascertain(server, Kind::Pod, key, uid),
            Lookup::PodGroup { key, uid } => self.ascertain(server, Kind::PodGroup, key, uid),
            Lookup::ClaimsIn(namespace) => {
                let began = server.now;
                let list = self.request(server, Verb::ListClaims, namespace, |s| Ok(s.list(Kind::Claim)))?;
                for object in list {
                    if key_of(&object).namespace == *namespace {
                        let change = self.view.found(decode::<Claim>(&object), server.now);
                        self.note(change);
                    }
                }
                self.view.settle_doubts(namespace, began);
                Ok(())
            }
        }
    }

    /// Works on one key until it is settled, waits for something or has failed.
    ///
    /// Returns false when there is nothing to do now.
    pub(crate) fn work(&mut self, server: &mut Server) -> bool {
        // A key is worked on by one worker at a time.
        let Some(at) = self.ready.iter().position(|key| !self.busy.contains(key)) else { return false };
        let Some(key) = self.ready.remove(at) else { return false };
        self.waiting.remove(&key);
        self.process(server, &key);
        true
    }

    /// Other workers may get on with other keys while this one waits for its turn or for an answer.
    fn give_way(&mut self, server: &mut Server) {
        let Some(state) = &mut self.interleave else { return };
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let others = (*state >> 60) % 3;
        if self.busy.len() <= 4 {
            self.deliver(server);
            for _ in 0..others {
                self.work(server);
            }
        }
    }

    /// Makes delayed keys ready that are due; when the next one is due.
    pub(crate) fn wake(&mut self, now: Elapsed) -> Option<Elapsed> {
        let due: Vec<Key> =
            self.delayed.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in due {
            self.delayed.remove(&key);
            self.add(key);
        }
        self.delayed.values().min().copied()
    }

    /// The requests that were to fail no longer do.
    pub(crate) fn mend(&mut self) {
        self.faults.clear();
        self.late_answers = false;
        self.eager = false;
        self.interleave = None;
        self.dies_after = None;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ready.is_empty()
    }

    /// Plans and acts on one key; true when nothing failed. As dra-act's `Executor::settle`.
    pub(crate) fn process(&mut self, server: &mut Server, key: &Key) -> bool {
        self.busy.insert(key.clone());
        let settled = self.settle(server, key);
        self.busy.remove(key);
        settled
    }

    fn settle(&mut self, server: &mut Server, key: &Key) -> bool {
        let mut pass = Pass::at(server.now);
        let mut failed: Vec<Action> = Vec::new();
        let mut trouble = false;
        let mut told = BTreeSet::new();
        for _ in 0..MAX_ROUNDS {
            pass.now = server.now;
            let plan = self.planner.plan(&self.view, key, &pass);
            self.why.insert(key.clone(), plan.why.iter().map(ToString::to_string).collect());
            for lookup in &plan.lookups {
                if self.look_up(server, lookup).is_err() {
                    trouble = true;
                    pass.failed_lookups.push(lookup.clone());
                }
            }
            if !plan.lookups.is_empty() && !self.eager {
                continue;
            }
            let mut progress = !plan.lookups.is_empty();
            for action in plan.actions {
                if let Action::Notify(notice) = &action {
                    self.tell(notice, &mut told);
                    continue;
                }
                if failed.contains(&action) {
                    continue;
                }
                progress = true;
                if let Some(meddle) = &mut self.meddle {
                    meddle(server, &action);
                }
                self.give_way(server);
                super::guards::check(server, &self.view, &action);
                self.log.push(action.to_string());
                if self.carry_out(server, &action).is_err() {
                    trouble = true;
                    if let Action::Create(new) = &action {
                        pass.failed_creates.push(Arc::clone(&new.entry));
                    }
                    failed.push(action);
                }
                self.dead |= self.dies_after == Some(0);
                if self.dead {
                    return false;
                }
            }
            if !progress {
                if trouble {
                    self.back_off(key, server.now);
                } else {
                    self.failures.remove(key);
                }
                return !trouble;
            }
        }
        panic!("{key} does not settle: {:#?}", self.log.iter().rev().take(20).collect::<Vec<_>>());
    }

    fn back_off(&mut self, key: &Key, now: Elapsed) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = Duration::from_millis(5).saturating_mul(1 << (*failures).min(20));
        *failures += 1;
        self.delayed.insert(key.clone(), now + delay.min(Duration::from_mins(1)));
    }

    fn tell(&mut self, notice: &Notice, told: &mut BTreeSet<(String, &'static str, String)>) {
        let subject = format!("{} {}", notice.subject.kind.name(), notice.subject.key);
        let event = (subject, notice.reason, notice.note.clone());
        // A plan repeats what it says as long as it holds; one pass tells it once.
        if told.insert(event.clone()) {
            *self.told.entry(event).or_default() += 1;
        }
    }

    fn carry_out(&mut self, server: &mut Server, action: &Action) -> Result<(), Refusal> {
        if let Some(left) = &mut self.dies_after {
            *left = left.saturating_sub(1);
        }
        match action {
            Action::Create(new) => self.create(server, new),
            Action::Record { owner, statuses } => self.record(server, owner, statuses),
            Action::Reserve { claim, consumer, .. } => {
                let mut new = json!({"resource": *consumer.resource, "name": *consumer.name,
                    "uid": *consumer.uid});
                if !consumer.api_group.is_empty() {
                    new["apiGroup"] = json!(*consumer.api_group);
                }
                self.update_claim(server, Verb::Reserve, claim, |c| push(c, "status", "reservedFor", new))?;
                Ok(())
            }
            Action::Release { claim, consumers, deallocate } => {
                assert!(!consumers.is_empty() || *deallocate, "a release that releases nothing");
                let version = self.update_claim(server, Verb::Release, claim, |c| {
                    if let Some(list) = c["status"]["reservedFor"].as_array_mut() {
                        list.retain(|r| !consumers.iter().any(|(uid, _)| r["uid"] == **uid));
                    }
                    if *deallocate {
                        c["status"].as_object_mut().unwrap().remove("allocation");
                    }
                })?;
                if let (Some(version), true) = (version, *deallocate) {
                    let (key, uid) = (claim.key.clone(), claim.uid.clone());
                    let after = Meta { key, uid, resource_version: version, deleting: false };
                    self.view.note_deallocated(&after);
                }
                Ok(())
            }
            Action::RemoveFinalizer { claim } => {
                self.update_claim(server, Verb::RemoveFinalizer, claim, |c| {
                    if let Some(list) = c["metadata"]["finalizers"].as_array_mut() {
                        list.retain(|f| f != FINALIZER);
                    }
                })?;
                Ok(())
            }
            Action::Delete { claim, .. } => self.delete(server, claim),
            Action::Notify(_)
            | Action::Schedule { .. }
            | Action::Disrupt { .. }
            | Action::Evict { .. }
            | Action::Report(_)
            | Action::Answer(_)
            | Action::Expire { .. }
            | Action::Expand { .. }
            | Action::CreateRule(_)
            | Action::CorrectRule(_)
            | Action::DeleteRule { .. } => Ok(()),
        }
    }

    fn record(
        &mut self,
        server: &mut Server,
        owner: &Subject,
        statuses: &[(Arc<str>, Arc<str>)],
    ) -> Result<(), Refusal> {
        assert!(statuses.is_sorted(), "statuses are applied in order of their entries: {statuses:?}");
        let (kind, verb) = match owner.kind {
            SubjectKind::Pod => (Kind::Pod, Verb::RecordPod),
            SubjectKind::PodGroup => (Kind::PodGroup, Verb::RecordGroup),
            SubjectKind::DeviceTaintRule => panic!("claims are not recorded in rules"),
        };
        let wanted: Vec<_> = statuses.iter().map(|(e, n)| (e.to_string(), n.to_string())).collect();
        let answer = self.request(server, verb, &owner.key.to_string(), |s| {
            s.apply_statuses(kind, &owner.key, &owner.uid, &wanted)
        });
        self.answered(server, kind, &owner.key, answer)?;
        Ok(())
    }

    fn create(&mut self, server: &mut Server, new: &NewClaim) -> Result<(), Refusal> {
        let body: Value = serde_json::from_str(&new.body).unwrap();
        assert_eq!(body["metadata"]["generateName"], *new.generate_name);
        assert_eq!(body["metadata"]["namespace"], *new.owner.key.namespace);
        let about = format!("{} {}", new.owner.key, new.entry);
        let answer = self.request(server, Verb::Create, &about, |s| s.create(Kind::Claim, body));
        let labels = (answer.is_ok(), new.admin_access, new.owner.kind.group(), new.owner.kind.name());
        *self.creates.entry(labels).or_default() += 1;
        match answer {
            Ok(object) => {
                self.see(Kind::Claim, &object, Source::Answer, server.now);
                Ok(())
            }
            Err(refusal) => {
                if refusal == Refusal::Lost {
                    self.view.note_doubtful_create(
                        &new.owner.key.namespace,
                        new.owner.uid.clone(),
                        server.now,
                    );
                }
                Err(refusal)
            }
        }
    }

    fn update_claim(
        &mut self,
        server: &mut Server,
        verb: Verb,
        claim: &Precondition,
        edit: impl FnOnce(&mut Value),
    ) -> Result<Option<ResourceVersion>, Refusal> {
        let answer = self.request(server, verb, &claim.key.to_string(), |s| {
            s.change(Kind::Claim, &claim.key, Some(expected(claim)), edit)
        });
        self.answered(server, Kind::Claim, &claim.key, answer)
    }

    fn delete(&mut self, server: &mut Server, claim: &Precondition) -> Result<(), Refusal> {
        let answer = self.request(server, Verb::Delete, &claim.key.to_string(), |s| {
            s.delete(Kind::Claim, &claim.key, Some(expected(claim)))
        });
        match answer {
            Ok(Some(object)) => {
                self.see(Kind::Claim, &object, Source::Answer, server.now);
                Ok(())
            }
            Ok(None) | Err(Refusal::NotFound) => {
                let change = self.view.gone::<Claim>(&claim.key, &claim.uid, server.now);
                self.note(change);
                Ok(())
            }
            Err(refusal) => self.answered(server, Kind::Claim, &claim.key, Err(refusal)).map(drop),
        }
    }

    /// What the view learns from an answer. After a refusal that may come from an outdated view the object is read
    /// again: if that shows something new, the next plan starts from it, and nothing has failed.
    fn answered(
        &mut self,
        server: &mut Server,
        kind: Kind,
        key: &ObjectKey,
        answer: Result<Arc<Value>, Refusal>,
    ) -> Result<Option<ResourceVersion>, Refusal> {
        match answer {
            Ok(object) => {
                self.see(kind, &object, Source::Answer, server.now);
                Ok(Some(ResourceVersion(version_of(&object))))
            }
            Err(refusal @ (Refusal::NotFound | Refusal::Conflict | Refusal::Invalid(_))) => {
                let before = self.known_state(kind, key);
                if self.read(server, kind, key).is_ok() && self.known_state(kind, key) != before {
                    return Ok(None);
                }
                Err(refusal)
            }
            Err(refusal) => Err(refusal),
        }
    }
}

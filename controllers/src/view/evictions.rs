//! Which Pods are to be evicted, when and why, and what became of it: the one piece of the picture that is not shown
//! by the API server. It is written by carrying out [`crate::plan::Action::Schedule`] and by what happens to Pods.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use dra_allocator::DeviceId;
use dra_api::{DeviceTaintRule, ObjectKey, Phase, Pod, Uid, taint::RuleParent};
use jiff::Timestamp;

use super::index::{Edit, Index};
use crate::Elapsed;

/// A Pod whose time has come and that is still there after so long is overdue.
pub const OVERDUE_AFTER: Duration = Duration::from_mins(1);

/// More requests than this are never in doubt at once.
const COUNTED_MOST: usize = 1024;

/// Where a taint comes from. Rules sort before slices.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TaintSource {
    /// A DeviceTaintRule.
    Rule {
        /// Its name.
        name: Arc<str>,
        /// Its uid.
        uid: Uid,
    },
    /// A taint that a slice publishes for a device.
    Slice {
        /// The device.
        device: DeviceId,
        /// Position in the device's list of taints.
        index: usize,
        /// Name of the slice.
        slice: Arc<str>,
    },
}

/// A taint because of which a Pod is to be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Where the taint comes from.
    pub source: TaintSource,
    /// The rule that the source was expanded from, which counts what its children do.
    pub parent: Option<RuleParent>,
    /// The device that is tainted; the first one when a rule taints several.
    pub device: DeviceId,
    /// Name of the claim that holds it.
    pub claim: Arc<str>,
    /// The taint, as `key=value:effect`.
    pub taint: Arc<str>,
    /// When the taint was added.
    pub added: Timestamp,
    /// For how many seconds the claim tolerates it, from then on.
    pub tolerated: Option<i64>,
    /// When the Pod is to be evicted because of this taint.
    pub at: Timestamp,
    /// The rule's evictions are paused.
    pub paused: bool,
}

impl Reason {
    /// The rule, and the one that it was expanded from, by uid and name.
    pub fn rules(&self) -> impl Iterator<Item = (&Uid, &Arc<str>)> {
        let own = match &self.source {
            TaintSource::Rule { name, uid } => Some((uid, name)),
            TaintSource::Slice { .. } => None,
        };
        own.into_iter().chain(self.parent.iter().map(|parent| (&parent.uid, &parent.name)))
    }
}

/// That a Pod is to be evicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Uid of the Pod.
    pub uid: Uid,
    /// Its priority: low ones go first.
    pub priority: i32,
    /// Why, sorted by source; never empty.
    pub reasons: Box<[Reason]>,
    /// When; none while all reasons are paused.
    pub at: Option<Timestamp>,
    /// That time has come.
    pub due: bool,
}

impl Eviction {
    /// The rules among the reasons, and those that they were expanded from, by uid and name. The latter may come more
    /// than once.
    pub fn rules(&self) -> impl Iterator<Item = (&Uid, &Arc<str>)> {
        self.reasons.iter().flat_map(Reason::rules)
    }
}

/// What changed in [`Evictions`].
#[derive(Debug, Default)]
pub struct EvictionChange {
    /// Names of the rules whose numbers have changed.
    pub rules: BTreeSet<Arc<str>>,
    /// A Pod that is to be evicted now, with its priority.
    pub due: Option<(i32, ObjectKey)>,
}

#[derive(Debug)]
struct Entry {
    eviction: Eviction,
    /// When this was first known.
    detected: Elapsed,
    /// Since when it is due.
    due_since: Option<Elapsed>,
    /// A PodDisruptionBudget forbids it at present.
    blocked: bool,
    /// A request to evict ended without an answer: should the Pod go now, it was us. Uids of the rules.
    doubt: Option<Vec<Uid>>,
}

/// What is remembered about a rule.
///
/// `active` begins anew with each Pod, so that taints which come and go each second do not make a condition do the same;
/// `going` does not, as in-tree, so that nobody waits ten seconds longer for the end of a long eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleNote {
    /// Generation of the rule's spec that this is about.
    pub generation: i64,
    /// When that generation was first seen.
    pub since: Elapsed,
    /// When last a Pod was added to those to be evicted, or was taken off them although it goes on.
    pub active: Elapsed,
    /// When first a Pod went since the condition was last written.
    pub going: Option<Elapsed>,
    /// When the condition was last written by us.
    pub written: Option<Elapsed>,
    /// Pods evicted.
    pub evicted: u64,
}

/// A rule that is there.
#[derive(Debug)]
struct Noted {
    name: Arc<str>,
    note: RuleNote,
}

/// How many Pods are in which state; a Pod counts once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts {
    /// The taint is tolerated for some time yet.
    pub tolerated: u64,
    /// The time has come, lately.
    pub due: u64,
    /// The time came more than [`OVERDUE_AFTER`] ago.
    pub overdue: u64,
    /// A PodDisruptionBudget forbids it at present.
    pub blocked: u64,
    /// Paused by annotation.
    pub paused: u64,
}

/// Which Pods are to be evicted.
#[derive(Debug, Default)]
pub struct Evictions {
    pods: BTreeMap<ObjectKey, Entry>,
    by_rule: Index<Uid>,
    rules: BTreeMap<Uid, Noted>,
    cancelled: u64,
    /// Uids of the Pods that were counted as evicted because they went while a request to evict them was in doubt, and of
    /// the rules for which: the answer to the next such request must not count them again. The last ones.
    counted: VecDeque<(Uid, Vec<Uid>)>,
}

impl RuleNote {
    /// What its condition is to say was like this since then, or has begun to change then.
    pub fn changed(&self) -> Elapsed {
        self.since.max(self.active).max(self.going.unwrap_or_default())
    }
}

impl Evictions {
    /// Whether and why the Pod is to be evicted.
    pub fn get(&self, pod: &ObjectKey) -> Option<&Eviction> {
        self.pods.get(pod).map(|entry| &entry.eviction)
    }

    /// When the need to evict the Pod was first known.
    pub fn detected(&self, pod: &ObjectKey) -> Option<Elapsed> {
        self.pods.get(pod).map(|entry| entry.detected)
    }

    /// The Pods that are to be evicted because of the rule, in order.
    pub fn of_rule(&self, rule: &Uid) -> impl Iterator<Item = (&ObjectKey, &Eviction)> {
        self.by_rule.get(rule).filter_map(|pod| Some((pod, self.get(pod)?)))
    }

    /// How many of them a PodDisruptionBudget protects at present.
    pub fn blocked(&self, rule: &Uid) -> usize {
        let blocked = |pod: &&ObjectKey| self.pods.get(*pod).is_some_and(|entry| entry.blocked);
        self.by_rule.get(rule).filter(blocked).count()
    }

    /// True when a Pod is to be evicted because of the rule.
    pub fn any_of_rule(&self, rule: &Uid) -> bool {
        self.by_rule.get(rule).next().is_some()
    }

    /// What is remembered about the rule.
    pub fn rule(&self, uid: &Uid) -> RuleNote {
        self.rules.get(uid).map(|rule| rule.note).unwrap_or_default()
    }

    /// Evictions that were called off, since the start.
    pub fn cancelled(&self) -> u64 {
        self.cancelled
    }

    /// How many Pods are in which state.
    pub fn counts(&self, now: Elapsed) -> EvictionCounts {
        let mut counts = EvictionCounts::default();
        for entry in self.pods.values() {
            let slot = if entry.blocked {
                &mut counts.blocked
            } else if entry.eviction.at.is_none() {
                &mut counts.paused
            } else {
                match entry.due_since {
                    None => &mut counts.tolerated,
                    Some(since) if now.saturating_sub(since) < OVERDUE_AFTER => &mut counts.due,
                    Some(_) => &mut counts.overdue,
                }
            };
            *slot = slot.saturating_add(1);
        }
        counts
    }

    /// Remembers that the Pod is to be evicted, or that it is not any more.
    pub(super) fn set(
        &mut self,
        pod: &ObjectKey,
        eviction: Option<Eviction>,
        now: Elapsed,
    ) -> EvictionChange {
        let Some(eviction) = eviction else {
            let Some(entry) = self.pods.remove(pod) else { return EvictionChange::default() };
            self.cancelled = self.cancelled.saturating_add(1);
            return self.dropped(pod, &entry.eviction, now);
        };
        let due = eviction.due.then(|| (eviction.priority, pod.clone()));
        let old = self.pods.remove(pod);
        let mut change = match &old {
            Some(entry) => self.taken_off(pod, &entry.eviction),
            None => EvictionChange::default(),
        };
        let before: BTreeSet<&Uid> =
            old.iter().flat_map(|entry| entry.eviction.rules()).map(|(uid, _)| uid).collect();
        let after: BTreeSet<&Uid> = eviction.rules().map(|(uid, _)| uid).collect();
        // A rule may have gone since this was planned: nothing is remembered about it.
        for uid in after.symmetric_difference(&before) {
            if let Some(rule) = self.rules.get_mut(*uid) {
                rule.note.active = now;
            }
        }
        for (uid, name) in eviction.rules() {
            self.by_rule.edit(Edit::Add, Arc::clone(uid), pod);
            change.rules.insert(Arc::clone(name));
        }
        change.due = due;
        let old = old.filter(|entry| entry.eviction.uid == eviction.uid);
        self.pods.insert(
            pod.clone(),
            Entry {
                detected: old.as_ref().map_or(now, |entry| entry.detected),
                due_since: eviction.due.then(|| old.as_ref().and_then(|e| e.due_since).unwrap_or(now)),
                blocked: eviction.due && old.as_ref().is_some_and(|entry| entry.blocked),
                doubt: old.and_then(|entry| entry.doubt),
                eviction,
            },
        );
        change
    }

    fn dropped(&mut self, pod: &ObjectKey, eviction: &Eviction, now: Elapsed) -> EvictionChange {
        for (uid, _) in eviction.rules() {
            if let Some(rule) = self.rules.get_mut(uid) {
                rule.note.active = now;
            }
        }
        self.taken_off(pod, eviction)
    }

    fn taken_off(&mut self, pod: &ObjectKey, eviction: &Eviction) -> EvictionChange {
        let mut change = EvictionChange::default();
        for (uid, name) in eviction.rules() {
            self.by_rule.edit(Edit::Remove, Arc::clone(uid), pod);
            change.rules.insert(Arc::clone(name));
        }
        change
    }

    /// The Pod was evicted by us because of these rules: it is not to be evicted any more, and counts as evicted. They
    /// are those of the moment when it was asked for, which need not have been remembered yet.
    pub(super) fn evicted(
        &mut self,
        pod: &ObjectKey,
        uid: &Uid,
        rules: &[Uid],
        now: Elapsed,
    ) -> EvictionChange {
        let mut names = self.count(&self.uncounted(uid, rules), now);
        let mut change = match self.pods.remove(pod) {
            Some(entry) => self.went(pod, &entry.eviction, now),
            None => EvictionChange::default(),
        };
        change.rules.append(&mut names);
        change
    }

    fn went(&mut self, pod: &ObjectKey, eviction: &Eviction, now: Elapsed) -> EvictionChange {
        for (uid, _) in eviction.rules() {
            if let Some(rule) = self.rules.get_mut(uid) {
                rule.note.going.get_or_insert(now);
            }
        }
        self.taken_off(pod, eviction)
    }

    /// One Pod more was evicted because of these rules; their names.
    fn count(&mut self, rules: &[Uid], now: Elapsed) -> BTreeSet<Arc<str>> {
        let mut names = BTreeSet::new();
        for uid in rules {
            // A rule that is gone since needs no count.
            if let Some(rule) = self.rules.get_mut(uid) {
                rule.note.evicted = rule.note.evicted.saturating_add(1);
                rule.note.going.get_or_insert(now);
                names.insert(Arc::clone(&rule.name));
            }
        }
        names
    }

    /// The same without an answer that says so: should one come to a later request, it does not count again.
    fn count_unanswered(&mut self, pod: &Uid, rules: &[Uid], now: Elapsed) -> BTreeSet<Arc<str>> {
        let left = self.uncounted(pod, rules);
        let names = self.count(&left, now);
        if !left.is_empty() {
            if self.counted.len() >= COUNTED_MOST {
                self.counted.pop_front();
            }
            self.counted.push_back((Arc::clone(pod), left));
        }
        names
    }

    /// Those rules for which the Pod was not counted without an answer. A request may be made for others than the one
    /// before it, which was in doubt.
    fn uncounted(&self, pod: &Uid, rules: &[Uid]) -> Vec<Uid> {
        let is_counted = |rule| self.counted.iter().any(|(of, rules)| of == pod && rules.contains(rule));
        rules.iter().filter(|rule| !is_counted(rule)).cloned().collect()
    }

    /// A request to evict the Pod ended without an answer. `gone` tells that the Pod has begun to go meanwhile: watches
    /// are mostly faster than the end of the wait for an answer. Then it was us, as far as anybody can know.
    pub(super) fn in_doubt(
        &mut self,
        pod: &ObjectKey,
        uid: &Uid,
        rules: &[Uid],
        gone: bool,
        now: Elapsed,
    ) -> Option<EvictionChange> {
        if let Some(entry) = self.pods.get_mut(pod).filter(|entry| entry.eviction.uid == *uid) {
            entry.doubt = Some(rules.to_vec());
            return None;
        }
        if !gone {
            return None;
        }
        let rules = self.count_unanswered(uid, rules, now);
        (!rules.is_empty()).then_some(EvictionChange { rules, due: None })
    }

    /// A PodDisruptionBudget forbids the eviction, or does so no more.
    pub(super) fn set_blocked(&mut self, pod: &ObjectKey, blocked: bool) -> Option<EvictionChange> {
        let entry = self.pods.get_mut(pod).filter(|entry| entry.blocked != blocked)?;
        entry.blocked = blocked;
        let rules = entry.eviction.rules().map(|(_, name)| Arc::clone(name)).collect();
        Some(EvictionChange { rules, due: None })
    }

    /// The condition of the rule was written.
    pub(super) fn written(&mut self, rule: &Uid, now: Elapsed) {
        if let Some(rule) = self.rules.get_mut(rule) {
            rule.note.written = Some(now);
            rule.note.going = None;
        }
    }

    /// A Pod has changed: one that is ending needs no eviction and counts as pending no more, whoever ended it.
    pub(super) fn pod_changed(
        &mut self,
        key: &ObjectKey,
        pod: Option<&Pod>,
        now: Elapsed,
    ) -> Option<EvictionChange> {
        let uid = &self.pods.get(key)?.eviction.uid;
        if pod.is_some_and(|pod| pod.meta.uid == *uid && !pod.meta.deleting && pod.phase == Phase::Active) {
            return None;
        }
        let entry = self.pods.remove(key)?;
        let ended = pod.is_none_or(|pod| pod.meta.uid != entry.eviction.uid || pod.meta.deleting);
        let mut names = match entry.doubt.filter(|_| ended) {
            Some(rules) => self.count_unanswered(&entry.eviction.uid, &rules, now),
            None => BTreeSet::new(),
        };
        let mut change = self.went(key, &entry.eviction, now);
        change.rules.append(&mut names);
        Some(change)
    }

    /// A rule has come, changed or gone.
    pub(super) fn rule_changed(
        &mut self,
        old: Option<&DeviceTaintRule>,
        new: Option<&DeviceTaintRule>,
        now: Elapsed,
    ) {
        if let Some(old) = old
            && new.is_none_or(|new| new.meta.uid != old.meta.uid)
        {
            self.rules.remove(&old.meta.uid);
        }
        // A new child of a rule is news for that rule.
        for parent in [old, new].into_iter().flatten().filter_map(|rule| rule.parent.as_ref()) {
            let is_news = old.is_none_or(|old| new.is_none_or(|new| old.generation != new.generation));
            if let Some(rule) = self.rules.get_mut(&parent.uid).filter(|_| is_news) {
                rule.note.active = now;
            }
        }
        if let Some(new) = new {
            let fresh = RuleNote { generation: new.generation, since: now, ..RuleNote::default() };
            let noted = || Noted { name: Arc::clone(&new.meta.key.name), note: fresh };
            let note = &mut self.rules.entry(Arc::clone(&new.meta.uid)).or_insert_with(noted).note;
            // Annotations are not part of the generation.
            let selects_anew = old.is_some_and(|old| {
                old.meta.uid == new.meta.uid
                    && (&old.select_class, &old.select_cel) != (&new.select_class, &new.select_cel)
            });
            if note.generation != new.generation || selects_anew {
                *note = RuleNote { evicted: note.evicted, active: note.active, going: note.going, ..fresh };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use dra_allocator::PoolId;
    use dra_api::Object;
    use serde_json::json;

    use super::*;

    const NOW: Elapsed = Elapsed::ZERO;

    fn key() -> ObjectKey {
        ObjectKey::new("ns", "p")
    }

    fn rule(name: &str) -> DeviceTaintRule {
        let rule = json!({"metadata": {"name": name, "uid": format!("u-{name}"), "resourceVersion": "1", "generation": 1},
            "spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": "NoExecute"}}});
        DeviceTaintRule::decode(&rule.to_string()).unwrap()
    }

    fn leaving() -> Pod {
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "uid": "pu", "resourceVersion": "2",
            "deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}, "status": {}});
        Pod::decode(&pod.to_string()).unwrap()
    }

    /// A Pod that is to be evicted because of this rule.
    fn due(rule: &DeviceTaintRule) -> Eviction {
        let reason = Reason {
            parent: None,
            source: TaintSource::Rule {
                name: Arc::clone(&rule.meta.key.name),
                uid: Arc::clone(&rule.meta.uid),
            },
            device: DeviceId { pool: PoolId { driver: "d".into(), pool: "p".into() }, device: "d".into() },
            claim: "c".into(),
            taint: "k:NoExecute".into(),
            added: Timestamp::UNIX_EPOCH,
            tolerated: None,
            at: Timestamp::UNIX_EPOCH,
            paused: false,
        };
        Eviction {
            uid: "pu".into(),
            priority: 0,
            reasons: Box::new([reason]),
            at: Some(Timestamp::UNIX_EPOCH),
            due: true,
        }
    }

    /// A Pod that is to be evicted because of the rule `r`.
    fn evictions() -> (Evictions, [Uid; 1]) {
        let (mut evictions, rule) = (Evictions::default(), rule("r"));
        evictions.rule_changed(None, Some(&rule), NOW);
        evictions.set(&key(), Some(due(&rule)), NOW);
        (evictions, [rule.meta.uid])
    }

    fn names(change: &EvictionChange) -> Vec<&str> {
        change.rules.iter().map(|name| &**name).collect()
    }

    #[test]
    fn a_pod_that_goes_while_its_eviction_is_in_doubt_is_counted_once() {
        let (mut evictions, rules) = evictions();
        // The first request was carried out, but its answer got lost; the second one is on its way when the watch shows
        // what the first one did.
        evictions.in_doubt(&key(), &"pu".into(), &rules, false, NOW);
        evictions.pod_changed(&key(), Some(&leaving()), NOW);
        assert_eq!(evictions.rule(&rules[0]).evicted, 1);
        evictions.evicted(&key(), &"pu".into(), &rules, NOW);
        assert_eq!(evictions.rule(&rules[0]).evicted, 1);
    }

    #[test]
    fn a_pod_that_is_seen_to_go_before_the_wait_for_an_answer_is_over_is_counted_once() {
        let (mut evictions, rules) = evictions();
        evictions.pod_changed(&key(), Some(&leaving()), NOW);
        assert_eq!(evictions.rule(&rules[0]).evicted, 0, "it may have been somebody else");
        for told in [vec!["r"], vec![]] {
            let change = evictions.in_doubt(&key(), &"pu".into(), &rules, true, NOW).unwrap_or_default();
            assert_eq!(names(&change), told);
            assert_eq!(evictions.rule(&rules[0]).evicted, 1);
        }
    }

    /// A rule is replaced between a request that was in doubt and one that is carried out, whose answer is slower than the
    /// watch.
    #[test]
    fn a_pod_that_goes_for_another_rule_than_the_request_in_doubt_was_for_is_counted_for_that() {
        let (mut evictions, first) = evictions();
        evictions.in_doubt(&key(), &"pu".into(), &first, false, NOW);
        let second = rule("s");
        evictions.rule_changed(None, Some(&second), NOW);
        evictions.set(&key(), Some(due(&second)), NOW);
        evictions.pod_changed(&key(), Some(&leaving()), NOW);
        evictions.evicted(&key(), &"pu".into(), std::slice::from_ref(&second.meta.uid), NOW);
        assert_eq!(evictions.rule(&second.meta.uid).evicted, 1);
    }

    #[test]
    fn a_pod_that_need_not_go_any_more_and_stays_is_not_counted() {
        let (mut evictions, rules) = evictions();
        evictions.set(&key(), None, NOW);
        assert!(evictions.in_doubt(&key(), &"pu".into(), &rules, false, NOW).is_none());
        assert_eq!(evictions.rule(&rules[0]).evicted, 0);
    }

    #[test]
    fn a_rule_that_came_between_the_judgement_and_the_eviction_is_told_of_it() {
        let (mut evictions, [first]) = evictions();
        let second = rule("s");
        evictions.rule_changed(None, Some(&second), NOW);
        let change = evictions.evicted(&key(), &"pu".into(), &[first, Arc::clone(&second.meta.uid)], NOW);
        assert_eq!(names(&change), ["r", "s"]);
        assert_eq!(evictions.rule(&second.meta.uid).evicted, 1);
    }

    #[test]
    fn nothing_is_remembered_about_a_rule_that_went_before_its_judgement_was_noted() {
        let (mut evictions, gone) = (Evictions::default(), rule("r"));
        evictions.rule_changed(None, Some(&gone), NOW);
        evictions.rule_changed(Some(&gone), None, NOW);
        evictions.set(&key(), Some(due(&gone)), NOW);
        assert!(evictions.rules.is_empty());
    }
}

//! The condition of a rule (spec §5).

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use dra_allocator::{DeviceFilter, DeviceId};
use dra_api::{
    AllocatedDevice, DeviceTaintRule, ObjectKey, TaintEffect,
    taint::{Condition, ConditionStatus},
};

use super::{
    DeviceTaintEviction,
    evaluate::{is_evictable, is_paused},
    expand::{Progress, expands, is_annotated},
    message,
};
use crate::{
    plan::{Action, Notice, Pass, Plan, RuleReport, Subject, SubjectKind},
    view::{Expansion, Reason, Refusal, RuleNote, Selected, View, device_id},
};

/// How long nothing must have happened before a condition says that nothing happens (any more), and the least time
/// between two texts about the same thing. The scheduler may still place Pods on a device for as long as it has not
/// seen the taint (documented-behaviour D110).
pub(super) const STATUS_DELAY: Duration = Duration::from_secs(10);

/// The least time between two conditions with different status about the same thing.
const STATUS_CHANGE_DELAY: Duration = Duration::from_secs(1);

/// How long a dry run waits after its rule came or changed: it is told once, and what was there before the rule must be
/// counted although each kind of object comes by a watch of its own, without an order among them.
const DRY_RUN_DELAY: Duration = Duration::from_secs(2);

/// What the condition should say.
struct Verdict {
    status: ConditionStatus,
    reason: &'static str,
    message: String,
    event: Option<(&'static str, bool)>,
    /// It is told only after nothing has happened to the rule and its Pods for so long.
    settles: Duration,
}

impl Verdict {
    /// One that is about the effect, and is told at once.
    fn idle(reason: &'static str, message: String) -> Self {
        Self { status: ConditionStatus::False, reason, message, event: None, settles: Duration::ZERO }
    }
}

impl DeviceTaintEviction {
    pub(super) fn plan_rule(&self, view: &View, name: &Arc<str>, pass: &Pass) -> Plan {
        let mut plan = Plan::default();
        let Some(rule) = view.taint_rules.get(&DeviceTaintRule::key(name)) else { return plan };
        let note = view.evictions.rule(&rule.meta.uid);
        let current = rule.condition.as_deref();
        let up_to_date = current.filter(|c| c.observed_generation == rule.generation);
        // A condition about the same generation is not written again before, also where somebody else says otherwise
        // each time.
        let again_after = |delay| {
            note.written.filter(|_| up_to_date.is_some()).map(|written| written.saturating_add(delay))
        };
        // As long as Pods are pending, the text must wait; to count them for each one that goes would be for nothing.
        if let Some(at) = again_after(STATUS_DELAY).filter(|at| *at > pass.now)
            && up_to_date.is_some_and(|c| c.status == ConditionStatus::True)
            && rule.taint.effect == TaintEffect::NoExecute
            && !self.is_held(rule)
            && view.evictions.any_of_rule(&rule.meta.uid)
        {
            plan.wake_at = Some(at);
            return plan;
        }
        let Some(verdict) = self.verdict(view, rule, &note, up_to_date) else { return plan };
        let is_said = up_to_date.is_some_and(|c| {
            c.status == verdict.status && *c.reason == *verdict.reason && *c.message == *verdict.message
        });
        if is_said {
            return plan;
        }
        let same_status = current.is_some_and(|c| c.status == verdict.status);
        let settled = note.changed().saturating_add(verdict.settles);
        let again = again_after(if same_status { STATUS_DELAY } else { STATUS_CHANGE_DELAY });
        if let Some(at) = again.max(Some(settled)).filter(|at| *at > pass.now) {
            plan.wake_at = Some(at);
            return plan;
        }
        let subject = Subject::of(SubjectKind::DeviceTaintRule, &rule.meta);
        if let Some((reason, warning)) = verdict.event.filter(|_| !same_status || up_to_date.is_none()) {
            let mut note = verdict.message.clone();
            if reason == "EvictionStarted"
                && let Some((pod, eviction)) = view.evictions.of_rule(&rule.meta.uid).next()
                && let Some(why) = eviction.reasons.iter().find(|r| is_by(r, rule))
            {
                note = format!("{note} First is Pod {pod}: {}", message::reason(why));
            }
            plan.actions.push(Action::Notify(Notice {
                subject: subject.clone(),
                reason,
                action: "EvictPods",
                note,
                warning,
            }));
        }
        let since = current.filter(|_| same_status).and_then(|c| c.last_transition).unwrap_or(pass.wall);
        plan.actions.push(Action::Report(Box::new(RuleReport {
            rule: subject,
            resource_version: rule.meta.resource_version,
            version: rule.version,
            effect: rule.taint.effect.clone(),
            condition: Condition {
                status: verdict.status,
                reason: verdict.reason.into(),
                message: verdict.message.into(),
                observed_generation: rule.generation,
                last_transition: Some(since),
            },
            changed: note.changed(),
        })));
        plan
    }

    /// What is to be said of a rule; `told` is what its condition says of this generation. None if there is nothing to
    /// say (yet).
    fn verdict(
        &self,
        view: &View,
        rule: &DeviceTaintRule,
        note: &RuleNote,
        told: Option<&Condition>,
    ) -> Option<Verdict> {
        // What would happen is told once.
        let is_told =
            told.is_some_and(|c| &*c.reason == "NoEffect") && rule.taint.effect == TaintEffect::None;
        if rule.selects_by_annotation() {
            // After a restart once more: annotations might have changed since, and are not part of the generation.
            if is_told && note.written.is_some() {
                return None;
            }
            // It is told once it is known which devices are selected.
            let expansion = view.expansions.get(&rule.meta.uid).filter(|one| one.is_of(rule))?;
            return Some(self.expanded(view, rule, expansion, note, told));
        }
        match rule.taint.effect {
            TaintEffect::NoExecute if self.is_held(rule) => Some(hold(rule)),
            TaintEffect::NoExecute => Some(eviction(view, rule, note, told)),
            TaintEffect::None => (!is_told).then(|| self.dry_run(view, rule, note, None)),
            TaintEffect::NoSchedule | TaintEffect::Other(_) => Some(other_effect(note)),
        }
    }

    /// What is to be said of a rule that selects by annotation: the sum of what its children do.
    fn expanded(
        &self,
        view: &View,
        rule: &DeviceTaintRule,
        expansion: &Expansion,
        note: &RuleNote,
        told: Option<&Condition>,
    ) -> Verdict {
        let evicts = rule.taint.effect == TaintEffect::NoExecute;
        let is_pending = evicts && view.evictions.any_of_rule(&rule.meta.uid);
        let selected = match &expansion.result {
            Ok(selected) => selected,
            Err(refusal) => {
                let text = message::refused(refusal);
                if is_pending {
                    return also(eviction(view, rule, note, told), &text);
                }
                let reason = match refusal {
                    Refusal::ClassMissing(_) => "DeviceClassNotFound",
                    Refusal::Invalid(_) => "InvalidSelector",
                    Refusal::TooCostly(_) => "SelectorTooCostly",
                };
                return unknown(reason, message::with_evicted(text, note.evicted), Duration::ZERO);
            }
        };
        let too_many = self
            .is_too_many(selected)
            .then(|| message::too_many(selected.children.len(), self.most_expanded));
        let Progress { wanted, there, taken } = self.progress(view, rule).unwrap_or_default();
        let verdict = match (&rule.taint.effect, too_many) {
            (TaintEffect::None, None) => self.dry_run(view, rule, note, Some(selected)),
            (TaintEffect::None, Some(text)) => also(self.dry_run(view, rule, note, Some(selected)), &text),
            (_, Some(text)) if is_pending => also(eviction(view, rule, note, told), &text),
            (effect, Some(text)) if expands(effect) => {
                unknown("TooManyDevices", message::with_evicted(text, note.evicted), Duration::ZERO)
            }
            _ if !is_pending && there < wanted => {
                let text = message::progress(there, wanted, taken);
                unknown("Expanding", message::with_evicted(text, note.evicted), STATUS_DELAY)
            }
            (TaintEffect::NoExecute, None) if taken > 0 => {
                also(eviction(view, rule, note, told), &message::progress(there, wanted, taken))
            }
            (TaintEffect::NoExecute, None) => eviction(view, rule, note, told),
            _ => other_effect(note),
        };
        Verdict { message: message::with_failures(verdict.message, selected), ..verdict }
    }

    /// What would happen if the effect was NoExecute: only this rule counts, tolerations apply. `selected` are the
    /// devices of a rule that selects by annotation.
    fn dry_run(
        &self,
        view: &View,
        rule: &DeviceTaintRule,
        note: &RuleNote,
        selected: Option<&Selected>,
    ) -> Verdict {
        let mut published = 0;
        let mut claims: BTreeSet<Arc<str>> = BTreeSet::new();
        if let (Some(inventory), Some(selected)) = (view.inventory(), selected) {
            published = selected.children.len();
            for device in selected.children.values() {
                claims.append(&mut inventory.claims_holding(DeviceFilter {
                    driver: Some(&device.pool.driver),
                    pool: Some(&device.pool.pool),
                    device: Some(&device.device),
                }));
            }
        } else if let (Some(inventory), Some(selector)) = (view.inventory(), &rule.selector) {
            let filter = DeviceFilter {
                driver: selector.driver.as_deref(),
                pool: selector.pool.as_deref(),
                device: selector.device.as_deref(),
            };
            published = inventory.published(filter);
            claims = inventory.claims_holding(filter);
        }
        let devices: Option<HashSet<&DeviceId>> =
            selected.map(|selected| selected.children.values().collect());
        let selects = |device: &AllocatedDevice| match &devices {
            Some(devices) => devices.contains(&device_id(device)),
            None => rule
                .selector
                .as_ref()
                .is_some_and(|s| s.selects(&device.driver, &device.pool, &device.device)),
        };
        let mut allocated: usize = 0;
        let mut pods = BTreeSet::new();
        for name in claims {
            let Some(claim) = claim_key(&name).and_then(|key| view.claims.get(&key)) else { continue };
            let devices = claim.allocation.iter().flat_map(|a| &a.devices);
            allocated = allocated.saturating_add(devices.filter(|d| selects(d)).count());
            if !self.would_evict(claim, rule, selects) {
                continue;
            }
            for pod in self.consumers(view, &claim.meta.key, &claim.reserved_for) {
                let uses = |pod| self.claims(view, pod).any(|used| used.meta.key == claim.meta.key);
                if is_evictable(pod) && uses(pod) {
                    pods.insert(pod.meta.key.clone());
                }
            }
        }
        let text = message::dry_run(published, allocated, pods.len(), namespaces(pods.iter()));
        Verdict {
            settles: DRY_RUN_DELAY,
            ..Verdict::idle("NoEffect", message::with_evicted(text, note.evicted))
        }
    }
}

/// Effects that are not about eviction.
fn other_effect(note: &RuleNote) -> Verdict {
    Verdict::idle("OtherEffect", message::with_evicted(message::OTHER_EFFECT.to_owned(), note.evicted))
}

/// Not False: whoever waits for the end of the eviction must not take this for it.
fn unknown(reason: &'static str, message: String, settles: Duration) -> Verdict {
    Verdict { status: ConditionStatus::Unknown, reason, message, event: None, settles }
}

/// The same, which also says something else.
fn also(mut verdict: Verdict, text: &str) -> Verdict {
    if !verdict.message.is_empty() {
        verdict.message.push(' ');
    }
    verdict.message.push_str(text);
    verdict
}

/// How far the eviction is.
fn eviction(view: &View, rule: &DeviceTaintRule, note: &RuleNote, told: Option<&Condition>) -> Verdict {
    let uid = &rule.meta.uid;
    let pending = view.evictions.of_rule(uid).count();
    if pending > 0 {
        let spaces = namespaces(view.evictions.of_rule(uid).map(|(pod, _)| pod));
        let text = message::with_evicted(message::pending(pending, spaces), note.evicted);
        return Verdict {
            status: ConditionStatus::True,
            reason: "PodsPendingEviction",
            message: message::with_obstacles(text, is_paused(view, rule), view.evictions.blocked(uid)),
            event: Some(("EvictionStarted", false)),
            settles: Duration::ZERO,
        };
    }
    // Whoever wrote the condition before this process started has evicted Pods, or was about to.
    let inherited = told.is_some_and(|c| {
        &*c.reason == "Completed" || (c.status == ConditionStatus::True && note.written.is_none())
    });
    let done = note.evicted > 0 || inherited;
    Verdict {
        status: ConditionStatus::False,
        reason: if done { "Completed" } else { "NotStarted" },
        message: message::with_evicted(String::new(), note.evicted),
        event: done.then_some(("EvictionCompleted", false)),
        settles: STATUS_DELAY,
    }
}

/// A rule that selects everything without confirmation.
fn hold(rule: &DeviceTaintRule) -> Verdict {
    Verdict {
        event: Some(("EvictionHeld", true)),
        ..unknown("NotConfirmed", message::held(&rule.dropped, is_annotated(rule)), Duration::ZERO)
    }
}

fn is_by(reason: &Reason, rule: &DeviceTaintRule) -> bool {
    reason.rules().any(|(uid, _)| *uid == rule.meta.uid)
}

/// The key of a claim from its name in the inventory.
pub(super) fn claim_key(name: &str) -> Option<ObjectKey> {
    name.split_once('/').map(|(namespace, name)| ObjectKey::new(namespace, name))
}

/// In how many namespaces these objects are; they come in order.
fn namespaces<'a>(pods: impl Iterator<Item = &'a ObjectKey>) -> usize {
    let mut last: Option<&str> = None;
    pods.filter(|pod| last.replace(&pod.namespace) != Some(&*pod.namespace)).count()
}

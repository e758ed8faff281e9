//! The condition of a rule (spec §5).

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use dra_allocator::DeviceFilter;
use dra_api::{
    DeviceTaintRule, ObjectKey, TaintEffect,
    taint::{Condition, ConditionStatus},
};

use super::{
    DeviceTaintEviction,
    evaluate::{is_evictable, selects},
    message,
};
use crate::{
    plan::{Action, Notice, Pass, Plan, RuleReport, Subject, SubjectKind},
    view::{RuleNote, View},
};

/// How long nothing must have happened before a condition says that nothing happens (any more), and the least time
/// between two texts about the same thing. The scheduler may still place Pods on a device for as long as it has not
/// seen the taint (documented-behaviour D110).
pub(super) const STATUS_DELAY: Duration = Duration::from_secs(10);

/// The least time between two conditions with different status about the same thing.
const STATUS_CHANGE_DELAY: Duration = Duration::from_secs(1);

/// What the condition should say.
struct Verdict {
    status: ConditionStatus,
    reason: &'static str,
    message: String,
    event: Option<(&'static str, bool)>,
}

impl DeviceTaintEviction {
    pub(super) fn plan_rule(&self, view: &View, name: &Arc<str>, pass: &Pass) -> Plan {
        let mut plan = Plan::default();
        let Some(rule) = view.taint_rules.get(&DeviceTaintRule::key(name)) else { return plan };
        let note = view.evictions.rule(&rule.meta.uid);
        let current = rule.condition.as_deref();
        let up_to_date = current.filter(|c| c.observed_generation == rule.generation);
        let verdict = match rule.taint.effect {
            TaintEffect::NoExecute if self.is_held(rule) => hold(rule),
            TaintEffect::NoExecute => eviction(view, rule, &note, up_to_date),
            TaintEffect::None => {
                if up_to_date.is_some_and(|c| &*c.reason == "NoEffect") {
                    // What would happen is told once.
                    return plan;
                }
                self.dry_run(view, rule, &note)
            }
            TaintEffect::NoSchedule | TaintEffect::Other(_) => Verdict {
                status: ConditionStatus::False,
                reason: "OtherEffect",
                message: message::with_evicted(message::OTHER_EFFECT.to_owned(), note.evicted),
                event: None,
            },
        };
        let is_said = up_to_date.is_some_and(|c| {
            c.status == verdict.status && *c.reason == *verdict.reason && *c.message == *verdict.message
        });
        if is_said {
            return plan;
        }
        let same_status = current.is_some_and(|c| c.status == verdict.status);
        let is_end = verdict.status == ConditionStatus::False && rule.taint.effect == TaintEffect::NoExecute;
        let settled = is_end.then(|| note.since.max(note.active).saturating_add(STATUS_DELAY));
        // Also where somebody else says otherwise each time.
        let again = note.written.filter(|_| up_to_date.is_some()).map(|written| {
            written.saturating_add(if same_status { STATUS_DELAY } else { STATUS_CHANGE_DELAY })
        });
        if let Some(at) = settled.max(again).filter(|at| *at > pass.now) {
            plan.wake_at = Some(at);
            return plan;
        }
        let subject = Subject {
            kind: SubjectKind::DeviceTaintRule,
            key: rule.meta.key.clone(),
            uid: Arc::clone(&rule.meta.uid),
        };
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
            condition: Condition {
                status: verdict.status,
                reason: verdict.reason.into(),
                message: verdict.message.into(),
                observed_generation: rule.generation,
                last_transition: Some(since),
            },
            changed: note.since.max(note.active),
        })));
        plan
    }

    /// What would happen if the effect was NoExecute: only this rule counts, tolerations apply.
    fn dry_run(&self, view: &View, rule: &DeviceTaintRule, note: &RuleNote) -> Verdict {
        let mut published = 0;
        let mut allocated: usize = 0;
        let mut pods = BTreeSet::new();
        if let (Some(inventory), Some(selector)) = (view.inventory(), &rule.selector) {
            let filter = DeviceFilter {
                driver: selector.driver.as_deref(),
                pool: selector.pool.as_deref(),
                device: selector.device.as_deref(),
            };
            published = inventory.published(filter);
            for name in inventory.claims_holding(filter) {
                let Some(claim) = claim_key(&name).and_then(|key| view.claims.get(&key)) else { continue };
                let devices = claim.allocation.iter().flat_map(|a| &a.devices);
                allocated = allocated.saturating_add(devices.filter(|d| selects(Some(selector), d)).count());
                if !self.would_evict(claim, rule) {
                    continue;
                }
                for pod in self.consumers(view, &claim.meta.key, &claim.reserved_for) {
                    let uses = |pod| self.claims(view, pod).any(|used| used.meta.key == claim.meta.key);
                    if is_evictable(pod) && uses(pod) {
                        pods.insert(pod.meta.key.clone());
                    }
                }
            }
        }
        let text = message::dry_run(published, allocated, pods.len(), namespaces(pods.iter()));
        Verdict {
            status: ConditionStatus::False,
            reason: "NoEffect",
            message: message::with_evicted(text, note.evicted),
            event: None,
        }
    }
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
            message: message::with_obstacles(text, rule.paused, view.evictions.blocked(uid)),
            event: Some(("EvictionStarted", false)),
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
    }
}

/// A rule that selects everything without confirmation. Not False: whoever waits for the end of the eviction must not
/// take this for it.
fn hold(rule: &DeviceTaintRule) -> Verdict {
    Verdict {
        status: ConditionStatus::Unknown,
        reason: "NotConfirmed",
        message: message::held(&rule.dropped),
        event: Some(("EvictionHeld", true)),
    }
}

fn is_by(reason: &crate::view::Reason, rule: &DeviceTaintRule) -> bool {
    matches!(&reason.source, crate::view::TaintSource::Rule { uid, .. } if *uid == rule.meta.uid)
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

//! Plans for Pods: when to evict (spec §3.7), and the eviction itself (spec §4).

use std::{collections::BTreeSet, sync::Arc};

use dra_api::{ObjectKey, Pod, Uid};
use jiff::Timestamp;

use super::{DeviceTaintEviction, REASON_EVICTION, evaluate::is_evictable, message};
use crate::{
    Elapsed,
    plan::{Action, EvictionMode, Notice, Pass, Plan, Precondition, Subject, SubjectKind},
    view::{Eviction, Reason, View},
};

impl DeviceTaintEviction {
    /// Remembers what follows for the Pod, and comes back when its time has come.
    pub(super) fn plan_pod(&self, view: &View, key: &ObjectKey, pass: &Pass) -> Plan {
        let mut plan = Plan::default();
        let recorded = view.evictions.get(key);
        let Some(pod) = view.pods.get(key) else { return plan };
        let found = self.evaluate(view, pod, recorded, pass.wall);
        match (recorded, &found) {
            (None, None) => return plan,
            (Some(_), None) => {
                if is_evictable(pod) {
                    let note =
                        "Cancelling deletion: no NoExecute taint that its claims do not tolerate is left";
                    plan.actions.push(notify(pod, "CancelEviction", note.to_owned()));
                }
            }
            (recorded, Some(found)) if recorded != Some(found) => {}
            _ => {
                plan.wake_at = wake_at(found.as_ref(), pass);
                return plan;
            }
        }
        plan.wake_at = wake_at(found.as_ref(), pass);
        plan.actions.push(Action::Schedule {
            pod: Subject::of(SubjectKind::Pod, &pod.meta),
            eviction: found.map(Box::new),
        });
        plan
    }

    /// Evicts the Pod if that is still right.
    pub(super) fn plan_eviction(&self, view: &View, key: &ObjectKey, pass: &Pass) -> Plan {
        let mut plan = Plan::default();
        let Some(recorded) = view.evictions.get(key) else { return plan };
        let Some(pod) = view.pods.get(key) else { return plan };
        // What changed since may not have been followed up yet.
        let Some(eviction) = self.evaluate(view, pod, Some(recorded), pass.wall) else { return plan };
        if !eviction.due {
            // Or the clock was set back while the Pod waited for its turn, which nobody else comes back for.
            plan.wake_at = wake_at(Some(&eviction), pass);
            return plan;
        }
        let marked = pod.disruption.as_ref().is_some_and(|d| d.by_device_taint);
        let announce = |plan: &mut Plan| {
            let note = format!("Marking for deletion: {}", message::reasons(&eviction.reasons));
            plan.actions.push(notify(pod, "EvictPod", note));
        };
        match self.mode {
            EvictionMode::Delete if !marked => {
                announce(&mut plan);
                let since = pod.disruption.as_ref().and_then(|d| d.since).unwrap_or(pass.wall);
                plan.actions.push(Action::Disrupt { pod: Subject::of(SubjectKind::Pod, &pod.meta), since });
                // The answer shows the Pod as it is now: it may have been deleted by others meanwhile.
                return plan;
            }
            EvictionMode::Delete => {}
            // The API server writes the condition itself once it is decided that the Pod goes.
            EvictionMode::Evict => announce(&mut plan),
        }
        let reasons = eviction.reasons.iter().filter(|reason| !reason.paused);
        // A rule with several children among them counts the Pod once.
        let rules: BTreeSet<Uid> = reasons.flat_map(Reason::rules).map(|(uid, _)| Arc::clone(uid)).collect();
        plan.actions.push(Action::Evict {
            pod: Precondition::of(&pod.meta),
            mode: self.mode,
            rules: rules.into_iter().collect(),
            at: eviction.at.unwrap_or(pass.wall),
        });
        plan
    }
}

fn notify(pod: &Pod, action: &'static str, note: String) -> Action {
    Action::Notify(Notice {
        subject: Subject::of(SubjectKind::Pod, &pod.meta),
        reason: REASON_EVICTION,
        action,
        note,
        warning: false,
    })
}

/// When the eviction becomes due.
fn wake_at(eviction: Option<&Eviction>, pass: &Pass) -> Option<Elapsed> {
    let at = eviction.filter(|eviction| !eviction.due)?.at?;
    Some(until(at, pass))
}

/// The monotonic time at which the wall clock will show `at`, if it does not jump.
pub(super) fn until(at: Timestamp, pass: &Pass) -> Elapsed {
    let wait = at.duration_since(pass.wall);
    pass.now.saturating_add(wait.try_into().unwrap_or_default())
}

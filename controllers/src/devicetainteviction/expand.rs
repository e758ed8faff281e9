//! Rules that select by annotation: one rule for each device, so that the scheduler honours them too.
//!
//! What such a rule (the parent) selects is worked out in one go ([`super::Key::Expand`]) and remembered in
//! [`crate::view::Expansions`]; from there each child is created, corrected or deleted on its own
//! ([`super::Key::Child`]), so that none holds up another, and each sees what is right at that moment. Children are
//! rules like others for everything else; what they do is counted for their parent too (`Reason::parent`).

use std::{fmt::Write, sync::Arc};

use dra_allocator::{DeviceId, Matching, Unmatched};
use dra_api::{
    DeviceTaintRule, TaintEffect, names,
    taint::{DeviceTaintSelector, RuleParent, Taint},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::DeviceTaintEviction;
use crate::{
    plan::{Action, NewRule, Notice, Plan, Precondition, RuleCorrection, Subject, SubjectKind},
    view::{Expansion, Refusal, Selected, View},
};

/// What the selectors of one rule may cost on all devices together. One evaluation may cost 1,000,000, and without a limit
/// for all of them a costly expression on a large fleet would keep everything else waiting.
const BUDGET: u64 = 20_000_000;
/// Digits of the hash in a child's name.
const HASH_DIGITS: usize = 16;
/// Longest name of an object.
const LONGEST_NAME: usize = 253;
/// Longest value of a label.
const LONGEST_LABEL: usize = 63;

/// Most bytes of what is told about an expression.
const LONGEST_REASON: usize = 600;

/// Reason of events about rules that are not expanded as they should be.
pub const REASON_EXPANSION_FAILED: &str = "ExpansionFailed";
/// Reason of events that tell into how many rules a rule is expanded.
pub const REASON_EXPANDED: &str = "Expanded";

/// How far the children of a rule are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Children that are to exist.
    pub wanted: usize,
    /// Of those, how many exist.
    pub there: usize,
    /// Of those that do not, how many have their name taken by a rule that is not ours.
    pub taken: usize,
}

impl DeviceTaintEviction {
    /// Works out which devices a rule selects.
    pub(super) fn plan_expansion(&self, view: &View, name: &Arc<str>) -> Plan {
        let mut plan = Plan::default();
        let Some(rule) = view.taint_rules.get(&DeviceTaintRule::key(name)) else { return plan };
        let Some(inventory) = view.inventory() else { return plan };
        if rule.meta.deleting {
            return plan;
        }
        let known = view.expansions.get(&rule.meta.uid);
        if !rule.selects_by_annotation() {
            if is_annotated(rule) {
                plan.actions.push(complain(rule, super::message::NOT_EXPANDED.to_owned()));
            }
            if known.is_some() {
                plan.actions.push(Action::Expand { rule: subject(rule), expansion: None });
            }
            return plan;
        }
        let found = inventory.matching(rule.select_class.as_deref(), rule.select_cel.as_deref(), BUDGET);
        let expansion = Expansion {
            rule: Arc::clone(name),
            class: rule.select_class.clone(),
            expression: rule.select_cel.clone(),
            result: found.map(|found| selected(name, found)).map_err(|unmatched| refusal(&unmatched)),
        };
        let is_news = known != Some(&expansion);
        match &expansion.result {
            Err(refusal) => plan.actions.push(complain(rule, super::message::refused(refusal))),
            Ok(selected) if self.is_too_many(selected) && expands(&rule.taint.effect) => {
                let text = super::message::too_many(selected.children.len(), self.most_expanded);
                plan.actions.push(complain(rule, text));
            }
            Ok(selected) if is_news && expands(&rule.taint.effect) => {
                plan.actions.push(Action::Notify(Notice {
                    subject: subject(rule),
                    reason: REASON_EXPANDED,
                    action: "ExpandRule",
                    note: super::message::expanded(selected),
                    warning: false,
                }));
            }
            Ok(_) => {}
        }
        if is_news {
            plan.actions.push(Action::Expand { rule: subject(rule), expansion: Some(Box::new(expansion)) });
        }
        plan
    }

    /// Creates, corrects or deletes one child. Whatever is not known for certain changes nothing.
    pub(super) fn plan_child(&self, view: &View, parent: &Arc<str>, child: &Arc<str>) -> Plan {
        let mut plan = Plan::default();
        let parent = view.taint_rules.get(&DeviceTaintRule::key(parent));
        let existing = view.taint_rules.get(&DeviceTaintRule::key(child));
        let own = |rule: &DeviceTaintRule, of: &RuleParent| rule.meta.uid == of.uid;
        match (existing, existing.and_then(|child| child.parent.as_ref())) {
            (Some(child), Some(of)) if parent.is_some_and(|parent| own(parent, of)) => {
                let Some(parent) = parent else { return plan };
                plan.actions.extend(correct(view, parent, child));
            }
            // A child of a rule that is gone. The garbage collector will come for it, but its taint is to end now.
            (Some(child), Some(of)) if view.taint_rules.was_deleted(&of.uid) => {
                plan.actions.extend(delete(child));
            }
            (Some(other), _) => {
                let wants = |parent: &&DeviceTaintRule| self.wanted(view, parent, child).is_some();
                if let Some(parent) = parent.filter(wants) {
                    plan.actions.push(complain(parent, super::message::name_taken(&other.meta.key.name)));
                }
            }
            (None, _) => {
                let device = parent.and_then(|parent| Some((parent, self.wanted(view, parent, child)?)));
                if let Some((parent, device)) = device {
                    plan.actions.push(create(parent, child, device));
                }
            }
        }
        plan
    }

    /// The device for which a parent is to have a new child of this name.
    fn wanted<'v>(&self, view: &'v View, parent: &DeviceTaintRule, child: &str) -> Option<&'v DeviceId> {
        if parent.meta.deleting || !parent.selects_by_annotation() || !expands(&parent.taint.effect) {
            return None;
        }
        let selected = current(view, parent)?;
        selected.children.get(child).filter(|_| !self.is_too_many(selected))
    }

    /// True when a rule selects so many devices that it gets no (more) children.
    pub(super) fn is_too_many(&self, selected: &Selected) -> bool {
        selected.children.len() > self.most_expanded
    }

    /// How far the children of a rule are; `None` if that is not known.
    pub fn progress(&self, view: &View, parent: &DeviceTaintRule) -> Option<Progress> {
        let selected = current(view, parent)?;
        if !expands(&parent.taint.effect) {
            return Some(Progress::default());
        }
        let mut progress = Progress { wanted: selected.children.len(), ..Progress::default() };
        for name in selected.children.keys() {
            let Some(child) = view.taint_rules.get(&DeviceTaintRule::key(name)) else { continue };
            if child.parent.as_ref().is_some_and(|of| of.uid == parent.meta.uid) {
                progress.there += 1;
            } else {
                progress.taken += 1;
            }
        }
        Some(progress)
    }

    /// True when a rule that is to be expanded cannot be.
    pub fn is_expansion_refused(&self, view: &View, parent: &DeviceTaintRule) -> bool {
        view.expansions.get(&parent.meta.uid).is_some_and(|expansion| match &expansion.result {
            Err(_) => true,
            Ok(selected) => self.is_too_many(selected) && expands(&parent.taint.effect),
        })
    }
}

/// What becomes of a child whose parent is there.
fn correct(view: &View, parent: &DeviceTaintRule, child: &DeviceTaintRule) -> Option<Action> {
    // While the parent ends, the garbage collector decides what becomes of its children.
    if parent.meta.deleting || child.meta.deleting {
        return None;
    }
    if !parent.selects_by_annotation() || !expands(&parent.taint.effect) {
        return delete(child);
    }
    let Some(device) = current(view, parent)?.children.get(&child.meta.key.name) else {
        return delete(child);
    };
    let selector = selector(device);
    if child.selector.as_ref() == Some(&selector) && is_same_taint(&child.taint, &parent.taint) {
        return None;
    }
    Some(Action::CorrectRule(Box::new(RuleCorrection {
        rule: Precondition::of(&child.meta),
        version: child.version,
        parent: subject(parent),
        selector,
        taint: parent.taint.clone(),
    })))
}

/// True when rules with this effect are expanded: with any other they only tell what they would do.
pub(super) fn expands(effect: &TaintEffect) -> bool {
    matches!(effect, TaintEffect::NoSchedule | TaintEffect::NoExecute)
}

/// Somebody asks for a selection by annotation, whether it counts or not.
pub(super) fn is_annotated(rule: &DeviceTaintRule) -> bool {
    rule.parent.is_none() && (rule.select_class.is_some() || rule.select_cel.is_some())
}

/// What the rule selects, as it stands now.
fn current<'v>(view: &'v View, rule: &DeviceTaintRule) -> Option<&'v Selected> {
    view.expansions.get(&rule.meta.uid).filter(|one| one.is_of(rule))?.result.as_ref().ok()
}

fn selected(rule: &str, found: Matching) -> Selected {
    Selected {
        children: found
            .devices
            .into_iter()
            .map(|device| (child_name(rule, &device).into(), device))
            .collect(),
        failed: found.failed,
        first_failure: found.first_failure.map(bounded),
    }
}

fn refusal(unmatched: &Unmatched) -> Refusal {
    let text = bounded(unmatched.to_string());
    match unmatched {
        Unmatched::NoClass(_) => Refusal::ClassMissing(text),
        Unmatched::Invalid(_) => Refusal::Invalid(text),
        Unmatched::TooCostly { .. } => Refusal::TooCostly(text),
    }
}

/// A text that shows an expression may be as long as that; conditions and events have no room for it.
fn bounded(mut text: String) -> Arc<str> {
    if text.len() > LONGEST_REASON {
        text.truncate(text.floor_char_boundary(LONGEST_REASON));
        text.push('…');
    }
    text.into()
}

/// The name of the rule for a device: that of its parent, cut if it is too long, and a hash of both.
fn child_name(parent: &str, device: &DeviceId) -> String {
    let mut hash = Sha256::new();
    // None of these contains a NUL.
    for part in [parent, &device.pool.driver, &device.pool.pool, &device.device] {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    let mut digits = String::with_capacity(HASH_DIGITS);
    for byte in hash.finalize().iter().take(HASH_DIGITS / 2) {
        let _ = write!(digits, "{byte:02x}");
    }
    // Names of objects are ASCII.
    let kept = parent.get(..LONGEST_NAME - HASH_DIGITS - 1).unwrap_or(parent).trim_end_matches(['.', '-']);
    format!("{kept}-{digits}")
}

fn selector(device: &DeviceId) -> DeviceTaintSelector {
    DeviceTaintSelector {
        driver: Some(Arc::clone(&device.pool.driver)),
        pool: Some(Arc::clone(&device.pool.pool)),
        device: Some(Arc::clone(&device.device)),
    }
}

/// A time that the parent lacks is the API server's to give.
fn is_same_taint(child: &Taint, parent: &Taint) -> bool {
    let time_added = parent.time_added.or(child.time_added);
    *child == Taint { time_added, ..parent.clone() }
}

/// A taint as it stands in `spec`.
fn taint_json(taint: &Taint) -> Value {
    let mut json = json!({"key": *taint.key, "effect": taint.effect.name()});
    if let Some(fields) = json.as_object_mut() {
        if !taint.value.is_empty() {
            fields.insert("value".to_owned(), json!(*taint.value));
        }
        if let Some(time) = taint.time_added {
            fields.insert("timeAdded".to_owned(), json!(format!("{time:.0}")));
        }
    }
    json
}

fn create(parent: &DeviceTaintRule, name: &Arc<str>, device: &DeviceId) -> Action {
    let kind = parent.version.kind();
    let own = &parent.meta.key.name;
    let label = if own.len() <= LONGEST_LABEL { own } else { &parent.meta.uid };
    let body = json!({
        "apiVersion": kind.api_version(),
        "kind": kind.kind,
        "metadata": {
            "name": **name,
            "labels": {names::EXPANDED_FROM_LABEL: **label},
            // Without blockOwnerDeletion, for which one would have to be allowed to change the parent's finalizers.
            "ownerReferences": [{
                "apiVersion": kind.api_version(),
                "kind": kind.kind,
                "name": **own,
                "uid": *parent.meta.uid,
                "controller": true,
            }],
        },
        "spec": {
            "deviceSelector": {
                "driver": *device.pool.driver,
                "pool": *device.pool.pool,
                "device": *device.device,
            },
            "taint": taint_json(&parent.taint),
        },
    });
    Action::CreateRule(Box::new(NewRule {
        key: DeviceTaintRule::key(name),
        version: parent.version,
        parent: subject(parent),
        body: body.to_string(),
    }))
}

fn delete(child: &DeviceTaintRule) -> Option<Action> {
    let action = Action::DeleteRule { rule: Precondition::of(&child.meta), version: child.version };
    (!child.meta.deleting).then_some(action)
}

fn subject(rule: &DeviceTaintRule) -> Subject {
    Subject::of(SubjectKind::DeviceTaintRule, &rule.meta)
}

fn complain(rule: &DeviceTaintRule, note: String) -> Action {
    Action::Notify(Notice {
        subject: subject(rule),
        reason: REASON_EXPANSION_FAILED,
        action: "ExpandRule",
        note,
        warning: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_children_never_change_and_can_always_be_names() {
        let device = DeviceId::new("gpu.example.com", "node-1", "gpu-0");
        // Rules that an older version has made are found by this.
        assert_eq!(child_name("broken", &device), "broken-cfe49a285eabe62b");
        for parent in ["a", "a.b-c", &"a.".repeat(126), &format!("{}b", "a-".repeat(126)), &"x".repeat(253)] {
            let name = child_name(parent, &device);
            assert!(names::is_object_name(&name), "{name}");
        }
        let (one, other) = (format!("{}1", "x".repeat(252)), format!("{}2", "x".repeat(252)));
        assert_ne!(child_name(&one, &device), child_name(&other, &device), "they differ where they are cut");
        let moved = DeviceId::new("gpu.example.com", "node", "1-gpu-0");
        assert_ne!(child_name("broken", &device), child_name("broken", &moved));
    }
}

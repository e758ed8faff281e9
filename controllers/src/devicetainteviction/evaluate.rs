//! Whether a Pod is to be evicted, when and why (spec §3).

use std::sync::Arc;

use dra_allocator::Inventory;
use dra_api::{
    AllocatedDevice, Claim, Consumer, DeviceTaintRule, ObjectKey, Phase, Pod, TaintEffect, Toleration,
    taint::RuleParent,
};
use jiff::{SignedDuration, Timestamp};

use super::DeviceTaintEviction;
use crate::view::{Eviction, Reason, TaintSource, View, device_id, resolved};

/// For how long a taint is tolerated.
enum Tolerated {
    /// For ever: the taint has no effect.
    Always,
    /// For so many seconds from the time at which it was added; never negative.
    For(i64),
    /// Not at all.
    No,
}

/// A taint on a device, whoever set it.
#[derive(Clone, Copy)]
struct TaintOn<'a> {
    key: &'a str,
    value: &'a str,
    added: Option<Timestamp>,
}

impl DeviceTaintEviction {
    /// Whether the Pod is to be evicted. `recorded` is what was found before: a taint without a time counts from when
    /// it was first seen.
    pub(super) fn evaluate(
        &self,
        view: &View,
        pod: &Pod,
        recorded: Option<&Eviction>,
        now: Timestamp,
    ) -> Option<Eviction> {
        let inventory = view.inventory()?;
        if !is_evictable(pod) {
            return None;
        }
        let recorded = recorded.filter(|eviction| eviction.uid == pod.meta.uid);
        let mut reasons: Vec<Reason> = Vec::new();
        for claim in self.claims(view, pod) {
            for device in claim.allocation.iter().flat_map(|a| &a.devices) {
                self.reasons(view, inventory, claim, device, (recorded, now), &mut reasons);
            }
        }
        if reasons.is_empty() {
            return None;
        }
        // One entry for each taint: the earliest.
        reasons.sort_by(|a, b| a.source.cmp(&b.source).then(a.at.cmp(&b.at)));
        reasons.dedup_by(|later, earlier| later.source == earlier.source);
        let at = reasons.iter().filter(|reason| !reason.paused).map(|reason| reason.at).min();
        Some(Eviction {
            uid: Arc::clone(&pod.meta.uid),
            priority: pod.priority,
            reasons: reasons.into(),
            at,
            due: at.is_some_and(|at| at <= now),
        })
    }

    /// The allocated claims that the Pod really uses: made for it where it did not name them itself, and reserved for
    /// it.
    pub(super) fn claims<'v>(&self, view: &'v View, pod: &'v Pod) -> impl Iterator<Item = &'v Claim> {
        let named = pod.claims.iter().filter_map(|entry| {
            let name = resolved(entry, &pod.claim_statuses)?;
            Some((name, entry.claim_name.is_none()))
        });
        let extended = pod.extended_claim.iter().map(|name| (name, true));
        named.chain(extended).filter_map(move |(name, generated)| {
            let claim = view.claims.get(&pod.sibling(name))?;
            let is_his = !generated || self.is_made_for(claim, pod);
            (claim.allocation.is_some() && is_his && self.is_reserved_for(claim, pod)).then_some(claim)
        })
    }

    /// The controller owner is the Pod, or its PodGroup by name.
    fn is_made_for(&self, claim: &Claim, pod: &Pod) -> bool {
        claim.controller.as_ref().is_some_and(|owner| {
            owner.uid == pod.meta.uid
                || (self.workload_claims && owner.is_pod_group() && pod.group.as_ref() == Some(&owner.name))
        })
    }

    fn is_reserved_for(&self, claim: &Claim, pod: &Pod) -> bool {
        claim.reserved_for.iter().any(|consumer| {
            consumer.uid == pod.meta.uid
                || (self.workload_claims
                    && consumer.is_pod_group()
                    && pod.group.as_ref() == Some(&consumer.name))
        })
    }

    fn reasons(
        &self,
        view: &View,
        inventory: &Inventory,
        claim: &Claim,
        device: &AllocatedDevice,
        (recorded, now): (Option<&Eviction>, Timestamp),
        reasons: &mut Vec<Reason>,
    ) {
        let id = device_id(device);
        let mut consider =
            |taint: TaintOn<'_>, source: TaintSource, parent: Option<RuleParent>, paused: bool| {
                let tolerated = match self.tolerated(&device.tolerations, taint) {
                    Tolerated::Always => return,
                    Tolerated::For(seconds) => Some(seconds),
                    Tolerated::No => None,
                };
                // The API server fills the time in; should it be missing all the same, the taint is new today.
                let added = taint.added.unwrap_or_else(|| first_seen(recorded, &source).unwrap_or(now));
                reasons.push(Reason {
                    source,
                    parent,
                    device: id.clone(),
                    claim: Arc::clone(&claim.meta.key.name),
                    taint: format!("{}={}:NoExecute", taint.key, taint.value).into(),
                    added,
                    tolerated,
                    at: tolerated.map_or(added, |seconds| later(added, seconds)),
                    paused,
                });
            };
        for name in inventory.rules_selecting(&id) {
            let Some(rule) = view.taint_rules.get(&DeviceTaintRule::key(&name)) else { continue };
            if rule.taint.effect != TaintEffect::NoExecute || self.is_held(rule) || is_orphan(view, rule) {
                continue;
            }
            let source = TaintSource::Rule { name, uid: Arc::clone(&rule.meta.uid) };
            let parent = rule.parent.clone().filter(|_| parent(view, rule).is_some());
            consider(rule_taint(rule), source, parent, is_paused(view, rule));
        }
        for published in inventory.slice_taints(&id).iter().filter(|t| t.taint.effect == "NoExecute") {
            let taint = &published.taint;
            let source = TaintSource::Slice {
                device: id.clone(),
                index: published.index,
                slice: Arc::clone(&published.slice),
            };
            consider(
                TaintOn { key: &taint.key, value: &taint.value, added: taint.time_added },
                source,
                None,
                false,
            );
        }
    }

    fn tolerated(&self, tolerations: &[Toleration], taint: TaintOn<'_>) -> Tolerated {
        let mut least: Option<i64> = None;
        for toleration in tolerations {
            let effect = &*toleration.effect;
            let has_effect = effect == "NoExecute" || (effect.is_empty() && !self.strict_effects);
            if !has_effect || !toleration.matches(taint.key, taint.value) {
                continue;
            }
            let Some(seconds) = toleration.seconds else { return Tolerated::Always };
            least = Some(least.map_or(seconds, |least| least.min(seconds)));
        }
        least.map_or(Tolerated::No, |seconds| Tolerated::For(seconds.max(0)))
    }

    /// Whether the claim would let a Pod go because of the rule, were its effect NoExecute.
    pub(super) fn would_evict(
        &self,
        claim: &Claim,
        rule: &DeviceTaintRule,
        selects: impl Fn(&AllocatedDevice) -> bool,
    ) -> bool {
        claim.allocation.iter().flat_map(|a| &a.devices).any(|device| {
            selects(device)
                && !matches!(self.tolerated(&device.tolerations, rule_taint(rule)), Tolerated::Always)
        })
    }

    /// The Pods that a claim is reserved for, directly or through their PodGroup, as far as they are known.
    pub(super) fn consumers<'v>(
        &self,
        view: &'v View,
        claim: &'v ObjectKey,
        reserved_for: &'v [Consumer],
    ) -> impl Iterator<Item = &'v Pod> {
        let groups = self.workload_claims;
        reserved_for.iter().flat_map(move |consumer| {
            let key = claim.sibling(&consumer.name);
            let direct = consumer
                .is_pod()
                .then(|| view.pods.get(&key).filter(|pod| pod.meta.uid == consumer.uid))
                .flatten();
            let members = (groups && consumer.is_pod_group()).then(|| view.index.pods_by_group.get(&key));
            direct.into_iter().chain(members.into_iter().flatten().filter_map(|key| view.pods.get(key)))
        })
    }
}

fn rule_taint(rule: &DeviceTaintRule) -> TaintOn<'_> {
    TaintOn { key: &rule.taint.key, value: &rule.taint.value, added: rule.taint.time_added }
}

/// On a node, running, and not on its way out already.
pub(super) fn is_evictable(pod: &Pod) -> bool {
    pod.node_name.is_some() && !pod.meta.deleting && pod.phase == Phase::Active
}

/// The rule that a rule was expanded from, if it is there.
fn parent<'v>(view: &'v View, rule: &DeviceTaintRule) -> Option<&'v DeviceTaintRule> {
    let of = rule.parent.as_ref()?;
    view.taint_rules.get(&DeviceTaintRule::key(&of.name)).filter(|parent| parent.meta.uid == of.uid)
}

/// The rule that this one was expanded from is gone, so that it will go too.
fn is_orphan(view: &View, rule: &DeviceTaintRule) -> bool {
    rule.parent.as_ref().is_some_and(|of| view.taint_rules.was_deleted(&of.uid))
}

/// Its evictions are paused, or those of the rule that it was expanded from.
pub(super) fn is_paused(view: &View, rule: &DeviceTaintRule) -> bool {
    rule.paused || parent(view, rule).is_some_and(|parent| parent.paused)
}

fn first_seen(recorded: Option<&Eviction>, source: &TaintSource) -> Option<Timestamp> {
    recorded?.reasons.iter().find(|reason| reason.source == *source).map(|reason| reason.added)
}

/// So many seconds later, or the end of time.
fn later(time: Timestamp, seconds: i64) -> Timestamp {
    time.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

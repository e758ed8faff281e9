//! Plan for a claim: take off consumers that ended, deallocate, remove the finalizer, delete (spec §4.3 and §5).

use dra_api::{Claim, Consumer, ObjectKey};

use super::{
    ResourceClaims,
    entries::{Recorded, look_up, recorded},
    pod::precondition,
};
use crate::{
    plan::{Action, DeleteReason, Lookup, Pass, Plan, ReleaseReason, Why},
    view::{Tracked, View},
};

/// What is known of a consumer.
enum Verdict {
    /// It may still use the claim.
    Keep,
    /// It never will again.
    Drop(ReleaseReason),
}

impl ResourceClaims {
    pub(super) fn plan_claim(&self, view: &View, key: &ObjectKey, pass: &Pass) -> Plan {
        let mut plan = Plan::default();
        let Some(claim) = view.claims.get(key) else { return plan };

        let mut ended = Vec::new();
        for consumer in &claim.reserved_for {
            if let Verdict::Drop(reason) = self.judge(view, claim, consumer, pass, &mut plan) {
                ended.push((consumer.uid.clone(), reason));
            }
        }
        let unused = ended.len() == claim.reserved_for.len();
        if !ended.is_empty() {
            // Only "used → unused" deallocates: an allocation that nobody used yet may be about to be.
            let deallocate = unused && claim.finalizer && claim.allocation.is_some();
            plan.actions.push(Action::Release { claim: precondition(claim), consumers: ended, deallocate });
            return plan;
        }
        if !unused {
            return plan;
        }
        if claim.finalizer && claim.meta.deleting && claim.allocation.is_some() {
            plan.actions.push(Action::Release {
                claim: precondition(claim),
                consumers: Vec::new(),
                deallocate: true,
            });
        } else if claim.finalizer
            && claim.allocation.is_none()
            && (claim.meta.deleting || view.deallocated_by_us(claim))
        {
            // Otherwise the finalizer stays: the scheduler sets it before it writes an allocation.
            plan.actions.push(Action::RemoveFinalizer { claim: precondition(claim) });
        } else if !claim.meta.deleting
            && let Some(reason) = deletable(view, claim)
        {
            plan.actions.push(Action::Delete { claim: precondition(claim), reason });
        }
        plan
    }

    fn judge(
        &self,
        view: &View,
        claim: &Claim,
        consumer: &Consumer,
        pass: &Pass,
        plan: &mut Plan,
    ) -> Verdict {
        let key = claim.meta.key.sibling(&consumer.name);
        if consumer.is_pod() {
            match view.pods.get(&key) {
                Some(pod) if pod.meta.uid == consumer.uid => {
                    if pod.is_done() {
                        Verdict::Drop(ReleaseReason::Done)
                    } else {
                        Verdict::Keep
                    }
                }
                Some(_) => Verdict::Drop(ReleaseReason::Replaced),
                None => vanished::<dra_api::Pod>(view, consumer, Lookup::Pod(key.clone()), &key, pass, plan),
            }
        } else if consumer.is_pod_group() && self.workload_claims(view) && view.pod_groups_served {
            match view.pod_groups.get(&key) {
                Some(group) if group.meta.uid == consumer.uid => Verdict::Keep,
                Some(_) => Verdict::Drop(ReleaseReason::Replaced),
                None => vanished::<dra_api::PodGroup>(
                    view,
                    consumer,
                    Lookup::PodGroup(key.clone()),
                    &key,
                    pass,
                    plan,
                ),
            }
        } else {
            let kind = if consumer.api_group.is_empty() {
                consumer.resource.to_string()
            } else {
                format!("{}.{}", consumer.resource, consumer.api_group)
            };
            plan.why.push(Why::ForeignConsumer { consumer: format!("{kind} \"{}\"", consumer.name) });
            Verdict::Keep
        }
    }
}

/// A consumer that the view does not have: dropped only when its deletion was seen or a GET says that it is
/// gone, because the watch may simply be behind.
fn vanished<T: Tracked>(
    view: &View,
    consumer: &Consumer,
    lookup: Lookup,
    key: &ObjectKey,
    pass: &Pass,
    plan: &mut Plan,
) -> Verdict {
    let store = T::store(view);
    if store.was_deleted(&consumer.uid) || store.is_absent(key, pass.now) {
        return Verdict::Drop(ReleaseReason::Gone);
    }
    look_up(lookup, pass, plan);
    Verdict::Keep
}

/// Whether an unused claim of a Pod has lost its purpose. Claims of owners that the view does not have are left
/// to the garbage collector: the owner may simply not be known yet.
fn deletable(view: &View, claim: &Claim) -> Option<DeleteReason> {
    if let Some(owner) = claim.pod_owner() {
        let pod = view.pods.get(&claim.meta.key.sibling(&owner.name))?;
        if pod.meta.uid != owner.uid || pod.is_done() {
            return Some(DeleteReason::OwnerDone);
        }
        return duplicate(view, claim, &pod.claims, &pod.claim_statuses).then_some(DeleteReason::Duplicate);
    }
    let owner = claim.pod_group_owner()?;
    let group = view.pod_groups.get(&claim.meta.key.sibling(&owner.name))?;
    (group.meta.uid == owner.uid && duplicate(view, claim, &group.claims, &group.claim_statuses))
        .then_some(DeleteReason::Duplicate)
}

/// True when the owner's status names another claim with the same owner for the same entry, and nobody has ever
/// touched this one: it came from a create request whose answer was lost.
fn duplicate(
    view: &View,
    claim: &Claim,
    entries: &[dra_api::ClaimEntry],
    statuses: &[dra_api::ClaimStatus],
) -> bool {
    if claim.finalizer || claim.allocation.is_some() || claim.extended {
        return false;
    }
    let Some(entry) =
        entries.iter().find(|e| e.template_name.is_some() && Some(&e.name) == claim.pod_claim_name.as_ref())
    else {
        return false;
    };
    let Recorded::Name(name) = recorded(entry, statuses) else { return false };
    if *name == claim.meta.key.name {
        return false;
    }
    view.claims.get(&claim.meta.key.sibling(name)).is_some_and(|other| {
        !other.meta.deleting
            && other.pod_claim_name == claim.pod_claim_name
            && other.controller.as_ref().map(|o| &o.uid) == claim.controller.as_ref().map(|o| &o.uid)
    })
}

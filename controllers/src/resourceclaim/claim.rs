//! Plan for a claim: take off consumers that ended, deallocate, remove the finalizer, delete (spec §4.3 and §5).

use dra_api::{Claim, ClaimEntry, ClaimStatus, Consumer, ObjectKey, Pod, PodGroup, Uid, names};

use super::{
    ResourceClaims,
    entries::{Recorded, look_up, recorded},
};
use crate::{
    plan::{Action, DeleteReason, Lookup, Pass, Plan, Precondition, ReleaseReason, Why},
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
            plan.actions.push(Action::Release {
                claim: Precondition::of(&claim.meta),
                consumers: ended,
                deallocate,
            });
            return plan;
        }
        if !unused {
            return plan;
        }
        if claim.finalizer && claim.meta.deleting && claim.allocation.is_some() {
            plan.actions.push(Action::Release {
                claim: Precondition::of(&claim.meta),
                consumers: Vec::new(),
                deallocate: true,
            });
        } else if claim.finalizer
            && claim.allocation.is_none()
            && (claim.meta.deleting || view.deallocated_by_us(claim))
        {
            // Otherwise the finalizer stays: the scheduler sets it before it writes an allocation.
            plan.actions.push(Action::RemoveFinalizer { claim: Precondition::of(&claim.meta) });
        } else if !claim.meta.deleting
            && let Some(reason) = deletable(view, claim, pass, &mut plan)
        {
            plan.actions.push(Action::Delete { claim: Precondition::of(&claim.meta), reason });
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
            let lookup = Lookup::Pod { key: key.clone(), uid: consumer.uid.clone() };
            match view.pods.get(&key).filter(|pod| pod.meta.uid == consumer.uid) {
                Some(pod) if pod.is_done() => return Verdict::Drop(ReleaseReason::Done),
                None if !names::is_object_name(&consumer.name)
                    || is_gone::<Pod>(view, &consumer.uid, lookup, pass, plan) =>
                {
                    return Verdict::Drop(gone_or_replaced::<Pod>(view, &key));
                }
                _ => {}
            }
        } else if consumer.is_pod_group() && self.workload_claims(view) && view.pod_groups_served {
            let known = view.pod_groups.get(&key).is_some_and(|group| group.meta.uid == consumer.uid);
            let lookup = Lookup::PodGroup { key: key.clone(), uid: consumer.uid.clone() };
            if !known
                && (!names::is_object_name(&consumer.name)
                    || is_gone::<PodGroup>(view, &consumer.uid, lookup, pass, plan))
            {
                return Verdict::Drop(gone_or_replaced::<PodGroup>(view, &key));
            }
        } else {
            let kind = if consumer.api_group.is_empty() {
                consumer.resource.to_string()
            } else {
                format!("{}.{}", consumer.resource, consumer.api_group)
            };
            plan.why.push(Why::ForeignConsumer { consumer: format!("{kind} \"{}\"", consumer.name) });
        }
        Verdict::Keep
    }
}

/// Whether an object that the view does not have is gone for good: its deletion was seen, or a GET did not find
/// it. Only the uid counts. Another object of that name proves nothing, because the watch may be behind and still
/// show the one before.
fn is_gone<T: Tracked>(view: &View, uid: &Uid, lookup: Lookup, pass: &Pass, plan: &mut Plan) -> bool {
    if T::store(view).was_deleted(uid) {
        return true;
    }
    look_up(lookup, pass, plan);
    false
}

fn gone_or_replaced<T: Tracked>(view: &View, key: &ObjectKey) -> ReleaseReason {
    if T::store(view).get(key).is_some() { ReleaseReason::Replaced } else { ReleaseReason::Gone }
}

/// Whether an unused claim of a Pod has lost its purpose. Claims of owners that the view does not have are left
/// to the garbage collector: the owner may simply not be known yet.
fn deletable(view: &View, claim: &Claim, pass: &Pass, plan: &mut Plan) -> Option<DeleteReason> {
    if let Some(owner) = claim.pod_owner() {
        let key = claim.meta.key.sibling(&owner.name);
        let pod = view.pods.get(&key)?;
        if pod.meta.uid != owner.uid {
            let lookup = Lookup::Pod { key, uid: owner.uid.clone() };
            return is_gone::<Pod>(view, &owner.uid, lookup, pass, plan).then_some(DeleteReason::OwnerDone);
        }
        if pod.is_done() {
            return Some(DeleteReason::OwnerDone);
        }
        return duplicate(view, claim, &pod.claims, &pod.claim_statuses).then_some(DeleteReason::Duplicate);
    }
    let owner = claim.pod_group_owner()?;
    let group = view.pod_groups.get(&claim.meta.key.sibling(&owner.name))?;
    (group.meta.uid == owner.uid && duplicate(view, claim, &group.claims, &group.claim_statuses))
        .then_some(DeleteReason::Duplicate)
}

/// True when the owner's status names another claim with the same owner for the same entry, and nobody holds this one:
/// it came from a create request whose answer was lost, or from another manager. A scheduler may have set its finalizer
/// and given up since; should it be about to allocate, it does so under the resourceVersion that the deletion changes.
fn duplicate(view: &View, claim: &Claim, entries: &[ClaimEntry], statuses: &[ClaimStatus]) -> bool {
    if claim.allocation.is_some() || claim.extended {
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

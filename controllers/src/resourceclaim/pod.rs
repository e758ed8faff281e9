//! Plan for a Pod: a claim for each entry that names a template, and reservation of claims for a Pod that got
//! its node without the scheduler (spec §2 and §4.1).

use std::{collections::BTreeMap, sync::Arc};

use dra_api::{Claim, ClaimEntry, Consumer, ObjectKey, Pod, PodGroup, names};

use super::{
    REASON_RESERVATION, ResourceClaims,
    entries::{
        Check, Owner, check, claim_key, find_generated, generate, is_group_entry, record, refuse, say,
    },
    group::group_owner,
};
use crate::{
    plan::{Action, Pass, Plan, Precondition, Subject, SubjectKind, Why},
    view::View,
};

/// Whether and how the Pod belongs to a PodGroup.
#[derive(Clone, Copy)]
pub(super) enum Membership<'v> {
    /// It does not.
    None,
    /// It does, but the gate is off.
    Disabled(&'v Arc<str>),
    /// It does, but the PodGroup is not there.
    Missing(&'v Arc<str>),
    /// It does.
    Member(&'v PodGroup),
}

impl ResourceClaims {
    pub(super) fn pod_owner<'v>(&self, view: &View, pod: &'v Pod) -> Owner<'v> {
        Owner {
            subject: Subject::of(SubjectKind::Pod, &pod.meta),
            statuses: &pod.claim_statuses,
            pod: Some((pod, self.workload_claims(view))),
        }
    }

    pub(super) fn membership<'v>(&self, view: &'v View, pod: &'v Pod) -> Membership<'v> {
        let Some(name) = &pod.group else { return Membership::None };
        if !self.generic_workload(view) {
            return Membership::Disabled(name);
        }
        view.pod_groups.get(&pod.sibling(name)).map_or(Membership::Missing(name), Membership::Member)
    }

    pub(super) fn plan_pod(&self, view: &View, key: &ObjectKey, pass: &Pass) -> Plan {
        let mut plan = Plan::default();
        let Some(pod) = view.pods.get(key) else { return plan };
        if pod.meta.deleting || pod.is_done() {
            return plan;
        }
        let owner = self.pod_owner(view, pod);
        let membership = self.membership(view, pod);
        let mut found = BTreeMap::new();
        for entry in &pod.claims {
            if let Some(claim) = self.plan_entry(view, &owner, membership, entry, pass, &mut plan) {
                found.insert(Arc::clone(&entry.name), claim);
            }
        }
        record(&owner, &found, &mut plan);
        if let Some(node) = &pod.node_name {
            self.plan_reservations(view, &owner, pod, node, membership, &mut plan);
        }
        plan
    }

    /// Name of an existing claim that belongs into the entry's record. Whatever else the entry needs goes into the plan.
    fn plan_entry(
        &self,
        view: &View,
        owner: &Owner<'_>,
        membership: Membership<'_>,
        entry: &ClaimEntry,
        pass: &Pass,
        plan: &mut Plan,
    ) -> Option<Arc<str>> {
        if entry.claim_name.is_some() {
            return None;
        }
        let group = match membership {
            Membership::Member(group) if is_group_entry(group, entry) => Some(group),
            _ => None,
        };
        let refusal = match membership {
            Membership::Disabled(group) => Some(Why::GenericWorkloadDisabled { group: Arc::clone(group) }),
            Membership::Missing(group) => {
                Some(Why::PodGroupMissing { group: Arc::clone(group), served: view.pod_groups_served })
            }
            Membership::Member(_) if group.is_some() && !self.workload_claims(view) => {
                Some(Why::WorkloadClaimsDisabled { entry: Arc::clone(&entry.name) })
            }
            Membership::None | Membership::Member(_) => None,
        };
        let replaces = match check(view, owner, entry, refusal.is_some(), pass, plan) {
            Check::Settled | Check::Unknown => return None,
            Check::Uses(claim) => return Some(claim),
            Check::Needed { replaces } => replaces,
        };
        if let Some(why) = refusal {
            refuse(&owner.subject, entry, why, plan);
            return None;
        }
        let made = if let Some(group) = group {
            // Only the group's own plan makes its claims.
            let made = find_generated(view, &group_owner(group).subject, &entry.name);
            if made.is_none() {
                plan.why.push(Why::GroupClaimMissing { group: Arc::clone(&group.meta.key.name) });
            }
            made
        } else {
            let orphan = find_generated(view, &owner.subject, &entry.name);
            if orphan.is_none() {
                generate(view, &self.gates, owner, entry, replaces, pass, plan);
            }
            orphan
        };
        made.map(|claim| Arc::clone(&claim.meta.key.name))
    }

    fn plan_reservations(
        &self,
        view: &View,
        owner: &Owner<'_>,
        pod: &Pod,
        node: &Arc<str>,
        membership: Membership<'_>,
        plan: &mut Plan,
    ) {
        for entry in &pod.claims {
            let Some(claim) =
                claim_key(&pod.meta.key, entry, &pod.claim_statuses).and_then(|key| view.claims.get(&key))
            else {
                continue;
            };
            if !needs_reservation(owner, entry, claim) {
                if claim.allocation.is_none() {
                    plan.why.push(Why::Unallocated { claim: Arc::clone(&claim.meta.key.name) });
                }
                continue;
            }
            match self.consumer(view, owner, pod, membership, entry) {
                Ok(consumer) => match obstacle(claim, node) {
                    None => plan.actions.push(Action::Reserve {
                        claim: Precondition::of(&claim.meta),
                        after: claim.reserved_for.iter().map(|c| c.uid.clone()).collect(),
                        consumer,
                    }),
                    Some(why) => refuse_reservation(&owner.subject, entry, why, plan),
                },
                // Said once for the entry; a gate that is off stays quiet here, as in-tree.
                Err(why @ Why::WorkloadClaimsDisabled { .. }) => plan.why.push(why),
                Err(why) => refuse_reservation(&owner.subject, entry, why, plan),
            }
        }
    }

    /// Who reserves the claim of this entry: the Pod, or its PodGroup when the entry is one of the group's.
    fn consumer(
        &self,
        view: &View,
        owner: &Owner<'_>,
        pod: &Pod,
        membership: Membership<'_>,
        entry: &ClaimEntry,
    ) -> Result<Consumer, Why> {
        match membership {
            Membership::Disabled(group) => Err(Why::GenericWorkloadDisabled { group: Arc::clone(group) }),
            Membership::Missing(group) => {
                Err(Why::PodGroupMissing { group: Arc::clone(group), served: view.pod_groups_served })
            }
            Membership::Member(group) if is_group_entry(group, entry) => {
                if !self.workload_claims(view) {
                    return Err(Why::WorkloadClaimsDisabled { entry: Arc::clone(&entry.name) });
                }
                Ok(Consumer {
                    api_group: names::SCHEDULING_GROUP.into(),
                    resource: "podgroups".into(),
                    name: Arc::clone(&group.meta.key.name),
                    uid: group.meta.uid.clone(),
                })
            }
            Membership::None | Membership::Member(_) => Ok(Consumer {
                api_group: "".into(),
                resource: "pods".into(),
                name: Arc::clone(&pod.meta.key.name),
                uid: owner.subject.uid.clone(),
            }),
        }
    }
}

/// True when an allocated claim of a Pod that has a node lacks the reservation.
pub(super) fn needs_reservation(owner: &Owner<'_>, entry: &ClaimEntry, claim: &Claim) -> bool {
    claim.allocation.is_some()
        && !owner.is_reserved(claim)
        && (entry.claim_name.is_some() || owner.owns(claim))
}

/// Why the API server, or the hardware, would not have it.
fn obstacle(claim: &Claim, node: &Arc<str>) -> Option<Why> {
    let name = || Arc::clone(&claim.meta.key.name);
    if claim.meta.deleting {
        Some(Why::ClaimTerminating { claim: name() })
    } else if claim.reserved_for.len() >= names::RESERVED_FOR_MAX {
        Some(Why::ReservationFull { claim: name() })
    } else if claim.allocation.as_ref().is_some_and(|a| !a.reach.may_reach(node)) {
        Some(Why::OutOfReach { claim: name(), node: Arc::clone(node) })
    } else {
        None
    }
}

fn refuse_reservation(subject: &Subject, entry: &ClaimEntry, why: Why, plan: &mut Plan) {
    say(subject, entry, (REASON_RESERVATION, "ReserveClaim"), why, plan);
}

//! Which keys a change of the view concerns. Called under the view's lock for each event, so it follows indexes
//! and never scans a store.

use std::collections::BTreeSet;

use dra_api::{Claim, ClaimEntry, ClaimTemplate, ObjectKey, Pod, PodGroup, names};

use super::{
    Key, ResourceClaims,
    entries::{Recorded, claim_key, find_generated, has_consumer, is_group_entry, recorded},
    group::group_owner,
    pod::{Membership, needs_reservation},
};
use crate::view::{Change, Delta, View};

impl ResourceClaims {
    /// Every key that may need work, for the case that the rules themselves have changed: the API server has
    /// begun to serve PodGroups.
    pub fn everything(&self, view: &View) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        for pod in view.pods.iter() {
            self.consider_pod(view, pod, &mut keys);
        }
        for group in view.pod_groups.iter() {
            self.consider_group(view, group, &mut keys);
        }
        keys.extend(view.claims.iter().map(|claim| Key::Claim(claim.meta.key.clone())));
        keys.into_iter().collect()
    }

    /// The keys to plan again after `change`, in order and each once.
    pub fn affected(&self, view: &View, change: &Change) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        match change {
            Change::Pod(delta) => self.pod_changed(view, delta, &mut keys),
            Change::PodGroup(delta) => self.group_changed(view, delta, &mut keys),
            Change::Claim(delta) => self.claim_changed(view, delta, &mut keys),
            Change::Template(delta) => self.template_changed(view, delta, &mut keys),
            Change::Slice(_)
            | Change::Class(_)
            | Change::TaintRule(_)
            | Change::Eviction(_)
            | Change::Expansion(_)
            | Change::PoolRequest(_) => {}
        }
        keys.into_iter().collect()
    }

    fn pod_changed(&self, view: &View, delta: &Delta<Pod>, keys: &mut BTreeSet<Key>) {
        let new = view.pods.get(&delta.key);
        let old = delta.old.as_deref();
        if let Some(pod) = new {
            self.consider_pod(view, pod, keys);
            if pod.is_done() {
                release(view, pod, keys);
            } else if old.is_none_or(|o| o.meta.uid != pod.meta.uid || o.claim_statuses != pod.claim_statuses)
            {
                surplus(view, &pod.sibling(&pod.meta.uid), keys);
            }
        }
        if let Some(old) = old
            && new.is_none_or(|new| new.meta.uid != old.meta.uid)
        {
            release(view, old, keys);
        }
    }

    fn group_changed(&self, view: &View, delta: &Delta<PodGroup>, keys: &mut BTreeSet<Key>) {
        if !self.generic_workload(view) {
            return;
        }
        let new = view.pod_groups.get(&delta.key);
        let old = delta.old.as_deref();
        if let Some(group) = new {
            self.consider_group(view, group, keys);
            if old.is_none_or(|o| o.meta.uid != group.meta.uid || o.claim_statuses != group.claim_statuses) {
                surplus(view, &delta.key.sibling(&group.meta.uid), keys);
            }
        }
        let replaced = old.filter(|old| new.is_none_or(|new| new.meta.uid != old.meta.uid));
        if let Some(old) = replaced {
            if self.workload_claims(view) {
                let named = old.claims.iter().filter_map(|e| claim_key(&delta.key, e, &old.claim_statuses));
                let reserved = view.index.claims_by_consumer.get(&delta.key.sibling(&old.meta.uid)).cloned();
                keys.extend(existing(view, named.chain(reserved)));
            }
        } else if old.is_some_and(|old| new.is_some_and(|new| old.claim_statuses == new.claim_statuses)) {
            // Members look at nothing else of a group; five thousand of them need not be woken for a condition.
            return;
        }
        self.consider_pods(view, view.index.pods_by_group.get(&delta.key), keys);
    }

    fn claim_changed(&self, view: &View, delta: &Delta<Claim>, keys: &mut BTreeSet<Key>) {
        let new = view.claims.get(&delta.key);
        let old = delta.old.as_deref();
        if new.is_some_and(|claim| self.claim_needs_work(view, claim)) {
            keys.insert(Key::Claim(delta.key.clone()));
        }
        if let Some(new) = new
            && let Some(owner) = &new.controller
            && has_consumer(new, &owner.uid)
            && old.is_none_or(|old| !has_consumer(old, &owner.uid))
        {
            // Its record may name another one.
            self.consider_owner(view, new, keys);
        }
        if let (Some(old), Some(new)) = (old, new)
            && same_for_owners(old, new)
        {
            // Growing reservations concern no others; whoever was taken off may need to be put back.
            for lost in old.reserved_for.iter().filter(|c| !new.reserved_for.contains(c)) {
                let key = delta.key.sibling(&lost.name);
                if lost.is_pod() {
                    self.consider_pods(view, std::iter::once(&key), keys);
                } else if lost.is_pod_group() {
                    if let Some(group) = view.pod_groups.get(&key) {
                        self.consider_group(view, group, keys);
                    }
                    self.consider_pods(view, view.index.pods_by_group.get(&key), keys);
                }
            }
            return;
        }
        if let Some(new) = new
            && old.is_none_or(|old| {
                old.meta.uid != new.meta.uid
                    || old.controller != new.controller
                    || old.pod_claim_name != new.pod_claim_name
            })
        {
            // Those whom it was made for may not know of it.
            self.consider_owner(view, new, keys);
            if let Some(owner) = new.pod_group_owner() {
                let members = view.index.pods_by_group.get(&delta.key.sibling(&owner.name));
                self.consider_pods(view, members, keys);
            }
            let is_recorded = view.index.pods_by_claim.get(&delta.key).next().is_some()
                || view.index.groups_by_claim.get(&delta.key).next().is_some();
            if let Some(owner) = new.controller.as_ref().filter(|_| is_recorded) {
                surplus(view, &delta.key.sibling(&owner.uid), keys);
            }
        }
        self.consider_pods(view, view.index.pods_by_claim.get(&delta.key), keys);
        for key in view.index.groups_by_claim.get(&delta.key) {
            if let Some(group) = view.pod_groups.get(key) {
                self.consider_group(view, group, keys);
            }
        }
    }

    fn template_changed(&self, view: &View, delta: &Delta<ClaimTemplate>, keys: &mut BTreeSet<Key>) {
        if view.templates.get(&delta.key).is_none() {
            return;
        }
        self.consider_pods(view, view.index.pods_by_template.get(&delta.key), keys);
        for key in view.index.groups_by_template.get(&delta.key) {
            if let Some(group) = view.pod_groups.get(key) {
                self.consider_group(view, group, keys);
            }
        }
    }

    /// Whoever the claim was made for.
    fn consider_owner(&self, view: &View, claim: &Claim, keys: &mut BTreeSet<Key>) {
        if let Some(owner) = claim.pod_owner() {
            let pod = claim.meta.key.sibling(&owner.name);
            self.consider_pods(view, std::iter::once(&pod), keys);
        } else if let Some(owner) = claim.pod_group_owner()
            && let Some(group) = view.pod_groups.get(&claim.meta.key.sibling(&owner.name))
        {
            self.consider_group(view, group, keys);
        }
    }

    fn consider_pods<'v>(
        &self,
        view: &'v View,
        pods: impl Iterator<Item = &'v ObjectKey>,
        keys: &mut BTreeSet<Key>,
    ) {
        for pod in pods.filter_map(|key| view.pods.get(key)) {
            self.consider_pod(view, pod, keys);
        }
    }

    fn consider_pod(&self, view: &View, pod: &Pod, keys: &mut BTreeSet<Key>) {
        if self.pod_needs_work(view, pod) {
            keys.insert(Key::Pod(pod.meta.key.clone()));
        }
    }

    fn consider_group(&self, view: &View, group: &PodGroup, keys: &mut BTreeSet<Key>) {
        if self.group_needs_work(view, group) {
            keys.insert(Key::PodGroup(group.meta.key.clone()));
        }
    }

    /// False when the plan for the claim can only be empty: all its consumers are somebody else's business, or it
    /// has none and nothing of it is ours to tidy up.
    fn claim_needs_work(&self, view: &View, claim: &Claim) -> bool {
        if claim.reserved_for.is_empty() {
            return claim.finalizer || claim.pod_owner().is_some() || claim.pod_group_owner().is_some();
        }
        let groups = self.workload_claims(view);
        claim.reserved_for.iter().any(|c| c.is_pod() || (groups && c.is_pod_group()))
    }

    /// Cheap form of "the plan for this Pod is not empty" (upstream `podNeedsWork`).
    fn pod_needs_work(&self, view: &View, pod: &Pod) -> bool {
        if pod.claims.is_empty() || pod.meta.deleting || pod.is_done() {
            return false;
        }
        let owner = self.pod_owner(view, pod);
        let membership = self.membership(view, pod);
        pod.claims.iter().any(|entry| {
            let templated = entry.claim_name.is_none();
            let name = match (templated, recorded(entry, &pod.claim_statuses)) {
                (true, Recorded::No) => return !self.waits_for_group(view, membership, entry),
                (true, Recorded::NotNeeded) => return false,
                _ => claim_key(&pod.meta.key, entry, &pod.claim_statuses),
            };
            match name.and_then(|key| view.claims.get(&key)) {
                None => templated && !self.waits_for_group(view, membership, entry),
                Some(claim) if templated && !owner.accepts(claim) => true,
                Some(claim) if templated && owner.used_instead(view, entry, claim).is_some() => true,
                Some(claim) => pod.node_name.is_some() && needs_reservation(&owner, entry, claim),
            }
        })
    }

    /// True when the entry's claim is the PodGroup's to make, and it is not there yet.
    fn waits_for_group(&self, view: &View, membership: Membership<'_>, entry: &ClaimEntry) -> bool {
        let Membership::Member(group) = membership else { return false };
        self.workload_claims(view)
            && is_group_entry(group, entry)
            && find_generated(view, &group_owner(group).subject, &entry.name).is_none()
    }

    fn group_needs_work(&self, view: &View, group: &PodGroup) -> bool {
        if group.claims.is_empty() || group.meta.deleting || !self.workload_claims(view) {
            return false;
        }
        let owner = group_owner(group);
        group.claims.iter().filter(|e| e.claim_name.is_none()).any(|entry| {
            match recorded(entry, &group.claim_statuses) {
                Recorded::No => true,
                Recorded::NotNeeded => false,
                Recorded::Name(name) => view
                    .claims
                    .get(&group.meta.key.sibling(name))
                    .is_none_or(|c| !owner.accepts(c) || owner.used_instead(view, entry, c).is_some()),
            }
        })
    }
}

/// True when Pods and PodGroups that use the claim need not look at it again.
fn same_for_owners(old: &Claim, new: &Claim) -> bool {
    let full = |c: &Claim| c.reserved_for.len() >= names::RESERVED_FOR_MAX;
    old.meta.uid == new.meta.uid
        && old.meta.deleting == new.meta.deleting
        && old.controller == new.controller
        && old.pod_claim_name == new.pod_claim_name
        && old.allocation == new.allocation
        && (!full(old) || full(new))
}

/// The claims that a Pod used, was reserved for, or owned.
fn release(view: &View, pod: &Pod, keys: &mut BTreeSet<Key>) {
    let named = pod.claims.iter().filter_map(|e| claim_key(&pod.meta.key, e, &pod.claim_statuses));
    let extended = pod.extended_claim.as_ref().map(|name| pod.meta.key.sibling(name));
    let uid = pod.sibling(&pod.meta.uid);
    let reserved = view.index.claims_by_consumer.get(&uid).cloned();
    let owned = view.index.claims_by_owner.get(&uid).cloned();
    keys.extend(existing(view, named.chain(extended).chain(reserved).chain(owned)));
}

/// Claims for entries for which their owner (by its uid) has several: all but one are too many. Which, that depends on the
/// owner's record and on each of the claims, in whatever order they become known.
fn surplus(view: &View, owner: &ObjectKey, keys: &mut BTreeSet<Key>) {
    let owned = || view.index.claims_by_owner.get(owner).filter_map(|key| view.claims.get(key));
    let (mut seen, mut several) = (BTreeSet::new(), BTreeSet::new());
    for claim in owned() {
        if !seen.insert(&claim.pod_claim_name) {
            several.insert(&claim.pod_claim_name);
        }
    }
    let too_many = owned().filter(|claim| several.contains(&claim.pod_claim_name));
    keys.extend(too_many.map(|claim| Key::Claim(claim.meta.key.clone())));
}

fn existing(view: &View, claims: impl Iterator<Item = ObjectKey>) -> impl Iterator<Item = Key> {
    claims.filter(|key| view.claims.get(key).is_some()).map(Key::Claim)
}

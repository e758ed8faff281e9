//! Which keys a change of the view concerns. Called under the view's lock for each event: it follows indexes, and
//! leaves out Pods for which nothing follows, so that a cluster without taints costs next to nothing.

use std::{collections::BTreeSet, sync::Arc};

use dra_allocator::{DeviceFilter, PoolId};
use dra_api::{Claim, DeviceTaintRule, Pod, TaintEffect, taint::DeviceTaintSelector};
use jiff::Timestamp;

use super::{DeviceTaintEviction, Key, rule::claim_key};
use crate::view::{Change, Delta, EvictionChange, ResourceSlice, View};

impl DeviceTaintEviction {
    /// The keys to plan again after `change`, in order and each once.
    pub fn affected(&self, view: &View, change: &Change) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        match change {
            Change::Pod(delta) => self.pod_changed(view, delta, &mut keys),
            Change::Claim(delta) => self.claim_changed(view, delta, &mut keys),
            Change::Slice(delta) => self.slice_changed(view, delta, &mut keys),
            Change::TaintRule(delta) => self.rule_changed(view, delta, &mut keys),
            Change::Eviction(change) => eviction_changed(change, &mut keys),
            Change::PodGroup(_) | Change::Template(_) => {}
        }
        keys.into_iter().collect()
    }

    fn consider(&self, view: &View, pod: &Pod, keys: &mut BTreeSet<Key>) {
        // Only whether anything follows counts here, and that does not depend on the time.
        let concerned = view.evictions.get(&pod.meta.key).is_some()
            || self.evaluate(view, pod, None, Timestamp::UNIX_EPOCH).is_some();
        if concerned {
            keys.insert(Key::Pod(pod.meta.key.clone()));
        }
    }

    fn pod_changed(&self, view: &View, delta: &Delta<Pod>, keys: &mut BTreeSet<Key>) {
        let Some(pod) = view.pods.get(&delta.key) else { return };
        if pod.claims.is_empty() && pod.extended_claim.is_none() {
            return;
        }
        let same = delta.old.as_deref().is_some_and(|old| {
            old.meta.uid == pod.meta.uid
                && old.node_name == pod.node_name
                && old.claim_statuses == pod.claim_statuses
                && old.extended_claim == pod.extended_claim
                && old.phase == pod.phase
                && old.meta.deleting == pod.meta.deleting
        });
        if !same {
            self.consider(view, pod, keys);
        }
    }

    fn claim_changed(&self, view: &View, delta: &Delta<Claim>, keys: &mut BTreeSet<Key>) {
        let new = view.claims.get(&delta.key);
        let old = delta.old.as_deref();
        if let (Some(old), Some(new)) = (old, new)
            && old.meta.uid == new.meta.uid
            && old.allocation == new.allocation
            && old.reserved_for == new.reserved_for
            && old.controller == new.controller
        {
            return;
        }
        for claim in old.into_iter().chain(new).filter(|claim| claim.allocation.is_some()) {
            for pod in self.consumers(view, &claim.meta.key, &claim.reserved_for) {
                self.consider(view, pod, keys);
            }
        }
    }

    fn slice_changed(&self, view: &View, delta: &Delta<ResourceSlice>, keys: &mut BTreeSet<Key>) {
        let Some(inventory) = view.inventory() else { return };
        let old = delta.old.as_deref();
        let mut pools: BTreeSet<&PoolId> = BTreeSet::new();
        // A slice without taints may show or hide another one with taints, of another generation.
        for slice in old.into_iter().chain(view.slices.get(&delta.key)) {
            if slice.no_execute || inventory.pool_has_taint(&slice.pool, "NoExecute") {
                pools.insert(&slice.pool);
            }
        }
        for pool in pools {
            let filter = DeviceFilter { driver: Some(&pool.driver), pool: Some(&pool.pool), device: None };
            self.consider_holders(view, filter, keys);
        }
    }

    fn rule_changed(&self, view: &View, delta: &Delta<DeviceTaintRule>, keys: &mut BTreeSet<Key>) {
        let new = view.taint_rules.get(&delta.key);
        let old = delta.old.as_deref();
        if let Some(new) = new {
            keys.insert(Key::Rule(Arc::clone(&new.meta.key.name)));
        }
        if let (Some(old), Some(new)) = (old, new)
            && old.meta.uid == new.meta.uid
            && old.selector == new.selector
            && old.taint == new.taint
            && old.paused == new.paused
            && old.confirmed == new.confirmed
        {
            return;
        }
        let mut seen: Option<&DeviceTaintSelector> = None;
        for rule in old.into_iter().chain(new).filter(|rule| rule.taint.effect == TaintEffect::NoExecute) {
            let Some(selector) = rule.selector.as_ref() else { continue };
            if seen.replace(selector) != Some(selector) {
                self.consider_holders(view, filter(selector), keys);
            }
        }
    }

    fn consider_holders(&self, view: &View, filter: DeviceFilter<'_>, keys: &mut BTreeSet<Key>) {
        let Some(inventory) = view.inventory() else { return };
        for name in inventory.claims_holding(filter) {
            let Some(claim) = claim_key(&name).and_then(|key| view.claims.get(&key)) else { continue };
            for pod in self.consumers(view, &claim.meta.key, &claim.reserved_for) {
                self.consider(view, pod, keys);
            }
        }
    }
}

fn eviction_changed(change: &EvictionChange, keys: &mut BTreeSet<Key>) {
    keys.extend(change.rules.iter().map(|name| Key::Rule(Arc::clone(name))));
    if let Some((priority, pod)) = &change.due {
        keys.insert(Key::Evict { priority: *priority, pod: pod.clone() });
    }
}

fn filter(selector: &DeviceTaintSelector) -> DeviceFilter<'_> {
    DeviceFilter {
        driver: selector.driver.as_deref(),
        pool: selector.pool.as_deref(),
        device: selector.device.as_deref(),
    }
}

//! Which keys a change of the view concerns. Called under the view's lock for each event: it follows indexes, and
//! leaves out Pods for which nothing follows, so that a cluster without taints costs next to nothing.

use std::{collections::BTreeSet, sync::Arc};

use dra_allocator::{DeviceFilter, PoolId};
use dra_api::{Claim, DeviceTaintRule, Pod, TaintEffect, Uid, taint::DeviceTaintSelector};
use jiff::Timestamp;

use super::{DeviceTaintEviction, Key, expand::is_annotated, rule::claim_key};
use crate::view::{Change, Delta, EvictionChange, ExpansionChange, ResourceSlice, View};

impl DeviceTaintEviction {
    /// The keys to plan again after `change`, in order and each once.
    pub fn affected(&self, view: &View, change: &Change) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        match change {
            Change::Pod(delta) => self.pod_changed(view, delta, &mut keys),
            Change::Claim(delta) => self.claim_changed(view, delta, &mut keys),
            Change::Slice(delta) => self.slice_changed(view, delta, &mut keys),
            Change::TaintRule(delta) => self.rule_changed(view, delta, &mut keys),
            Change::Class(delta) => class_changed(view, &delta.key.name, &mut keys),
            Change::Eviction(change) => eviction_changed(change, &mut keys),
            Change::Expansion(change) => self.expansion_changed(view, change, &mut keys),
            Change::PodGroup(_) | Change::Template(_) | Change::PoolRequest(_) => {}
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
        keys.extend(view.index.selecting_rules.iter().cloned().map(Key::Expand));
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
        child_changed(view, delta, keys);
        self.parent_changed(view, delta, keys);
        if let (Some(old), Some(new)) = (old, new)
            && old.meta.uid == new.meta.uid
            && old.selector == new.selector
            && old.taint == new.taint
            && old.paused == new.paused
            && old.confirmed == new.confirmed
            && old.parent == new.parent
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

    fn expansion_changed(&self, view: &View, change: &ExpansionChange, keys: &mut BTreeSet<Key>) {
        let ExpansionChange { rule, uid, children: changed, before, all } = change;
        keys.insert(Key::Rule(Arc::clone(rule)));
        let key = |child: &Arc<str>| Key::Child { parent: Arc::clone(rule), child: Arc::clone(child) };
        keys.extend(changed.iter().map(key));
        if *all {
            children(view, rule, uid, keys);
        }
        // None was created as long as there were too many.
        if *before > self.most_expanded {
            let selected = view.expansions.get(uid).and_then(|one| one.result.as_ref().ok());
            keys.extend(selected.into_iter().flat_map(|selected| selected.children.keys()).map(key));
        }
    }

    /// Others may have been expanded from the rule, or are to be.
    fn parent_changed(&self, view: &View, delta: &Delta<DeviceTaintRule>, keys: &mut BTreeSet<Key>) {
        let new = view.taint_rules.get(&delta.key);
        let old = delta.old.as_deref();
        let same = |same: fn(&DeviceTaintRule, &DeviceTaintRule) -> bool| match (old, new) {
            (Some(old), Some(new)) => old.meta.uid == new.meta.uid && same(old, new),
            _ => false,
        };
        let selects = same(|old, new| {
            old.selects_by_annotation() == new.selects_by_annotation()
                && is_annotated(old) == is_annotated(new)
                && old.select_class == new.select_class
                && old.select_cel == new.select_cel
                // It decides whether there may be too many.
                && old.taint.effect == new.taint.effect
        });
        if !selects && old.into_iter().chain(new).any(is_annotated) {
            keys.insert(Key::Expand(Arc::clone(&delta.key.name)));
        }
        let uids: BTreeSet<&Uid> = old.into_iter().chain(new).map(|rule| &rule.meta.uid).collect();
        if !selects || !same(|old, new| old.taint == new.taint && old.meta.deleting == new.meta.deleting) {
            for uid in &uids {
                children(view, &delta.key.name, uid, keys);
                let expansion = view.expansions.get(uid).and_then(|one| one.result.as_ref().ok());
                for child in expansion.into_iter().flat_map(|selected| selected.children.keys()) {
                    keys.insert(Key::Child { parent: Arc::clone(&delta.key.name), child: Arc::clone(child) });
                }
            }
        }
        if !same(|old, new| old.paused == new.paused) {
            // It counts and pauses what its children do, and without it they do nothing any more.
            for key in uids.iter().flat_map(|uid| view.index.rules_by_parent.get(*uid)) {
                let selector = view.taint_rules.get(key).and_then(|child| child.selector.as_ref());
                if let Some(selector) = selector {
                    self.consider_holders(view, filter(selector), keys);
                }
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

/// The rule may have been expanded from another one, or stand where one should.
fn child_changed(view: &View, delta: &Delta<DeviceTaintRule>, keys: &mut BTreeSet<Key>) {
    let new = view.taint_rules.get(&delta.key);
    let old = delta.old.as_deref();
    if let (Some(old), Some(new)) = (old, new)
        && old.meta.uid == new.meta.uid
        && old.parent == new.parent
        && old.selector == new.selector
        && old.taint == new.taint
        && old.meta.deleting == new.meta.deleting
    {
        return;
    }
    let child = &delta.key.name;
    let parents = old.into_iter().chain(new).filter_map(|rule| rule.parent.as_ref()).map(|of| &of.name);
    for parent in parents.chain(view.expansions.expecting(child)) {
        keys.insert(Key::Child { parent: Arc::clone(parent), child: Arc::clone(child) });
        keys.insert(Key::Rule(Arc::clone(parent)));
    }
}

/// Those that were expanded from the rule with this uid.
fn children(view: &View, name: &Arc<str>, uid: &Uid, keys: &mut BTreeSet<Key>) {
    for child in view.index.rules_by_parent.get(uid) {
        keys.insert(Key::Child { parent: Arc::clone(name), child: Arc::clone(&child.name) });
    }
}

fn class_changed(view: &View, class: &Arc<str>, keys: &mut BTreeSet<Key>) {
    for name in &view.index.selecting_rules {
        let rule = view.taint_rules.get(&DeviceTaintRule::key(name));
        if rule.is_some_and(|rule| rule.select_class.as_ref() == Some(class)) {
            keys.insert(Key::Expand(Arc::clone(name)));
        }
    }
}

fn filter(selector: &DeviceTaintSelector) -> DeviceFilter<'_> {
    DeviceFilter {
        driver: selector.driver.as_deref(),
        pool: selector.pool.as_deref(),
        device: selector.device.as_deref(),
    }
}

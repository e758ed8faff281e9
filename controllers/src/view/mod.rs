//! The one in-memory picture of the cluster that all planners read.
//!
//! Objects come from the watches and from the answers to our own requests. The later state of an object wins,
//! whichever way it came, so that a planner never acts again on what it has already changed while the watch
//! lags behind.

mod devices;
mod evictions;
mod expansions;
mod index;
mod pool_requests;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dra_allocator::{Features, Inventory, PoolId};
use dra_api::{
    Claim, ClaimEntry, ClaimSource, ClaimStatus, ClaimTemplate, DeviceTaintRule, Meta, Object, ObjectKey,
    Pod, PodGroup, ResourcePoolStatusRequest, ResourceVersion, Uid,
};

pub use devices::{DeviceClass, ResourceSlice, device_id};
pub use evictions::{
    Eviction, EvictionChange, EvictionCounts, Evictions, OVERDUE_AFTER, Reason, RuleNote, TaintSource,
};
pub use expansions::{Expansion, ExpansionChange, Expansions, Refusal, Selected};
pub use index::{Edit, Index};
pub use pool_requests::{PoolRequests, RequestNote};
use store::Outcome;
pub use store::{Source, Store, UNCONFIRMED_FOR};

use crate::Elapsed;

/// How long a create request without an answer is worth asking about: the API server ends every request within
/// 60 s, and by then the watch has shown what came of it.
const DOUBT_FOR: Elapsed = Elapsed::from_mins(10);

/// What changed for one object: what stood there before. What stands there now is in the view.
#[derive(Debug)]
pub struct Delta<T> {
    /// The object's key.
    pub key: ObjectKey,
    /// The object before the change; `None` when it is new.
    pub old: Option<Box<T>>,
}

/// One change of the view.
#[derive(Debug)]
pub enum Change {
    /// A Pod came, changed or went.
    Pod(Delta<Pod>),
    /// A PodGroup came, changed or went.
    PodGroup(Delta<PodGroup>),
    /// A claim came, changed or went.
    Claim(Delta<Claim>),
    /// A template came, changed or went.
    Template(Delta<ClaimTemplate>),
    /// A slice came, changed or went.
    Slice(Delta<ResourceSlice>),
    /// A class came, changed or went.
    Class(Delta<DeviceClass>),
    /// A taint rule came, changed or went.
    TaintRule(Delta<DeviceTaintRule>),
    /// A request about pools came, changed or went.
    PoolRequest(Delta<ResourcePoolStatusRequest>),
    /// What is remembered about evictions has changed.
    Eviction(EvictionChange),
    /// It has changed what a taint rule is expanded into.
    Expansion(ExpansionChange),
}

/// Labels of the in-tree gauge: allocated, admin access, source.
pub type ClaimLabels = (bool, bool, ClaimSource);

/// Driver, the pool that is asked for unless it is all of them, and name of a request.
type Unanswered = (Arc<str>, Option<Arc<str>>, Arc<str>);

/// Who points at whom.
#[derive(Debug, Default)]
pub struct Indexes {
    /// Pods by the claims that their entries resolve to.
    pub pods_by_claim: Index<ObjectKey>,
    /// Pods by the templates that their entries name.
    pub pods_by_template: Index<ObjectKey>,
    /// Pods by the PodGroup that they are members of.
    pub pods_by_group: Index<ObjectKey>,
    /// PodGroups by the claims that their entries resolve to.
    pub groups_by_claim: Index<ObjectKey>,
    /// PodGroups by the templates that their entries name.
    pub groups_by_template: Index<ObjectKey>,
    /// Claims by namespace and uid of their controller owner, if it is a Pod or a PodGroup. The namespace counts:
    /// an owner reference across namespaces is a forgery.
    pub claims_by_owner: Index<ObjectKey>,
    /// Claims by namespace and the uids in `status.reservedFor`.
    pub claims_by_consumer: Index<ObjectKey>,
    /// Taint rules by the uid of the rule that they were expanded from.
    pub rules_by_parent: Index<Uid>,
    /// Names of the taint rules that select by annotation.
    pub selecting_rules: BTreeSet<Arc<str>>,
    claim_counts: BTreeMap<ClaimLabels, u64>,
    /// Requests about pools that are not answered.
    unanswered: BTreeSet<Unanswered>,
    /// Slices, taints and allocations; none while no controller asks for devices.
    devices: Option<Inventory>,
}

impl Indexes {
    /// How many requests about pools are not answered.
    pub fn unanswered_count(&self) -> usize {
        self.unanswered.len()
    }

    /// Names of the unanswered requests that concern a pool: those for all pools of its driver, then those for itself.
    pub fn unanswered<'a>(&'a self, pool: &'a PoolId) -> impl Iterator<Item = &'a Arc<str>> {
        [None, Some(&pool.pool)].into_iter().flat_map(move |wanted| {
            self.unanswered
                .range((Arc::clone(&pool.driver), wanted.cloned(), Arc::from(""))..)
                .take_while(move |(driver, of, _)| *driver == pool.driver && of.as_ref() == wanted)
                .map(|(_, _, name)| name)
        })
    }
}

/// A kind that the view keeps.
pub trait Tracked: Object {
    /// Its objects.
    fn store(view: &View) -> &Store<Self>;
    #[doc(hidden)]
    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes);
    #[doc(hidden)]
    fn index(&self, indexes: &mut Indexes, edit: Edit);
    /// Files the object, `old` being its former state.
    #[doc(hidden)]
    fn reindex(&self, old: Option<&Self>, indexes: &mut Indexes) {
        if let Some(old) = old {
            old.index(indexes, Edit::Remove);
        }
        self.index(indexes, Edit::Add);
    }
    #[doc(hidden)]
    fn change(delta: Delta<Self>) -> Change;
    /// Drops what is kept elsewhere, or by nobody, before the object is stored.
    #[doc(hidden)]
    fn reduce(&mut self, _: &mut Indexes) {}
    /// A watch shows the same state of an object as is known, though it may be read in another way.
    #[doc(hidden)]
    fn shown_again(_: &mut Store<Self>, _: &Self) {}
}

/// The picture of the cluster.
#[derive(Debug, Default)]
pub struct View {
    /// Pods.
    pub pods: Store<Pod>,
    /// PodGroups; empty while their API is not served.
    pub pod_groups: Store<PodGroup>,
    /// Claims.
    pub claims: Store<Claim>,
    /// Templates.
    pub templates: Store<ClaimTemplate>,
    /// Slices; their devices are in the inventory.
    pub slices: Store<ResourceSlice>,
    /// Classes; their selectors are in the inventory.
    pub classes: Store<DeviceClass>,
    /// Taint rules; empty while their API is not served.
    pub taint_rules: Store<DeviceTaintRule>,
    /// Requests about pools; empty while their API is not served.
    pub pool_requests: Store<ResourcePoolStatusRequest>,
    /// Who points at whom.
    pub index: Indexes,
    /// What is remembered about requests without an answer.
    pub unanswered: PoolRequests,
    /// Pods that are to be evicted.
    pub evictions: Evictions,
    /// What taint rules that select by annotation are expanded into.
    pub expansions: Expansions,
    /// True when the API server serves PodGroups.
    pub pod_groups_served: bool,
    /// Claims whose allocation we cleared, and the state in which that left them.
    deallocated: BTreeMap<Uid, ResourceVersion>,
    /// Owners in a namespace for whom a claim may or may not have been created.
    doubtful: BTreeMap<Arc<str>, BTreeMap<Uid, Elapsed>>,
}

impl View {
    /// Keeps slices, taints and allocations from now on; before, devices of allocations are not kept, because the
    /// claim controller has no use for them. Call it before the first object is observed.
    pub fn keep_devices(&mut self, features: Features) {
        self.index.devices = Some(Inventory::new(features));
    }

    /// Slices, taints and allocations; empty unless [`View::keep_devices`] was called. Claims go by the name
    /// `namespace/name`.
    pub fn inventory(&self) -> Option<&Inventory> {
        self.index.devices.as_ref()
    }

    /// An object as the watch or an answer showed it. Returns what changed, or nothing if a later state is known.
    pub fn observe<T: Tracked>(&mut self, object: T, source: Source, now: Elapsed) -> Option<Change> {
        let key = object.meta().key.clone();
        let (store, indexes) = T::parts(self);
        if source == Source::Watch {
            T::shown_again(store, &object);
        }
        let Outcome::Stored(old) = store.observe(object, source, now) else { return None };
        if let Some(new) = store.get_mut(&key) {
            new.reduce(indexes);
            new.reindex(old.as_deref(), indexes);
        }
        let change = T::change(Delta { key, old });
        if self.claims.has_reads() {
            self.doubt_newly_recorded(&change);
        }
        Some(change)
    }

    /// Whoever records a claim has seen it, and whoever binds a Pod has allocated what was recorded: what a GET showed
    /// before may be older.
    fn doubt_newly_recorded(&mut self, change: &Change) {
        let (key, new, old) = match change {
            Change::Pod(delta) => {
                let Some(new) = self.pods.get(&delta.key) else { return };
                let old = delta.old.as_ref().filter(|old| old.node_name == new.node_name);
                (&delta.key, &new.claim_statuses, old.map(|pod| &pod.claim_statuses))
            }
            Change::PodGroup(delta) => {
                let Some(new) = self.pod_groups.get(&delta.key) else { return };
                (&delta.key, &new.claim_statuses, delta.old.as_ref().map(|group| &group.claim_statuses))
            }
            _ => return,
        };
        for status in new.iter().filter(|status| old.is_none_or(|old| !old.contains(status))) {
            if let Some(name) = &status.claim_name {
                self.claims.doubt(&key.sibling(name));
            }
        }
    }

    /// A GET of a claim, sent at `asked`, showed the object with this uid, or none. True when that is what the view
    /// shows, too: it does not take back what it takes for deleted until a watch says so.
    pub fn note_read(&mut self, claim: &ObjectKey, uid: Option<&Uid>, asked: Elapsed) -> bool {
        self.claims.note_read(claim, uid, asked)
    }

    /// The watch showed that an object was deleted.
    pub fn deleted<T: Tracked>(&mut self, key: &ObjectKey, uid: &Uid) -> Option<Change> {
        let (store, indexes) = T::parts(self);
        let old = store.deleted(key, uid)?;
        Some(removed(key.clone(), old, indexes))
    }

    /// The API server answered that the object with this uid no longer exists.
    pub fn gone<T: Tracked>(&mut self, key: &ObjectKey, uid: &Uid, now: Elapsed) -> Option<Change> {
        let (store, indexes) = T::parts(self);
        let old = store.gone(key, uid, now)?;
        Some(removed(key.clone(), old, indexes))
    }

    /// A GET did not find the key. `known` is the uid that the view had under it when the GET was sent: only that
    /// object is gone, not one that has come since.
    pub fn not_found<T: Tracked>(
        &mut self,
        key: &ObjectKey,
        known: Option<&Uid>,
        now: Elapsed,
    ) -> Option<Change> {
        let (store, indexes) = T::parts(self);
        let old = store.not_found(key, known, now)?;
        Some(removed(key.clone(), old, indexes))
    }

    /// A GET begun after this uid was heard of showed nothing, or another object, under its name.
    pub fn note_gone<T: Tracked>(&mut self, uid: Uid) {
        T::parts(self).0.note_gone(uid);
    }

    /// A GET returned the object: what it shows needs no confirmation by the watch.
    pub fn found<T: Tracked>(&mut self, object: T, now: Elapsed) -> Option<Change> {
        let key = object.meta().key.clone();
        let change = self.observe(object, Source::Answer, now);
        T::parts(self).0.confirm(&key, now);
        change
    }

    /// The watch listed an object that could not be decoded.
    pub fn unreadable<T: Tracked>(&mut self, key: &ObjectKey) {
        T::parts(self).0.unreadable(key);
    }

    /// The watch begins to list all objects of the kind (again); it asked for them at `now` or later.
    pub fn list_begins<T: Tracked>(&mut self, now: Elapsed) {
        T::parts(self).0.list_begins(now);
    }

    /// The watch has listed all objects of the kind: those that it lacks are gone.
    pub fn list_ends<T: Tracked>(&mut self) -> Vec<Change> {
        let (store, indexes) = T::parts(self);
        let lacking = store.list_ends();
        lacking.into_iter().map(|(key, old)| removed(key, old, indexes)).collect()
    }

    /// Drops notes that have become useless.
    pub fn tidy(&mut self, now: Elapsed) {
        self.pods.forget_old(now);
        self.pod_groups.forget_old(now);
        self.claims.forget_old(now);
        self.templates.forget_old(now);
        self.slices.forget_old(now);
        self.classes.forget_old(now);
        self.taint_rules.forget_old(now);
        self.pool_requests.forget_old(now);
        self.doubtful.retain(|_, owners| {
            owners.retain(|_, at| now.saturating_sub(*at) < DOUBT_FOR);
            !owners.is_empty()
        });
    }

    /// Our own write left the claim without allocation in this state: its finalizer has no purpose any more,
    /// for as long as nobody has written to it since.
    pub fn note_deallocated(&mut self, claim: &Meta) {
        // The answer may arrive after the claim's end; then there is nothing to remember.
        if self.claims.get(&claim.key).is_some_and(|known| known.meta.uid == claim.uid) {
            self.deallocated.insert(claim.uid.clone(), claim.resource_version);
        }
    }

    /// True while the claim stands exactly as our own deallocation left it.
    pub fn deallocated_by_us(&self, claim: &Claim) -> bool {
        self.deallocated.get(&claim.meta.uid) == Some(&claim.meta.resource_version)
    }

    /// A request to create a claim for this owner ended without an answer.
    pub fn note_doubtful_create(&mut self, namespace: &Arc<str>, owner: Uid, now: Elapsed) {
        self.doubtful.entry(Arc::clone(namespace)).or_default().insert(owner, now);
    }

    /// True while nobody knows whether the owner's claim was created.
    pub fn create_is_doubtful(&self, namespace: &str, owner: &Uid) -> bool {
        self.doubtful.get(namespace).is_some_and(|owners| owners.contains_key(owner))
    }

    /// True while any create request in the namespace is in doubt.
    pub fn has_doubts(&self, namespace: &str) -> bool {
        self.doubtful.contains_key(namespace)
    }

    /// A live list of the namespace's claims, begun at `began`, has been observed: doubts from before it are
    /// settled.
    pub fn settle_doubts(&mut self, namespace: &str, began: Elapsed) {
        if let Some(owners) = self.doubtful.get_mut(namespace) {
            owners.retain(|_, at| *at >= began);
            if owners.is_empty() {
                self.doubtful.remove(namespace);
            }
        }
    }

    /// Number of claims by allocation, admin access and source; only combinations that occur.
    pub fn claim_counts(&self) -> impl Iterator<Item = (ClaimLabels, u64)> {
        self.index.claim_counts.iter().map(|(labels, n)| (*labels, *n))
    }

    /// Remembers that the Pod is to be evicted, or that it is not any more. Nothing if the Pod has gone meanwhile.
    pub fn schedule_eviction(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        eviction: Option<Eviction>,
        now: Elapsed,
    ) -> Option<Change> {
        if eviction.is_some() {
            self.pods.get(key).filter(|pod| pod.meta.uid == *uid)?;
        }
        Some(Change::Eviction(self.evictions.set(key, eviction, now)))
    }

    /// The API server has accepted that the Pod goes, because of these rules.
    pub fn note_evicted(&mut self, pod: &ObjectKey, uid: &Uid, rules: &[Uid], now: Elapsed) -> Change {
        Change::Eviction(self.evictions.evicted(pod, uid, rules, now))
    }

    /// A request to evict the Pod because of these rules ended without an answer.
    pub fn note_eviction_in_doubt(
        &mut self,
        pod: &ObjectKey,
        uid: &Uid,
        rules: &[Uid],
        now: Elapsed,
    ) -> Option<Change> {
        let goes = self.pods.get(pod).is_none_or(|pod| pod.meta.uid != *uid || pod.meta.deleting);
        self.evictions.in_doubt(pod, uid, rules, goes, now).map(Change::Eviction)
    }

    /// A PodDisruptionBudget forbids the Pod's eviction, or does so no more.
    pub fn note_blocked(&mut self, pod: &ObjectKey, blocked: bool) -> Option<Change> {
        self.evictions.set_blocked(pod, blocked).map(Change::Eviction)
    }

    /// The condition of the rule was written.
    pub fn note_reported(&mut self, rule: &Uid, now: Elapsed) {
        self.evictions.written(rule, now);
    }

    /// Remembers what the rule is expanded into, or that it is not. Nothing if the rule has gone meanwhile.
    pub fn note_expanded(
        &mut self,
        key: &ObjectKey,
        uid: &Uid,
        expansion: Option<Expansion>,
    ) -> Option<Change> {
        self.taint_rules.get(key).filter(|rule| rule.meta.uid == *uid)?;
        Some(Change::Expansion(self.expansions.set(&key.name, uid, expansion)))
    }

    /// Call with each change, before planners are told of it: what follows from it for evictions is a change of its
    /// own.
    pub fn follow_evictions(&mut self, change: &Change, now: Elapsed) -> Option<Change> {
        match change {
            Change::Pod(delta) => {
                let pod = self.pods.get(&delta.key);
                self.evictions.pod_changed(&delta.key, pod, now).map(Change::Eviction)
            }
            Change::TaintRule(delta) => {
                let new = self.taint_rules.get(&delta.key);
                self.evictions.rule_changed(delta.old.as_deref(), new, now);
                None
            }
            _ => None,
        }
    }

    /// Call with each change, before planners are told of it.
    pub fn follow_pool_requests(&mut self, change: &Change, now: Elapsed) {
        match change {
            Change::PoolRequest(delta) => {
                let old = delta.old.as_ref().map(|old| &old.meta.uid);
                self.unanswered.changed(old, self.pool_requests.get(&delta.key), now);
            }
            Change::Slice(_) | Change::Claim(_) | Change::TaintRule(_) => self.unanswered.stir(now),
            _ => {}
        }
    }

    /// The API server refused the answer to a request for what the answer says. `None`: it changes nothing that
    /// planners are told of.
    pub fn note_answer_refused(&mut self, uid: &Uid, text: &str) -> Option<Change> {
        self.unanswered.refused(uid, text);
        None
    }

    /// Call with each change: drops notes about claims and rules that are gone.
    pub fn follow(&mut self, change: &Change) {
        if let Change::TaintRule(Delta { key, old: Some(old) }) = change
            && self.taint_rules.get(key).is_none_or(|new| new.meta.uid != old.meta.uid)
        {
            self.expansions.forget(&old.meta.uid);
        }
        if let Change::Claim(Delta { key, old: Some(old) }) = change
            && self.claims.get(key).is_none_or(|new| new.meta.uid != old.meta.uid || !new.finalizer)
        {
            self.deallocated.remove(&old.meta.uid);
        }
    }
}

fn removed<T: Tracked>(key: ObjectKey, old: Box<T>, indexes: &mut Indexes) -> Change {
    old.index(indexes, Edit::Remove);
    T::change(Delta { key, old: Some(old) })
}

/// Name of the claim that an entry of a Pod or PodGroup stands for at present; `None` when there is none (yet).
pub fn resolved<'a>(entry: &'a ClaimEntry, statuses: &'a [ClaimStatus]) -> Option<&'a Arc<str>> {
    entry.claim_name.as_ref().or_else(|| {
        entry.template_name.as_ref()?;
        statuses.iter().find(|s| s.name == entry.name)?.claim_name.as_ref()
    })
}

/// Files an object under the claims and templates that its entries name.
fn index_entries(
    key: &ObjectKey,
    (entries, statuses): (&[ClaimEntry], &[ClaimStatus]),
    by_claim: &mut Index<ObjectKey>,
    by_template: &mut Index<ObjectKey>,
    edit: Edit,
) {
    for entry in entries {
        if let Some(name) = resolved(entry, statuses) {
            by_claim.edit(edit, key.sibling(name), key);
        }
        if let Some(name) = &entry.template_name {
            by_template.edit(edit, key.sibling(name), key);
        }
    }
}

impl Tracked for Pod {
    fn store(view: &View) -> &Store<Self> {
        &view.pods
    }

    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes) {
        (&mut view.pods, &mut view.index)
    }

    fn index(&self, indexes: &mut Indexes, edit: Edit) {
        let key = &self.meta.key;
        let entries = (&*self.claims, &*self.claim_statuses);
        index_entries(key, entries, &mut indexes.pods_by_claim, &mut indexes.pods_by_template, edit);
        if let Some(group) = self.group.as_ref().filter(|_| !self.claims.is_empty()) {
            indexes.pods_by_group.edit(edit, key.sibling(group), key);
        }
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Pod(delta)
    }
}

impl Tracked for PodGroup {
    fn store(view: &View) -> &Store<Self> {
        &view.pod_groups
    }

    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes) {
        (&mut view.pod_groups, &mut view.index)
    }

    fn index(&self, indexes: &mut Indexes, edit: Edit) {
        let entries = (&*self.claims, &*self.claim_statuses);
        let (by_claim, by_template) = (&mut indexes.groups_by_claim, &mut indexes.groups_by_template);
        index_entries(&self.meta.key, entries, by_claim, by_template, edit);
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::PodGroup(delta)
    }
}

fn labels(claim: &Claim) -> ClaimLabels {
    (claim.allocation.is_some(), claim.admin_access, claim.source())
}

fn claim_owner(claim: &Claim) -> Option<&Uid> {
    claim.pod_owner().or_else(|| claim.pod_group_owner()).map(|o| &o.uid)
}

/// Files a claim under its owner and its consumers, and counts it.
fn index_claim(claim: &Claim, indexes: &mut Indexes, edit: Edit) {
    let key = &claim.meta.key;
    if let Some(owner) = claim_owner(claim) {
        indexes.claims_by_owner.edit(edit, key.sibling(owner), key);
    }
    for consumer in &claim.reserved_for {
        indexes.claims_by_consumer.edit(edit, key.sibling(&consumer.uid), key);
    }
    let count = indexes.claim_counts.entry(labels(claim)).or_default();
    *count = match edit {
        Edit::Add => count.saturating_add(1),
        Edit::Remove => count.saturating_sub(1),
    };
    if *count == 0 {
        indexes.claim_counts.remove(&labels(claim));
    }
}

impl Tracked for Claim {
    fn store(view: &View) -> &Store<Self> {
        &view.claims
    }

    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes) {
        (&mut view.claims, &mut view.index)
    }

    fn index(&self, indexes: &mut Indexes, edit: Edit) {
        index_claim(self, indexes, edit);
        let Some(inventory) = &mut indexes.devices else { return };
        let name = self.meta.key.to_string();
        match edit {
            Edit::Add if self.allocation.is_some() => {
                let held = devices::holdings(self, inventory.features().consumable_capacity);
                inventory.apply_holdings(&name, held);
            }
            Edit::Add => inventory.remove_allocation(&name),
            Edit::Remove if self.allocation.is_some() => inventory.remove_allocation(&name),
            Edit::Remove => {}
        }
    }

    fn reindex(&self, old: Option<&Self>, indexes: &mut Indexes) {
        let Some(old) = old else { return self.index(indexes, Edit::Add) };
        index_claim(old, indexes, Edit::Remove);
        if old.allocation == self.allocation {
            return index_claim(self, indexes, Edit::Add);
        }
        // The inventory itself replaces what the claim held: a device that it keeps must not seem free in between.
        self.index(indexes, Edit::Add);
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Claim(delta)
    }

    fn reduce(&mut self, indexes: &mut Indexes) {
        if indexes.devices.is_none()
            && let Some(allocation) = &mut self.allocation
        {
            allocation.devices = Box::default();
        }
    }
}

impl Tracked for ClaimTemplate {
    fn store(view: &View) -> &Store<Self> {
        &view.templates
    }

    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes) {
        (&mut view.templates, &mut view.index)
    }

    fn index(&self, _: &mut Indexes, _: Edit) {}

    fn change(delta: Delta<Self>) -> Change {
        Change::Template(delta)
    }
}

impl Tracked for ResourceSlice {
    fn store(view: &View) -> &Store<Self> {
        &view.slices
    }

    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes) {
        (&mut view.slices, &mut view.index)
    }

    fn index(&self, indexes: &mut Indexes, edit: Edit) {
        if let (Some(inventory), Edit::Remove) = (&mut indexes.devices, edit) {
            inventory.remove_slice(&self.meta.key.name);
        }
    }

    /// The inventory has replaced it when it was reduced.
    fn reindex(&self, _: Option<&Self>, _: &mut Indexes) {}

    fn reduce(&mut self, indexes: &mut Indexes) {
        let content = self.take_content();
        if let (Some(inventory), Some(content)) = (&mut indexes.devices, content) {
            inventory.apply_slice(&content);
        }
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Slice(delta)
    }
}

impl Tracked for DeviceClass {
    fn store(view: &View) -> &Store<Self> {
        &view.classes
    }

    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes) {
        (&mut view.classes, &mut view.index)
    }

    fn index(&self, indexes: &mut Indexes, edit: Edit) {
        if let (Some(inventory), Edit::Remove) = (&mut indexes.devices, edit) {
            inventory.remove_class(&self.meta.key.name);
        }
    }

    /// The inventory has replaced it when it was reduced.
    fn reindex(&self, _: Option<&Self>, _: &mut Indexes) {}

    fn reduce(&mut self, indexes: &mut Indexes) {
        let content = self.take_content();
        if let (Some(inventory), Some(content)) = (&mut indexes.devices, content) {
            inventory.apply_class(&content);
        }
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::Class(delta)
    }
}

/// Files a rule under the one that it was expanded from, and among those that are to be expanded.
fn index_expansion(rule: &DeviceTaintRule, indexes: &mut Indexes, edit: Edit) {
    if let Some(parent) = &rule.parent {
        indexes.rules_by_parent.edit(edit, Arc::clone(&parent.uid), &rule.meta.key);
    }
    if rule.selects_by_annotation() {
        match edit {
            Edit::Add => indexes.selecting_rules.insert(Arc::clone(&rule.meta.key.name)),
            Edit::Remove => indexes.selecting_rules.remove(&rule.meta.key.name),
        };
    }
}

impl Tracked for DeviceTaintRule {
    fn store(view: &View) -> &Store<Self> {
        &view.taint_rules
    }

    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes) {
        (&mut view.taint_rules, &mut view.index)
    }

    fn index(&self, indexes: &mut Indexes, edit: Edit) {
        index_expansion(self, indexes, edit);
        let Some(inventory) = &mut indexes.devices else { return };
        match edit {
            Edit::Add => inventory.apply_taint_rule(&devices::taint_rule(self)),
            Edit::Remove => inventory.remove_taint_rule(&self.meta.key.name),
        }
    }

    /// Most changes are to the status.
    fn reindex(&self, old: Option<&Self>, indexes: &mut Indexes) {
        if let Some(old) = old {
            index_expansion(old, indexes, Edit::Remove);
        }
        if old.is_none_or(|old| (&old.selector, &old.taint) != (&self.selector, &self.taint)) {
            // Replaces what stood under its name.
            self.index(indexes, Edit::Add);
        } else {
            index_expansion(self, indexes, Edit::Add);
        }
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::TaintRule(delta)
    }

    /// After an upgrade of the API server, rules are written through the version that they are watched in since.
    fn shown_again(store: &mut Store<Self>, shown: &Self) {
        if let Some(known) = store.get_mut(&shown.meta.key) {
            known.version = shown.version;
        }
    }
}

impl Tracked for ResourcePoolStatusRequest {
    fn store(view: &View) -> &Store<Self> {
        &view.pool_requests
    }

    fn parts(view: &mut View) -> (&mut Store<Self>, &mut Indexes) {
        (&mut view.pool_requests, &mut view.index)
    }

    fn index(&self, indexes: &mut Indexes, edit: Edit) {
        if self.is_pending() && !self.meta.deleting {
            let entry = (Arc::clone(&self.driver), self.pool.clone(), Arc::clone(&self.meta.key.name));
            match edit {
                Edit::Add => indexes.unanswered.insert(entry),
                Edit::Remove => indexes.unanswered.remove(&entry),
            };
        }
    }

    fn change(delta: Delta<Self>) -> Change {
        Change::PoolRequest(delta)
    }
}

//! What there is and who holds it: slices, classes, taint rules and allocations, kept up to date one object at a time.
//!
//! Everything large is shared and copied on write, so that [`Inventory::clone`] is a snapshot: it costs next to nothing,
//! and neither side sees what happens to the other afterwards.

pub(crate) mod details;
pub(crate) mod matching;
pub(crate) mod pool;
pub(crate) mod slice;
pub(crate) mod tainting;
pub(crate) mod usage;

use std::collections::BTreeSet;
use std::sync::Arc;

use self::details::Shapes;
use self::pool::Pool;
use self::slice::Slice;
use self::tainting::DeviceFilter;
use self::usage::{Holding, HoldingKind};
use crate::features::Features;
use crate::ids::{DeviceId, PoolId};
use crate::objects::{AllocationResult, DeviceClass, DeviceTaintRule, Node, ResourceSlice};
use crate::selector::{Programs, Selector};

/// A device class with its selectors compiled.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) object: DeviceClass,
    pub(crate) selectors: Vec<Selector>,
}

/// Slices, classes, taint rules and allocations.
///
/// Each change costs time in proportion to the changed object. Clones are snapshots.
#[derive(Clone, Debug)]
pub struct Inventory {
    features: Features,
    pools: imbl::OrdMap<PoolId, Arc<Pool>>,
    /// How many pools of each driver have slices.
    published: imbl::OrdMap<Arc<str>, usize>,
    /// The pool of each slice.
    slices: imbl::OrdMap<Arc<str>, PoolId>,
    /// Pools that have slices for a certain node, with their number.
    by_node: imbl::OrdMap<Arc<str>, Arc<[(PoolId, u32)]>>,
    /// Pools that have other slices, with their number.
    shared: imbl::OrdMap<PoolId, u32>,
    classes: imbl::OrdMap<Arc<str>, Arc<Class>>,
    rules: imbl::OrdMap<RuleKey, Arc<DeviceTaintRule>>,
    rule_keys: imbl::OrdMap<Arc<str>, RuleKey>,
    /// How many rules select a single device.
    device_rules: usize,
    holdings: imbl::OrdMap<Arc<str>, Arc<[Holding]>>,
    shapes: Shapes,
    programs: Arc<Programs>,
}

/// What a taint rule selects, then its name: rules for one pool or device lie together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RuleKey {
    driver: Option<Arc<str>>,
    pool: Option<Arc<str>>,
    device: Option<Arc<str>>,
    name: Arc<str>,
}

impl Inventory {
    /// Nothing published, nothing allocated.
    pub fn new(features: Features) -> Self {
        Self {
            features,
            pools: imbl::OrdMap::new(),
            published: imbl::OrdMap::new(),
            slices: imbl::OrdMap::new(),
            by_node: imbl::OrdMap::new(),
            shared: imbl::OrdMap::new(),
            classes: imbl::OrdMap::new(),
            rules: imbl::OrdMap::new(),
            rule_keys: imbl::OrdMap::new(),
            device_rules: 0,
            holdings: imbl::OrdMap::new(),
            shapes: Shapes::default(),
            programs: Arc::new(Programs::default()),
        }
    }

    /// The gates it was made for.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// A copy that later changes do not reach, and whose changes do not reach this one.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        self.clone()
    }

    /// Adds a slice or replaces the one of the same name.
    pub fn apply_slice(&mut self, object: &ResourceSlice) {
        let slice = Slice::new(object, &mut self.shapes, &self.programs);
        self.set_slice(object, slice);
    }

    fn set_slice(&mut self, object: &ResourceSlice, slice: Slice) {
        let slice = Arc::new(slice);
        let name = slice.name.clone();
        let id = PoolId::new(&object.spec.driver, &object.spec.pool.name);
        // The same pool's identifier is stored once.
        let id = self.pools.get_key_value(&id).map_or(id, |(known, _)| known.clone());
        self.remove_slice(&name);
        self.index(&id, &slice);
        self.slices.insert(name, id.clone());
        self.change_pool(&id, |pool| pool.set_slice(slice));
    }

    /// Adds those of `slices` that can matter to `node`, as if the others were not there. For an inventory that answers
    /// questions about one node and is then dropped: all the other nodes' devices are not even looked at, and slices are
    /// kept as they are until somebody asks for an attribute or capacity.
    pub fn apply_slices_for(&mut self, node: &Node, slices: &[Arc<ResourceSlice>]) {
        let is_elsewhere = |slice: &&Arc<ResourceSlice>| {
            let name = slice.spec.node_name.as_deref().unwrap_or_default();
            !name.is_empty() && *name != *node.metadata.name
        };
        let (elsewhere, here): (Vec<_>, Vec<_>) = slices.iter().partition(is_elsewhere);
        let pools: BTreeSet<_> = here.iter().map(|slice| pool_of(slice)).collect();
        // Slices for other nodes count towards the completeness of the pools that the node shares with them.
        let others = elsewhere.into_iter().filter(|slice| pools.contains(&pool_of(slice)));
        for slice in here.into_iter().chain(others) {
            self.set_slice(slice, Slice::undetailed(slice, &self.programs));
        }
    }

    /// Removes a slice. One that is not there is ignored.
    pub fn remove_slice(&mut self, name: &str) {
        let Some(id) = self.slices.remove(name) else { return };
        let mut removed = None;
        self.change_pool(&id, |pool| removed = pool.remove_slice(name));
        if let Some(slice) = removed {
            self.unindex(&id, &slice);
        }
    }

    fn index(&mut self, id: &PoolId, slice: &Slice) {
        let Some(node) = slice.node_name.as_ref().filter(|node| !node.is_empty()) else {
            *self.shared.entry(id.clone()).or_insert(0) += 1;
            return;
        };
        let mut pools = self.by_node.get(node).map_or_else(Vec::new, |pools| pools.to_vec());
        match pools.binary_search_by(|(known, _)| known.cmp(id)) {
            Ok(at) => {
                if let Some((_, count)) = pools.get_mut(at) {
                    *count += 1;
                }
            }
            Err(at) => pools.insert(at, (id.clone(), 1)),
        }
        self.by_node.insert(node.clone(), pools.into());
    }

    fn unindex(&mut self, id: &PoolId, slice: &Slice) {
        let Some(node) = slice.node_name.as_ref().filter(|node| !node.is_empty()) else {
            let left = self.shared.get(id).map_or(0, |count| count.saturating_sub(1));
            if left == 0 {
                self.shared.remove(id);
            } else {
                self.shared.insert(id.clone(), left);
            }
            return;
        };
        let mut pools = self.by_node.get(node).map_or_else(Vec::new, |pools| pools.to_vec());
        for (known, count) in &mut pools {
            if known == id {
                *count = count.saturating_sub(1);
            }
        }
        pools.retain(|(_, count)| *count > 0);
        if pools.is_empty() {
            self.by_node.remove(node);
        } else {
            self.by_node.insert(node.clone(), pools.into());
        }
    }

    fn change_pool(&mut self, id: &PoolId, change: impl FnOnce(&mut Pool)) {
        let pool = self.pools.entry(id.clone()).or_insert_with(|| Arc::new(Pool::new(id.clone())));
        let was = pool.is_published();
        change(Arc::make_mut(pool));
        let is = pool.is_published();
        if pool.is_empty() {
            self.pools.remove(id);
        }
        if was != is {
            let before = self.published_pools(&id.driver);
            match if is { before.saturating_add(1) } else { before.saturating_sub(1) } {
                0 => self.published.remove(&id.driver),
                count => self.published.insert(id.driver.clone(), count),
            };
        }
    }

    /// How many pools of the driver have slices.
    pub(crate) fn published_pools(&self, driver: &str) -> usize {
        self.published.get(driver).copied().unwrap_or_default()
    }

    /// Adds a class or replaces the one of the same name.
    pub fn apply_class(&mut self, object: &DeviceClass) {
        let selectors =
            object.spec.selectors.iter().map(|selector| self.programs.selector(selector)).collect();
        let class = Arc::new(Class { object: object.clone(), selectors });
        self.classes.insert(object.metadata.name.as_str().into(), class);
    }

    /// Removes a class. One that is not there is ignored.
    pub fn remove_class(&mut self, name: &str) {
        self.classes.remove(name);
    }

    /// Adds a taint rule or replaces the one of the same name. A rule without a selector taints nothing.
    pub fn apply_taint_rule(&mut self, object: &DeviceTaintRule) {
        self.remove_taint_rule(&object.metadata.name);
        let Some(selector) = &object.spec.device_selector else { return };
        let part = |part: &Option<String>| part.as_deref().map(Arc::from);
        let key = RuleKey {
            driver: part(&selector.driver),
            pool: part(&selector.pool),
            device: part(&selector.device),
            name: object.metadata.name.as_str().into(),
        };
        self.device_rules += usize::from(key.device.is_some());
        self.forget_summaries(&key);
        self.rule_keys.insert(key.name.clone(), key.clone());
        self.rules.insert(key, Arc::new(object.clone()));
    }

    /// A rule that selects devices of these pools came or goes.
    fn forget_summaries(&mut self, key: &RuleKey) {
        let filter = DeviceFilter { driver: key.driver.as_deref(), pool: key.pool.as_deref(), device: None };
        let stale: Vec<PoolId> = self
            .pools_matching(filter)
            .filter(|pool| pool.has_summary())
            .map(|pool| pool.id.clone())
            .collect();
        for id in stale {
            self.change_pool(&id, Pool::forget_summary);
        }
    }

    /// Removes a taint rule. One that is not there is ignored.
    pub fn remove_taint_rule(&mut self, name: &str) {
        if let Some(key) = self.rule_keys.remove(name) {
            self.device_rules -= usize::from(key.device.is_some());
            self.forget_summaries(&key);
            self.rules.remove(&key);
        }
    }

    /// Records what a claim was given, instead of what was recorded for it before.
    ///
    /// `claim` is any text that tells claims apart; explanations show it.
    pub fn apply_allocation(&mut self, claim: &str, allocation: &AllocationResult) {
        self.apply_holdings(claim, usage::holdings(allocation, self.features.consumable_capacity));
    }

    /// Records what a claim holds, instead of what was recorded for it before.
    pub fn apply_holdings(&mut self, claim: &str, holdings: Vec<Holding>) {
        if self.holdings(claim) == holdings {
            return;
        }
        let former = self.holdings.remove(claim);
        let claim: Arc<str> = claim.into();
        // First what is new: what is remembered of a device that the claim keeps would go with its last holder.
        self.add_holdings(&claim, &holdings);
        self.drop_holdings(&claim, former.as_deref().unwrap_or_default());
        if !holdings.is_empty() {
            self.holdings.insert(claim, holdings.into());
        }
    }

    /// Records what a claim holds, as if for ever: the claim cannot be removed.
    pub(crate) fn add_holdings(&mut self, claim: &Arc<str>, holdings: &[Holding]) {
        for Holding { device, kind } in holdings {
            self.change_pool(&device.pool, |pool| {
                pool.change_use(&device.device, |used| used.add(claim, kind));
            });
        }
    }

    /// Forgets what a claim was given. One that was given nothing is ignored.
    pub fn remove_allocation(&mut self, claim: &str) {
        if let Some(holdings) = self.holdings.remove(claim) {
            self.drop_holdings(claim, &holdings);
        }
    }

    fn drop_holdings(&mut self, claim: &str, holdings: &[Holding]) {
        for Holding { device, kind } in holdings {
            self.change_pool(&device.pool, |pool| {
                pool.change_use(&device.device, |used| used.remove(claim, kind));
            });
        }
    }

    /// What a claim holds.
    pub fn holdings(&self, claim: &str) -> &[Holding] {
        self.holdings.get(claim).map_or(&[], |holdings| holdings)
    }

    /// Devices that claims hold although no slice publishes them any more, with the claims; sorted.
    pub fn unpublished(&self) -> Vec<(DeviceId, Vec<Arc<str>>)> {
        let mut found = Vec::new();
        for (id, pool) in &self.pools {
            for (device, used) in pool.uses() {
                let published = pool.slots().iter().any(|slot| slot.slice.find(device).next().is_some());
                let claims = used.claims();
                if !published && !claims.is_empty() {
                    found.push((DeviceId { pool: id.clone(), device: device.clone() }, claims));
                }
            }
        }
        found
    }

    /// Pools that have slices or devices in use, sorted.
    pub fn pools(&self) -> impl Iterator<Item = &PoolId> {
        self.pools.keys()
    }

    /// Nodes that have slices of their own, sorted. Others can use only what is shared.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.by_node.keys().map(|node| &**node)
    }

    /// Pools from this one on, sorted.
    pub(crate) fn pools_from<'a>(
        &'a self,
        first: &PoolId,
    ) -> impl Iterator<Item = (&'a PoolId, &'a Arc<Pool>)> + use<'a> {
        self.pools.range(first.clone()..)
    }

    pub(crate) fn pool(&self, id: &PoolId) -> Option<&Arc<Pool>> {
        self.pools.get(id)
    }

    /// Pools that may have devices for a node, sorted.
    pub(crate) fn pools_for_node(&self, node: &str) -> impl Iterator<Item = &Arc<Pool>> {
        let local = self.by_node.get(node).map_or(&[][..], |pools| pools);
        let mut local = local.iter().map(|(id, _)| id).peekable();
        let mut shared = self.shared.keys().peekable();
        std::iter::from_fn(move || match (local.peek(), shared.peek()) {
            (Some(a), Some(b)) => match a.cmp(b) {
                std::cmp::Ordering::Less => local.next(),
                std::cmp::Ordering::Greater => shared.next(),
                std::cmp::Ordering::Equal => {
                    local.next();
                    shared.next()
                }
            },
            (Some(_), None) => local.next(),
            (None, _) => shared.next(),
        })
        .filter_map(|id| self.pools.get(id))
    }

    /// Whether a node has pools that are not its own alone.
    pub(crate) fn shares_pools(&self, node: &str) -> bool {
        // Slices of one pool may be for different nodes and still share counters.
        let is_own = |slice: &Slice| slice.node_name.as_deref() == Some(node);
        self.pools_for_node(node).any(|pool| pool.slots().iter().any(|slot| !is_own(&slot.slice)))
    }

    /// Pools with slices that are not for a certain node.
    pub(crate) fn shared_pools(&self) -> impl Iterator<Item = &PoolId> {
        self.shared.keys()
    }

    pub(crate) fn class(&self, name: &str) -> Option<&Arc<Class>> {
        self.classes.get(name)
    }

    pub(crate) fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Taint rules for all devices of a pool, or for one of its devices, in the order of their names.
    pub(crate) fn taint_rules(&self, pool: &PoolId, device: Option<&Arc<str>>) -> Vec<Arc<DeviceTaintRule>> {
        if self.rules.is_empty() {
            return Vec::new();
        }
        let mut found = Vec::new();
        for driver in [None, Some(&pool.driver)] {
            for name in [None, Some(&pool.pool)] {
                let first = RuleKey {
                    driver: driver.cloned(),
                    pool: name.cloned(),
                    device: device.cloned(),
                    name: "".into(),
                };
                let same = |key: &RuleKey| {
                    key.driver == first.driver && key.pool == first.pool && key.device == first.device
                };
                found.extend(
                    self.rules
                        .range(first.clone()..)
                        .take_while(|(key, _)| same(key))
                        .map(|(_, rule)| rule.clone()),
                );
            }
        }
        found.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        found
    }

    /// Whether some taint rule selects single devices.
    pub(crate) fn has_device_rules(&self) -> bool {
        self.device_rules > 0
    }
}

fn pool_of(slice: &ResourceSlice) -> (&str, &str) {
    (&slice.spec.driver, &slice.spec.pool.name)
}

impl HoldingKind {
    /// Whether it takes something away from others.
    pub fn takes(&self) -> bool {
        *self != Self::Admin
    }
}

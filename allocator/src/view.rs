//! What one node can see: its pools in the order of the search, each complete, incomplete or invalid.
//!
//! Rules: `GatherPools`, `checkSlicesInPool` and `buildPool` (`pools_experimental.go`); spec §2.

use std::sync::Arc;

use crate::error::AllocateError;
use crate::features::Features;
use crate::inventory::Inventory;
use crate::inventory::pool::{Baseline, Facts, Pool, Slot, Whole};
use crate::inventory::slice::{DeviceRef, Scope, Slice};
use crate::objects::{DeviceTaintRule, Node};

/// Whether devices of a pool can be allocated.
#[derive(Clone, Debug)]
pub(crate) enum Status {
    /// They can.
    Usable { facts: Arc<Facts>, baseline: Arc<Baseline> },
    /// Not all slices have been published yet.
    Incomplete { observed: usize, announced: i64 },
    /// The slices contradict each other.
    Invalid(Arc<str>),
}

/// A slice with devices for the node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// Position of the slice in the pool.
    pub(crate) slot: usize,
    pub(crate) state: &'a Slot,
    /// Number of the first device, counted over all pools of the node.
    pub(crate) first_device: usize,
    /// Numbers of capacity lists start here.
    pub(crate) first_capacity_list: usize,
    /// Number of the first taint, counted over all pools of the node.
    pub(crate) first_taint: usize,
}

impl<'a> Target<'a> {
    pub(crate) fn slice(&self) -> &'a Slice {
        &self.state.slice
    }
}

/// A pool as the node sees it.
#[derive(Clone, Debug)]
pub(crate) struct PoolView<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) status: Status,
    /// Slices with devices for the node, in the order of their names. Empty unless the pool is usable.
    pub(crate) targets: Vec<Target<'a>>,
    /// Rules that taint all devices of the pool.
    pub(crate) rules: Vec<Arc<DeviceTaintRule>>,
}

/// All pools of a node.
#[derive(Clone, Debug)]
pub(crate) struct NodeView<'a> {
    pub(crate) pools: Vec<PoolView<'a>>,
    /// Number of devices over all pools.
    pub(crate) devices: usize,
    /// At most so many capacity lists over all pools.
    pub(crate) capacity_lists: usize,
    /// Number of different taints, summed up over all slices.
    pub(crate) taints: usize,
    /// Pools whose newer generation has not reached the node yet.
    pub(crate) obsolete: Vec<&'a Pool>,
}

/// A device that the node can see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Location {
    /// Position of the pool in the view.
    pub(crate) pool: usize,
    /// Position of the slice among the pool's targets.
    pub(crate) target: usize,
    /// Position of the device in the slice.
    pub(crate) device: usize,
}

impl<'a> NodeView<'a> {
    /// Gathers the pools of a node.
    ///
    /// # Errors
    ///
    /// A node selector is malformed: no allocation is possible anywhere.
    pub(crate) fn new(inventory: &'a Inventory, node: &Node) -> Result<Self, AllocateError> {
        let mut view =
            Self { pools: Vec::new(), devices: 0, capacity_lists: 0, taints: 0, obsolete: Vec::new() };
        let mut with_conditions = Vec::new();
        for pool in inventory.pools_for_node(&node.metadata.name) {
            match see(pool, node, inventory.features())? {
                Seen::Nothing => {}
                Seen::Obsolete => view.obsolete.push(pool),
                Seen::Pool { view: pool_view, conditions: false } => view.pools.push(pool_view),
                Seen::Pool { view: pool_view, conditions: true } => with_conditions.push(pool_view),
            }
        }
        // Pools with binding conditions are tried last.
        view.pools.append(&mut with_conditions);
        for pool in &mut view.pools {
            pool.rules = inventory.taint_rules(&pool.pool.id, None);
            for target in &mut pool.targets {
                target.first_device = view.devices;
                target.first_capacity_list = view.capacity_lists;
                target.first_taint = view.taints;
                view.devices += target.slice().len();
                view.taints += target.slice().taint_count();
                view.capacity_lists += target.slice().most_capacity_lists();
            }
        }
        Ok(view)
    }

    pub(crate) fn target(&self, location: Location) -> Option<(&PoolView<'a>, &Target<'a>)> {
        let pool = self.pools.get(location.pool)?;
        Some((pool, pool.targets.get(location.target)?))
    }

    pub(crate) fn device(&self, location: Location) -> Option<DeviceRef<'a>> {
        let (_, target) = self.target(location)?;
        target.slice().device(location.device)
    }

    /// The device at the location or the next one after it, with its number.
    pub(crate) fn next_device(&self, mut location: Location) -> Option<(Location, usize)> {
        loop {
            let pool = self.pools.get(location.pool)?;
            match pool.targets.get(location.target) {
                None => location = Location { pool: location.pool + 1, target: 0, device: 0 },
                Some(target) if location.device < target.slice().len() => {
                    return Some((location, target.first_device + location.device));
                }
                Some(_) => location = Location { target: location.target + 1, device: 0, ..location },
            }
        }
    }
}

enum Seen<'a> {
    Nothing,
    Obsolete,
    Pool { view: PoolView<'a>, conditions: bool },
}

fn see<'a>(pool: &'a Pool, node: &Node, features: &Features) -> Result<Seen<'a>, AllocateError> {
    let relevant = relevant_slices(pool, node, features)?;
    let Some(first) = relevant.first() else { return Ok(Seen::Nothing) };
    let slice_at = |position: &usize| pool.slots().get(*position).map(|slot| &*slot.slice);
    let Some(generation) = slice_at(first).map(|slice| slice.generation) else { return Ok(Seen::Nothing) };
    let whole = pool.whole(features);
    // Slices of the node come first in the scheduler's list, and the first slice's word counts.
    let is_local =
        |position: &&usize| slice_at(position).is_some_and(|slice| matches!(slice.scope, Scope::Node(_)));
    let announced = relevant
        .iter()
        .find(is_local)
        .or(relevant.first())
        .and_then(slice_at)
        .map_or(0, |slice| slice.announced);
    let is_announced = |count: usize| i64::try_from(count).is_ok_and(|count| count == announced);
    let mut others = Vec::new();
    if !is_announced(relevant.len()) {
        if whole_generation(pool) > generation {
            return Ok(Seen::Obsolete);
        }
        let members: Vec<_> = pool.members(generation, features).collect();
        if !is_announced(members.len()) {
            let status = Status::Incomplete { observed: members.len(), announced };
            return Ok(Seen::Pool {
                view: PoolView { pool, status, targets: Vec::new(), rules: Vec::new() },
                conditions: false,
            });
        }
        others = members.into_iter().filter(|member| relevant.binary_search(member).is_err()).collect();
    }
    let has_devices = |slice: &Slice| !features.partitionable_devices || slice.counter_sets.is_empty();
    let status = status(pool, whole, &relevant, &others, features);
    let targets: Vec<_> = relevant
        .iter()
        .filter_map(|position| Some((*position, pool.slots().get(*position)?)))
        .filter(|(_, state)| has_devices(&state.slice))
        .map(|(slot, state)| Target { slot, state, first_device: 0, first_capacity_list: 0, first_taint: 0 })
        .collect();
    let usable = matches!(status, Status::Usable { .. });
    let conditions = usable && targets.iter().any(|target| target.slice().has_binding_conditions);
    let targets = if usable { targets } else { Vec::new() };
    Ok(Seen::Pool { view: PoolView { pool, status, targets, rules: Vec::new() }, conditions })
}

/// The newest generation of any slice, whatever gates say about the slice.
fn whole_generation(pool: &Pool) -> i64 {
    pool.slots().iter().map(|slot| slot.slice.generation).max().unwrap_or(i64::MIN)
}

/// Slices with something for the node, of their newest generation, in the order of their names.
fn relevant_slices(pool: &Pool, node: &Node, features: &Features) -> Result<Vec<usize>, AllocateError> {
    let mut relevant: Vec<usize> = Vec::new();
    let mut newest = i64::MIN;
    for (position, slot) in pool.slots().iter().enumerate() {
        let slice = &slot.slice;
        let is_ignored = !features.partitionable_devices
            && (slice.has_per_device || !slice.counter_sets.is_empty())
            || !features.compatibility_groups && slice.uses_groups;
        // A slice for another node is not even looked at.
        let is_elsewhere = matches!(&slice.scope, Scope::Node(name) if **name != *node.metadata.name);
        if is_ignored || is_elsewhere {
            continue;
        }
        let failed = |what: String| {
            AllocateError::NodeSelection(format!(
                "gather pool information: failed to perform node selection for {what}"
            ))
        };
        let is_relevant = match &slice.scope {
            Scope::Unknown => false,
            Scope::PerDevice => {
                let mut found = false;
                for device in slice.devices() {
                    found = device.includes(node).map_err(|error| {
                        failed(format!(
                            "device {} in slice {}: failed to parse node selector: {error}",
                            device.name(),
                            slice.name
                        ))
                    })?;
                    if found {
                        break;
                    }
                }
                found
            }
            scope => scope.includes(node).map_err(|error| {
                failed(format!("slice {}: failed to parse node selector: {error}", slice.name))
            })?,
        };
        if is_relevant && slice.generation >= newest {
            if slice.generation > newest {
                relevant.clear();
                newest = slice.generation;
            }
            relevant.push(position);
        }
    }
    Ok(relevant)
}

fn status(pool: &Pool, whole: &Whole, relevant: &[usize], others: &[usize], features: &Features) -> Status {
    let is_whole = relevant.len() + others.len() == whole.slots.len()
        && relevant.iter().chain(others).all(|position| whole.slots.binary_search(position).is_ok());
    // What holds for the whole generation holds for any division of it, except that compatibility groups of devices in
    // use are summed up in the order of the slices.
    if is_whole && let Ok(facts) = &whole.facts {
        let baseline = if others.is_empty() || facts.groups.is_empty() {
            pool.baseline(whole, facts)
        } else {
            Arc::new(Baseline::new(pool, &[relevant, others].concat(), facts))
        };
        return Status::Usable { facts: facts.clone(), baseline };
    }
    match Facts::new(pool, relevant, others, features) {
        Ok(facts) => {
            let baseline = Arc::new(Baseline::new(pool, &[relevant, others].concat(), &facts));
            Status::Usable { facts: Arc::new(facts), baseline }
        }
        Err(reason) => Status::Invalid(reason),
    }
}

//! What a pool has left, as people need to know it.
//!
//! Unlike the status of the API this judges a pool as the scheduler does (nothing can be allocated from one that is not
//! valid), and says what is free but of no use, and what is wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dra_api::quantity::{Format, Quantity};
use serde::Serialize;

use super::status::{Member, Taints, double_held, grouping, partition_type, unpublished};
use crate::amount::{self, Nanos};
use crate::ids::PoolId;
use crate::inventory::Inventory;
use crate::inventory::pool::{Baseline, Draw, Facts, Groups, Pool};
use crate::inventory::slice::{DeviceRef, Slice};

/// What a pool has, what of it is in use, and what is left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolReport {
    /// `driver/pool`.
    pub pool: String,
    /// Newest generation.
    pub generation: i64,
    /// Why nothing can be allocated from the pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Published devices.
    pub devices: usize,
    /// Published devices that claims have, whole or in part.
    pub allocated: usize,
    /// Published devices with a taint that keeps claims away.
    pub tainted: usize,
    /// Published devices neither allocated nor tainted, whose counters and groups allow it to be allocated next.
    pub allocatable: usize,
    /// Devices that claims have although they are not published any more.
    pub unpublished: Vec<String>,
    /// Devices that cannot be shared and that several claims have, sorted.
    pub conflicts: Vec<Conflict>,
    /// By partition type, sorted.
    pub partitions: Vec<PartitionReport>,
    /// By counter, sorted.
    pub counters: Vec<CounterReport>,
    /// By capacity of devices that can be shared, sorted.
    pub shareable: Vec<ShareableReport>,
}

/// A device that several claims have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Conflict {
    /// The device.
    pub device: String,
    /// The claims, sorted.
    pub claims: Vec<String>,
}

/// Devices of one partition type, over all counter sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PartitionReport {
    /// Attribute that names the type.
    pub attribute: String,
    /// The type.
    pub partition_type: String,
    /// Devices.
    pub total: usize,
    /// Of these, allocated.
    pub allocated: usize,
    /// How many more can be allocated if only devices of this type are.
    pub allocatable: usize,
    /// As many as could be if nothing were allocated.
    pub capacity: usize,
}

/// One counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CounterReport {
    /// Counter set.
    pub counter_set: String,
    /// Counter.
    pub counter: String,
    /// Declared.
    pub total: Quantity,
    /// Left by allocated devices; negative if overdrawn.
    pub free: Quantity,
    /// What is left after as many devices as possible have been allocated, smallest first: of no use to anybody.
    pub stranded: Quantity,
}

/// One capacity of devices that can be shared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShareableReport {
    /// Capacity.
    pub capacity: String,
    /// Devices that have it.
    pub devices: usize,
    /// Devices of which nothing is taken.
    pub unused: usize,
    /// Devices of which nothing is left.
    pub full: usize,
    /// Sum over the devices.
    pub total: Quantity,
    /// Sum of what is left.
    pub free: Quantity,
    /// The largest amount left on a single device: the most that one share can get.
    pub largest_free: Quantity,
    /// What is left on devices where it is less than the least amount that a share can take.
    pub stranded: Quantity,
}

impl Inventory {
    /// Reports on a pool; `None` if it is neither published nor in use.
    pub fn pool_report(&self, id: &PoolId, default_attribute: Option<&str>) -> Option<PoolReport> {
        let pool = self.pool(id)?;
        Some(report(self, pool, default_attribute))
    }
}

pub(super) fn report(inventory: &Inventory, pool: &Pool, default_attribute: Option<&str>) -> PoolReport {
    let features = inventory.features();
    let whole = pool.whole(features);
    let slots: Vec<(usize, &Slice)> = whole
        .slots
        .iter()
        .filter_map(|position| Some((*position, &*pool.slots().get(*position)?.slice)))
        .collect();
    let slices: Vec<&Slice> = slots.iter().map(|(_, slice)| *slice).collect();
    let announced = slices.first().map_or(0, |slice| slice.announced);
    let is_complete = i64::try_from(slices.len()).is_ok_and(|found| found == announced);
    let problem = match &whole.facts {
        _ if slices.is_empty() => Some("not published".to_owned()),
        _ if !is_complete => Some(format!("incomplete: {} of {announced} slices", slices.len())),
        Err(reason) => Some(reason.to_string()),
        Ok(_) => None,
    };
    let facts = match &whole.facts {
        Ok(facts) => facts.clone(),
        Err(_) => Arc::new(Facts::default()),
    };
    let baseline = Baseline::new(pool, &whole.slots, &facts);
    let taints = Taints::new(inventory, &pool.id);
    let devices: Vec<Candidate<'_>> = slots
        .iter()
        .flat_map(|(slot, slice)| slice.devices().map(|device| (*slot, device)))
        .map(|(slot, device)| Candidate {
            device,
            draw: facts.draw(slot, device),
            allocated: pool.device_use(device.name()).is_some_and(|used| used.is_allocated()),
            tainted: features.device_taints && taints.of(device),
        })
        .collect();
    let usable = problem.is_none();
    let next = Simulation::new(&baseline, features.compatibility_groups);
    let allocatable =
        devices.iter().filter(|candidate| usable && candidate.is_free() && next.fits(candidate)).count();
    // While a new generation is published slice by slice, devices of the one before are not missing.
    let is_missing = |name: &str| is_complete || !pool.slots().iter().any(|slot| slot.slice.contains(name));
    let held: BTreeSet<&str> = devices
        .iter()
        .filter(|candidate| candidate.allocated)
        .map(|candidate| candidate.device.name())
        .collect();
    PoolReport {
        pool: pool.id.to_string(),
        generation: slices.first().map_or(0, |slice| slice.generation),
        problem,
        devices: devices.len(),
        allocated: devices.iter().filter(|candidate| candidate.allocated).count(),
        tainted: devices.iter().filter(|candidate| candidate.tainted).count(),
        allocatable,
        unpublished: unpublished(pool, &held)
            .into_iter()
            .filter(|name| is_missing(name))
            .map(str::to_owned)
            .collect(),
        conflicts: conflicts(pool, &devices),
        partitions: partitions(pool, &slices, default_attribute, &devices, &facts, &next, usable),
        counters: counters(&facts, &baseline, &next, &devices),
        shareable: shareable(pool, &devices),
    }
}

fn conflicts(pool: &Pool, devices: &[Candidate<'_>]) -> Vec<Conflict> {
    let members: Vec<Member<'_>> = devices
        .iter()
        .map(|one| Member { device: one.device, allocated: one.allocated, tainted: one.tainted })
        .collect();
    double_held(pool, &members)
        .map(|device| Conflict {
            device: device.to_owned(),
            claims: pool
                .device_use(device)
                .map(|used| used.claims().iter().map(ToString::to_string).collect())
                .unwrap_or_default(),
        })
        .collect()
}

struct Candidate<'a> {
    device: DeviceRef<'a>,
    draw: Option<&'a Draw>,
    allocated: bool,
    tainted: bool,
}

impl Candidate<'_> {
    fn is_free(&self) -> bool {
        !self.allocated && !self.tainted
    }
}

/// Counters and groups while devices are allocated one after the other.
#[derive(Clone)]
struct Simulation {
    available: Box<[Nanos]>,
    groups: Box<[Groups]>,
    with_groups: bool,
    /// A single overdrawn counter blocks the whole pool.
    overdrawn: bool,
}

impl Simulation {
    fn new(baseline: &Baseline, with_groups: bool) -> Self {
        Self {
            available: baseline.available.clone(),
            groups: baseline.groups.clone(),
            with_groups,
            overdrawn: baseline.overdrawn > 0,
        }
    }

    fn unused(facts: &Facts, with_groups: bool) -> Self {
        Self {
            available: facts.counters.iter().map(|counter| counter.declared).collect(),
            groups: vec![Groups::NoMember; facts.sets.len()].into(),
            with_groups,
            overdrawn: facts.counters.iter().any(|counter| counter.declared < 0),
        }
    }

    /// Whether the scheduler would take a device.
    fn fits(&self, candidate: &Candidate<'_>) -> bool {
        let Some(draw) = candidate.draw else { return true };
        let left = |counter: u32| self.available.get(counter as usize).copied().unwrap_or(0);
        let mut wanted: BTreeMap<u32, Nanos> = BTreeMap::new();
        for (counter, amount) in &draw.counters {
            let sum = wanted.entry(*counter).or_default();
            *sum = sum.saturating_add(*amount);
        }
        let fits = !self.overdrawn && wanted.iter().all(|(counter, amount)| left(*counter) >= *amount);
        let admits = |(set, groups): &(u32, Box<[u32]>)| {
            self.groups.get(*set as usize).is_none_or(|running| running.admits(groups))
        };
        fits && (!self.with_groups || draw.sets.iter().all(admits))
    }

    /// Takes a device if the scheduler would.
    fn take(&mut self, candidate: &Candidate<'_>) -> bool {
        if !self.fits(candidate) {
            return false;
        }
        let Some(draw) = candidate.draw else { return true };
        for (counter, amount) in &draw.counters {
            if let Some(left) = self.available.get_mut(*counter as usize) {
                *left = left.saturating_sub(*amount);
                self.overdrawn |= *left < 0;
            }
        }
        for (set, groups) in &draw.sets {
            if let Some(running) = self.groups.get_mut(*set as usize) {
                *running = running.with(groups);
            }
        }
        true
    }
}

fn partitions(
    pool: &Pool,
    slices: &[&Slice],
    default_attribute: Option<&str>,
    devices: &[Candidate<'_>],
    facts: &Facts,
    next: &Simulation,
    usable: bool,
) -> Vec<PartitionReport> {
    let mut types: BTreeMap<(&str, &str), Vec<&Candidate<'_>>> = BTreeMap::new();
    for (attribute, candidate) in grouping(slices, default_attribute).into_iter().zip(devices) {
        let device = candidate.device;
        if device.consumptions().is_empty() || attribute.is_empty() {
            continue;
        }
        if let Some(of_type) = partition_type(device, &pool.id.driver, attribute) {
            types.entry((attribute, of_type)).or_default().push(candidate);
        }
    }
    types
        .into_iter()
        .map(|((attribute, of_type), members)| {
            let mut left = next.clone();
            let mut unused = Simulation::unused(facts, next.with_groups);
            PartitionReport {
                attribute: attribute.to_owned(),
                partition_type: of_type.to_owned(),
                total: members.len(),
                allocated: members.iter().filter(|member| member.allocated).count(),
                allocatable: members
                    .iter()
                    .filter(|member| usable && member.is_free() && left.take(member))
                    .count(),
                capacity: members.iter().filter(|member| unused.take(member)).count(),
            }
        })
        .collect()
}

fn counters(
    facts: &Facts,
    baseline: &Baseline,
    next: &Simulation,
    devices: &[Candidate<'_>],
) -> Vec<CounterReport> {
    // The smallest devices first, so that as little as possible remains.
    let mut free: Vec<&Candidate<'_>> = devices.iter().filter(|candidate| candidate.is_free()).collect();
    let size = |candidate: &Candidate<'_>| {
        candidate.draw.map_or(0, |draw| {
            draw.counters.iter().fold(0, |sum: Nanos, (_, amount)| sum.saturating_add(*amount))
        })
    };
    free.sort_by_key(|candidate| size(candidate));
    let mut rest = next.clone();
    for candidate in free {
        rest.take(candidate);
    }
    let mut list: Vec<_> = facts
        .counters
        .iter()
        .enumerate()
        .map(|(position, counter)| {
            let set = facts.sets.get(counter.set as usize).map_or("", |set| set);
            let show =
                |amount: Option<&Nanos>| amount::quantity_like(amount.copied().unwrap_or(0), counter.format);
            CounterReport {
                counter_set: set.to_owned(),
                counter: counter.name.to_string(),
                total: show(Some(&counter.declared)),
                free: show(baseline.available.get(position)),
                stranded: show(rest.available.get(position).filter(|left| **left > 0)),
            }
        })
        .collect();
    list.sort_by(|a, b| (&a.counter_set, &a.counter).cmp(&(&b.counter_set, &b.counter)));
    list
}

#[derive(Default)]
struct Shares {
    devices: usize,
    unused: usize,
    full: usize,
    total: Nanos,
    free: Nanos,
    largest_free: Nanos,
    stranded: Nanos,
    format: Option<Format>,
}

fn shareable(pool: &Pool, devices: &[Candidate<'_>]) -> Vec<ShareableReport> {
    let mut found: BTreeMap<&str, Shares> = BTreeMap::new();
    for candidate in devices.iter().filter(|candidate| candidate.device.allow_multiple()) {
        let used = pool.device_use(candidate.device.name());
        for capacity in candidate.device.capacities() {
            let shares = found.entry(&capacity.name).or_default();
            let taken = match used {
                None => 0,
                // Somebody has the whole device.
                Some(used) if used.is_dedicated() => capacity.nanos,
                Some(used) => used.consumed(&capacity.name),
            };
            let free = capacity.nanos.saturating_sub(taken).max(0);
            shares.devices += 1;
            shares.unused += usize::from(taken == 0);
            shares.full += usize::from(free == 0);
            shares.total = shares.total.saturating_add(capacity.nanos);
            shares.free = shares.free.saturating_add(free);
            shares.format.get_or_insert(capacity.value.format());
            if !candidate.tainted {
                shares.largest_free = shares.largest_free.max(free);
            }
            if free < least_share(capacity) {
                shares.stranded = shares.stranded.saturating_add(free);
            }
        }
    }
    found
        .into_iter()
        .map(|(name, shares)| {
            let show = |amount| amount::quantity_like(amount, shares.format.unwrap_or(Format::DecimalSi));
            ShareableReport {
                capacity: name.to_owned(),
                devices: shares.devices,
                unused: shares.unused,
                full: shares.full,
                total: show(shares.total),
                free: show(shares.free),
                largest_free: show(shares.largest_free),
                stranded: show(shares.stranded),
            }
        })
        .collect()
}

/// The least amount that the policy lets a share take.
fn least_share(capacity: &crate::inventory::details::Capacity) -> Nanos {
    let Some(policy) = &capacity.policy else { return 0 };
    let least = policy
        .valid_range
        .as_ref()
        .and_then(|range| range.min.as_ref())
        .or_else(|| policy.valid_values.as_ref().and_then(|values| values.iter().min()));
    least.and_then(amount::nanos).unwrap_or(0)
}

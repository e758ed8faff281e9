//! A pool: its slices of all generations, who holds its devices, and what follows from both.

use std::collections::{BTreeMap, HashSet};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use dra_api::quantity::Format;

use super::slice::{Consumption, DeviceRef, Slice};
use super::usage::DeviceUse;
use crate::amount::{self, Nanos};
use crate::features::Features;
use crate::ids::PoolId;
use crate::summary::PoolSummary;
use crate::summary::status::PoolStatus;

/// A slice in its pool.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) slice: Arc<Slice>,
    /// One bit per device: somebody holds the whole device.
    dedicated: Box<[u64]>,
}

impl Slot {
    fn new(slice: Arc<Slice>) -> Self {
        let words = slice.len().div_ceil(64);
        Self { slice, dedicated: vec![0; words].into() }
    }

    /// Somebody holds the whole device.
    pub(crate) fn is_dedicated(&self, position: usize) -> bool {
        self.dedicated.get(position / 64).is_some_and(|word| word >> (position % 64) & 1 == 1)
    }

    /// Marks the devices that somebody holds.
    fn mark_all(&mut self, uses: &imbl::OrdMap<Arc<str>, Arc<DeviceUse>>) {
        if uses.len() < self.slice.len() {
            for (device, _) in uses.iter().filter(|(_, used)| used.is_dedicated()) {
                self.mark(device, true);
            }
            return;
        }
        let Self { slice, dedicated } = self;
        let from = |bound: Bound<&str>| uses.range::<_, str>((bound, Bound::Unbounded));
        let mut held = from(Bound::Unbounded);
        let mut next = held.next();
        for position in slice.by_name() {
            let position = *position as usize;
            let Some(name) = slice.device(position).map(DeviceRef::name) else { continue };
            // Go on to the name step by step, or if it is not near, by looking it up.
            let mut steps = 0;
            while let Some((device, _)) = next
                && **device < *name
            {
                steps += 1;
                if steps > 8 {
                    held = from(Bound::Included(name));
                }
                next = held.next();
            }
            if let Some((device, used)) = next
                && **device == *name
                && used.is_dedicated()
                && let Some(word) = dedicated.get_mut(position / 64)
            {
                *word |= 1 << (position % 64);
            }
        }
    }

    fn mark(&mut self, device: &str, dedicated: bool) {
        for position in self.slice.find(device) {
            if let Some(word) = self.dedicated.get_mut(position / 64) {
                let bit = 1 << (position % 64);
                if dedicated {
                    *word |= bit;
                } else {
                    *word &= !bit;
                }
            }
        }
    }
}

/// The live state of a pool. Cloning it is cheap: slices and uses are shared.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) id: PoolId,
    /// Slices of all generations, in the order of their names.
    slots: Vec<Slot>,
    /// Devices that somebody holds, published or not.
    uses: imbl::OrdMap<Arc<str>, Arc<DeviceUse>>,
    /// What held devices consumed when a slice last published them, and its generation: hardware does not come free
    /// because its description is withdrawn.
    withdrawn: imbl::OrdMap<Arc<str>, (i64, Arc<[Consumption]>)>,
    /// The status of the pool as requests are answered with, once somebody has asked.
    status: OnceLock<Arc<PoolStatus>>,
    /// What there is to tell about the pool, once somebody has asked.
    summary: OnceLock<Arc<PoolSummary>>,
    whole: OnceLock<Arc<Whole>>,
    baseline: OnceLock<Arc<Baseline>>,
}

/// The slices of a pool's newest generation, all of them taken together.
#[derive(Debug)]
pub(crate) struct Whole {
    /// Positions of the slices, in the order of their names.
    pub(crate) slots: Vec<usize>,
    pub(crate) facts: Result<Arc<Facts>, Arc<str>>,
}

impl Pool {
    pub(crate) fn new(id: PoolId) -> Self {
        Self {
            id,
            slots: Vec::new(),
            uses: imbl::OrdMap::new(),
            withdrawn: imbl::OrdMap::new(),
            status: OnceLock::new(),
            summary: OnceLock::new(),
            whole: OnceLock::new(),
            baseline: OnceLock::new(),
        }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Neither published nor held: nothing to remember.
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty() && self.uses.is_empty()
    }

    /// Some slice publishes it.
    pub(crate) fn is_published(&self) -> bool {
        !self.slots.is_empty()
    }

    fn find(&self, name: &str) -> Result<usize, usize> {
        self.slots.binary_search_by(|slot| (*slot.slice.name).cmp(name))
    }

    pub(crate) fn set_slice(&mut self, slice: Arc<Slice>) {
        let mut slot = Slot::new(slice);
        slot.mark_all(&self.uses);
        self.forget_summary();
        self.whole = OnceLock::new();
        self.baseline = OnceLock::new();
        match self.find(&slot.slice.name) {
            Ok(position) => {
                if let Some(old) = self.slots.get_mut(position) {
                    let old = std::mem::replace(old, slot);
                    self.remember(&old.slice);
                }
            }
            Err(position) => self.slots.insert(position, slot),
        }
    }

    pub(crate) fn remove_slice(&mut self, name: &str) -> Option<Arc<Slice>> {
        let position = self.find(name).ok()?;
        self.forget_summary();
        self.whole = OnceLock::new();
        self.baseline = OnceLock::new();
        let slice = self.slots.remove(position).slice;
        self.remember(&slice);
        Some(slice)
    }

    /// Keeps what held devices of a slice that goes consume, unless a later generation has told more.
    fn remember(&mut self, slice: &Slice) {
        if slice.consumption_list_count() == 0 && self.withdrawn.is_empty() {
            return;
        }
        let is_held = |used: &DeviceUse| used.is_allocated();
        // Whichever are fewer are gone through: a slice has few devices, and so have most pools holders.
        let held: Vec<Arc<str>> = if self.uses.len() < slice.len() {
            let of_slice = self.uses.iter().filter(|(name, used)| is_held(used) && slice.contains(name));
            of_slice.map(|(name, _)| name.clone()).collect()
        } else {
            let names = slice.devices().filter_map(|device| self.uses.get_key_value(device.name()));
            names.filter(|(_, used)| is_held(used)).map(|(name, _)| name.clone()).collect()
        };
        for name in held {
            let known = self.withdrawn.get(&name).map(|(generation, _)| *generation);
            if known.is_some_and(|known| known > slice.generation) {
                continue;
            }
            let device = slice.find(&name).next().and_then(|at| slice.device(at));
            match device.filter(|device| device.consumption_list().is_some()) {
                Some(device) => {
                    self.withdrawn.insert(name, (slice.generation, device.consumptions().into()));
                }
                None => {
                    self.withdrawn.remove(&name);
                }
            }
        }
    }

    /// What a held device consumed when it was last published, and in which generation, if that was seen.
    pub(crate) fn withdrawn(&self, device: &str) -> Option<(i64, &[Consumption])> {
        self.withdrawn.get(device).map(|(generation, consumptions)| (*generation, &**consumptions))
    }

    /// The status of the pool; computed once after each change.
    pub(crate) fn status(&self, compute: impl FnOnce() -> PoolStatus) -> &Arc<PoolStatus> {
        self.status.get_or_init(|| Arc::new(compute()))
    }

    /// What there is to tell about the pool; computed once after each change.
    pub(crate) fn summary(&self, compute: impl FnOnce() -> PoolSummary) -> &Arc<PoolSummary> {
        self.summary.get_or_init(|| Arc::new(compute()))
    }

    /// Something has changed that status and summary tell.
    pub(crate) fn forget_summary(&mut self) {
        self.status = OnceLock::new();
        self.summary = OnceLock::new();
    }

    pub(crate) fn has_summary(&self) -> bool {
        self.status.get().is_some() || self.summary.get().is_some()
    }

    /// Changes who holds a device.
    pub(crate) fn change_use(&mut self, device: &Arc<str>, change: impl FnOnce(&mut DeviceUse)) {
        self.forget_summary();
        // In place: a device may have thousands of shares.
        let used = Arc::make_mut(self.uses.entry(device.clone()).or_default());
        let was = (used.is_dedicated(), used.is_allocated());
        change(used);
        let is = (used.is_dedicated(), used.is_allocated());
        if used.is_empty() {
            self.uses.remove(device);
        }
        if !is.1 {
            self.withdrawn.remove(device);
        }
        if was.0 != is.0 {
            for slot in &mut self.slots {
                slot.mark(device, is.0);
            }
        }
        if was.1 != is.1 {
            self.baseline = OnceLock::new();
        }
    }

    /// Who holds a device; `None` if nobody does.
    pub(crate) fn device_use(&self, device: &str) -> Option<&Arc<DeviceUse>> {
        self.uses.get(device)
    }

    /// Devices that somebody holds.
    pub(crate) fn uses(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<DeviceUse>)> {
        self.uses.iter()
    }

    pub(crate) fn has_uses(&self) -> bool {
        !self.uses.is_empty()
    }

    /// The newest generation, taken as a whole.
    pub(crate) fn whole(&self, features: &Features) -> &Arc<Whole> {
        self.whole.get_or_init(|| {
            let generation = self.slots.iter().map(|slot| slot.slice.generation).max().unwrap_or_default();
            let slots: Vec<_> = self.members(generation, features).collect();
            let facts = Facts::new(self, &slots, &[], features).map(Arc::new);
            Arc::new(Whole { slots, facts })
        })
    }

    /// Slices of a generation that count towards its completeness.
    pub(crate) fn members(&self, generation: i64, features: &Features) -> impl Iterator<Item = usize> {
        self.slots.iter().enumerate().filter_map(move |(position, slot)| {
            let counts = features.compatibility_groups || !slot.slice.uses_groups;
            (slot.slice.generation == generation && counts).then_some(position)
        })
    }

    /// What allocated devices leave, over the newest generation as a whole.
    pub(crate) fn baseline(&self, whole: &Whole, facts: &Arc<Facts>) -> Arc<Baseline> {
        self.baseline.get_or_init(|| Arc::new(Baseline::new(self, &whole.slots, facts))).clone()
    }
}

/// A counter of a pool.
#[derive(Debug)]
pub(crate) struct Counter {
    pub(crate) set: u32,
    pub(crate) name: Arc<str>,
    pub(crate) declared: Nanos,
    /// How its amounts are written.
    pub(crate) format: Format,
}

/// What a device draws, with names resolved to positions.
#[derive(Debug, Default)]
pub(crate) struct Draw {
    /// Counter and amount.
    pub(crate) counters: Box<[(u32, Nanos)]>,
    /// Counter set and compatibility groups, one entry per consumption.
    pub(crate) sets: Box<[(u32, Box<[u32]>)]>,
}

/// A counter set of a pool.
#[derive(Clone, Copy, Debug)]
struct SetPosition {
    number: u32,
    /// Its counters are `first..end`, in the order of their names.
    first: u32,
    end: u32,
}

/// What slices of a valid pool say about counters.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) sets: Vec<Arc<str>>,
    pub(crate) counters: Vec<Counter>,
    by_name: BTreeMap<Arc<str>, SetPosition>,
    /// Compatibility groups, with their numbers.
    pub(crate) groups: BTreeMap<Arc<str>, u32>,
    /// Some device draws a negative amount: with it, others fit that did not fit before.
    pub(crate) gives_back: bool,
    /// By slice and consumption list, each once it has been asked for.
    draws: Vec<Box<[OnceLock<Draw>]>>,
}

impl Facts {
    /// Checks slices that target a node, and others of their pool that don't; the error is the reason why the pool
    /// is invalid (`buildPool`, `validateDeviceNames`, `getAndValidateCounterSets`, `validateDeviceCounterConsumption`).
    pub(crate) fn new(
        pool: &Pool,
        targets: &[usize],
        others: &[usize],
        features: &Features,
    ) -> Result<Self, Arc<str>> {
        let slices = |positions: &[usize]| -> Vec<(usize, Arc<Slice>)> {
            positions
                .iter()
                .filter_map(|position| Some((*position, pool.slots.get(*position)?.slice.clone())))
                .collect()
        };
        let targets = slices(targets);
        let others = slices(others);
        let has_devices = |slice: &Slice| !features.partitionable_devices || slice.counter_sets.is_empty();
        for (_, slice) in targets.iter().chain(&others) {
            if let Some(reason) = &slice.out_of_range {
                return Err(reason.clone());
            }
        }
        unique_device_names(targets.iter().map(|(_, slice)| &**slice).filter(|slice| has_devices(slice)))?;
        let mut facts = Self::default();
        if !features.partitionable_devices {
            return Ok(facts);
        }
        for (_, slice) in targets.iter().chain(&others) {
            for set in &slice.counter_sets {
                let first = index(facts.counters.len());
                let number = index(facts.sets.len());
                for (name, declared, value) in &set.counters {
                    let (name, declared, format) = (name.clone(), *declared, value.format());
                    facts.counters.push(Counter { set: number, name, declared, format });
                }
                let position = SetPosition { number, first, end: index(facts.counters.len()) };
                if facts.by_name.insert(set.name.clone(), position).is_some() {
                    return Err(format!("duplicate counter set name {}", set.name).into());
                }
                facts.sets.push(set.name.clone());
            }
        }
        facts.draws.resize_with(pool.slots.len(), Box::default);
        for (position, slice) in targets.iter().chain(&others).filter(|(_, slice)| has_devices(slice)) {
            for list in 0..slice.consumption_list_count() {
                facts.check(slice, list)?;
            }
            if let Some(draws) = facts.draws.get_mut(*position) {
                *draws = std::iter::repeat_with(OnceLock::new).take(slice.consumption_list_count()).collect();
            }
        }
        Ok(facts)
    }

    /// Checks what a device draws, and numbers its groups.
    fn check(&mut self, slice: &Slice, list: usize) -> Result<(), Arc<str>> {
        for consumed in slice.consumed(list) {
            let Some(set) = self.by_name.get(consumed.set()).copied() else {
                return Err(format!("counter set {} not found", consumed.set()).into());
            };
            for group in consumed.groups() {
                if !self.groups.contains_key(group) {
                    self.groups.insert(group.into(), index(self.groups.len()));
                }
            }
            let mut declared = self.counters_of(set);
            let mut gives_back = false;
            for (name, amount) in consumed.counters() {
                // Both are sorted by name, so they are gone through side by side.
                if declared.find(|(_, declared)| *declared.name == *name).is_none() {
                    let set = consumed.set();
                    return Err(format!("counter {name} not found in counter set {set}").into());
                }
                gives_back |= amount::nanos(amount).is_some_and(|amount| amount < 0);
            }
            drop(declared);
            self.gives_back |= gives_back;
        }
        Ok(())
    }

    /// Counters of a set, with their numbers.
    fn counters_of(&self, set: SetPosition) -> impl Iterator<Item = (u32, &Counter)> {
        let counters = self.counters.get(set.first as usize..set.end as usize).unwrap_or_default();
        (set.first..).zip(counters)
    }

    /// What a device draws that has been checked.
    fn resolve(&self, slice: &Slice, list: usize) -> Draw {
        let mut counters = Vec::new();
        let mut sets = Vec::new();
        for consumed in slice.consumed(list) {
            let Some(set) = self.by_name.get(consumed.set()) else { continue };
            let mut declared = self.counters_of(*set);
            for (name, amount) in consumed.counters() {
                if let Some((counter, _)) = declared.find(|(_, declared)| *declared.name == *name) {
                    // What is out of range has been refused.
                    counters.push((counter, amount::nanos(amount).unwrap_or(0)));
                }
            }
            let mut groups: Vec<u32> =
                consumed.groups().filter_map(|group| self.groups.get(group)).copied().collect();
            groups.sort_unstable();
            groups.dedup();
            sets.push((set.number, groups.into()));
        }
        Draw { counters: counters.into(), sets: sets.into() }
    }

    /// What a device draws.
    pub(crate) fn draw(&self, slot: usize, device: DeviceRef<'_>) -> Option<&Draw> {
        let list = device.consumption_list()?;
        Some(self.draws.get(slot)?.get(list)?.get_or_init(|| self.resolve(device.slice(), list)))
    }

    /// A counter and the name of its set.
    pub(crate) fn counter(&self, counter: u32) -> Option<(&str, &Counter)> {
        let found = self.counters.get(counter as usize)?;
        Some((self.sets.get(found.set as usize)?, found))
    }
}

fn index(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn unique_device_names<'a>(slices: impl Iterator<Item = &'a Slice>) -> Result<(), Arc<str>> {
    let mut slices: Vec<_> = slices.filter_map(|slice| Some((slice.names()?, slice))).collect();
    slices.sort_unstable_by_key(|(names, _)| *names);
    let is_apart = slices.array_windows().all(|[((_, last), _), ((first, _), _)]| last < first);
    let duplicates: Vec<&str> = if is_apart {
        // Names in one slice are in order.
        slices.iter().filter_map(|(_, slice)| slice.duplicate_name()).collect()
    } else {
        let mut known: HashSet<&str, BuildHasherDefault<DefaultHasher>> = HashSet::default();
        let names = slices.iter().flat_map(|(_, slice)| slice.devices()).map(DeviceRef::name);
        names.filter(|name| !known.insert(name)).collect()
    };
    match duplicates.iter().min() {
        Some(name) => Err(format!("duplicate device name {name}").into()),
        None => Ok(()),
    }
}

/// Which compatibility groups the devices on a counter set have in common (`compatibilityGroupIntersection`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Groups {
    /// No device yet.
    #[default]
    NoMember,
    /// All devices are without groups.
    Groupless,
    /// All devices have groups; these are in all of them.
    Common(Arc<[u32]>),
}

impl Groups {
    /// Whether a device with these groups may join.
    pub(crate) fn admits(&self, groups: &[u32]) -> bool {
        match self {
            Self::NoMember => true,
            Self::Groupless => groups.is_empty(),
            Self::Common(common) => groups.iter().any(|group| common.contains(group)),
        }
    }

    /// With a device of these groups. Unlike [`Groups::admits`] this never refuses.
    pub(crate) fn with(&self, groups: &[u32]) -> Self {
        match self {
            Self::NoMember if groups.is_empty() => Self::Groupless,
            Self::NoMember => Self::Common(groups.into()),
            Self::Groupless => Self::Groupless,
            Self::Common(common) if groups.is_empty() => Self::Common(common.clone()),
            Self::Common(common) => {
                Self::Common(common.iter().copied().filter(|group| groups.contains(group)).collect())
            }
        }
    }
}

/// What allocated devices leave of a pool's counters.
#[derive(Debug)]
pub(crate) struct Baseline {
    /// By counter; may be negative.
    pub(crate) available: Box<[Nanos]>,
    /// How many counters are negative. A single one blocks all devices that consume counters.
    pub(crate) overdrawn: u32,
    /// By counter set.
    pub(crate) groups: Box<[Groups]>,
}

impl Baseline {
    /// Sums up the allocated devices in the given slices. Devices that are held but not in the slices count nothing.
    pub(crate) fn new(pool: &Pool, slots: &[usize], facts: &Facts) -> Self {
        let mut available: Box<[Nanos]> = facts.counters.iter().map(|counter| counter.declared).collect();
        let mut groups: Box<[Groups]> = vec![Groups::NoMember; facts.sets.len()].into();
        for draw in allocated_draws(pool, slots, facts) {
            for (counter, amount) in &draw.counters {
                if let Some(left) = available.get_mut(*counter as usize) {
                    *left = left.saturating_sub(*amount);
                }
            }
            for (set, of_device) in &draw.sets {
                if let Some(common) = groups.get_mut(*set as usize) {
                    *common = common.with(of_device);
                }
            }
        }
        let overdrawn = index(available.iter().filter(|left| **left < 0).count());
        Self { available, overdrawn, groups }
    }
}

/// What allocated devices draw, in the order of slices and devices: the first one on a counter set decides whether
/// that set is for devices with groups.
fn allocated_draws<'a>(pool: &Pool, slots: &[usize], facts: &'a Facts) -> Vec<&'a Draw> {
    if facts.sets.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (name, _) in pool.uses.iter().filter(|(_, used)| used.is_allocated()) {
        for (order, position) in slots.iter().enumerate() {
            let Some(slot) = pool.slots.get(*position) else { continue };
            for at in slot.slice.find(name) {
                let draw = slot.slice.device(at).and_then(|device| facts.draw(*position, device));
                found.extend(draw.map(|draw| ((order, at), draw)));
            }
        }
    }
    found.sort_unstable_by_key(|(order, _)| *order);
    found.into_iter().map(|(_, draw)| draw).collect()
}

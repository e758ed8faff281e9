//! The state of a search: which devices have been taken for which request, and everything that follows from it.
//!
//! [`State::place`] takes a device or says why not, [`State::undo`] gives back the one taken last; together they
//! leave the state exactly as it was. Rules: `allocateDevice`, `rollbackDevice`, `checkAvailableCounters`; spec §3.5 to
//! §6. The order of the checks is the scheduler's.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use crate::amount::Nanos;
use crate::capacity::Need;
use crate::constraint::{Constraint, Form};
use crate::error::AllocateError;
use crate::evaluate::Evaluator;
use crate::inventory::pool::{Baseline, Draw, Facts, Groups};
use crate::inventory::slice::DeviceRef;
use crate::objects::{DeviceTaint, DeviceTaintRule};
use crate::plan::{Plan, Request};
use crate::taints;
use crate::view::{Location, PoolView, Status, Target};

/// Declared by nodes that can do without some node operations.
const OPTIONAL_NODE_OPERATIONS: &str = "DRAOptionalNodeOperations";

/// Why a device was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejection {
    /// Somebody has it, or a request before this one has.
    InUse,
    /// The same claim already has it, for administration.
    InUseBySameClaim,
    /// It is not selectable.
    Unselected,
    /// Its capacity does not suffice.
    Capacity,
    /// The node does not skip the operations that it wants skipped, or the gate is off.
    NodeOperations,
    /// It consumes counters, and the gate is off.
    CountersOff,
    /// Its groups are not compatible with those of other devices on this counter set.
    Groups { set: u32 },
    /// This counter would be overdrawn.
    Counter { counter: u32 },
    /// A taint is not tolerated.
    Taint,
    /// A constraint, by its position in the claim.
    Constraint { constraint: usize },
}

/// A device taken for a request, with what it takes to give it back.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) request: usize,
    pub(crate) location: Location,
    pub(crate) number: usize,
    /// What a share takes of the device; `None` for a dedicated device.
    pub(crate) share: Option<Rc<Need>>,
    claim: usize,
    drawn: bool,
    grouped: usize,
    constraints: usize,
}

/// Counters of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolCounters {
    consumed: Vec<Nanos>,
    /// How many counters have less available than is consumed. A single one rejects all consumers.
    overdrawn: usize,
}

/// The state of a search.
#[derive(Debug)]
pub(crate) struct State<'a> {
    pub(crate) eval: Evaluator<'a>,
    pub(crate) plan: Plan<'a>,
    /// Devices taken, by claim, in the order of taking.
    pub(crate) placed: Vec<Vec<Placed>>,
    /// One bit per device number: taken as a whole, by any claim.
    taken: Vec<u64>,
    /// Devices taken as a whole, with the claim.
    marks: Vec<(usize, usize)>,
    /// Shares taken: device number and amounts.
    shares: Vec<(usize, Rc<Need>)>,
    /// By pool of the view.
    counters: Vec<Option<PoolCounters>>,
    /// By pool of the view and counter set, where it was touched.
    groups: BTreeMap<(usize, u32), Groups>,
    /// What stood in `groups` before each change.
    groups_before: Vec<((usize, u32), Option<Groups>)>,
    /// By claim.
    pub(crate) constraints: Vec<Vec<Constraint<'a>>>,
    /// Derived attributes by expression and device number.
    derived: BTreeMap<(&'a str, usize), Arc<crate::objects::DeviceAttribute>>,
    /// Some rule taints single devices.
    device_rules: bool,
}

impl<'a> State<'a> {
    pub(crate) fn new(eval: Evaluator<'a>, mut plan: Plan<'a>) -> Self {
        let sets = eval.inventory.features().list_type_attributes;
        let devices = eval.view.devices;
        let constraints: Vec<Vec<Constraint<'a>>> = plan
            .claims
            .iter()
            .map(|claim| {
                let objects = &claim.claim.spec.devices.constraints;
                objects.iter().filter_map(|object| Constraint::new(object, sets, devices)).collect()
            })
            .collect();
        for request in &mut plan.requests {
            let of_claim = constraints.get(request.claim).map_or(&[][..], |list| list);
            request.constraints = of_claim
                .iter()
                .enumerate()
                .filter(|(_, constraint)| constraint.applies_to(request.name, request.parent))
                .map(|(position, _)| position)
                .collect();
        }
        Self {
            placed: vec![Vec::new(); plan.claims.len()],
            taken: vec![0; devices.div_ceil(64)],
            marks: Vec::new(),
            shares: Vec::new(),
            counters: vec![None; eval.view.pools.len()],
            groups: BTreeMap::new(),
            groups_before: Vec::new(),
            constraints,
            derived: BTreeMap::new(),
            device_rules: eval.inventory.has_device_rules(),
            eval,
            plan,
        }
    }

    /// Whether the device is not available to requests other than for administration.
    pub(crate) fn in_use(&self, location: Location, number: usize) -> bool {
        self.is_taken(number)
            || self
                .eval
                .view
                .target(location)
                .is_some_and(|(_, target)| target.state.is_dedicated(location.device))
    }

    fn is_taken(&self, number: usize) -> bool {
        self.taken.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Whether the claim took the device as a whole.
    pub(crate) fn taken_by(&self, number: usize, claim: usize) -> bool {
        self.is_taken(number) && self.marks.contains(&(number, claim))
    }

    /// Looks at one device for a request that wants any: takes it if it may.
    ///
    /// # Errors
    ///
    /// The device cannot be judged; this ends the allocation.
    pub(crate) fn try_device(
        &mut self,
        request: usize,
        location: Location,
        number: usize,
    ) -> Result<Result<(), Rejection>, AllocateError> {
        let Some(wanted) = self.plan.requests.get(request) else { return Ok(Err(Rejection::Unselected)) };
        if wanted.asked.is_admin() {
            if self.taken_by(number, wanted.claim) {
                return Ok(Err(Rejection::InUseBySameClaim));
            }
        } else if self.in_use(location, number) {
            return Ok(Err(Rejection::InUse));
        }
        if !self.eval.selectable(&self.plan, wanted, location, number)? {
            return Ok(Err(Rejection::Unselected));
        }
        let mut judged = None;
        if self.eval.inventory.features().consumable_capacity {
            let need = self.eval.need(&self.plan, wanted.kind, location);
            if let Need::Fatal(error) = &*need {
                return Err(AllocateError::Capacity(format!(
                    "claim {}, request {}: checking capacity for device {}: {error}",
                    self.plan.claim_key(wanted.claim),
                    wanted.name,
                    self.device_id(location)
                )));
            }
            if !self.capacity_suffices(&need, location, number) {
                return Ok(Err(Rejection::Capacity));
            }
            judged = Some(need);
        }
        self.take(request, location, number, judged)
    }

    /// Takes a selectable device for a request, or says why not.
    ///
    /// # Errors
    ///
    /// The device cannot be judged, or a constraint keeps a request for all devices from getting one of them; this
    /// ends the allocation.
    pub(crate) fn place(
        &mut self,
        request: usize,
        location: Location,
        number: usize,
    ) -> Result<Result<(), Rejection>, AllocateError> {
        self.take(request, location, number, None)
    }

    /// Takes a selectable device; `judged` is what the request needs of it if that is known to be there.
    fn take(
        &mut self,
        request: usize,
        location: Location,
        number: usize,
        judged: Option<Rc<Need>>,
    ) -> Result<Result<(), Rejection>, AllocateError> {
        let features = *self.eval.inventory.features();
        let Some(wanted) = self.plan.requests.get(request) else { return Ok(Err(Rejection::Unselected)) };
        let Some((pool, target)) = self.eval.view.target(location) else {
            return Ok(Err(Rejection::Unselected));
        };
        let target: Target<'a> = *target;
        let Some(device) = target.slice().device(location.device) else {
            return Ok(Err(Rejection::Unselected));
        };
        let shareable = features.consumable_capacity && device.allow_multiple();
        let admin = wanted.asked.is_admin();
        let claim = wanted.claim;
        if !shareable && admin && self.taken_by(number, claim) {
            return Ok(Err(Rejection::InUseBySameClaim));
        }
        if !admin && self.in_use(location, number) {
            return Ok(Err(Rejection::InUse));
        }
        if !target.slice().skip_node_operations.is_empty() {
            let declared = &self.eval.node.status.declared_features;
            if !features.optional_node_operations
                || !declared.iter().any(|feature| feature == OPTIONAL_NODE_OPERATIONS)
            {
                return Ok(Err(Rejection::NodeOperations));
            }
        }
        if !features.partitionable_devices && device.consumption_list().is_some() {
            return Ok(Err(Rejection::CountersOff));
        }
        let mut placed = Placed {
            request,
            location,
            number,
            share: None,
            claim,
            drawn: false,
            grouped: self.groups_before.len(),
            constraints: 0,
        };
        let shared_already = shareable && self.is_shared(pool, device, number);
        if !shared_already
            && let Status::Usable { facts, baseline } = &pool.status
            && let Some(draw) = facts.draw(target.slot, device)
        {
            let (facts, baseline) = (facts.clone(), baseline.clone());
            if features.compatibility_groups
                && let Err(set) =
                    join_groups(&mut self.groups, &mut self.groups_before, location.pool, draw, &baseline)
            {
                self.revert(&placed);
                return Ok(Err(Rejection::Groups { set }));
            }
            let drawn = draw_counters(&mut self.counters, location.pool, draw, &facts, &baseline);
            if let Err(counter) = drawn {
                self.revert(&placed);
                return Ok(Err(Rejection::Counter { counter }));
            }
            placed.drawn = true;
        }
        if features.device_taints && self.untolerated_taint(request, location).is_some() {
            self.revert(&placed);
            return Ok(Err(Rejection::Taint));
        }
        if let Some(rejection) = self.join_constraints(&mut placed)? {
            return Ok(Err(rejection));
        }
        if !shareable {
            self.mark(number, claim);
        }
        if features.consumable_capacity {
            let is_judged = judged.is_some();
            let need = judged.unwrap_or_else(|| {
                let kind = self.plan.requests.get(request).map_or(0, |wanted| wanted.kind);
                self.eval.need(&self.plan, kind, location)
            });
            // A request for all devices did not look at what is left of this one.
            if !is_judged && !self.capacity_suffices(&need, location, number) {
                if !shareable {
                    self.unmark();
                }
                self.revert(&placed);
                return Ok(Err(Rejection::Capacity));
            }
            if shareable {
                self.shares.push((number, need.clone()));
                placed.share = Some(need);
            }
        }
        if let Some(list) = self.placed.get_mut(claim) {
            list.push(placed);
        }
        Ok(Ok(()))
    }

    /// Gives back the device that the claim took last.
    pub(crate) fn undo(&mut self, claim: usize) {
        let Some(placed) = self.placed.get_mut(claim).and_then(Vec::pop) else { return };
        if placed.share.is_some() {
            self.shares.pop();
        } else {
            self.unmark();
        }
        self.revert(&placed);
    }

    /// Takes back constraints, groups and counters.
    fn revert(&mut self, placed: &Placed) {
        let positions =
            self.plan.requests.get(placed.request).map_or(&[][..], |request| &request.constraints);
        if let Some(constraints) = self.constraints.get_mut(placed.claim) {
            for position in positions.iter().take(placed.constraints) {
                if let Some(constraint) = constraints.get_mut(*position) {
                    constraint.remove();
                }
            }
        }
        for (key, before) in self.groups_before.drain(placed.grouped..).rev() {
            match before {
                Some(groups) => self.groups.insert(key, groups),
                None => self.groups.remove(&key),
            };
        }
        if placed.drawn
            && let Some((pool, target)) = self.eval.view.target(placed.location)
            && let Status::Usable { facts, baseline } = &pool.status
            && let Some(device) = target.slice().device(placed.location.device)
            && let Some(draw) = facts.draw(target.slot, device)
            && let Some(Some(counters)) = self.counters.get_mut(placed.location.pool)
        {
            counters.give_back(draw, baseline);
        }
    }

    fn mark(&mut self, number: usize, claim: usize) {
        self.marks.push((number, claim));
        if let Some(word) = self.taken.get_mut(number / 64) {
            *word |= 1 << (number % 64);
        }
    }

    fn unmark(&mut self) {
        let Some((number, _)) = self.marks.pop() else { return };
        // Several claims may have it for administration.
        if self.marks.iter().any(|(other, _)| *other == number) {
            return;
        }
        if let Some(word) = self.taken.get_mut(number / 64) {
            *word &= !(1 << (number % 64));
        }
    }

    /// Whether a further share of the device is free of counters and groups.
    fn is_shared(&self, pool: &PoolView<'_>, device: DeviceRef<'_>, number: usize) -> bool {
        self.shares.iter().any(|(other, _)| *other == number)
            || pool.pool.device_use(device.name()).is_some_and(|used| used.is_shared())
    }

    /// Whether what is left of a device's capacities is enough.
    fn capacity_suffices(&self, need: &Need, location: Location, number: usize) -> bool {
        self.capacity_shortfall(need, location, number).is_none()
    }

    /// What a device lacks for a request; `None` if it is enough.
    pub(crate) fn capacity_shortfall(
        &self,
        need: &Need,
        location: Location,
        number: usize,
    ) -> Option<Shortfall> {
        let (amounts, violated) = match need {
            Need::Fatal(_) => return Some(Shortfall::Unknown),
            Need::Missing { name } => return Some(Shortfall::Missing { name: name.clone() }),
            Need::Amounts { amounts, violated } => (amounts, violated),
        };
        if let Some(taken) = violated.and_then(|position| amounts.get(position)) {
            return Some(Shortfall::Policy { name: taken.name.clone(), nanos: taken.nanos });
        }
        let (pool, target) = self.eval.view.target(location)?;
        let used = if pool.pool.has_uses() {
            target.slice().device(location.device).and_then(|device| pool.pool.device_use(device.name()))
        } else {
            None
        };
        amounts.iter().enumerate().find_map(|(position, taken)| {
            let before = used.map_or(0, |used| used.consumed(&taken.name));
            let in_flight = self
                .shares
                .iter()
                .filter(|(other, _)| *other == number)
                .filter_map(|(_, share)| match &**share {
                    Need::Amounts { amounts, .. } => amounts.get(position),
                    _ => None,
                })
                .fold(0, |sum: Nanos, share| sum.saturating_add(share.nanos));
            let short =
                taken.nanos.saturating_add(before).saturating_add(in_flight).saturating_sub(taken.value);
            (short > 0).then(|| Shortfall::Short {
                name: taken.name.clone(),
                nanos: short,
                format: taken.format,
            })
        })
    }

    fn join_constraints(&mut self, placed: &mut Placed) -> Result<Option<Rejection>, AllocateError> {
        let request = placed.request;
        for step in 0.. {
            let Some(wanted) = self.plan.requests.get(request) else { break };
            let Some(position) = wanted.constraints.get(step).copied() else { break };
            let form = match self.attribute(request, position, placed.location, placed.number) {
                Ok(form) => form,
                Err(error) => {
                    self.revert(placed);
                    return Err(error);
                }
            };
            let constraint = self.constraints.get_mut(placed.claim).and_then(|list| list.get_mut(position));
            let added = match (&form, constraint) {
                (Some(form), Some(constraint)) => constraint.add(form),
                _ => false,
            };
            if added {
                placed.constraints += 1;
                continue;
            }
            self.revert(placed);
            let wanted = self.plan.requests.get(request).filter(|wanted| wanted.is_all());
            return match wanted {
                None => Ok(Some(Rejection::Constraint { constraint: position })),
                Some(wanted) => Err(AllocateError::AllDevices(format!(
                    "claim {}, request {}: cannot add device {} because a claim constraint would not be satisfied",
                    self.plan.claim_key(wanted.claim),
                    wanted.name,
                    self.device_id(placed.location)
                ))),
            };
        }
        Ok(None)
    }

    /// The attribute of a device that a constraint looks at: derived by the request, or published.
    ///
    /// # Errors
    ///
    /// The derived attribute fails.
    pub(crate) fn attribute(
        &mut self,
        request: usize,
        constraint: usize,
        location: Location,
        number: usize,
    ) -> Result<Option<Rc<Form>>, AllocateError> {
        let Some(wanted) = self.plan.requests.get(request) else { return Ok(None) };
        let Some(constraint) =
            self.constraints.get_mut(wanted.claim).and_then(|list| list.get_mut(constraint))
        else {
            return Ok(None);
        };
        // Of two derived attributes with one name the latter counts.
        let derived =
            wanted.asked.derived_attributes.iter().rev().find(|derived| derived.name == constraint.attribute);
        if let Some(derived) = derived {
            let key = (derived.expression.as_str(), number);
            if let Some(known) = self.derived.get(&key) {
                return Ok(Some(constraint.derived(known)));
            }
            let value = Arc::new(self.eval.derive(&derived.name, &derived.expression, location)?);
            self.derived.insert(key, value.clone());
            return Ok(Some(constraint.derived(&value)));
        }
        let Some((pool, target)) = self.eval.view.target(location) else { return Ok(None) };
        let driver = &pool.pool.id.driver;
        let target: Target<'a> = *target;
        Ok(target
            .slice()
            .device(location.device)
            .and_then(|device| constraint.published(device, number, driver)))
    }

    /// The first taint of a device that a request does not tolerate.
    pub(crate) fn untolerated_taint(&mut self, request: usize, location: Location) -> Option<TaintedBy<'a>> {
        let wanted = self.plan.requests.get(request)?;
        if let Some(taint) = self.eval.untolerated(&self.plan, wanted.kind, location) {
            return Some(TaintedBy::Driver(taint));
        }
        let tolerations = wanted.asked.tolerations;
        let (pool, target) = self.eval.view.target(location)?;
        if pool.rules.is_empty() && !self.device_rules {
            return None;
        }
        let device = target.slice().device(location.device)?;
        let of_device = if self.device_rules {
            self.eval.inventory.taint_rules(&pool.pool.id, Some(&device.name().into()))
        } else {
            Vec::new()
        };
        pool.rules
            .iter()
            .chain(&of_device)
            .find(|rule| taints::prevents(&rule.spec.taint, tolerations))
            .map(|rule| TaintedBy::Rule(rule.clone()))
    }

    /// What a counter lacks for a device, in nano-units.
    pub(crate) fn counter_shortfall(&self, location: Location, counter: u32) -> Option<Nanos> {
        let (pool, target) = self.eval.view.target(location)?;
        let Status::Usable { facts, baseline } = &pool.status else { return None };
        let device = target.slice().device(location.device)?;
        let draw = facts.draw(target.slot, device)?;
        let wanted: Nanos =
            draw.counters.iter().filter(|(one, _)| *one == counter).map(|(_, amount)| *amount).sum();
        let position = counter as usize;
        let consumed = self
            .counters
            .get(location.pool)
            .and_then(Option::as_ref)
            .and_then(|counters| counters.consumed.get(position))
            .copied()
            .unwrap_or(0);
        Some(wanted.saturating_add(consumed).saturating_sub(*baseline.available.get(position)?))
    }

    /// What is left of each counter of a pool.
    pub(crate) fn counters_left(&self, pool: usize) -> Vec<Nanos> {
        let Some(Status::Usable { baseline, .. }) = self.eval.view.pools.get(pool).map(|pool| &pool.status)
        else {
            return Vec::new();
        };
        let consumed = self.counters.get(pool).and_then(Option::as_ref);
        baseline
            .available
            .iter()
            .enumerate()
            .map(|(position, available)| {
                let consumed =
                    consumed.and_then(|counters| counters.consumed.get(position)).copied().unwrap_or(0);
                available.saturating_sub(consumed)
            })
            .collect()
    }

    /// `driver/pool/device`.
    pub(crate) fn device_id(&self, location: Location) -> String {
        let pool =
            self.eval.view.pools.get(location.pool).map(|pool| pool.pool.id.to_string()).unwrap_or_default();
        format!("{pool}/{}", self.eval.view.device(location).map_or("", DeviceRef::name))
    }

    /// Everything that placing a device changes.
    #[cfg(test)]
    pub(crate) fn fingerprint(&self) -> String {
        let constraints: Vec<Vec<_>> = self
            .constraints
            .iter()
            .map(|list| list.iter().map(|one| (one.accepted().to_vec(), one.common().cloned())).collect())
            .collect();
        // Counters are made when they are first needed.
        let counters: Vec<_> = self
            .counters
            .iter()
            .flatten()
            .filter(|counters| counters.consumed.iter().any(|amount| *amount != 0))
            .collect();
        format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {constraints:?} {counters:?}",
            self.placed,
            self.taken,
            self.marks,
            self.shares,
            self.groups,
            self.groups_before,
            self.plan.claims.len()
        )
    }

    /// The request at this position of the plan.
    pub(crate) fn request(&self, position: usize) -> Option<&Request<'a>> {
        self.plan.requests.get(position)
    }
}

/// Who set a taint.
#[derive(Clone, Debug)]
pub(crate) enum TaintedBy<'a> {
    Driver(&'a DeviceTaint),
    Rule(Arc<DeviceTaintRule>),
}

/// What a device's capacities lack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shortfall {
    Unknown,
    Missing { name: Box<str> },
    Policy { name: Box<str>, nanos: Nanos },
    Short { name: Box<str>, nanos: Nanos, format: dra_api::quantity::Format },
}

fn join_groups(
    groups: &mut BTreeMap<(usize, u32), Groups>,
    before: &mut Vec<((usize, u32), Option<Groups>)>,
    pool: usize,
    draw: &Draw,
    baseline: &Baseline,
) -> Result<(), u32> {
    for (set, of_device) in &draw.sets {
        let key = (pool, *set);
        let running = groups.get(&key).cloned();
        let current =
            running.clone().or_else(|| baseline.groups.get(*set as usize).cloned()).unwrap_or_default();
        if !current.admits(of_device) {
            return Err(*set);
        }
        before.push((key, running));
        groups.insert(key, current.with(of_device));
    }
    Ok(())
}

fn draw_counters(
    counters: &mut [Option<PoolCounters>],
    pool: usize,
    draw: &Draw,
    facts: &Facts,
    baseline: &Baseline,
) -> Result<(), u32> {
    let Some(entry) = counters.get_mut(pool) else { return Ok(()) };
    let counters = entry.get_or_insert_with(|| PoolCounters {
        consumed: vec![0; facts.counters.len()],
        overdrawn: baseline.overdrawn as usize,
    });
    counters.take(draw, baseline);
    if counters.overdrawn == 0 {
        return Ok(());
    }
    let overdrawn = |counter: &u32| {
        let position = *counter as usize;
        match (baseline.available.get(position), counters.consumed.get(position)) {
            (Some(available), Some(consumed)) => available < consumed,
            _ => false,
        }
    };
    // Name one of the device's own counters if one of them is to blame.
    let own = draw.counters.iter().map(|(counter, _)| *counter).find(overdrawn);
    let all = 0..u32::try_from(facts.counters.len()).unwrap_or(u32::MAX);
    let blamed = own.or_else(|| all.into_iter().find(overdrawn)).unwrap_or(0);
    counters.give_back(draw, baseline);
    Err(blamed)
}

impl PoolCounters {
    fn take(&mut self, draw: &Draw, baseline: &Baseline) {
        self.change(draw, baseline, Nanos::saturating_add);
    }

    fn give_back(&mut self, draw: &Draw, baseline: &Baseline) {
        self.change(draw, baseline, Nanos::saturating_sub);
    }

    fn change(&mut self, draw: &Draw, baseline: &Baseline, by: fn(Nanos, Nanos) -> Nanos) {
        for (counter, amount) in &draw.counters {
            let position = *counter as usize;
            let (Some(consumed), Some(available)) =
                (self.consumed.get_mut(position), baseline.available.get(position))
            else {
                continue;
            };
            let was = *available < *consumed;
            *consumed = by(*consumed, *amount);
            let is = *available < *consumed;
            self.overdrawn = self.overdrawn + usize::from(is) - usize::from(was);
        }
    }
}

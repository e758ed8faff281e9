//! Branches that cannot succeed.
//!
//! The scheduler's search goes through all of them, which takes exponential time. Leaving one out must not change the
//! answer, and errors are part of the answer: a selector or derived attribute that would fail on a device ends the whole
//! allocation. So a branch is hopeless only if
//!
//! - the devices that are still usable cannot satisfy a request, or a run of requests of the same kind, by counting, and
//! - nothing on the way to that failure can end the allocation, nor run into the limit of devices per claim.
//!
//! Usable is what the state accepts now. Going deeper only takes devices, counters, capacity and choices of constraints
//! away, so what is rejected now stays rejected. (Only a device that draws a negative amount of a counter gives something
//! back; where there is one, every branch is gone through.)

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::amount::Nanos;
use crate::constraint::{Constraint, Form, Number, Rule, Set};
use crate::plan::Request;
use crate::state::State;
use crate::view::{Location, PoolView, Status};

const START: Location = Location { pool: 0, target: 0, device: 0 };

/// Whether a request that has `taken` devices cannot be satisfied with devices from `from` on, or if it can, the
/// requests of its kind that follow cannot.
pub(crate) fn is_hopeless(state: &mut State<'_>, request: usize, taken: usize, from: Location) -> bool {
    let Some(missing) = state.request(request).map(|request| request.count().saturating_sub(taken)) else {
        return false;
    };
    let gives_back =
        |pool: &PoolView<'_>| matches!(&pool.status, Status::Usable { facts, .. } if facts.gives_back);
    if state.eval.view.pools.iter().any(gives_back) {
        return false;
    }
    let bounded = has_bounds(state, request);
    let Some(usable) = usable(state, request, from, (!bounded).then_some(missing)) else { return false };
    if most(state, request, &usable) < missing {
        return true;
    }
    let Some(total) = needed_in_all(state, request, missing) else { return false };
    let Some(usable) = self::usable(state, request, START, (!bounded).then_some(total)) else { return false };
    if usable.iter().any(|device| device.shareable) {
        return false;
    }
    most(state, request, &usable) < total
}

/// A device that the request could take now.
struct Usable {
    location: Location,
    number: usize,
    /// It may be taken more than once.
    shareable: bool,
}

/// The devices from `from` on that the request could take now, or the first `enough` of them; `None` if looking at one
/// of them would end the allocation.
fn usable(
    state: &mut State<'_>,
    request: usize,
    from: Location,
    enough: Option<usize>,
) -> Option<Vec<Usable>> {
    let claim = state.request(request)?.claim;
    let mut found = Vec::new();
    let mut next = from;
    while let Some((location, number)) = state.eval.view.next_device(next) {
        next = Location { device: location.device + 1, ..location };
        if state.try_device(request, location, number).ok()?.is_ok() {
            let shareable = state.placed.get(claim).and_then(|placed| placed.last())?.share.is_some();
            state.undo(claim);
            found.push(Usable { location, number, shareable });
            if Some(found.len()) == enough {
                break;
            }
        }
    }
    Some(found)
}

/// Whether more than the number of devices limits a request.
fn has_bounds(state: &State<'_>, request: usize) -> bool {
    let has_counters = state
        .eval
        .view
        .pools
        .iter()
        .any(|pool| matches!(&pool.status, Status::Usable { facts, .. } if !facts.counters.is_empty()));
    has_counters || state.request(request).is_some_and(|request| !request.constraints.is_empty())
}

/// How many devices the request and those like it still need, if the ones in between are harmless; `None` if that
/// leads no further than the request itself.
fn needed_in_all(state: &mut State<'_>, request: usize, missing: usize) -> Option<usize> {
    let current = state.request(request)?;
    let (claim, choice) = (current.claim, current.request);
    if current.asked.is_admin() || state.plan.claims.get(claim)?.may_exceed {
        return None;
    }
    let alike = |other: &Request<'_>| {
        let same_constraints = other.constraints.is_empty() && current.constraints.is_empty()
            || other.claim == claim && other.constraints == current.constraints;
        other.kind == current.kind && other.alternative.is_none() && !other.is_all() && same_constraints
    };
    let after = request + 1..state.plan.requests.len();
    let others: Vec<usize> = after.filter(|position| state.request(*position).is_some_and(alike)).collect();
    let last = *others.last()?;
    let total = others
        .iter()
        .filter_map(|position| state.request(*position))
        .fold(missing, |sum, request| sum.saturating_add(request.count()));
    if total == missing {
        return None;
    }
    // Whatever lies in between may be looked at before the failure is certain.
    for position in request + 1..last {
        let between = state.request(position)?;
        let other_alternative = between.claim == claim && between.request == choice;
        if other_alternative || others.contains(&position) {
            continue;
        }
        if between.is_all() {
            return None;
        }
        usable(state, position, START, None)?;
    }
    Some(total)
}

/// At most how many of the usable devices can be taken together.
fn most(state: &mut State<'_>, request: usize, usable: &[Usable]) -> usize {
    let mut bound = usable.len();
    let constraints = state.request(request).map_or_else(Vec::new, |request| request.constraints.clone());
    for constraint in constraints {
        let forms: Option<Vec<Rc<Form>>> = usable
            .iter()
            .map(|device| state.attribute(request, constraint, device.location, device.number).ok().flatten())
            .collect();
        let Some(forms) = forms else { continue };
        let claim = state.request(request).map_or(0, |request| request.claim);
        let Some(constraint) = state.constraints.get(claim).and_then(|list| list.get(constraint)) else {
            continue;
        };
        let limit = match (constraint.rule, constraint.compares_sets()) {
            (Rule::Match, true) => Some(most_with_common_element(&forms, constraint)),
            (Rule::Match, false) if constraint.accepted().is_empty() => most_equal(&forms, constraint),
            (Rule::Match, false) => None,
            (Rule::Distinct, true) => Some(
                forms
                    .iter()
                    .filter_map(|form| form.set.as_ref())
                    .fold(Vec::<&Set>::new(), |mut distinct, set| {
                        if !distinct.contains(&set) {
                            distinct.push(set);
                        }
                        distinct
                    })
                    .len(),
            ),
            (Rule::Distinct, false) => most_distinct(&forms),
        };
        bound = bound.min(limit.unwrap_or(usize::MAX));
    }
    bound.min(most_by_counters(state, usable))
}

/// The scalars of attributes with at most one of them; `None` if there are others.
fn scalars(forms: &[Rc<Form>]) -> Option<Vec<Option<Number>>> {
    forms
        .iter()
        .map(|form| {
            let fields = [form.text, form.int, form.bool, form.version];
            (fields.iter().flatten().count() <= 1).then(|| form.scalar())
        })
        .collect()
}

fn most_equal(forms: &[Rc<Form>], constraint: &Constraint<'_>) -> Option<usize> {
    let scalars = scalars(forms)?;
    let most = most_frequent(scalars.iter().flatten(), constraint);
    // A device without a comparable value can be the first, and then the only one.
    Some(most.max(usize::from(scalars.iter().any(Option::is_none))))
}

/// How often the most frequent value occurs.
fn most_frequent<'n>(values: impl Iterator<Item = &'n Number>, constraint: &Constraint<'_>) -> usize {
    let mut counts = vec![0; constraint.values()];
    for value in values {
        if let Some(count) = counts.get_mut(*value as usize) {
            *count += 1;
        }
    }
    counts.into_iter().max().unwrap_or(0)
}

fn most_distinct(forms: &[Rc<Form>]) -> Option<usize> {
    let scalars = scalars(forms)?;
    let values: BTreeSet<_> = scalars.iter().flatten().collect();
    // A device without a comparable value can be the first.
    Some(values.len() + usize::from(scalars.iter().any(Option::is_none)))
}

fn most_with_common_element(forms: &[Rc<Form>], constraint: &Constraint<'_>) -> usize {
    let common = constraint.common();
    let elements = forms.iter().filter_map(|form| form.set.as_ref()).flat_map(|set| &set.elements);
    let is_common = |element: &Number| common.is_none_or(|set| set.elements.binary_search(element).is_ok());
    most_frequent(elements.filter(|element| is_common(element)), constraint)
}

/// Devices that draw from one counter set only are limited by each of its counters on its own; all others count.
#[allow(clippy::type_complexity, reason = "a name for the map would hide what its key is")]
fn most_by_counters(state: &State<'_>, usable: &[Usable]) -> usize {
    // By pool and counter set: how many devices, and their amounts by counter.
    let mut sets: BTreeMap<(usize, u32), (usize, BTreeMap<u32, Vec<Nanos>>)> = BTreeMap::new();
    let mut free = 0;
    for device in usable {
        let Some(counters) = device_draw(state, device) else {
            free += 1;
            continue;
        };
        let Some((set, amounts)) = counters else { return usize::MAX };
        let (count, by_counter) = sets.entry((device.location.pool, set)).or_default();
        *count += 1;
        for (counter, amount) in amounts {
            by_counter.entry(counter).or_default().push(amount);
        }
    }
    let mut bound: usize = free;
    let mut left: BTreeMap<usize, Vec<Nanos>> = BTreeMap::new();
    for ((pool, _), (count, by_counter)) in sets {
        let left = left.entry(pool).or_insert_with(|| state.counters_left(pool));
        let mut of_set = count;
        for (counter, mut amounts) in by_counter {
            amounts.sort_unstable();
            let available = left.get(counter as usize).copied().unwrap_or(Nanos::MAX);
            let mut sum: Nanos = 0;
            let fitting = amounts
                .iter()
                .take_while(|amount| {
                    sum = sum.saturating_add(**amount);
                    sum <= available
                })
                .count();
            // Devices that leave this counter alone are not limited by it.
            of_set = of_set.min(fitting + (count - amounts.len()));
        }
        bound = bound.saturating_add(of_set);
    }
    bound
}

/// The counter set and amounts of a device that draws from exactly one set; the outer `None` if it draws nothing or
/// from several, the inner if an amount is negative.
#[allow(clippy::option_option, clippy::type_complexity)]
fn device_draw(state: &State<'_>, device: &Usable) -> Option<Option<(u32, BTreeMap<u32, Nanos>)>> {
    let (pool, target) = state.eval.view.target(device.location)?;
    let Status::Usable { facts, .. } = &pool.status else { return None };
    let draw = facts.draw(target.slot, target.slice().device(device.location.device)?)?;
    if draw.counters.iter().any(|(_, amount)| *amount < 0) {
        return Some(None);
    }
    let [(set, _)] = &*draw.sets else { return None };
    if device.shareable {
        // A further share of it may be free.
        return None;
    }
    let mut amounts = BTreeMap::new();
    for (counter, amount) in &draw.counters {
        let sum: &mut Nanos = amounts.entry(*counter).or_default();
        *sum = sum.saturating_add(*amount);
    }
    Some(Some((*set, amounts)))
}

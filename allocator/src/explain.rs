//! Why claims do not fit on a node: data first, text and JSON made from it.
//!
//! The search is run once more and remembers the request that it reached at its deepest. For this request each device is
//! asked again, with everything before it in place, and the first check that it does not pass is its reason.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

use serde::Serialize;

use crate::allocate::has_invalid_pool;
use crate::amount;
use crate::capacity::Need;
use crate::constraint::Rule;
use crate::error::AllocateError;
use crate::evaluate::Unselected;
use crate::inventory::Inventory;
use crate::objects::{DeviceTaint, Node, ResourceClaim};
use crate::plan::{Choice, Wanted};
use crate::result;
use crate::search::{Deepest, End, Limits, Search, Stop};
use crate::state::{Rejection, Shortfall, State, TaintedBy};
use crate::view::{Location, Status};

/// Why a device cannot be had for a request.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "reason", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reason {
    /// Claims have it.
    Allocated {
        /// The claims, as they were named to the inventory.
        claims: Vec<String>,
    },
    /// A request of the same question took it before.
    TakenEarlier {
        /// Claim and request.
        by: String,
    },
    /// A selector of the class or of the request is false.
    SelectorFalse {
        /// `class C` or `claim X`.
        of: String,
        /// Position of the selector.
        selector: usize,
        /// The expression, cut short if it is long.
        expression: String,
    },
    /// The device cannot be judged; in a search this ends the allocation.
    Error {
        /// The error.
        message: String,
    },
    /// The device is for other nodes.
    OtherNode,
    /// The device has binding conditions, and the gate is off.
    BindingConditionsDisabled,
    /// The request names a capacity that the device does not have.
    CapacityMissing {
        /// The capacity.
        capacity: String,
    },
    /// The capacity's policy does not allow the amount.
    CapacityPolicy {
        /// The capacity.
        capacity: String,
        /// The amount, after rounding.
        amount: String,
    },
    /// Not enough of a capacity is left.
    CapacityShort {
        /// The capacity.
        capacity: String,
        /// How much more would be needed.
        short_by: String,
    },
    /// The node does not skip the operations that the device wants skipped, or the gate is off.
    NodeOperations,
    /// The device consumes counters, and the gate is off.
    PartitionsDisabled,
    /// Other devices on a counter set are of another compatibility group.
    IncompatibleGroups {
        /// The counter set.
        counter_set: String,
    },
    /// Not enough of a counter is left.
    CounterShort {
        /// The counter set.
        counter_set: String,
        /// The counter.
        counter: String,
        /// How much more would be needed.
        short_by: String,
    },
    /// A taint is not tolerated.
    Tainted {
        /// `key=value:effect`.
        taint: String,
        /// The rule that sets it; the driver does if there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
    },
    /// A constraint of the claim would not hold.
    Constraint {
        /// Position of the constraint.
        constraint: usize,
        /// `matchAttribute` or `distinctAttribute`.
        kind: &'static str,
        /// The attribute.
        attribute: String,
    },
    /// The pool's slices are not all published.
    PoolIncomplete {
        /// Slices found.
        observed: usize,
        /// Slices announced.
        announced: i64,
    },
    /// The pool's slices contradict each other.
    PoolInvalid {
        /// In which way.
        problem: String,
    },
    /// The device could be had, but not together with what else is needed.
    Usable,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocated { claims } => write!(f, "allocated to {}", claims.join(", ")),
            Self::TakenEarlier { by } => write!(f, "taken by {by}"),
            Self::SelectorFalse { of, selector, expression } => {
                write!(f, "selector #{selector} of {of} is false: {expression}")
            }
            Self::Error { message } => f.write_str(message),
            Self::OtherNode => f.write_str("for other nodes"),
            Self::BindingConditionsDisabled => f.write_str("has binding conditions, which are disabled"),
            Self::CapacityMissing { capacity } => write!(f, "has no capacity {capacity}"),
            Self::CapacityPolicy { capacity, amount } => {
                write!(f, "capacity {capacity} cannot be taken in an amount of {amount}")
            }
            Self::CapacityShort { capacity, short_by } => {
                write!(f, "capacity {capacity} is short by {short_by}")
            }
            Self::NodeOperations => f.write_str("needs a node that can skip node operations"),
            Self::PartitionsDisabled => f.write_str("consumes counters, which are disabled"),
            Self::IncompatibleGroups { counter_set } => {
                write!(f, "compatibility groups on counter set {counter_set} differ")
            }
            Self::CounterShort { counter_set, counter, short_by } => {
                write!(f, "counter {counter_set}/{counter} is short by {short_by}")
            }
            Self::Tainted { taint, rule: None } => write!(f, "tainted {taint}"),
            Self::Tainted { taint, rule: Some(rule) } => write!(f, "tainted {taint} by rule {rule}"),
            Self::Constraint { constraint, kind, attribute } => {
                write!(f, "constraint #{constraint} ({kind} {attribute}) would not hold")
            }
            Self::PoolIncomplete { observed, announced } => {
                write!(f, "pool has {observed} of {announced} slices")
            }
            Self::PoolInvalid { problem } => write!(f, "pool is invalid: {problem}"),
            Self::Usable => f.write_str("usable, but not together with the others"),
        }
    }
}

impl Reason {
    /// What devices with this reason have in common: amounts and claims differ from device to device.
    pub(crate) fn group(&self) -> String {
        match self {
            Self::Allocated { .. } => "allocated to other claims".to_owned(),
            Self::CapacityShort { capacity, .. } => format!("capacity {capacity} too small"),
            Self::CounterShort { counter, .. } => format!("counter {counter} exhausted"),
            Self::IncompatibleGroups { .. } => "incompatible compatibility groups".to_owned(),
            other => other.to_string(),
        }
    }

    pub(crate) fn short_by(&self) -> Option<&str> {
        match self {
            Self::CapacityShort { short_by, .. } | Self::CounterShort { short_by, .. } => Some(short_by),
            _ => None,
        }
    }
}

/// A device and its reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeviceReason {
    /// `driver/pool/device`.
    pub device: String,
    /// Why not.
    #[serde(flatten)]
    pub reason: Reason,
}

/// How many devices have reasons of one sort.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReasonCount {
    /// The sort.
    pub what: String,
    /// The number of devices.
    pub devices: usize,
    /// The device that comes closest, or the first one.
    pub example: String,
    /// How much the closest device lacks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short_by: Option<String>,
}

impl ReasonCount {
    pub(crate) fn closest(&self) -> String {
        match &self.short_by {
            Some(short_by) => format!("closest {} lacks {short_by}", self.example),
            None => format!("for example {}", self.example),
        }
    }
}

/// A request, or an alternative of one, that could not be satisfied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedRequest {
    /// `namespace/name`.
    pub claim: String,
    /// `request` or `request/subrequest`.
    pub request: String,
    /// How many devices are wanted.
    pub wanted: usize,
    /// How many could be had at the same time, at most as many as wanted.
    pub found: usize,
    /// Most frequent first.
    pub summary: Vec<ReasonCount>,
    /// Devices in the order of the search; at most as many as the caller wanted to see.
    pub devices: Vec<DeviceReason>,
    /// Devices beyond that.
    pub omitted: usize,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// The claims fit.
    Fits,
    /// They do not.
    DoesNotFit,
    /// A limit was hit first.
    GaveUp,
    /// The allocation ended with an error.
    Error(String),
}

/// Why claims do not fit on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The node.
    pub node: String,
    /// What came of it.
    pub verdict: Verdict,
    /// The request that failed; all of its alternatives if it has some. Empty if the claims fit, and with an error.
    pub failed: Vec<FailedRequest>,
}

/// Longer expressions are cut in explanations.
const EXPRESSION_LENGTH: usize = 200;

impl Inventory {
    /// Explains why claims do not fit on a node, with up to `devices` devices for each request.
    pub fn explain(
        &self,
        node: &Node,
        claims: &[ResourceClaim],
        limits: Limits<'_>,
        devices: usize,
    ) -> Explanation {
        self.explain_counting(node, claims, limits, devices).0
    }

    /// Also counts the steps of the search.
    pub(crate) fn explain_counting(
        &self,
        node: &Node,
        claims: &[ResourceClaim],
        limits: Limits<'_>,
        devices: usize,
    ) -> (Explanation, u64) {
        let explain = |verdict, failed| Explanation { node: node.metadata.name.clone(), verdict, failed };
        let failed = |error: &AllocateError| explain(Verdict::Error(error.to_string()), Vec::new());
        let mut state = match self.prepare(node, claims, limits) {
            Ok(state) => state,
            Err(Stop::Error(error)) => return (failed(&error), 0),
            Err(Stop::GaveUp(_)) => return (explain(Verdict::GaveUp, Vec::new()), 0),
        };
        let mut search = Search::new(&mut state, limits).recording();
        let end = search.run();
        let deepest = search.deepest.take();
        let steps = search.steps;
        let verdict = match end {
            Err(error) => return (failed(&error), steps),
            // What was found may still not be expressible as a result.
            Ok(End::Found(chosen)) => {
                let explanation = match result::build(&state, &chosen, &mut String::new) {
                    Ok(_) => explain(Verdict::Fits, Vec::new()),
                    Err(error) => failed(&error),
                };
                return (explanation, steps);
            }
            Ok(End::DoesNotFit) if has_invalid_pool(&state) => {
                Verdict::Error(AllocateError::InvalidPools.to_string())
            }
            Ok(End::DoesNotFit) => Verdict::DoesNotFit,
            Ok(End::GaveUp(_)) => Verdict::GaveUp,
        };
        let requests = deepest.map(|deepest| failed_requests(self, node, claims, &deepest, devices));
        (explain(verdict, requests.unwrap_or_default()), steps)
    }
}

/// Each alternative of the request that the search reached at its deepest.
fn failed_requests(
    inventory: &Inventory,
    node: &Node,
    claims: &[ResourceClaim],
    deepest: &Deepest,
    limit: usize,
) -> Vec<FailedRequest> {
    let mut found = Vec::new();
    // What could be prepared once can be prepared again.
    let prepare = || inventory.prepare(node, claims, Limits::NONE);
    let alternatives = prepare().map(|state| alternatives(&state, deepest.request));
    for request in alternatives.unwrap_or_default() {
        // Each alternative starts with what was there before the request.
        let Ok(mut state) = prepare() else { break };
        let is_before = |state: &State<'_>, placed: usize| {
            let at =
                |position: usize| state.request(position).map(|request| (request.claim, request.request));
            at(placed) != at(request)
        };
        let own = request == deepest.request;
        for (placed, location, number) in &deepest.placed {
            if own || is_before(&state, *placed) {
                // It could be taken before, so it can be now.
                let _ = state.place(*placed, *location, *number);
            }
        }
        found.extend(explain_request(&mut state, request, limit));
    }
    found
}

fn alternatives(state: &State<'_>, request: usize) -> Vec<usize> {
    let Some((claim, choice)) = state.request(request).map(|request| (request.claim, request.request)) else {
        return Vec::new();
    };
    match state.plan.claims.get(claim).and_then(|plan| plan.choices.get(choice)) {
        Some(Choice::FirstOf { first, count }) => (*first..first + count).collect(),
        _ => vec![request],
    }
}

fn explain_request(state: &mut State<'_>, request: usize, limit: usize) -> Option<FailedRequest> {
    let wanted = state.request(request)?;
    let (claim, count, name) = (wanted.claim, wanted.count(), wanted.full_name());
    let exact = match &wanted.wanted {
        Wanted::Exactly(_) => None,
        Wanted::All(devices) => Some(devices.clone()),
    };
    let already = state.placed.get(claim).map_or(&[][..], |placed| placed);
    let mut taken: Vec<usize> =
        already.iter().filter(|placed| placed.request == request).map(|placed| placed.number).collect();
    let all = devices_of(state);
    // What can still be taken is taken, one after the other, as the search would.
    for (location, number) in exact.as_deref().unwrap_or(&all) {
        if taken.len() >= count {
            break;
        }
        if !taken.contains(number) && matches!(state.try_device(request, *location, *number), Ok(Ok(()))) {
            taken.push(*number);
        }
    }
    let mut reasons = Vec::new();
    for (location, number) in &all {
        if !taken.contains(number) {
            reasons.push(DeviceReason {
                device: state.device_id(*location),
                reason: reason(state, request, *location, *number),
            });
        }
    }
    reasons.extend(unusable_pools(state));
    let summary = summarise(&reasons, limit.max(1));
    let omitted = reasons.len().saturating_sub(limit);
    reasons.truncate(limit);
    Some(FailedRequest {
        claim: state.plan.claim_key(claim),
        request: name,
        wanted: count,
        found: taken.len(),
        summary,
        devices: reasons,
        omitted,
    })
}

fn devices_of(state: &State<'_>) -> Vec<(Location, usize)> {
    let mut found = Vec::new();
    let mut next = Location { pool: 0, target: 0, device: 0 };
    while let Some((location, number)) = state.eval.view.next_device(next) {
        found.push((location, number));
        next = Location { device: location.device + 1, ..location };
    }
    found
}

/// Devices in pools that cannot be used.
fn unusable_pools(state: &State<'_>) -> Vec<DeviceReason> {
    let mut found = Vec::new();
    for view in &state.eval.view.pools {
        let reason = match &view.status {
            Status::Usable { .. } => continue,
            Status::Incomplete { observed, announced } => {
                Reason::PoolIncomplete { observed: *observed, announced: *announced }
            }
            Status::Invalid(problem) => Reason::PoolInvalid { problem: problem.to_string() },
        };
        for device in view.pool.slots().iter().flat_map(|slot| slot.slice.devices()) {
            found.push(DeviceReason {
                device: format!("{}/{}", view.pool.id, device.name()),
                reason: reason.clone(),
            });
        }
    }
    found
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(EXPRESSION_LENGTH) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn reason(state: &mut State<'_>, request: usize, location: Location, number: usize) -> Reason {
    let rejection = match state.try_device(request, location, number) {
        Err(error) => return Reason::Error { message: cut(&error.to_string()) },
        Ok(Ok(())) => {
            if let Some(claim) = state.request(request).map(|request| request.claim) {
                state.undo(claim);
            }
            return Reason::Usable;
        }
        Ok(Err(rejection)) => rejection,
    };
    match rejection {
        Rejection::InUse | Rejection::InUseBySameClaim => in_use(state, location, number),
        Rejection::Unselected => unselected(state, request, location),
        Rejection::Capacity => capacity(state, request, location, number),
        Rejection::NodeOperations => Reason::NodeOperations,
        Rejection::CountersOff => Reason::PartitionsDisabled,
        Rejection::Groups { set } => {
            let name = facts(state, location).and_then(|facts| facts.sets.get(set as usize).cloned());
            Reason::IncompatibleGroups { counter_set: name.map(|name| name.to_string()).unwrap_or_default() }
        }
        Rejection::Counter { counter } => {
            let short = state.counter_shortfall(location, counter).unwrap_or(0);
            match facts(state, location).and_then(|facts| facts.counter(counter)) {
                Some((set, counter)) => Reason::CounterShort {
                    counter_set: set.to_owned(),
                    counter: counter.name.to_string(),
                    short_by: amount::quantity_like(short, counter.format).to_string(),
                },
                None => Reason::Usable,
            }
        }
        Rejection::Taint => {
            let show = |taint: &DeviceTaint| format!("{}={}:{}", taint.key, taint.value, taint.effect);
            match state.untolerated_taint(request, location) {
                Some(TaintedBy::Driver(taint)) => Reason::Tainted { taint: show(taint), rule: None },
                Some(TaintedBy::Rule(rule)) => {
                    Reason::Tainted { taint: show(&rule.spec.taint), rule: Some(rule.metadata.name.clone()) }
                }
                None => Reason::Usable,
            }
        }
        Rejection::Constraint { constraint } => {
            let claim = state.request(request).map_or(0, |request| request.claim);
            let found = state.constraints.get(claim).and_then(|list| list.get(constraint));
            Reason::Constraint {
                constraint,
                kind: match found.map(|found| found.rule) {
                    Some(Rule::Distinct) => "distinctAttribute",
                    _ => "matchAttribute",
                },
                attribute: found.map(|found| found.attribute.to_owned()).unwrap_or_default(),
            }
        }
    }
}

fn facts<'a>(state: &'a State<'_>, location: Location) -> Option<&'a crate::inventory::pool::Facts> {
    match &state.eval.view.target(location)?.0.status {
        Status::Usable { facts, .. } => Some(facts),
        _ => None,
    }
}

fn in_use(state: &State<'_>, location: Location, number: usize) -> Reason {
    let taken = state.placed.iter().flatten().find(|placed| placed.number == number);
    if let Some(request) = taken.and_then(|placed| state.request(placed.request)) {
        return Reason::TakenEarlier {
            by: format!("claim {}, request {}", state.plan.claim_key(request.claim), request.full_name()),
        };
    }
    let claims = state
        .eval
        .view
        .target(location)
        .and_then(|(pool, target)| {
            let device = target.slice().device(location.device)?;
            Some(pool.pool.device_use(device.name())?.claims())
        })
        .unwrap_or_default();
    Reason::Allocated { claims: claims.iter().map(ToString::to_string).collect() }
}

fn unselected(state: &mut State<'_>, request: usize, location: Location) -> Reason {
    let Some(wanted) = state.plan.requests.get(request) else { return Reason::OtherNode };
    let why = match state.eval.why_unselected(&state.plan, wanted, location) {
        Err(error) => return Reason::Error { message: cut(&error.to_string()) },
        Ok(why) => why,
    };
    let Some(kind) = state.plan.kinds.get(wanted.kind) else { return Reason::OtherNode };
    let expression = |selectors: &[crate::objects::DeviceSelector], position: usize| {
        selectors
            .get(position)
            .and_then(|selector| selector.cel.as_ref())
            .map_or("", |cel| &cel.expression)
            .to_owned()
    };
    match why {
        None => Reason::Usable,
        Some(Unselected::BindingConditions) => Reason::BindingConditionsDisabled,
        Some(Unselected::Node) => Reason::OtherNode,
        Some(Unselected::Class { selector }) => Reason::SelectorFalse {
            of: format!("class {}", kind.class.object.metadata.name),
            selector,
            expression: cut(&expression(&kind.class.object.spec.selectors, selector)),
        },
        Some(Unselected::Request { selector }) => Reason::SelectorFalse {
            of: format!("claim {}", state.plan.claim_key(wanted.claim)),
            selector,
            expression: cut(&expression(wanted.asked.selectors, selector)),
        },
    }
}

fn capacity(state: &mut State<'_>, request: usize, location: Location, number: usize) -> Reason {
    let kind = state.request(request).map_or(0, |request| request.kind);
    let need = state.eval.need(&state.plan, kind, location);
    if let Need::Fatal(message) = &*need {
        return Reason::Error { message: cut(message) };
    }
    match state.capacity_shortfall(&need, location, number) {
        None | Some(Shortfall::Unknown) => Reason::Usable,
        Some(Shortfall::Missing { name }) => Reason::CapacityMissing { capacity: name.into() },
        Some(Shortfall::Policy { name, nanos }) => {
            Reason::CapacityPolicy { capacity: name.into(), amount: amount::quantity(nanos).to_string() }
        }
        Some(Shortfall::Short { name, nanos, format }) => Reason::CapacityShort {
            capacity: name.into(),
            short_by: amount::quantity_like(nanos, format).to_string(),
        },
    }
}

fn summarise(reasons: &[DeviceReason], limit: usize) -> Vec<ReasonCount> {
    let mut counts: BTreeMap<String, ReasonCount> = BTreeMap::new();
    let parse = |text: &str| dra_api::quantity::Quantity::parse(text).ok();
    for DeviceReason { device, reason } in reasons {
        let entry = counts.entry(reason.group()).or_insert_with_key(|what| ReasonCount {
            what: what.clone(),
            devices: 0,
            example: device.clone(),
            short_by: reason.short_by().map(str::to_owned),
        });
        entry.devices += 1;
        if let (Some(new), Some(best)) = (reason.short_by(), entry.short_by.as_deref())
            && parse(new) < parse(best)
        {
            entry.short_by = Some(new.to_owned());
            entry.example.clone_from(device);
        }
    }
    let mut list: Vec<_> = counts.into_values().collect();
    list.sort_by(|a, b| b.devices.cmp(&a.devices).then_with(|| a.what.cmp(&b.what)));
    list.truncate(limit);
    list
}

impl Explanation {
    /// For people, in at most `limit` bytes.
    pub fn text(&self, limit: usize) -> String {
        let mut text = match &self.verdict {
            Verdict::Fits => format!("node {}: fits\n", self.node),
            Verdict::DoesNotFit => format!("node {}: does not fit\n", self.node),
            Verdict::GaveUp => format!("node {}: gave up before there was an answer\n", self.node),
            Verdict::Error(error) => format!("node {}: {error}\n", self.node),
        };
        for failed in &self.failed {
            // Writing to a String does not fail.
            let _ = writeln!(
                text,
                "  claim {}, request {}: {} of {} devices",
                failed.claim, failed.request, failed.found, failed.wanted
            );
            for count in &failed.summary {
                let _ = writeln!(text, "    {:>5} {} ({})", count.devices, count.what, count.closest());
            }
            for device in &failed.devices {
                let _ = writeln!(text, "    {}: {}", device.device, device.reason);
            }
            if failed.omitted > 0 {
                let _ = writeln!(text, "    and {} more devices", failed.omitted);
            }
        }
        bound(text, limit)
    }

    /// For programs, in at most `limit` bytes: devices are left out until it fits, then reasons, then requests.
    ///
    /// `None` if not even the verdict fits.
    pub fn json(&self, limit: usize) -> Option<String> {
        let mut reduced = self.clone();
        loop {
            let text = serde_json::to_string(&reduced).ok()?;
            if text.len() <= limit {
                return Some(text);
            }
            if let Some(failed) = reduced.failed.iter_mut().max_by_key(|failed| failed.devices.len())
                && !failed.devices.is_empty()
            {
                let keep = failed.devices.len() / 2;
                failed.omitted += failed.devices.len() - keep;
                failed.devices.truncate(keep);
            } else if reduced.failed.iter().any(|failed| !failed.summary.is_empty()) {
                for failed in &mut reduced.failed {
                    failed.summary.truncate(failed.summary.len() / 2);
                }
            } else {
                reduced.failed.pop()?;
            }
        }
    }
}

/// Cuts a text at the last whole line or character that fits, and says so if there is room.
pub(crate) fn bound(text: String, limit: usize) -> String {
    const MORE: &str = "…\n";
    if text.len() <= limit {
        return text;
    }
    let room = limit.saturating_sub(MORE.len());
    let kept = text.get(..text.floor_char_boundary(room)).unwrap_or_default();
    let kept = kept.rfind('\n').map_or(kept, |end| kept.get(..=end).unwrap_or_default());
    if limit < MORE.len() { String::new() } else { format!("{kept}{MORE}") }
}

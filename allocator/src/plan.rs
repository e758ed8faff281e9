//! What a call asks for: claims and requests, checked and with everything resolved that does not depend on the search.
//!
//! Rules: the first half of `Allocate` and `validateDeviceRequest`; spec §3.1, §3.2.

use std::collections::BTreeMap;
use std::sync::Arc;

use dra_api::quantity::Quantity;

use crate::error::AllocateError;
use crate::features::Features;
use crate::inventory::{Class, Inventory};
use crate::objects::{
    CapacityRequirements, DeviceDerivedAttribute, DeviceRequest, DeviceSelector, DeviceSubRequest,
    DeviceToleration, ExactDeviceRequest, ResourceClaim,
};
use crate::search::Stop;
use crate::selector::Selector;
use crate::view::Location;

/// The most devices that an allocation can hold (`AllocationResultsMaxSize`).
pub const CLAIM_LIMIT: usize = 32;

/// What a request and a subrequest have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) class_name: &'a str,
    pub(crate) selectors: &'a [DeviceSelector],
    pub(crate) mode: &'a str,
    pub(crate) count: i64,
    pub(crate) admin_access: Option<bool>,
    pub(crate) tolerations: &'a [DeviceToleration],
    pub(crate) capacity: Option<&'a CapacityRequirements>,
    pub(crate) derived_attributes: &'a [DeviceDerivedAttribute],
}

impl<'a> From<&'a ExactDeviceRequest> for Asked<'a> {
    fn from(request: &'a ExactDeviceRequest) -> Self {
        Self {
            class_name: &request.device_class_name,
            selectors: &request.selectors,
            mode: &request.allocation_mode,
            count: request.count,
            admin_access: request.admin_access,
            tolerations: &request.tolerations,
            capacity: request.capacity.as_ref(),
            derived_attributes: &request.derived_attributes,
        }
    }
}

impl<'a> From<&'a DeviceSubRequest> for Asked<'a> {
    fn from(request: &'a DeviceSubRequest) -> Self {
        Self {
            class_name: &request.device_class_name,
            selectors: &request.selectors,
            mode: &request.allocation_mode,
            count: request.count,
            admin_access: None,
            tolerations: &request.tolerations,
            capacity: request.capacity.as_ref(),
            derived_attributes: &request.derived_attributes,
        }
    }
}

impl<'a> Asked<'a> {
    pub(crate) fn is_admin(&self) -> bool {
        self.admin_access == Some(true)
    }

    pub(crate) fn capacity_requests(&self) -> Option<&'a BTreeMap<String, Quantity>> {
        self.capacity.map(|capacity| &capacity.requests)
    }

    /// Whether any device is as good for the one as for the other.
    fn same_kind(&self, other: &Self) -> bool {
        self.class_name == other.class_name
            && self.selectors == other.selectors
            && self.admin_access == other.admin_access
            && self.tolerations == other.tolerations
            && self.capacity == other.capacity
            && self.derived_attributes == other.derived_attributes
    }
}

/// Requests for which any device is equally good share a kind, and with it what is known about devices.
#[derive(Debug)]
pub(crate) struct Kind<'a> {
    pub(crate) asked: Asked<'a>,
    pub(crate) class: Arc<Class>,
    pub(crate) selectors: Vec<Selector>,
}

/// How many devices a request wants.
#[derive(Debug)]
pub(crate) enum Wanted {
    Exactly(usize),
    /// These, in this order; each with its number.
    All(Vec<(Location, usize)>),
}

/// A request without alternatives, or one alternative.
#[derive(Debug)]
#[allow(
    clippy::struct_field_names,
    reason = "a request's position among requests is called so in the API too"
)]
pub(crate) struct Request<'a> {
    pub(crate) claim: usize,
    /// Position in the claim.
    pub(crate) request: usize,
    /// Position among the alternatives.
    pub(crate) alternative: Option<usize>,
    pub(crate) name: &'a str,
    pub(crate) parent: Option<&'a str>,
    pub(crate) asked: Asked<'a>,
    pub(crate) kind: usize,
    pub(crate) wanted: Wanted,
    /// Positions of the claim's constraints that are about the request.
    pub(crate) constraints: Vec<usize>,
}

impl Request<'_> {
    /// How many devices it takes.
    pub(crate) fn count(&self) -> usize {
        match &self.wanted {
            Wanted::Exactly(count) => *count,
            Wanted::All(devices) => devices.len(),
        }
    }

    pub(crate) fn is_all(&self) -> bool {
        matches!(self.wanted, Wanted::All(_))
    }

    /// `request`, or `request/subrequest`.
    pub(crate) fn full_name(&self) -> String {
        match self.parent {
            Some(parent) => format!("{parent}/{}", self.name),
            None => self.name.to_owned(),
        }
    }
}

/// A request of a claim: positions in [`Plan::requests`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Choice {
    One(usize),
    FirstOf { first: usize, count: usize },
}

/// A claim.
#[derive(Debug)]
pub(crate) struct ClaimPlan<'a> {
    pub(crate) claim: &'a ResourceClaim,
    pub(crate) choices: Vec<Choice>,
    /// Choosing the largest alternatives would exceed the limit of devices.
    pub(crate) may_exceed: bool,
}

/// All that is asked for.
#[derive(Debug, Default)]
pub(crate) struct Plan<'a> {
    objects: &'a [ResourceClaim],
    pub(crate) claims: Vec<ClaimPlan<'a>>,
    pub(crate) requests: Vec<Request<'a>>,
    pub(crate) kinds: Vec<Kind<'a>>,
}

/// How far back requests of the same kind are searched for. A claim has at most 32 requests of 8 alternatives.
const LOOK_BACK: usize = 256;

impl<'a> Plan<'a> {
    /// Checks what can be checked of one request without looking at devices, and adds it.
    fn add(
        &mut self,
        inventory: &Inventory,
        claim: (usize, &'a ResourceClaim),
        request: (usize, &'a DeviceRequest),
        alternative: Option<(usize, &'a str)>,
        asked: Asked<'a>,
    ) -> Result<usize, AllocateError> {
        let (claim_index, claim) = claim;
        let (request_index, request) = request;
        let name = alternative.map_or(request.name.as_str(), |(_, name)| name);
        let fail =
            |why: String| AllocateError::Request(format!("claim {}, request {name}{why}", claim.key()));
        let features = inventory.features();
        if !asked.derived_attributes.is_empty() && !features.derived_attributes {
            let why = ": cannot handle request with derived attributes, the feature is disabled";
            return Err(fail(why.to_owned()));
        }
        if let Some(position) = asked.selectors.iter().position(|selector| selector.cel.is_none()) {
            let why = "CEL expression empty (unsupported selector type?)";
            return Err(fail(format!(", selector #{position}: {why}")));
        }
        if !features.admin_access && asked.admin_access.is_some() {
            return Err(fail(": admin access is requested, but the feature is disabled".to_owned()));
        }
        if asked.class_name.is_empty() {
            return Err(fail(": missing device class name (unsupported request type?)".to_owned()));
        }
        let Some(class) = inventory.class(asked.class_name) else {
            let class = asked.class_name;
            return Err(fail(format!(
                ": could not retrieve device class {class}: deviceclass.resource.k8s.io {class:?} not found"
            )));
        };
        let wanted = match asked.mode {
            "ExactCount" => Wanted::Exactly(
                usize::try_from(asked.count)
                    .map_err(|_| fail(format!(": count {} is negative", asked.count)))?,
            ),
            "All" => Wanted::All(Vec::new()),
            other => return Err(fail(format!(": unsupported count mode {other}"))),
        };
        let known = self.kinds.iter().rev().take(LOOK_BACK).position(|kind| kind.asked.same_kind(&asked));
        let kind = if let Some(back) = known {
            self.kinds.len() - 1 - back
        } else {
            let programs = inventory.programs();
            let selectors = asked.selectors.iter().map(|selector| programs.selector(selector)).collect();
            self.kinds.push(Kind { asked, class: class.clone(), selectors });
            self.kinds.len() - 1
        };
        self.requests.push(Request {
            claim: claim_index,
            request: request_index,
            alternative: alternative.map(|(position, _)| position),
            name,
            parent: alternative.map(|_| request.name.as_str()),
            asked,
            kind,
            wanted,
            constraints: Vec::new(),
        });
        Ok(self.requests.len() - 1)
    }

    /// Plans all claims. `find_all` finds the devices of a request for all devices.
    ///
    /// # Errors
    ///
    /// A request is not acceptable, or `find_all` failed.
    pub(crate) fn new(
        inventory: &Inventory,
        claims: &'a [ResourceClaim],
        mut find_all: impl FnMut(&Self, usize) -> Result<Vec<(Location, usize)>, Stop>,
    ) -> Result<Self, Stop> {
        let mut plan = Self { objects: claims, ..Self::default() };
        let features = inventory.features();
        for (claim_index, claim) in claims.iter().enumerate() {
            let mut choices = Vec::with_capacity(claim.spec.devices.requests.len());
            let mut least = 0_usize;
            let mut most = 0_usize;
            for (request_index, request) in claim.spec.devices.requests.iter().enumerate() {
                check_gates(features, claim, request)?;
                let first = plan.requests.len();
                let at = ((claim_index, claim), (request_index, request));
                let mut add = |alternative, asked| {
                    let position = plan.add(inventory, at.0, at.1, alternative, asked)?;
                    if plan.requests.get(position).is_some_and(Request::is_all) {
                        let devices = find_all(&plan, position)?;
                        if let Some(request) = plan.requests.get_mut(position) {
                            request.wanted = Wanted::All(devices);
                        }
                    }
                    Ok::<_, Stop>(plan.requests.get(position).map_or(0, Request::count))
                };
                let (fewest, largest) = if request.first_available.is_empty() {
                    let Some(exactly) = &request.exactly else {
                        return Err(Stop::Error(AllocateError::Request(format!(
                            "claim {}, request {}: neither exactly nor firstAvailable is set",
                            claim.key(),
                            request.name
                        ))));
                    };
                    let count = add(None, exactly.into())?;
                    choices.push(Choice::One(first));
                    (count, count)
                } else {
                    let mut fewest = usize::MAX;
                    let mut largest = 0;
                    for (position, alternative) in request.first_available.iter().enumerate() {
                        let count = add(Some((position, &alternative.name)), alternative.into())?;
                        fewest = fewest.min(count);
                        largest = largest.max(count);
                    }
                    choices.push(Choice::FirstOf { first, count: request.first_available.len() });
                    (fewest, largest)
                };
                if fewest > CLAIM_LIMIT - least {
                    return Err(Stop::Error(AllocateError::ClaimLimit(format!(
                        "claim {}, request {}: adding {fewest} devices exceeds the claim limit of {CLAIM_LIMIT}, \
                         with {least} already accounted for",
                        claim.key(),
                        request.name
                    ))));
                }
                least += fewest;
                most = most.saturating_add(largest);
            }
            check_constraints(claim)?;
            plan.claims.push(ClaimPlan { claim, choices, may_exceed: most > CLAIM_LIMIT });
        }
        Ok(plan)
    }

    /// `ns/name` of a claim.
    pub(crate) fn claim_key(&self, claim: usize) -> String {
        self.objects.get(claim).map(ResourceClaim::key).unwrap_or_default()
    }
}

fn check_gates(
    features: &Features,
    claim: &ResourceClaim,
    request: &DeviceRequest,
) -> Result<(), AllocateError> {
    if !features.prioritized_list && !request.first_available.is_empty() {
        return Err(AllocateError::Request(format!(
            "claim {}, request {}: has subrequests, but the DRAPrioritizedList feature is disabled",
            claim.key(),
            request.name
        )));
    }
    if features.consumable_capacity {
        return Ok(());
    }
    let refuse = |what: &str, name: &str| {
        Err(AllocateError::Request(format!(
            "claim {}, {what} {name}: has capacity requests, but the DRAConsumableCapacity feature is disabled",
            claim.key()
        )))
    };
    if request.exactly.as_ref().is_some_and(|exactly| exactly.capacity.is_some()) {
        return refuse("request", &request.name);
    }
    match request.first_available.iter().find(|alternative| alternative.capacity.is_some()) {
        Some(alternative) => refuse("subrequest", &alternative.name),
        None => Ok(()),
    }
}

fn check_constraints(claim: &ResourceClaim) -> Result<(), AllocateError> {
    let unknown = claim.spec.devices.constraints.iter().position(|constraint| {
        constraint.match_attribute.is_none() && constraint.distinct_attribute.is_none()
    });
    match unknown {
        None => Ok(()),
        Some(position) => Err(AllocateError::Request(format!(
            "claim {}, constraint #{position}: empty constraint (unsupported constraint type?)",
            claim.key()
        ))),
    }
}

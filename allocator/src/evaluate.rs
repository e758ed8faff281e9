//! What can be said about a device and a kind of request regardless of what else is allocated; worked out once.
//!
//! Rules: `isSelectable`, `selectorsMatch` and the static part of `CmpRequestOverCapacity`; spec §3.3, §3.4.

use std::rc::Rc;

use crate::capacity::{self, Need};
use crate::error::AllocateError;
use crate::inventory::Inventory;
use crate::inventory::slice::DeviceRef;
use crate::objects::{DeviceTaint, Node};
use crate::plan::{Kind, Plan, Request};
use crate::search::{Patience, Stop};
use crate::selector::{Evaluation, Selector};
use crate::taints;
use crate::view::{Location, NodeView, Status, Target};

/// Why a device is not selectable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unselected {
    /// It has binding conditions, and the gate is off.
    BindingConditions,
    /// A selector of the class is false.
    Class { selector: usize },
    /// A selector of the request is false.
    Request { selector: usize },
    /// The device is for other nodes.
    Node,
}

/// Verdicts on one kind of request, by device number.
#[derive(Debug)]
struct Verdicts {
    /// 0 is not known yet, 1 is selectable, 2 is not.
    selectable: Vec<u8>,
    /// By taint of a slice: 0 is not known yet, 1 keeps the request away, 2 does not.
    taints: Vec<u8>,
    /// By capacity list.
    needs: Vec<Option<Rc<Need>>>,
    without_capacity: Option<Rc<Need>>,
}

/// Answers and remembers.
#[derive(Debug)]
pub(crate) struct Evaluator<'a> {
    pub(crate) inventory: &'a Inventory,
    pub(crate) node: &'a Node,
    pub(crate) view: NodeView<'a>,
    verdicts: Vec<Verdicts>,
    evaluation: Evaluation<'a>,
}

impl<'a> Evaluator<'a> {
    /// # Errors
    ///
    /// A node selector is malformed.
    pub(crate) fn new(inventory: &'a Inventory, node: &'a Node) -> Result<Self, AllocateError> {
        let view = NodeView::new(inventory, node)?;
        Ok(Self {
            inventory,
            node,
            view,
            verdicts: Vec::new(),
            evaluation: inventory.programs().evaluation(),
        })
    }

    fn verdicts(&mut self, kind: usize) -> Option<&mut Verdicts> {
        while self.verdicts.len() <= kind {
            self.verdicts.push(Verdicts {
                selectable: vec![0; self.view.devices],
                taints: vec![0; self.view.taints],
                needs: vec![None; self.view.capacity_lists],
                without_capacity: None,
            });
        }
        self.verdicts.get_mut(kind)
    }

    /// Whether a device is selectable for a request of this kind.
    ///
    /// # Errors
    ///
    /// A selector does not compile or fails.
    pub(crate) fn selectable(
        &mut self,
        plan: &Plan<'_>,
        request: &Request<'_>,
        location: Location,
        number: usize,
    ) -> Result<bool, AllocateError> {
        if let Some(known) = self.verdicts(request.kind).and_then(|verdicts| verdicts.selectable.get(number))
            && *known != 0
        {
            return Ok(*known == 1);
        }
        let selectable = self.why_unselected(plan, request, location)?.is_none();
        if let Some(entry) =
            self.verdicts(request.kind).and_then(|verdicts| verdicts.selectable.get_mut(number))
        {
            *entry = if selectable { 1 } else { 2 };
        }
        Ok(selectable)
    }

    /// The first reason why a device is not selectable; not remembered.
    ///
    /// # Errors
    ///
    /// A selector does not compile or fails.
    pub(crate) fn why_unselected(
        &mut self,
        plan: &Plan<'_>,
        request: &Request<'_>,
        location: Location,
    ) -> Result<Option<Unselected>, AllocateError> {
        let (Some(kind), Some((pool, target))) = (plan.kinds.get(request.kind), self.view.target(location))
        else {
            return Ok(Some(Unselected::Node));
        };
        let Some(device) = target.slice().device(location.device) else { return Ok(Some(Unselected::Node)) };
        let has_conditions = |device: DeviceRef<'_>| {
            device
                .extra()
                .and_then(|extra| extra.binding_conditions.as_ref())
                .is_some_and(|list| !list.is_empty())
        };
        if !self.inventory.features().device_binding_and_status && has_conditions(device) {
            return Ok(Some(Unselected::BindingConditions));
        }
        let id = || format!("{}/{}", pool.pool.id, device.name());
        let of_class = || format!("class {}", kind.class.object.metadata.name);
        let of_claim = || format!("claim {}", plan.claim_key(request.claim));
        let mut first_false = |selectors: &[Selector], owner: &dyn Fn() -> String| {
            for (position, selector) in selectors.iter().enumerate() {
                let matched = self.evaluation.matches(selector, target.slice(), location.device).map_err(
                    |failure| AllocateError::Selector(failure.describe(&owner(), position, &id())),
                )?;
                if !matched {
                    return Ok(Some(position));
                }
            }
            Ok(None)
        };
        if let Some(selector) = first_false(&kind.class.selectors, &of_class)? {
            return Ok(Some(Unselected::Class { selector }));
        }
        if let Some(selector) = first_false(&kind.selectors, &of_claim)? {
            return Ok(Some(Unselected::Request { selector }));
        }
        if target.slice().per_device {
            let included = device.includes(self.node).map_err(|error| {
                AllocateError::NodeSelection(format!(
                    "failed to parse node selector of device {}: {error}",
                    id()
                ))
            })?;
            if !included {
                return Ok(Some(Unselected::Node));
            }
        }
        Ok(None)
    }

    /// The first taint that a device's slice publishes and that keeps requests of this kind away.
    pub(crate) fn untolerated(
        &mut self,
        plan: &Plan<'_>,
        kind: usize,
        location: Location,
    ) -> Option<&'a DeviceTaint> {
        let target: Target<'a> = *self.view.target(location)?.1;
        let device = target.slice().device(location.device)?;
        let tolerations = plan.kinds.get(kind)?.asked.tolerations;
        let verdicts = self.verdicts(kind)?;
        device.taints().map(|(position, taint)| (target.first_taint + position, taint)).find_map(
            |(number, taint)| {
                let verdict = verdicts.taints.get_mut(number)?;
                if *verdict == 0 {
                    *verdict = if taints::prevents(taint, tolerations) { 1 } else { 2 };
                }
                (*verdict == 1).then_some(taint)
            },
        )
    }

    /// What a request of this kind takes of a device's capacities.
    pub(crate) fn need(&mut self, plan: &Plan<'_>, kind: usize, location: Location) -> Rc<Need> {
        let Some((_, target)) = self.view.target(location) else { return Rc::new(Need::nothing()) };
        let target: Target<'a> = *target;
        let Some(device) = target.slice().device(location.device) else { return Rc::new(Need::nothing()) };
        let list = device.capacity_list().map(|list| target.first_capacity_list + list);
        let fractional = self.inventory.features().fractional_capacity_range;
        let requests = plan.kinds.get(kind).and_then(|kind: &Kind<'_>| kind.asked.capacity_requests());
        let compute = || Rc::new(capacity::need(requests, device.capacities(), fractional));
        let Some(verdicts) = self.verdicts(kind) else { return compute() };
        let entry = match list {
            Some(list) => verdicts.needs.get_mut(list),
            None => Some(&mut verdicts.without_capacity),
        };
        entry.map_or_else(compute, |entry| entry.get_or_insert_with(compute).clone())
    }

    /// All devices for a request that wants all: selectable, and large enough if nobody else had any of them.
    ///
    /// # Errors
    ///
    /// A pool is incomplete or invalid, a device cannot be judged, or patience is at an end.
    pub(crate) fn find_all(
        &mut self,
        plan: &Plan<'_>,
        request: &Request<'_>,
        patience: &mut Patience<'_>,
    ) -> Result<Vec<(Location, usize)>, Stop> {
        let mut found = Vec::new();
        for pool in 0..self.view.pools.len() {
            let Some(view) = self.view.pools.get(pool) else { break };
            let state = match view.status {
                Status::Usable { .. } => None,
                Status::Incomplete { .. } => Some("being updated"),
                Status::Invalid(_) => Some("invalid"),
            };
            if let Some(state) = state {
                return Err(Stop::Error(AllocateError::AllDevices(format!(
                    "claim {}, request {}: asks for all devices, but resource pool {} is currently {state}",
                    plan.claim_key(request.claim),
                    request.name,
                    view.pool.id
                ))));
            }
            let targets: Vec<(usize, usize)> =
                view.targets.iter().map(|target| (target.first_device, target.slice().len())).collect();
            for (target, (first, devices)) in targets.into_iter().enumerate() {
                for device in 0..devices {
                    let location = Location { pool, target, device };
                    let number = first + device;
                    patience.look()?;
                    if !self.selectable(plan, request, location, number)? {
                        continue;
                    }
                    if self.inventory.features().consumable_capacity {
                        let need = self.need(plan, request.kind, location);
                        if let Need::Fatal(error) = &*need {
                            let name = self.view.device(location).map_or("", DeviceRef::name);
                            return Err(Stop::Error(AllocateError::Capacity(format!(
                                "claim {}, request {}: checking capacity for device {name}: {error}",
                                plan.claim_key(request.claim),
                                request.name
                            ))));
                        }
                        if !need.fits_empty_device() {
                            continue;
                        }
                    }
                    found.push((location, number));
                }
            }
        }
        Ok(found)
    }

    /// Evaluates a derived attribute on a device.
    ///
    /// # Errors
    ///
    /// It does not compile, fails, or has no value that an attribute can have.
    pub(crate) fn derive(
        &mut self,
        name: &str,
        expression: &str,
        location: Location,
    ) -> Result<crate::objects::DeviceAttribute, AllocateError> {
        let Some((pool, target)) = self.view.target(location) else {
            return Ok(crate::objects::DeviceAttribute::default());
        };
        self.evaluation.derive(expression, target.slice(), location.device).map_err(|failure| {
            let device = target.slice().device(location.device).map_or("", DeviceRef::name);
            let id = format!("{}/{device}", pool.pool.id);
            AllocateError::DerivedAttribute(failure.describe_derived(name, &id))
        })
    }
}

impl Need {
    fn nothing() -> Self {
        Self::Amounts { amounts: Vec::new(), violated: None }
    }

    /// Whether a device of which nothing is taken is enough.
    pub(crate) fn fits_empty_device(&self) -> bool {
        match self {
            Self::Fatal(_) | Self::Missing { .. } => false,
            Self::Amounts { amounts, violated } => {
                violated.is_none() && amounts.iter().all(|taken| taken.nanos <= taken.value)
            }
        }
    }
}

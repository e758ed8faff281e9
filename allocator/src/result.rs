//! From a solution to allocation results.
//!
//! Rules: the second half of `Allocate`, `createNodeSelector`; spec §7.1 to §7.3.

use std::collections::BTreeSet;

use crate::capacity::Need;
use crate::error::AllocateError;
use crate::objects::{
    AllocationResult, DeviceAllocationConfiguration, DeviceRequestAllocationResult, DeviceToleration,
    NodeSelector, NodeSelectorRequirement, NodeSelectorTerm,
};
use crate::plan::{Choice, ClaimPlan, Request};
use crate::state::{Placed, State};

/// Builds the result of each claim. `chosen` are the alternatives as (claim, request, alternative).
///
/// # Errors
///
/// Node selectors cannot be combined.
pub(crate) fn build(
    state: &State<'_>,
    chosen: &[(usize, usize, usize)],
    share_ids: &mut dyn FnMut() -> String,
) -> Result<Vec<AllocationResult>, AllocateError> {
    let mut results = Vec::with_capacity(state.plan.claims.len());
    for (claim, plan) in state.plan.claims.iter().enumerate() {
        let placed = state.placed.get(claim).map_or(&[][..], |placed| placed);
        let requests: Vec<Option<&Request<'_>>> = plan
            .choices
            .iter()
            .enumerate()
            .map(|(position, choice)| match choice {
                Choice::One(request) => state.request(*request),
                Choice::FirstOf { first, .. } => {
                    let alternative = chosen
                        .iter()
                        .find(|(of_claim, of_request, _)| (*of_claim, *of_request) == (claim, position))
                        .map_or(0, |(.., alternative)| *alternative);
                    state.request(first + alternative)
                }
            })
            .collect();
        let mut result = AllocationResult::default();
        result.devices.results =
            placed.iter().filter_map(|placed| device_result(state, plan, placed, share_ids)).collect();
        result.devices.config = config(state, plan, &requests);
        result.node_selector = node_selector(state, placed).map_err(|error| {
            AllocateError::NodeSelector(format!(
                "create NodeSelector for claim {}: {error}",
                plan.claim.metadata.name
            ))
        })?;
        results.push(result);
    }
    Ok(results)
}

fn device_result(
    state: &State<'_>,
    plan: &ClaimPlan<'_>,
    placed: &Placed,
    share_ids: &mut dyn FnMut() -> String,
) -> Option<DeviceRequestAllocationResult> {
    let request = state.request(placed.request)?;
    let (pool, target) = state.eval.view.target(placed.location)?;
    let slice = target.slice();
    let device = slice.device(placed.location.device)?;
    let conditions = state.eval.inventory.features().device_binding_and_status;
    let extra = device.extra().filter(|_| conditions);
    let list = |list: &Option<Box<[String]>>| list.as_ref().map_or_else(Vec::new, |list| list.to_vec());
    let consumed = match placed.share.as_deref() {
        Some(Need::Amounts { amounts, .. }) => {
            amounts.iter().map(|taken| (taken.name.to_string(), taken.quantity.clone())).collect()
        }
        _ => std::collections::BTreeMap::new(),
    };
    Some(DeviceRequestAllocationResult {
        request: request.full_name(),
        driver: pool.pool.id.driver.to_string(),
        pool: pool.pool.id.pool.to_string(),
        device: device.name().to_owned(),
        admin_access: request.asked.is_admin().then_some(true),
        tolerations: tolerations(plan, request).to_vec(),
        binding_conditions: extra.map(|extra| list(&extra.binding_conditions)).unwrap_or_default(),
        binding_failure_conditions: extra
            .map(|extra| list(&extra.binding_failure_conditions))
            .unwrap_or_default(),
        share_id: placed.share.as_ref().map(|_| share_ids()),
        consumed_capacity: consumed,
        skip_node_operations: slice.skip_node_operations.to_vec(),
    })
}

/// Tolerations are found by name, so with duplicate names those of the first request count.
fn tolerations<'a>(plan: &ClaimPlan<'a>, request: &Request<'a>) -> &'a [DeviceToleration] {
    let requests = &plan.claim.spec.devices.requests;
    let found = match request.parent {
        None => requests
            .iter()
            .find(|one| one.name == request.name)
            .and_then(|one| one.exactly.as_ref())
            .map(|exactly| exactly.tolerations.as_slice()),
        Some(parent) => requests
            .iter()
            .filter(|one| one.name == parent)
            .flat_map(|one| &one.first_available)
            .find(|one| one.name == request.name)
            .map(|alternative| alternative.tolerations.as_slice()),
    };
    found.unwrap_or(request.asked.tolerations)
}

fn config(
    state: &State<'_>,
    plan: &ClaimPlan<'_>,
    requests: &[Option<&Request<'_>>],
) -> Vec<DeviceAllocationConfiguration> {
    let mut config: Vec<DeviceAllocationConfiguration> = Vec::new();
    // Where the entries of each class are.
    let mut classes: Vec<(&str, std::ops::Range<usize>)> = Vec::new();
    for request in requests.iter().flatten() {
        let Some(kind) = state.plan.kinds.get(request.kind) else { continue };
        let class = &kind.class.object;
        let name = request.full_name();
        if let Some((_, entries)) = classes.iter().find(|(known, _)| *known == class.metadata.name) {
            for entry in config.get_mut(entries.clone()).unwrap_or_default() {
                entry.requests.push(name.clone());
            }
            continue;
        }
        let first = config.len();
        config.extend(class.spec.config.iter().map(|one| DeviceAllocationConfiguration {
            source: "FromClass".to_owned(),
            requests: vec![name.clone()],
            device_configuration: one.clone(),
        }));
        classes.push((&class.metadata.name, first..config.len()));
    }
    // A request is named by itself, or by the alternative that was chosen.
    let names = |request: &Request<'_>, list: &[String]| match request.parent {
        None => list.iter().any(|name| name == request.name),
        Some(parent) => list.iter().any(|name| {
            name == parent
                || name.strip_prefix(parent).and_then(|rest| rest.strip_prefix('/')) == Some(request.name)
        }),
    };
    for one in &plan.claim.spec.devices.config {
        if one.requests.is_empty() || requests.iter().flatten().any(|request| names(request, &one.requests)) {
            config.push(DeviceAllocationConfiguration {
                source: "FromClaim".to_owned(),
                requests: one.requests.clone(),
                device_configuration: one.device_configuration.clone(),
            });
        }
    }
    // An empty list means all requests.
    for entry in &mut config {
        if requests.iter().flatten().all(|request| names(request, &entry.requests)) {
            entry.requests.clear();
        }
    }
    config
}

fn node_selector(state: &State<'_>, placed: &[Placed]) -> Result<Option<NodeSelector>, String> {
    let mut term = NodeSelectorTerm::default();
    for placed in placed {
        let Some((_, target)) = state.eval.view.target(placed.location) else { continue };
        let slice = target.slice();
        let extra = slice.device(placed.location.device).and_then(crate::inventory::slice::DeviceRef::extra);
        let (has_node_name, selector) = if slice.per_device {
            (
                extra.is_some_and(|extra| extra.has_node_name),
                extra.and_then(|extra| extra.node_selector.as_ref()),
            )
        } else {
            (slice.node_name.is_some(), slice.node_selector.as_ref())
        };
        if has_node_name || extra.is_some_and(|extra| extra.binds_to_node) {
            let only = NodeSelectorRequirement {
                key: "metadata.name".to_owned(),
                operator: "In".to_owned(),
                values: vec![state.eval.node.metadata.name.clone()],
            };
            let term = NodeSelectorTerm { match_fields: vec![only], ..Default::default() };
            return Ok(Some(NodeSelector { node_selector_terms: vec![term] }));
        }
        match selector.map_or(&[][..], |selector| &selector.node_selector_terms) {
            [] => {}
            [one] => {
                merge(&one.match_fields, &mut term.match_fields);
                merge(&one.match_expressions, &mut term.match_expressions);
            }
            more => return Err(format!("unsupported ResourceSlice.NodeSelector with {} terms", more.len())),
        }
    }
    let is_empty = term.match_fields.is_empty() && term.match_expressions.is_empty();
    Ok((!is_empty).then(|| NodeSelector { node_selector_terms: vec![term] }))
}

fn merge(from: &[NodeSelectorRequirement], to: &mut Vec<NodeSelectorRequirement>) {
    for requirement in from {
        let values: BTreeSet<_> = requirement.values.iter().collect();
        let is_known = to.iter().any(|known| {
            known.key == requirement.key
                && known.operator == requirement.operator
                && known.values.iter().collect::<BTreeSet<_>>() == values
        });
        if !is_known {
            to.push(requirement.clone());
        }
    }
}

//! Node resources that devices stand for (a mapping) or need besides (an overhead), and whether a node has them
//! (`nodeallocatabledynamicresources.go`; gate `DRANodeAllocatableResources`).

use std::collections::BTreeMap;

use dra_api::quantity::Quantity;
use serde::Serialize;

use super::pod::{
    Container, PodSpec, Resources, add, add_claims, aggregate, demand, is_huge_pages, is_pod_level,
};
use crate::amount;
use crate::objects::{AllocationResult, Device, DeviceRequestAllocationResult, NodeAllocatableMapping};

/// A claim of a Pod with its allocation.
#[derive(Clone, Copy, Debug)]
pub struct AllocatedClaim<'a> {
    /// The claim's name.
    pub name: &'a str,
    /// The entry of the Pod's `resourceClaims` that refers to it.
    pub entry: &'a str,
    /// What it was given.
    pub allocation: &'a AllocationResult,
}

/// What a claim takes of the node, as in the Pod's `nodeAllocatableResourceClaimStatuses`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClaimStatus {
    /// The claim.
    pub resource_claim_name: String,
    /// The containers that refer to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// What its devices stand for, by resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappedResource>,
    /// What its devices need besides, by resource.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overhead: Vec<OverheadResource>,
}

/// An amount of a resource that devices stand for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MappedResource {
    /// The resource.
    pub name: String,
    /// How much.
    pub quantity: Quantity,
}

/// An amount of a resource that devices need.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OverheadResource {
    /// The resource.
    pub name: String,
    /// Once for the Pod.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_pod: Option<Quantity>,
    /// For each container that refers to the claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_container: Option<Quantity>,
}

/// Why it can't be said what claims take of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NodeAllocatableError {
    /// The device is not published (for this node) any more.
    #[error("claim {claim}, device {driver}/{pool}/{device}: not found")]
    NoDevice {
        /// The claim.
        claim: String,
        /// The device's driver.
        driver: String,
        /// The device's pool.
        pool: String,
        /// The device.
        device: String,
    },
    /// The resource follows a capacity, but the allocation does not say how much it took of any.
    #[error(
        "claim {claim}, device {device}: no consumed capacity, but {resource} follows capacity {capacity}"
    )]
    NothingConsumed {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// The resource.
        resource: String,
        /// The capacity.
        capacity: String,
    },
    /// Capacity and multiplier are too large to be multiplied.
    #[error("claim {claim}, device {device}: {resource} is beyond 10^24")]
    TooLarge {
        /// The claim.
        claim: String,
        /// The device.
        device: String,
        /// The resource.
        resource: String,
    },
}

/// What claims take of the node, by name; claims that take nothing are left out. `device` finds a device among the slices
/// of the node.
///
/// # Errors
///
/// A device is not found, or an allocation does not say what it consumes. The scheduler gives up a Pod then.
pub fn statuses<'a>(
    pod: &PodSpec,
    claims: &[AllocatedClaim<'_>],
    device: impl Fn(&DeviceRequestAllocationResult) -> Option<&'a Device>,
) -> Result<Vec<ClaimStatus>, NodeAllocatableError> {
    // The scheduler looks at claims only if one of their devices is known to concern the node's resources.
    let concerns = |claim: &&AllocatedClaim<'_>| {
        let devices = claim.allocation.devices.results.iter();
        devices.filter_map(&device).any(|device| !device.node_allocatable_resources.is_empty())
    };
    let mut found: BTreeMap<&str, ClaimStatus> = BTreeMap::new();
    for claim in claims.iter().filter(concerns) {
        let status = match found.remove(claim.name) {
            // Another entry for the same claim.
            Some(status) => status,
            None => status_of(claim, &device)?,
        };
        let containers = pod.init_containers.iter().chain(&pod.containers);
        let refers = |container: &&Container| {
            container.resources.claims.iter().any(|reference| reference.name == claim.entry)
        };
        let mut status = status;
        status.containers.extend(containers.filter(refers).map(|container| container.name.clone()));
        found.insert(claim.name, status);
    }
    found.retain(|_, status| !status.mapping.is_empty() || !status.overhead.is_empty());
    Ok(found.into_values().collect())
}

fn status_of<'a>(
    claim: &AllocatedClaim<'_>,
    device: &impl Fn(&DeviceRequestAllocationResult) -> Option<&'a Device>,
) -> Result<ClaimStatus, NodeAllocatableError> {
    let mut mapped = Resources::new();
    let mut overheads: BTreeMap<String, OverheadResource> = BTreeMap::new();
    for result in &claim.allocation.devices.results {
        let device = device(result).ok_or_else(|| NodeAllocatableError::NoDevice {
            claim: claim.name.to_owned(),
            driver: result.driver.clone(),
            pool: result.pool.clone(),
            device: result.device.clone(),
        })?;
        for (name, resource) in &device.node_allocatable_resources {
            if let Some(mapping) = &resource.mapping
                && let Some(amount) = mapped_amount(claim.name, name, mapping, result)?
            {
                add(&mut mapped, name, &amount);
            }
            if let Some(overhead) = &resource.overhead
                && (overhead.per_pod.is_some() || overhead.per_container.is_some())
            {
                let entry = overheads.entry(name.clone()).or_default();
                entry.name.clone_from(name);
                add_to(&mut entry.per_pod, overhead.per_pod.as_ref());
                add_to(&mut entry.per_container, overhead.per_container.as_ref());
            }
        }
    }
    Ok(ClaimStatus {
        resource_claim_name: claim.name.to_owned(),
        containers: Vec::new(),
        mapping: mapped.into_iter().map(|(name, quantity)| MappedResource { name, quantity }).collect(),
        overhead: overheads.into_values().collect(),
    })
}

fn add_to(sum: &mut Option<Quantity>, amount: Option<&Quantity>) {
    let Some(amount) = amount else { return };
    *sum = Some(match sum.take() {
        Some(before) => before.checked_add(amount).unwrap_or_else(|| before.max(amount.clone())),
        None => amount.clone(),
    });
}

/// How much of a resource one device of an allocation stands for; none if it follows a capacity that this allocation does
/// not use.
fn mapped_amount(
    claim: &str,
    resource: &str,
    mapping: &NodeAllocatableMapping,
    result: &DeviceRequestAllocationResult,
) -> Result<Option<Quantity>, NodeAllocatableError> {
    let Some(key) = mapping.capacity_key.as_deref().filter(|key| !key.is_empty()) else {
        return Ok(mapping.device_multiplier.clone());
    };
    if result.consumed_capacity.is_empty() {
        return Err(NodeAllocatableError::NothingConsumed {
            claim: claim.to_owned(),
            device: result.device.clone(),
            resource: resource.to_owned(),
            capacity: key.to_owned(),
        });
    }
    let Some(consumed) = result.consumed_capacity.get(key) else { return Ok(None) };
    match &mapping.capacity_multiplier {
        None => Ok(Some(consumed.clone())),
        Some(multiplier) => {
            amount::product(consumed, multiplier).map(Some).ok_or_else(|| NodeAllocatableError::TooLarge {
                claim: claim.to_owned(),
                device: result.device.clone(),
                resource: resource.to_owned(),
            })
        }
    }
}

/// Whether a claim has a device that stands for node resources: such a claim can't be shared between Pods.
pub fn has_mapped_device<'a>(
    allocation: &AllocationResult,
    device: impl Fn(&DeviceRequestAllocationResult) -> Option<&'a Device>,
) -> bool {
    let devices = allocation.devices.results.iter();
    devices
        .filter_map(device)
        .any(|device| device.node_allocatable_resources.values().any(|resource| resource.mapping.is_some()))
}

/// Why a Pod does not fit a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// In the scheduler's words.
    pub reasons: Vec<String>,
    /// Whether it would not fit the empty node either, or any node.
    pub unresolvable: bool,
}

/// Whether a node with so much `allocatable`, of which `requested` is taken, can also serve the claims of a Pod. Without
/// such claims this is nobody's business here.
///
/// # Errors
///
/// Why it cannot.
pub fn check(
    pod: &PodSpec,
    statuses: &[ClaimStatus],
    allocatable: &Resources,
    requested: &Resources,
) -> Result<(), Misfit> {
    if statuses.is_empty() {
        return Ok(());
    }
    covered(pod, statuses).map_err(|reason| Misfit { reasons: vec![reason], unresolvable: true })?;
    let mut misfit = Misfit { reasons: Vec::new(), unresolvable: false };
    for (name, wanted) in demand(pod, statuses) {
        let units = |quantity: &Quantity| {
            let units = if name == "cpu" { quantity.milli_value() } else { quantity.value() };
            units.unwrap_or(i64::MAX)
        };
        let is_checked =
            matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") || is_huge_pages(&name);
        let wanted = units(&wanted);
        let all = allocatable.get(&name).map_or(0, units);
        let taken = requested.get(&name).map_or(0, units);
        if is_checked && wanted > 0 && wanted > all.saturating_sub(taken) {
            misfit.reasons.push(format!("Insufficient {name}"));
            misfit.unresolvable |= wanted > all;
        }
    }
    if misfit.reasons.is_empty() { Ok(()) } else { Err(misfit) }
}

/// Whether what is asked for the Pod as a whole covers containers and claims (`validatePodLevelResourcesCoverDRA`).
fn covered(pod: &PodSpec, statuses: &[ClaimStatus]) -> Result<(), String> {
    let Some(whole) = &pod.resources else { return Ok(()) };
    let mut requests = aggregate(pod, |container| &container.resources.requests);
    add_claims(&mut requests, statuses);
    for (name, most) in whole.requests.iter().filter(|(name, _)| is_pod_level(name)) {
        if requests.get(name).is_some_and(|sum| sum > most) {
            return Err(format!(
                "pod level request for {name} is insufficient to cover the aggregated container and node-allocatable DRA \
                 requests"
            ));
        }
    }
    let mut limits = aggregate(pod, |container| &container.resources.limits);
    add_claims(&mut limits, statuses);
    for (name, most) in whole.limits.iter().filter(|(name, _)| is_huge_pages(name)) {
        if limits.get(name).is_some_and(|sum| sum > most) {
            return Err(format!(
                "pod level limit for {name} is insufficient to cover the aggregated container and node-allocatable DRA \
                 limits"
            ));
        }
    }
    for container in &pod.containers {
        let own = own_share(statuses, &container.name);
        for (name, limit) in &container.resources.limits {
            let Some(most) = whole.limits.get(name).filter(|_| !is_huge_pages(name)) else { continue };
            let mut sum = Resources::from([(name.clone(), limit.clone())]);
            if let Some(share) = own.get(name) {
                add(&mut sum, name, share);
            }
            if sum.values().any(|sum| sum > most) {
                return Err(format!(
                    "pod level limit for {name} is insufficient to cover the limit and DRA overhead for container {}",
                    container.name
                ));
            }
        }
    }
    Ok(())
}

/// What the claims that a container refers to take (`GetContainerDRAAllocations`).
fn own_share(statuses: &[ClaimStatus], container: &str) -> Resources {
    let mut share = Resources::new();
    for status in statuses.iter().filter(|status| status.containers.iter().any(|name| name == container)) {
        for mapped in &status.mapping {
            add(&mut share, &mapped.name, &mapped.quantity);
        }
        for overhead in &status.overhead {
            for amount in overhead.per_pod.iter().chain(&overhead.per_container) {
                add(&mut share, &overhead.name, amount);
            }
        }
    }
    share
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "JSON is written at the place of use")]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn device(resources: Value) -> Device {
        serde_json::from_value(json!({"name": "d", "nodeAllocatableResources": resources})).unwrap()
    }

    fn allocation(consumed: &[Value]) -> AllocationResult {
        let results: Vec<_> = consumed
            .iter()
            .map(|consumed| json!({"request": "r", "driver": "a.dev", "pool": "p", "device": "d", "consumedCapacity": consumed}))
            .collect();
        serde_json::from_value(json!({"devices": {"results": results}})).unwrap()
    }

    fn pod(spec: Value) -> PodSpec {
        serde_json::from_value(spec).unwrap()
    }

    /// Two containers of which the first refers to the claim.
    fn two_containers() -> PodSpec {
        pod(json!({"containers": [
            {"name": "c0", "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}, "claims": [{"name": "entry"}]}},
            {"name": "c1", "resources": {"requests": {"cpu": "500m"}}},
        ]}))
    }

    fn status(
        pod: &PodSpec,
        device: &Device,
        allocation: &AllocationResult,
    ) -> Result<Vec<ClaimStatus>, NodeAllocatableError> {
        statuses(pod, &[AllocatedClaim { name: "claim", entry: "entry", allocation }], |_| Some(device))
    }

    fn resources(of: Value) -> Resources {
        serde_json::from_value(of).unwrap()
    }

    #[test]
    fn a_capacity_that_is_taken_counts_as_the_nodes_resource() {
        let cpus = device(
            json!({"cpu": {"mapping": {"capacityKey": "cpu.example.com/cpu", "capacityMultiplier": 1}}}),
        );
        let ten = allocation(&[json!({"cpu.example.com/cpu": "10"})]);
        let found = status(&two_containers(), &cpus, &ten).unwrap();
        assert_eq!(
            serde_json::to_value(&found).unwrap(),
            json!([{"resourceClaimName": "claim", "containers": ["c0"], "mapping": [{"name": "cpu", "quantity": "10"}]}])
        );
        assert_eq!(demand(&two_containers(), &found)["cpu"], Quantity::parse("11500m").unwrap());
    }

    #[test]
    fn multipliers_scale_capacities_and_devices() {
        let of = |mapping: Value, consumed: &[Value]| {
            let device = device(json!({"memory": {"mapping": mapping}}));
            let found = status(&two_containers(), &device, &allocation(consumed)).unwrap();
            found.first().map(|status| status.mapping[0].quantity.to_string())
        };
        let half = json!({"capacityKey": "m", "capacityMultiplier": "500m"});
        assert_eq!(of(half.clone(), &[json!({"m": "4Gi"}), json!({"m": "2Gi"})]), Some("3Gi".to_owned()));
        assert_eq!(of(half, &[json!({"other": "4Gi"})]), None);
        assert_eq!(of(json!({"deviceMultiplier": "2Gi"}), &[json!({}), json!({})]), Some("4Gi".to_owned()));
    }

    #[test]
    fn overheads_are_charged_for_the_pod_and_for_each_container_that_uses_the_claim() {
        let xpu = device(json!({"memory": {"overhead": {"perPod": "8Gi", "perContainer": "1Gi"}}}));
        let both = pod(
            json!({"initContainers": [{"name": "i", "resources": {"claims": [{"name": "entry"}]}}], "containers": [
                {"name": "c", "resources": {"requests": {"memory": "1Gi"}, "claims": [{"name": "entry"}]}},
            ]}),
        );
        let found = status(&both, &xpu, &allocation(&[json!({})])).unwrap();
        assert_eq!(found[0].containers, ["i", "c"]);
        assert_eq!(demand(&both, &found)["memory"], Quantity::parse("11Gi").unwrap());
        // Of two devices each has its overhead.
        let found = status(&both, &xpu, &allocation(&[json!({}), json!({})])).unwrap();
        assert_eq!(found[0].overhead[0].per_pod, Some(Quantity::parse("16Gi").unwrap()));
    }

    #[test]
    fn devices_that_do_not_concern_the_node_leave_no_status() {
        assert_eq!(status(&two_containers(), &device(json!({})), &allocation(&[json!({})])), Ok(vec![]));
        let none = statuses(
            &two_containers(),
            &[AllocatedClaim { name: "claim", entry: "entry", allocation: &allocation(&[json!({})]) }],
            |_| None,
        );
        assert_eq!(none, Ok(vec![]));
    }

    #[test]
    fn an_allocation_that_does_not_say_what_it_takes_is_an_error() {
        let cpus = device(json!({"cpu": {"mapping": {"capacityKey": "c", "capacityMultiplier": 1}}}));
        let error = status(&two_containers(), &cpus, &allocation(&[json!({})])).unwrap_err();
        assert_eq!(
            error.to_string(),
            "claim claim, device d: no consumed capacity, but cpu follows capacity c"
        );
        let huge = device(json!({"cpu": {"mapping": {"capacityKey": "c", "capacityMultiplier": "1e30"}}}));
        let error = status(&two_containers(), &huge, &allocation(&[json!({"c": "1e30"})])).unwrap_err();
        assert!(matches!(error, NodeAllocatableError::TooLarge { .. }));
    }

    #[test]
    fn the_node_must_have_enough_left() {
        let cpus = device(json!({"cpu": {"mapping": {"deviceMultiplier": 10}}}));
        let found = status(&two_containers(), &cpus, &allocation(&[json!({})])).unwrap();
        let on = |all: &str, taken: &str| {
            check(
                &two_containers(),
                &found,
                &resources(json!({"cpu": all})),
                &resources(json!({"cpu": taken})),
            )
        };
        assert_eq!(on("12", "500m"), Ok(()));
        let short = |unresolvable| Err(Misfit { reasons: vec!["Insufficient cpu".to_owned()], unresolvable });
        assert_eq!(on("12", "600m"), short(false));
        assert_eq!(on("11", "0"), short(true));
    }

    #[test]
    fn huge_pages_and_several_shortages_are_named() {
        let device = device(
            json!({"memory": {"overhead": {"perPod": "8Gi"}}, "hugepages-2Mi": {"overhead": {"perPod": "4Mi"}}}),
        );
        let found = status(&two_containers(), &device, &allocation(&[json!({})])).unwrap();
        let misfit = check(
            &two_containers(),
            &found,
            &resources(json!({"cpu": 64, "memory": "1Gi"})),
            &Resources::new(),
        );
        assert_eq!(misfit.unwrap_err().reasons, ["Insufficient hugepages-2Mi", "Insufficient memory"]);
    }

    #[test]
    fn what_is_asked_for_the_pod_must_cover_containers_and_claims() {
        let device = device(
            json!({"cpu": {"mapping": {"deviceMultiplier": 2}}, "memory": {"overhead": {"perPod": "1Gi"}}}),
        );
        let node = resources(json!({"cpu": 64, "memory": "64Gi"}));
        let with = |whole: Value| {
            let mut pod = two_containers();
            pod.resources = Some(serde_json::from_value(whole).unwrap());
            let found = status(&pod, &device, &allocation(&[json!({})])).unwrap();
            check(&pod, &found, &node, &Resources::new()).map_err(|misfit| misfit.reasons.join(", "))
        };
        assert_eq!(with(json!({"requests": {"cpu": "3500m"}, "limits": {"memory": "2Gi"}})), Ok(()));
        let short = with(json!({"requests": {"cpu": "3"}})).unwrap_err();
        assert!(short.starts_with("pod level request for cpu is insufficient"), "{short}");
        let short = with(json!({"limits": {"memory": "1500Mi"}})).unwrap_err();
        assert!(short.ends_with("cover the limit and DRA overhead for container c0"), "{short}");
    }

    #[test]
    fn claims_with_mapped_devices_cannot_be_shared_and_those_with_overhead_can() {
        let mapped = device(json!({"cpu": {"mapping": {"deviceMultiplier": 1}}}));
        let overhead = device(json!({"cpu": {"overhead": {"perPod": 1}}}));
        assert!(has_mapped_device(&allocation(&[json!({})]), |_| Some(&mapped)));
        assert!(!has_mapped_device(&allocation(&[json!({})]), |_| Some(&overhead)));
    }
}

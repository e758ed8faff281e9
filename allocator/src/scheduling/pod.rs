//! What a Pod asks for in containers and as a whole.

use std::collections::BTreeMap;

use dra_api::quantity::Quantity;
use serde::Deserialize;

use super::node_allocatable::ClaimStatus;

/// Amounts by resource.
pub type Resources = BTreeMap<String, Quantity>;

/// The parts of a Pod's spec that say what it asks for, in their JSON form.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Run before the others, one after the other.
    pub init_containers: Vec<Container>,
    /// Run together.
    pub containers: Vec<Container>,
    /// For all containers together; with cpu, memory and huge pages it takes the place of their sum.
    pub resources: Option<ContainerResources>,
    /// What running the Pod costs besides its containers.
    pub overhead: Resources,
}

/// A container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    /// Name.
    pub name: String,
    /// What it asks for.
    pub resources: ContainerResources,
    /// `Always` makes an init container one that keeps running.
    pub restart_policy: Option<String>,
}

impl Container {
    /// Whether an init container keeps running while the others run.
    pub(super) fn is_sidecar(&self) -> bool {
        self.restart_policy.as_deref() == Some("Always")
    }
}

/// What a container or a Pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerResources {
    /// What it is guaranteed.
    pub requests: Resources,
    /// What it can use at most.
    pub limits: Resources,
    /// The Pod's claims that it refers to.
    pub claims: Vec<ClaimReference>,
}

/// A reference to an entry of the Pod's `resourceClaims`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    /// The entry's name.
    pub name: String,
}

/// Adds to what is there already.
pub(super) fn add(to: &mut Resources, name: &str, amount: &Quantity) {
    let sum = match to.get(name) {
        // A sum without a result is larger than any node; the larger part stands for it.
        Some(before) => before.checked_add(amount).unwrap_or_else(|| before.max(amount).clone()),
        None => amount.clone(),
    };
    to.insert(name.to_owned(), sum);
}

fn add_all(to: &mut Resources, amounts: &Resources) {
    for (name, amount) in amounts {
        add(to, name, amount);
    }
}

fn raise_all(to: &mut Resources, amounts: &Resources) {
    for (name, amount) in amounts {
        match to.get(name) {
            Some(before) if before >= amount => {}
            _ => {
                to.insert(name.clone(), amount.clone());
            }
        }
    }
}

/// What all containers need together: the sum of those that run at the same time, or the most that init containers need
/// along the way (`aggregateContainerResourcesByFn`).
pub(super) fn aggregate(pod: &PodSpec, of: impl Fn(&Container) -> &Resources) -> Resources {
    let mut running = Resources::new();
    for container in &pod.containers {
        add_all(&mut running, of(container));
    }
    let mut sidecars = Resources::new();
    let mut most = Resources::new();
    for container in &pod.init_containers {
        if container.is_sidecar() {
            add_all(&mut running, of(container));
            add_all(&mut sidecars, of(container));
            raise_all(&mut most, &sidecars);
        } else {
            let mut now = sidecars.clone();
            add_all(&mut now, of(container));
            raise_all(&mut most, &now);
        }
    }
    raise_all(&mut running, &most);
    running
}

/// What claims add (`addDRANodeAllocatableClaimResources`).
pub(super) fn add_claims(to: &mut Resources, statuses: &[ClaimStatus]) {
    for status in statuses {
        for mapped in &status.mapping {
            add(to, &mapped.name, &mapped.quantity);
        }
        for overhead in &status.overhead {
            if let Some(once) = &overhead.per_pod {
                add(to, &overhead.name, once);
            }
            if let Some(each) = &overhead.per_container {
                for _ in &status.containers {
                    add(to, &overhead.name, each);
                }
            }
        }
    }
}

/// Resources that can be asked for a Pod as a whole.
pub(super) fn is_pod_level(resource: &str) -> bool {
    resource == "cpu" || resource == "memory" || is_huge_pages(resource)
}

pub(super) fn is_huge_pages(resource: &str) -> bool {
    resource.starts_with("hugepages-")
}

/// What a Pod with these claims needs of its node: containers and claims, or what is asked for the Pod as a whole, and the
/// Pod's own overhead (`PodRequests`).
pub fn demand(pod: &PodSpec, statuses: &[ClaimStatus]) -> Resources {
    let mut total = aggregate(pod, |container| &container.resources.requests);
    add_claims(&mut total, statuses);
    for (name, amount) in pod.resources.iter().flat_map(|resources| &resources.requests) {
        if is_pod_level(name) {
            total.insert(name.clone(), amount.clone());
        }
    }
    add_all(&mut total, &pod.overhead);
    total
}

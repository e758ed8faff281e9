//! ResourceClaims, reduced to ownership, reservation and allocation.

use std::{collections::BTreeMap, sync::Arc};

use serde::Deserialize;

use crate::{
    Meta, Uid,
    meta::{Text, compact},
    names,
    object::{DecodeError, Kind, Object, decode},
    pod::non_empty,
    quantity::Quantity,
    taint::{Toleration, WireToleration},
};

/// The controller owner of a claim (`metadata.ownerReferences[]` with `controller: true`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// `apiVersion` of the owner.
    pub api_version: Arc<str>,
    /// `kind` of the owner.
    pub kind: Arc<str>,
    /// Name of the owner, in the claim's namespace.
    pub name: Arc<str>,
    /// Uid of the owner.
    pub uid: Uid,
}

impl Owner {
    /// True for a Pod owner in exactly `v1`.
    pub fn is_pod(&self) -> bool {
        &*self.api_version == "v1" && &*self.kind == "Pod"
    }

    /// True for a PodGroup owner in any version of its group.
    pub fn is_pod_group(&self) -> bool {
        &*self.kind == "PodGroup"
            && self
                .api_version
                .strip_prefix(names::SCHEDULING_GROUP)
                .is_some_and(|rest| rest.starts_with('/'))
    }
}

/// One entry of `status.reservedFor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumer {
    /// `apiGroup`, empty for core.
    pub api_group: Arc<str>,
    /// `resource`, such as `pods`.
    pub resource: Arc<str>,
    /// Name in the claim's namespace.
    pub name: Arc<str>,
    /// Uid of the consumer.
    pub uid: Uid,
}

impl Consumer {
    /// True for a core Pod.
    pub fn is_pod(&self) -> bool {
        self.api_group.is_empty() && &*self.resource == "pods"
    }

    /// True for a PodGroup.
    pub fn is_pod_group(&self) -> bool {
        &*self.api_group == names::SCHEDULING_GROUP && &*self.resource == "podgroups"
    }
}

/// Which nodes can reach the devices of an allocation, as far as node names alone can tell
/// (`status.allocation.nodeSelector`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeReach {
    /// No node selector, or one that depends on labels: any node may be right.
    Undecided,
    /// Only these nodes, by `metadata.name`.
    Names(Box<[Arc<str>]>),
}

impl NodeReach {
    /// True unless the selector's node names exclude `node`.
    pub fn may_reach(&self, node: &str) -> bool {
        match self {
            Self::Undecided => true,
            Self::Names(names) => names.iter().any(|n| &**n == node),
        }
    }
}

/// `status.allocation` of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    /// Nodes that can reach the allocated devices.
    pub reach: NodeReach,
    /// `devices.results`, in order.
    pub devices: Box<[AllocatedDevice]>,
}

/// One device of an allocation (`status.allocation.devices.results[]`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocatedDevice {
    /// `driver`.
    pub driver: Arc<str>,
    /// `pool`; unique within the driver.
    pub pool: Arc<str>,
    /// `device`; unique within the pool.
    pub device: Arc<str>,
    /// `adminAccess` is true.
    pub admin_access: bool,
    /// `shareID`, when set.
    pub share_id: Option<Arc<str>>,
    /// `consumedCapacity`, by name.
    pub consumed: Option<Box<BTreeMap<String, Quantity>>>,
    /// `tolerations`: those of the request, as the scheduler copied them. Those in the claim's spec count for
    /// nothing once the claim is allocated.
    pub tolerations: Box<[Toleration]>,
}

/// Where a claim came from; the `source` label of the in-tree gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimSource {
    /// Made by a user.
    User,
    /// Generated from a template for a Pod or a PodGroup.
    Template,
    /// Made by the scheduler for extended resources.
    ExtendedResource,
}

/// A ResourceClaim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Identity.
    pub meta: Meta,
    /// The first controller owner, when there is one.
    pub controller: Option<Box<Owner>>,
    /// Value of the pod-claim-name annotation, when set.
    pub pod_claim_name: Option<Arc<str>>,
    /// True when the scheduler made this claim for extended resources.
    pub extended: bool,
    /// True when a request asks for admin access.
    pub admin_access: bool,
    /// True while the delete-protection finalizer is set.
    pub finalizer: bool,
    /// `status.allocation`, when set.
    pub allocation: Option<Box<Allocation>>,
    /// `status.reservedFor`, in order.
    pub reserved_for: Box<[Consumer]>,
}

impl Claim {
    /// Where the claim came from.
    pub fn source(&self) -> ClaimSource {
        if self.extended {
            ClaimSource::ExtendedResource
        } else if self.pod_claim_name.as_deref().is_some_and(|n| !n.is_empty()) {
            ClaimSource::Template
        } else {
            ClaimSource::User
        }
    }

    /// The controller owner, if it is a Pod.
    pub fn pod_owner(&self) -> Option<&Owner> {
        self.controller.as_deref().filter(|o| o.is_pod())
    }

    /// The controller owner, if it is a PodGroup.
    pub fn pod_group_owner(&self) -> Option<&Owner> {
        self.controller.as_deref().filter(|o| o.is_pod_group())
    }
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: WireClaimMeta<'a>,
    #[serde(borrow, default)]
    spec: WireSpec<'a>,
    #[serde(borrow, default)]
    status: Option<WireStatus<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireClaimMeta<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    namespace: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<Text<'a>>,
    #[serde(borrow, default)]
    annotations: Option<WireAnnotations<'a>>,
    #[serde(borrow, default)]
    owner_references: Option<Vec<WireOwner<'a>>>,
    #[serde(borrow, default)]
    finalizers: Option<Vec<Text<'a>>>,
}

#[derive(Deserialize)]
struct WireAnnotations<'a> {
    #[serde(borrow, default, rename = "resource.kubernetes.io/pod-claim-name")]
    pod_claim_name: Option<Text<'a>>,
    #[serde(borrow, default, rename = "resource.kubernetes.io/extended-resource-claim")]
    extended: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireOwner<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(default)]
    controller: Option<bool>,
}

#[derive(Deserialize, Default)]
struct WireSpec<'a> {
    #[serde(borrow, default)]
    devices: WireDevices<'a>,
}

/// `spec.devices` of a claim, as far as gates and metrics look into it.
#[derive(Deserialize, Default)]
pub(crate) struct WireDevices<'a> {
    #[serde(borrow, default)]
    requests: Option<Vec<WireRequest<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest<'a> {
    #[serde(default)]
    exactly: Option<WireExactly>,
    #[serde(borrow, default)]
    first_available: Option<Vec<&'a serde_json::value::RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireExactly {
    #[serde(default)]
    admin_access: Option<bool>,
}

impl WireDevices<'_> {
    /// True when any exact request asks for admin access (upstream `getAdminAccessMetricLabel`).
    pub(crate) fn admin_access(&self) -> bool {
        self.requests
            .iter()
            .flatten()
            .any(|r| r.exactly.as_ref().is_some_and(|e| e.admin_access == Some(true)))
    }

    /// True when any request has alternatives.
    pub(crate) fn prioritized(&self) -> bool {
        self.requests.iter().flatten().any(|r| r.first_available.as_ref().is_some_and(|l| !l.is_empty()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus<'a> {
    #[serde(borrow, default)]
    allocation: Option<WireAllocation<'a>>,
    #[serde(borrow, default)]
    reserved_for: Option<Vec<WireConsumer<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireAllocation<'a> {
    #[serde(borrow, default)]
    node_selector: Option<WireNodeSelector<'a>>,
    #[serde(borrow, default)]
    devices: Option<WireAllocated<'a>>,
}

#[derive(Deserialize)]
struct WireAllocated<'a> {
    #[serde(borrow, default)]
    results: Option<Vec<WireResult<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireResult<'a> {
    #[serde(borrow, default)]
    driver: Text<'a>,
    #[serde(borrow, default)]
    pool: Text<'a>,
    #[serde(borrow, default)]
    device: Text<'a>,
    #[serde(default)]
    admin_access: Option<bool>,
    #[serde(borrow, default, rename = "shareID")]
    share_id: Option<Text<'a>>,
    #[serde(default)]
    consumed_capacity: Option<BTreeMap<String, Quantity>>,
    #[serde(borrow, default)]
    tolerations: Option<Vec<WireToleration<'a>>>,
}

fn allocated(wire: Option<WireAllocated<'_>>) -> Box<[AllocatedDevice]> {
    wire.and_then(|w| w.results)
        .unwrap_or_default()
        .into_iter()
        .map(|r| AllocatedDevice {
            driver: r.driver.shared(),
            pool: r.pool.shared(),
            device: r.device.shared(),
            admin_access: r.admin_access == Some(true),
            share_id: non_empty(r.share_id),
            consumed: r.consumed_capacity.filter(|c| !c.is_empty()).map(Box::new),
            tolerations: r.tolerations.iter().flatten().map(WireToleration::compact).collect(),
        })
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireNodeSelector<'a> {
    #[serde(borrow, default)]
    node_selector_terms: Option<Vec<WireTerm<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireTerm<'a> {
    #[serde(borrow, default)]
    match_fields: Option<Vec<WireRequirement<'a>>>,
}

#[derive(Deserialize)]
struct WireRequirement<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    operator: Text<'a>,
    #[serde(borrow, default)]
    values: Option<Vec<Text<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireConsumer<'a> {
    #[serde(borrow, default)]
    api_group: Option<Text<'a>>,
    #[serde(borrow)]
    resource: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
}

/// Terms are alternatives: names decide only when every term is limited to names.
fn reach(selector: Option<WireNodeSelector<'_>>) -> NodeReach {
    let mut names = Vec::new();
    for term in selector.and_then(|s| s.node_selector_terms).unwrap_or_default() {
        let by_name = term
            .match_fields
            .unwrap_or_default()
            .into_iter()
            .find(|r| &*r.key == "metadata.name" && &*r.operator == "In");
        match by_name {
            Some(requirement) => {
                names.extend(requirement.values.unwrap_or_default().iter().map(Text::shared));
            }
            None => return NodeReach::Undecided,
        }
    }
    if names.is_empty() { NodeReach::Undecided } else { NodeReach::Names(names.into()) }
}

impl Object for Claim {
    const KIND: Kind =
        Kind { group: "resource.k8s.io", version: "v1", kind: "ResourceClaim", plural: "resourceclaims" };

    fn decode(json: &str) -> Result<Self, DecodeError> {
        let wire: Wire<'_> = decode(json)?;
        let m = wire.metadata;
        let meta =
            compact(&m.namespace, &m.name, &m.uid, &m.resource_version, m.deletion_timestamp.is_some())
                .map_err(DecodeError)?;
        let controller =
            m.owner_references.unwrap_or_default().into_iter().find(|o| o.controller == Some(true));
        let (pod_claim_name, extended) = match m.annotations {
            None => (None, false),
            Some(a) => (a.pod_claim_name, a.extended.as_deref() == Some("true")),
        };
        let (allocation, reserved_for) = match wire.status {
            None => (None, None),
            Some(s) => (s.allocation, s.reserved_for),
        };
        Ok(Self {
            meta,
            controller: controller.map(|o| {
                Box::new(Owner {
                    api_version: o.api_version.shared(),
                    kind: o.kind.shared(),
                    name: o.name.shared(),
                    uid: o.uid.shared(),
                })
            }),
            pod_claim_name: pod_claim_name.map(|n| n.shared()),
            extended,
            admin_access: wire.spec.devices.admin_access(),
            finalizer: m.finalizers.iter().flatten().any(|f| &**f == names::CLAIM_FINALIZER),
            allocation: allocation.map(|a| {
                Box::new(Allocation { reach: reach(a.node_selector), devices: allocated(a.devices) })
            }),
            reserved_for: reserved_for
                .unwrap_or_default()
                .into_iter()
                .map(|c| Consumer {
                    api_group: c.api_group.map_or_else(|| Arc::from(""), |g| g.shared()),
                    resource: c.resource.shared(),
                    name: c.name.shared(),
                    uid: c.uid.shared(),
                })
                .collect(),
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(metadata: &str, status: &str) -> Claim {
        Claim::decode(&format!(
            r#"{{"metadata":{{"name":"c","namespace":"ns","uid":"u","resourceVersion":"5"{metadata}}},
            "spec":{{"devices":{{"requests":[{{"name":"r","exactly":{{"deviceClassName":"g","adminAccess":true}}}}]}}}},
            "status":{{{status}}}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn a_generated_claim_knows_its_owner_entry_and_consumers() {
        let c = claim(
            r#","annotations":{"resource.kubernetes.io/pod-claim-name":"gpu","x":"y"},
            "finalizers":["a","resource.kubernetes.io/delete-protection"],
            "ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"other","uid":"u0"},
                {"apiVersion":"v1","kind":"Pod","name":"p","uid":"u1","controller":true}]"#,
            r#""allocation":{"devices":{}},"reservedFor":[{"resource":"pods","name":"p","uid":"u1"},
                {"apiGroup":"scheduling.k8s.io","resource":"podgroups","name":"g","uid":"u2"}]"#,
        );
        assert_eq!(c.pod_owner().map(|o| &*o.uid), Some("u1"));
        assert_eq!(c.pod_claim_name.as_deref(), Some("gpu"));
        assert_eq!(c.source(), ClaimSource::Template);
        assert!(c.finalizer && c.admin_access && c.allocation.is_some());
        assert!(c.reserved_for[0].is_pod() && c.reserved_for[1].is_pod_group());
    }

    #[test]
    fn only_a_pod_of_core_v1_and_a_pod_group_of_any_version_count_as_owners() {
        let owner = |api_version: &str, kind: &str| Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "n".into(),
            uid: "u".into(),
        };
        assert!(owner("v1", "Pod").is_pod());
        assert!(!owner("v2", "Pod").is_pod());
        assert!(owner("scheduling.k8s.io/v7", "PodGroup").is_pod_group());
        assert!(!owner("scheduling.k8s.iox/v1", "PodGroup").is_pod_group());
        assert!(!owner("scheduling.k8s.io", "PodGroup").is_pod_group());
    }

    #[test]
    fn node_names_of_an_allocation_exclude_other_nodes_and_labels_exclude_none() {
        let by_name = |op: &str| {
            format!(
                r#""allocation":{{"nodeSelector":{{"nodeSelectorTerms":[{{"matchFields":
                [{{"key":"metadata.name","operator":"{op}","values":["n1"]}}]}}]}}}}"#
            )
        };
        let c = claim("", &by_name("In"));
        let reach = &c.allocation.unwrap().reach;
        assert!(reach.may_reach("n1") && !reach.may_reach("n2"));
        assert_eq!(claim("", &by_name("NotIn")).allocation.unwrap().reach, NodeReach::Undecided);
        let labels = r#""allocation":{"nodeSelector":{"nodeSelectorTerms":[{"matchExpressions":
            [{"key":"zone","operator":"In","values":["a"]}]}]}}"#;
        assert_eq!(claim("", labels).allocation.unwrap().reach, NodeReach::Undecided);
        assert_eq!(claim("", r#""allocation":{}"#).allocation.unwrap().reach, NodeReach::Undecided);
    }

    #[test]
    fn allocated_devices_keep_their_tolerations_and_what_they_take() {
        let c = claim(
            "",
            r#""allocation":{"devices":{"results":[{"request":"r","driver":"d","pool":"p","device":"x"},
            {"request":"r","driver":"d","pool":"p","device":"y","adminAccess":true,"shareID":"s",
            "consumedCapacity":{"memory":"1Gi"},"tolerations":[{"key":"k","operator":"Exists","effect":"NoExecute",
            "tolerationSeconds":-9223372036854775808},{"value":"v"},{"operator":"Other"}]}]}}"#,
        );
        let devices = c.allocation.unwrap().devices;
        assert_eq!((&*devices[0].driver, &*devices[0].pool, &*devices[0].device), ("d", "p", "x"));
        assert!(devices[0].tolerations.is_empty() && devices[0].consumed.is_none());
        assert!(devices[1].admin_access && devices[1].share_id.as_deref() == Some("s"));
        assert_eq!(devices[1].consumed.as_ref().map(|c| c.len()), Some(1));
        assert_eq!(devices[1].tolerations[0].seconds, Some(i64::MIN));
        assert_eq!(devices[1].tolerations[1].operator, crate::taint::Operator::Equal);
        assert_eq!(devices[1].tolerations[2].operator, crate::taint::Operator::Unknown);
    }

    #[test]
    fn a_null_allocation_is_none() {
        assert!(claim("", r#""allocation":null"#).allocation.is_none());
    }
}

//! Pods, reduced to what claims, eviction and accounting ask of them.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Meta, ObjectKey,
    meta::{Text, WireMeta},
    names,
    object::{DecodeError, Kind, Object, decode},
    taint::WireCondition,
};

/// One entry of `spec.resourceClaims` of a Pod or a PodGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimEntry {
    /// Name of the entry, unique in its list.
    pub name: Arc<str>,
    /// `resourceClaimName`: a claim that a user made.
    pub claim_name: Option<Arc<str>>,
    /// `resourceClaimTemplateName`: a template to generate a claim from.
    pub template_name: Option<Arc<str>>,
}

/// One entry of `status.resourceClaimStatuses` of a Pod or a PodGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimStatus {
    /// Name of the entry in `spec.resourceClaims`.
    pub name: Arc<str>,
    /// Name of the generated claim; `None` says that the entry needs none.
    pub claim_name: Option<Arc<str>>,
}

/// `status.phase` of a Pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Pending, Running, Unknown or a phase of a later Kubernetes: the Pod may still need its claims.
    #[default]
    Active,
    /// `Succeeded`.
    Succeeded,
    /// `Failed`.
    Failed,
}

/// A Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Identity.
    pub meta: Meta,
    /// `status.phase`.
    pub phase: Phase,
    /// `spec.nodeName`, when set.
    pub node_name: Option<Arc<str>>,
    /// `spec.schedulingGroup.podGroupName`, when set.
    pub group: Option<Arc<str>>,
    /// `spec.resourceClaims`, in order.
    pub claims: Box<[ClaimEntry]>,
    /// `status.resourceClaimStatuses`, in order.
    pub claim_statuses: Box<[ClaimStatus]>,
    /// `status.extendedResourceClaimStatus.resourceClaimName`, when set.
    pub extended_claim: Option<Arc<str>>,
    /// `spec.priority`; 0 when absent.
    pub priority: i32,
    /// The condition `DisruptionTarget`, when there is one.
    pub disruption: Option<Box<Disruption>>,
}

/// The condition `DisruptionTarget` of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disruption {
    /// It is exactly what the taint eviction controller writes: status True, its reason and message.
    pub by_device_taint: bool,
    /// Since when its status is True.
    pub since: Option<Timestamp>,
}

impl Pod {
    /// True when the Pod will never need its claims (again): it has ended, or it is being deleted and was
    /// never given a node. A terminating Pod on a node still runs. (upstream `isPodDone`)
    pub fn is_done(&self) -> bool {
        self.phase != Phase::Active || (self.meta.deleting && self.node_name.is_none())
    }

    /// Key of an object of that name in the Pod's namespace.
    pub fn sibling(&self, name: &Arc<str>) -> ObjectKey {
        self.meta.key.sibling(name)
    }
}

#[derive(Deserialize)]
struct Wire<'a> {
    #[serde(borrow)]
    metadata: WireMeta<'a>,
    #[serde(borrow, default)]
    spec: WireSpec<'a>,
    #[serde(borrow, default)]
    status: Option<WireStatus<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct WireSpec<'a> {
    #[serde(borrow, default)]
    node_name: Option<Text<'a>>,
    #[serde(borrow, default)]
    scheduling_group: Option<WireGroup<'a>>,
    #[serde(borrow, default)]
    resource_claims: Option<Vec<WireEntry<'a>>>,
    #[serde(default)]
    priority: Option<i32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireGroup<'a> {
    #[serde(borrow, default)]
    pod_group_name: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireStatus<'a> {
    #[serde(borrow, default)]
    phase: Option<Text<'a>>,
    #[serde(borrow, default)]
    resource_claim_statuses: Option<Vec<WireClaimStatus<'a>>>,
    #[serde(borrow, default)]
    extended_resource_claim_status: Option<WireExtended<'a>>,
    /// Left as text: nearly no Pod has the condition that is looked for.
    #[serde(borrow, default)]
    conditions: Option<&'a RawValue>,
}

/// The condition `DisruptionTarget`. What cannot be read is as good as absent: it would be written again.
fn disruption(conditions: Option<&RawValue>) -> Option<Box<Disruption>> {
    let text = conditions?.get();
    if !text.contains(names::DISRUPTION_TARGET) {
        return None;
    }
    let all: Vec<WireCondition<'_>> = serde_json::from_str(text).ok()?;
    let wire = all.iter().find(|c| &*c.type_ == names::DISRUPTION_TARGET)?;
    let is_true = &*wire.status == "True";
    Some(Box::new(Disruption {
        by_device_taint: is_true
            && wire.reason.as_deref() == Some(names::DISRUPTION_REASON)
            && wire.message.as_deref() == Some(names::DISRUPTION_MESSAGE),
        since: wire.last_transition_time.filter(|_| is_true),
    }))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireExtended<'a> {
    #[serde(borrow, default)]
    resource_claim_name: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireEntry<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    resource_claim_name: Option<Text<'a>>,
    #[serde(borrow, default)]
    resource_claim_template_name: Option<Text<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireClaimStatus<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    resource_claim_name: Option<Text<'a>>,
}

/// The text, unless it is absent or empty: Go's `omitempty` makes no difference between the two.
pub(crate) fn non_empty(text: Option<Text<'_>>) -> Option<Arc<str>> {
    text.filter(|t| !t.is_empty()).map(|t| t.shared())
}

pub(crate) fn entries(wire: Option<Vec<WireEntry<'_>>>) -> Box<[ClaimEntry]> {
    wire.unwrap_or_default()
        .into_iter()
        .map(|e| ClaimEntry {
            name: e.name.shared(),
            claim_name: e.resource_claim_name.map(|n| n.shared()),
            template_name: e.resource_claim_template_name.map(|n| n.shared()),
        })
        .collect()
}

pub(crate) fn statuses(wire: Option<Vec<WireClaimStatus<'_>>>) -> Box<[ClaimStatus]> {
    wire.unwrap_or_default()
        .into_iter()
        .map(|s| ClaimStatus { name: s.name.shared(), claim_name: s.resource_claim_name.map(|n| n.shared()) })
        .collect()
}

impl Object for Pod {
    const KIND: Kind = Kind { group: "", version: "v1", kind: "Pod", plural: "pods" };

    fn decode(json: &str) -> Result<Self, DecodeError> {
        let wire: Wire<'_> = decode(json)?;
        let meta = wire.metadata.compact().map_err(DecodeError)?;
        let (phase, statuses_, extended, conditions) = match wire.status {
            None => (None, None, None, None),
            Some(s) => (s.phase, s.resource_claim_statuses, s.extended_resource_claim_status, s.conditions),
        };
        Ok(Self {
            meta,
            phase: match phase.as_deref() {
                Some("Succeeded") => Phase::Succeeded,
                Some("Failed") => Phase::Failed,
                _ => Phase::Active,
            },
            node_name: non_empty(wire.spec.node_name),
            group: wire.spec.scheduling_group.and_then(|g| non_empty(g.pod_group_name)),
            claims: entries(wire.spec.resource_claims),
            claim_statuses: statuses(statuses_),
            extended_claim: extended.and_then(|e| non_empty(e.resource_claim_name)),
            priority: wire.spec.priority.unwrap_or_default(),
            disruption: disruption(conditions),
        })
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","namespace":"ns","uid":"u1",
        "resourceVersion":"7","managedFields":[{"manager":"x"}]},
        "spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}],"schedulingGroup":{"podGroupName":"g"},
        "resourceClaims":[{"name":"a","resourceClaimTemplateName":"t"},{"name":"b","resourceClaimName":"c"}]},
        "status":{"phase":"Running","resourceClaimStatuses":[{"name":"a","resourceClaimName":"p-a-1"},{"name":"x"}],
        "extendedResourceClaimStatus":{"resourceClaimName":"ext"}}}"#;

    #[test]
    fn a_pod_keeps_what_the_controllers_read() {
        let pod = Pod::decode(POD).unwrap();
        assert_eq!(pod.meta.key.to_string(), "ns/p");
        assert_eq!(pod.node_name.as_deref(), Some("n1"));
        assert_eq!(pod.group.as_deref(), Some("g"));
        assert_eq!(pod.claims.len(), 2);
        assert_eq!(pod.claim_statuses[0].claim_name.as_deref(), Some("p-a-1"));
        assert_eq!(pod.claim_statuses[1].claim_name, None);
        assert_eq!(pod.extended_claim.as_deref(), Some("ext"));
        assert!(!pod.is_done());
    }

    #[test]
    fn a_pod_is_done_when_it_ended_or_was_deleted_before_it_had_a_node() {
        let json = |spec: &str, phase: &str, deleted: &str| {
            format!(
                r#"{{"metadata":{{"name":"p","namespace":"ns","uid":"u","resourceVersion":"1"{deleted}}},
                "spec":{{{spec}}},"status":{{"phase":"{phase}"}}}}"#
            )
        };
        let deleted = r#","deletionTimestamp":"2026-01-01T00:00:00Z""#;
        let node = r#""nodeName":"n""#;
        let done = |s: &str, p: &str, d: &str| Pod::decode(&json(s, p, d)).unwrap().is_done();
        assert!(done(node, "Succeeded", ""));
        assert!(done(node, "Failed", ""));
        assert!(done("", "Pending", deleted));
        assert!(!done(node, "Running", deleted));
        assert!(!done("", "Pending", ""));
        assert!(!done("", "SomethingNew", ""));
    }

    #[test]
    fn the_disruption_condition_is_read_where_there_is_one() {
        let with = |conditions: &str| {
            Pod::decode(&POD.replace(r#""phase":"Running""#, &format!(r#""conditions":{conditions}"#)))
                .unwrap()
        };
        assert_eq!(with("null").disruption, None);
        assert_eq!(
            with(r#"[{"type":"Ready","status":"True","message":"DisruptionTarget"}]"#).disruption,
            None
        );
        let ours = with(
            r#"[{"type":"DisruptionTarget","status":"True","reason":"DeletionByDeviceTaintManager",
            "message":"Device Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime":"2026-01-02T03:04:05Z"}]"#,
        );
        assert!(ours.disruption.is_some_and(|d| d.by_device_taint && d.since.is_some()));
        let other =
            with(r#"[{"type":"DisruptionTarget","status":"False","reason":"PreemptionByScheduler"}]"#);
        assert_eq!(other.disruption.as_deref(), Some(&Disruption { by_device_taint: false, since: None }));
    }

    #[test]
    fn a_wrong_type_is_named_by_its_field() {
        let error = Pod::decode(&POD.replace(r#""nodeName":"n1""#, r#""nodeName":7"#)).unwrap_err();
        assert!(error.0.starts_with("spec.nodeName: invalid type"), "{error}");
    }

    #[test]
    fn escaped_text_is_read_too() {
        let pod = Pod::decode(&POD.replace(r#""n1""#, "\"n\\u0031\"")).unwrap();
        assert_eq!(pod.node_name.as_deref(), Some("n1"));
    }
}

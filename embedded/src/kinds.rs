//! The table of kinds: what the API server knows of each, as data.

use jiff::Timestamp;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node, Pod},
    events::v1::Event,
    resource::{
        v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice},
        v1alpha3::ResourcePoolStatusRequest,
    },
    scheduling::v1beta1::PodGroup,
};
use serde_json::Value;

use crate::{fields::unknown_fields_of, refusal::Cause, rules};

/// How a list is merged by a strategic merge patch and by a server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lists {
    /// Replaced as a whole.
    Atomic,
    /// Texts, each once.
    Set,
    /// Objects identified by these fields.
    Map(&'static [&'static str]),
    /// The same, but a strategic merge patch replaces the list.
    MapInApply(&'static [&'static str]),
}

/// What may change through the status subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusWrites {
    /// There is no such subresource.
    None,
    /// `status` alone.
    StatusOnly,
    /// `status`, labels, annotations and finalizers.
    StatusAndMetadata,
}

/// Which part of an object a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The object without its status.
    Main,
    /// Its status.
    Status,
}

/// One version of a kind.
#[derive(Debug)]
pub(crate) struct Version {
    pub(crate) name: &'static str,
    /// Whether a PUT without resourceVersion is accepted.
    pub(crate) unconditional: bool,
}

/// A kind.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "a row of a table")]
pub(crate) struct KindInfo {
    pub(crate) group: &'static str,
    /// The first is the one in which objects are kept.
    pub(crate) versions: &'static [Version],
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) singular: &'static str,
    pub(crate) namespaced: bool,
    pub(crate) status: StatusWrites,
    /// `metadata.generation` counts changes of the spec.
    pub(crate) generation: bool,
    /// A PUT creates what is not there.
    pub(crate) create_on_update: bool,
    /// DELETE answers with the object.
    pub(crate) returns_deleted: bool,
    /// Field selectors beside `metadata.name` and `metadata.namespace`.
    pub(crate) selectable: &'static [&'static [&'static str]],
    /// Lists that are not atomic, by path without list elements.
    pub(crate) lists: &'static [(&'static [&'static str], Lists)],
    /// Fills in what the user may leave out, before validation. The old object is null for a new one.
    pub(crate) defaults: fn(&mut Value, &Value, Timestamp),
    /// What is wrong with the new object; the old one is null for a new one.
    pub(crate) validate: fn(&Value, &Value, Part) -> Vec<Cause>,
    /// Fields of an object that the kind does not have.
    pub(crate) unknown: fn(&Value) -> Vec<String>,
}

impl KindInfo {
    /// `plural.group`, as messages name it.
    pub(crate) fn resource(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `group/version`.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    pub(crate) fn version(&self, name: &str) -> Option<&'static Version> {
        self.versions.iter().find(|v| v.name == name)
    }

    /// The rule for the list at a path of field names; elements of lists are left out of the path.
    pub(crate) fn list(&self, path: &[&str]) -> Lists {
        self.lists.iter().chain(METADATA).find(|(p, _)| *p == path).map_or(Lists::Atomic, |(_, rule)| *rule)
    }
}

const METADATA: &[(&[&str], Lists)] =
    &[(&["metadata", "ownerReferences"], Lists::Map(&["uid"])), (&["metadata", "finalizers"], Lists::Set)];
const CONDITIONS: (&[&str], Lists) = (&["status", "conditions"], Lists::Map(&["type"]));
const ENTRIES: (&[&str], Lists) = (&["spec", "resourceClaims"], Lists::Map(&["name"]));
const ENTRY_STATUSES: (&[&str], Lists) = (&["status", "resourceClaimStatuses"], Lists::Map(&["name"]));

const fn version(name: &'static str, unconditional: bool) -> Version {
    Version { name, unconditional }
}

fn no_defaults(_: &mut Value, _: &Value, _: Timestamp) {}

fn all_known(_: &Value) -> Vec<String> {
    Vec::new()
}

fn always_valid(_: &Value, _: &Value, _: Part) -> Vec<Cause> {
    Vec::new()
}

const V1: &[Version] = &[version("v1", true)];

/// What most kinds have in common, so that each entry of the table shows its own.
const PLAIN: KindInfo = KindInfo {
    group: "",
    versions: &[],
    kind: "",
    plural: "",
    singular: "",
    namespaced: false,
    status: StatusWrites::None,
    generation: false,
    create_on_update: false,
    returns_deleted: true,
    selectable: &[],
    lists: &[],
    defaults: no_defaults,
    validate: always_valid,
    unknown: all_known,
};

/// Every kind there is.
pub(crate) static KINDS: [KindInfo; 12] = [
    KindInfo {
        versions: V1,
        kind: "Namespace",
        plural: "namespaces",
        singular: "namespace",
        status: StatusWrites::StatusAndMetadata,
        selectable: &[&["status", "phase"]],
        lists: &[CONDITIONS],
        defaults: rules::namespace_defaults,
        unknown: unknown_fields_of::<Namespace>,
        ..PLAIN
    },
    KindInfo {
        versions: V1,
        kind: "Node",
        plural: "nodes",
        singular: "node",
        status: StatusWrites::StatusAndMetadata,
        returns_deleted: false,
        selectable: &[&["spec", "unschedulable"]],
        lists: &[
            CONDITIONS,
            (&["spec", "taints"], Lists::Map(&["key"])),
            (&["status", "addresses"], Lists::Map(&["type"])),
        ],
        defaults: rules::node_defaults,
        unknown: unknown_fields_of::<Node>,
        ..PLAIN
    },
    KindInfo {
        versions: V1,
        kind: "Pod",
        plural: "pods",
        singular: "pod",
        namespaced: true,
        status: StatusWrites::StatusAndMetadata,
        generation: true,
        selectable: &[
            &["spec", "nodeName"],
            &["spec", "restartPolicy"],
            &["spec", "schedulerName"],
            &["status", "phase"],
        ],
        lists: &[
            CONDITIONS,
            ENTRIES,
            ENTRY_STATUSES,
            (&["spec", "containers"], Lists::Map(&["name"])),
            (&["spec", "containers", "env"], Lists::Map(&["name"])),
            (&["spec", "containers", "resources", "claims"], Lists::MapInApply(&["name"])),
            (&["spec", "initContainers"], Lists::Map(&["name"])),
            (&["spec", "initContainers", "env"], Lists::Map(&["name"])),
            (&["spec", "initContainers", "resources", "claims"], Lists::MapInApply(&["name"])),
            (&["spec", "schedulingGates"], Lists::Map(&["name"])),
            (&["spec", "volumes"], Lists::Map(&["name"])),
        ],
        defaults: rules::pod_defaults,
        validate: rules::pod,
        unknown: unknown_fields_of::<Pod>,
        ..PLAIN
    },
    KindInfo {
        group: "events.k8s.io",
        versions: V1,
        kind: "Event",
        plural: "events",
        singular: "event",
        namespaced: true,
        create_on_update: true,
        returns_deleted: false,
        selectable: &[&["reason"], &["reportingController"], &["type"]],
        validate: rules::event,
        unknown: unknown_fields_of::<Event>,
        ..PLAIN
    },
    KindInfo {
        group: "coordination.k8s.io",
        versions: &[version("v1", false)],
        kind: "Lease",
        plural: "leases",
        singular: "lease",
        namespaced: true,
        create_on_update: true,
        returns_deleted: false,
        validate: rules::lease,
        unknown: unknown_fields_of::<Lease>,
        ..PLAIN
    },
    KindInfo {
        group: "resource.k8s.io",
        versions: V1,
        kind: "DeviceClass",
        plural: "deviceclasses",
        singular: "deviceclass",
        generation: true,
        unknown: unknown_fields_of::<DeviceClass>,
        ..PLAIN
    },
    KindInfo {
        group: "resource.k8s.io",
        versions: &[version("v1", false), version("v1beta2", true), version("v1alpha3", true)],
        kind: "DeviceTaintRule",
        plural: "devicetaintrules",
        singular: "devicetaintrule",
        status: StatusWrites::StatusOnly,
        generation: true,
        lists: &[CONDITIONS],
        defaults: rules::taint_rule_defaults,
        validate: rules::taint_rule,
        unknown: unknown_fields_of::<DeviceTaintRule>,
        ..PLAIN
    },
    KindInfo {
        group: "resource.k8s.io",
        versions: V1,
        kind: "ResourceClaim",
        plural: "resourceclaims",
        singular: "resourceclaim",
        namespaced: true,
        status: StatusWrites::StatusOnly,
        lists: &[
            (&["status", "reservedFor"], Lists::Map(&["uid"])),
            (&["status", "devices"], Lists::MapInApply(&["driver", "device", "pool", "shareID"])),
            (&["status", "devices", "conditions"], Lists::MapInApply(&["type"])),
        ],
        defaults: rules::claim_defaults,
        validate: rules::claim,
        unknown: unknown_fields_of::<ResourceClaim>,
        ..PLAIN
    },
    KindInfo {
        group: "resource.k8s.io",
        versions: V1,
        kind: "ResourceClaimTemplate",
        plural: "resourceclaimtemplates",
        singular: "resourceclaimtemplate",
        namespaced: true,
        defaults: rules::template_defaults,
        validate: rules::template,
        unknown: unknown_fields_of::<ResourceClaimTemplate>,
        ..PLAIN
    },
    KindInfo {
        group: "resource.k8s.io",
        versions: &[version("v1alpha3", false)],
        kind: "ResourcePoolStatusRequest",
        plural: "resourcepoolstatusrequests",
        singular: "resourcepoolstatusrequest",
        status: StatusWrites::StatusOnly,
        lists: &[CONDITIONS],
        defaults: rules::pool_request_defaults,
        validate: rules::pool_request,
        unknown: unknown_fields_of::<ResourcePoolStatusRequest>,
        ..PLAIN
    },
    KindInfo {
        group: "resource.k8s.io",
        versions: V1,
        kind: "ResourceSlice",
        plural: "resourceslices",
        singular: "resourceslice",
        generation: true,
        selectable: &[&["spec", "nodeName"], &["spec", "driver"], &["spec", "pool", "name"]],
        defaults: rules::slice_defaults,
        validate: rules::slice,
        unknown: unknown_fields_of::<ResourceSlice>,
        ..PLAIN
    },
    KindInfo {
        group: "scheduling.k8s.io",
        versions: &[version("v1beta1", false)],
        kind: "PodGroup",
        plural: "podgroups",
        singular: "podgroup",
        namespaced: true,
        status: StatusWrites::StatusOnly,
        returns_deleted: false,
        lists: &[CONDITIONS, ENTRIES, ENTRY_STATUSES],
        defaults: rules::pod_group_defaults,
        validate: rules::pod_group,
        unknown: unknown_fields_of::<PodGroup>,
        ..PLAIN
    },
];

/// Position in [`KINDS`] of the kind called so.
pub(crate) fn position(kind: &str) -> Option<usize> {
    KINDS.iter().position(|k| k.kind == kind)
}

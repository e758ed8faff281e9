//! Defaulting and validation of each kind, as far as controllers rely on it or can run into it.
//!
//! Sources: `pkg/apis/*/validation`, `pkg/apis/*/*/defaults.go` and `pkg/registry/*/*/strategy.go` of Kubernetes
//! v1.37. What no controller writes (device attributes, probes, volumes) is not looked into.

mod claims;
mod conditions;
mod devices;
mod metadata;
mod pools;

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use self::conditions::conditions;
pub(crate) use self::{
    claims::{claim, claim_defaults, template, template_defaults},
    devices::{slice, slice_defaults, taint_rule, taint_rule_defaults},
    metadata::{changed_metadata, new_metadata},
    pools::{pool_request, pool_request_defaults},
};
use crate::{
    formats::{is_dns_label, is_dns_subdomain, is_label_key},
    kinds::Part,
    object::{at, copy, default, each, has, items, meta, seconds, set, text},
    refusal::Cause,
};

/// Keeps a PodGroup until its Pods are gone.
pub(crate) const POD_GROUP_PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";
const IMMUTABLE: &str = "field is immutable";

fn immutable(new: &Value, old: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    if !old.is_null() && at(new, path) != at(old, path) {
        causes.push(Cause::invalid(path.join("."), at(new, path), IMMUTABLE));
    }
}

/// The list, or nothing of it when it is too long: then that is all that is said about it.
fn limited<'a>(list: &'a [Value], most: usize, field: &str, causes: &mut Vec<Cause>) -> &'a [Value] {
    if list.len() > most {
        causes.push(Cause::too_many(field, list.len(), most));
        return &[];
    }
    list
}

/// A name must be a lowercase RFC 1123 label.
fn label(name: &Value, field: &str, causes: &mut Vec<Cause>) {
    if !is_dns_label(name.as_str().unwrap_or_default()) {
        causes.push(Cause::invalid(field, name, "a lowercase RFC 1123 label"));
    }
}

/// A name must be a lowercase RFC 1123 subdomain.
fn subdomain(name: &Value, field: &str, causes: &mut Vec<Cause>) {
    if !is_dns_subdomain(name.as_str().unwrap_or_default()) {
        causes.push(Cause::invalid(field, name, "a lowercase RFC 1123 subdomain"));
    }
}

// Namespaces and nodes

pub(crate) fn namespace_defaults(new: &mut Value, old: &Value, _: Timestamp) {
    if old.is_null() {
        let name = meta(new, "name").to_owned();
        set(new, &["metadata", "labels", "kubernetes.io/metadata.name"], json!(name));
        set(new, &["spec", "finalizers"], json!(["kubernetes"]));
        set(new, &["status"], json!({"phase": "Active"}));
    }
}

pub(crate) fn node_defaults(new: &mut Value, _: &Value, _: Timestamp) {
    let capacity = at(new, &["status", "capacity"]).clone();
    if !capacity.is_null() {
        default(new, &["status", "allocatable"], capacity);
    }
    default(new, &["status", "daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
}

// Pods

pub(crate) fn pod_defaults(new: &mut Value, old: &Value, now: Timestamp) {
    for (field, value) in [
        ("dnsPolicy", json!("ClusterFirst")),
        ("restartPolicy", json!("Always")),
        ("securityContext", json!({})),
        ("terminationGracePeriodSeconds", json!(30)),
        ("schedulerName", json!("default-scheduler")),
        ("enableServiceLinks", json!(true)),
        ("priority", json!(0)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
    ] {
        default(new, &["spec", field], value);
    }
    for list in ["containers", "initContainers"] {
        for container in each(new, &["spec", list]) {
            let image = text(container, &["image"]);
            let latest =
                image.ends_with(":latest") || !image.rsplit('/').next().is_some_and(|i| i.contains(':'));
            let policy = if latest { "Always" } else { "IfNotPresent" };
            default(container, &["imagePullPolicy"], json!(policy));
            default(container, &["terminationMessagePath"], json!("/dev/termination-log"));
            default(container, &["terminationMessagePolicy"], json!("File"));
            default(container, &["resources"], json!({}));
            for (resource, limit) in
                at(container, &["resources", "limits"]).as_object().cloned().unwrap_or_default()
            {
                default(container, &["resources", "requests", &resource], limit);
            }
        }
    }
    if old.is_null() {
        // Admission plugin DefaultTolerationSeconds.
        let mut tolerations = items(new, &["spec", "tolerations"]).to_vec();
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            if !tolerations.iter().any(|t| text(t, &["key"]) == key) {
                tolerations.push(
                    json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}),
                );
            }
        }
        set(new, &["spec", "tolerations"], json!(tolerations));
        set(new, &["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        if let Some(conditions) = gated(new, now) {
            set(new, &["status", "conditions"], conditions);
        }
        return;
    }
    // The status of the DRA is kept from clients that do not know it.
    for field in ["resourceClaimStatuses", "extendedResourceClaimStatus", "qosClass"] {
        if !has(new, &["status", field]) {
            copy(old, new, &["status", field]);
        }
    }
}

fn gated(pod: &Value, now: Timestamp) -> Option<Value> {
    if items(pod, &["spec", "schedulingGates"]).is_empty() {
        return None;
    }
    Some(json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates", "lastTransitionTime": seconds(now)}]))
}

/// Claim entries of a Pod or PodGroup, whose names must be there and different.
fn entries(owner: &Value, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, entry) in items(owner, &["spec", "resourceClaims"]).iter().enumerate() {
        let field = format!("spec.resourceClaims[{index}]");
        let name = text(entry, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        } else if !is_dns_label(name) {
            causes.push(Cause::invalid(
                format!("{field}.name"),
                at(entry, &["name"]),
                "a lowercase RFC 1123 label",
            ));
        } else if !seen.insert(name) {
            causes.push(Cause::duplicate(format!("{field}.name"), at(entry, &["name"])));
        }
        let (claim, template) =
            (has(entry, &["resourceClaimName"]), has(entry, &["resourceClaimTemplateName"]));
        if claim == template {
            let why = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`";
            causes.push(Cause::invalid(field, entry, why));
        }
    }
}

/// Recorded claims of a Pod or PodGroup: each for an entry, once, with a name that a claim can have.
fn entry_statuses(owner: &Value, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, status) in items(owner, &["status", "resourceClaimStatuses"]).iter().enumerate() {
        let field = format!("status.resourceClaimStatuses[{index}]");
        let name = text(status, &["name"]);
        if !items(owner, &["spec", "resourceClaims"]).iter().any(|e| text(e, &["name"]) == name) {
            let why = "must match the name of an entry in `spec.resourceClaims`";
            causes.push(Cause::invalid(format!("{field}.name"), at(status, &["name"]), why));
        }
        if !seen.insert(name) {
            causes.push(Cause::duplicate(format!("{field}.name"), at(status, &["name"])));
        }
        let claim = at(status, &["resourceClaimName"]);
        if claim.as_str().is_some_and(|c| !is_dns_subdomain(c)) {
            let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'";
            causes.push(Cause::invalid(format!("{field}.resourceClaimName"), claim, why));
        }
    }
}

/// Containers use claims that the Pod has.
fn used_claims(pod: &Value, causes: &mut Vec<Cause>) {
    for list in ["containers", "initContainers"] {
        for (index, container) in items(pod, &["spec", list]).iter().enumerate() {
            for (number, used) in items(container, &["resources", "claims"]).iter().enumerate() {
                let name = text(used, &["name"]);
                if !items(pod, &["spec", "resourceClaims"]).iter().any(|e| text(e, &["name"]) == name) {
                    let field = format!("spec.{list}[{index}].resources.claims[{number}]");
                    causes.push(Cause::not_found(field, at(used, &["name"])));
                }
            }
        }
    }
}

/// `ValidatePodStatusUpdate`, without what kubelets report of containers and addresses.
fn pod_status(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    // Their types are what the system defines, or qualified names.
    const OF_THE_SYSTEM: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];
    for (index, condition) in items(new, &["status", "conditions"]).iter().enumerate() {
        let field = format!("status.conditions[{index}]");
        not_negative(condition, &["observedGeneration"], &format!("{field}.observedGeneration"), causes);
        let kind = text(condition, &["type"]);
        if !(OF_THE_SYSTEM.contains(&kind) || is_label_key(kind)) {
            causes.push(Cause::invalid(
                format!("{field}.Type"),
                at(condition, &["type"]),
                "a qualified name",
            ));
        }
    }
    not_negative(new, &["status", "observedGeneration"], "status.observedGeneration", causes);
    let nominated = at(new, &["status", "nominatedNodeName"]);
    if nominated != at(old, &["status", "nominatedNodeName"])
        && nominated.as_str().is_some_and(|name| !name.is_empty())
    {
        subdomain(nominated, "status.nominatedNodeName", causes);
        if !text(old, &["spec", "nodeName"]).is_empty() {
            let why = "may not be set on pods that are already bound to a node";
            causes.push(Cause::forbidden("status.nominatedNodeName", why));
        }
    }
    immutable(new, old, &["status", "qosClass"], causes);
    entry_statuses(new, causes);
    extended_resource_claim(new, causes);
}

fn not_negative(holder: &Value, path: &[&str], field: &str, causes: &mut Vec<Cause>) {
    if at(holder, path).as_i64().is_some_and(|n| n < 0) {
        causes.push(Cause::invalid(field, at(holder, path), "must be a non-negative integer"));
    }
}

/// `validatePodExtendedResourceClaimStatus`.
fn extended_resource_claim(pod: &Value, causes: &mut Vec<Cause>) {
    const PATH: &str = "status.extendedResourceClaimStatus";
    let status = at(pod, &["status", "extendedResourceClaimStatus"]);
    if status.is_null() {
        return;
    }
    let containers: Vec<&Value> =
        ["containers", "initContainers"].into_iter().flat_map(|list| items(pod, &["spec", list])).collect();
    let mappings = items(status, &["requestMappings"]);
    if mappings.is_empty() {
        let why = "at least one request mapping is required";
        causes.push(Cause::required(format!("{PATH}.requestMappings"), why));
    }
    let mut seen = BTreeSet::new();
    for (index, mapping) in mappings.iter().enumerate() {
        let named = |name: &str| format!("{PATH}.requestMappings[{index}].{name}");
        let key = ["containerName", "resourceName", "requestName"].map(|name| text(mapping, &[name]));
        let [container, resource, request] = key;
        match containers.iter().find(|c| text(c, &["name"]) == container) {
            None => {
                let why =
                    "must match the name of an entry in spec.initContainers.name or spec.containers.name";
                causes.push(Cause::invalid(named("containerName"), &json!(container), why));
            }
            Some(container) if !has(container, &["resources", "requests", resource]) => {
                let why = "must match the extended resource name of an entry in \
                           spec.initContainers.resources.requests or spec.containers.resources.requests";
                causes.push(Cause::invalid(named("resourceName"), &json!(resource), why));
            }
            Some(_) => {}
        }
        // It is not said of which mapping.
        label(&json!(request), &format!("{PATH}.requestName"), causes);
        if !seen.insert(key) {
            for name in ["containerName", "resourceName", "requestName"] {
                causes.push(Cause::duplicate(named(name), at(mapping, &[name])));
            }
        }
    }
    let field = format!("{PATH}.resourceClaimName");
    match text(status, &["resourceClaimName"]) {
        "" => causes.push(Cause::required(field, "")),
        claim => subdomain(&json!(claim), &field, causes),
    }
}

pub(crate) fn pod(new: &Value, old: &Value, part: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if part == Part::Status {
        pod_status(new, old, &mut causes);
        return causes;
    }
    used_claims(new, &mut causes);
    if old.is_null() {
        entries(new, &mut causes);
        if items(new, &["spec", "containers"]).is_empty() {
            causes.push(Cause::required("spec.containers", ""));
        }
        return causes;
    }
    // Only these may change after creation.
    let frozen = |pod: &Value| {
        let mut spec = at(pod, &["spec"]).clone();
        for field in
            ["activeDeadlineSeconds", "tolerations", "schedulingGates", "terminationGracePeriodSeconds"]
        {
            set(&mut spec, &[field], Value::Null);
        }
        for list in ["containers", "initContainers"] {
            for container in each(&mut spec, &[list]) {
                set(container, &["image"], Value::Null);
            }
        }
        spec
    };
    if frozen(new) != frozen(old) {
        causes.push(Cause::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`, \
             `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` (only additions to \
             existing tolerations), `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
             previously negative)",
        ));
    }
    causes
}

pub(crate) fn pod_group_defaults(new: &mut Value, old: &Value, _: Timestamp) {
    default(new, &["spec", "priority"], json!(0));
    if old.is_null() {
        // Admission plugin PodGroupProtection.
        let mut finalizers = items(new, &["metadata", "finalizers"]).to_vec();
        if !finalizers.iter().any(|f| f == POD_GROUP_PROTECTION) {
            finalizers.push(json!(POD_GROUP_PROTECTION));
        }
        set(new, &["metadata", "finalizers"], json!(finalizers));
    }
}

pub(crate) fn pod_group(new: &Value, old: &Value, part: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if part == Part::Status {
        // There may be as many as one likes.
        conditions(at(new, &["status"]), "status", usize::MAX, &mut causes);
        entry_statuses(new, &mut causes);
        return causes;
    }
    if old.is_null() {
        entries(new, &mut causes);
        if !has(new, &["spec", "schedulingPolicy"]) {
            let why = "must specify one of: `basic`, `gang`";
            causes.push(Cause::invalid("spec.schedulingPolicy", &json!(""), why));
        }
    }
    immutable(new, old, &["spec", "resourceClaims"], &mut causes);
    causes
}

// Events and leases

/// `ValidateEventCreate` and `ValidateEventUpdate` for `events.k8s.io/v1`. Some fields have other names in messages: those
/// of the core group.
pub(crate) fn event(new: &Value, old: &Value, _: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if has(new, &["eventTime"]) {
        told(new, &mut causes);
    }
    if at(new, &["series"]) != at(old, &["series"]) && has(new, &["series"]) {
        if at(new, &["series", "count"]).as_i64().unwrap_or_default() < 2 {
            causes.push(Cause::invalid(
                "series.count",
                at(new, &["series", "count"]),
                "should be at least 2",
            ));
        }
        if text(new, &["series", "lastObservedTime"]).is_empty() {
            causes.push(Cause::required("series.lastObservedTime", ""));
        }
    }
    if old.is_null() {
        if !has(new, &["eventTime"]) {
            causes.push(Cause::required("eventTime", ""));
        }
        if !matches!(text(new, &["type"]), "Normal" | "Warning") {
            causes.push(Cause::invalid("type", at(new, &["type"]), "has invalid value"));
        }
    } else {
        for (field, called) in [
            ("regarding", "involvedObject"),
            ("reason", "reason"),
            ("note", "message"),
            ("type", "type"),
            ("eventTime", "eventTime"),
            ("action", "action"),
            ("related", "related"),
            ("reportingController", "reportingController"),
            ("reportingInstance", "reportingInstance"),
        ] {
            if at(new, &[field]) != at(old, &[field]) {
                causes.push(Cause::invalid(called, at(new, &[field]), IMMUTABLE));
            }
        }
    }
    causes
}

/// `legacyValidateEvent` of an event that has a time.
fn told(event: &Value, causes: &mut Vec<Cause>) {
    const SHORT: usize = 128;
    const NOTE: usize = 1024;
    let regarding = text(event, &["regarding", "namespace"]);
    if regarding.is_empty() && !matches!(meta(event, "namespace"), "default" | "kube-system") {
        let why = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &json!(regarding), why));
    }
    let reporter = text(event, &["reportingController"]);
    if reporter.is_empty() {
        causes.push(Cause::required("reportingController", ""));
    }
    if !is_label_key(reporter) {
        causes.push(Cause::invalid("reportingController", &json!(reporter), "name part must be non-empty"));
    }
    for field in ["reportingInstance", "action", "reason"] {
        let length = text(event, &[field]).len();
        if length == 0 {
            causes.push(Cause::required(field, ""));
        } else if length > SHORT {
            causes.push(Cause::invalid(field, &json!(""), "can have at most 128 characters"));
        }
    }
    if text(event, &["note"]).len() > NOTE {
        causes.push(Cause::invalid("message", &json!(""), "can have at most 1024 characters"));
    }
}

pub(crate) fn lease(new: &Value, _: &Value, _: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    let duration = at(new, &["spec", "leaseDurationSeconds"]);
    if duration.as_i64().is_some_and(|d| d <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"));
    }
    let transitions = at(new, &["spec", "leaseTransitions"]);
    if transitions.as_i64().is_some_and(|t| t < 0) {
        causes.push(Cause::invalid(
            "spec.leaseTransitions",
            transitions,
            "must be greater than or equal to 0",
        ));
    }
    causes
}

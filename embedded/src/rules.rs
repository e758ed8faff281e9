//! Defaulting and validation of each kind, as far as controllers rely on it or can run into it.
//!
//! Sources: `pkg/apis/*/validation`, `pkg/apis/*/*/defaults.go` and `pkg/registry/*/*/strategy.go` of Kubernetes
//! v1.37. What no controller writes (device attributes, probes, volumes) is not looked into.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    kinds::Part,
    object::{at, copy, default, each, has, items, meta, seconds, set, text},
    refusal::Cause,
};

/// `ResourceClaimReservedForMaxSize`.
const CONSUMERS_MAX: usize = 256;
/// `DeviceTaintRuleStatusMaxConditions`.
const RULE_CONDITIONS_MAX: usize = 8;
/// Keeps a PodGroup until its Pods are gone.
pub(crate) const POD_GROUP_PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";
const IMMUTABLE: &str = "field is immutable";

fn immutable(new: &Value, old: &Value, path: &[&str], causes: &mut Vec<Cause>) {
    if !old.is_null() && at(new, path) != at(old, path) {
        causes.push(Cause::invalid(path.join("."), at(new, path), IMMUTABLE));
    }
}

pub(crate) fn is_dns_label(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 63
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !name.starts_with('-')
        && !name.ends_with('-')
}

pub(crate) fn is_dns_subdomain(name: &str) -> bool {
    let label = |l: &str| {
        !l.is_empty()
            && l.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !l.starts_with('-')
            && !l.ends_with('-')
    };
    name.len() <= 253 && name.split('.').all(label)
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

pub(crate) fn pod(new: &Value, old: &Value, part: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if part == Part::Status {
        entry_statuses(new, &mut causes);
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

// Claims and templates

/// `SetDefaults_ExactDeviceRequest` and `SetDefaults_DeviceSubRequest`.
fn request_defaults(spec: &mut Value) {
    for request in each(spec, &["devices", "requests"]) {
        if let Some(exactly) = request.get_mut("exactly") {
            one_request(exactly);
        }
        each(request, &["firstAvailable"]).for_each(one_request);
    }
}

fn one_request(request: &mut Value) {
    default(request, &["allocationMode"], json!("ExactCount"));
    if text(request, &["allocationMode"]) == "ExactCount" {
        default(request, &["count"], json!(1));
    }
    for toleration in each(request, &["tolerations"]) {
        default(toleration, &["operator"], json!("Equal"));
    }
}

pub(crate) fn claim_defaults(new: &mut Value, old: &Value, _: Timestamp) {
    if let Some(spec) = new.get_mut("spec") {
        request_defaults(spec);
    }
    if old.is_null() {
        set(new, &["status"], json!({}));
    }
    if !has(new, &["status", "allocation"]) {
        // `dropDeallocatedStatusDevices`
        set(new, &["status", "devices"], Value::Null);
    }
}

pub(crate) fn template_defaults(new: &mut Value, _: &Value, _: Timestamp) {
    if let Some(spec) = new.get_mut("spec").and_then(|s| s.get_mut("spec")) {
        request_defaults(spec);
    }
}

fn requests(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, request) in items(spec, &["devices", "requests"]).iter().enumerate() {
        let field = format!("{field}.devices.requests[{index}]");
        let name = text(request, &["name"]);
        if name.is_empty() {
            causes.push(Cause::required(format!("{field}.name"), ""));
        } else if !seen.insert(name) {
            causes.push(Cause::duplicate(field.clone(), at(request, &["name"])));
        }
        let alternatives = items(request, &["firstAvailable"]);
        if has(request, &["exactly"]) != alternatives.is_empty() {
            causes.push(Cause::required(
                field.clone(),
                "exactly one of `exactly` or `firstAvailable` is required",
            ));
        } else if has(request, &["exactly"]) && text(request, &["exactly", "deviceClassName"]).is_empty() {
            causes.push(Cause::required(format!("{field}.exactly.deviceClassName"), ""));
        }
    }
}

pub(crate) fn template(new: &Value, old: &Value, _: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.is_null() {
        requests(at(new, &["spec", "spec"]), "spec.spec", &mut causes);
    }
    immutable(new, old, &["spec"], &mut causes);
    causes
}

pub(crate) fn claim(new: &Value, old: &Value, part: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if part == Part::Main {
        if old.is_null() {
            requests(at(new, &["spec"]), "spec", &mut causes);
        }
        immutable(new, old, &["spec"], &mut causes);
    } else {
        claim_status(new, old, &mut causes);
    }
    causes
}

/// `validateResourceClaimStatusUpdate`.
fn claim_status(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let consumers = items(new, &["status", "reservedFor"]);
    if consumers.len() > CONSUMERS_MAX {
        causes.push(Cause::too_many("status.reservedFor", consumers.len(), CONSUMERS_MAX));
    }
    let mut seen = BTreeSet::new();
    for (index, consumer) in consumers.iter().enumerate() {
        for field in ["resource", "name", "uid"] {
            if text(consumer, &[field]).is_empty() {
                causes.push(Cause::required(format!("status.reservedFor[{index}].{field}"), ""));
            }
        }
        if !seen.insert(text(consumer, &["uid"])) {
            causes.push(Cause::duplicate(format!("status.reservedFor[{index}]"), consumer));
        }
    }
    let (was, is) = (at(old, &["status", "allocation"]), at(new, &["status", "allocation"]));
    if !consumers.is_empty() {
        if is.is_null() {
            causes.push(Cause::forbidden(
                "status.reservedFor",
                "may not be specified when `allocated` is not set",
            ));
        } else if has(new, &["metadata", "deletionTimestamp"]) {
            let before = items(old, &["status", "reservedFor"]);
            if consumers.iter().any(|c| !before.contains(c)) {
                causes.push(Cause::forbidden(
                    "status.reservedFor",
                    "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set",
                ));
            }
        }
    }
    if was.is_null() {
        allocation(new, causes);
    } else if !is.is_null() && was != is {
        causes.push(Cause::invalid("status.allocation", is, IMMUTABLE));
    }
}

/// A new allocation: each result is for a request that the claim has.
fn allocation(claim: &Value, causes: &mut Vec<Cause>) {
    let mut names = BTreeSet::new();
    for request in items(claim, &["spec", "devices", "requests"]) {
        let name = text(request, &["name"]);
        names.insert(name.to_owned());
        for alternative in items(request, &["firstAvailable"]) {
            names.insert(format!("{name}/{}", text(alternative, &["name"])));
        }
    }
    for (index, result) in items(claim, &["status", "allocation", "devices", "results"]).iter().enumerate() {
        let field = format!("status.allocation.devices.results[{index}]");
        let request = at(result, &["request"]);
        if !names.contains(request.as_str().unwrap_or_default()) {
            let why = "must be the name of a request in the claim or the name of a request and a subrequest \
                       separated by '/'";
            causes.push(Cause::invalid(format!("{field}.request"), request, why));
        }
        for part in ["driver", "pool", "device"] {
            if text(result, &[part]).is_empty() {
                causes.push(Cause::required(format!("{field}.{part}"), ""));
            }
        }
    }
}

// Slices, taints and pool requests

fn taint_defaults(taint: &mut Value, now: Timestamp) {
    default(taint, &["timeAdded"], json!(seconds(now)));
}

pub(crate) fn slice_defaults(new: &mut Value, _: &Value, now: Timestamp) {
    for device in each(new, &["spec", "devices"]) {
        each(device, &["taints"]).for_each(|taint| taint_defaults(taint, now));
    }
}

fn taint(taint: &Value, old: &Value, field: &str, causes: &mut Vec<Cause>) {
    if text(taint, &["key"]).is_empty() {
        causes.push(Cause::invalid(format!("{field}.key"), &json!(""), "name part must be non-empty"));
    }
    let effect = at(taint, &["effect"]);
    if !old.is_null() && at(old, &["effect"]) == effect {
        return;
    }
    match effect.as_str().unwrap_or_default() {
        "" => causes.push(Cause::required(format!("{field}.effect"), "")),
        "NoExecute" | "NoSchedule" | "None" => {}
        _ => causes.push(Cause::not_supported(
            format!("{field}.effect"),
            effect,
            &["NoExecute", "NoSchedule", "None"],
        )),
    }
}

const SELECTIONS: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

pub(crate) fn slice(new: &Value, old: &Value, _: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    for path in [&["spec", "driver"][..], &["spec", "pool", "name"]] {
        if text(new, path).is_empty() {
            causes.push(Cause::required(path.join("."), ""));
        }
        immutable(new, old, path, &mut causes);
    }
    immutable(new, old, &["spec", "nodeName"], &mut causes);
    let set: Vec<&str> = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"]
        .into_iter()
        .filter(|field| has(new, &["spec", field]))
        .collect();
    match set.len() {
        0 => causes.push(Cause::required("spec", SELECTIONS)),
        1 => {}
        _ => causes.push(Cause::invalid("spec", &json!(set), SELECTIONS)),
    }
    let mut seen = BTreeSet::new();
    let devices = items(new, &["spec", "devices"]);
    for (index, device) in devices.iter().enumerate() {
        let field = format!("spec.devices[{index}]");
        let name = text(device, &["name"]);
        if !is_dns_label(name) {
            causes.push(Cause::invalid(
                format!("{field}.name"),
                at(device, &["name"]),
                "a lowercase RFC 1123 label",
            ));
        }
        if !seen.insert(name) {
            causes.push(Cause::duplicate(field.clone(), at(device, &["name"])));
        }
        for (number, t) in items(device, &["taints"]).iter().enumerate() {
            taint(t, &Value::Null, &format!("{field}.taints[{number}]"), &mut causes);
        }
    }
    let advanced = devices.iter().any(|d| has(d, &["taints"]) || has(d, &["consumesCounters"]));
    let most = if advanced { 64 } else { 128 };
    if devices.len() > most {
        causes.push(Cause::too_many("spec.devices", devices.len(), most));
    }
    causes
}

pub(crate) fn taint_rule_defaults(new: &mut Value, old: &Value, now: Timestamp) {
    const TIME: &[&str] = &["spec", "taint", "timeAdded"];
    if old.is_null() {
        set(new, &["status"], json!({}));
    } else if at(new, &["spec", "taint", "effect"]) != at(old, &["spec", "taint", "effect"])
        && at(new, TIME) == at(old, TIME)
    {
        // The time tells since when there is this effect.
        set(new, TIME, json!(seconds(now)));
    }
    if let Some(taint) = new.get_mut("spec").and_then(|s| s.get_mut("taint")) {
        taint_defaults(taint, now);
    }
}

pub(crate) fn taint_rule(new: &Value, old: &Value, part: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if part == Part::Main {
        taint(at(new, &["spec", "taint"]), at(old, &["spec", "taint"]), "spec.taint", &mut causes);
    } else {
        let count = items(new, &["status", "conditions"]).len();
        if count > RULE_CONDITIONS_MAX {
            causes.push(Cause::too_many("status.conditions", count, RULE_CONDITIONS_MAX));
        }
        conditions(new, &mut causes);
    }
    causes
}

/// `metav1validation.ValidateConditions`, as far as presence goes.
fn conditions(object: &Value, causes: &mut Vec<Cause>) {
    for (index, condition) in items(object, &["status", "conditions"]).iter().enumerate() {
        for field in ["type", "status", "lastTransitionTime", "reason"] {
            if text(condition, &[field]).is_empty() {
                causes.push(Cause::required(format!("status.conditions[{index}].{field}"), ""));
            }
        }
    }
}

pub(crate) fn pool_request_defaults(new: &mut Value, _: &Value, _: Timestamp) {
    default(new, &["spec", "limit"], json!(100));
}

pub(crate) fn pool_request(new: &Value, old: &Value, part: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if part == Part::Main {
        if text(new, &["spec", "driver"]).is_empty() {
            causes.push(Cause::required("spec.driver", ""));
        }
        immutable(new, old, &["spec"], &mut causes);
    } else {
        if has(old, &["status"]) {
            immutable(new, old, &["status"], &mut causes);
        }
        conditions(new, &mut causes);
    }
    causes
}

// Events and leases

pub(crate) fn event(new: &Value, old: &Value, _: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.is_null() {
        for field in ["reportingController", "reportingInstance", "action", "reason"] {
            if text(new, &[field]).is_empty() {
                causes.push(Cause::required(field, ""));
                if field == "reportingController" {
                    causes.push(Cause::invalid(field, &json!(""), "name part must be non-empty"));
                }
            }
        }
        if text(new, &["note"]).len() > 1024 {
            causes.push(Cause::invalid("message", &json!(""), "can have at most 1024 bytes"));
        }
        let regarding = text(new, &["regarding", "namespace"]);
        let expected = if regarding.is_empty() { "default" } else { regarding };
        if meta(new, "namespace") != expected {
            causes.push(Cause::invalid(
                "involvedObject.namespace",
                &json!(regarding),
                "does not match event.namespace",
            ));
        }
    } else {
        for field in ["regarding", "reason", "type", "eventTime", "action", "reportingController"] {
            immutable(new, old, &[field], &mut causes);
        }
        if at(new, &["note"]) != at(old, &["note"]) {
            // Its name in the core group.
            causes.push(Cause::invalid("message", at(new, &["note"]), IMMUTABLE));
        }
    }
    causes
}

pub(crate) fn lease(new: &Value, _: &Value, _: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    let duration = at(new, &["spec", "leaseDurationSeconds"]);
    if duration.as_i64().is_some_and(|d| d <= 0) {
        causes.push(Cause::invalid("spec.leaseDurationSeconds", duration, "must be greater than 0"));
    }
    causes
}

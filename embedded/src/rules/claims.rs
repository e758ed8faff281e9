//! ResourceClaims and their templates.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    IMMUTABLE,
    conditions::conditions,
    devices::{driver, pool, tolerations},
    immutable, label, limited,
    metadata::metadata,
    subdomain,
};
use crate::{
    formats::{is_label_key, is_uuid},
    kinds::Part,
    object::{at, default, each, has, items, set, text},
    refusal::Cause,
};

/// `ResourceClaimReservedForMaxSize`.
const CONSUMERS_MAX: usize = 256;
/// `DeviceRequestsMaxSize` and `AllocationResultsMaxSize`.
const REQUESTS_MAX: usize = 32;
/// `FirstAvailableDeviceRequestMaxSize`.
const ALTERNATIVES_MAX: usize = 8;
/// `DeviceConstraintsMaxSize` and `DeviceConfigMaxSize`; an allocation has twice as many of these: class and claim.
const CONSTRAINTS_MAX: usize = 32;
/// `BindingConditionsMaxSize`, and of failures.
const BINDING_CONDITIONS_MAX: usize = 4;
/// `AllocatedDeviceStatusMaxConditions`.
const DEVICE_CONDITIONS_MAX: usize = 8;

const NO_REQUEST: &str =
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

// Defaults

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

// Requests

/// `validateDeviceClaim`, without CEL expressions and opaque parameters.
fn requests(spec: &Value, path: &str, causes: &mut Vec<Cause>) {
    let field = format!("{path}.devices.requests");
    let mut seen = BTreeSet::new();
    let all = limited(items(spec, &["devices", "requests"]), REQUESTS_MAX, &field, causes);
    for (index, request) in all.iter().enumerate() {
        let field = format!("{field}[{index}]");
        name(request, &field, &mut seen, causes);
        let alternatives = items(request, &["firstAvailable"]);
        let exactly = has(request, &["exactly"]);
        match (exactly, alternatives.is_empty()) {
            (true, true) => one(at(request, &["exactly"]), &format!("{field}.exactly"), causes),
            (false, false) => subrequests(alternatives, &format!("{field}.firstAvailable"), causes),
            (false, true) => {
                let why = "exactly one of `exactly` or `firstAvailable` is required";
                causes.push(Cause::required(field, why));
            }
            (true, false) => {
                let why =
                    "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set";
                causes.push(Cause::invalid(field, &Value::Null, why));
            }
        }
    }
    let names = Names::of(spec);
    let field = format!("{path}.devices.constraints");
    let constraints = limited(items(spec, &["devices", "constraints"]), CONSTRAINTS_MAX, &field, causes);
    for (index, constraint) in constraints.iter().enumerate() {
        names.check_all(constraint, &format!("{field}[{index}]"), causes);
    }
    configs(at(spec, &["devices"]), &names, &format!("{path}.devices"), CONSTRAINTS_MAX, causes);
}

/// A request has a name of its own.
fn name<'a>(request: &'a Value, field: &str, seen: &mut BTreeSet<&'a str>, causes: &mut Vec<Cause>) {
    label(at(request, &["name"]), &format!("{field}.name"), causes);
    if !seen.insert(text(request, &["name"])) {
        causes.push(Cause::duplicate(field, at(request, &["name"])));
    }
}

fn subrequests(alternatives: &[Value], field: &str, causes: &mut Vec<Cause>) {
    let mut seen = BTreeSet::new();
    for (index, request) in limited(alternatives, ALTERNATIVES_MAX, field, causes).iter().enumerate() {
        let field = format!("{field}[{index}]");
        name(request, &field, &mut seen, causes);
        one(request, &field, causes);
    }
}

/// What both forms of a request have.
fn one(request: &Value, field: &str, causes: &mut Vec<Cause>) {
    let named = format!("{field}.deviceClassName");
    match text(request, &["deviceClassName"]) {
        "" => causes.push(Cause::required(named, "")),
        _ => subdomain(at(request, &["deviceClassName"]), &named, causes),
    }
    let count = at(request, &["count"]).as_i64().unwrap_or_default();
    match text(request, &["allocationMode"]) {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            causes.push(Cause::invalid(format!("{field}.count"), &json!(count), why));
        }
        "ExactCount" if count <= 0 => {
            causes.push(Cause::invalid(format!("{field}.count"), &json!(count), "must be greater than zero"));
        }
        "All" | "ExactCount" => {}
        _ => {
            let mode = at(request, &["allocationMode"]);
            let field = format!("{field}.allocationMode");
            causes.push(Cause::not_supported(field, mode, &["All", "ExactCount"]));
        }
    }
    tolerations(request, field, causes);
}

/// Names by which requests can be referred to: `request`, and `request/subrequest`.
struct Names(BTreeSet<String>);

impl Names {
    fn of(spec: &Value) -> Self {
        let mut names = BTreeSet::new();
        for request in items(spec, &["devices", "requests"]) {
            let name = text(request, &["name"]);
            names.insert(name.to_owned());
            for alternative in items(request, &["firstAvailable"]) {
                names.insert(format!("{name}/{}", text(alternative, &["name"])));
            }
        }
        Self(names)
    }

    fn check(&self, name: &Value, field: &str, causes: &mut Vec<Cause>) {
        if !self.0.contains(name.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(field, name, NO_REQUEST));
        }
    }

    /// The references in `requests`.
    fn check_all(&self, holder: &Value, field: &str, causes: &mut Vec<Cause>) {
        let field = format!("{field}.requests");
        let mut seen = BTreeSet::new();
        let all = limited(items(holder, &["requests"]), REQUESTS_MAX, &field, causes);
        for (index, name) in all.iter().enumerate() {
            let field = format!("{field}[{index}]");
            self.check(name, &field, causes);
            if !seen.insert(name.as_str()) {
                causes.push(Cause::duplicate(field, name));
            }
        }
    }
}

/// The configurations of a claim or an allocation.
fn configs(holder: &Value, names: &Names, path: &str, most: usize, causes: &mut Vec<Cause>) {
    let field = format!("{path}.config");
    for (index, config) in limited(items(holder, &["config"]), most, &field, causes).iter().enumerate() {
        let field = format!("{field}[{index}]");
        names.check_all(config, &field, causes);
        if has(config, &["opaque"]) {
            driver(at(config, &["opaque", "driver"]), &format!("{field}.opaque.driver"), causes);
        } else {
            causes.push(Cause::required(format!("{field}.opaque"), ""));
        }
    }
}

pub(crate) fn template(new: &Value, old: &Value, _: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    if old.is_null() {
        metadata(at(new, &["spec", "metadata"]), "spec.metadata", &mut causes);
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

// The status

/// `validateResourceClaimStatusUpdate`.
fn claim_status(new: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let consumers = items(new, &["status", "reservedFor"]);
    let mut seen = BTreeSet::new();
    let checked = limited(consumers, CONSUMERS_MAX, "status.reservedFor", causes);
    for (index, consumer) in checked.iter().enumerate() {
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
    device_statuses(at(new, &["status"]), causes);
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

/// What tells devices of an allocation apart.
fn identity(of: &Value) -> [&str; 4] {
    ["driver", "pool", "device", "shareID"].map(|part| text(of, &[part]))
}

/// `validateDeviceStatus`, without the data of drivers.
fn device_statuses(status: &Value, causes: &mut Vec<Cause>) {
    let allocated: BTreeSet<[&str; 4]> =
        items(status, &["allocation", "devices", "results"]).iter().map(identity).collect();
    let mut seen = BTreeSet::new();
    for (index, one) in items(status, &["devices"]).iter().enumerate() {
        let field = format!("status.devices[{index}]");
        identified(one, &field, causes);
        if !allocated.contains(&identity(one)) {
            causes.push(Cause::invalid(field.clone(), one, "must be an allocated device in the claim"));
        }
        if !seen.insert(identity(one)) {
            causes.push(Cause::duplicate(field.clone(), one));
        }
        conditions(one, &field, DEVICE_CONDITIONS_MAX, causes);
    }
}

/// Driver, pool, device and share.
fn identified(of: &Value, field: &str, causes: &mut Vec<Cause>) {
    driver(at(of, &["driver"]), &format!("{field}.driver"), causes);
    pool(at(of, &["pool"]), &format!("{field}.pool"), causes);
    label(at(of, &["device"]), &format!("{field}.device"), causes);
    let share = at(of, &["shareID"]);
    if share.as_str().is_some_and(|s| !is_uuid(s)) {
        causes.push(Cause::invalid(format!("{field}.shareID"), share, "a lowercase UUID"));
    }
}

/// `validateAllocationResult` for a new allocation.
fn allocation(claim: &Value, causes: &mut Vec<Cause>) {
    const PATH: &str = "status.allocation.devices";
    let names = Names::of(at(claim, &["spec"]));
    let devices = at(claim, &["status", "allocation", "devices"]);
    let field = format!("{PATH}.results");
    for (index, result) in
        limited(items(devices, &["results"]), REQUESTS_MAX, &field, causes).iter().enumerate()
    {
        let field = format!("{field}[{index}]");
        names.check(at(result, &["request"]), &format!("{field}.request"), causes);
        identified(result, &field, causes);
        binding(result, &field, causes);
        tolerations(result, &field, causes);
    }
    configs(devices, &names, PATH, 2 * CONSTRAINTS_MAX, causes);
    for (index, config) in items(devices, &["config"]).iter().enumerate().take(2 * CONSTRAINTS_MAX) {
        let field = format!("{PATH}.config[{index}].source");
        match text(config, &["source"]) {
            "" => causes.push(Cause::required(field, "")),
            "FromClaim" | "FromClass" => {}
            _ => {
                let source = at(config, &["source"]);
                causes.push(Cause::not_supported(field, source, &["FromClaim", "FromClass"]));
            }
        }
    }
}

/// `validateDeviceBindingParameters`.
fn binding(result: &Value, path: &str, causes: &mut Vec<Cause>) {
    const KINDS: [&str; 2] = ["bindingConditions", "bindingFailureConditions"];
    for kind in KINDS {
        let field = format!("{path}.{kind}");
        let all = items(result, &[kind]);
        let mut seen = BTreeSet::new();
        for (index, condition) in all.iter().enumerate() {
            if !seen.insert(condition.as_str()) {
                causes.push(Cause::duplicate(format!("{field}[{index}]"), condition));
            }
        }
        for (index, condition) in limited(all, BINDING_CONDITIONS_MAX, &field, causes).iter().enumerate() {
            if !is_label_key(condition.as_str().unwrap_or_default()) {
                causes.push(Cause::invalid(format!("{field}[{index}]"), condition, "a qualified name"));
            }
        }
    }
    let [conditions, failures] = KINDS.map(|kind| items(result, &[kind]));
    for (index, failure) in failures.iter().enumerate().filter(|(_, failure)| conditions.contains(failure)) {
        let why = "bindingFailureConditions must not overlap with bindingConditions";
        causes.push(Cause::invalid(format!("{path}.bindingFailureConditions[{index}]"), failure, why));
    }
    // The two come together.
    for (kind, missing) in KINDS.iter().zip([conditions, failures]) {
        if missing.is_empty() && conditions.len() + failures.len() > 0 {
            let why = "bindingConditions and bindingFailureConditions require each other";
            causes.push(Cause::invalid(format!("{path}.{kind}"), &Value::Null, why));
        }
    }
}

//! What describes devices: drivers, pools, slices, taints, tolerations, taint rules.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{conditions::conditions, immutable, label, limited};
use crate::{
    formats::{is_dns_subdomain, is_dns_subdomain_of_any_case, is_label_key, is_label_value, is_pool_name},
    kinds::Part,
    object::{at, default, each, has, items, seconds, set, text},
    refusal::Cause,
};

/// `DeviceTaintRuleStatusMaxConditions`.
const RULE_CONDITIONS_MAX: usize = 8;
/// `DriverNameMaxLength`.
const DRIVER_MAX: usize = 63;
/// `PoolNameMaxLength`.
pub(super) const POOL_MAX: usize = 253;
/// `DeviceTaintsMaxLength`.
const TAINTS_MAX: usize = 16;
/// `ResourceSliceMaxDevices`, and with taints or counters.
const DEVICES_MAX: usize = 128;
const ADVANCED_DEVICES_MAX: usize = 64;

const EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// A name that has to be there, of this form and length.
fn named(name: &Value, (has_form, most): (fn(&str) -> bool, usize), field: &str, causes: &mut Vec<Cause>) {
    let text = name.as_str().unwrap_or_default();
    if text.is_empty() {
        causes.push(Cause::required(field, ""));
        return;
    }
    if text.len() > most {
        causes.push(Cause::too_long(field, most));
    }
    if !has_form(text) {
        causes.push(Cause::invalid(field, name, "a lowercase RFC 1123 subdomain"));
    }
}

/// `ValidateCSIDriverName`.
pub(super) fn driver(driver: &Value, field: &str, causes: &mut Vec<Cause>) {
    named(driver, (is_dns_subdomain_of_any_case, DRIVER_MAX), field, causes);
}

/// `validatePoolName`.
pub(super) fn pool(pool: &Value, field: &str, causes: &mut Vec<Cause>) {
    named(pool, (is_pool_name, POOL_MAX), field, causes);
}

/// `validateDeviceToleration`.
pub(super) fn tolerations(holder: &Value, field: &str, causes: &mut Vec<Cause>) {
    const OPERATORS: &[&str] = &["Equal", "Exists"];
    for (index, toleration) in items(holder, &["tolerations"]).iter().enumerate() {
        let named = |name: &str| format!("{field}.tolerations[{index}].{name}");
        let (key, value) = (at(toleration, &["key"]), at(toleration, &["value"]));
        if key.as_str().is_some_and(|k| !(k.is_empty() || is_label_key(k))) {
            causes.push(Cause::invalid(named("key"), key, "a qualified name"));
        }
        match text(toleration, &["operator"]) {
            "Exists" if !text(toleration, &["value"]).is_empty() => {
                causes.push(Cause::invalid(named("value"), value, "must be empty for operator `Exists`"));
            }
            "Equal" if !is_label_value(text(toleration, &["value"])) => {
                causes.push(Cause::invalid(named("value"), value, "a valid label"));
            }
            "Exists" | "Equal" => {}
            "" => causes.push(Cause::required(named("operator"), "")),
            _ => {
                let operator = at(toleration, &["operator"]);
                causes.push(Cause::not_supported(named("operator"), operator, OPERATORS));
            }
        }
        let effect = text(toleration, &["effect"]);
        if !(effect.is_empty() || EFFECTS.contains(&effect)) {
            causes.push(Cause::not_supported(named("effect"), at(toleration, &["effect"]), EFFECTS));
        }
    }
}

// Slices

fn taint_defaults(taint: &mut Value, now: Timestamp) {
    default(taint, &["timeAdded"], json!(seconds(now)));
}

pub(crate) fn slice_defaults(new: &mut Value, _: &Value, now: Timestamp) {
    for device in each(new, &["spec", "devices"]) {
        each(device, &["taints"]).for_each(|taint| taint_defaults(taint, now));
    }
}

/// `validateDeviceTaint`.
fn taint(taint: &Value, old: &Value, field: &str, causes: &mut Vec<Cause>) {
    if !is_label_key(text(taint, &["key"])) {
        causes.push(Cause::invalid(format!("{field}.key"), at(taint, &["key"]), "a qualified name"));
    }
    if !is_label_value(text(taint, &["value"])) {
        causes.push(Cause::invalid(format!("{field}.value"), at(taint, &["value"]), "a valid label"));
    }
    let effect = at(taint, &["effect"]);
    if !old.is_null() && at(old, &["effect"]) == effect {
        return;
    }
    match effect.as_str().unwrap_or_default() {
        "" => causes.push(Cause::required(format!("{field}.effect"), "")),
        known if EFFECTS.contains(&known) => {}
        _ => causes.push(Cause::not_supported(format!("{field}.effect"), effect, EFFECTS)),
    }
}

const SELECTIONS: &str =
    "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";

/// `validateResourceSliceSpec`, without attributes, capacities and counters, which only drivers write.
pub(crate) fn slice(new: &Value, old: &Value, _: Part) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = at(new, &["spec"]);
    driver(at(spec, &["driver"]), "spec.driver", &mut causes);
    pool(at(spec, &["pool", "name"]), "spec.pool.name", &mut causes);
    if at(spec, &["pool", "resourceSliceCount"]).as_i64().unwrap_or_default() <= 0 {
        let (field, why) = ("spec.pool.resourceSliceCount", "must be greater than zero");
        causes.push(Cause::invalid(field, at(spec, &["pool", "resourceSliceCount"]), why));
    }
    if at(spec, &["pool", "generation"]).as_i64().is_some_and(|g| g < 0) {
        let (field, why) = ("spec.pool.generation", "must be greater than or equal to zero");
        causes.push(Cause::invalid(field, at(spec, &["pool", "generation"]), why));
    }
    for path in [&["spec", "driver"][..], &["spec", "pool", "name"], &["spec", "nodeName"]] {
        immutable(new, old, path, &mut causes);
    }
    nodes(spec, &mut causes);
    if has(spec, &["sharedCounters"]) && has(spec, &["devices"]) {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        causes.push(Cause::invalid("spec", &json!(""), why));
    }
    devices(spec, old, &mut causes);
    causes
}

fn nodes(spec: &Value, causes: &mut Vec<Cause>) {
    let mut set = Vec::new();
    match at(spec, &["nodeName"]).as_str() {
        None => {}
        Some(name) => {
            if name.is_empty() || !is_dns_subdomain(name) {
                let why = "must be either unset or set to a non-empty string";
                causes.push(Cause::invalid("spec.nodeName", at(spec, &["nodeName"]), why));
            }
            if !name.is_empty() {
                set.push("nodeName");
            }
        }
    }
    if has(spec, &["nodeSelector"]) {
        set.push("nodeSelector");
    }
    for field in ["allNodes", "perDeviceNodeSelection"] {
        match at(spec, &[field]).as_bool() {
            None => {}
            Some(true) => set.push(field),
            Some(false) => {
                let why = "must be either unset or set to true";
                causes.push(Cause::invalid(format!("spec.{field}"), at(spec, &[field]), why));
            }
        }
    }
    match set.len() {
        0 => causes.push(Cause::required("spec", SELECTIONS)),
        1 => {}
        _ => causes.push(Cause::invalid("spec", &json!(set), SELECTIONS)),
    }
}

fn devices(spec: &Value, old: &Value, causes: &mut Vec<Cause>) {
    let devices = items(spec, &["devices"]);
    let advanced = devices.iter().any(|d| has(d, &["taints"]) || has(d, &["consumesCounters"]));
    let most = if advanced { ADVANCED_DEVICES_MAX } else { DEVICES_MAX };
    let mut seen = BTreeSet::new();
    for (index, published) in limited(devices, most, "spec.devices", causes).iter().enumerate() {
        let field = format!("spec.devices[{index}]");
        label(at(published, &["name"]), &format!("{field}.name"), causes);
        let name = text(published, &["name"]);
        if !seen.insert(name) {
            causes.push(Cause::duplicate(field.clone(), at(published, &["name"])));
        }
        let taints = items(published, &["taints"]);
        let before = items(old, &["spec", "devices"]).iter().find(|d| text(d, &["name"]) == name);
        if before.is_some_and(|before| items(before, &["taints"]) == taints) {
            continue;
        }
        let field = format!("{field}.taints");
        for (number, t) in limited(taints, TAINTS_MAX, &field, causes).iter().enumerate() {
            taint(t, &Value::Null, &format!("{field}[{number}]"), causes);
        }
    }
}

// Taint rules

type Check = fn(&Value, &str, &mut Vec<Cause>);

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
        let selector = at(new, &["spec", "deviceSelector"]);
        for (name, check) in [("driver", driver as Check), ("pool", pool), ("device", label)] {
            if has(selector, &[name]) {
                check(at(selector, &[name]), &format!("spec.deviceSelector.{name}"), &mut causes);
            }
        }
        taint(at(new, &["spec", "taint"]), at(old, &["spec", "taint"]), "spec.taint", &mut causes);
    } else {
        conditions(at(new, &["status"]), "status", RULE_CONDITIONS_MAX, &mut causes);
    }
    causes
}

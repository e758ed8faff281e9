//! Slices and what is in them, and taint rules.

use std::collections::BTreeSet;

use dra_api::quantity::Quantity;
use dra_cel::Version;
use serde_json::Value;

use super::{Findings, driver_name, fields, has, items, names, text};

const SCOPES: [&str; 4] = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"];
const EFFECTS: [&str; 3] = ["None", "NoSchedule", "NoExecute"];
const VALUES: [&str; 8] = ["int", "bool", "string", "version", "ints", "bools", "strings", "versions"];
const LISTS: [&str; 4] = ["ints", "bools", "strings", "versions"];

/// A slice's spec (`validateResourceSliceSpec`).
pub(super) fn slice(spec: &Value, findings: &mut Findings) {
    driver_name(spec, "spec.driver", findings);
    let pool = &spec["pool"];
    if let Err(fault) = names::pool(text(pool, "name")) {
        findings.add("spec.pool.name", fault, "Use DNS subdomains, separated by '/'");
    }
    if !matches!(pool["resourceSliceCount"].as_i64(), Some(1..)) {
        findings.add(
            "spec.pool.resourceSliceCount",
            "is not greater than zero",
            "Give the number of slices that make up the pool",
        );
    }
    let scopes: Vec<&str> = SCOPES.into_iter().filter(|scope| has(spec, scope)).collect();
    if scopes.len() != 1 {
        let found = if scopes.is_empty() { "none".to_owned() } else { scopes.join(", ") };
        findings.add(
            "spec",
            format!("says in {found} of its fields which nodes reach the devices"),
            format!("Set exactly one of {}", SCOPES.join(", ")),
        );
    }
    let devices = items(spec, "devices");
    if has(spec, "sharedCounters") && has(spec, "devices") {
        findings.add(
            "spec",
            "has both sharedCounters and devices",
            "Publish the counters in a slice of their own in the same pool",
        );
    }
    let advanced = devices.iter().any(|device| {
        let lists = fields(&device["attributes"]).any(|(_, value)| LISTS.iter().any(|list| has(value, list)));
        lists || !items(device, "taints").is_empty() || !items(device, "consumesCounters").is_empty()
    });
    let most = if advanced { 64 } else { 128 };
    if devices.len() > most {
        findings.add(
            "spec.devices",
            format!("{} devices are more than {most}", devices.len()),
            "Spread the pool over several slices (64 devices in a slice with taints, counters or lists, else 128)",
        );
    }
    skip_node_operations(spec, findings);
    counter_sets(spec, findings);
    let mut seen = BTreeSet::new();
    for (position, device) in devices.iter().enumerate() {
        let at = format!("spec.devices[{position}]");
        let name = text(device, "name");
        if let Err(fault) = names::label(name) {
            findings.add(format!("{at}.name"), fault, "Rename the device");
        } else if !seen.insert(name) {
            findings.add(
                format!("{at}.name"),
                format!("{name:?} is there twice"),
                "Rename one of the devices",
            );
        }
        self::device(device, &at, spec["perDeviceNodeSelection"] == true, findings);
    }
}

fn skip_node_operations(spec: &Value, findings: &mut Findings) {
    let skipped: Vec<&str> = items(spec, "skipNodeOperations").iter().filter_map(Value::as_str).collect();
    for operation in &skipped {
        if !["*", "NodePrepareResources", "NodeUnprepareResources"].contains(operation) {
            findings.add(
                "spec.skipNodeOperations",
                format!("{operation:?} is no node operation"),
                "Write NodePrepareResources and NodeUnprepareResources, or \"*\"",
            );
        }
    }
    if skipped.contains(&"NodePrepareResources")
        && !skipped.contains(&"NodeUnprepareResources")
        && !skipped.contains(&"*")
    {
        findings.add(
            "spec.skipNodeOperations",
            "skips preparing but not unpreparing",
            "Add NodeUnprepareResources",
        );
    }
}

fn counter_sets(spec: &Value, findings: &mut Findings) {
    let sets = items(spec, "sharedCounters");
    if sets.len() > 8 {
        findings.add("spec.sharedCounters", "more than 8 counter sets", "Use a further slice of the pool");
    }
    for (position, set) in sets.iter().enumerate() {
        let at = format!("spec.sharedCounters[{position}]");
        if let Err(fault) = names::label(text(set, "name")) {
            findings.add(format!("{at}.name"), fault, "Rename the counter set");
        }
        counters(set, &at, findings);
    }
}

fn counters(of: &Value, at: &str, findings: &mut Findings) {
    let at = format!("{at}.counters");
    let count = fields(&of["counters"]).count();
    if !(1..=32).contains(&count) {
        findings.add(at.clone(), format!("{count} counters"), "Name 1 to 32 counters");
    }
    for (name, counter) in fields(&of["counters"]) {
        if let Err(fault) = names::label(name) {
            findings.add(format!("{at}[{name}]"), fault, "Rename the counter");
        }
        valued(counter, &format!("{at}[{name}]"), findings);
    }
}

/// A value of the form `{value: quantity}`.
fn valued(of: &Value, at: &str, findings: &mut Findings) {
    match of {
        Value::Object(_) => {
            quantity(&of["value"], &format!("{at}.value"), findings);
        }
        Value::String(bare) => {
            findings.add(
                at,
                "is a quantity where an object is needed",
                format!("Write `{{value: {bare:?}}}`"),
            );
        }
        Value::Number(bare) => {
            findings.add(
                at,
                "is a number where an object is needed",
                format!("Write `{{value: \"{bare}\"}}`"),
            );
        }
        _ => findings.add(at, "is no object", "Write `{value: QUANTITY}`"),
    }
}

fn quantity(value: &Value, at: &str, findings: &mut Findings) -> Option<Quantity> {
    let parsed = match value {
        Value::String(text) => Quantity::parse(text).map_err(|error| format!("{text:?}: {error}")),
        Value::Number(number) => {
            Quantity::parse(&number.to_string()).map_err(|error| format!("{number}: {error}"))
        }
        _ => Err("is no quantity".to_owned()),
    };
    parsed.map_err(|fault| findings.add(at, fault, "Write a quantity, such as 4, 500m or 80Gi")).ok()
}

fn device(device: &Value, at: &str, own_nodes: bool, findings: &mut Findings) {
    findings.unknown_fields(
        device,
        at,
        &[
            "name",
            "attributes",
            "capacity",
            "consumesCounters",
            "nodeName",
            "nodeSelector",
            "allNodes",
            "taints",
            "bindsToNode",
            "bindingConditions",
            "bindingFailureConditions",
            "allowMultipleAllocations",
            "nodeAllocatableResources",
        ],
    );
    attributes(device, at, findings);
    let shareable = device["allowMultipleAllocations"] == true;
    for (name, capacity) in fields(&device["capacity"]) {
        let at = format!("{at}.capacity[{name}]");
        attribute_name(name, &at, findings);
        valued(capacity, &at, findings);
        if has(capacity, "requestPolicy") && !shareable {
            findings.add(
                format!("{at}.requestPolicy"),
                "is for devices that can be shared",
                "Set allowMultipleAllocations to true, or remove the policy",
            );
        }
    }
    let scopes = SCOPES.iter().filter(|scope| has(device, scope)).count();
    if own_nodes && scopes != 1 {
        findings.add(
            at,
            format!("sets {scopes} of nodeName, nodeSelector and allNodes"),
            "Set exactly one, as the slice has perDeviceNodeSelection",
        );
    } else if !own_nodes && scopes > 0 {
        findings.add(
            at,
            "says which nodes reach it, but the slice does so for all its devices",
            "Remove that, or set perDeviceNodeSelection in the slice",
        );
    }
    let consumptions = items(device, "consumesCounters");
    if consumptions.len() > 2 {
        findings.add(format!("{at}.consumesCounters"), "more than 2 counter sets", "Draw on at most 2");
    }
    for (position, consumption) in consumptions.iter().enumerate() {
        self::consumption(consumption, &format!("{at}.consumesCounters[{position}]"), findings);
    }
    for (position, taint) in items(device, "taints").iter().enumerate() {
        self::taint(taint, &format!("{at}.taints[{position}]"), findings);
    }
    binding_conditions(device, at, findings);
    node_allocatable(device, at, findings);
}

fn attributes(device: &Value, at: &str, findings: &mut Findings) {
    let mut values = 0;
    for (name, attribute) in fields(&device["attributes"]) {
        let at = format!("{at}.attributes[{name}]");
        attribute_name(name, &at, findings);
        let set: Vec<&str> = VALUES.into_iter().filter(|kind| has(attribute, kind)).collect();
        if set.len() != 1 {
            findings.add(
                &at,
                format!("has {} values", set.len()),
                format!("Set one of {}", VALUES.join(", ")),
            );
        }
        values += 1;
        for kind in set {
            let list = items(attribute, kind);
            if LISTS.contains(&kind) {
                values += list.len().saturating_sub(1);
                if list.is_empty() {
                    findings.add(
                        format!("{at}.{kind}"),
                        "is empty",
                        "Leave out the attribute, or list values",
                    );
                }
            }
            let texts = list.iter().chain(Some(&attribute[kind])).filter_map(Value::as_str);
            for text in texts {
                if text.len() > 64 {
                    findings.add(format!("{at}.{kind}"), "is longer than 64 bytes", "Shorten it");
                } else if kind.starts_with("version") && Version::parse(text).is_err() {
                    findings.add(
                        format!("{at}.{kind}"),
                        format!("{text:?} is no semantic version"),
                        "Write MAJOR.MINOR.PATCH without leading zeros or a v (semver.org 2.0.0), or publish a string",
                    );
                }
            }
        }
    }
    if values > 48 {
        findings.add(
            format!("{at}.attributes"),
            format!("{values} values are more than 48"),
            "Publish fewer",
        );
    }
    let entries = fields(&device["attributes"]).count() + fields(&device["capacity"]).count();
    if entries > 32 {
        findings.add(at, format!("{entries} attributes and capacities are more than 32"), "Publish fewer");
    }
}

fn attribute_name(name: &str, at: &str, findings: &mut Findings) {
    if let Err(fault) = names::qualified(name) {
        let better = names::as_identifier(name);
        let remedy = if names::qualified(&better).is_ok() {
            format!("Name it {better}")
        } else {
            "Name it [DOMAIN/]IDENTIFIER".to_owned()
        };
        findings.add(at, fault, remedy);
    }
}

fn consumption(consumption: &Value, at: &str, findings: &mut Findings) {
    if let Err(fault) = names::label(text(consumption, "counterSet")) {
        findings.add(format!("{at}.counterSet"), fault, "Name a counter set of the pool");
    }
    counters(consumption, at, findings);
    let groups = items(consumption, "compatibilityGroups");
    let distinct: BTreeSet<&str> = groups.iter().filter_map(Value::as_str).collect();
    if groups.len() > 2 || distinct.len() != groups.len() {
        findings.add(
            format!("{at}.compatibilityGroups"),
            "more than 2 groups, or one twice",
            "Name at most 2 different groups",
        );
    }
}

fn taint(taint: &Value, at: &str, findings: &mut Findings) {
    let effect = text(taint, "effect");
    if !EFFECTS.contains(&effect) {
        let remedy = if effect == "PreferNoSchedule" {
            "Devices have no such effect, nodes do: use NoSchedule, NoExecute or None".to_owned()
        } else {
            format!("Use {}", EFFECTS.join(", "))
        };
        findings.add(format!("{at}.effect"), format!("{effect:?} is no effect"), remedy);
    }
    if text(taint, "key").is_empty() {
        findings.add(format!("{at}.key"), "is empty", "Name the taint");
    }
}

fn binding_conditions(device: &Value, at: &str, findings: &mut Findings) {
    let conditions = items(device, "bindingConditions");
    let failures = items(device, "bindingFailureConditions");
    if conditions.is_empty() != failures.is_empty() {
        findings.add(
            at,
            "has only one of bindingConditions and bindingFailureConditions",
            "Name both the conditions to wait for and those that end the wait",
        );
    }
    if conditions.len() > 4 || failures.len() > 4 {
        findings.add(at, "has more than 4 binding conditions of one kind", "Name at most 4");
    }
    if conditions.iter().any(|condition| failures.contains(condition)) {
        findings.add(at, "has a condition that is both success and failure", "Use different conditions");
    }
}

/// `{RESOURCE: {mapping: …, overhead: …}}`, which the documentation's samples show inside out.
fn node_allocatable(device: &Value, at: &str, findings: &mut Findings) {
    let at = format!("{at}.nodeAllocatableResources");
    for (name, resource) in fields(&device["nodeAllocatableResources"]) {
        let at = format!("{at}[{name}]");
        if name == "mapping" || name == "overhead" {
            let inner = fields(resource).map(|(resource, _)| resource.as_str()).next().unwrap_or("cpu");
            findings.add(
                &at,
                format!("{name} is no resource: the resource comes first, then how it is computed"),
                format!("Write `{inner}: {{{name}: …}}`"),
            );
            for (inner, content) in fields(resource) {
                if name == "mapping" {
                    mapping(content, device, &format!("{at}[{inner}]"), findings);
                }
            }
            continue;
        }
        if name != "cpu" && name != "memory" && !name.starts_with("hugepages-") {
            findings.add(
                &at,
                "is no resource that nodes account for",
                "Use cpu, memory or hugepages-SIZE; extended resources are not possible",
            );
        }
        findings.unknown_fields(resource, &at, &["mapping", "overhead"]);
        if !has(resource, "mapping") && !has(resource, "overhead") {
            findings.add(&at, "has neither mapping nor overhead", "Say how the resource is used");
        }
        if has(resource, "mapping") {
            mapping(&resource["mapping"], device, &format!("{at}.mapping"), findings);
        }
        if has(resource, "overhead") {
            overhead(&resource["overhead"], &format!("{at}.overhead"), findings);
        }
    }
}

fn mapping(mapping: &Value, device: &Value, at: &str, findings: &mut Findings) {
    findings.unknown_fields(mapping, at, &["capacityKey", "capacityMultiplier", "deviceMultiplier"]);
    let (key, by_capacity, by_device) =
        (text(mapping, "capacityKey"), has(mapping, "capacityMultiplier"), has(mapping, "deviceMultiplier"));
    if has(mapping, "capacityKey") {
        if device["capacity"].get(key).is_none() {
            findings.add(
                format!("{at}.capacityKey"),
                format!("the device has no capacity {key:?}"),
                "Name one as it is written in the device's capacity",
            );
        }
        if !by_capacity {
            findings.add(
                format!("{at}.capacityMultiplier"),
                "is missing, but needed with capacityKey",
                "Say how much of the resource one unit of the capacity is, for example `capacityMultiplier: 1`",
            );
        }
    } else if by_capacity {
        findings.add(
            format!("{at}.capacityKey"),
            "is missing, but needed with capacityMultiplier",
            "Name the capacity",
        );
    }
    if by_device == has(mapping, "capacityKey") {
        findings.add(
            at,
            "says not exactly one way to compute the resource",
            "Set capacityKey or deviceMultiplier",
        );
    }
    for multiplier in ["capacityMultiplier", "deviceMultiplier"] {
        let at = format!("{at}.{multiplier}");
        if has(mapping, multiplier)
            && let Some(factor) = quantity(&mapping[multiplier], &at, findings)
            && factor <= Quantity::ZERO
        {
            findings.add(at, "is not positive", "Write a quantity above zero");
        }
    }
}

fn overhead(overhead: &Value, at: &str, findings: &mut Findings) {
    findings.unknown_fields(overhead, at, &["perPod", "perContainer"]);
    if !has(overhead, "perPod") && !has(overhead, "perContainer") {
        findings.add(at, "has neither perPod nor perContainer", "Set at least one");
    }
    for part in ["perPod", "perContainer"] {
        let at = format!("{at}.{part}");
        if has(overhead, part)
            && let Some(amount) = quantity(&overhead[part], &at, findings)
            && amount < Quantity::ZERO
        {
            findings.add(at, "is negative", "Write a quantity of zero or more");
        }
    }
}

/// A taint rule's spec. Selection by class or expression existed in earlier versions of the API and is gone; a client
/// that is not strict drops it without a word, and the rule taints more than was meant.
pub(super) fn taint_rule(spec: &Value, findings: &mut Findings) {
    let selector = &spec["deviceSelector"];
    let at = "spec.deviceSelector";
    if !has(spec, "deviceSelector") {
        findings.add(
            at,
            "is missing, so that the rule selects nothing",
            "Add one; `{}` selects every device",
        );
    } else if fields(selector).next().is_none() {
        findings.add(at, "is empty, so that the rule selects every device", "Name a driver, pool or device");
    }
    for gone in ["deviceClassName", "selectors"] {
        if has(selector, gone) {
            findings.add(
                format!("{at}.{gone}"),
                "does not exist any more; dropped, the rule taints every device that the rest selects",
                "Select by driver, pool and device",
            );
        }
    }
    findings.unknown_fields(selector, at, &["driver", "pool", "device", "deviceClassName", "selectors"]);
    if has(selector, "driver") {
        driver_name(selector, &format!("{at}.driver"), findings);
    }
    taint(&spec["taint"], "spec.taint", findings);
}

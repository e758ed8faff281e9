//! Claims, templates and classes.

use std::collections::BTreeSet;

use dra_cel::{CompileOptions, Compiler, Environment, Interner, MAX_LENGTH, Purpose};
use serde_json::Value;

use super::{Findings, has, items, names, text};

/// `spec.devices` of a claim (`validateDeviceClaim`).
pub(super) fn claim(devices: &Value, at: &str, findings: &mut Findings) {
    let requests = items(devices, "requests");
    if requests.len() > 32 {
        findings.add(format!("{at}.requests"), "more than 32 requests", "Use several claims");
    }
    let constraints = items(devices, "constraints");
    let mut known = BTreeSet::new();
    for (position, request) in requests.iter().enumerate() {
        let at = format!("{at}.requests[{position}]");
        let name = text(request, "name");
        named(name, &at, &mut known, findings);
        let alternatives = items(request, "firstAvailable");
        if has(request, "exactly") != alternatives.is_empty() {
            let v1beta1 = if has(request, "deviceClassName") {
                "Put deviceClassName and what belongs to it under `exactly`, as v1 needs it"
            } else {
                "Set exactly one of them"
            };
            findings.add(&at, "has both or neither of exactly and firstAvailable", v1beta1);
        }
        if has(request, "exactly") {
            asked(&request["exactly"], name, &format!("{at}.exactly"), constraints, findings);
        }
        if alternatives.len() > 8 {
            findings.add(format!("{at}.firstAvailable"), "more than 8 alternatives", "Name at most 8");
        }
        for (position, alternative) in alternatives.iter().enumerate() {
            let at = format!("{at}.firstAvailable[{position}]");
            let full = format!("{name}/{}", text(alternative, "name"));
            named(&full, &at, &mut known, findings);
            asked(alternative, &full, &at, constraints, findings);
        }
    }
    for (position, constraint) in constraints.iter().enumerate() {
        self::constraint(constraint, &format!("{at}.constraints[{position}]"), &known, findings);
    }
    for (position, config) in items(devices, "config").iter().enumerate() {
        references(config, &format!("{at}.config[{position}]"), &known, findings);
    }
}

/// A class's spec.
pub(super) fn class(spec: &Value, findings: &mut Findings) {
    selectors(spec, "spec", findings);
    if let Some(name) = spec["extendedResourceName"].as_str() {
        let is_qualified = name.split_once('/').is_some_and(|(domain, rest)| {
            names::subdomain(domain, 253).is_ok() && !rest.is_empty() && !rest.contains('/')
        });
        let reserved = name.contains("kubernetes.io/") || name.starts_with("requests.");
        if !is_qualified || reserved {
            findings.add(
                "spec.extendedResourceName",
                format!("{name:?} is no extended resource name"),
                "Write DOMAIN/NAME outside kubernetes.io",
            );
        }
    }
}

fn named(full: &str, at: &str, known: &mut BTreeSet<String>, findings: &mut Findings) {
    let name = full.rsplit('/').next().unwrap_or(full);
    if let Err(fault) = names::label(name) {
        findings.add(format!("{at}.name"), fault, "Rename the request");
    } else if !known.insert(full.to_owned()) {
        findings.add(format!("{at}.name"), format!("{full:?} is there twice"), "Rename one of the requests");
    }
}

/// What a request or an alternative asks for.
fn asked(asked: &Value, name: &str, at: &str, constraints: &[Value], findings: &mut Findings) {
    let class = text(asked, "deviceClassName");
    if let Err(fault) = names::subdomain(class, 253) {
        findings.add(format!("{at}.deviceClassName"), fault, "Name a DeviceClass");
    }
    let count = &asked["count"];
    match text(asked, "allocationMode") {
        "All" if !count.is_null() && *count != 0 => {
            findings.add(format!("{at}.count"), "is set with allocationMode All", "Remove one of the two");
        }
        // Zero becomes one by default.
        "" | "ExactCount" if !count.is_null() && !matches!(count.as_i64(), Some(0..)) => {
            findings.add(format!("{at}.count"), format!("{count} is no count"), "Ask for 1 to 32 devices");
        }
        "" | "ExactCount" if matches!(count.as_i64(), Some(33..)) => {
            findings.add(
                format!("{at}.count"),
                format!("{count} devices are more than the 32 that a claim can get"),
                "Ask for at most 32 in all requests together",
            );
        }
        "" | "All" | "ExactCount" => {}
        mode => findings.add(
            format!("{at}.allocationMode"),
            format!("{mode:?} is no mode"),
            "Write ExactCount or All",
        ),
    }
    selectors(asked, at, findings);
    for (position, attribute) in items(asked, "derivedAttributes").iter().enumerate() {
        derived(attribute, name, &format!("{at}.derivedAttributes[{position}]"), constraints, findings);
    }
    for (position, toleration) in items(asked, "tolerations").iter().enumerate() {
        self::toleration(toleration, &format!("{at}.tolerations[{position}]"), findings);
    }
}

fn selectors(of: &Value, at: &str, findings: &mut Findings) {
    for (position, selector) in items(of, "selectors").iter().enumerate() {
        let at = format!("{at}.selectors[{position}].cel");
        if has(selector, "cel") {
            let source = text(&selector["cel"], "expression");
            expression(source, Purpose::Selector, &format!("{at}.expression"), findings);
        } else {
            findings.add(at, "is missing", "Write `cel: {expression: …}`");
        }
    }
}

/// Compiles an expression as the API server does for one that is new, with all gates on.
fn expression(source: &str, purpose: Purpose, at: &str, findings: &mut Findings) {
    let options = CompileOptions {
        environment: Environment::New,
        consumable_capacity: true,
        list_type_attributes: true,
        purpose,
        ..CompileOptions::default()
    };
    if let Err(error) = Compiler::new().compile(source, &options, &mut Interner::new()) {
        let remedy = match hyphenated(source) {
            Some(name) => format!(
                "The hyphen in {name} is a minus, and no attribute can have that name: publish and ask for {}",
                name.replace('-', "_")
            ),
            None if source.len() > MAX_LENGTH => format!("Shorten it to {MAX_LENGTH} bytes"),
            None => "Correct the expression".to_owned(),
        };
        findings.add(at, format!("CEL: {error}"), remedy);
    }
}

/// A name with a hyphen behind `].`, as in `device.attributes["a.dev"].supported-models`.
fn hyphenated(source: &str) -> Option<&str> {
    source.split("].").skip(1).find_map(|rest| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        rest.get(..end).filter(|name| name.trim_matches('-').contains('-'))
    })
}

/// A derived attribute, which must be used by a constraint on its request.
fn derived(attribute: &Value, of: &str, at: &str, constraints: &[Value], findings: &mut Findings) {
    let name = text(attribute, "name");
    if let Err(fault) = names::fully_qualified(name) {
        findings.add(format!("{at}.name"), fault, "Name it DOMAIN/IDENTIFIER");
    }
    let parent = of.split('/').next().unwrap_or(of);
    let is_used = constraints.iter().any(|constraint| {
        let requests = items(constraint, "requests");
        let concerns =
            requests.is_empty() || requests.iter().any(|request| *request == of || *request == parent);
        concerns
            && (text(constraint, "matchAttribute") == name || text(constraint, "distinctAttribute") == name)
    });
    if !is_used {
        findings.add(
            format!("{at}.name"),
            format!("no constraint on request {of} uses {name:?}"),
            "Use it in matchAttribute or distinctAttribute, or remove it",
        );
    }
    let source = text(attribute, "expression");
    expression(source, Purpose::DerivedAttribute, &format!("{at}.expression"), findings);
}

/// A toleration. One with operator `Exists` and no key tolerates everything; an empty one tolerates taints whose value is
/// empty, though the documentation says everything.
fn toleration(toleration: &Value, at: &str, findings: &mut Findings) {
    let (operator, key, value) =
        (text(toleration, "operator"), text(toleration, "key"), text(toleration, "value"));
    match operator {
        "Exists" if !value.is_empty() => {
            findings.add(format!("{at}.value"), "is set with operator Exists", "Remove it, or use Equal");
        }
        "" | "Equal" if key.is_empty() && value.is_empty() => {
            findings.add(
                at,
                "has no key and no value: it tolerates only taints with an empty value",
                "To tolerate every taint write `operator: Exists`",
            );
        }
        "" | "Equal" | "Exists" => {}
        _ => findings.add(
            format!("{at}.operator"),
            format!("{operator:?} is no operator"),
            "Write Equal or Exists",
        ),
    }
}

fn constraint(constraint: &Value, at: &str, known: &BTreeSet<String>, findings: &mut Findings) {
    let kinds = ["matchAttribute", "distinctAttribute"];
    let set: Vec<&str> = kinds.into_iter().filter(|kind| has(constraint, kind)).collect();
    if set.len() != 1 {
        findings.add(at, "has both or neither of matchAttribute and distinctAttribute", "Set exactly one");
    }
    for kind in set {
        if let Err(fault) = names::fully_qualified(text(constraint, kind)) {
            findings.add(
                format!("{at}.{kind}"),
                fault,
                "Name it DOMAIN/IDENTIFIER, the domain being the driver's",
            );
        }
    }
    references(constraint, at, known, findings);
    findings.unknown_fields(constraint, at, &["requests", "matchAttribute", "distinctAttribute"]);
}

fn references(of: &Value, at: &str, known: &BTreeSet<String>, findings: &mut Findings) {
    for (position, name) in items(of, "requests").iter().enumerate() {
        if !name.as_str().is_some_and(|name| known.contains(name)) {
            findings.add(
                format!("{at}.requests[{position}]"),
                format!("{name} is no request of the claim"),
                "Name a request, or REQUEST/SUBREQUEST",
            );
        }
    }
}

//! What is wrong with objects before they meet an API server, in words that say what to do.
//!
//! [`lint`] reads objects as people write them, decoded from YAML or JSON, so that it can also name what no typed object
//! holds: a capacity that is a bare quantity, a field that does not exist. It knows the API server's rules that decide
//! over resources (`pkg/apis/resource/validation`), and what is accepted but does not do what it seems to. It is no
//! substitute for the server's own validation: what it does not name may still be refused.

mod claim;
mod names;
mod slice;

use std::fmt;

use serde_json::Value;

/// Something wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Kind and name, with the namespace if there is one: `ResourceClaim ns/name`.
    pub object: String,
    /// The field, as the API server names it: `spec.devices[0].attributes[a.dev/x]`.
    pub field: String,
    /// What is wrong.
    pub fault: String,
    /// What to do.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { object, field, fault, remedy } = self;
        write!(f, "{object}: {field}: {fault}. {remedy}")
    }
}

/// What is wrong with an object of `resource.k8s.io`, in the order of its fields; nothing for other kinds and for
/// `v1beta1`, whose fields differ.
///
/// Expressions are judged as with all gates on, so that nothing is said of what a gate would allow.
pub fn lint(object: &Value) -> Vec<Finding> {
    if text(object, "kind") == "List" {
        return items(object, "items").iter().flat_map(lint).collect();
    }
    let (group, version) = text(object, "apiVersion").split_once('/').unwrap_or_default();
    if group != "resource.k8s.io" || version == "v1beta1" {
        return Vec::new();
    }
    let mut findings = Findings { object: identity(object), found: Vec::new() };
    let spec = &object["spec"];
    match text(object, "kind") {
        "ResourceSlice" => slice::slice(spec, &mut findings),
        "ResourceClaim" => claim::claim(&spec["devices"], "spec.devices", &mut findings),
        "ResourceClaimTemplate" => {
            let spec = &spec["spec"];
            claim::claim(&spec["devices"], "spec.spec.devices", &mut findings);
        }
        "DeviceClass" => claim::class(spec, &mut findings),
        "DeviceTaintRule" => slice::taint_rule(spec, &mut findings),
        "ResourcePoolStatusRequest" => pool_status_request(spec, &mut findings),
        _ => {}
    }
    findings.found
}

fn pool_status_request(spec: &Value, findings: &mut Findings) {
    driver_name(spec, "spec.driver", findings);
    if let Some(pool) = spec["poolName"].as_str()
        && let Err(fault) = names::pool(pool)
    {
        findings.add("spec.poolName", fault, "Write the pool's name as its slices do");
    }
    if let Some(limit) = spec["limit"].as_i64()
        && !(1..=1000).contains(&limit)
    {
        findings.add("spec.limit", format!("{limit} is out of range"), "Ask for 1 to 1000 pools");
    }
}

fn driver_name(spec: &Value, field: &str, findings: &mut Findings) {
    let driver = text(spec, "driver");
    if let Err(fault) = names::driver(driver) {
        // What people mean by `example.com/gpu` is most often this.
        let meant = match driver.split_once('/') {
            Some((domain, name)) if names::driver(&format!("{name}.{domain}")).is_ok() => {
                format!("; for example {name}.{domain}")
            }
            _ => String::new(),
        };
        let remedy = format!("Write the driver's name as its slices do{meant}");
        findings.add(field, fault, remedy);
    }
}

fn identity(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = [text(metadata, "name"), text(metadata, "generateName")];
    let name = name.into_iter().find(|name| !name.is_empty()).unwrap_or("without a name");
    match text(metadata, "namespace") {
        "" => format!("{} {name}", text(object, "kind")),
        namespace => format!("{} {namespace}/{name}", text(object, "kind")),
    }
}

/// Collects what is wrong with one object.
struct Findings {
    object: String,
    found: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, field: impl Into<String>, fault: impl Into<String>, remedy: impl Into<String>) {
        self.found.push(Finding {
            object: self.object.clone(),
            field: field.into(),
            fault: fault.into(),
            remedy: remedy.into(),
        });
    }

    /// Fields that the API does not have; an API server drops them, with a warning or without.
    fn unknown_fields(&mut self, value: &Value, field: &str, known: &[&str]) {
        for (name, _) in fields(value) {
            if !known.contains(&name.as_str()) {
                self.add(
                    format!("{field}.{name}"),
                    "there is no such field",
                    format!("Remove it; the fields are {}", known.join(", ")),
                );
            }
        }
    }
}

/// The text in a field, empty if there is none.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The list in a field, empty if there is none.
fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// The fields of an object, none for other values.
fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

/// Whether a field is there and not `null`.
fn has(value: &Value, field: &str) -> bool {
    !value[field].is_null()
}

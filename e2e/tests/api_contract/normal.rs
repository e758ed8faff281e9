//! Making answers comparable.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Numbers for what differs by nature, in the order of first appearance.
#[derive(Default)]
pub(crate) struct Normal {
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<String, usize>,
    /// Generated names and what they are called instead.
    names: BTreeMap<String, String>,
}

/// Fields that one of the servers leaves out and no controller reads.
const LEFT_OUT: &[&str] = &["managedFields", "selfLink", "shortNames", "categories", "storageVersionHash"];

impl Normal {
    pub(crate) fn answer(&mut self, code: u16, body: &Value) -> Value {
        self.collect(body);
        let mut body = self.value("", body).unwrap_or(Value::Null);
        if code == 200 && body["kind"] == "APIResourceList" {
            resources(&mut body);
        }
        if body["kind"] == "Status" && code >= 400 {
            status(code, &mut body);
        }
        body
    }

    /// Numbers uids and versions in the order of a walk that does not depend on the server: objects are sorted.
    fn collect(&mut self, value: &Value) {
        match value {
            Value::Object(map) => {
                for (field, child) in map {
                    let Some(text) = child.as_str() else { continue };
                    match field.as_str() {
                        // Real ones; fixtures have shorter ones.
                        "uid" if text.len() == 36 => number(&mut self.uids, text),
                        "resourceVersion" if !is_list(map) => number(&mut self.versions, text),
                        _ => {}
                    }
                }
                if let (Some(base), Some(name)) = (text(map, "generateName"), text(map, "name")) {
                    self.names.insert(name.to_owned(), format!("{base}*"));
                }
                map.values().for_each(|child| self.collect(child));
            }
            Value::Array(list) => list.iter().for_each(|child| self.collect(child)),
            _ => {}
        }
    }

    fn value(&self, field: &str, value: &Value) -> Option<Value> {
        let value = match value {
            Value::Null => return None,
            Value::Object(map) => {
                let map: Map<String, Value> = map
                    .iter()
                    .filter(|(name, _)| !LEFT_OUT.contains(&name.as_str()))
                    .filter(|(name, _)| !(is_list(map) && *name == "resourceVersion"))
                    .filter_map(|(name, child)| Some((name.clone(), self.value(name, child)?)))
                    .collect();
                if map.is_empty() && field != "object" {
                    return None;
                }
                Value::Object(map)
            }
            Value::Array(list) if list.is_empty() => return None,
            Value::Array(list) => {
                Value::Array(list.iter().map(|child| self.value("", child).unwrap_or(Value::Null)).collect())
            }
            Value::String(text) => Value::String(self.text(field, text)?),
            other => other.clone(),
        };
        Some(value)
    }

    fn text(&self, field: &str, text: &str) -> Option<String> {
        match field {
            "resourceVersion" => {
                return Some(self.versions.get(text).map_or("?".into(), |n| format!("version {n}")));
            }
            "continue" => return Some("token".to_owned()),
            // Go leaves empty texts out or not, and nobody can tell the difference.
            _ if text.is_empty() => return None,
            _ => {}
        }
        if text.parse::<Timestamp>().is_ok() {
            return Some("time".to_owned());
        }
        let mut text = text.to_owned();
        for (uid, number) in &self.uids {
            text = text.replace(uid, &format!("uid {number}"));
        }
        for (name, called) in &self.names {
            text = text.replace(name, called);
        }
        if field == "message" {
            // Revisions in messages.
            let mut words: Vec<String> = Vec::new();
            for word in text.split(' ') {
                let bare = word.trim_matches(|c: char| c.is_ascii_punctuation());
                let digits = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit());
                words.push(if digits { word.replace(bare, "N") } else { word.to_owned() });
            }
            text = words.join(" ");
        }
        Some(text)
    }
}

fn text<'a>(map: &'a Map<String, Value>, field: &str) -> Option<&'a str> {
    map.get(field)?.as_str()
}

/// `metadata` of a list has neither name nor uid.
fn is_list(map: &Map<String, Value>) -> bool {
    map.contains_key("resourceVersion") && !map.contains_key("name") && !map.contains_key("uid")
}

fn number(numbers: &mut BTreeMap<String, usize>, text: &str) {
    let next = numbers.len() + 1;
    numbers.entry(text.to_owned()).or_insert(next);
}

/// Refusals: what is compared is what a client acts on. Texts of validation errors are for people, and long.
fn status(code: u16, body: &mut Value) {
    if matches!(code, 400 | 415 | 422 | 500) {
        body["message"] = Value::Null;
        // Of a generated name.
        body["details"]["name"] = Value::Null;
    }
    let causes = body["details"]["causes"].as_array().cloned().unwrap_or_default();
    if !causes.is_empty() {
        let mut told: Vec<Value> =
            causes.iter().map(|c| json!({"reason": c["reason"], "field": c["field"]})).collect();
        told.sort_by_key(ToString::to_string);
        told.dedup();
        body["details"]["causes"] = json!(told);
    }
}

/// Of a list of resources, those that the embedded server has.
fn resources(body: &mut Value) {
    const KNOWN: &[&str] = &[
        "namespaces",
        "namespaces/status",
        "nodes",
        "nodes/status",
        "pods",
        "pods/binding",
        "pods/eviction",
        "pods/status",
        "deviceclasses",
        "devicetaintrules",
        "devicetaintrules/status",
        "resourceclaims",
        "resourceclaims/status",
        "resourceclaimtemplates",
        "resourceslices",
        "podgroups",
        "podgroups/status",
    ];
    let old = body["groupVersion"] == "resource.k8s.io/v1beta2";
    let Some(list) = body["resources"].as_array() else { return };
    let mut kept: Vec<Value> = list
        .iter()
        .filter(|r| {
            KNOWN.iter().any(|known| r["name"] == *known && (!old || known.starts_with("devicetaintrules")))
        })
        .map(|r| {
            let mut verbs: Vec<&str> =
                r["verbs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            verbs.sort_unstable();
            json!({"name": r["name"], "kind": r["kind"], "namespaced": r["namespaced"], "verbs": verbs})
        })
        .collect();
    kept.sort_by_key(|r| r["name"].to_string());
    body["resources"] = json!(kept);
}

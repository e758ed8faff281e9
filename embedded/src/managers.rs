//! Who set which field: what server-side apply needs to know.
//!
//! A field is written as Kubernetes writes it in conflicts: `.status.conditions[type="Ready"].reason`. Leaves are
//! owned, and elements of lists that are merged by key; what is always there (names, kind) is not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    kinds::{KindInfo, Lists},
    refusal::Refusal,
};

/// A writer of fields.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    /// True for server-side apply.
    pub(crate) applies: bool,
    /// True for the status subresource.
    pub(crate) status: bool,
    /// `apiVersion` of the request.
    pub(crate) api_version: String,
}

impl Manager {
    /// As conflicts name it.
    fn display(&self) -> String {
        let status = if self.status { " with subresource \"status\"" } else { "" };
        let using = if self.applies { String::new() } else { format!(" using {}", self.api_version) };
        format!("\"{}\"{status}{using}", self.name)
    }
}

/// The fields of every writer of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Managers(BTreeMap<Manager, BTreeSet<String>>);

const UNOWNED: &[&str] = &["apiVersion", "kind"];
const OWNED_METADATA: &[&str] = &["labels", "annotations", "finalizers", "ownerReferences"];

/// Where a walk through an object is.
struct Place<'a> {
    kind: &'a KindInfo,
    fields: Vec<&'a str>,
    text: String,
}

impl<'a> Place<'a> {
    fn new(kind: &'a KindInfo) -> Self {
        Self { kind, fields: Vec::new(), text: String::new() }
    }

    fn is_unowned(&self, field: &str) -> bool {
        match &self.fields[..] {
            [] => UNOWNED.contains(&field),
            ["metadata"] => !OWNED_METADATA.contains(&field),
            _ => false,
        }
    }

    /// Goes into a field for the time of `f`.
    fn field<R>(&mut self, name: &'a str, f: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.text.len();
        self.text.push('.');
        self.text.push_str(name);
        self.fields.push(name);
        let result = f(self);
        self.fields.pop();
        self.text.truncate(length);
        result
    }

    /// Goes into a list element for the time of `f`.
    fn element<R>(&mut self, key: &str, f: impl FnOnce(&mut Self) -> R) -> R {
        let length = self.text.len();
        self.text.push_str(key);
        let result = f(self);
        self.text.truncate(length);
        result
    }

    /// How the elements of the list here are told apart; nothing when the list is a leaf.
    fn keys(&self) -> Option<Lists> {
        match self.kind.list(&self.fields) {
            Lists::Atomic => None,
            rule => Some(rule),
        }
    }
}

/// `[type="A"]`, or `[="text"]` in a set.
fn element_key(rule: Lists, element: &Value) -> String {
    match rule {
        Lists::Map(keys) | Lists::MapInApply(keys) => {
            let parts: Vec<String> =
                keys.iter().filter_map(|k| Some(format!("{k}={}", element.get(k)?))).collect();
            format!("[{}]", parts.join(","))
        }
        Lists::Set | Lists::Atomic => format!("[={element}]"),
    }
}

/// Calls `f` for each owned field; its value is null for an element that has fields of its own.
fn walk<'a>(value: &'a Value, place: &mut Place<'a>, f: &mut impl FnMut(&str, &'a Value)) {
    match value {
        Value::Object(map) if !map.is_empty() || place.fields.is_empty() => {
            for (name, child) in map {
                if !place.is_unowned(name) {
                    place.field(name, |place| walk(child, place, f));
                }
            }
        }
        Value::Array(list) => match place.keys() {
            None => f(&place.text, value),
            Some(rule) => {
                for element in list {
                    place.element(&element_key(rule, element), |place| {
                        f(&place.text, &Value::Null);
                        if element.is_object() {
                            walk(element, place, f);
                        }
                    });
                }
            }
        },
        Value::Null => {}
        leaf => f(&place.text, leaf),
    }
}

fn leaves<'a>(kind: &'a KindInfo, object: &'a Value) -> BTreeMap<String, &'a Value> {
    let mut found = BTreeMap::new();
    walk(object, &mut Place::new(kind), &mut |path, value| {
        found.insert(path.to_owned(), value);
    });
    found
}

/// Calls `f` for each owned field that is new or different in `new`, and for each that only `old` has (then with
/// `true`). Parts that are equal are not looked into.
fn differences<'a>(old: &'a Value, new: &'a Value, place: &mut Place<'a>, f: &mut impl FnMut(&str, bool)) {
    if old == new {
        return;
    }
    match (old, new) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, child) in after {
                if !place.is_unowned(name) {
                    let was = before.get(name).unwrap_or(&Value::Null);
                    place.field(name, |place| differences(was, child, place, f));
                }
            }
            for (name, child) in before {
                if !after.contains_key(name) && !place.is_unowned(name) {
                    place.field(name, |place| walk(child, place, &mut |path, _| f(path, true)));
                }
            }
        }
        (Value::Array(before), Value::Array(after)) if place.keys().is_some() => {
            let Some(rule) = place.keys() else { return };
            let find = |list: &'a [Value], key: &str| list.iter().find(|e| element_key(rule, e) == key);
            for element in after {
                let key = element_key(rule, element);
                place.element(&key, |place| {
                    if let Some(was) = find(before, &key) {
                        differences(was, element, place, f);
                        return;
                    }
                    f(&place.text, false);
                    if element.is_object() {
                        walk(element, place, &mut |path, _| f(path, false));
                    }
                });
            }
            for element in before {
                let key = element_key(rule, element);
                if find(after, &key).is_none() {
                    place.element(&key, |place| {
                        f(&place.text, true);
                        if element.is_object() {
                            walk(element, place, &mut |path, _| f(path, true));
                        }
                    });
                }
            }
        }
        (_, Value::Null) => walk(old, place, &mut |path, _| f(path, true)),
        _ => walk(new, place, &mut |path, _| f(path, false)),
    }
}

/// Takes the fields out of the object.
fn remove(value: &mut Value, gone: &BTreeSet<String>, place: &mut Place<'_>) {
    match value {
        Value::Object(map) => {
            let names: Vec<String> = map.keys().cloned().collect();
            for name in names {
                let path = format!("{}.{name}", place.text);
                if gone.contains(&path) {
                    map.remove(&name);
                } else if let Some(child) = map.get_mut(&name)
                    && !place.is_unowned(&name)
                {
                    let mut inner = Place { kind: place.kind, fields: place.fields.clone(), text: path };
                    inner.fields.push(&name);
                    remove(child, gone, &mut inner);
                }
            }
        }
        Value::Array(list) => {
            let Some(rule) = place.keys() else { return };
            list.retain_mut(|element| {
                let path = format!("{}{}", place.text, element_key(rule, element));
                if gone.contains(&path) {
                    return false;
                }
                if element.is_object() {
                    let mut inner = Place { kind: place.kind, fields: place.fields.clone(), text: path };
                    remove(element, gone, &mut inner);
                }
                true
            });
        }
        _ => {}
    }
}

/// Sets in `live` what `applied` says, and leaves the rest.
fn merge<'a>(live: &mut Value, applied: &'a Value, place: &mut Place<'a>) {
    match (live, applied) {
        (_, Value::Null) => {}
        (Value::Object(map), Value::Object(fields)) => {
            for (name, value) in fields {
                let child = map.entry(name.clone()).or_insert(Value::Null);
                place.field(name, |place| merge(child, value, place));
            }
            map.retain(|_, v| !v.is_null());
        }
        (Value::Array(list), Value::Array(elements)) if place.keys().is_some() => {
            let Some(rule) = place.keys() else { return };
            let mut present = std::mem::take(list).into_iter().peekable();
            let keys: Vec<String> = elements.iter().map(|e| element_key(rule, e)).collect();
            let mut merged: Vec<(String, Value)> = Vec::new();
            let mut wanted = elements.iter().zip(&keys);
            // Elements that are applied come in that order; the others keep their place between them.
            let mut held: Vec<(String, Value)> = Vec::new();
            loop {
                while let Some(element) = present.next_if(|e| !keys.contains(&element_key(rule, e))) {
                    merged.push((element_key(rule, &element), element));
                }
                if let Some(element) = present.next() {
                    held.push((element_key(rule, &element), element));
                } else if wanted.len() == 0 {
                    break;
                }
                for (element, key) in wanted.by_ref() {
                    merged.push((key.clone(), element.clone()));
                    if held.last().is_some_and(|(held, _)| held == key) {
                        break;
                    }
                }
            }
            for (key, value) in &mut merged {
                if let Some((_, was)) = held.iter_mut().find(|(held, _)| held == key) {
                    let applied = elements.iter().zip(&keys).find(|(_, k)| *k == key).map(|(e, _)| e);
                    *value = std::mem::take(was);
                    if let Some(applied) = applied {
                        place.element(key, |place| merge(value, applied, place));
                    }
                }
            }
            list.extend(merged.into_iter().map(|(_, value)| value));
        }
        (live, value) => *live = value.clone(),
    }
}

impl Managers {
    /// A write that is no apply: what it changed is its writer's.
    pub(crate) fn updated(&mut self, kind: &KindInfo, manager: Manager, old: &Value, new: &Value) {
        let (mut set, mut gone) = (BTreeSet::new(), BTreeSet::new());
        differences(old, new, &mut Place::new(kind), &mut |path, removed| {
            if removed { &mut gone } else { &mut set }.insert(path.to_owned());
        });
        for fields in self.0.values_mut() {
            fields.retain(|f| !set.contains(f) && !gone.contains(f));
        }
        if !set.is_empty() {
            self.0.entry(manager).or_default().extend(set);
        }
        self.0.retain(|_, fields| !fields.is_empty());
    }

    /// Applies a configuration: the object that comes of it, and who owns what then.
    ///
    /// # Errors
    /// Another manager has set a field to something else, and `force` is not given.
    pub(crate) fn applied(
        &self,
        kind: &KindInfo,
        manager: &Manager,
        live: &Value,
        configuration: &Value,
        force: bool,
    ) -> Result<(Value, Self), Refusal> {
        let mut after = self.clone();
        let (present, wanted) = (leaves(kind, live), leaves(kind, configuration));
        let changed: BTreeSet<&String> =
            wanted.iter().filter(|(path, value)| present.get(*path) != Some(value)).map(|(p, _)| p).collect();
        let mut conflicts = Vec::new();
        for (other, fields) in &mut after.0 {
            if other == manager {
                continue;
            }
            fields.retain(|field| {
                let conflict = changed.contains(field);
                if conflict {
                    conflicts.push((other.display(), field.clone()));
                }
                !conflict
            });
        }
        if !conflicts.is_empty() && !force {
            return Err(Refusal::managers_disagree(&conflicts));
        }
        let mut object = live.clone();
        merge(&mut object, configuration, &mut Place::new(kind));
        let mine: BTreeSet<String> = wanted.into_keys().collect();
        if let Some(before) = after.0.insert(manager.clone(), mine.clone()) {
            let gone: BTreeSet<String> = before
                .difference(&mine)
                .filter(|field| !after.owned_by_other(manager, field))
                .cloned()
                .collect();
            remove(&mut object, &gone, &mut Place::new(kind));
        }
        after.0.retain(|_, fields| !fields.is_empty());
        Ok((object, after))
    }

    /// True when another manager owns the field or something in it.
    fn owned_by_other(&self, manager: &Manager, field: &str) -> bool {
        self.0.iter().filter(|(other, _)| *other != manager).any(|(_, fields)| {
            fields
                .range(field.to_owned()..)
                .take_while(|f| f.starts_with(field))
                .any(|f| matches!(f.as_bytes().get(field.len()), None | Some(b'.' | b'[')))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::{KINDS, position};

    fn pod() -> &'static KindInfo {
        &KINDS[position("Pod").unwrap()]
    }

    fn manager(name: &str) -> Manager {
        Manager { name: name.to_owned(), applies: true, status: true, api_version: "v1".to_owned() }
    }

    fn statuses(entries: &[(&str, &str)]) -> Value {
        let list: Vec<Value> =
            entries.iter().map(|(n, c)| json!({"name": n, "resourceClaimName": c})).collect();
        json!({"status": {"resourceClaimStatuses": list}})
    }

    fn names(object: &Value) -> Vec<&str> {
        crate::object::items(object, &["status", "resourceClaimStatuses"])
            .iter()
            .map(|s| s["resourceClaimName"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn an_entry_that_is_no_longer_applied_goes_away_and_those_of_others_stay() {
        let none = Managers::default();
        let (live, owners) = none
            .applied(pod(), &manager("a"), &json!({}), &statuses(&[("x", "1"), ("y", "2")]), true)
            .unwrap();
        let (live, owners) =
            owners.applied(pod(), &manager("b"), &live, &statuses(&[("z", "3")]), true).unwrap();
        assert_eq!(names(&live), ["1", "2", "3"]);
        let (live, _) = owners.applied(pod(), &manager("a"), &live, &statuses(&[("y", "2")]), true).unwrap();
        assert_eq!(names(&live), ["2", "3"]);
    }

    #[test]
    fn a_field_of_another_manager_is_a_conflict_unless_forced() {
        let none = Managers::default();
        let (live, owners) =
            none.applied(pod(), &manager("a"), &json!({}), &statuses(&[("x", "1")]), false).unwrap();
        let wanted = statuses(&[("x", "2")]);
        let refusal = owners.applied(pod(), &manager("b"), &live, &wanted, false).unwrap_err();
        assert_eq!(refusal.code(), 409);
        let text = refusal.body().to_string();
        assert!(text.contains(r#".status.resourceClaimStatuses[name=\"x\"].resourceClaimName"#), "{text}");
        let (live, owners) = owners.applied(pod(), &manager("b"), &live, &wanted, true).unwrap();
        assert_eq!(names(&live), ["2"]);
        // It is b's now: a takes nothing away by applying nothing.
        let (live, _) = owners.applied(pod(), &manager("a"), &live, &statuses(&[]), false).unwrap();
        assert_eq!(names(&live), ["2"]);
    }

    #[test]
    fn the_same_value_is_shared_and_stays_until_the_last_owner_lets_go() {
        let none = Managers::default();
        let wanted = statuses(&[("x", "1")]);
        let (live, owners) = none.applied(pod(), &manager("a"), &json!({}), &wanted, false).unwrap();
        let (live, owners) = owners.applied(pod(), &manager("b"), &live, &wanted, false).unwrap();
        let (live, owners) = owners.applied(pod(), &manager("a"), &live, &statuses(&[]), false).unwrap();
        assert_eq!(names(&live), ["1"]);
        let (live, _) = owners.applied(pod(), &manager("b"), &live, &statuses(&[]), false).unwrap();
        assert!(names(&live).is_empty());
    }

    #[test]
    fn a_plain_write_takes_over_what_it_changes() {
        let none = Managers::default();
        let (live, mut owners) =
            none.applied(pod(), &manager("a"), &json!({}), &statuses(&[("x", "1")]), false).unwrap();
        let updater = Manager { applies: false, ..manager("u") };
        let new = statuses(&[("x", "2")]);
        owners.updated(pod(), updater, &live, &new);
        assert!(owners.applied(pod(), &manager("a"), &new, &statuses(&[("x", "1")]), false).is_err());
        let (kept, _) = owners.applied(pod(), &manager("a"), &new, &statuses(&[]), false).unwrap();
        assert_eq!(names(&kept), ["2"]);
    }
}

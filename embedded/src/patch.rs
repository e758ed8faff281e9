//! Strategic merge patches, as `k8s.io/apimachinery/pkg/util/strategicpatch` applies them on the server.

use serde_json::{Map, Value};

use crate::{
    kinds::{KindInfo, Lists},
    refusal::Refusal,
};

const DIRECTIVE: &str = "$patch";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const RETAIN: &str = "$retainKeys";

/// Applies a strategic merge patch.
///
/// # Errors
/// The patch is not one: a list element without its merge key, an unknown directive.
pub(crate) fn strategic(kind: &KindInfo, object: &mut Value, patch: &Value) -> Result<(), Refusal> {
    let Value::Object(patch) = patch else {
        return Err(Refusal::bad_request("the patch is not a JSON object"));
    };
    if let Value::Object(fields) = object {
        merge_map(kind, fields, patch, &mut Vec::new())?;
    }
    Ok(())
}

fn bad(message: impl Into<String>) -> Refusal {
    Refusal::bad_request(message)
}

fn merge_map<'p>(
    kind: &KindInfo,
    object: &mut Map<String, Value>,
    patch: &'p Map<String, Value>,
    path: &mut Vec<&'p str>,
) -> Result<(), Refusal> {
    match patch.get(DIRECTIVE).map(|d| d.as_str().unwrap_or_default()) {
        None | Some("merge") => {}
        Some("replace") => {
            object.clone_from(patch);
            object.remove(DIRECTIVE);
            return Ok(());
        }
        Some("delete") => {
            object.clear();
            return Ok(());
        }
        Some(other) => return Err(bad(format!("unknown patch directive {other:?}"))),
    }
    if let Some(retained) = patch.get(RETAIN).and_then(Value::as_array) {
        object.retain(|field, _| retained.iter().any(|r| r.as_str() == Some(field)));
    }
    for (field, value) in patch {
        if let Some(list) = field.strip_prefix(DELETE_FROM) {
            let gone = value.as_array().map(Vec::as_slice).unwrap_or_default();
            if let Some(Value::Array(present)) = object.get_mut(list) {
                present.retain(|v| !gone.contains(v));
            }
        } else if let Some(list) = field.strip_prefix(ORDER) {
            // An order without elements sorts what is there.
            if !patch.contains_key(list)
                && let Some(Value::Array(present)) = object.get_mut(list)
            {
                path.push(list);
                let rule = kind.list(path);
                path.pop();
                let order = value.as_array().map(Vec::as_slice).unwrap_or_default();
                let before = present.clone();
                *present = ordered(std::mem::take(present), order, &before, merge_key(rule));
            }
        } else if !field.starts_with('$') {
            path.push(field);
            let order = patch.get(&format!("{ORDER}{field}"));
            let merged = merge_value(kind, object.remove(field), value, order, path);
            path.pop();
            if let Some(merged) = merged? {
                object.insert(field.clone(), merged);
            }
        }
    }
    Ok(())
}

fn merge_value<'p>(
    kind: &KindInfo,
    present: Option<Value>,
    patch: &'p Value,
    order: Option<&'p Value>,
    path: &mut Vec<&'p str>,
) -> Result<Option<Value>, Refusal> {
    Ok(match (present, patch) {
        (_, Value::Null) => None,
        (present, Value::Object(patch)) => {
            let existed = matches!(present, Some(Value::Object(_)));
            let mut fields = match present {
                Some(Value::Object(fields)) => fields,
                _ => Map::new(),
            };
            merge_map(kind, &mut fields, patch, path)?;
            let deleted = patch.get(DIRECTIVE).is_some_and(|d| d == "delete");
            (existed || !deleted).then_some(Value::Object(fields))
        }
        (present, Value::Array(patch)) => {
            let present = match present {
                Some(Value::Array(list)) => list,
                _ => Vec::new(),
            };
            Some(Value::Array(merge_list(kind, &present, patch, order, path)?))
        }
        (_, scalar) => Some(scalar.clone()),
    })
}

fn merge_key(rule: Lists) -> Option<&'static str> {
    match rule {
        Lists::Map(keys) => keys.first().copied(),
        _ => None,
    }
}

fn merge_list<'p>(
    kind: &KindInfo,
    present: &[Value],
    patch: &'p [Value],
    order: Option<&'p Value>,
    path: &mut Vec<&'p str>,
) -> Result<Vec<Value>, Refusal> {
    let rule = kind.list(path);
    let key = match rule {
        Lists::Atomic | Lists::MapInApply(_) => return Ok(patch.to_vec()),
        Lists::Set => {
            let mut merged = present.to_vec();
            merged.extend(patch.iter().filter(|v| !present.contains(v)).cloned());
            let order = order.and_then(Value::as_array).map_or(patch, Vec::as_slice);
            return Ok(ordered(merged, order, present, None));
        }
        Lists::Map(keys) => keys.first().copied().unwrap_or_default(),
    };
    let mut merged = present.to_vec();
    let mut replaced = false;
    for element in patch {
        match element.get(DIRECTIVE).map(|d| d.as_str().unwrap_or_default()) {
            Some("delete") => {
                let Some(value) = element.get(key) else {
                    return Err(bad(format!("delete patch type with no merge key {key:?} defined")));
                };
                merged.retain(|e| e.get(key) != Some(value));
            }
            Some("replace") => replaced = true,
            Some("merge") | None => {}
            Some(other) => return Err(bad(format!("unknown patch directive {other:?}"))),
        }
    }
    let plain: Vec<&'p Value> = patch.iter().filter(|e| e.get(DIRECTIVE).is_none()).collect();
    if replaced {
        return Ok(plain.into_iter().cloned().collect());
    }
    for element in &plain {
        let (Value::Object(fields), Some(value)) = (*element, element.get(key)) else {
            return Err(Refusal::unexplained(&format!(
                "map: {element} does not contain declared merge key: {key}"
            )));
        };
        if let Some(Value::Object(existing)) = merged.iter_mut().find(|e| e.get(key) == Some(value)) {
            merge_map(kind, existing, fields, path)?;
        } else {
            let mut new = Map::new();
            merge_map(kind, &mut new, fields, path)?;
            merged.push(Value::Object(new));
        }
    }
    let plain: Vec<Value> = plain.into_iter().cloned().collect();
    let order = order.and_then(Value::as_array).map_or(&plain[..], Vec::as_slice);
    Ok(ordered(merged, order, present, Some(key)))
}

/// `normalizeElementOrder`: the elements that `order` names come in its order; the others keep theirs and are
/// woven in, each before the first named one that stood behind it before.
fn ordered(merged: Vec<Value>, order: &[Value], before: &[Value], key: Option<&str>) -> Vec<Value> {
    let same = |a: &Value, b: &Value| match key {
        Some(key) => a.get(key) == b.get(key),
        None => a == b,
    };
    let place = |list: &[Value], value: &Value| list.iter().position(|v| same(v, value));
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|v| place(order, v).is_some());
    named.sort_by_key(|v| place(order, v));
    let mut others = others.into_iter().peekable();
    let mut result = Vec::new();
    for value in named {
        while let Some(other) = others.peek() {
            match (place(before, other), place(before, &value)) {
                (Some(left), Some(right)) if left < right => result.extend(others.next()),
                _ => break,
            }
        }
        result.push(value);
    }
    result.extend(others);
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::{KINDS, position};

    fn patched(kind: &str, mut object: Value, patch: &Value) -> Value {
        strategic(&KINDS[position(kind).unwrap()], &mut object, patch).unwrap();
        object
    }

    fn claim(consumers: &[&str]) -> Value {
        let list: Vec<Value> = consumers.iter().map(|uid| json!({"uid": uid, "name": uid})).collect();
        json!({"status": {"reservedFor": list, "allocation": {}}})
    }

    fn uids(claim: &Value) -> Vec<&str> {
        claim["status"]["reservedFor"]
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["uid"].as_str().unwrap())
            .collect()
    }

    #[test]
    fn a_new_consumer_comes_in_front_unless_an_order_says_otherwise() {
        let entry = json!({"uid": "c", "name": "c"});
        let without = json!({"status": {"reservedFor": [entry]}});
        assert_eq!(uids(&patched("ResourceClaim", claim(&["a", "b"]), &without)), ["c", "a", "b"]);
        let order = json!([{"uid": "a"}, {"uid": "b"}, {"uid": "c"}]);
        let with = json!({"status": {"reservedFor": [entry], "$setElementOrder/reservedFor": order}});
        assert_eq!(uids(&patched("ResourceClaim", claim(&["a", "b"]), &with)), ["a", "b", "c"]);
    }

    #[test]
    fn a_consumer_is_deleted_by_its_uid_and_null_clears_a_field() {
        let patch =
            json!({"status": {"reservedFor": [{"$patch": "delete", "uid": "a"}], "allocation": null}});
        let after = patched("ResourceClaim", claim(&["a", "b"]), &patch);
        assert_eq!(uids(&after), ["b"]);
        assert!(after["status"].get("allocation").is_none());
    }

    #[test]
    fn one_finalizer_is_removed_and_the_others_stay() {
        let object = json!({"metadata": {"finalizers": ["a", "b", "c"]}});
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["b"]}});
        assert_eq!(patched("ResourceClaim", object, &patch)["metadata"]["finalizers"], json!(["a", "c"]));
    }

    #[test]
    fn conditions_are_merged_by_type() {
        let object = json!({"status": {"conditions": [{"type": "A", "status": "True"}, {"type": "B"}]}});
        let patch = json!({"status": {"conditions": [{"type": "A", "status": "False"}]}});
        let after = patched("Pod", object, &patch);
        assert_eq!(after["status"]["conditions"], json!([{"type": "A", "status": "False"}, {"type": "B"}]));
    }

    #[test]
    fn an_atomic_list_is_replaced() {
        let object = json!({"spec": {"devices": [{"name": "a"}, {"name": "b"}]}});
        let patch = json!({"spec": {"devices": [{"name": "c"}]}});
        assert_eq!(patched("ResourceSlice", object, &patch)["spec"]["devices"], json!([{"name": "c"}]));
    }

    #[test]
    fn an_element_without_its_merge_key_is_refused() {
        let kind = &KINDS[position("Pod").unwrap()];
        let patch = json!({"status": {"conditions": [{"status": "True"}]}});
        assert_eq!(strategic(kind, &mut json!({}), &patch).unwrap_err().code(), 500);
    }
}

//! Reading and changing objects that are kept as plain JSON.

use jiff::Timestamp;
use serde_json::{Map, Value};

/// What stands for a field that is not there.
static NOTHING: Value = Value::Null;

/// The value at the end of a path of field names; null when there is none.
pub(crate) fn at<'a>(object: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().try_fold(object, |value, field| value.get(field)).unwrap_or(&NOTHING)
}

/// The text at the end of a path; empty when there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &[&str]) -> &'a str {
    at(object, path).as_str().unwrap_or_default()
}

/// The list at the end of a path; empty when there is none.
pub(crate) fn items<'a>(object: &'a Value, path: &[&str]) -> &'a [Value] {
    at(object, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A field of `metadata` as text.
pub(crate) fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    text(object, &["metadata", field])
}

/// True when the field is there and not null.
pub(crate) fn has(object: &Value, path: &[&str]) -> bool {
    !at(object, path).is_null()
}

/// The fields of the object at the end of a path. Whatever is in the way is replaced by objects.
pub(crate) fn fields<'a>(object: &'a mut Value, path: &[&str]) -> &'a mut Map<String, Value> {
    let Some((first, rest)) = path.split_first() else { return as_map(object) };
    let child = as_map(object).entry(*first).or_insert(Value::Null);
    fields(child, rest)
}

fn as_map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it has just been made an object"),
    }
}

/// Sets the field at the end of a path; null removes it.
pub(crate) fn set(object: &mut Value, path: &[&str], value: Value) {
    let Some((last, parents)) = path.split_last() else { return };
    if value.is_null() {
        if has(object, path) {
            fields(object, parents).remove(*last);
        }
    } else {
        fields(object, parents).insert((*last).to_owned(), value);
    }
}

/// Sets the field unless it is there.
pub(crate) fn default(object: &mut Value, path: &[&str], value: Value) {
    if !has(object, path) {
        set(object, path, value);
    }
}

/// Gives `to` the field of `from`, or removes it when `from` has none.
pub(crate) fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    set(to, path, at(from, path).clone());
}

/// The elements of a list that may be changed.
pub(crate) fn each<'a>(object: &'a mut Value, path: &[&str]) -> impl Iterator<Item = &'a mut Value> {
    path.iter()
        .try_fold(object, |value, field| value.get_mut(field))
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Leaves out what Go does not write: null, and lists and maps without elements where no struct stands.
pub(crate) fn without_empty(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(without_empty);
            map.retain(|_, v| !v.is_null() && v.as_array().is_none_or(|list| !list.is_empty()));
        }
        Value::Array(list) => list.iter_mut().for_each(without_empty),
        _ => {}
    }
}

/// An object as JSON text.
pub(crate) fn bytes(object: &Value) -> Vec<u8> {
    // Faster than `Display`, which checks again what it has just written.
    serde_json::to_vec(object).unwrap_or_default()
}

/// A time as the API writes it: whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

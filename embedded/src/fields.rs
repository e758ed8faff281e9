//! Fields that the API does not have: what `fieldValidation=Strict` refuses in a POST or PUT.

use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;
use serde_path_to_error::{Segment, Track};

use crate::kinds::KINDS;

/// How many names of quantities are written out for one object; those of resources are few.
const NUMERIC_KEYS_MAX: usize = 16;
/// How many unknown fields are named.
const UNKNOWN_MAX: usize = 20;
/// How many bytes of a key are written.
const KEY_MAX: usize = 1024;

/// Fields of an object that its kind does not have, as `spec.devices[0].tains`, in the version in which the server keeps
/// it: the first 20. None for kinds that the server does not have.
///
/// A value of a wrong type ends the search; it is for others to refuse.
#[must_use]
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<String> {
    KINDS.iter().find(|k| k.kind == kind).map_or_else(Vec::new, |kind| (kind.unknown)(object))
}

/// The same of the kind that the type is.
pub(crate) fn unknown_fields_of<T: DeserializeOwned>(object: &Value) -> Vec<String> {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        // The type accepts its own version only.
        fields.remove("apiVersion");
    }
    let mut ignored = Vec::new();
    for _ in 0..NUMERIC_KEYS_MAX {
        ignored.clear();
        let mut track = Track::new();
        let values = serde_path_to_error::Deserializer::new(&object, &mut track);
        let note = |path: Path<'_>| {
            if ignored.len() < UNKNOWN_MAX {
                ignored.push(written(&path));
            }
        };
        let read: Result<T, _> = serde_ignored::deserialize(values, note);
        let path = track.path();
        let key = path.iter().rev().find_map(|segment| match segment {
            Segment::Map { key } => Some(key),
            _ => None,
        });
        // A Quantity may be a number; the type knows it as a text only.
        if read.is_ok() || !key.is_some_and(|key| write_numbers_out(&mut object, key)) {
            break;
        }
    }
    ignored
}

/// Makes texts of the numbers under a key, and in lists there, wherever they are; false when there are none.
fn write_numbers_out(value: &mut Value, key: &str) -> bool {
    let mut found = false;
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if let (true, Value::Array(values)) = (name == key, &mut *value) {
                    for value in values {
                        found |= write_out(value);
                    }
                }
                found |= (name == key && write_out(value)) || write_numbers_out(value, key);
            }
        }
        Value::Array(values) => {
            for value in values {
                found |= write_numbers_out(value, key);
            }
        }
        _ => {}
    }
    found
}

fn write_out(value: &mut Value) -> bool {
    let is_number = value.is_number();
    if is_number {
        *value = Value::String(value.to_string());
    }
    is_number
}

/// As Kubernetes writes the path of a field; a key that is too long is left out.
fn written(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", written(parent)),
        Path::Map { parent, key } => {
            let key = if key.len() > KEY_MAX { "…" } else { key };
            match written(parent) {
                parent if parent.is_empty() => key.to_owned(),
                parent => format!("{parent}.{key}"),
            }
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            written(parent)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_that_is_written_wrong_is_named_with_its_path() {
        let rule = json!({"apiVersion": "resource.k8s.io/v1beta2", "kind": "DeviceTaintRule",
            "metadata": {"name": "r", "lables": {}},
            "spec": {"deviceselector": {"driver": "d"}, "taint": {"key": "k", "effect": "None"}}});
        assert_eq!(unknown_fields("DeviceTaintRule", &rule), ["metadata.lables", "spec.deviceselector"]);
        let slice = json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "a"}, {"name": "b", "taint": [], "attributes": {"any/name": {"strng": "x"}}}]}});
        assert_eq!(
            unknown_fields("ResourceSlice", &slice),
            ["spec.devices[1].attributes.any/name.strng", "spec.devices[1].taint"]
        );
    }

    #[test]
    fn a_number_as_quantity_does_not_hide_what_comes_after_it() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [
            {"name": "c", "resources": {"limits": {"cpu": 1, "example.com/gpu": 2}, "requests": {"cpu": 0.5}}},
            {"name": "d", "resources": {"limits": {"cpu": 1}}}], "resourceClaim": []}});
        assert_eq!(unknown_fields("Pod", &pod), ["spec.resourceClaim"]);
        let slice = json!({"spec": {"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "a", "capacity": {"memory": {"value": 80}}, "taint": []}]}});
        assert_eq!(unknown_fields("ResourceSlice", &slice), ["spec.devices[0].taint"]);
        let values = json!({"spec": {"driver": "d", "devices": [{"name": "a", "capacity": {"memory": {"value": "8",
            "requestPolicy": {"default": 1, "validValues": [1, 2]}}}, "taint": []}]}});
        assert_eq!(unknown_fields("ResourceSlice", &values), ["spec.devices[0].taint"]);
        let wrong = json!({"spec": {"driver": 7, "pool": {}, "unknown": true}});
        assert_eq!(unknown_fields("ResourceSlice", &wrong), ["spec.unknown"]);
    }

    #[test]
    fn what_people_name_themselves_is_no_unknown_field() {
        let pod = json!({"kind": "Pod", "metadata": {"name": "p", "labels": {"any": "thing"}},
            "spec": {"nodeSelector": {"x": "y"}, "containers": [{"name": "c", "resources": {"limits":
                {"example.com/gpu": "1"}, "claims": [{"name": "gpu"}]}}]}});
        assert_eq!(unknown_fields("Pod", &pod), [""; 0]);
        let claim = json!({"spec": {"devices": {"config": [{"opaque": {"driver": "d",
            "parameters": {"free": ["as", "the", "driver", "likes"]}}}]}}});
        assert_eq!(unknown_fields("ResourceClaim", &claim), [""; 0]);
    }
}

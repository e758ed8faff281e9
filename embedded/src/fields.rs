//! Fields that the API does not have: what `fieldValidation=Strict` refuses, and with it `kubectl apply`.

use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{Namespace, Node, Pod},
    events::v1::Event,
    resource::{
        v1::{DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice},
        v1alpha3::ResourcePoolStatusRequest,
    },
    scheduling::v1beta1::PodGroup,
};
use serde::de::DeserializeOwned;
use serde_ignored::Path;
use serde_json::Value;

/// The fields of an object that its kind does not have, as `spec.devices[0].tains`, in the version in which the server
/// keeps it. None for kinds that the server does not have.
///
/// A value of a wrong type ends the search; it is for others to refuse. (Numbers where the API says Quantity are such
/// values, although the API accepts them.)
#[must_use]
pub fn unknown_fields(kind: &str, object: &Value) -> Vec<String> {
    match kind {
        "DeviceClass" => ignored_by::<DeviceClass>(object),
        "DeviceTaintRule" => ignored_by::<DeviceTaintRule>(object),
        "Event" => ignored_by::<Event>(object),
        "Lease" => ignored_by::<Lease>(object),
        "Namespace" => ignored_by::<Namespace>(object),
        "Node" => ignored_by::<Node>(object),
        "Pod" => ignored_by::<Pod>(object),
        "PodGroup" => ignored_by::<PodGroup>(object),
        "ResourceClaim" => ignored_by::<ResourceClaim>(object),
        "ResourceClaimTemplate" => ignored_by::<ResourceClaimTemplate>(object),
        "ResourcePoolStatusRequest" => ignored_by::<ResourcePoolStatusRequest>(object),
        "ResourceSlice" => ignored_by::<ResourceSlice>(object),
        _ => Vec::new(),
    }
}

fn ignored_by<T: DeserializeOwned>(object: &Value) -> Vec<String> {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        // The type accepts its own version only.
        fields.remove("apiVersion");
    }
    let mut ignored = Vec::new();
    let _: Result<T, _> = serde_ignored::deserialize(object, |path| ignored.push(written(&path)));
    ignored
}

/// As Kubernetes writes the path of a field.
fn written(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", written(parent)),
        Path::Map { parent, key } => match written(parent) {
            parent if parent.is_empty() => key.clone(),
            parent => format!("{parent}.{key}"),
        },
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

//! Which of the objects that were found take part, in the versions that the controllers read.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
};

use dra_api::{
    Claim, ClaimTemplate, DeviceTaintRule, Object, Pod, PodGroup, ResourcePoolStatusRequest, names,
};
use dra_controllers::view::{DeviceClass, ResourceSlice};
use dra_embedded::unknown_fields;
use dra_inhabitants::cluster::{at, items, name, namespace, set, text, uid, version};
use serde_json::{Map, Value, json};

use crate::input::{Input, Place, Problem, without_position};

/// Objects that take part, and what became of the others.
#[derive(Debug, Default)]
pub(super) struct Objects {
    /// In order, each once: of several with the same kind, namespace and name the last one.
    pub(super) taken: Vec<(Place, Value)>,
    /// How many others of the same kind, namespace and name were replaced.
    pub(super) replaced: usize,
    /// How many objects were skipped because nobody here reads their kind, by `kind.group`.
    pub(super) skipped: BTreeMap<String, usize>,
    /// What is malformed.
    pub(super) problems: Vec<Problem>,
}

impl Objects {
    /// Sorts out what was read.
    pub(super) fn of(input: Input) -> Self {
        let mut objects = Self { problems: input.problems, ..Self::default() };
        let mut positions = HashMap::new();
        for found in input.objects {
            match judge(found.object) {
                Verdict::Taken(object) => {
                    let identity = (
                        text(&object, &["kind"]).to_owned(),
                        namespace(&object).to_owned(),
                        name(&object).to_owned(),
                    );
                    let position = *positions.entry(identity).or_insert(objects.taken.len());
                    if let Some(before) = objects.taken.get_mut(position) {
                        *before = (found.place, object);
                        objects.replaced = objects.replaced.saturating_add(1);
                    } else {
                        objects.taken.push((found.place, object));
                    }
                }
                Verdict::Unread(kind) => *objects.skipped.entry(kind).or_default() += 1,
                Verdict::Malformed(what) => {
                    objects.problems.push(Problem { place: found.place, what });
                }
            }
        }
        objects.problems.sort_by_key(|problem| {
            let Place { file, document, item } = &problem.place;
            (file.clone(), *document, *item)
        });
        objects
    }

    /// Where all objects are, when none takes part.
    pub(super) fn why_nothing(&self) -> String {
        let mut why = "no object that a controller here reads".to_owned();
        for (kind, count) in &self.skipped {
            let _ = write!(why, "; skipped {count} {kind}");
        }
        for problem in &self.problems {
            let _ = write!(why, "\n  {problem}");
        }
        why
    }
}

enum Verdict {
    Taken(Value),
    Unread(String),
    Malformed(String),
}

fn judge(mut object: Value) -> Verdict {
    let (api_version, kind) =
        (text(&object, &["apiVersion"]).to_owned(), text(&object, &["kind"]).to_owned());
    if kind.is_empty() {
        return Verdict::Malformed("kind: must say what the object is".to_owned());
    }
    if api_version.is_empty() {
        return Verdict::Malformed(format!("apiVersion: must say of which version the {kind} is"));
    }
    let (group, stated) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(&(_, _, wanted, namespaced)) = KINDS.iter().find(|(g, k, ..)| *g == group && *k == kind) else {
        return Verdict::Unread(if group.is_empty() { kind } else { format!("{kind}.{group}") });
    };
    let subject = format!("{kind} {}", name(&object));
    let malformed = |what: &str| Verdict::Malformed(format!("{subject}: {what}"));
    match (group, stated) {
        (_, stated) if stated == wanted => {}
        ("resource.k8s.io", "v1beta2") => {}
        ("resource.k8s.io", "v1beta1") => from_v1beta1(&kind, &mut object),
        ("resource.k8s.io", "v1alpha3") if kind == "DeviceTaintRule" => {}
        _ => {
            let wanted = if group.is_empty() { wanted.to_owned() } else { format!("{group}/{wanted}") };
            return malformed(&format!(
                "apiVersion: {api_version} is not read here; get the object as {wanted} (kubectl get {}.{wanted_version}.{group})",
                plural(&kind),
                wanted_version = wanted.rsplit('/').next().unwrap_or_default(),
            ));
        }
    }
    let api_version = if group.is_empty() { wanted.to_owned() } else { format!("{group}/{wanted}") };
    set(&mut object, "apiVersion", json!(api_version));
    if !at(&object, &["metadata"]).is_object() {
        return malformed("metadata: must be an object");
    }
    if namespaced && namespace(&object).is_empty() {
        // As kubectl would.
        set_metadata(&mut object, "namespace", "default");
    }
    if let Err(what) = check_identity(&object, namespaced) {
        return malformed(what);
    }
    match check(&kind, &object) {
        Ok(()) => Verdict::Taken(object),
        Err(what) => malformed(&what),
    }
}

/// Group, kind, version that the controllers read, and whether it is in namespaces.
const KINDS: [(&str, &str, &str, bool); 10] = [
    ("", "Namespace", "v1", false),
    ("", "Node", "v1", false),
    ("", "Pod", "v1", true),
    ("resource.k8s.io", "DeviceClass", "v1", false),
    ("resource.k8s.io", "DeviceTaintRule", "v1", false),
    ("resource.k8s.io", "ResourceClaim", "v1", true),
    ("resource.k8s.io", "ResourceClaimTemplate", "v1", true),
    ("resource.k8s.io", "ResourcePoolStatusRequest", "v1alpha3", false),
    ("resource.k8s.io", "ResourceSlice", "v1", false),
    ("scheduling.k8s.io", "PodGroup", "v1beta1", true),
];

fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    if lower.ends_with('s') { format!("{lower}es") } else { format!("{lower}s") }
}

fn set_metadata(object: &mut Value, field: &str, value: &str) {
    if let Some(metadata) = object.get_mut("metadata") {
        set(metadata, field, json!(value));
    }
}

/// `resource.k8s.io/v1beta1` differs in two places: requests have no `exactly`, and devices are in `basic`.
fn from_v1beta1(kind: &str, object: &mut Value) {
    let spec = match kind {
        "ResourceClaimTemplate" => object.get_mut("spec").and_then(|spec| spec.get_mut("spec")),
        _ => object.get_mut("spec"),
    };
    let Some(spec) = spec else { return };
    let list = match kind {
        "ResourceClaim" | "ResourceClaimTemplate" => {
            spec.get_mut("devices").and_then(|devices| devices.get_mut("requests"))
        }
        "ResourceSlice" => spec.get_mut("devices"),
        _ => None,
    };
    for element in list.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut) {
        if kind == "ResourceSlice" {
            if let Some(Value::Object(basic)) = element.remove("basic") {
                element.extend(basic);
            }
        } else if !element.contains_key("firstAvailable") && !element.contains_key("exactly") {
            let name = element.remove("name");
            let exactly = Value::Object(std::mem::replace(element, Map::new()));
            element.extend(name.map(|name| ("name".to_owned(), name)));
            element.insert("exactly".to_owned(), exactly);
        }
    }
}

/// What any object must have to be kept.
fn check_identity(object: &Value, namespaced: bool) -> Result<(), &'static str> {
    if !names::is_object_name(name(object)) {
        return Err("metadata.name: must be the name of an object");
    }
    if namespaced && !names::is_object_name(namespace(object)) {
        return Err("metadata.namespace: must be the name of a namespace");
    }
    match version(object) {
        "" => Ok(()),
        // Larger ones leave no room for what comes next.
        version if version.parse::<i64>().is_ok_and(|version| version >= 0) => Ok(()),
        _ => Err("metadata.resourceVersion: must be a number"),
    }
}

/// Reads an object as its controller would; the error names the field.
fn check(kind: &str, object: &Value) -> Result<(), String> {
    if version(object).is_empty() {
        // Somebody wrote it: what is spelt wrong must not look as if it had no effect. A server may be newer than this.
        let unknown = unknown_fields(kind, object);
        if !unknown.is_empty() {
            return Err(format!("{}: is no part of {}", unknown.join(", "), text(object, &["apiVersion"])));
        }
    }
    let mut whole;
    let object = if uid(object).is_empty() || version(object).is_empty() {
        // The server gives them.
        whole = object.clone();
        for (field, value) in [("uid", "none"), ("resourceVersion", "1")] {
            if text(&whole, &["metadata", field]).is_empty() {
                set_metadata(&mut whole, field, value);
            }
        }
        &whole
    } else {
        object
    };
    let json = object.to_string();
    let read = match kind {
        "Pod" => Pod::decode(&json).map(drop),
        "PodGroup" => PodGroup::decode(&json).map(drop),
        "ResourceClaim" => Claim::decode(&json).map(drop),
        "ResourceClaimTemplate" => ClaimTemplate::decode(&json).map(drop),
        "DeviceTaintRule" => DeviceTaintRule::decode(&json).map(drop),
        "ResourcePoolStatusRequest" => ResourcePoolStatusRequest::decode(&json).map(drop),
        "DeviceClass" => DeviceClass::decode(&json).map(drop),
        "ResourceSlice" => ResourceSlice::decode(&json).map(drop),
        _ => Ok(()),
    };
    read.map_err(|error| without_position(&error.0).to_owned())?;
    if kind == "DeviceTaintRule" {
        // Fields of v1alpha3, without which the rule would select more than it says.
        for field in ["deviceClassName", "selectors"] {
            if !at(object, &["spec", "deviceSelector", field]).is_null() {
                return Err(format!("spec.deviceSelector.{field}: is no part of resource.k8s.io/v1"));
            }
        }
    }
    if kind == "ResourceClaim"
        && items(object, &["spec", "devices", "requests"]).iter().any(|r| !r.is_object())
    {
        return Err("spec.devices.requests: must be objects".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted_out(text: &str) -> Objects {
        let mut input = Input::default();
        input.add("f.yaml", text);
        Objects::of(input)
    }

    #[test]
    fn unread_kinds_are_counted_and_malformed_objects_named_with_their_field() {
        let objects = sorted_out(
            "{apiVersion: v1, kind: ConfigMap}\n--- {apiVersion: apps/v1, kind: Deployment}\n--- {apiVersion: v1, kind: \
             ConfigMap}\n--- {apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {resourceClaims: 7}}\n--- {kind: Pod}\n\
             --- {apiVersion: v1, kind: Pod, metadata: {name: good}}\n--- {apiVersion: v1, kind: Pod, metadata: {}}\n",
        );
        assert_eq!(
            objects.skipped.into_iter().collect::<Vec<_>>(),
            [("ConfigMap".to_owned(), 2), ("Deployment.apps".to_owned(), 1)]
        );
        let problems: Vec<String> = objects.problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems[0].starts_with("f.yaml, document 4: Pod a: spec.resourceClaims: invalid type"),
            "{problems:?}"
        );
        assert_eq!(problems[1], "f.yaml, document 5: apiVersion: must say of which version the Pod is");
        assert!(problems[2].contains("name"), "{problems:?}");
        let [(_, pod)] = &objects.taken[..] else { panic!("one Pod") };
        assert_eq!((name(pod), namespace(pod)), ("good", "default"));
    }

    #[test]
    fn beta_versions_are_read_as_v1() {
        let objects = sorted_out(
            "apiVersion: resource.k8s.io/v1beta1\nkind: ResourceClaim\nmetadata: {name: c}\nspec: {devices: {requests: [{name: \
             gpu, deviceClassName: g, count: 2}]}}\n---\napiVersion: resource.k8s.io/v1beta1\nkind: ResourceSlice\nmetadata: \
             {name: s}\nspec: {driver: d, nodeName: n, pool: {name: p, generation: 1, resourceSliceCount: 1}, devices: [{name: \
             a, basic: {taints: [{key: k, effect: NoExecute}]}}]}\n---\napiVersion: resource.k8s.io/v1alpha3\nkind: \
             ResourceClaim\nmetadata: {name: old}\n",
        );
        let [(_, claim), (_, slice)] = &objects.taken[..] else { panic!("{objects:?}") };
        assert_eq!(
            at(claim, &["spec", "devices", "requests"]),
            &json!([{"name": "gpu", "exactly": {"deviceClassName": "g", "count": 2}}])
        );
        assert_eq!(
            at(slice, &["spec", "devices"]),
            &json!([{"name": "a", "taints": [{"key": "k", "effect": "NoExecute"}]}])
        );
        assert_eq!(text(slice, &["apiVersion"]), "resource.k8s.io/v1");
        assert_eq!(
            objects.problems[0].what,
            "ResourceClaim old: apiVersion: resource.k8s.io/v1alpha3 is not read here; get the object as \
             resource.k8s.io/v1 (kubectl get resourceclaims.v1.resource.k8s.io)"
        );
    }

    #[test]
    fn a_field_that_somebody_spelt_wrong_is_named_and_one_from_a_newer_server_ignored() {
        let rule = |metadata: &str| {
            sorted_out(&format!(
                "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {{name: r{metadata}}}\nspec: \
                 {{deviceselector: {{pool: p}}, taint: {{key: k, effect: NoExecute}}}}\n"
            ))
        };
        assert_eq!(
            rule("").problems[0].what,
            "DeviceTaintRule r: spec.deviceselector: is no part of resource.k8s.io/v1"
        );
        let newer = rule(", uid: u, resourceVersion: '7'");
        assert_eq!((newer.taken.len(), newer.problems.len()), (1, 0));
    }

    #[test]
    fn of_several_versions_of_an_object_the_last_one_counts_once() {
        let objects = sorted_out(
            "{apiVersion: v1, kind: Pod, metadata: {name: a, labels: {is: first}}}\n--- {apiVersion: v1, kind: Node, metadata: \
             {name: a}}\n--- {apiVersion: v1, kind: Pod, metadata: {name: a, namespace: default}}\n",
        );
        let kinds: Vec<&str> = objects.taken.iter().map(|(_, object)| text(object, &["kind"])).collect();
        assert_eq!((kinds, objects.replaced), (vec!["Pod", "Node"], 1));
        assert_eq!(at(&objects.taken[0].1, &["metadata", "labels"]), &Value::Null);
    }

    #[test]
    fn a_rule_that_selects_by_class_is_not_read_as_one_that_selects_everything() {
        let objects = sorted_out(
            "apiVersion: resource.k8s.io/v1alpha3\nkind: DeviceTaintRule\nmetadata: {name: r}\nspec: {deviceSelector: \
             {deviceClassName: g}, taint: {key: k, effect: NoExecute}}\n",
        );
        assert_eq!(
            objects.problems[0].what,
            "DeviceTaintRule r: spec.deviceSelector.deviceClassName: is no part of resource.k8s.io/v1"
        );
    }
}

//! `metadata` of all kinds (`apimachinery/pkg/api/validation/objectmeta.go`).

use serde_json::{Value, json};

use super::IMMUTABLE;
use crate::{
    formats::{is_dns_subdomain, is_label_key, is_label_value},
    object::{at, has, items, meta, text},
    refusal::Cause,
};

/// Keys and values of all annotations together, in bytes (`TotalAnnotationSizeLimitB`).
const ANNOTATIONS_MAX: usize = 256 * 1024;

pub(crate) fn new_metadata(object: &Value) -> Vec<Cause> {
    let name = meta(object, "name");
    if name.is_empty() {
        return vec![Cause::required("metadata.name", "name or generateName is required")];
    }
    let mut causes = Vec::new();
    if !is_dns_subdomain(name) {
        let why = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
                   must start and end with an alphanumeric character";
        let base = meta(object, "generateName").trim_end_matches('-');
        if !base.is_empty() && !is_dns_subdomain(base) {
            causes.push(Cause::invalid("metadata.generateName", &json!(base), why));
        }
        causes.push(Cause::invalid("metadata.name", &json!(name), why));
    }
    finalizers(object, &mut causes);
    metadata(at(object, &["metadata"]), "metadata", &mut causes);
    owners(object, &mut causes);
    causes
}

fn owners(object: &Value, causes: &mut Vec<Cause>) {
    let mut controllers = 0;
    for (index, owner) in items(object, &["metadata", "ownerReferences"]).iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            let path = format!("metadata.ownerReferences[{index}].{field}");
            match text(owner, &[field]) {
                "" => causes.push(Cause::required(path, "must not be empty")),
                version if field == "apiVersion" && version.split('/').count() > 2 => {
                    let why = "must be <group>/<version> or <version>";
                    causes.push(Cause::invalid(path, at(owner, &[field]), why));
                }
                _ => {}
            }
        }
        controllers += u32::from(at(owner, &["controller"]).as_bool() == Some(true));
    }
    if controllers > 1 {
        causes.push(Cause::invalid(
            "metadata.ownerReferences",
            &Value::Null,
            "Only one reference can have Controller set to true",
        ));
    }
}

pub(crate) fn changed_metadata(new: &Value, old: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if has(old, &["metadata", "deletionTimestamp"]) {
        let before = items(old, &["metadata", "finalizers"]);
        let added: Vec<&Value> =
            items(new, &["metadata", "finalizers"]).iter().filter(|f| !before.contains(f)).collect();
        if !added.is_empty() {
            let why = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers {added:?}"
            );
            causes.push(Cause::forbidden("metadata.finalizers", &why));
        }
    }
    for field in ["name", "namespace", "uid"] {
        let path = &["metadata", field];
        if at(new, path) != at(old, path) {
            causes.push(Cause::invalid(path.join("."), at(new, path), IMMUTABLE));
        }
    }
    finalizers(new, &mut causes);
    metadata(at(new, &["metadata"]), "metadata", &mut causes);
    owners(new, &mut causes);
    causes
}

/// Labels and annotations, of an object or a template.
pub(super) fn metadata(metadata: &Value, path: &str, causes: &mut Vec<Cause>) {
    let field = format!("{path}.labels");
    for (key, value) in at(metadata, &["labels"]).as_object().into_iter().flatten() {
        if !is_label_key(key) {
            causes.push(Cause::invalid(field.clone(), &json!(key), "a qualified name"));
        }
        if value.as_str().is_some_and(|v| !is_label_value(v)) {
            causes.push(Cause::invalid(field.clone(), value, "a valid label"));
        }
    }
    let field = format!("{path}.annotations");
    let mut size = 0_usize;
    for (key, value) in at(metadata, &["annotations"]).as_object().into_iter().flatten() {
        // Their case does not matter.
        if !is_label_key(&key.to_ascii_lowercase()) {
            causes.push(Cause::invalid(field.clone(), &json!(key), "a qualified name"));
        }
        size = size.saturating_add(key.len()).saturating_add(value.as_str().unwrap_or_default().len());
    }
    if size > ANNOTATIONS_MAX {
        causes.push(Cause::too_long(field, ANNOTATIONS_MAX));
    }
}

/// Finalizers have names like labels, and a domain unless everybody knows them (`validateKubeFinalizerName`).
fn finalizers(object: &Value, causes: &mut Vec<Cause>) {
    for (index, finalizer) in items(object, &["metadata", "finalizers"]).iter().enumerate() {
        let name = finalizer.as_str().unwrap_or_default();
        if !is_label_key(name) {
            causes.push(Cause::invalid("metadata.finalizers", finalizer, "a qualified name"));
        }
        if !(name.contains('/') || matches!(name, "kubernetes" | "orphan" | "foregroundDeletion")) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(Cause::invalid(format!("metadata.finalizers[{index}]"), finalizer, why));
        }
    }
}

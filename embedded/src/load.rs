//! Objects that come from somewhere else and are kept as they are.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::{
    formats::is_dns_subdomain,
    kinds::{KINDS, KindInfo},
    object::{at, default, has, meta, seconds, set, text},
    state::State,
};

/// The kind that an object says it is, in whatever version of it.
pub(crate) fn kind_of(object: &Value) -> Result<&'static KindInfo, String> {
    let (api_version, kind) = (text(object, &["apiVersion"]), text(object, &["kind"]));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    KINDS
        .iter()
        .find(|k| k.kind == kind && k.group == group && k.version(version).is_some())
        .ok_or_else(|| format!("{kind} in version \"{api_version}\" is not kept here"))
}

impl State {
    /// Puts an object there with the uid, resourceVersion, times and status that it brings, without validation. What it
    /// lacks is filled in: the server's own metadata, and the defaults of its kind when it has no resourceVersion,
    /// which tells that no server has seen it yet.
    pub(crate) fn load(&mut self, kind: &'static KindInfo, mut object: Value) -> Result<Arc<Value>, String> {
        if !has(&object, &["metadata"]) || !at(&object, &["metadata"]).is_object() {
            return Err("metadata: must be an object".to_owned());
        }
        if !is_dns_subdomain(meta(&object, "name")) {
            return Err("metadata.name: must be the name of an object".to_owned());
        }
        if !kind.namespaced {
            set(&mut object, &["metadata", "namespace"], Value::Null);
        } else if !is_dns_subdomain(meta(&object, "namespace")) {
            return Err("metadata.namespace: must be the name of a namespace".to_owned());
        }
        let version = match meta(&object, "resourceVersion") {
            "" => None,
            version => Some(version.parse().map_err(|_| "metadata.resourceVersion: must be a number")?),
        };
        set(&mut object, &["metadata", "managedFields"], Value::Null);
        if let Some(first) = kind.versions.first() {
            set(&mut object, &["apiVersion"], json!(kind.api_version(first.name)));
        }
        if meta(&object, "uid").is_empty() {
            let uid = self.uid();
            set(&mut object, &["metadata", "uid"], json!(uid));
        }
        default(&mut object, &["metadata", "creationTimestamp"], json!(seconds(self.now)));
        if kind.generation {
            default(&mut object, &["metadata", "generation"], json!(1));
        }
        if version.is_none() {
            let status = at(&object, &["status"]).clone();
            (kind.defaults)(&mut object, &Value::Null, self.now);
            if !status.is_null() {
                set(&mut object, &["status"], status);
            }
        }
        Ok(self.keep(kind, object, version))
    }
}

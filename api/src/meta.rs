//! Identity of an object: namespace and name, uid, resourceVersion.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::Deserialize;

/// Namespace and name of an object; the namespace is empty for cluster-scoped kinds.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// Name, unique in the namespace at any one time.
    pub name: Arc<str>,
}

impl ObjectKey {
    /// The key of `name` in `namespace`.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    /// The key of another object in the same namespace; shares the namespace's memory.
    #[must_use]
    pub fn sibling(&self, name: &Arc<str>) -> Self {
        Self { namespace: Arc::clone(&self.namespace), name: Arc::clone(name) }
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// `metadata.uid`. Usually a UUID, but the API promises no format, so it is compared as text.
pub type Uid = Arc<str>;

/// `metadata.resourceVersion` as a number.
///
/// Since Kubernetes 1.35 resource versions of one resource type are comparable as integers; with etcd they
/// always were. A larger number is a later state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceVersion(pub u64);

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The parts of `metadata` that every object here carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Namespace and name.
    pub key: ObjectKey,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.resourceVersion`.
    pub resource_version: ResourceVersion,
    /// True when `metadata.deletionTimestamp` is set.
    pub deleting: bool,
}

/// Text borrowed from the JSON where it stands there unescaped, also inside `Option` and `Vec`, where serde
/// would copy a plain `Cow`.
#[derive(Deserialize, Default, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(crate) struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Text<'_> {
    /// A copy that is cheap to share.
    pub(crate) fn shared(&self) -> Arc<str> {
        Arc::from(self.0.as_ref())
    }

    /// A copy of its own.
    pub(crate) fn owned(self) -> String {
        self.0.into_owned()
    }
}

impl std::ops::Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// `metadata` as it stands in JSON, borrowed from the text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireMeta<'a> {
    #[serde(borrow)]
    pub(crate) name: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) namespace: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) uid: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) resource_version: Text<'a>,
    #[serde(borrow, default)]
    pub(crate) deletion_timestamp: Option<Text<'a>>,
}

impl WireMeta<'_> {
    /// Checks and compacts; the error names the field.
    pub(crate) fn compact(&self) -> Result<Meta, String> {
        compact(
            &self.namespace,
            &self.name,
            &self.uid,
            &self.resource_version,
            self.deletion_timestamp.is_some(),
        )
    }
}

/// Shared by the kinds that need more of `metadata` than [`WireMeta`] has.
pub(crate) fn compact(
    namespace: &str,
    name: &str,
    uid: &str,
    resource_version: &str,
    deleting: bool,
) -> Result<Meta, String> {
    if name.is_empty() {
        return Err("metadata.name: must not be empty".to_owned());
    }
    if uid.is_empty() {
        return Err("metadata.uid: must not be empty".to_owned());
    }
    let resource_version = resource_version
        .parse()
        .map(ResourceVersion)
        .map_err(|_| format!("metadata.resourceVersion: {resource_version:?} is not a number"))?;
    Ok(Meta { key: ObjectKey::new(namespace, name), uid: uid.into(), resource_version, deleting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_as_kubectl_prints_it() {
        assert_eq!(ObjectKey::new("ns", "pod").to_string(), "ns/pod");
        assert_eq!(ObjectKey::new("", "slice").to_string(), "slice");
    }

    #[test]
    fn keys_sort_by_namespace_first() {
        assert!(ObjectKey::new("a", "z") < ObjectKey::new("b", "a"));
    }

    #[test]
    fn a_nameless_or_versionless_object_is_refused_with_the_field() {
        assert!(compact("ns", "", "u", "1", false).unwrap_err().starts_with("metadata.name"));
        assert!(compact("ns", "n", "", "1", false).unwrap_err().starts_with("metadata.uid"));
        assert!(compact("ns", "n", "u", "x", false).unwrap_err().starts_with("metadata.resourceVersion"));
    }
}

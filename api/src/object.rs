//! What every kind offers: its name in the API and how it is decoded.

use serde::Deserialize;

use crate::{Meta, meta::WireMeta};

/// A kind as the API server names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group, empty for core.
    pub group: &'static str,
    /// API version, such as `v1`.
    pub version: &'static str,
    /// Kind, such as `Pod`.
    pub kind: &'static str,
    /// Resource name in paths, such as `pods`.
    pub plural: &'static str,
}

impl Kind {
    /// `group/version`, or the version alone for core.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_owned()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Path of one object, or of the collection when `name` is empty; all namespaces when `namespace` is
    /// empty too.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.group.is_empty() { "/api" } else { "/apis" };
        let mut path = format!("{root}/{}", self.api_version());
        if !namespace.is_empty() {
            path.push_str("/namespaces/");
            path.push_str(namespace);
        }
        path.push('/');
        path.push_str(self.plural);
        if !name.is_empty() {
            path.push('/');
            path.push_str(name);
        }
        path
    }
}

/// A kind that can be watched, decoded and kept.
pub trait Object: Clone + std::fmt::Debug + Send + Sync + 'static {
    /// The kind's names.
    const KIND: Kind;

    /// Decodes the JSON that the API server sends for one object.
    ///
    /// # Errors
    /// When a field that is read has another type than the API says, or the object has no usable identity.
    fn decode(json: &str) -> Result<Self, DecodeError>;

    /// Identity of the object.
    fn meta(&self) -> &Meta;
}

/// An object that could not be decoded: which field, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DecodeError(pub String);

/// Decodes `T`; on failure decodes again with a path tracker, so that the common case pays nothing for the
/// message that names the field.
pub(crate) fn decode<'a, T: Deserialize<'a>>(json: &'a str) -> Result<T, DecodeError> {
    serde_json::from_str(json).map_err(|plain| {
        let mut tracked = serde_json::Deserializer::from_str(json);
        match serde_path_to_error::deserialize::<_, T>(&mut tracked) {
            Err(error) => DecodeError(format!("{}: {}", error.path(), error.inner())),
            // Only trailing text makes the first pass fail and the second one succeed.
            Ok(_) => DecodeError(plain.to_string()),
        }
    })
}

/// Decodes identity and `spec` of an object, for kinds whose content is read into a type of another crate.
///
/// # Errors
/// As [`Object::decode`].
pub fn decode_spec<S: serde::de::DeserializeOwned>(json: &str) -> Result<(Meta, S), DecodeError> {
    #[derive(Deserialize)]
    #[serde(bound = "S: serde::de::DeserializeOwned")]
    struct Wire<'a, S> {
        #[serde(borrow)]
        metadata: WireMeta<'a>,
        spec: S,
    }
    let wire: Wire<'_, S> = decode(json)?;
    Ok((wire.metadata.compact().map_err(DecodeError)?, wire.spec))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_api_server() {
        let pods = Kind { group: "", version: "v1", kind: "Pod", plural: "pods" };
        assert_eq!(pods.path("", ""), "/api/v1/pods");
        assert_eq!(pods.path("ns", "p"), "/api/v1/namespaces/ns/pods/p");
        let claims =
            Kind { group: "resource.k8s.io", version: "v1", kind: "ResourceClaim", plural: "resourceclaims" };
        assert_eq!(claims.path("ns", ""), "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims");
    }
}

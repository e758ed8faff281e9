//! What a request asks for, read from its method, path, query and headers.

use std::collections::BTreeMap;

use http::{HeaderMap, Method, Uri, header};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value};

use crate::{
    kinds::{KINDS, KindInfo, Part, Version},
    object::{meta, set, without_empty},
    refusal::{Cause, Refusal},
};

/// A subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subresource {
    Status,
    Binding,
    Eviction,
}

/// A request about objects of one kind.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) kind: &'static KindInfo,
    pub(crate) version: &'static Version,
    /// Empty for all namespaces and for cluster-scoped objects.
    pub(crate) namespace: String,
    /// Empty for the collection.
    pub(crate) name: String,
    pub(crate) subresource: Option<Subresource>,
    query: BTreeMap<String, String>,
    content: String,
    pub(crate) body: Vec<u8>,
    agent: String,
}

/// Where a path leads.
#[derive(Debug)]
pub(crate) enum Target {
    /// Objects.
    Objects(Box<Call>),
    /// Anything else, for discovery and health.
    Other(Vec<String>),
}

/// Reads a request.
pub(crate) fn read(method: Method, uri: &Uri, headers: &HeaderMap, body: Vec<u8>) -> Target {
    let segments: Vec<String> = uri.path().split('/').filter(|s| !s.is_empty()).map(decoded).collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    let (group, version, rest) = match &parts[..] {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return Target::Other(segments),
    };
    let (namespace, plural, name, subresource) = match rest {
        ["namespaces", namespace, "status"] => ("", "namespaces", *namespace, Some("status")),
        ["namespaces", namespace, plural, rest @ ..] => match rest {
            [] => (*namespace, *plural, "", None),
            [name] => (*namespace, *plural, *name, None),
            [name, subresource] => (*namespace, *plural, *name, Some(*subresource)),
            _ => return Target::Other(segments),
        },
        [plural] => ("", *plural, "", None),
        [plural, name] => ("", *plural, *name, None),
        [plural, name, subresource] => ("", *plural, *name, Some(*subresource)),
        _ => return Target::Other(segments),
    };
    let found = KINDS
        .iter()
        .find(|k| k.group == group && k.plural == plural)
        .and_then(|kind| Some((kind, kind.version(version)?)));
    let Some((kind, version)) = found else { return Target::Other(segments) };
    // A namespace where there is none to be, or none where an object needs one.
    if kind.namespaced == namespace.is_empty() && !(kind.namespaced && name.is_empty()) {
        return Target::Other(segments);
    }
    let subresource = match subresource {
        None => None,
        Some("status") if kind.status != crate::kinds::StatusWrites::None => Some(Subresource::Status),
        Some("binding") if kind.kind == "Pod" => Some(Subresource::Binding),
        Some("eviction") if kind.kind == "Pod" => Some(Subresource::Eviction),
        Some(_) => return Target::Other(segments),
    };
    let query = uri.query().unwrap_or_default();
    let text = |name| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    Target::Objects(Box::new(Call {
        method,
        kind,
        version,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subresource,
        query: form_urlencoded::parse(query.as_bytes()).into_owned().collect(),
        content: text(header::CONTENT_TYPE),
        body,
        agent: text(header::USER_AGENT),
    }))
}

/// Percent-decodes one path segment; a plus stays a plus.
fn decoded(segment: &str) -> String {
    if !segment.contains('%') {
        return segment.to_owned();
    }
    let pair = format!("={}", segment.replace('+', "%2B"));
    form_urlencoded::parse(pair.as_bytes()).next().map_or_else(String::new, |(_, value)| value.into_owned())
}

impl Call {
    /// A query parameter; empty when it is not there.
    pub(crate) fn query(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// A query parameter that is a flag.
    pub(crate) fn flag(&self, name: &str) -> bool {
        matches!(self.query(name), "true" | "1")
    }

    /// The media type of the body without parameters.
    pub(crate) fn content(&self) -> &str {
        self.content.split(';').next().unwrap_or_default().trim()
    }

    pub(crate) fn part(&self) -> Part {
        if self.subresource == Some(Subresource::Status) { Part::Status } else { Part::Main }
    }

    pub(crate) fn api_version(&self) -> String {
        self.kind.api_version(self.version.name)
    }

    /// Who writes: `fieldManager`, or the first word of the user agent.
    pub(crate) fn manager(&self) -> String {
        match (self.query("fieldManager"), self.agent.split('/').next().unwrap_or_default()) {
            ("", "") => "unknown".to_owned(),
            ("", agent) => agent.to_owned(),
            (manager, _) => manager.to_owned(),
        }
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn json(&self) -> Result<Value, Refusal> {
        serde_json::from_slice(&self.body).map_err(|e| {
            Refusal::bad_request(format!(
                "the object provided is unrecognized (must be of type {}): {e}",
                self.kind.kind
            ))
        })
    }

    /// The body as an object of the call's kind and version.
    ///
    /// # Errors
    /// It is none, or one of another kind, or names another object than the path.
    pub(crate) fn object(&self) -> Result<Value, Refusal> {
        if !matches!(self.content(), "" | "application/json") {
            return Err(Refusal::media_type("application/json"));
        }
        let value = self.json()?;
        let stated = |field: &str| value.get(field).and_then(Value::as_str).unwrap_or_default();
        let (kind, version) = (stated("kind"), stated("apiVersion"));
        if !(kind.is_empty() || kind == self.kind.kind)
            || !(version.is_empty() || version == self.api_version())
        {
            return Err(Refusal::bad_request(format!(
                "{kind} in version \"{version}\" cannot be handled as a {}: no kind \"{kind}\" is registered here",
                self.kind.kind
            )));
        }
        let refused = |why: String| {
            Refusal::bad_request(format!(
                "{} in version \"{}\" cannot be handled as a {}: {why}",
                self.kind.kind, self.version.name, self.kind.kind
            ))
        };
        if self.query("fieldValidation") == "Strict" {
            let unknown = (self.kind.unknown)(&value);
            if !unknown.is_empty() {
                let each: Vec<String> =
                    unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
                return Err(refused(format!("strict decoding error: {}", each.join(", "))));
            }
        }
        let object = self.shaped(value).map_err(refused)?;
        self.same_place(object)
    }

    /// Checks that the object's namespace and name are those of the path; fills in the namespace.
    fn same_place(&self, mut object: Value) -> Result<Value, Refusal> {
        let (name, namespace) = (meta(&object, "name"), meta(&object, "namespace"));
        if !self.name.is_empty() && !name.is_empty() && name != self.name {
            return Err(Refusal::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                self.name
            )));
        }
        if !namespace.is_empty() && namespace != self.namespace {
            return Err(Refusal::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if !self.namespace.is_empty() {
            set(&mut object, &["metadata", "namespace"], self.namespace.clone().into());
        }
        Ok(object)
    }

    /// Gives the value the shape of an object of the call's kind, as the first version of that. Its metadata is
    /// decoded; the rest is kept as it is.
    ///
    /// # Errors
    /// It is no object, or a field of its metadata has another type than the API says.
    fn shaped(&self, mut value: Value) -> Result<Value, String> {
        let Some(fields) = value.as_object_mut() else { return Err("it is not an object".to_owned()) };
        let metadata = fields.remove("metadata").unwrap_or_else(|| Value::Object(Map::new()));
        let mut metadata: ObjectMeta =
            serde_json::from_value(metadata).map_err(|e| format!("metadata: {e}"))?;
        metadata.managed_fields = None;
        metadata.labels = metadata.labels.filter(|l| !l.is_empty());
        metadata.annotations = metadata.annotations.filter(|a| !a.is_empty());
        let metadata = serde_json::to_value(metadata).map_err(|e| e.to_string())?;
        fields.insert("metadata".to_owned(), metadata);
        let first = self.kind.versions.first().map_or(self.version.name, |v| v.name);
        fields.insert("apiVersion".to_owned(), self.kind.api_version(first).into());
        fields.insert("kind".to_owned(), self.kind.kind.into());
        without_empty(&mut value);
        Ok(value)
    }

    /// The result of a patch as an object.
    ///
    /// # Errors
    /// It has the wrong shape.
    pub(crate) fn patched(&self, value: Value) -> Result<Value, Refusal> {
        let object = self.shaped(value).map_err(|e| {
            Refusal::invalid_kind("", "", "", vec![Cause::invalid("patch", &Value::Null, &e)])
        })?;
        self.same_place(object)
    }
}

//! Refusals: the bodies of answers that are no success.

use serde_json::{Value, json};

use crate::kinds::KindInfo;

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    reason: &'static str,
    field: String,
    message: String,
}

impl Cause {
    pub(crate) fn required(field: impl Into<String>, why: &str) -> Self {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        Self { reason: "FieldValueRequired", field: field.into(), message }
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        Self {
            reason: "FieldValueInvalid",
            field: field.into(),
            message: format!("Invalid value: {value}: {why}"),
        }
    }

    pub(crate) fn forbidden(field: impl Into<String>, why: &str) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: format!("Forbidden: {why}") }
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self {
            reason: "FieldValueDuplicate",
            field: field.into(),
            message: format!("Duplicate value: {value}"),
        }
    }

    pub(crate) fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self { reason: "FieldValueNotFound", field: field.into(), message: format!("Not found: {value}") }
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &Value, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| format!("\"{s}\"")).collect();
        Self {
            reason: "FieldValueNotSupported",
            field: field.into(),
            message: format!("Unsupported value: {value}: supported values: {}", quoted.join(", ")),
        }
    }

    pub(crate) fn too_many(field: impl Into<String>, count: usize, most: usize) -> Self {
        Self {
            reason: "FieldValueTooMany",
            field: field.into(),
            message: format!("Too many: {count}: must have at most {most} items"),
        }
    }

    /// A text of more bytes than it may have.
    pub(crate) fn too_long(field: impl Into<String>, most: usize) -> Self {
        Self {
            reason: "FieldValueTooLong",
            field: field.into(),
            message: format!("Too long: may not be more than {most} bytes"),
        }
    }

    pub(crate) fn manager_conflict(manager: &str, field: &str) -> Self {
        Self {
            reason: "FieldManagerConflict",
            field: field.to_owned(),
            message: format!("conflict with {manager}"),
        }
    }
}

/// An answer that is no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal(Box<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    code: u16,
    reason: &'static str,
    message: String,
    /// Name, group and kind or resource of the object.
    about: Option<(String, &'static str, &'static str)>,
    causes: Vec<Cause>,
    /// `retryAfterSeconds`, and the header of that name.
    retry_after: Option<u32>,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Parts { code, reason, message, about: None, causes: Vec::new(), retry_after: None }))
    }

    fn about(mut self, name: &str, group: &'static str, kind: &'static str) -> Self {
        self.0.about = Some((name.to_owned(), group, kind));
        self
    }

    pub(crate) fn not_found(kind: &KindInfo, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.resource())).about(
            name,
            kind.group,
            kind.plural,
        )
    }

    pub(crate) fn already_exists(kind: &KindInfo, name: &str, generated: bool) -> Self {
        let more =
            if generated { ", the server was not able to generate a unique name for the object" } else { "" };
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists{more}", kind.resource())).about(
            name,
            kind.group,
            kind.plural,
        )
    }

    pub(crate) fn conflict(kind: &KindInfo, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(409, "Conflict", message).about(name, kind.group, kind.plural)
    }

    /// A precondition on the uid does not hold: as the storage layer says it.
    pub(crate) fn other_uid(
        kind: &KindInfo,
        namespace: &str,
        name: &str,
        expected: &str,
        found: &str,
    ) -> Self {
        let path = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{}/{path}, ResourceVersion: 0, \
             AdditionalErrorMsg: Precondition failed: UID in precondition: {expected}, UID in object meta: {found}",
            kind.plural
        );
        Self::conflict(kind, name, &why)
    }

    /// A precondition of a deletion does not hold; it is said of the kind, not of the resource.
    pub(crate) fn not_to_be_deleted(kind: &KindInfo, name: &str, why: &str) -> Self {
        let full = if kind.group.is_empty() {
            kind.kind.to_owned()
        } else {
            format!("{}.{}", kind.kind, kind.group)
        };
        let message = format!("Operation cannot be fulfilled on {full} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(name, kind.group, kind.kind)
    }

    /// A Pod cannot be bound.
    pub(crate) fn not_to_be_bound(name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on pods/binding \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(name, "", "pods/binding")
    }

    /// An update that does not say of which state.
    pub(crate) fn without_version(kind: &KindInfo, name: &str) -> Self {
        let field = "metadata.resourceVersion";
        let cause = Cause::invalid(field, &json!(0), "must be specified for an update");
        // The registry knows the resource only.
        Self::invalid_kind(kind.group, kind.plural, name, vec![cause])
    }

    /// A JSON patch that cannot be applied.
    pub(crate) fn rejected_patch() -> Self {
        Self::new(422, "Invalid", "the server rejected our request due to an error in our request")
    }

    /// A resource that a group of the server does not have.
    pub(crate) fn no_resource() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    /// The object is not in the state that the request was made for.
    pub(crate) fn modified(kind: &KindInfo, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    /// Other managers have set fields that an apply wants to change: manager and field.
    pub(crate) fn managers_disagree(conflicts: &[(String, String)]) -> Self {
        let list: Vec<String> = conflicts.iter().map(|(m, f)| format!("conflict with {m}: {f}")).collect();
        let count = match list.len() {
            1 => "1 conflict".to_owned(),
            n => format!("{n} conflicts"),
        };
        let mut refusal =
            Self::new(409, "Conflict", format!("Apply failed with {count}: {}", list.join("\n")));
        refusal.0.causes = conflicts.iter().map(|(m, f)| Cause::manager_conflict(m, f)).collect();
        refusal
    }

    pub(crate) fn invalid(kind: &KindInfo, name: &str, causes: Vec<Cause>) -> Self {
        // Events are validated as those of the core group.
        let group = if kind.kind == "Event" { "" } else { kind.group };
        Self::invalid_kind(group, kind.kind, name, causes)
    }

    pub(crate) fn invalid_kind(
        group: &'static str,
        kind: &'static str,
        name: &str,
        causes: Vec<Cause>,
    ) -> Self {
        let list: Vec<String> = causes.iter().map(|c| format!("{}: {}", c.field, c.message)).collect();
        let what = if list.len() == 1 { list.concat() } else { format!("[{}]", list.join(", ")) };
        let full = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut refusal = Self::new(422, "Invalid", format!("{full} \"{name}\" is invalid: {what}"));
        refusal.0.causes = causes;
        refusal.about(name, group, kind)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn forbidden(kind: &KindInfo, name: &str, why: &str) -> Self {
        Self::new(403, "Forbidden", format!("{} \"{name}\" is forbidden: {why}", kind.resource())).about(
            name,
            kind.group,
            kind.plural,
        )
    }

    pub(crate) fn not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(crate) fn media_type(supported: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {supported}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 410: what the request continues from is forgotten.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// The request asks for a state that has not come yet.
    pub(crate) fn too_large_version(asked: u64, current: u64) -> Self {
        let mut refusal =
            Self::new(504, "Timeout", format!("Too large resource version: {asked}, current: {current}"));
        refusal.0.causes = vec![Cause {
            reason: "ResourceVersionTooLarge",
            field: String::new(),
            message: "Too large resource version".to_owned(),
        }];
        refusal.0.retry_after = Some(1);
        refusal
    }

    pub(crate) fn too_many_requests(retry_after: u32) -> Self {
        let mut refusal = Self::new(429, "TooManyRequests", "Too many requests, please try again later.");
        refusal.0.retry_after = Some(retry_after);
        refusal
    }

    pub(crate) fn internal(message: &str) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// A plain error of the storage layer has no reason of its own.
    pub(crate) fn unexplained(message: &str) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn timeout() -> Self {
        Self::new(504, "Timeout", "Timeout: request did not complete within the allotted timeout")
    }

    /// The HTTP status.
    pub(crate) fn code(&self) -> u16 {
        self.0.code
    }

    /// Seconds after which the request may be made again.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.0.retry_after
    }

    /// The `Status` object.
    pub(crate) fn body(&self) -> Value {
        let mut details = json!({});
        if let Some((name, group, kind)) = &self.0.about {
            for (field, value) in [("name", name.as_str()), ("group", group), ("kind", kind)] {
                if !value.is_empty() {
                    crate::object::set(&mut details, &[field], json!(value));
                }
            }
        }
        if !self.0.causes.is_empty() {
            let causes: Vec<Value> = self
                .0
                .causes
                .iter()
                .map(|c| json!({"reason": c.reason, "message": c.message, "field": c.field}))
                .collect();
            crate::object::set(&mut details, &["causes"], json!(causes));
        }
        if let Some(after) = self.0.retry_after {
            crate::object::set(&mut details, &["retryAfterSeconds"], json!(after));
        }
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.0.message, "code": self.0.code,
        });
        if !self.0.reason.is_empty() {
            crate::object::set(&mut body, &["reason"], json!(self.0.reason));
        }
        if details.as_object().is_some_and(|d| !d.is_empty()) {
            crate::object::set(&mut body, &["details"], details);
        }
        body
    }
}

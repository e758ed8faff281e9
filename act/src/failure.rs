//! What an unsuccessful request means for the key that it was made for.

use std::{error::Error, io, time::Duration};

/// Longest delay that is taken from the API server: a nonsensical one must not park a key for ever.
const LONGEST_DELAY: Duration = Duration::from_mins(5);

/// Why a request did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The object has another state than the request was made for (409).
    #[error("{0}")]
    Conflict(String),
    /// The object does not exist (404).
    #[error("{0}")]
    Gone(String),
    /// The API server refused; the same request may succeed later (quota, permission, validation).
    #[error("{text}")]
    Refused {
        /// Its message.
        text: String,
        /// Name of the object, as the server generated it.
        name: String,
        /// HTTP status.
        code: u16,
    },
    /// The API server asked to come back later (429, or any status with a delay).
    #[error("{text}")]
    Busy {
        /// Its message.
        text: String,
        /// When.
        after: Duration,
        /// A PodDisruptionBudget is why.
        budget: bool,
    },
    /// The request was never sent.
    #[error("{0}")]
    NotSent(String),
    /// No answer, or one that does not tell whether the request was carried out.
    #[error("{text}")]
    Unknown {
        /// What is known.
        text: String,
        /// True when the API server said so itself.
        answered: bool,
        /// When it asked to come back.
        after: Duration,
    },
}

impl Failure {
    /// How long the API server asked to wait.
    pub fn retry_after(&self) -> Duration {
        match self {
            Self::Busy { after, .. } | Self::Unknown { after, .. } => *after,
            _ => Duration::ZERO,
        }
    }

    /// True when the request may have been carried out.
    pub fn is_in_doubt(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// True when the API server gave the reason, so that people can do something about it.
    pub fn is_explained(&self) -> bool {
        match self {
            Self::Conflict(_) | Self::Refused { .. } | Self::Busy { .. } => true,
            Self::Unknown { answered, .. } => *answered,
            Self::Gone(_) | Self::NotSent(_) => false,
        }
    }

    /// True when the API server will never take what was sent: it is not valid, or too large for it or for etcd.
    pub fn is_about_content(&self) -> bool {
        match self {
            Self::Refused { code, .. } => matches!(code, 400 | 413 | 422),
            Self::Unknown { text, answered: true, .. } => {
                text.contains("request is too large") || text.contains("message larger than max")
            }
            _ => false,
        }
    }

    /// Metric label.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Conflict(_) => "conflict",
            Self::Gone(_) => "gone",
            Self::Refused { .. } => "refused",
            Self::Busy { .. } => "busy",
            Self::NotSent(_) => "not_sent",
            Self::Unknown { .. } => "unknown",
        }
    }

    /// A text that is the same for every attempt: the random part of a generated name is cut out, so that
    /// repetitions of an event aggregate.
    pub fn stable_text(&self) -> String {
        match self {
            Self::Refused { text, name, .. } if name.len() > 5 && name.is_char_boundary(name.len() - 5) => {
                let (base, _) = name.split_at(name.len() - 5);
                text.replace(name.as_str(), &format!("{base}*"))
            }
            other => other.to_string(),
        }
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                let (delay, name) = status
                    .details
                    .as_ref()
                    .map_or((0, String::new()), |d| (d.retry_after_seconds, d.name.clone()));
                let after = Duration::from_secs(u64::from(delay)).min(LONGEST_DELAY);
                let text = status.message.clone();
                match status.code {
                    // Admission comes before the write.
                    500 if text.contains("failed calling webhook") => Self::Refused { text, name, code: 500 },
                    // A timeout or crash on the server's side may come after the write.
                    500 | 502 | 504 => Self::Unknown { text, answered: true, after },
                    429 | 503 => {
                        let mut causes = status.details.iter().flat_map(|d| &d.causes);
                        // `policy/v1` DisruptionBudgetCause. An API server that is overloaded answers 429, too.
                        let budget = causes.any(|cause| cause.reason == "DisruptionBudget");
                        Self::Busy { text, after, budget }
                    }
                    // Only the registry says so; an API that is not served answers 404 without an object's name.
                    404 if !name.is_empty() => Self::Gone(text),
                    409 if delay > 0 => Self::Busy { text, after, budget: false },
                    409 => Self::Conflict(text),
                    code => Self::Refused { text, name, code },
                }
            }
            other => {
                let text = chain(&other);
                if refused_connection(&other) {
                    Self::NotSent(text)
                } else {
                    Self::Unknown { text, answered: false, after: Duration::ZERO }
                }
            }
        }
    }
}

/// The error and its causes, once each.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

fn refused_connection(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if inner.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = inner.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::{Status, response::StatusDetails};

    fn api(code: u16, message: &str, details: Option<StatusDetails>) -> Failure {
        let mut status = Status::failure(message, "").with_code(code);
        status.details = details;
        kube::Error::Api(status.boxed()).into()
    }

    fn details(json: serde_json::Value) -> StatusDetails {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn the_random_part_of_a_generated_name_is_cut_out_of_the_text() {
        let details = details(serde_json::json!({"name": "pod-gpu-x7k2j"}));
        let failure =
            api(403, r#"resourceclaims "pod-gpu-x7k2j" is forbidden: exceeded quota"#, Some(details));
        assert_eq!(failure.stable_text(), r#"resourceclaims "pod-gpu-*" is forbidden: exceeded quota"#);
    }

    #[test]
    fn a_server_error_leaves_a_create_in_doubt_and_a_refusal_does_not() {
        assert!(api(500, "timeout", None).is_in_doubt());
        assert!(api(504, "timeout", None).is_in_doubt());
        assert!(!api(403, "no", None).is_in_doubt());
        let webhook = api(500, "Internal error occurred: failed calling webhook \"x\": refused", None);
        assert!(!webhook.is_in_doubt() && webhook.is_explained());
        assert!(!api(429, "later", None).is_in_doubt());
    }

    #[test]
    fn the_delay_that_the_server_asks_for_is_kept() {
        let delayed = details(serde_json::json!({"retryAfterSeconds": 7}));
        assert_eq!(api(429, "later", Some(delayed)).retry_after(), Duration::from_secs(7));
        assert_eq!(api(403, "no", None).retry_after(), Duration::ZERO);
        let absurd = details(serde_json::json!({"retryAfterSeconds": u32::MAX}));
        assert_eq!(api(429, "later", Some(absurd)).retry_after(), Duration::from_mins(5));
    }

    #[test]
    fn an_api_that_is_not_served_does_not_mean_that_the_object_is_gone() {
        let named = details(serde_json::json!({"name": "p", "kind": "pods"}));
        assert!(matches!(api(404, "pods \"p\" not found", Some(named)), Failure::Gone(_)));
        assert!(matches!(api(404, "404 page not found", None), Failure::Refused { .. }));
    }

    #[test]
    fn a_refused_connection_was_never_sent() {
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(matches!(Failure::from(kube::Error::Service(Box::new(refused))), Failure::NotSent(_)));
        let reset = io::Error::from(io::ErrorKind::ConnectionReset);
        assert!(Failure::from(kube::Error::Service(Box::new(reset))).is_in_doubt());
    }
}

//! Label and field selectors.

use serde_json::Value;

use crate::{
    kinds::KindInfo,
    object::{at, meta},
    refusal::Refusal,
};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    Missing,
}

/// What a list or watch selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<(String, Test)>,
    /// Path, wanted value, and whether it must be that or must not.
    fields: Vec<(Vec<String>, String, bool)>,
    /// Only this namespace.
    pub(crate) namespace: Option<String>,
}

impl Selector {
    /// Reads selectors as they stand in a query.
    ///
    /// # Errors
    /// They are malformed, or name a field that cannot be selected by.
    pub(crate) fn parse(
        kind: &KindInfo,
        namespace: Option<&str>,
        labels: &str,
        fields: &str,
    ) -> Result<Self, Refusal> {
        let mut selector = Self { namespace: namespace.map(str::to_owned), ..Self::default() };
        for requirement in split(labels) {
            selector.labels.push(label(requirement)?);
        }
        for requirement in fields.split(',').filter(|r| !r.is_empty()) {
            let (field, value, equal) = match (requirement.split_once("!="), requirement.split_once('=')) {
                (Some((field, value)), _) => (field, value, false),
                (None, Some((field, value))) => (field, value.strip_prefix('=').unwrap_or(value), true),
                (None, None) => {
                    return Err(Refusal::bad_request(format!(
                        "invalid selector: '{requirement}'; can't understand '{requirement}'"
                    )));
                }
            };
            let path: Vec<String> = field.split('.').map(str::to_owned).collect();
            let known = field == "metadata.name"
                || (field == "metadata.namespace" && kind.namespaced)
                || kind.selectable.iter().any(|p| path == *p);
            if !known {
                return Err(Refusal::bad_request(format!("field label not supported: {field}")));
            }
            selector.fields.push((path, value.to_owned(), equal));
        }
        Ok(selector)
    }

    /// True when nothing is left out but other namespaces.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn selects(&self, object: &Value) -> bool {
        self.namespace.as_deref().is_none_or(|ns| meta(object, "namespace") == ns)
            && self.labels.iter().all(|(key, test)| {
                let value = at(object, &["metadata", "labels", key]).as_str();
                match test {
                    Test::In(values) => value.is_some_and(|v| values.iter().any(|w| w == v)),
                    Test::NotIn(values) => value.is_none_or(|v| values.iter().all(|w| w != v)),
                    Test::Exists => value.is_some(),
                    Test::Missing => value.is_none(),
                }
            })
            && self.fields.iter().all(|(path, wanted, equal)| {
                let path: Vec<&str> = path.iter().map(String::as_str).collect();
                let equals = match at(object, &path) {
                    Value::String(text) => text == wanted,
                    Value::Bool(flag) => flag.to_string() == *wanted,
                    // Absent texts are empty and absent flags false.
                    _ => wanted.is_empty() || wanted == "false",
                };
                equals == *equal
            })
    }
}

/// Splits at commas outside of parentheses.
fn split(labels: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    labels
        .split(|c| {
            match c {
                '(' => depth = depth.saturating_add(1),
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        })
        .map(str::trim)
        .filter(|r| !r.is_empty())
        .collect()
}

fn label(requirement: &str) -> Result<(String, Test), Refusal> {
    let one = |key: &str, value: &str, test: fn(Vec<String>) -> Test| {
        (key.trim().to_owned(), test(vec![value.trim().to_owned()]))
    };
    let parsed = if let Some((key, values)) = requirement.split_once('(') {
        let values = values.trim_end().trim_end_matches(')');
        let values: Vec<String> = values.split(',').map(|v| v.trim().to_owned()).collect();
        match key.split_whitespace().collect::<Vec<_>>()[..] {
            [key, "in"] => (key.to_owned(), Test::In(values)),
            [key, "notin"] => (key.to_owned(), Test::NotIn(values)),
            _ => return Err(malformed(requirement)),
        }
    } else if let Some((key, value)) = requirement.split_once("!=") {
        one(key, value, Test::NotIn)
    } else if let Some((key, value)) = requirement.split_once('=') {
        one(key, value.strip_prefix('=').unwrap_or(value), Test::In)
    } else if let Some(key) = requirement.strip_prefix('!') {
        (key.trim().to_owned(), Test::Missing)
    } else {
        (requirement.to_owned(), Test::Exists)
    };
    if parsed.0.is_empty() || parsed.0.contains(char::is_whitespace) {
        return Err(malformed(requirement));
    }
    Ok(parsed)
}

fn malformed(requirement: &str) -> Refusal {
    Refusal::bad_request(format!("unable to parse requirement: {requirement}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds::{KINDS, position};

    fn selects(labels: &str, fields: &str) -> bool {
        let kind = &KINDS[position("Pod").unwrap()];
        let pod = json!({"metadata": {"name": "p", "namespace": "ns", "labels": {"app": "a", "tier": "x"}},
            "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        Selector::parse(kind, Some("ns"), labels, fields).unwrap().selects(&pod)
    }

    #[test]
    fn labels_are_selected_by_value_set_and_presence() {
        for (selector, expected) in [
            ("app=a", true),
            ("app==a,tier!=x", false),
            ("app in (a, b),tier", true),
            ("app notin (a,b)", false),
            ("other notin (a,b)", true),
            ("!other,app", true),
            ("!app", false),
        ] {
            assert_eq!(selects(selector, ""), expected, "{selector}");
        }
    }

    #[test]
    fn fields_are_selected_by_value() {
        assert!(selects("", "metadata.name=p,spec.nodeName=n,status.phase!=Failed"));
        assert!(!selects("", "spec.nodeName="));
    }

    #[test]
    fn an_unknown_field_is_refused() {
        let kind = &KINDS[position("ResourceClaim").unwrap()];
        assert!(Selector::parse(kind, None, "", "spec.nodeName=n").is_err());
        assert!(Selector::parse(kind, None, "app in", "").is_err());
    }
}

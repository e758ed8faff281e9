//! Node selectors: parsing once, matching often.
//!
//! Rules: `component-helpers/scheduling/corev1/nodeaffinity` and `apimachinery/pkg/labels`. Terms are alternatives;
//! a term without requirements matches nothing; any malformed term makes the whole selector malformed.

use crate::objects::{Node, NodeSelector, NodeSelectorRequirement};

/// Whether a node selector selects a node; a malformed one selects none.
pub fn selects(selector: &NodeSelector, node: &Node) -> bool {
    Matcher::parse(selector).is_ok_and(|matcher| matcher.matches(node))
}

/// A parsed node selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Matcher {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: Box<str>,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Box<[Box<str>]>),
    NotIn(Box<[Box<str>]>),
    Exists,
    DoesNotExist,
    Above(i64),
    Below(i64),
}

impl Matcher {
    /// Parses a selector; the error says what is wrong with it.
    pub(crate) fn parse(selector: &NodeSelector) -> Result<Self, String> {
        let mut terms = Vec::new();
        for (index, term) in selector.node_selector_terms.iter().enumerate() {
            if term.match_expressions.is_empty() && term.match_fields.is_empty() {
                continue;
            }
            let at = |list: &str, position: usize| format!("nodeSelectorTerms[{index}].{list}[{position}]");
            let mut parsed = Term { labels: Vec::new(), fields: Vec::new() };
            for (position, requirement) in term.match_expressions.iter().enumerate() {
                parsed.labels.push(
                    on_label(requirement)
                        .map_err(|error| format!("{}: {error}", at("matchExpressions", position)))?,
                );
            }
            for (position, requirement) in term.match_fields.iter().enumerate() {
                parsed.fields.push(
                    on_field(requirement)
                        .map_err(|error| format!("{}: {error}", at("matchFields", position)))?,
                );
            }
            terms.push(parsed);
        }
        Ok(Self { terms })
    }

    /// Whether the node is selected.
    pub(crate) fn matches(&self, node: &Node) -> bool {
        let label = |key: &str| node.metadata.labels.get(key).map(String::as_str);
        let name = node.metadata.name.as_str();
        self.terms.iter().any(|term| {
            term.labels.iter().all(|requirement| requirement.holds(label(&requirement.key)))
                // Without a name there are no fields, and then field requirements are not looked at.
                && (name.is_empty()
                    || term.fields.iter().all(|requirement| {
                        requirement.holds_for_field(if &*requirement.key == "metadata.name" { name } else { "" })
                    }))
        })
    }
}

impl Requirement {
    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(parse_int);
        match &self.test {
            Test::In(values) => value.is_some_and(|value| values.iter().any(|one| &**one == value)),
            Test::NotIn(values) => value.is_none_or(|value| values.iter().all(|one| &**one != value)),
            Test::Exists => value.is_some(),
            Test::DoesNotExist => value.is_none(),
            Test::Above(bound) => number().is_some_and(|number| number > *bound),
            Test::Below(bound) => number().is_some_and(|number| number < *bound),
        }
    }

    /// Fields that are not set compare as the empty text (`fields.Set.Get`).
    fn holds_for_field(&self, value: &str) -> bool {
        self.holds(Some(value))
    }
}

fn on_label(requirement: &NodeSelectorRequirement) -> Result<Requirement, String> {
    check_label_key(&requirement.key)?;
    let values = &requirement.values;
    let boxed = || values.iter().map(|value| value.as_str().into()).collect();
    let integer = || match values.as_slice() {
        [one] => {
            parse_int(one).ok_or_else(|| "for 'Gt', 'Lt' operators, the value must be an integer".to_owned())
        }
        _ => Err("for 'Gt', 'Lt' operators, exactly one value is required".to_owned()),
    };
    let test = match requirement.operator.as_str() {
        "In" | "NotIn" if values.is_empty() => {
            return Err("for 'in', 'notin' operators, values set can't be empty".to_owned());
        }
        "In" => Test::In(boxed()),
        "NotIn" => Test::NotIn(boxed()),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            return Err("values set must be empty for exists and does not exist".to_owned());
        }
        "Exists" => Test::Exists,
        "DoesNotExist" => Test::DoesNotExist,
        "Gt" => Test::Above(integer()?),
        "Lt" => Test::Below(integer()?),
        other => return Err(format!("unsupported operator {other:?}")),
    };
    for value in values {
        check_label_value(value)?;
    }
    Ok(Requirement { key: requirement.key.as_str().into(), test })
}

fn on_field(requirement: &NodeSelectorRequirement) -> Result<Requirement, String> {
    let [value] = requirement.values.as_slice() else {
        return Err(match requirement.operator.as_str() {
            "In" | "NotIn" => "values: must have one element".to_owned(),
            other => format!("unsupported operator {other:?}"),
        });
    };
    let values: Box<[Box<str>]> = Box::new([value.as_str().into()]);
    let test = match requirement.operator.as_str() {
        "In" => Test::In(values),
        "NotIn" => Test::NotIn(values),
        other => return Err(format!("unsupported operator {other:?}")),
    };
    Ok(Requirement { key: requirement.key.as_str().into(), test })
}

/// As Go's `strconv.ParseInt(s, 10, 64)`.
fn parse_int(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().copied().all(is_name_byte)
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}

fn check_label_key(key: &str) -> Result<(), String> {
    let valid = match key.split_once('/') {
        None => is_qualified(key),
        Some((prefix, name)) => {
            let label = |part: &str| {
                let bytes = part.as_bytes();
                bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
                    && bytes.first().is_some_and(|byte| *byte != b'-')
                    && bytes.last().is_some_and(|byte| *byte != b'-')
            };
            prefix.len() <= 253 && prefix.split('.').all(label) && is_qualified(name)
        }
    };
    if valid { Ok(()) } else { Err(format!("key {key:?} is not a label key")) }
}

fn check_label_value(value: &str) -> Result<(), String> {
    if value.is_empty() || is_qualified(value) {
        Ok(())
    } else {
        Err(format!("value {value:?} is not a label value"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::objects::NodeSelectorTerm;

    fn requirement(key: &str, operator: &str, values: &[&str]) -> NodeSelectorRequirement {
        NodeSelectorRequirement {
            key: key.to_owned(),
            operator: operator.to_owned(),
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        }
    }

    fn selector(requirements: Vec<NodeSelectorRequirement>) -> NodeSelector {
        NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: requirements,
                match_fields: Vec::new(),
            }],
        }
    }

    fn node(name: &str, labels: &[(&str, &str)]) -> Node {
        let mut node = Node::default();
        name.clone_into(&mut node.metadata.name);
        node.metadata.labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        node
    }

    fn holds(requirement: NodeSelectorRequirement, on: &Node) -> bool {
        Matcher::parse(&selector(vec![requirement])).unwrap().matches(on)
    }

    #[test]
    fn each_operator_looks_at_the_label() {
        let node = node("n", &[("zone", "a"), ("cpus", "8")]);
        assert!(holds(requirement("zone", "In", &["b", "a"]), &node));
        assert!(!holds(requirement("zone", "NotIn", &["b", "a"]), &node));
        assert!(holds(requirement("other", "NotIn", &["b"]), &node));
        assert!(holds(requirement("zone", "Exists", &[]), &node));
        assert!(holds(requirement("other", "DoesNotExist", &[]), &node));
        assert!(holds(requirement("cpus", "Gt", &["7"]), &node));
        assert!(!holds(requirement("cpus", "Lt", &["8"]), &node));
        assert!(!holds(requirement("zone", "Gt", &["7"]), &node));
    }

    #[test]
    fn no_terms_and_empty_terms_match_nothing() {
        let node = node("n", &[]);
        assert!(!Matcher::parse(&NodeSelector::default()).unwrap().matches(&node));
        let empty = NodeSelector { node_selector_terms: vec![NodeSelectorTerm::default()] };
        assert!(!Matcher::parse(&empty).unwrap().matches(&node));
    }

    #[test]
    fn the_name_is_a_field() {
        let by_name = NodeSelector {
            node_selector_terms: vec![NodeSelectorTerm {
                match_expressions: Vec::new(),
                match_fields: vec![requirement("metadata.name", "In", &["n"])],
            }],
        };
        let matcher = Matcher::parse(&by_name).unwrap();
        assert!(matcher.matches(&node("n", &[])));
        assert!(!matcher.matches(&node("m", &[])));
    }

    #[test]
    fn one_malformed_term_spoils_the_selector() {
        for bad in [
            requirement("zone", "Near", &["a"]),
            requirement("zone", "In", &[]),
            requirement("zone", "Exists", &["a"]),
            requirement("cpus", "Gt", &["many"]),
            requirement("", "Exists", &[]),
            requirement("zone", "In", &["not a label"]),
        ] {
            let mut both = selector(vec![requirement("zone", "Exists", &[])]);
            both.node_selector_terms.extend(selector(vec![bad.clone()]).node_selector_terms);
            assert!(Matcher::parse(&both).is_err(), "{bad:?}");
        }
    }
}

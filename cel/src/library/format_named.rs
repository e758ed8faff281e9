//! Named formats (`pkg/cel/library/format.go` of the API server).

use super::operators::text;
use super::{Call, Functions, Outcome};
use crate::cost::CostRule;
use crate::types::{FORMAT, Type, list, optional};
use crate::value::Value;
use std::fmt;

/// A named format.
pub struct NamedFormat {
    /// The function that gives it.
    constructor: &'static str,
    pub(crate) name: &'static str,
    /// The length of a regular expression for it, by which it costs.
    pub(crate) max_regex_size: usize,
    check: fn(&str) -> Vec<String>,
}

impl fmt::Debug for NamedFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

static FORMATS: [NamedFormat; 13] = [
    NamedFormat::new("format.byte", "byte", 84, byte),
    NamedFormat::new("format.date", "date", DATE_TIME, date),
    NamedFormat::new("format.datetime", "datetime", DATE_TIME, date_time),
    NamedFormat::new("format.dns1035Label", "DNS1035Label", 30, dns1035_label),
    NamedFormat::new("format.dns1035LabelPrefix", "DNS1035LabelPrefix", 30, |text| {
        dns1035_label(&masked(text))
    }),
    NamedFormat::new("format.dns1123Label", "DNS1123Label", 30, dns1123_label),
    NamedFormat::new("format.dns1123LabelPrefix", "DNS1123LabelPrefix", 30, |text| {
        dns1123_label(&masked(text))
    }),
    NamedFormat::new("format.dns1123Subdomain", "DNS1123Subdomain", 60, dns1123_subdomain),
    NamedFormat::new("format.dns1123SubdomainPrefix", "DNS1123SubdomainPrefix", 60, |text| {
        dns1123_subdomain(&masked(text))
    }),
    NamedFormat::new("format.labelValue", "LabelValue", 40, label_value),
    NamedFormat::new("format.qualifiedName", "QualifiedName", 60, qualified_name),
    NamedFormat::new("format.uri", "URI", 1103, uri),
    NamedFormat::new("format.uuid", "uuid", 70, uuid),
];

/// The length of the pattern for dates with times.
const DATE_TIME: usize = 69;

impl NamedFormat {
    const fn new(
        constructor: &'static str,
        name: &'static str,
        max_regex_size: usize,
        check: fn(&str) -> Vec<String>,
    ) -> Self {
        Self { constructor, name, max_regex_size, check }
    }

    fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.constructor.strip_prefix("format.") == Some(name))
    }
}

pub(super) fn declare(functions: &mut Functions) {
    for format in &FORMATS {
        functions.add(format.constructor, constant).global([], FORMAT);
    }
    functions.add("format.named", named).global([Type::String], optional(FORMAT));
    functions
        .add("validate", validate)
        .all_cost(CostRule::Validate)
        .member([FORMAT, Type::String], optional(list(Type::String)));
}

fn constant<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let name = call.function.strip_prefix("format.").unwrap_or_default();
    NamedFormat::find(name).map(Value::Format).ok_or_else(|| call.no_such_overload())
}

fn named<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::String(name)] = call.args else { return Err(call.no_such_overload()) };
    Ok(NamedFormat::find(text(name)).map_or(Value::NONE, |format| Value::some(Value::Format(format))))
}

fn validate<'a>(call: &mut Call<'_, 'a>) -> Outcome<'a> {
    let [Value::Format(format), Value::String(value)] = call.args else {
        return Err(call.no_such_overload());
    };
    call.fuel.take_bytes(text(value).len())?;
    let problems = (format.check)(text(value));
    Ok(if problems.is_empty() { Value::NONE } else { Value::some(Value::texts(problems)) })
}

/// A name to which something is appended may end in a dash.
fn masked(name: &str) -> String {
    match name.strip_suffix('-') {
        Some(rest) if !rest.is_empty() => {
            let mut kept: String = rest.to_owned();
            kept.pop();
            kept.push('a');
            kept
        }
        _ => name.to_owned(),
    }
}

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} bytes")
}

fn regex_error(message: &str, pattern: &str, examples: &[&str]) -> String {
    let examples: Vec<String> = examples.iter().map(|example| format!("'{example}'")).collect();
    format!("{message} (e.g. {}, regex used for validation is '{pattern}')", examples.join(",  or "))
}

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const LABEL_1123_ERROR: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', \
                                and must start and end with an alphanumeric character";
const SUBDOMAIN_ERROR: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', \
                               and must start and end with an alphanumeric character";
const LABEL_1035_ERROR: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
                                alphabetic character, and end with an alphanumeric character";
const NAME: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const NAME_ERROR: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                          alphanumeric character";
const VALUE_ERROR: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', \
                           and must start and end with an alphanumeric character";

fn is_lower_alphanumeric(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Whether all is made of `inner`, starting with `first` and ending with `last`; not empty.
fn framed(text: &str, first: fn(u8) -> bool, inner: fn(u8) -> bool, last: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| first(*b))
        && bytes.last().is_some_and(|b| last(*b))
        && bytes.iter().all(|b| inner(*b))
}

fn is_label(text: &str) -> bool {
    framed(text, is_lower_alphanumeric, |b| is_lower_alphanumeric(b) || b == b'-', is_lower_alphanumeric)
}

fn is_name(text: &str) -> bool {
    let alphanumeric = |b: u8| b.is_ascii_alphanumeric();
    framed(text, alphanumeric, |b| b.is_ascii_alphanumeric() || b"-_.".contains(&b), alphanumeric)
}

fn dns1123_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !is_label(text) {
        if text.split('.').all(is_label) {
            problems.push("must not contain dots".to_owned());
        } else {
            problems.push(regex_error(LABEL_1123_ERROR, LABEL_1123, &["my-name", "123-abc"]));
        }
    }
    problems
}

fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 253 {
        problems.push(too_long(253));
    }
    if !text.split('.').all(is_label) {
        let pattern = format!("{LABEL_1123}(\\.{LABEL_1123})*");
        problems.push(regex_error(SUBDOMAIN_ERROR, &pattern, &["example.com"]));
    }
    problems
}

fn dns1035_label(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    let inner = |b: u8| is_lower_alphanumeric(b) || b == b'-';
    if !framed(text, |b| b.is_ascii_lowercase(), inner, is_lower_alphanumeric) {
        problems.push(regex_error(LABEL_1035_ERROR, "[a-z]([-a-z0-9]*[a-z0-9])?", &["my-name", "abc-123"]));
    }
    problems
}

fn qualified_name(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    let parts: Vec<&str> = text.split('/').collect();
    let name = match parts.as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else {
                problems.extend(
                    dns1123_subdomain(prefix).into_iter().map(|problem| format!("prefix part {problem}")),
                );
            }
            name
        }
        _ => {
            let error = regex_error(NAME_ERROR, NAME, &["MyName", "my.name", "123-abc"]);
            return vec![format!(
                "a valid label key {error} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push(format!("name part {}", too_long(63)));
    }
    if !is_name(name) {
        problems
            .push(format!("name part {}", regex_error(NAME_ERROR, NAME, &["MyName", "my.name", "123-abc"])));
    }
    problems
}

fn label_value(text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if text.len() > 63 {
        problems.push(too_long(63));
    }
    if !text.is_empty() && !is_name(text) {
        let pattern = format!("({NAME})?");
        problems.push(regex_error(VALUE_ERROR, &pattern, &["MyValue", "my_value", "12345"]));
    }
    problems
}

fn unless(valid: bool, problem: &str) -> Vec<String> {
    if valid { Vec::new() } else { vec![problem.to_owned()] }
}

fn uri(text: &str) -> Vec<String> {
    match super::url::is_request_uri(text) {
        Ok(()) => Vec::new(),
        Err(problem) => vec![format!("parse {text:?}: {problem}")],
    }
}

/// Dashes between the groups are optional, each on its own.
fn uuid(text: &str) -> Vec<String> {
    let mut rest = text;
    let mut valid = true;
    for (index, length) in [8, 4, 4, 4, 12].into_iter().enumerate() {
        if index > 0 {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let group = rest.get(..length).filter(|group| group.bytes().all(|b| b.is_ascii_hexdigit()));
        valid &= group.is_some();
        rest = rest.get(length..).unwrap_or_default();
    }
    unless(valid && rest.is_empty(), "does not match the UUID format")
}

fn byte(text: &str) -> Vec<String> {
    let unpadded = text.trim_end_matches('=');
    let valid = !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - unpadded.len() <= 2
        && unpadded.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+' || b == b'/');
    unless(valid, "invalid base64")
}

fn is_date(text: &str) -> bool {
    let digits = |range: std::ops::Range<usize>| {
        text.get(range)
            .filter(|part| part.bytes().all(|b| b.is_ascii_digit()))
            .and_then(|part| part.parse::<i16>().ok())
    };
    let separated = text.as_bytes().get(4) == Some(&b'-') && text.as_bytes().get(7) == Some(&b'-');
    let (Some(year), Some(month), Some(day)) = (digits(0..4), digits(5..7), digits(8..10)) else {
        return false;
    };
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else { return false };
    text.len() == 10 && separated && jiff::civil::Date::new(year, month, day).is_ok()
}

fn date(text: &str) -> Vec<String> {
    unless(is_date(text), "invalid date")
}

fn date_time(text: &str) -> Vec<String> {
    unless(is_date_time(text), "invalid datetime")
}

/// `IsDateTime` of kube-openapi: a date, `t`, and a time with a zone.
fn is_date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    if !is_date(date) {
        return false;
    }
    let two =
        |start: usize| time.get(start..start + 2).filter(|part| part.bytes().all(|b| b.is_ascii_digit()));
    let (Some(hour), Some(minute), Some(second)) = (two(0), two(3), two(6)) else { return false };
    let colons = time.as_bytes().get(2) == Some(&b':') && time.as_bytes().get(5) == Some(&b':');
    let rest = time.get(8..).unwrap_or_default();
    let zone = match rest.strip_prefix('.') {
        Some(fraction) => fraction.trim_start_matches(|c: char| c.is_ascii_digit()),
        None => rest,
    };
    let offset = zone.strip_prefix(['+', '-']).is_some_and(|offset| {
        let bytes = offset.as_bytes();
        bytes.len() >= 5
            && bytes
                .iter()
                .take(5)
                .enumerate()
                .all(|(index, b)| if index == 2 { *b == b':' } else { b.is_ascii_digit() })
    });
    colons && hour <= "23" && minute <= "59" && second <= "59" && (zone.starts_with('z') || offset)
}

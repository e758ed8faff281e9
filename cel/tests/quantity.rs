//! Compares quantities with those of Kubernetes, in `e2e/conformance/quantity/expected.jsonl` (`oracle.go` there says how).
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // helpers of tests are tests, too

use dra_api::quantity::{Format, Quantity};
use serde_json::Value as Json;

/// What differs, if anything.
fn difference(line: &Json) -> Option<String> {
    let text = |key: &str| line.get(key).and_then(Json::as_str);
    let int = |key: &str| line.get(key).and_then(Json::as_i64);
    let parsed = Quantity::parse(text("a")?);
    if let Some(error) = text("error") {
        return (parsed.map_err(|error| error.to_string()) != Err(error.to_owned()))
            .then(|| "error".to_owned());
    }
    let Ok(quantity) = parsed else { return Some("no quantity".to_owned()) };
    let format = match quantity.format() {
        Format::DecimalExponent => "DecimalExponent",
        Format::BinarySi => "BinarySI",
        Format::DecimalSi => "DecimalSI",
    };
    let differs =
        |key: &str, found: &dyn std::fmt::Debug, same: bool| (!same).then(|| format!("{key}: {found:?}"));
    let float = format!("{:016x}", quantity.as_approximate_f64().to_bits());
    let shown = quantity.to_string();
    let mut found = differs("text", &shown, same_text(Some(shown.as_str()), text("text")))
        .or(differs("format", &format, Some(format) == text("format")))
        .or(differs("sign", &quantity.sign(), Some(quantity.sign() as i64) == int("sign")))
        .or(differs("int64", &quantity.as_i64(), quantity.as_i64() == int("int64")))
        .or(differs("float", &float, Some(float.as_str()) == text("float")));
    if int("value").is_some() {
        found = found.or(differs("value", &quantity.value(), quantity.value() == int("value"))).or(differs(
            "milli",
            &quantity.milli_value(),
            quantity.milli_value() == int("milli"),
        ));
    }
    if let (Some(compare), Ok(other)) = (int("compare"), Quantity::parse(text("b")?)) {
        let order = quantity.cmp(&other) as i64;
        let sum = quantity.checked_add(&other).map(|sum| sum.to_string());
        let rest = quantity.checked_sub(&other).map(|rest| rest.to_string());
        found = found
            .or(differs("compare", &order, order == compare))
            .or(differs("sum", &sum, same_text(sum.as_deref(), text("sum"))))
            .or(differs("difference", &rest, same_text(rest.as_deref(), text("difference"))));
    }
    found
}

/// Kubernetes drops suffixes beyond `E` and `Ei`, and the number with them; there is nothing to compare then.
fn same_text(found: Option<&str>, expected: Option<&str>) -> bool {
    let beyond = |text: &str| {
        let digits = text.trim_start_matches('-').bytes().take_while(u8::is_ascii_digit).count();
        digits > 3 && (text.ends_with('E') || text.ends_with("Ei"))
    };
    found == expected || found.is_some_and(beyond)
}

#[test]
fn quantities_equal_those_of_kubernetes() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/conformance/quantity/expected.jsonl");
    let path = std::env::var("DRA_QUANTITIES").unwrap_or_else(|_| path.to_owned());
    let lines = std::fs::read_to_string(path).unwrap();
    let mut differences = Vec::new();
    for line in lines.lines() {
        let json: Json = serde_json::from_str(line).unwrap();
        if let Some(found) = difference(&json) {
            differences.push(format!("{line}\n    found {found}"));
        }
    }
    assert!(differences.is_empty(), "{} differences:\n{}", differences.len(), differences.join("\n"));
}

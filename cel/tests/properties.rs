//! Whatever the text and whatever the device: an answer or an error, the same each time, within the limits.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // helpers of tests are tests, too

use dra_api::quantity::Quantity;
use dra_cel::{
    COST_LIMIT, CompileOptions, Compiler, Device, DeviceBuilder, DeviceView, Environment, EvalError,
    Interner, Purpose, RawAttribute,
};
use proptest::prelude::*;
use std::sync::LazyLock;

static CORPUS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../e2e/conformance/cel/expected.jsonl");
    let lines = std::fs::read_to_string(path).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        // Those are slow, and tested elsewhere.
        .filter(|line| !line["id"].as_str().unwrap().starts_with("cost/"))
        .map(|line| line["expression"].as_str().unwrap().to_owned())
        .collect()
});

/// Pieces of which expressions consist.
const PIECES: [&str; 60] = [
    "device",
    ".driver",
    ".attributes",
    ".capacity",
    "[\"a.dev\"]",
    ".s",
    ".i",
    ".ints",
    ".?gone",
    "[?\"x\"]",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    "?",
    " ? ",
    " : ",
    "&&",
    "||",
    "==",
    "!=",
    "<",
    "in",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "1",
    "2u",
    "3.5",
    "\"a\"",
    "'b'",
    "b\"c\"",
    "r\"\\d\"",
    "null",
    "true",
    "x",
    "y",
    ".all(x, ",
    ".map(x, ",
    ".exists(x, ",
    "cel.bind(x, ",
    ".optMap(x, ",
    ".size()",
    ".matches(",
    "quantity(",
    "semver(",
    "has(",
    "duration(\"1s\")",
    "`q`",
    "\\",
    "\u{e9}",
    "\u{1F680}",
    "\0",
];

fn soup() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(&PIECES[..]), 0..40).prop_map(|pieces| pieces.concat())
}

/// An expression of the corpus with a piece of another one in place of a part of it.
fn spliced() -> impl Strategy<Value = String> {
    let index = || any::<prop::sample::Index>();
    (index(), index(), index(), index(), index(), index()).prop_map(|(a, b, from, to, start, end)| {
        let (a, b) = (a.get(&CORPUS[..]), b.get(&CORPUS[..]));
        let a: Vec<char> = a.chars().collect();
        let b: Vec<char> = b.chars().collect();
        let cut = |chars: &[char], from: prop::sample::Index, to: prop::sample::Index| {
            let (from, to) = (from.index(chars.len() + 1), to.index(chars.len() + 1));
            (from.min(to), from.max(to))
        };
        let (from, to) = cut(&a, from, to);
        let (start, end) = cut(&b, start, end);
        a[..from].iter().chain(&b[start..end]).chain(&a[to..]).collect()
    })
}

#[derive(Clone, Debug)]
enum Attribute {
    Int(i64),
    Bool(bool),
    String(String),
    Version(String),
    Ints(Vec<i64>),
    Strings(Vec<String>),
    Versions(Vec<String>),
    Nothing,
}

fn attribute() -> impl Strategy<Value = Attribute> {
    let version = || prop_oneof![Just("1.2.3".to_owned()), Just("2.0.0-rc.1+b".to_owned()), ".{0,6}"];
    prop_oneof![
        any::<i64>().prop_map(Attribute::Int),
        any::<bool>().prop_map(Attribute::Bool),
        ".{0,20}".prop_map(Attribute::String),
        version().prop_map(Attribute::Version),
        prop::collection::vec(any::<i64>(), 0..5).prop_map(Attribute::Ints),
        prop::collection::vec(".{0,5}", 0..5).prop_map(Attribute::Strings),
        prop::collection::vec(version(), 0..3).prop_map(Attribute::Versions),
        Just(Attribute::Nothing),
    ]
}

type Parts = (String, bool, Vec<(String, Attribute)>, Vec<(String, String)>);

fn parts() -> impl Strategy<Value = Parts> {
    let name =
        || prop_oneof![Just("s".to_owned()), Just("i".to_owned()), Just("a.dev/ints".to_owned()), ".{0,8}"];
    let quantity = prop_oneof![Just("80Gi".to_owned()), "[0-9.]{1,20}[kMGi]{0,2}", "[0-9]{1,3}e-?[0-9]{1,9}"];
    (
        prop_oneof![Just("a.dev".to_owned()), ".{0,8}"],
        any::<bool>(),
        prop::collection::vec((name(), attribute()), 0..8),
        prop::collection::vec((name(), quantity), 0..4),
    )
}

fn build((driver, allow, attributes, capacities): &Parts, interner: &mut Interner) -> Device {
    let mut builder = DeviceBuilder::new(interner, driver);
    builder.allow_multiple_allocations(*allow);
    for (name, attribute) in attributes {
        let mut raw = RawAttribute::default();
        match attribute {
            Attribute::Int(value) => raw.int = Some(*value),
            Attribute::Bool(value) => raw.bool = Some(*value),
            Attribute::String(value) => raw.string = Some(value),
            Attribute::Version(value) => raw.version = Some(value),
            Attribute::Ints(values) => raw.ints = Some(values),
            Attribute::Strings(values) => raw.strings = Some(values),
            Attribute::Versions(values) => raw.versions = Some(values),
            Attribute::Nothing => {}
        }
        builder.attribute(name, raw);
    }
    for (name, value) in capacities {
        if let Ok(value) = Quantity::parse(value) {
            builder.capacity(name, value);
        }
    }
    builder.build()
}

fn try_everything(source: &str, parts: &Parts) -> Result<(), TestCaseError> {
    let compiler = Compiler::new();
    for purpose in [Purpose::Selector, Purpose::DerivedAttribute] {
        for environment in [Environment::Stored, Environment::New] {
            let options = CompileOptions { purpose, environment, ..CompileOptions::default() };
            let mut interner = Interner::new();
            let Ok(program) = compiler.compile(source, &options, &mut interner) else { continue };
            let device = build(parts, &mut interner);
            let view = DeviceView { device: &device, interner: &interner };
            let (first, second) = (program.evaluate(view), program.evaluate(view));
            prop_assert_eq!(first.cost, second.cost);
            prop_assert_eq!(first.result.as_ref().err(), second.result.as_ref().err());
            prop_assert!(
                first.cost <= COST_LIMIT
                    || first.result.as_ref().err() == Some(&EvalError::CostLimitExceeded)
            );
            prop_assert_eq!(program.matches(view), program.matches(view));
            prop_assert_eq!(program.derive(view), program.derive(view));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_never_panics(source in ".{0,60}", parts in parts()) {
        try_everything(&source, &parts)?;
    }

    #[test]
    fn token_soup_never_panics(source in soup(), parts in parts()) {
        try_everything(&source, &parts)?;
    }

    #[test]
    fn spliced_expressions_never_panic(source in spliced(), parts in parts()) {
        try_everything(&source, &parts)?;
    }

    #[test]
    fn known_expressions_never_panic_on_any_device(index in any::<prop::sample::Index>(), parts in parts()) {
        let source: &String = index.get(&CORPUS);
        try_everything(source, &parts)?;
    }

    #[test]
    fn quantities_survive_their_own_text(
        number in "[+-]?[0-9]{0,25}(\\.[0-9]{0,12})?",
        suffix in "[numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]{1,3}",
    ) {
        if let Ok(quantity) = Quantity::parse(&format!("{number}{suffix}")) {
            let again = Quantity::parse(&quantity.to_string());
            prop_assert_eq!(again, Ok(quantity));
        }
    }

    #[test]
    fn patterns_never_panic(source in ".{0,30}", text in ".{0,30}") {
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let expression = format!("{}.findAll({} + string(device.driver)).size() >= 0", quoted(&text), quoted(&source));
        try_everything(&expression, &(String::new(), false, Vec::new(), Vec::new()))?;
    }
}

//! Compares verdicts and costs with those of Kubernetes' own implementation, in `e2e/conformance/cel/expected.jsonl`.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)] // helpers of tests are tests, too

use dra_cel::Compiler;
use dra_cel::wire::{Answer, Request, answer};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// A file of `e2e/conformance/cel`.
fn read(name: &str) -> String {
    let path = format!("{}/../e2e/conformance/cel/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// Texts of errors that mean the same in both.
const SHARED_TEXTS: [&str; 7] = [
    "no such key: ",
    "no such overload",
    "integer overflow",
    "division by zero",
    "modulus by zero",
    "index out of bounds",
    "actual cost limit exceeded",
];

#[derive(Default)]
struct Tally {
    total: usize,
    equal: usize,
    costs: usize,
    equal_costs: usize,
}

/// What differs in the verdict, if anything. A rejection may come at evaluation instead of compilation.
fn difference(expected: &Json, actual: &Answer) -> Option<String> {
    let text = |key: &str| expected.get(key).and_then(Json::as_str);
    let unstable: Vec<&str> = expected
        .get("unstable")
        .and_then(Json::as_array)
        .into_iter()
        .flatten()
        .filter_map(Json::as_str)
        .collect();
    if unstable.contains(&"result") {
        return None;
    }
    if let Some(error) = text("compileError") {
        let rejected = actual.compile_error.is_some() || actual.runtime_error.is_some();
        return (!rejected).then(|| format!("compile error {error}"));
    }
    if let Some(error) = text("runtimeError") {
        let Some(found) = &actual.runtime_error else { return Some(format!("runtime error {error}")) };
        let same = SHARED_TEXTS.iter().all(|text| !error.contains(text) || found.contains(text));
        return (!same).then(|| format!("runtime error {error}"));
    }
    (actual.result.as_ref() != expected.get("result")).then(|| format!("result {:?}", expected.get("result")))
}

#[test]
fn verdicts_and_costs_equal_those_of_kubernetes() {
    let corpus = read("expected.jsonl");
    // Differences that remain, with the reason.
    let known = read("known.tsv");
    let known: Vec<&str> = known.lines().filter_map(|line| line.split('\t').next()).collect();
    let compiler = Compiler::new();
    let mut tallies: BTreeMap<String, Tally> = BTreeMap::new();
    let mut unexpected = Vec::new();
    let mut cost_differences = Vec::new();
    for line in corpus.lines() {
        let expected: Json = serde_json::from_str(line).unwrap();
        let request: Request = serde_json::from_str(line).unwrap();
        let actual = answer(&compiler, &request);
        let category = request.id.split('/').next().unwrap().to_owned();
        let tally = tallies.entry(category).or_default();
        tally.total += 1;
        match difference(&expected, &actual) {
            None => tally.equal += 1,
            Some(_) if known.contains(&request.id.as_str()) => {}
            Some(difference) => unexpected.push(format!(
                "{} {}\n    expected {difference}\n    found {}",
                request.id,
                request.expression,
                serde_json::to_string(&actual).unwrap()
            )),
        }
        if let (Some(_), Some(cost)) =
            (expected.get("result"), expected.get("actualCost").and_then(Json::as_u64))
        {
            tally.costs += 1;
            if actual.actual_cost == Some(cost) {
                tally.equal_costs += 1;
            } else {
                cost_differences.push(format!(
                    "{} {} expected {cost} found {:?}",
                    request.id, request.expression, actual.actual_cost
                ));
            }
        }
    }
    for (category, tally) in &tallies {
        println!(
            "{category:10} verdicts {:4}/{:4}  costs {:4}/{:4}",
            tally.equal, tally.total, tally.equal_costs, tally.costs
        );
    }
    let sum = |get: fn(&Tally) -> usize| tallies.values().map(get).sum::<usize>();
    println!(
        "all        verdicts {}/{}  costs {}/{}",
        sum(|t| t.equal),
        sum(|t| t.total),
        sum(|t| t.equal_costs),
        sum(|t| t.costs)
    );
    println!("{}", cost_differences.join("\n"));
    assert!(unexpected.is_empty(), "{} differences:\n{}", unexpected.len(), unexpected.join("\n"));
}

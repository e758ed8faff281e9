//! Recorded answers of the Go allocator (k8s.io/dynamic-resource-allocation v0.37.2, experimental).
//!
//! `golden.jsonl` has one line for each seed from 0 on. After a change of the generator it is written anew with
//! `dra-conformance differential WORK/bin/loopback 0 500 -record conformance/tests/golden.jsonl`; `counterexamples/` are
//! requests that were once answered differently, shrunk by `-shrink`.

use std::path::Path;

use dra_conformance::differential::{Essence, ours};
use dra_conformance::generate;
use serde_json::Value;

fn tests() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"))
}

#[test]
fn generated_requests_are_answered_as_by_the_go_allocator() {
    let golden = std::fs::read_to_string(tests().join("golden.jsonl")).unwrap();
    let mut seeds = 0;
    for (seed, line) in (0..).zip(golden.lines()) {
        let theirs = Essence::from_record(&serde_json::from_str(line).unwrap());
        let differences = Essence::new(&ours(&generate::request(seed)).unwrap()).differences(&theirs);
        assert!(differences.is_empty(), "seed {seed}:\n{differences}");
        seeds += 1;
    }
    assert_eq!(seeds, 500);
}

#[test]
fn no_counterexample_is_answered_differently_again() {
    let mut examples = 0;
    for entry in std::fs::read_dir(tests().join("counterexamples")).unwrap() {
        let path = entry.unwrap().path();
        let example: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let theirs = Essence::new(&example["response"]);
        let differences = Essence::new(&ours(&example["request"]).unwrap()).differences(&theirs);
        assert!(differences.is_empty(), "{}:\n{differences}", path.display());
        examples += 1;
    }
    assert!(examples > 0);
}

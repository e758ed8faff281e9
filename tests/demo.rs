//! The demo as a user runs it.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    io::{BufRead as _, BufReader},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

fn demo(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_dra-controller-manager")).arg("demo").args(arguments).output().unwrap()
}

#[test]
fn demo_tells_its_story_without_a_cluster() {
    let begun = Instant::now();
    let output = demo(&[]);
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}\n{}", String::from_utf8_lossy(&output.stderr));
    for expected in [
        "claims are made, allocated and reserved, and 7 Pods run ... done",
        "Pod gpu-demo/inference-0 completes: the claim made for it is released and deleted ... done",
        "8 published devices selected. 6 allocated devices selected. 5 pods would be evicted",
        "the effect becomes NoExecute: 4 Pods without a toleration must go ... done",
        "tolerated for some seconds, then gone as well: 1 Pod ... done",
        "5 pods evicted",
        "the PodGroup is deleted: the claims go with them ... done",
        "no claims are left",
        "Demo complete: 7 Pods ran on 6 claims; 5 Pods evicted",
    ] {
        assert!(told.contains(expected), "{expected:?} is missing:\n{told}");
    }
    assert!(!told.contains('\u{1b}'), "colours are for terminals");
    assert!(begun.elapsed() < Duration::from_mins(1), "{:?}", begun.elapsed());
}

#[test]
fn demo_ends_at_a_signal() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dra-controller-manager"))
        .arg("demo")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It listens for signals before it says how many objects it applies.
    let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
    while !told.next().unwrap().unwrap().contains("applying") {}
    let signalled = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "dra-controller-manager: ended by SIGTERM\n");
}

#[test]
fn demo_says_why_a_story_cannot_be_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pods.yaml");
    std::fs::write(
        &file,
        "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: i}]}\n",
    )
    .unwrap();
    let output = demo(&["--input", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("the input has no Pod with resourceClaims"), "{error}");
}

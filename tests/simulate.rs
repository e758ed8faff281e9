//! `simulate` as a user runs it: files in, text out. What is expected stands in `tests/simulate/`;
//! `UPDATE_GOLDEN=1 cargo test --test simulate` writes it anew.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulate")
}

fn simulate(arguments: &[&str], input: Option<&str>) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dra-controller-manager"))
        .arg("simulate")
        .args(arguments)
        .current_dir(folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.unwrap_or_default().to_owned();
    let writer = std::thread::spawn(move || {
        // It may have ended before it has read everything.
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Standard output of a run that ends well.
fn answer(arguments: &[&str]) -> String {
    let output = simulate(arguments, None);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn is_golden(file: &str, found: &str) {
    let path = folder().join(file);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(expected == found, "{file} is different; is this right?\n{found}");
}

#[test]
fn every_action_is_told_with_its_time_and_reason() {
    is_golden("plain.txt", &answer(&["-f", "cluster.yaml", "--until", "10m"]));
    is_golden("plain.json", &answer(&["-f", "cluster.yaml", "--until", "10m", "-o", "json"]));
}

#[test]
fn a_rule_that_is_about_to_be_applied_shows_who_would_go_and_when_and_what_becomes_free() {
    let arguments = ["-f", "cluster.yaml", "--until", "10m", "--diff", "rule.yaml"];
    let table = answer(&arguments);
    is_golden("diff.txt", &table);
    is_golden("diff.json", &answer(&[&arguments[..], &["-o", "json"]].concat()));
    assert!(table.contains("+  0s     EvictPod"), "the Pod that does not tolerate the taint goes at once");
    assert!(
        table.contains("+  5m0s   EvictPod"),
        "the other one goes after the five minutes that it tolerates"
    );
    assert!(!table.contains("EvictPod         Pod ml/watch"), "what tolerates the taint stays");
    assert!(!table.contains("Fail "), "a claim that goes with its last finalizer is not worked on any more");
}

#[test]
fn an_end_before_the_time_tells_what_would_come_later() {
    let table =
        answer(&["-f", "cluster.yaml", "-f", "rule.yaml", "--at", "2026-11-30T08:00:00Z", "--until", "1m"]);
    assert!(table.contains("Evictions that come later\n  AT"), "{table}");
    assert!(table.contains("2026-11-30T08:05:00Z  Pod ml/serve"), "{table}");
}

#[test]
fn a_republished_slice_is_a_change_too() {
    let table = answer(&["-f", "cluster.yaml", "--until", "1m", "--diff", "slice.yaml"]);
    is_golden("slice.txt", &table);
}

#[test]
fn what_is_malformed_is_named_and_stops_nothing_else() {
    is_golden("malformed.txt", &answer(&["-f", "malformed.yaml", "--at", "2026-11-30T08:00:00Z"]));
}

#[test]
fn strict_stops_at_what_is_malformed() {
    let output = simulate(&["-f", "cluster.yaml", "-f", "malformed.yaml", "--strict"], None);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    is_golden("strict.txt", text(&output.stderr));
}

#[test]
fn json_comes_from_standard_input_as_well() {
    let list = r#"{"apiVersion": "v1", "kind": "PodList", "items": [
        {"metadata": {"name": "a", "namespace": "ns"}, "spec": {"resourceClaims": [
            {"name": "gpu", "resourceClaimTemplateName": "t"}]}}]}"#;
    let output = simulate(&["-f", "-", "--at", "2026-11-30T08:00:00Z", "--until", "5s"], Some(list));
    let found = text(&output.stdout);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(found.contains("Input: 1 Pod."), "{found}");
    assert!(found.contains(r#"resource claim template "t""#), "{found}");
}

#[test]
fn a_folder_is_read_file_by_file_and_an_empty_one_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    let output = simulate(&["-f", path], None);
    assert!(text(&output.stderr).contains("has no .yaml, .yml or .json files"), "{}", text(&output.stderr));
    for name in ["cluster.yaml", "rule.yaml"] {
        std::fs::copy(self::folder().join(name), folder.path().join(name)).unwrap();
    }
    let whole = answer(&["-f", path, "--until", "10m"]);
    assert_eq!(whole, answer(&["-f", "cluster.yaml", "-f", "rule.yaml", "--until", "10m"]));
}

#[test]
fn flags_of_run_change_what_controllers_do() {
    let with = |flag: &str| {
        let arguments = ["-f", "cluster.yaml", "-f", "rule.yaml", "--at", "2026-11-30T08:00:00Z", flag];
        answer(&arguments)
    };
    assert!(with("--run-flag=--eviction-mode=delete").contains("2 Pods evicted"));
    assert!(with("--run-flag=--controllers=resourceclaim").contains("0 Pods evicted"));
    let output = simulate(&["-f", "cluster.yaml", "--run-flag=--nonsense"], None);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--nonsense"), "{}", text(&output.stderr));
}

#[test]
fn files_that_are_not_there_and_input_without_objects_are_errors_with_a_text() {
    let error = |arguments: &[&str], input| {
        let output = simulate(arguments, Some(input));
        assert_eq!(output.status.code(), Some(1));
        text(&output.stderr).to_owned()
    };
    assert!(error(&["-f", "nowhere.yaml"], "").contains("cannot read nowhere.yaml"));
    assert!(
        error(&["-f", "-"], "kind: ConfigMap\napiVersion: v1\n").contains("there is nothing to simulate")
    );
    assert!(error(&["-f", "-", "--until", "soon"], "").contains("--until: \"soon\" is no duration"));
    assert!(error(&["-f", "cluster.yaml", "--at", "noon"], "").contains("--at: \"noon\" is no time"));
}

#[test]
fn a_change_that_cannot_be_read_is_no_change_without_effect() {
    let rule = "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: r}\nspec: {deviceSelector: {pool: node-1}, \
                taint: {key: a/b, effect: NoExecute}}\n";
    let refused = |change: &str| {
        let output = simulate(&["-f", "cluster.yaml", "--diff", "-"], Some(change));
        assert!(!output.status.success() && output.stdout.is_empty());
        text(&output.stderr).to_owned()
    };
    assert_eq!(
        refused(&rule.replace("deviceSelector", "deviceselector")),
        "dra-controller-manager: --diff: there is no change: no object that a controller here reads\n  standard input, \
         document 1: DeviceTaintRule r: spec.deviceselector: is no part of resource.k8s.io/v1\n"
    );
    assert_eq!(
        refused(&rule.replace("resource.k8s.io", "resources.k8s.io")),
        "dra-controller-manager: --diff: there is no change: no object that a controller here reads; skipped 1 \
         DeviceTaintRule.resources.k8s.io\n"
    );
}

#[test]
fn claims_without_their_pods_are_warned_about() {
    let claim = "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c, namespace: ns}\nspec: {devices: \
                 {requests: []}}\nstatus: {allocation: {devices: {results: [{request: r, driver: d, pool: p, device: x}]}}, \
                 reservedFor: [{resource: pods, name: gone, uid: u}]}\n";
    let output = simulate(&["-f", "-", "--at", "2026-11-30T08:00:00Z", "--until", "1m"], Some(claim));
    let found = text(&output.stdout);
    assert!(found.contains("WARNING: claims are reserved for 1 Pod that the input does not have"), "{found}");
    assert!(found.contains("WARNING: there are no ResourceSlices"), "{found}");
}

#[test]
fn the_same_input_gives_the_same_answer_to_the_byte() {
    for output in ["table", "json", "yaml"] {
        let arguments = ["-f", "cluster.yaml", "--diff", "rule.yaml", "-o", output];
        assert_eq!(answer(&arguments), answer(&arguments), "{output}");
    }
}

/// A cluster with a Pod for each claim, and ten devices in each slice.
fn large(pods: usize, slices: usize) -> String {
    let mut out = String::from("apiVersion: v1\nitems:\n");
    for n in 0..pods {
        let slice = n % slices;
        let device = n / slices;
        let _ = write!(
            out,
            "- apiVersion: v1\n  kind: Pod\n  metadata:\n    creationTimestamp: \"2026-11-30T07:00:00Z\"\n    name: pod-{n}\n    \
             namespace: ml\n    resourceVersion: \"{v}\"\n    uid: pod-{n}\n    labels:\n      app: train\n  spec:\n    \
             containers:\n    - image: registry.example/train:1\n      name: main\n      resources: {{}}\n    nodeName: \
             node-{slice}\n    resourceClaims:\n    - name: gpu\n      resourceClaimName: claim-{n}\n    \
             terminationGracePeriodSeconds: 30\n  status:\n    phase: Running\n- apiVersion: resource.k8s.io/v1\n  kind: \
             ResourceClaim\n  metadata:\n    creationTimestamp: \"2026-11-30T07:00:00Z\"\n    finalizers:\n    - \
             resource.kubernetes.io/delete-protection\n    name: claim-{n}\n    namespace: ml\n    resourceVersion: \"{w}\"\n    \
             uid: claim-{n}\n  spec:\n    devices:\n      requests:\n      - name: gpu\n        exactly:\n          \
             deviceClassName: gpu.example.com\n          allocationMode: ExactCount\n          count: 1\n  status:\n    \
             allocation:\n      devices:\n        results:\n        - device: gpu-{device}\n          driver: gpu.example.com\n          \
             pool: node-{slice}\n          request: gpu\n    reservedFor:\n    - name: pod-{n}\n      resource: pods\n      \
             uid: pod-{n}\n",
            v = 1000 + n,
            w = 100_000 + n,
        );
    }
    for n in 0..slices {
        let _ = write!(
            out,
            "- apiVersion: resource.k8s.io/v1\n  kind: ResourceSlice\n  metadata:\n    creationTimestamp: \
             \"2026-11-30T05:00:00Z\"\n    name: node-{n}\n    resourceVersion: \"{v}\"\n    uid: slice-{n}\n  spec:\n    driver: \
             gpu.example.com\n    nodeName: node-{n}\n    pool:\n      generation: 1\n      name: node-{n}\n      \
             resourceSliceCount: 1\n    devices:\n",
            v = 200_000 + n
        );
        for device in 0..10 {
            let _ = writeln!(out, "    - name: gpu-{device}");
        }
    }
    out.push_str("kind: List\nmetadata:\n  resourceVersion: \"\"\n");
    out
}

const ALL_DEVICES: &str = "apiVersion: resource.k8s.io/v1\nkind: DeviceTaintRule\nmetadata: {name: r}\nspec: \
    {deviceSelector: {driver: gpu.example.com}, taint: {key: k, effect: NoExecute}}\n";

fn everybody_goes(pods: usize, slices: usize) {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (cluster, rule) = (file("cluster.yaml", &large(pods, slices)), file("rule.yaml", ALL_DEVICES));
    let begun = std::time::Instant::now();
    let found = answer(&["-f", &cluster, "-f", &rule]);
    println!("{pods} Pods, {slices} slices: {:.2} s", begun.elapsed().as_secs_f64());
    let summary = format!("{pods} Pods evicted, {pods} claims deallocated ({pods} devices freed)");
    assert!(found.contains(&summary), "{}", found.lines().last().unwrap_or_default());
    assert!(!found.contains("Evictions that come later"));
}

#[test]
fn everybody_goes_from_a_small_cluster() {
    everybody_goes(200, 40);
}

#[test]
#[ignore = "for measuring: cargo test --release --test simulate -- --ignored --nocapture"]
fn everybody_goes_from_a_large_cluster() {
    everybody_goes(5_000, 1_000);
}

//! The API server is upgraded under a manager that goes on.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::{future::pending, sync::Arc, time::Duration};

use dra_controller_manager::{Controllers, run_on};
use dra_embedded::Server;
use dra_runtime::{Chance, Clock};
use http::Method;
use serde_json::json;

/// A Pod with a device, whose claim tolerates every taint for so many seconds.
fn user(server: &Server, name: &str, device: &str, patience: i64) {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "i"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}]},
        "status": {"phase": "Running"}});
    let uid = server.load(pod).unwrap()["metadata"]["uid"].clone();
    let result = json!({"request": "gpu", "driver": "gpu.dev", "pool": "p", "device": device,
        "tolerations": [{"operator": "Exists", "tolerationSeconds": patience}]});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"}, "spec": {},
        "status": {"allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": uid}]}});
    server.load(claim).unwrap();
}

fn create_rule(server: &Server, version: &str, device: &str) {
    let rule = json!({"apiVersion": format!("resource.k8s.io/{version}"), "kind": "DeviceTaintRule",
        "metadata": {"name": device},
        "spec": {"deviceSelector": {"device": device}, "taint": {"key": "broken", "effect": "NoExecute"}}});
    let path = format!("/apis/resource.k8s.io/{version}/devicetaintrules");
    let (code, answer) = server.call(Method::POST, &path, "application/json", &rule);
    assert_eq!(code, 201, "{answer}");
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_mins(15), async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    assert!(waited.await.is_ok(), "in vain: {what}");
}

fn is_leaving(server: &Server, pod: &str) -> bool {
    !server.object("Pod", "default", pod).unwrap()["metadata"]["deletionTimestamp"].is_null()
}

fn says(server: &Server, rule: &str, reason: &str) -> bool {
    let rule = server.object("DeviceTaintRule", "", rule).unwrap();
    rule["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(|c| c["reason"] == reason))
}

#[tokio::test(start_paused = true)]
async fn rules_go_on_in_version_v1_when_the_one_before_is_not_served_any_more() {
    let server = Server::new(1, "2026-01-01T00:00:00Z".parse().unwrap());
    server.serve("DeviceTaintRule", "v1", false);
    user(&server, "first", "before", 0);
    user(&server, "second", "after", 0);
    user(&server, "patient", "before", 600);
    let controllers = Controllers::all(2);
    let clock = Clock::starting_at(server.now());
    let manager = run_on(server.client(), &controllers, clock, Arc::new(Chance::seeded(1)), pending());
    let story = async {
        create_rule(&server, "v1beta2", "before");
        until("the first Pod goes", || is_leaving(&server, "first")).await;
        until("its rule waits for the patient one", || says(&server, "before", "PodsPendingEviction")).await;

        server.serve("DeviceTaintRule", "v1", true);
        server.serve("DeviceTaintRule", "v1beta2", false);
        server.serve("DeviceTaintRule", "v1alpha3", false);
        create_rule(&server, "v1", "after");
        until("the second Pod goes", || is_leaving(&server, "second")).await;
        until("its rule says so", || says(&server, "after", "Completed")).await;
        assert!(!is_leaving(&server, "patient"));
        until("the patient Pod goes", || is_leaving(&server, "patient")).await;
        // Nobody has written to it since the upgrade.
        until("the rule from before is written through the new version", || {
            says(&server, "before", "Completed")
        })
        .await;
    };
    tokio::select! {
        ended = manager => panic!("the manager has ended: {ended:?}"),
        () = story => {}
    }
}

//! A Pod from its creation to its end, with nobody but the inhabitants and whoever makes the claim.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::needless_pass_by_value, reason = "called with json! only")]

use dra_embedded::Server;
use dra_inhabitants::{
    cluster::{Cluster, at, items, text},
    kubelet::Kubelet,
    scheduler::Scheduler,
};
use serde_json::{Value, json};

fn cluster() -> Cluster {
    let cluster = Cluster::new(Server::new(1, "2026-01-01T00:00:00Z".parse().unwrap()), "default");
    cluster.create("Node", &json!({"metadata": {"name": "n", "labels": {"zone": "a"}}})).unwrap();
    cluster.create("DeviceClass", &json!({"metadata": {"name": "d"}, "spec": {}})).unwrap();
    let slice = json!({"metadata": {"name": "n"}, "spec": {"driver": "d", "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "x"}]}});
    cluster.create("ResourceSlice", &slice).unwrap();
    cluster
}

fn claim(name: &str, tolerations: Value) -> Value {
    json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
        {"name": "r", "exactly": {"deviceClassName": "d", "tolerations": tolerations}}]}}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}],
        "terminationGracePeriodSeconds": 1, "resourceClaims": [{"name": "c", "resourceClaimName": name}]}})
}

/// The scheduler until it has nothing to do.
fn schedule(cluster: &Cluster) {
    let mut scheduler = Scheduler::new(cluster.clone(), 1);
    let nodes = cluster.nodes();
    for _ in 0..20 {
        scheduler.act(&nodes, &mut |_| {});
    }
}

fn node_of(cluster: &Cluster, pod: &str) -> String {
    text(&cluster.find("Pod", pod).unwrap(), &["spec", "nodeName"]).to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_tainted_device_is_given_only_to_a_claim_that_tolerates_the_taint() {
    let cluster = cluster();
    let rule = json!({"metadata": {"name": "r"},
        "spec": {"deviceSelector": {"driver": "d"}, "taint": {"key": "k", "effect": "NoSchedule"}}});
    cluster.create("DeviceTaintRule", &rule).unwrap();
    for (name, tolerations) in [("a", json!([])), ("b", json!([{"key": "k", "operator": "Exists"}]))] {
        cluster.create("ResourceClaim", &claim(name, tolerations)).unwrap();
        cluster.create("Pod", &pod(name)).unwrap();
    }
    schedule(&cluster);
    assert_eq!((node_of(&cluster, "a"), node_of(&cluster, "b")), (String::new(), "n".to_owned()));
    let given = cluster.find("ResourceClaim", "b").unwrap();
    assert_eq!(items(&given, &["status", "reservedFor"]).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_only_to_a_node_that_its_selector_and_its_claims_allow() {
    let cluster = cluster();
    cluster.create("Node", &json!({"metadata": {"name": "m", "labels": {"zone": "b"}}})).unwrap();
    cluster.create("ResourceClaim", &claim("a", json!([]))).unwrap();
    let mut elsewhere = pod("a");
    elsewhere["spec"]["nodeSelector"] = json!({"zone": "b"});
    cluster.create("Pod", &elsewhere).unwrap();
    schedule(&cluster);
    assert_eq!(node_of(&cluster, "a"), "", "the device is on the other node");
}

#[tokio::test(start_paused = true)]
async fn kubelets_run_pods_whose_claims_are_ready_and_remove_deleted_ones_after_their_grace_period() {
    let cluster = cluster();
    cluster.create("ResourceClaim", &claim("a", json!([]))).unwrap();
    cluster.create("Pod", &pod("a")).unwrap();
    schedule(&cluster);
    let mut kubelet = Kubelet::new(cluster.clone(), 1);
    kubelet.act(false, &mut |_| {});
    assert_eq!(text(&cluster.find("Pod", "a").unwrap(), &["status", "phase"]), "Running");
    cluster.delete("Pod", "a", &Value::Null).unwrap();
    kubelet.act(false, &mut |_| {});
    assert!(!at(&cluster.find("Pod", "a").unwrap(), &["metadata", "deletionTimestamp"]).is_null());
    tokio::time::advance(std::time::Duration::from_secs(1)).await;
    let mut told = Vec::new();
    kubelet.act(false, &mut |line| told.push(line.to_owned()));
    assert!(cluster.find("Pod", "a").is_none());
    assert_eq!(told, ["kubelet: Pod a is gone"]);
}

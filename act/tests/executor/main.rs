//! The executor against a scripted API server: what it asks, in which order, and what it makes of the answers.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_cmp,
    reason = "a test that cannot go on should say where"
)]

mod eviction;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use dra_act::{Executor, Metrics, Shared};
use dra_api::{Claim, ClaimTemplate, ObjectKey, Pod};
use dra_controllers::{
    resourceclaim::{Key, ResourceClaims},
    view::{Source, Tracked},
};
use dra_runtime::{Clock, events, queue::Next};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use prometheus::Registry;
use serde_json::{Value, json};

/// Method and the beginning of the path that must be asked next, and the answer: a status and an object, or no
/// answer at all.
type Step = (&'static str, Option<(u16, Value)>);

struct Bench {
    executor: Executor,
    shared: Arc<Shared>,
    registry: Registry,
    script: Arc<Mutex<VecDeque<Step>>>,
    bodies: Arc<Mutex<Vec<Value>>>,
    // Keeps the channel open; its events are not written anywhere.
    _writer: events::Writer,
}

fn bench(script: Vec<Step>) -> Bench {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let server = tower::service_fn({
        let (script, bodies) = (Arc::clone(&script), Arc::clone(&bodies));
        move |request: Request<Body>| {
            let (script, bodies) = (Arc::clone(&script), Arc::clone(&bodies));
            async move {
                let asked = format!("{} {}", request.method(), request.uri());
                let body = request.into_body().collect().await.unwrap().to_bytes();
                bodies.lock().unwrap().push(serde_json::from_slice(&body).unwrap_or(Value::Null));
                let step = script.lock().unwrap().pop_front();
                let (expected, answer) = step.unwrap_or_else(|| panic!("unexpected request {asked}"));
                assert!(asked.starts_with(expected), "expected {expected}, got {asked}");
                match answer {
                    Some((code, object)) => Ok(Response::builder()
                        .status(code)
                        .body(Body::from(object.to_string().into_bytes()))
                        .unwrap()),
                    None => Err(std::io::Error::from(std::io::ErrorKind::ConnectionReset)),
                }
            }
        }
    });
    let registry = Registry::new();
    let clock = Clock::system();
    let shared = Arc::new(Shared::new(clock, Box::new(|_, _| {})));
    let (recorder, writer) = events::recorder("test", "i".into(), clock, &registry).unwrap();
    let executor = Executor::new(
        Client::new(server, "default"),
        Arc::clone(&shared),
        recorder,
        Metrics::new(&registry).unwrap(),
    );
    Bench { executor, shared, registry, script, bodies, _writer: writer }
}

impl Bench {
    fn see<T: Tracked>(&self, object: &Value) {
        let object = T::decode(&object.to_string()).unwrap();
        self.shared.update(|view, now| view.observe(object, Source::Watch, now));
    }

    async fn settle(&self, key: Key) -> Next {
        let controller = ResourceClaims::default();
        let next = self.executor.settle(&key, |view, pass| controller.plan(view, &key, pass)).await;
        assert!(self.script.lock().unwrap().is_empty(), "never asked: {:?}", self.script.lock().unwrap());
        next
    }

    async fn settle_pod(&self) -> Next {
        self.settle(Key::Pod(ObjectKey::new("ns", "p"))).await
    }

    async fn settle_claim(&self) -> Next {
        self.settle(Key::Claim(ObjectKey::new("ns", "c"))).await
    }

    fn metric(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.registry
            .gather()
            .iter()
            .filter(|family| family.name() == name)
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .filter(|m| {
                labels.iter().all(|(n, v)| m.get_label().iter().any(|l| l.name() == *n && l.value() == *v))
            })
            .map(|m| m.get_counter().get_value())
            .sum()
    }
}

fn template() -> Value {
    json!({"metadata": {"name": "t", "namespace": "ns", "uid": "ut", "resourceVersion": "1"},
        "spec": {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "g"}}]}}}})
}

fn pod(version: u64, entries: &[&str], statuses: &[(&str, &str)]) -> Value {
    let entries: Vec<Value> =
        entries.iter().map(|e| json!({"name": e, "resourceClaimTemplateName": "t"})).collect();
    let statuses: Vec<Value> =
        statuses.iter().map(|(e, c)| json!({"name": e, "resourceClaimName": c})).collect();
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "up", "resourceVersion": version.to_string()},
        "spec": {"resourceClaims": entries}, "status": {"resourceClaimStatuses": statuses}})
}

fn claim_for(name: &str, entry: &str, version: u64) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}"),
            "resourceVersion": version.to_string(),
            "annotations": {"resource.kubernetes.io/pod-claim-name": entry},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "up", "controller": true}]},
        "spec": {}})
}

fn shared_claim(version: u64, consumers: &[&str]) -> Value {
    let consumers: Vec<Value> =
        consumers.iter().map(|c| json!({"resource": "pods", "name": c, "uid": format!("u-{c}")})).collect();
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "ns", "uid": "uc", "resourceVersion": version.to_string()},
        "spec": {}, "status": {"allocation": {}, "reservedFor": consumers}})
}

fn refusal(code: u16, message: &str, details: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code,
        "reason": "x", "details": details})
}

const CREATE: &str = "POST /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims";
const LIST: &str = "GET /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims?limit=500";
const RECORD: &str =
    "PATCH /api/v1/namespaces/ns/pods/p/status?fieldManager=ResourceClaimController&force=true";
const RELEASE: &str = "PATCH /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c/status";

#[tokio::test]
async fn a_pod_gets_its_claims_and_one_status_write_for_all_of_them() {
    let bench = bench(vec![
        (CREATE, Some((201, claim_for("p-a-1", "a", 5)))),
        (CREATE, Some((201, claim_for("p-b-1", "b", 6)))),
        (RECORD, Some((200, pod(7, &["a", "b"], &[("a", "p-a-1"), ("b", "p-b-1")])))),
    ]);
    bench.see::<ClaimTemplate>(&template());
    bench.see::<Pod>(&pod(2, &["a", "b"], &[]));
    assert_eq!(bench.settle_pod().await, Next::Settled);
    assert_eq!(
        bench.bodies.lock().unwrap()[2]["status"]["resourceClaimStatuses"],
        json!([{"name": "a", "resourceClaimName": "p-a-1"}, {"name": "b", "resourceClaimName": "p-b-1"}])
    );
    let labels = [("status", "success"), ("owner_api_kind", "Pod"), ("admin_access", "false")];
    assert_eq!(bench.metric("dynamic_resource_allocation_resourceclaim_creates_total", &labels), 2.0);
}

#[tokio::test]
async fn one_refused_claim_does_not_hold_up_the_other() {
    let bench = bench(vec![
        (CREATE, Some((403, refusal(403, "exceeded quota", &json!({"name": "p-a-xyzab"}))))),
        (CREATE, Some((201, claim_for("p-b-1", "b", 6)))),
        (RECORD, Some((200, pod(7, &["a", "b"], &[("b", "p-b-1")])))),
    ]);
    bench.see::<ClaimTemplate>(&template());
    bench.see::<Pod>(&pod(2, &["a", "b"], &[]));
    assert_eq!(bench.settle_pod().await, Next::Retry(Duration::ZERO));
    let labels = [("status", "failure")];
    assert_eq!(bench.metric("dynamic_resource_allocation_resourceclaim_creates_total", &labels), 1.0);
}

#[tokio::test]
async fn a_create_without_an_answer_is_looked_for_before_it_is_repeated() {
    let found = json!({"kind": "ResourceClaimList", "metadata": {}, "items": [claim_for("p-a-1", "a", 5)]});
    let bench = bench(vec![
        (CREATE, None),
        (LIST, Some((200, found))),
        (RECORD, Some((200, pod(7, &["a"], &[("a", "p-a-1")])))),
    ]);
    bench.see::<ClaimTemplate>(&template());
    bench.see::<Pod>(&pod(2, &["a"], &[]));
    assert_eq!(bench.settle_pod().await, Next::Retry(Duration::ZERO));
    assert_eq!(bench.settle_pod().await, Next::Settled);
}

#[tokio::test]
async fn a_create_that_never_reached_the_server_is_simply_repeated() {
    let bench = bench(vec![(CREATE, Some((429, refusal(429, "busy", &json!({"retryAfterSeconds": 3})))))]);
    bench.see::<ClaimTemplate>(&template());
    bench.see::<Pod>(&pod(2, &["a"], &[]));
    assert_eq!(bench.settle_pod().await, Next::Retry(Duration::from_secs(3)));
    bench.script.lock().unwrap().extend([
        (CREATE, Some((201, claim_for("p-a-1", "a", 5)))),
        (RECORD, Some((200, pod(7, &["a"], &[("a", "p-a-1")])))),
    ]);
    assert_eq!(bench.settle_pod().await, Next::Settled);
}

#[tokio::test]
async fn a_record_for_a_pod_that_was_replaced_is_given_up() {
    let mut other = pod(9, &["a"], &[]);
    other["metadata"]["uid"] = json!("other");
    other["spec"] = json!({});
    let bench = bench(vec![
        (RECORD, Some((409, refusal(409, "uid mismatch", &json!({}))))),
        ("GET /api/v1/namespaces/ns/pods/p", Some((200, other))),
    ]);
    bench.see::<Claim>(&claim_for("p-a-1", "a", 5));
    bench.see::<Pod>(&pod(2, &["a"], &[]));
    assert_eq!(bench.settle_pod().await, Next::Settled);
}

#[tokio::test]
async fn a_conflict_on_release_is_planned_again_from_the_fresh_state() {
    let bench = bench(vec![
        (
            "GET /api/v1/namespaces/ns/pods/gone",
            Some((404, refusal(404, "not found", &json!({"name": "x"})))),
        ),
        (RELEASE, Some((409, refusal(409, "modified", &json!({}))))),
        (
            "GET /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c",
            Some((200, shared_claim(9, &["gone"]))),
        ),
        (RELEASE, Some((200, shared_claim(10, &[])))),
    ]);
    bench.see::<Claim>(&shared_claim(5, &["gone"]));
    assert_eq!(bench.settle_claim().await, Next::Settled);
    let bodies = bench.bodies.lock().unwrap();
    assert_eq!(bodies[1]["metadata"]["resourceVersion"], "5");
    assert_eq!(bodies[3]["metadata"]["resourceVersion"], "9");
    drop(bodies);
    let conflicts = [("action", "release"), ("outcome", "conflict")];
    assert_eq!(bench.metric("dra_controller_manager_actions_total", &conflicts), 1.0);
}

/// A list of a watch that was behind lacked the claim, which the server has nevertheless: nobody knows until the watch does,
/// and other entries need not wait for that.
#[tokio::test]
async fn a_claim_that_is_there_although_its_deletion_was_seen_is_asked_for_once() {
    let bench = bench(vec![
        (
            "GET /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/p-a-1",
            Some((200, claim_for("p-a-1", "a", 5))),
        ),
        (RECORD, Some((200, pod(7, &["a", "b"], &[("a", "p-a-1"), ("b", "p-b-1")])))),
    ]);
    bench.see::<Claim>(&claim_for("p-a-1", "a", 5));
    bench.shared.update(|view, _| view.deleted::<Claim>(&ObjectKey::new("ns", "p-a-1"), &"u-p-a-1".into()));
    bench.see::<Claim>(&claim_for("p-b-1", "b", 6));
    bench.see::<Pod>(&pod(2, &["a", "b"], &[("a", "p-a-1")]));
    assert!(matches!(bench.settle_pod().await, Next::Retry(_)));
    assert!(bench.script.lock().unwrap().is_empty(), "the other entry was recorded");
}

#[tokio::test]
async fn a_consumer_that_cannot_be_read_stays_and_does_not_keep_the_others() {
    let bench = bench(vec![
        ("GET /api/v1/namespaces/ns/pods/", Some((500, refusal(500, "etcd", &json!({}))))),
        ("GET /api/v1/namespaces/ns/pods/", Some((404, refusal(404, "not found", &json!({"name": "x"}))))),
        (RELEASE, Some((200, shared_claim(6, &["unknown"])))),
    ]);
    bench.see::<Claim>(&shared_claim(5, &["unknown", "gone"]));
    assert_eq!(bench.settle_claim().await, Next::Retry(Duration::ZERO));
    let bodies = bench.bodies.lock().unwrap();
    let removed = bodies[2]["status"]["reservedFor"].as_array().unwrap();
    assert_eq!(removed.len(), 1);
}

#[tokio::test]
async fn the_same_refusal_again_and_again_ends_the_pass() {
    let bench = bench(vec![(RELEASE, Some((403, refusal(403, "forbidden", &json!({})))))]);
    bench.see::<Claim>(&shared_claim(5, &["p"]));
    let mut done = pod(2, &[], &[]);
    done["metadata"]["uid"] = json!("u-p");
    done["status"]["phase"] = json!("Succeeded");
    bench.see::<Pod>(&done);
    assert_eq!(bench.settle_claim().await, Next::Retry(Duration::ZERO));
}

#[tokio::test]
async fn a_write_that_is_accepted_without_effect_is_not_repeated_at_once() {
    // An API server whose gate is off drops the field from what it stores.
    let bench = bench(vec![(RECORD, Some((200, pod(7, &["a"], &[]))))]);
    bench.see::<Claim>(&claim_for("p-a-1", "a", 5));
    bench.see::<Pod>(&pod(2, &["a"], &[]));
    assert_eq!(bench.settle_pod().await, Next::Retry(Duration::ZERO));
}

#[tokio::test]
async fn deallocation_comes_before_the_finalizer_goes_and_both_before_the_delete() {
    let finalizer = json!(["resource.kubernetes.io/delete-protection"]);
    let mut allocated = claim_for("c", "a", 5);
    allocated["metadata"]["finalizers"] = finalizer.clone();
    allocated["status"] =
        json!({"allocation": {}, "reservedFor": [{"resource": "pods", "name": "p", "uid": "up"}]});
    let mut free = claim_for("c", "a", 6);
    free["metadata"]["finalizers"] = finalizer;
    let bench = bench(vec![
        (RELEASE, Some((200, free))),
        (
            "PATCH /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c",
            Some((200, claim_for("c", "a", 7))),
        ),
        (
            "DELETE /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c",
            Some((200, claim_for("c", "a", 7))),
        ),
    ]);
    bench.see::<Claim>(&allocated);
    let mut done = pod(2, &["a"], &[("a", "c")]);
    done["status"]["phase"] = json!("Failed");
    bench.see::<Pod>(&done);
    assert_eq!(bench.settle_claim().await, Next::Settled);
    assert!(bench.shared.read(|view| view.claims.is_empty()));
    let bodies = bench.bodies.lock().unwrap();
    assert_eq!(bodies[2]["preconditions"], json!({"uid": "u-c", "resourceVersion": "7"}));
}

#[tokio::test]
async fn a_claim_that_is_gone_already_is_deleted_with_success() {
    let bench = bench(vec![(
        "DELETE /apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c",
        Some((404, refusal(404, "not found", &json!({"name": "x"})))),
    )]);
    bench.see::<Claim>(&claim_for("c", "a", 5));
    let mut done = pod(2, &["a"], &[("a", "c")]);
    done["status"]["phase"] = json!("Succeeded");
    bench.see::<Pod>(&done);
    assert_eq!(bench.settle_claim().await, Next::Settled);
}

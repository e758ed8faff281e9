//! Answers to requests about pools against a scripted API server.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::float_cmp,
    reason = "a test that cannot go on should say where"
)]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Duration,
};

use dra_act::{Executor, Metrics, PoolMetrics, Shared};
use dra_allocator::Features;
use dra_api::ResourcePoolStatusRequest;
use dra_controllers::{
    resourcepoolstatusrequest::{Key, PoolStatusRequests},
    view::{ResourceSlice, Source, Tracked},
};
use dra_runtime::{Clock, events, queue::Next};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::{Client, client::Body};
use prometheus::Registry;
use serde_json::{Value, json};

type Step = (&'static str, u16, Value);
/// Something that happens while the first request is under way.
type Meanwhile = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

const WRITE: &str =
    "PUT /apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/r/status?fieldValidation=Ignore";
const READ: &str = "GET /apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/r";
const DELETE: &str = "DELETE /apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/r";

struct Bench {
    executor: Executor,
    shared: Arc<Shared>,
    registry: Registry,
    script: Arc<Mutex<VecDeque<Step>>>,
    bodies: Arc<Mutex<Vec<Value>>>,
    meanwhile: Meanwhile,
    _writer: events::Writer,
}

/// A manager that knows one slice, and an API server that must be asked exactly this.
async fn bench(script: Vec<Step>) -> Bench {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let bodies = Arc::new(Mutex::new(Vec::new()));
    let meanwhile: Meanwhile = Arc::default();
    let server = tower::service_fn({
        let (script, bodies, meanwhile) = (Arc::clone(&script), Arc::clone(&bodies), Arc::clone(&meanwhile));
        move |request: Request<Body>| {
            let (script, bodies, meanwhile) =
                (Arc::clone(&script), Arc::clone(&bodies), Arc::clone(&meanwhile));
            async move {
                if let Some(happens) = meanwhile.lock().unwrap().take() {
                    happens();
                }
                let asked = format!("{} {}", request.method(), request.uri());
                let body = request.into_body().collect().await.unwrap().to_bytes();
                bodies.lock().unwrap().push(serde_json::from_slice(&body).unwrap_or(Value::Null));
                let step = script.lock().unwrap().pop_front();
                let (expected, code, answer) = step.unwrap_or_else(|| panic!("unexpected request {asked}"));
                assert_eq!(asked, expected);
                let body = Body::from(answer.to_string().into_bytes());
                Ok::<_, std::io::Error>(Response::builder().status(code).body(body).unwrap())
            }
        }
    });
    let registry = Registry::new();
    let clock = Clock::system();
    let shared = Arc::new(Shared::new(clock, Box::new(|_, _| {})));
    shared.update(|view, _| {
        view.keep_devices(Features::default());
        None
    });
    let (recorder, writer) = events::recorder("test", "i".into(), clock, &registry).unwrap();
    let executor = Executor::new(
        Client::new(server, "default"),
        Arc::clone(&shared),
        recorder,
        Metrics::new(&registry).unwrap(),
    )
    .counting_answers(PoolMetrics::new(&registry).unwrap());
    let bench = Bench { executor, shared, registry, script, bodies, meanwhile, _writer: writer };
    bench.see::<ResourceSlice>(&json!({
        "metadata": {"name": "s", "uid": "s", "resourceVersion": "1"},
        "spec": {"driver": "gpu.dev", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "d"}]},
    }));
    bench.see::<ResourcePoolStatusRequest>(&request(2, &Value::Null));
    // Requests wait until the watches have shown what was there before them.
    tokio::time::sleep(Duration::from_millis(100)).await;
    bench
}

fn see<T: Tracked>(shared: &Shared, object: &Value) {
    let object = T::decode(&object.to_string()).unwrap();
    shared.update(|view, now| view.observe(object, Source::Watch, now));
}

impl Bench {
    fn see<T: Tracked>(&self, object: &Value) {
        see::<T>(&self.shared, object);
    }

    /// The watch shows the request in this state while the first write is under way.
    fn meanwhile(&self, seen: Value) {
        let shared = Arc::clone(&self.shared);
        let happens = move || see::<ResourcePoolStatusRequest>(&shared, &seen);
        *self.meanwhile.lock().unwrap() = Some(Box::new(happens));
    }

    async fn settle_some(&self) -> Next {
        let key = Key("r".into());
        self.executor.settle(&key, |view, pass| PoolStatusRequests.plan(view, &key, pass)).await
    }

    async fn settle(&self) -> Next {
        let next = self.settle_some().await;
        assert!(self.script.lock().unwrap().is_empty(), "never asked: {:?}", self.script.lock().unwrap());
        next
    }

    fn count(&self, name: &str) -> f64 {
        let families = self.registry.gather();
        let family = families.iter().filter(|family| family.name() == name);
        family
            .flat_map(prometheus::proto::MetricFamily::get_metric)
            .map(|m| m.get_counter().get_value())
            .sum()
    }

    fn processed(&self) -> (f64, f64) {
        (
            self.count("resourcepoolstatusrequest_controller_requests_processed_total"),
            self.count("resourcepoolstatusrequest_controller_request_processing_errors_total"),
        )
    }
}

/// A request of a minute ago.
fn request(version: u64, status: &Value) -> Value {
    let now = Clock::system().now();
    let created = now.checked_sub(jiff::SignedDuration::from_mins(1)).unwrap();
    json!({"kind": "ResourcePoolStatusRequest",
        "metadata": {"name": "r", "uid": "u", "resourceVersion": version.to_string(), "creationTimestamp": created},
        "spec": {"driver": "gpu.dev", "limit": 100}, "status": status})
}

fn answered(of_type: &str) -> Value {
    let now = Clock::system().now();
    request(3, &json!({"conditions": [{"type": of_type, "status": "True", "lastTransitionTime": now}]}))
}

fn refusal(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code, "reason": "x",
        "details": {"name": "r"}})
}

#[tokio::test]
async fn an_answer_is_written_once_and_the_request_looked_at_again_before_its_end() {
    let bench = bench(vec![(WRITE, 200, answered("Complete"))]).await;
    assert!(matches!(bench.settle().await, Next::Wake(_)));
    let body = bench.bodies.lock().unwrap()[0].clone();
    assert_eq!(body["metadata"], json!({"name": "r", "uid": "u", "resourceVersion": "2"}));
    assert_eq!(body["status"]["pools"][0]["totalDevices"], 1);
    assert_eq!(bench.processed(), (1.0, 0.0));
    assert!(matches!(bench.settle().await, Next::Wake(_)), "nothing more is asked");
}

#[tokio::test]
async fn a_request_that_somebody_else_has_answered_is_no_error() {
    for (code, message) in [(409, "the object has been modified"), (422, "status: field is immutable")] {
        let script = vec![(WRITE, code, refusal(code, message)), (READ, 200, answered("Complete"))];
        let bench = bench(script).await;
        assert!(matches!(bench.settle().await, Next::Wake(_)), "{code}");
        assert_eq!(bench.processed(), (1.0, 0.0), "{code}");
    }
}

#[tokio::test]
async fn an_answer_that_is_refused_becomes_a_failed_condition() {
    for (code, message) in [
        (422, "status.pools[0].generation: Required value"),
        (413, "limit is 3145728"),
        (500, "etcdserver: request is too large"),
    ] {
        let bench = bench(vec![
            (WRITE, code, refusal(code, message)),
            (READ, 200, request(2, &Value::Null)),
            (WRITE, 200, answered("Failed")),
        ])
        .await;
        assert!(matches!(bench.settle().await, Next::Wake(_)), "{code}");
        let condition = bench.bodies.lock().unwrap()[2]["status"]["conditions"][0].clone();
        assert_eq!(
            (&condition["type"], &condition["reason"]),
            (&json!("Failed"), &json!("CalculationFailed"))
        );
        assert!(condition["message"].as_str().unwrap().contains(message), "{condition}");
        assert_eq!(bench.processed(), (2.0, 0.0));
    }
}

#[tokio::test]
async fn a_write_that_fails_is_tried_again_and_counted() {
    let bench = bench(vec![(WRITE, 403, refusal(403, "forbidden"))]).await;
    assert_eq!(bench.settle().await, Next::Retry(Duration::ZERO));
    assert_eq!(bench.processed(), (1.0, 1.0));
}

#[tokio::test]
async fn an_old_request_is_deleted_by_its_uid_and_gone_is_good() {
    for (code, answer) in [(200, request(5, &Value::Null)), (404, refusal(404, "not found"))] {
        let bench = bench(vec![(DELETE, code, answer)]).await;
        let old = json!({"conditions": [{"type": "Complete", "lastTransitionTime": "2020-01-01T00:00:00Z"}]});
        bench.see::<ResourcePoolStatusRequest>(&request(4, &old));
        assert_eq!(bench.settle().await, Next::Settled);
        assert_eq!(bench.bodies.lock().unwrap()[0]["preconditions"], json!({"uid": "u"}));
        assert_eq!(bench.count("dra_controller_manager_pool_status_requests_expired_total"), 1.0);
    }
}

#[tokio::test]
async fn an_answer_of_somebody_else_that_the_watch_shows_first_is_no_error_either() {
    let script = vec![(WRITE, 409, refusal(409, "modified")), (READ, 200, answered("Complete"))];
    let bench = bench(script).await;
    bench.meanwhile(answered("Complete"));
    assert!(matches!(bench.settle().await, Next::Wake(_)));
    assert_eq!(bench.processed(), (1.0, 0.0));
}

#[tokio::test]
async fn a_request_whose_labels_change_meanwhile_is_answered_in_its_new_state() {
    let changed = request(7, &Value::Null);
    let mut done = answered("Complete");
    done["metadata"]["resourceVersion"] = json!("8");
    let script = vec![
        (WRITE, 409, refusal(409, "the object has been modified")),
        (READ, 200, changed.clone()),
        (WRITE, 200, done),
    ];
    let bench = bench(script).await;
    bench.meanwhile(changed);
    assert!(matches!(bench.settle().await, Next::Wake(_)));
    assert_eq!(bench.bodies.lock().unwrap()[2]["metadata"]["resourceVersion"], "7");
    assert_eq!(bench.processed(), (2.0, 0.0));
}

#[tokio::test]
async fn a_request_that_is_gone_needs_no_answer() {
    let script = vec![(WRITE, 404, refusal(404, "not found")), (READ, 404, refusal(404, "not found"))];
    let bench = bench(script).await;
    assert_eq!(bench.settle().await, Next::Settled);
    assert_eq!(bench.processed(), (1.0, 0.0));
}

#[tokio::test]
async fn an_answer_whose_fate_is_unknown_is_written_again_unless_it_has_arrived() {
    let bench = bench(vec![(WRITE, 504, refusal(504, "timeout"))]).await;
    assert_eq!(bench.settle().await, Next::Retry(Duration::ZERO));
    assert_eq!(bench.processed(), (1.0, 1.0));
    bench.see::<ResourcePoolStatusRequest>(&answered("Complete"));
    assert!(matches!(bench.settle().await, Next::Wake(_)), "the watch shows that it has arrived");
}

#[tokio::test]
async fn a_failed_condition_that_is_refused_too_is_tried_again_later() {
    let refused = refusal(422, "denied by a policy");
    let script = vec![
        (WRITE, 422, refused.clone()),
        (READ, 200, request(2, &Value::Null)),
        (WRITE, 422, refused),
        (READ, 200, request(2, &Value::Null)),
    ];
    let bench = bench(script).await;
    assert_eq!(bench.settle().await, Next::Retry(Duration::ZERO));
    assert_eq!(bench.processed(), (2.0, 1.0));
}

#[tokio::test]
async fn another_request_under_the_name_of_an_old_one_is_spared() {
    let mut another = request(9, &Value::Null);
    another["metadata"]["uid"] = json!("another");
    let script = vec![
        (
            DELETE,
            409,
            refusal(409, "the UID in the precondition (u) does not match the UID in record (another)"),
        ),
        (READ, 200, another),
        (
            WRITE,
            200,
            json!({"kind": "ResourcePoolStatusRequest",
            "metadata": {"name": "r", "uid": "another", "resourceVersion": "10"},
            "spec": {"driver": "gpu.dev"}, "status": {}}),
        ),
    ];
    let bench = bench(script).await;
    let old = json!({"conditions": [{"type": "Complete", "lastTransitionTime": "2020-01-01T00:00:00Z"}]});
    bench.see::<ResourcePoolStatusRequest>(&request(4, &old));
    let mut next = bench.settle_some().await;
    // The new one waits until the watches have shown what was there before it.
    if let Next::Wake(wait) = next {
        tokio::time::sleep(wait).await;
        next = bench.settle().await;
    }
    assert_eq!(next, Next::Settled);
    assert_eq!(bench.bodies.lock().unwrap()[2]["metadata"]["uid"], "another");
    assert_eq!(bench.count("dra_controller_manager_pool_status_requests_expired_total"), 0.0);
}

#[tokio::test]
async fn a_request_that_a_finalizer_holds_is_deleted_once() {
    let mut held = request(5, &json!({}));
    held["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    held["metadata"]["finalizers"] = json!(["example.com/audit"]);
    let bench = bench(vec![(DELETE, 200, held)]).await;
    let old = json!({"conditions": [{"type": "Failed", "lastTransitionTime": "2020-01-01T00:00:00Z"}]});
    bench.see::<ResourcePoolStatusRequest>(&request(4, &old));
    assert_eq!(bench.settle().await, Next::Settled);
    assert_eq!(bench.settle().await, Next::Settled, "it is on its way");
}

/// The rows of the in-tree `metrics_test.go` (pool-status §10.3).
#[tokio::test]
async fn answers_are_counted_under_the_names_of_the_in_tree_controller() {
    let bench =
        bench(vec![(WRITE, 403, refusal(403, "forbidden")), (WRITE, 200, answered("Complete"))]).await;
    assert_eq!(bench.settle_some().await, Next::Retry(Duration::ZERO));
    assert!(matches!(bench.settle().await, Next::Wake(_)));
    let text = prometheus::TextEncoder::new().encode_to_string(&bench.registry.gather()).unwrap();
    for line in [
        "# HELP resourcepoolstatusrequest_controller_requests_processed_total Total number of \
         ResourcePoolStatusRequests processed",
        "resourcepoolstatusrequest_controller_requests_processed_total{driver_name=\"gpu.dev\"} 2",
        "resourcepoolstatusrequest_controller_request_processing_errors_total{driver_name=\"gpu.dev\"} 1",
        "resourcepoolstatusrequest_controller_request_processing_duration_seconds_count{driver_name=\"gpu.dev\"} 2",
        "resourcepoolstatusrequest_controller_request_processing_duration_seconds_bucket{driver_name=\"gpu.dev\",\
         le=\"16.384\"} 2",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(PoolMetrics::new(&bench.registry).is_err(), "registered twice is an error and no panic");
}

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

const WRITE: &str = "PUT /apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/r/status";
const READ: &str = "GET /apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/r";
const DELETE: &str = "DELETE /apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests/r";

struct Bench {
    executor: Executor,
    shared: Arc<Shared>,
    registry: Registry,
    script: Arc<Mutex<VecDeque<Step>>>,
    bodies: Arc<Mutex<Vec<Value>>>,
    _writer: events::Writer,
}

/// A manager that knows one slice, and an API server that must be asked exactly this.
async fn bench(script: Vec<Step>) -> Bench {
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
    let bench = Bench { executor, shared, registry, script, bodies, _writer: writer };
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

impl Bench {
    fn see<T: Tracked>(&self, object: &Value) {
        let object = T::decode(&object.to_string()).unwrap();
        self.shared.update(|view, now| view.observe(object, Source::Watch, now));
    }

    async fn settle(&self) -> Next {
        let key = Key("r".into());
        let next = self.executor.settle(&key, |view, pass| PoolStatusRequests.plan(view, &key, pass)).await;
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

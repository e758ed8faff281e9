//! A scripted API server against the watch: each test says which request comes and what is answered.

use std::{
    collections::VecDeque,
    convert::Infallible,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use dra_api::Pod;
use futures::{StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kube::client::Body;
use serde_json::{Value, json};

use super::*;

#[derive(Debug)]
enum Reply {
    /// A whole answer.
    Json(u16, Value),
    /// A watch that sends these lines and stays open.
    Open(Vec<String>),
    /// A watch that sends these lines and ends.
    Ended(Vec<String>),
}

/// What the request must contain, and the answer.
type Step = (&'static str, Reply);

fn lines(values: Vec<String>) -> Vec<Result<http_body::Frame<Bytes>, Infallible>> {
    values.into_iter().map(|v| Ok(http_body::Frame::data(Bytes::from(format!("{v}\n"))))).collect()
}

type ReplyBody = UnsyncBoxBody<Bytes, Infallible>;

fn body(reply: Reply) -> (u16, ReplyBody) {
    match reply {
        Reply::Json(code, value) => (code, Full::from(value.to_string().into_bytes()).boxed_unsync()),
        Reply::Ended(values) => (200, StreamBody::new(stream::iter(lines(values))).boxed_unsync()),
        Reply::Open(values) => {
            (200, StreamBody::new(stream::iter(lines(values)).chain(stream::pending())).boxed_unsync())
        }
    }
}

/// Plays the script and returns what the watch showed until it had shown `expected` events. Requests after the
/// script's end are never answered.
async fn play(script: Vec<Step>, expected: usize) -> Vec<String> {
    let script = Arc::new(Mutex::new(VecDeque::from(script)));
    let server = tower::service_fn({
        let script = Arc::clone(&script);
        move |request: Request<Body>| {
            let step = script.lock().unwrap().pop_front();
            async move {
                let Some((contains, reply)) = step else { return std::future::pending().await };
                let uri = request.uri().to_string();
                assert!(uri.contains(contains), "expected a request with {contains}, got {uri}");
                let (code, body) = body(reply);
                Ok::<_, Infallible>(Response::builder().status(code).body(body).unwrap())
            }
        }
    });
    let client = Client::new(server, "default");
    let chance = Chance::seeded(1);
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let watching = watch::<Pod>(client, &chance, move |event| {
        let text = match event {
            Event::ListBegins { .. } => "begin".to_owned(),
            Event::Applied(pod) => format!("{}@{}", pod.meta.key, pod.meta.resource_version),
            Event::Deleted(key, uid) => format!("deleted {key} {uid}"),
            Event::ListEnds => "end".to_owned(),
            Event::Unreadable(key, error) => format!("unreadable {key}: {error}"),
            Event::Failed(_) => "failed".to_owned(),
            Event::Resumed => "resumed".to_owned(),
        };
        let _ = sender.send(text);
    });
    let mut shown = Vec::new();
    tokio::select! {
        () = watching => {}
        () = async {
            while shown.len() < expected {
                shown.push(receiver.recv().await.unwrap());
            }
        } => {}
        () = tokio::time::sleep(Duration::from_hours(1)) => panic!("the watch shows nothing more"),
    }
    assert!(script.lock().unwrap().is_empty(), "requests that never came: {:?}", script.lock().unwrap());
    shown
}

fn pod(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "spec": {},
        "metadata": {"name": name, "namespace": "ns", "uid": format!("u-{name}"),
            "resourceVersion": version.to_string()}})
}

/// One line of a watch; the API server sends the type first.
fn event(kind: &str, object: &Value) -> String {
    format!(r#"{{"type":"{kind}","object":{object}}}"#)
}

fn end_of_list(version: u64) -> String {
    event(
        "BOOKMARK",
        &json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": version.to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"}}}),
    )
}

fn status(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "reason": "x", "code": code})
}

fn list(items: &[Value], version: u64) -> Value {
    json!({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": version.to_string()}, "items": items})
}

const STREAMING: &str = "sendInitialEvents=true";

#[tokio::test(start_paused = true)]
async fn a_streaming_list_and_its_changes_are_shown() {
    let script = vec![(
        STREAMING,
        Reply::Open(vec![
            event("ADDED", &pod("a", 1)),
            end_of_list(5),
            event("MODIFIED", &pod("a", 6)),
            event("DELETED", &pod("a", 7)),
        ]),
    )];
    assert_eq!(play(script, 5).await, ["begin", "ns/a@1", "end", "ns/a@6", "deleted ns/a u-a"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_streaming_lists_inside_the_stream_is_listed() {
    // etcd before 3.5.13: the refusal comes as a 500 within the stream, which stays open.
    let script = vec![
        (STREAMING, Reply::Open(vec![event("ERROR", &status(500, "watch-list unsupported"))])),
        ("limit=500", Reply::Json(200, list(&[pod("a", 1)], 5))),
        ("resourceVersion=5", Reply::Open(vec![event("ADDED", &pod("b", 6))])),
    ];
    let shown = play(script, 6).await;
    assert_eq!(shown, ["begin", "failed", "begin", "ns/a@1", "end", "ns/b@6"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_rejects_streaming_lists_is_listed() {
    let script = vec![
        (STREAMING, Reply::Json(422, status(422, "sendInitialEvents is forbidden"))),
        ("limit=500", Reply::Json(200, list(&[], 5))),
    ];
    assert_eq!(play(script, 3).await, ["failed", "begin", "end"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_streaming_lists_is_listed() {
    let script = vec![
        (STREAMING, Reply::Open(vec![event("ADDED", &pod("a", 1))])),
        ("limit=500", Reply::Json(200, list(&[pod("a", 1)], 5))),
        ("resourceVersion=5", Reply::Open(vec![event("ADDED", &pod("b", 6))])),
    ];
    let shown = play(script, 7).await;
    assert_eq!(shown, ["begin", "ns/a@1", "failed", "begin", "ns/a@1", "end", "ns/b@6"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ended_is_resumed_where_it_stood() {
    let script = vec![
        (STREAMING, Reply::Ended(vec![end_of_list(5), event("ADDED", &pod("a", 6))])),
        ("resourceVersion=6", Reply::Open(vec![event("ADDED", &pod("b", 7))])),
    ];
    assert_eq!(play(script, 4).await, ["begin", "end", "ns/a@6", "ns/b@7"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_runs_again_without_anything_to_show_is_known_to_run() {
    let script = vec![
        (STREAMING, Reply::Ended(vec![end_of_list(5)])),
        ("resourceVersion=5", Reply::Json(503, status(503, "restarting"))),
        ("resourceVersion=5", Reply::Open(vec![])),
    ];
    assert_eq!(play(script, 4).await, ["begin", "end", "failed", "resumed"]);
}

#[tokio::test(start_paused = true)]
async fn a_410_within_the_watch_makes_a_new_list() {
    let script = vec![
        (STREAMING, Reply::Open(vec![end_of_list(5), event("ERROR", &status(410, "too old"))])),
        (STREAMING, Reply::Open(vec![event("ADDED", &pod("a", 90)), end_of_list(100)])),
    ];
    assert_eq!(play(script, 6).await, ["begin", "end", "failed", "begin", "ns/a@90", "end"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_bookmark_that_is_answered_with_410_makes_a_new_list() {
    let script = vec![
        (STREAMING, Reply::Ended(vec![end_of_list(5)])),
        ("resourceVersion=5", Reply::Json(410, status(410, "too old resource version"))),
        (STREAMING, Reply::Open(vec![event("ADDED", &pod("a", 90)), end_of_list(100)])),
    ];
    assert_eq!(play(script, 6).await, ["begin", "end", "failed", "begin", "ns/a@90", "end"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_cannot_be_started_for_long_is_replaced_by_a_new_list() {
    // After a restore from a backup: the version that we know is in the server's future.
    let mut script = vec![(STREAMING, Reply::Ended(vec![end_of_list(500)]))];
    for _ in 0..5 {
        script.push(("resourceVersion=500", Reply::Json(504, status(504, "Too large resource version"))));
    }
    script.push((STREAMING, Reply::Open(vec![end_of_list(100)])));
    let shown = play(script, 9).await;
    assert_eq!(shown[..2], ["begin", "end"]);
    assert_eq!(shown[7..], ["begin", "end"]);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_object_is_named_and_the_watch_goes_on() {
    let mut bad = pod("bad", 6);
    bad["spec"] = json!({"nodeName": 7});
    let script = vec![(
        STREAMING,
        Reply::Open(vec![
            event("ADDED", &bad),
            end_of_list(6),
            event("ADDED", &pod("good", 7)),
            event("DELETED", &bad),
        ]),
    )];
    let shown = play(script, 5).await;
    assert!(shown[1].starts_with("unreadable ns/bad: spec.nodeName"), "{shown:?}");
    assert_eq!(shown[2..], ["end", "ns/good@7", "deleted ns/bad u-bad"]);
}

#[tokio::test(start_paused = true)]
async fn a_malformed_object_in_a_paged_list_is_named_too() {
    let mut bad = pod("bad", 3);
    bad["spec"] = json!({"resourceClaims": "none"});
    let mut first = list(&[bad], 5);
    first["metadata"]["continue"] = json!("token");
    let script = vec![
        (STREAMING, Reply::Json(400, status(400, "no"))),
        ("limit=500", Reply::Json(200, first)),
        ("continue=token", Reply::Json(200, list(&[pod("good", 4)], 5))),
    ];
    let shown = play(script, 5).await;
    assert!(shown[2].starts_with("unreadable ns/bad: spec.resourceClaims"), "{shown:?}");
    assert_eq!(shown[3..], ["ns/good@4", "end"]);
}

#[tokio::test(start_paused = true)]
async fn an_event_after_quiet_is_shown_at_once_and_a_burst_is_read_together() {
    let timed = [(0, end_of_list(5)), (5000, event("ADDED", &pod("a", 6)))]
        .into_iter()
        .chain((7..=16).map(|version| (5000 + version - 6, event("MODIFIED", &pod("a", version)))));
    let start = Instant::now();
    let body = stream::iter(timed.collect::<Vec<_>>()).then(move |(ms, line)| async move {
        tokio::time::sleep_until(start + Duration::from_millis(ms)).await;
        Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(format!("{line}\n"))))
    });
    let body = Mutex::new(Some(StreamBody::new(body.chain(stream::pending())).boxed_unsync()));
    let server = tower::service_fn(move |_: Request<Body>| {
        let body = body.lock().unwrap().take().expect("one request");
        async { Ok::<_, Infallible>(Response::new(body)) }
    });
    let shown = Mutex::new(Vec::new());
    let chance = Chance::seeded(1);
    let watching = watch::<Pod>(Client::new(server, "default"), &chance, |event| {
        if let Event::Applied(_) = event {
            shown.lock().unwrap().push(start.elapsed().as_millis());
        }
    });
    assert!(timeout(Duration::from_secs(10), watching).await.is_err(), "a watch never ends");
    let shown = shown.into_inner().unwrap();
    assert_eq!(shown.len(), 11);
    assert_eq!(shown[0], 5000, "nobody waits for the first");
    let wakes: std::collections::BTreeSet<_> = shown.iter().collect();
    assert!(wakes.len() <= 3, "ten events in ten milliseconds are one or two reads: {shown:?}");
    assert!(shown.last() <= Some(&5020), "{shown:?}");
}

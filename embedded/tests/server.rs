//! What cannot be compared with kube-apiserver because it needs virtual time, chosen names or faults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use dra_embedded::{Exchange, Faults, Rates, Server};
use futures::{StreamExt, TryStreamExt, pin_mut};
use http::{Method, Request};
use k8s_openapi::api::{core::v1::Pod, resource::v1::ResourceClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, PostParams, WatchEvent, WatchParams},
    runtime::watcher,
};
use serde_json::{Value, json};
use tokio::time::Instant;

const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn server() -> Server {
    Server::new(1, "2026-01-01T00:00:00Z".parse().unwrap())
}

fn post(server: &Server, path: &str, body: &Value) -> (u16, Value) {
    server.call(Method::POST, path, "application/json", body)
}

#[allow(clippy::needless_pass_by_value, reason = "called with json! only")]
fn claim(metadata: Value) -> Value {
    json!({"metadata": metadata, "spec": {"devices": {}}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn typed(value: Value) -> ResourceClaim {
    serde_json::from_value(value).unwrap()
}

fn claims(client: Client) -> Api<ResourceClaim> {
    Api::default_namespaced(client)
}

#[tokio::test(start_paused = true)]
async fn generated_names_collide_and_are_drawn_again_until_that_is_hopeless() {
    let server = server();
    server.narrow_names(3);
    let codes: Vec<u16> =
        (0..4).map(|_| post(&server, CLAIMS, &claim(json!({"generateName": "a-"}))).0).collect();
    // Three names there are; eight draws find them nearly always, and the fourth never.
    assert_eq!(codes, [201, 201, 201, 409]);
}

#[tokio::test(start_paused = true)]
async fn the_clock_follows_virtual_time_and_jumps_when_told_to() {
    let server = server();
    tokio::time::advance(Duration::from_mins(1)).await;
    let (_, first) = post(&server, CLAIMS, &claim(json!({"name": "a"})));
    server.shift_clock(jiff::SignedDuration::from_secs(-3600));
    let (_, second) = post(&server, CLAIMS, &claim(json!({"name": "b"})));
    assert_eq!(first["metadata"]["creationTimestamp"], "2026-01-01T00:01:00Z");
    assert_eq!(second["metadata"]["creationTimestamp"], "2025-12-31T23:01:00Z");
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_uids_and_names() {
    let names = || post(&server(), CLAIMS, &claim(json!({"generateName": "a-"}))).1["metadata"].clone();
    assert_eq!(names(), names());
}

#[tokio::test(start_paused = true)]
async fn garbage_is_what_has_lost_all_its_owners() {
    let server = server();
    let (_, owner) = post(&server, PODS, &pod("owner"));
    let owned = |name: &str, uid: &Value| {
        claim(json!({"name": name, "ownerReferences": [
            {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": uid, "controller": true}]}))
    };
    post(&server, CLAIMS, &owned("kept", &owner["metadata"]["uid"]));
    post(&server, CLAIMS, &owned("of-another", &json!("other")));
    post(&server, CLAIMS, &claim(json!({"name": "free"})));
    assert_eq!(server.collect_garbage(), 1);
    server.call(Method::DELETE, &format!("{PODS}/owner"), "", &Value::Null);
    assert_eq!(server.collect_garbage(), 1);
    let left: Vec<String> =
        server.objects("ResourceClaim").iter().map(|c| c["metadata"]["name"].to_string()).collect();
    assert_eq!(left, ["\"free\""]);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_everything_in_it() {
    let server = server();
    post(&server, "/api/v1/namespaces", &json!({"metadata": {"name": "n"}}));
    let path = "/apis/resource.k8s.io/v1/namespaces/n/resourceclaims";
    post(&server, path, &claim(json!({"name": "a"})));
    server.call(Method::DELETE, "/api/v1/namespaces/n", "", &Value::Null);
    assert_eq!(post(&server, path, &claim(json!({"name": "b"}))).0, 403);
    assert_eq!(server.collect_garbage(), 2);
    assert_eq!(server.call(Method::GET, "/api/v1/namespaces/n", "", &Value::Null).0, 404);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_not_found_and_its_watches_end() {
    let server = server();
    let client = server.client();
    let api: Api<ResourceClaim> = claims(client.clone());
    let watch = api.watch(&WatchParams::default(), "0").await.unwrap();
    server.serve("ResourceClaim", "v1", false);
    assert!(watch.boxed().next().await.is_none());
    let error = api.list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Api(status) if status.code == 404));
    let group: Value =
        client.request(Request::get("/apis/resource.k8s.io/v1").body(Vec::new()).unwrap()).await.unwrap();
    assert!(!group.to_string().contains("\"resourceclaims\""), "{group}");
    server.serve("ResourceClaim", "v1", true);
    assert!(api.list(&ListParams::default()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_bookmarks_and_ends_when_its_time_is_over() {
    let server = server();
    let api = claims(server.client());
    let begun = Instant::now();
    let events: Vec<_> = api
        .watch(&WatchParams::default().timeout(290), "0")
        .await
        .unwrap()
        .map_ok(|event| matches!(event, WatchEvent::Bookmark(_)))
        .try_collect()
        .await
        .unwrap();
    assert_eq!(events, [true; 5]);
    assert_eq!(begun.elapsed().as_secs(), 290);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_revision_is_told_so() {
    let server = server();
    let api = claims(server.client());
    post(&server, CLAIMS, &claim(json!({"name": "a"})));
    server.compact();
    let events: Vec<_> = api.watch(&WatchParams::default(), "2").await.unwrap().try_collect().await.unwrap();
    assert!(matches!(&events[..], [WatchEvent::Error(status)] if status.code == 410), "{events:?}");
}

/// Names and deletions that a watcher sees until it has seen `last`.
async fn seen(client: Client, config: watcher::Config, last: &str) -> Vec<String> {
    let stream = watcher(claims(client), config);
    pin_mut!(stream);
    let mut seen = Vec::new();
    while let Some(event) = stream.next().await {
        match event {
            Ok(watcher::Event::Apply(claim) | watcher::Event::InitApply(claim)) => {
                seen.push(claim.name_any());
            }
            Ok(watcher::Event::Delete(claim)) => seen.push(format!("-{}", claim.name_any())),
            Ok(watcher::Event::Init) => seen.push("list".to_owned()),
            Ok(watcher::Event::InitDone) => seen.push("end".to_owned()),
            Err(error) => seen.push(format!("{error:?}").chars().take(11).collect()),
        }
        if seen.last().is_some_and(|s| s == last) {
            break;
        }
    }
    seen
}

#[tokio::test(start_paused = true)]
async fn kubes_watcher_lists_and_follows_in_both_ways() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let server = server();
        post(&server, CLAIMS, &claim(json!({"name": "a"})));
        let later = server.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(400)).await;
            post(&later, CLAIMS, &claim(json!({"name": "b"})));
            later.call(Method::DELETE, &format!("{CLAIMS}/a"), "", &Value::Null);
        });
        assert_eq!(seen(server.client(), config, "-a").await, ["list", "a", "end", "b", "-a"]);
    }
}

fn faulty(server: &Server, rates: Rates) -> Client {
    Client::new(server.connection().with_faults(Arc::new(Faults::seeded(7, rates))), "default")
}

async fn outcome(rates: Rates) -> (Option<u16>, usize) {
    let server = server();
    let api = claims(faulty(&server, rates));
    let create = api.create(&PostParams::default(), &typed(claim(json!({"name": "a"})))).await;
    let code = match create {
        Ok(_) => Some(201),
        Err(kube::Error::Api(status)) => Some(status.code),
        Err(_) => None,
    };
    (code, server.objects("ResourceClaim").len())
}

#[tokio::test(start_paused = true)]
async fn faults_before_the_write_leave_nothing_and_faults_after_it_leave_the_object() {
    let none = Rates::default();
    assert_eq!(outcome(none).await, (Some(201), 1));
    assert_eq!(outcome(Rates { refused: 1000, ..none }).await, (None, 0));
    assert_eq!(outcome(Rates { error: 1000, ..none }).await, (Some(500), 0));
    assert_eq!(outcome(Rates { conflict: 1000, ..none }).await, (Some(409), 0));
    assert_eq!(outcome(Rates { invalid: 1000, ..none }).await, (Some(422), 0));
    assert_eq!(outcome(Rates { error_after: 1000, ..none }).await, (Some(504), 1));
    let lost =
        tokio::time::timeout(Duration::from_mins(1), outcome(Rates { lost_after: 1000, ..none })).await;
    assert!(matches!(lost, Err(_) | Ok((None, 1))), "{lost:?}");
}

#[tokio::test(start_paused = true)]
async fn slow_answers_take_virtual_time_only() {
    let begun = Instant::now();
    outcome(Rates { slow: 1000, slowest: Duration::from_hours(1), ..Rates::default() }).await;
    assert!(begun.elapsed() > Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn whatever_happens_to_a_watch_the_last_state_arrives() {
    let rates = Rates {
        watch_closes: 100,
        watch_drops: 200,
        watch_repeats: 200,
        watch_lag: Duration::from_secs(5),
        ..Rates::default()
    };
    let server = server();
    let writer = server.clone();
    tokio::spawn(async move {
        for n in 0..200 {
            tokio::time::sleep(Duration::from_millis(300)).await;
            post(&writer, CLAIMS, &claim(json!({"name": format!("c-{n:03}")})));
            if n % 50 == 49 {
                writer.compact();
            }
        }
    });
    let mut seen = seen(faulty(&server, rates), watcher::Config::default(), "c-199").await;
    seen.retain(|s| s.starts_with("c-"));
    assert!(seen.len() >= 200, "some are repeated");
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 200, "and all are there");
}

#[tokio::test(start_paused = true)]
async fn an_observer_sees_what_was_carried_out() {
    let server = server();
    let seen: Arc<Mutex<Vec<(u16, bool)>>> = Arc::default();
    let sink = Arc::clone(&seen);
    let observer = move |e: &Exchange| sink.lock().unwrap().push((e.code, e.before != e.after));
    let client = Client::new(server.connection().observed(Arc::new(observer)), "default");
    let api = claims(client.clone());
    let object = typed(claim(json!({"name": "a"})));
    api.create(&PostParams::default(), &object).await.unwrap();
    api.create(&PostParams::default(), &object).await.unwrap_err();
    Api::<Pod>::default_namespaced(client).list(&ListParams::default()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(201, true), (409, false), (200, false)]);
}

#[tokio::test(start_paused = true)]
async fn objects_of_another_server_are_kept_as_they_are_and_go_on_from_there() {
    let server = server();
    let loaded = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "a", "namespace": "elsewhere", "uid": "u-1", "resourceVersion": "5000", "generation": 7,
            "creationTimestamp": "2025-05-05T05:05:05Z"},
        "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    let kept = server.load(loaded.clone()).unwrap();
    assert_eq!(*kept, loaded, "nothing is added to what a server has seen");
    assert!(server.revision() >= 5000);
    let namespaces = server.objects("Namespace");
    assert!(namespaces.iter().any(|n| n["metadata"]["name"] == "elsewhere"), "its namespace is there, too");

    let rule = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": "r"},
        "spec": {"taint": {"key": "k", "effect": "NoExecute"}}, "status": {"conditions": []}});
    let kept = server.load(rule).unwrap();
    assert_eq!(
        kept["spec"]["taint"]["timeAdded"], "2026-01-01T00:00:00Z",
        "what nobody has seen gets its defaults"
    );

    let path = "/api/v1/namespaces/elsewhere/pods/a/status";
    let (code, answer) = server.call(
        Method::PATCH,
        path,
        "application/merge-patch+json",
        &json!({"metadata": {"resourceVersion": "5000"}, "status": {"phase": "Failed"}}),
    );
    assert_eq!(code, 200, "{answer}");
    assert_eq!(answer["metadata"]["uid"], "u-1");
    let version: u64 = answer["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
    assert!(version > 5000, "versions go on from the highest one");

    for (object, field) in [
        (json!({"apiVersion": "v1", "kind": "Nonsense"}), "Nonsense"),
        (json!({"apiVersion": "v1", "kind": "Pod", "metadata": 1}), "metadata"),
        (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "B"}}), "metadata.name"),
        (json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b"}}), "metadata.namespace"),
        (
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "b", "resourceVersion": "x"}}),
            "metadata.resourceVersion",
        ),
    ] {
        let error = server.load(object).unwrap_err();
        assert!(error.contains(field), "{error}");
    }
}

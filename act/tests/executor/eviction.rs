//! Evictions, conditions of rules, and rules that others are expanded into.

use std::time::Duration;

use dra_allocator::Features;
use dra_api::{Claim, DeviceTaintRule, ObjectKey, Pod};
use dra_controllers::{
    devicetainteviction::{DeviceTaintEviction, Key},
    plan::EvictionMode,
    view::ResourceSlice,
};
use dra_runtime::queue::Next;
use serde_json::{Value, json};

use crate::{Bench, Step, bench, refusal};

const MARK: &str = "PATCH /api/v1/namespaces/ns/pods/p/status";
const DELETE: &str = "DELETE /api/v1/namespaces/ns/pods/p";
const GET: &str = "GET /api/v1/namespaces/ns/pods/p";
const EVICT: &str = "POST /api/v1/namespaces/ns/pods/p/eviction";

fn user(version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns", "uid": "up", "resourceVersion": version.to_string()},
        "spec": {"nodeName": "n", "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]},
        "status": {"phase": "Running"}})
}

fn marked(version: u64) -> Value {
    let mut pod = user(version);
    pod["status"]["conditions"] = json!([{"type": "DisruptionTarget", "status": "True",
        "reason": "DeletionByDeviceTaintManager",
        "message": "Device Taint manager: deleting due to NoExecute taint",
        "lastTransitionTime": "2020-01-01T00:00:00Z"}]);
    pod
}

fn leaving(version: u64) -> Value {
    let mut pod = marked(version);
    pod["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:01:00Z");
    pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    pod
}

fn allocated() -> Value {
    json!({"metadata": {"name": "c", "namespace": "ns", "uid": "uc", "resourceVersion": "3"}, "spec": {},
        "status": {
            "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": "up"}]}})
}

fn rule(version: u64) -> Value {
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
        "metadata": {"name": "r", "uid": "ur", "resourceVersion": version.to_string(), "generation": 1},
        "spec": {"deviceSelector": {"driver": "d"},
            "taint": {"key": "k", "effect": "NoExecute", "timeAdded": "2020-01-01T00:00:00Z"}}})
}

/// A bench on which a Pod is to be evicted because of a rule.
async fn due(planner: DeviceTaintEviction, script: Vec<Step>) -> Bench {
    let bench = bench(script);
    bench.keep_devices();
    bench.see::<DeviceTaintRule>(&rule(2));
    bench.see::<Claim>(&allocated());
    bench.see::<Pod>(&user(4));
    let key = Key::Pod(ObjectKey::new("ns", "p"));
    bench.executor.settle(&key, |view, pass| planner.plan(view, &key, pass)).await;
    assert!(bench.shared.read(|view| view.evictions.get(&ObjectKey::new("ns", "p")).is_some()));
    bench
}

impl Bench {
    fn keep_devices(&self) {
        self.shared.update(|view, _| {
            view.keep_devices(Features::default());
            None
        });
    }

    async fn settle_by(&self, planner: DeviceTaintEviction, key: Key) -> Next {
        let next = self.executor.settle(&key, |view, pass| planner.plan(view, &key, pass)).await;
        assert!(self.script.lock().unwrap().is_empty(), "never asked: {:?}", self.script.lock().unwrap());
        next
    }

    async fn evict(&self, planner: DeviceTaintEviction) -> Next {
        self.settle_by(planner, Key::Evict { priority: 0, pod: ObjectKey::new("ns", "p") }).await
    }

    fn counted(&self) -> u64 {
        self.shared.read(|view| view.evictions.rule(&"ur".into()).evicted)
    }

    fn body(&self, n: usize) -> Value {
        self.bodies.lock().unwrap()[n].clone()
    }
}

fn plain() -> DeviceTaintEviction {
    DeviceTaintEviction::default()
}

#[tokio::test]
async fn a_pod_is_marked_and_then_deleted_in_the_state_that_the_mark_left() {
    let script = vec![(MARK, Some((200, marked(5)))), (DELETE, Some((200, leaving(6))))];
    let bench = due(plain(), script).await;
    assert_eq!(bench.evict(plain()).await, Next::Settled);
    assert_eq!(bench.body(1)["preconditions"], json!({"uid": "up", "resourceVersion": "5"}));
    assert_eq!(bench.counted(), 1);
    let ok = [("action", "delete_pod"), ("outcome", "ok")];
    assert_eq!(bench.metric("dra_controller_manager_actions_total", &ok), 1.0);
}

#[tokio::test]
async fn a_pod_that_was_replaced_is_left_alone() {
    let mut other = user(9);
    other["metadata"]["uid"] = json!("other");
    let bench = due(
        plain(),
        vec![(MARK, Some((409, refusal(409, "uid mismatch", &json!({}))))), (GET, Some((200, other)))],
    )
    .await;
    assert_eq!(bench.evict(plain()).await, Next::Settled);
    assert_eq!(bench.counted(), 0);
}

#[tokio::test]
async fn a_pod_that_changed_between_mark_and_delete_is_looked_at_again() {
    let bench = due(
        plain(),
        vec![
            (MARK, Some((200, marked(5)))),
            (DELETE, Some((409, refusal(409, "modified", &json!({}))))),
            (GET, Some((200, marked(7)))),
            (DELETE, Some((200, leaving(8)))),
        ],
    )
    .await;
    assert_eq!(bench.evict(plain()).await, Next::Settled);
    assert_eq!(bench.body(3)["preconditions"]["resourceVersion"], "7");
    assert_eq!(bench.counted(), 1);
}

#[tokio::test]
async fn a_pod_that_somebody_else_deleted_first_is_not_counted() {
    let gone = refusal(404, "not found", &json!({"name": "p"}));
    let bench = due(plain(), vec![(MARK, Some((200, marked(5)))), (DELETE, Some((404, gone)))]).await;
    assert_eq!(bench.evict(plain()).await, Next::Settled);
    assert_eq!(bench.counted(), 0);
    assert!(bench.shared.read(|view| view.pods.is_empty()));
}

#[tokio::test]
async fn a_delete_without_an_answer_counts_once_the_pod_is_seen_to_go() {
    let bench = due(plain(), vec![(MARK, Some((200, marked(5)))), (DELETE, None)]).await;
    assert_eq!(bench.evict(plain()).await, Next::Retry(Duration::ZERO));
    assert_eq!(bench.counted(), 0);
    bench.see::<Pod>(&leaving(6));
    assert_eq!(bench.counted(), 1);
}

#[tokio::test]
async fn a_budget_that_forbids_the_eviction_is_remembered_and_asked_again() {
    let planner = DeviceTaintEviction { mode: EvictionMode::Evict, ..plain() };
    let cause =
        json!({"reason": "DisruptionBudget", "message": "The disruption budget b needs 1 healthy pods"});
    let no = refusal(429, "Cannot evict pod", &json!({"retryAfterSeconds": 10, "causes": [cause]}));
    let bench = due(planner, vec![(EVICT, Some((429, no)))]).await;
    assert_eq!(bench.evict(planner).await, Next::Retry(Duration::from_secs(10)));
    assert_eq!(bench.shared.read(|view| view.evictions.blocked(&"ur".into())), 1);
    let yes = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    bench.script.lock().unwrap().extend([(EVICT, Some((201, yes))), (GET, Some((200, leaving(6))))]);
    assert_eq!(bench.evict(planner).await, Next::Settled);
    assert_eq!(bench.counted(), 1);
    assert_eq!(bench.shared.read(|view| view.evictions.blocked(&"ur".into())), 0);
}

#[tokio::test]
async fn an_api_server_that_is_overloaded_is_not_taken_for_a_budget() {
    let planner = DeviceTaintEviction { mode: EvictionMode::Evict, ..plain() };
    let busy = refusal(429, "too many requests", &json!({"retryAfterSeconds": 1}));
    let bench = due(planner, vec![(EVICT, Some((429, busy)))]).await;
    assert_eq!(bench.evict(planner).await, Next::Retry(Duration::from_secs(1)));
    assert_eq!(bench.shared.read(|view| view.evictions.blocked(&"ur".into())), 0);
}

#[tokio::test]
async fn a_condition_for_a_rule_that_was_replaced_is_given_up() {
    let mut other = rule(9);
    other["metadata"]["uid"] = json!("other");
    other["spec"]["taint"]["effect"] = json!("NoSchedule");
    let script: Vec<Step> = vec![
        (
            "PATCH /apis/resource.k8s.io/v1/devicetaintrules/r/status?fieldManager=device-taint-eviction-controller&force=true",
            Some((409, refusal(409, "uid mismatch", &json!({})))),
        ),
        ("GET /apis/resource.k8s.io/v1/devicetaintrules/r", Some((200, other.clone()))),
        ("PATCH /apis/resource.k8s.io/v1/devicetaintrules/r/status", {
            let mut told = other;
            told["metadata"]["resourceVersion"] = json!("10");
            told["status"] = json!({"conditions": [{"type": "EvictionInProgress", "status": "False",
                "reason": "OtherEffect", "message": "Eviction only happens for the NoExecute effect.",
                "observedGeneration": 1, "lastTransitionTime": "2020-01-01T00:00:00Z"}]});
            Some((200, told))
        }),
    ];
    let bench = bench(script);
    bench.keep_devices();
    let mut idle = rule(2);
    idle["spec"]["taint"]["effect"] = json!("NoSchedule");
    bench.see::<DeviceTaintRule>(&idle);
    assert_eq!(bench.settle_by(plain(), Key::Rule("r".into())).await, Next::Settled);
    assert_eq!(bench.body(0)["metadata"]["uid"], "ur");
    assert_eq!(bench.body(2)["metadata"]["uid"], "other");
}

// Expansion

fn parent(version: u64, effect: &str) -> Value {
    let mut rule = rule(version);
    rule["metadata"]["annotations"] =
        json!({"dra-controller-manager.dev/select-cel": "device.driver == 'd'"});
    rule["spec"] = json!({"taint": {"key": "k", "effect": effect, "timeAdded": "2020-01-01T00:00:00Z"}});
    rule
}

fn slice() -> Value {
    json!({"metadata": {"name": "s", "uid": "us", "resourceVersion": "1"},
        "spec": {"driver": "d", "nodeName": "n", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "x"}]}})
}

/// A bench on which a rule is to be expanded into one; the key of that.
async fn expanding() -> (Bench, Key) {
    let bench = bench(Vec::new());
    bench.keep_devices();
    bench.see::<ResourceSlice>(&slice());
    bench.see::<DeviceTaintRule>(&parent(2, "NoSchedule"));
    assert_eq!(bench.settle_by(plain(), Key::Expand("r".into())).await, Next::Settled);
    let child = bench.shared.read(|view| {
        let expansion = view.expansions.get(&"ur".into()).unwrap();
        expansion.result.as_ref().unwrap().children.keys().next().cloned().unwrap()
    });
    (bench, Key::Child { parent: "r".into(), child })
}

fn child_of(key: &Key, version: u64) -> Value {
    let Key::Child { child, .. } = key else { panic!("not a child") };
    json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule",
        "metadata": {"name": **child, "uid": "uchild", "resourceVersion": version.to_string(), "generation": 1,
            "labels": {"dra-controller-manager.dev/expanded-from": "r"},
            "ownerReferences": [{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "name": "r",
                "uid": "ur", "controller": true}]},
        "spec": {"deviceSelector": {"driver": "d", "pool": "p", "device": "x"},
            "taint": {"key": "k", "effect": "NoSchedule", "timeAdded": "2020-01-01T00:00:00Z"}}})
}

const CREATE: &str =
    "POST /apis/resource.k8s.io/v1/devicetaintrules?fieldManager=device-taint-eviction-controller";

#[tokio::test]
async fn a_child_is_created_for_its_device_corrected_and_deleted_as_it_was_seen() {
    let (bench, key) = expanding().await;
    bench.script.lock().unwrap().push_back((CREATE, Some((201, child_of(&key, 5)))));
    assert_eq!(bench.settle_by(plain(), key.clone()).await, Next::Settled);
    let sent = bench.body(0);
    assert_eq!(sent["spec"], child_of(&key, 5)["spec"]);
    assert_eq!(sent["metadata"]["ownerReferences"], child_of(&key, 5)["metadata"]["ownerReferences"]);

    bench.see::<DeviceTaintRule>(&parent(6, "NoExecute"));
    let mut corrected = child_of(&key, 7);
    corrected["spec"]["taint"]["effect"] = json!("NoExecute");
    bench.script.lock().unwrap().extend([
        (
            "PATCH /apis/resource.k8s.io/v1/devicetaintrules/r-",
            Some((409, refusal(409, "modified", &json!({})))),
        ),
        ("GET /apis/resource.k8s.io/v1/devicetaintrules/r-", Some((200, child_of(&key, 6)))),
        ("PATCH /apis/resource.k8s.io/v1/devicetaintrules/r-", Some((200, corrected))),
    ]);
    assert_eq!(bench.settle_by(plain(), key.clone()).await, Next::Settled);
    assert_eq!(bench.body(1)["metadata"], json!({"uid": "uchild", "resourceVersion": "5"}));
    assert_eq!(bench.body(3)["metadata"], json!({"uid": "uchild", "resourceVersion": "6"}));

    bench.see::<DeviceTaintRule>(&parent(8, "None"));
    let gone = refusal(404, "not found", &json!({"name": "r-1"}));
    bench
        .script
        .lock()
        .unwrap()
        .push_back(("DELETE /apis/resource.k8s.io/v1/devicetaintrules/r-", Some((404, gone))));
    assert_eq!(bench.settle_by(plain(), key).await, Next::Settled, "that it is gone already is as good");
    assert_eq!(bench.body(4)["preconditions"], json!({"uid": "uchild", "resourceVersion": "7"}));
    assert_eq!(bench.shared.read(|view| view.taint_rules.len()), 1);
}

#[tokio::test]
async fn a_child_whose_creation_was_not_answered_is_found_and_not_created_twice() {
    let (bench, key) = expanding().await;
    let exists = refusal(409, "already exists", &json!({"name": "r-1"}));
    bench.script.lock().unwrap().push_back((CREATE, None));
    assert_eq!(bench.settle_by(plain(), key.clone()).await, Next::Retry(Duration::ZERO));
    bench.script.lock().unwrap().extend([
        (CREATE, Some((409, exists))),
        ("GET /apis/resource.k8s.io/v1/devicetaintrules/r-", Some((200, child_of(&key, 5)))),
    ]);
    assert_eq!(bench.settle_by(plain(), key).await, Next::Settled);
}

#[tokio::test]
async fn a_rule_of_somebody_else_under_a_childs_name_is_left_alone() {
    let (bench, key) = expanding().await;
    let mut theirs = child_of(&key, 5);
    theirs["metadata"]["ownerReferences"] = json!([]);
    let exists = refusal(409, "already exists", &json!({"name": "r-1"}));
    bench.script.lock().unwrap().extend([
        (CREATE, Some((409, exists))),
        ("GET /apis/resource.k8s.io/v1/devicetaintrules/r-", Some((200, theirs))),
    ]);
    // The event that says so is renewed now and then.
    assert!(matches!(bench.settle_by(plain(), key).await, Next::Again(_)));
}

#[tokio::test]
async fn a_child_that_may_not_be_created_is_tried_again() {
    let (bench, key) = expanding().await;
    bench.script.lock().unwrap().push_back((CREATE, Some((403, refusal(403, "forbidden", &json!({}))))));
    assert_eq!(bench.settle_by(plain(), key).await, Next::Retry(Duration::ZERO));
    let refused = [("action", "create_rule"), ("outcome", "refused")];
    assert_eq!(bench.metric("dra_controller_manager_actions_total", &refused), 1.0);
}

//! What in-tree does not have: pause, confirmation, PodDisruptionBudgets, priorities, events that explain; and what
//! could go wrong here only.

use dra_api::ObjectKey;
use dra_controllers::{
    Elapsed,
    devicetainteviction::Key,
    plan::{Action, EvictionMode, Pass},
};
use serde_json::{Value, json};

use crate::world::{Kind, T0, World, at, claim, pod, rule, seconds, slice, taint, tainted, tolerate};

fn users(w: &mut World, priorities: &[i64]) {
    for (n, priority) in priorities.iter().enumerate() {
        let (name, uid) = (format!("p{n}"), format!("u{n}"));
        w.put(Kind::Claim, claim(&format!("ns/c{n}"), &format!("d{n}"), (&name, &uid)));
        let mut p = pod(&format!("ns/{name}"), &uid, &format!("c{n}"));
        p["spec"]["priority"] = json!(priority);
        w.put(Kind::Pod, p);
    }
}

fn annotated(mut rule: Value, name: &str, value: &str) -> Value {
    rule["metadata"]["annotations"][format!("dra-controller-manager.dev/{name}")] = json!(value);
    rule
}

fn everything(name: &str) -> Value {
    let mut r = rule(name, "NoExecute", T0);
    r["spec"]["deviceSelector"] = json!({});
    r
}

#[test]
fn pods_of_the_lowest_priority_go_first() {
    let mut w = World::new();
    users(&mut w, &[100, -5, 2_000_000_000, 0, -2_000_000_000]);
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    assert_eq!(w.gone(), ["ns/p4", "ns/p1", "ns/p3", "ns/p0", "ns/p2"]);
}

#[test]
fn a_paused_rule_evicts_nobody_says_so_and_goes_on_when_it_is_resumed() {
    let mut w = World::new();
    users(&mut w, &[0, 0]);
    w.put(Kind::Rule, annotated(rule("evict", "NoExecute", T0), "pause-eviction", "true"));
    w.pass(seconds(1000));
    assert!(w.gone().is_empty());
    assert_eq!(
        w.condition("evict").unwrap().2,
        "2 pods need to be evicted in 1 namespace. Eviction is paused by the annotation \
         dra-controller-manager.dev/pause-eviction."
    );
    assert_eq!(w.view.evictions.counts(w.now).paused, 2);
    w.put(Kind::Rule, annotated(rule("evict", "NoExecute", T0), "pause-eviction", "false"));
    assert_eq!(w.gone().len(), 2);
    w.pass(seconds(20));
    assert_eq!(w.condition("evict").unwrap().2, "2 pods evicted since starting the controller.");
}

#[test]
fn a_pause_concerns_its_own_rule_only() {
    let mut w = World::new();
    users(&mut w, &[0]);
    w.put(Kind::Rule, annotated(rule("paused", "NoExecute", T0), "pause-eviction", "true"));
    assert!(w.gone().is_empty());
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    assert_eq!(w.gone(), ["ns/p0"]);
    w.pass(seconds(20));
    assert_eq!(w.condition("paused").unwrap().1, "NotStarted", "it was not the paused rule");
}

#[test]
fn a_rule_for_every_device_of_the_cluster_is_held_until_it_is_confirmed() {
    let mut w = World::new();
    users(&mut w, &[0, 0]);
    w.put(Kind::Rule, everything("all"));
    w.pass(seconds(1000));
    assert!(w.gone().is_empty());
    let (status, reason, message) = w.condition("all").unwrap();
    assert_eq!((&*status, &*reason), ("Unknown", "NotConfirmed"));
    assert!(message.contains("dra-controller-manager.dev/confirm-all-devices: \"true\""), "{message}");
    let event = w.told.iter().find(|e| e.starts_with("DeviceTaintRule all EvictionHeld")).unwrap();
    assert!(event.contains("selects every device of the cluster"));
    assert_eq!(w.told.len(), 1);
    w.put(Kind::Rule, annotated(everything("all"), "confirm-all-devices", "true"));
    assert_eq!(w.gone().len(), 2);
}

#[test]
fn selectors_that_the_api_server_has_dropped_are_named() {
    let mut w = World::new();
    users(&mut w, &[0]);
    let mut r = everything("all");
    let applied = json!({"spec": {"deviceSelector": {"deviceClassName": "broken-gpus"}}}).to_string();
    r["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": applied});
    w.put(Kind::Rule, r);
    assert!(w.gone().is_empty());
    assert!(w.condition("all").unwrap().2.contains("deviceSelector.deviceClassName"));
}

#[test]
fn with_parity_asked_for_a_rule_for_everything_needs_no_confirmation() {
    let mut w = World::new();
    w.planner.allow_everything = true;
    users(&mut w, &[0]);
    w.put(Kind::Rule, everything("all"));
    assert_eq!(w.gone(), ["ns/p0"]);
}

#[test]
fn a_rule_for_everything_may_be_tried_out_with_effect_none() {
    let mut w = World::new();
    users(&mut w, &[0]);
    let mut r = everything("all");
    r["spec"]["taint"]["effect"] = json!("None");
    w.put(Kind::Rule, r);
    w.pass(seconds(2));
    assert!(w.condition("all").unwrap().2.contains("1 pod would be evicted in 1 namespace"));
}

#[test]
fn a_pod_disruption_budget_holds_evictions_up_and_the_condition_says_so() {
    let mut w = World::new();
    w.planner.mode = EvictionMode::Evict;
    users(&mut w, &[0, 0]);
    w.protected.insert("ns/p1".to_owned());
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(20));
    assert_eq!(w.gone(), ["ns/p0"]);
    assert_eq!(
        w.condition("evict").unwrap().2,
        "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller. 1 pod is protected by \
         its PodDisruptionBudget at present; eviction is tried again."
    );
    assert_eq!(w.view.evictions.counts(w.now).blocked, 1);
    assert_eq!(
        w.requests.get("disrupt"),
        None,
        "the API server marks the Pod once it is decided that it goes"
    );
    w.protected.clear();
    w.pass(seconds(20));
    assert_eq!(w.gone(), ["ns/p0", "ns/p1"]);
    assert_eq!(w.condition("evict").unwrap().2, "2 pods evicted since starting the controller.");
}

#[test]
fn events_name_rule_or_slice_device_claim_and_toleration() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    tolerate(&mut c, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(60));
    let wanted = "DeviceTaintRule \"evict\" taints device some-driver/worker/instance with \
                  example.com/taint=something:NoExecute, ResourceClaim \"claim\" tolerates it for 30 s";
    assert_eq!(
        w.told,
        [
            format!(
                "DeviceTaintRule evict EvictionStarted: 1 pod needs to be evicted in 1 namespace. First is Pod ns/pod: \
                 {wanted}"
            ),
            format!("Pod ns/pod DeviceTaintManagerEviction: Marking for deletion: {wanted}"),
            "DeviceTaintRule evict EvictionCompleted: 1 pod evicted since starting the controller."
                .to_owned(),
        ]
    );
    let mut w = World::new();
    w.put(Kind::Slice, tainted());
    w.put(Kind::Claim, claim("ns/claim", "instance", ("pod", "1234")));
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    assert!(
        w.told[0].contains("ResourceSlice \"slice\" taints device some-driver/worker/instance"),
        "{:?}",
        w.told
    );
    assert!(w.told[0].ends_with("ResourceClaim \"claim\" does not tolerate it"));
}

#[test]
fn a_cluster_without_no_execute_taints_queues_nothing() {
    let mut w = World::new();
    w.event(Kind::Slice, slice("slice", "worker", 1, json!([taint("NoSchedule", T0)])));
    for n in 0..10 {
        w.event(
            Kind::Claim,
            claim(&format!("ns/c{n}"), "instance-no-schedule", (&format!("p{n}"), &format!("u{n}"))),
        );
        w.event(Kind::Pod, pod(&format!("ns/p{n}"), &format!("u{n}"), &format!("c{n}")));
    }
    assert!(w.is_idle());
}

#[test]
fn rules_that_select_by_any_part_of_a_name_select_exactly_that() {
    let mut w = World::new();
    users(&mut w, &[0]);
    for (n, (selector, gone)) in [
        (json!({"driver": "some-drive"}), 0),
        (json!({"pool": "Worker"}), 0),
        (json!({"device": "d0", "pool": "other"}), 0),
        (json!({"device": "d0"}), 1),
    ]
    .into_iter()
    .enumerate()
    {
        let mut r = rule(&format!("r{n}"), "NoExecute", T0);
        r["spec"]["deviceSelector"] = selector;
        w.put(Kind::Rule, r);
        assert_eq!(w.gone().len(), gone);
    }
}

#[test]
fn a_clock_that_is_set_back_while_a_pod_waits_for_its_turn_delays_its_eviction_and_no_more() {
    let mut w = World::new();
    users(&mut w, &[0]);
    w.event(Kind::Rule, rule("evict", "NoExecute", &at(30)));
    let (pod, planner) = (ObjectKey::new("ns", "p0"), w.planner);
    let judged = planner.plan(&w.view, &Key::Pod(pod.clone()), &pass(seconds(40), 40));
    let Some(Action::Schedule { pod: subject, eviction }) = judged.actions.into_iter().next() else {
        panic!("it is not to be evicted");
    };
    w.view.schedule_eviction(&pod, &subject.uid, eviction.map(|one| *one), seconds(40));

    let key = Key::Evict { priority: 0, pod };
    let early = planner.plan(&w.view, &key, &pass(seconds(41), 20));
    assert!(early.actions.is_empty());
    assert_eq!(early.wake_at, Some(seconds(51)), "ten seconds later by the clock as it is now");
    assert!(!planner.plan(&w.view, &key, &pass(seconds(51), 30)).actions.is_empty());
}

/// A pass at this time, while the wall clock shows so many seconds after `T0`.
fn pass(now: Elapsed, wall: i64) -> Pass {
    Pass { now, wall: at(wall).parse().unwrap(), ..Pass::default() }
}

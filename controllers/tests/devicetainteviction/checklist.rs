//! Rows of the specification's checklist (§9.1 and §9.2) about Pods, each in every order of its events.

use serde_json::{Value, json};

use crate::world::{
    Kind, T0, World, at, claim, permutations, pod, rule, seconds, slice, taint, tainted, tolerate, untainted,
};

type Events = Vec<(Kind, Value)>;

fn used() -> Value {
    claim("ns/claim", "instance", ("pod", "1234"))
}

fn user() -> Value {
    pod("ns/pod", "1234", "claim")
}

/// Runs the events in every order, at once and with planning after each; checks what came of it.
fn in_every_order(events: &Events, check: impl Fn(&World)) {
    for order in permutations(events) {
        for patient in [false, true] {
            let mut w = World::new();
            for (kind, object) in &order {
                w.event(*kind, object.clone());
                if patient {
                    w.settle();
                }
            }
            w.settle();
            check(&w);
        }
    }
}

fn evicted_at_once(events: &Events) {
    in_every_order(events, |w| {
        assert_eq!(w.evicted, [("ns/pod".to_owned(), 0)]);
        assert_eq!(w.announced(), ["ns/pod Marking for"]);
        assert_eq!((w.requests["disrupt"], w.requests["evict"]), (1, 1));
    });
}

fn never_evicted(events: &Events) {
    for order in permutations(events) {
        let mut w = World::new();
        for (kind, object) in order {
            w.put(kind, object);
        }
        w.pass(seconds(100_000));
        assert!(w.gone().is_empty() && w.announced().is_empty());
        assert!(w.view.evictions.get(&dra_api::ObjectKey::new("ns", "pod")).is_none());
    }
}

#[test]
fn evict_pod_resourceclaim() {
    evicted_at_once(&vec![(Kind::Slice, tainted()), (Kind::Claim, used()), (Kind::Pod, user())]);
}

#[test]
fn evict_pod_rule() {
    let events =
        vec![(Kind::Claim, used()), (Kind::Pod, user()), (Kind::Rule, rule("evict", "NoExecute", T0))];
    evicted_at_once(&events);
}

#[test]
fn tainted_claim_without_a_pod_evicts_nobody_and_untainted_claims_neither() {
    never_evicted(&vec![(Kind::Slice, tainted()), (Kind::Claim, used())]);
    never_evicted(&vec![(Kind::Slice, untainted()), (Kind::Claim, used()), (Kind::Pod, user())]);
    let other = claim("ns/claim", "not-published", ("pod", "1234"));
    never_evicted(&vec![(Kind::Slice, tainted()), (Kind::Claim, other), (Kind::Pod, user())]);
}

fn group_claim() -> Value {
    let mut c = used();
    c["metadata"]["ownerReferences"] = json!([{"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup",
        "name": "group", "uid": "g", "controller": true}]);
    c["status"]["reservedFor"] =
        json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group", "uid": "g"}]);
    c
}

fn member() -> Value {
    let mut p = user();
    p["spec"]["schedulingGroup"] = json!({"podGroupName": "group"});
    p["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": "t"}]);
    p["status"]["resourceClaimStatuses"] = json!([{"name": "c", "resourceClaimName": "claim"}]);
    p
}

#[test]
fn evict_pod_resourceclaim_podgroup() {
    evicted_at_once(&vec![(Kind::Slice, tainted()), (Kind::Claim, group_claim()), (Kind::Pod, member())]);
}

#[test]
fn no_evict_pod_in_podgroup_without_claim() {
    let mut p = member();
    p["spec"]["resourceClaims"] = json!([]);
    never_evicted(&vec![(Kind::Slice, tainted()), (Kind::Claim, group_claim()), (Kind::Pod, p)]);
}

#[test]
fn podgroup_reservations_are_ignored_while_the_gate_is_off() {
    let mut w = World::new();
    w.planner.workload_claims = false;
    for (kind, object) in [(Kind::Slice, tainted()), (Kind::Claim, group_claim()), (Kind::Pod, member())] {
        w.put(kind, object);
    }
    assert!(w.gone().is_empty());
}

fn templated() -> Value {
    let mut p = user();
    p["spec"]["resourceClaims"] = json!([{"name": "c", "resourceClaimTemplateName": "t"}]);
    p["status"]["resourceClaimStatuses"] = json!([{"name": "c", "resourceClaimName": "claim"}]);
    p
}

fn owned_by(uid: &str) -> Value {
    let mut c = used();
    c["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": uid, "controller": true}]);
    c
}

#[test]
fn evict_pod_resourceclaimtemplate() {
    evicted_at_once(&vec![
        (Kind::Slice, tainted()),
        (Kind::Claim, owned_by("1234")),
        (Kind::Pod, templated()),
    ]);
}

#[test]
fn no_evict_wrong_resourceclaim_and_evict_wrong_resourceclaim_replaced() {
    never_evicted(&vec![
        (Kind::Slice, tainted()),
        (Kind::Claim, owned_by("other")),
        (Kind::Pod, templated()),
    ]);
    let mut w = World::new();
    for (kind, object) in
        [(Kind::Slice, tainted()), (Kind::Claim, owned_by("other")), (Kind::Pod, templated())]
    {
        w.put(kind, object);
    }
    let mut replaced = owned_by("1234");
    replaced["metadata"]["uid"] = json!("new");
    w.put(Kind::Claim, replaced);
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn no_evict_pod_resourceclaimtemplate_without_status_or_claim_name() {
    let mut no_status = templated();
    no_status["status"]["resourceClaimStatuses"] = json!([]);
    never_evicted(&vec![(Kind::Slice, tainted()), (Kind::Claim, owned_by("1234")), (Kind::Pod, no_status)]);
    let mut no_name = templated();
    no_name["status"]["resourceClaimStatuses"] = json!([{"name": "c"}]);
    never_evicted(&vec![(Kind::Slice, tainted()), (Kind::Claim, owned_by("1234")), (Kind::Pod, no_name)]);
}

fn extended() -> Value {
    let mut p = user();
    p["spec"]["resourceClaims"] = json!([]);
    p["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "claim", "requestMappings": []});
    p
}

#[test]
fn evict_pod_extended_resourceclaim() {
    evicted_at_once(&vec![
        (Kind::Slice, tainted()),
        (Kind::Claim, owned_by("1234")),
        (Kind::Pod, extended()),
    ]);
}

#[test]
fn evict_pod_extended_resourceclaim_status_update() {
    let mut w = World::new();
    let mut before = extended();
    before["status"]["extendedResourceClaimStatus"] = Value::Null;
    for (kind, object) in [(Kind::Slice, tainted()), (Kind::Claim, owned_by("1234")), (Kind::Pod, before)] {
        w.put(kind, object);
    }
    assert!(w.gone().is_empty());
    w.put(Kind::Pod, extended());
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn no_evict_extended_resourceclaim_wrong_owner() {
    never_evicted(&vec![(Kind::Slice, tainted()), (Kind::Claim, owned_by("other")), (Kind::Pod, extended())]);
}

fn tolerant(tolerations: Value) -> Events {
    let mut c = used();
    tolerate(&mut c, tolerations);
    vec![(Kind::Slice, tainted()), (Kind::Claim, c), (Kind::Pod, user())]
}

fn evicted_after(events: &Events, delay: u64) {
    for order in permutations(events) {
        let mut w = World::new();
        for (kind, object) in order {
            w.put(kind, object);
        }
        w.pass(seconds(delay.saturating_sub(1)));
        assert!(w.gone().is_empty(), "too early");
        w.pass(seconds(1));
        assert_eq!(w.evicted, [("ns/pod".to_owned(), delay)]);
        w.pass(seconds(20));
        assert!(w.is_idle());
    }
}

#[test]
fn evict_pod_later() {
    let later = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}]);
    evicted_after(&tolerant(later), 3600);
}

#[test]
fn evict_pod_later_many_by_the_shortest_that_matches() {
    evicted_after(
        &tolerant(json!([
            {"key": "other", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 20},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        ])),
        30,
    );
}

#[test]
fn evict_pod_toleration_mismatch() {
    let other = json!([{"key": "other", "operator": "Exists", "effect": "NoExecute"}]);
    evicted_at_once(&tolerant(other));
    let value =
        json!([{"key": "example.com/taint", "operator": "Equal", "value": "x", "effect": "NoExecute"}]);
    evicted_at_once(&tolerant(value));
    let effect = json!([{"operator": "Exists", "effect": "NoSchedule"}]);
    evicted_at_once(&tolerant(effect));
}

#[test]
fn no_evict_pod_toleration_forever() {
    never_evicted(&tolerant(json!([{"operator": "Exists", "effect": "NoExecute"}])));
    never_evicted(&tolerant(json!([
        {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
        {"operator": "Exists", "effect": "NoExecute"},
    ])));
}

#[test]
fn evict_pod_partial_toleration() {
    let two = json!([taint("NoExecute", T0), {"key": "second", "effect": "NoExecute", "timeAdded": T0}]);
    let mut c = used();
    tolerate(&mut c, json!([{"key": "example.com/taint", "operator": "Exists", "effect": "NoExecute"}]));
    let events = vec![(Kind::Slice, slice("slice", "worker", 1, two)), (Kind::Claim, c), (Kind::Pod, user())];
    evicted_at_once(&events);
    in_every_order(&events, |w| assert!(w.told[0].contains("with second=:NoExecute"), "{:?}", w.told));
}

#[test]
fn evict_pod_many_taints() {
    let two = json!([
        {"key": "key1", "effect": "NoExecute", "timeAdded": T0},
        {"key": "key2", "effect": "NoExecute", "timeAdded": T0}
    ]);
    let mut c = used();
    tolerate(
        &mut c,
        json!([
            {"key": "key1", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60},
            {"key": "key2", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        ]),
    );
    let keyed = |name: &str, key: &str| {
        let mut r = rule(name, "NoExecute", T0);
        r["spec"]["taint"]["key"] = json!(key);
        r
    };
    let events = vec![
        (Kind::Slice, slice("slice", "worker", 1, two)),
        (Kind::Claim, c),
        (Kind::Pod, user()),
        (Kind::Rule, keyed("evict", "key1")),
        (Kind::Rule, keyed("evict-other", "key2")),
    ];
    for order in permutations(&events) {
        let mut w = World::new();
        for (kind, object) in order {
            w.put(kind, object);
        }
        let sources: Vec<String> = w
            .view
            .evictions
            .get(&dra_api::ObjectKey::new("ns", "pod"))
            .unwrap()
            .reasons
            .iter()
            .map(|reason| match &reason.source {
                dra_controllers::view::TaintSource::Rule { name, .. } => name.to_string(),
                dra_controllers::view::TaintSource::Slice { index, .. } => index.to_string(),
            })
            .collect();
        assert_eq!(sources, ["evict", "evict-other", "0", "1"]);
        w.pass(seconds(30));
        assert_eq!(w.evicted, [("ns/pod".to_owned(), 30)]);
        w.pass(seconds(10));
        for rule in ["evict", "evict-other"] {
            let (status, reason, message) = w.condition(rule).unwrap();
            assert_eq!((status.as_str(), reason.as_str()), ("False", "Completed"));
            assert_eq!(message, "1 pod evicted since starting the controller.");
        }
    }
}

#[test]
fn no_evict_pod_not_scheduled_and_evict_pod_after_scheduling() {
    let mut waiting = user();
    waiting["spec"]["nodeName"] = Value::Null;
    never_evicted(&vec![(Kind::Slice, tainted()), (Kind::Claim, used()), (Kind::Pod, waiting.clone())]);
    let mut w = World::new();
    for (kind, object) in [(Kind::Slice, tainted()), (Kind::Claim, used()), (Kind::Pod, waiting)] {
        w.put(kind, object);
    }
    w.put(Kind::Pod, user());
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn no_evict_wrong_pod_and_evict_wrong_pod_replaced() {
    let wrong = pod("ns/pod", "other", "claim");
    never_evicted(&vec![(Kind::Slice, tainted()), (Kind::Claim, used()), (Kind::Pod, wrong.clone())]);
    let mut w = World::new();
    for (kind, object) in [(Kind::Slice, tainted()), (Kind::Claim, used()), (Kind::Pod, wrong)] {
        w.put(kind, object);
    }
    w.remove(Kind::Pod, "ns/pod");
    w.put(Kind::Pod, user());
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn ignore_none_and_unknown_effects() {
    for effect in ["None", "NoSchedule", "unknown-effect"] {
        let s = slice("slice", "worker", 1, json!([taint(effect, T0)]));
        never_evicted(&vec![(Kind::Slice, s), (Kind::Claim, used()), (Kind::Pod, user())]);
        let r = rule("rule", effect, T0);
        never_evicted(&vec![(Kind::Rule, r), (Kind::Claim, used()), (Kind::Pod, user())]);
    }
}

/// A Pod that is to be evicted in an hour.
fn pending() -> World {
    let mut w = World::new();
    let hour = json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}]);
    for (kind, object) in tolerant(hour) {
        w.put(kind, object);
    }
    assert!(w.view.evictions.get(&dra_api::ObjectKey::new("ns", "pod")).is_some());
    w
}

fn is_cancelled(mut w: World) {
    assert_eq!(w.announced(), ["ns/pod Cancelling deletion"]);
    w.pass(seconds(10_000));
    assert!(w.gone().is_empty() && w.is_idle());
    assert_eq!(w.requests.get("disrupt"), None);
}

#[test]
fn cancel_eviction_remove_taint() {
    let mut w = pending();
    w.put(Kind::Slice, untainted());
    is_cancelled(w);
}

#[test]
fn cancel_eviction_reduce_taint() {
    let mut w = pending();
    w.put(Kind::Slice, slice("slice", "worker", 1, json!([taint("NoSchedule", T0)])));
    is_cancelled(w);
}

#[test]
fn cancel_eviction_remove_taint_in_new_slice() {
    let mut w = pending();
    w.remove_event(Kind::Slice, "slice");
    w.put(Kind::Slice, slice("newer", "worker", 2, json!([])));
    is_cancelled(w);
}

#[test]
fn cancel_eviction_remove_slice() {
    let mut w = pending();
    w.remove(Kind::Slice, "slice");
    is_cancelled(w);
}

#[test]
fn cancel_eviction_pod_deletion() {
    let mut w = pending();
    w.remove(Kind::Pod, "ns/pod");
    assert!(w.view.evictions.get(&dra_api::ObjectKey::new("ns", "pod")).is_none());
    assert!(w.announced().is_empty(), "nobody is told about a Pod that is gone");
    w.pass(seconds(10_000));
    assert!(w.requests.is_empty() && w.is_idle());
}

#[test]
fn no_evict_resourceclaim_deallocated_or_deleted() {
    let mut w = pending();
    let mut released = used();
    released["status"] = json!({});
    w.put(Kind::Claim, released);
    is_cancelled(w);
    let mut w = pending();
    w.remove(Kind::Claim, "ns/claim");
    is_cancelled(w);
}

#[test]
fn eviction_change_taint_brings_it_forward() {
    let mut w = World::new();
    let value = json!([{"key": "example.com/taint", "value": "something", "effect": "NoExecute"}]);
    for (kind, object) in tolerant(value) {
        w.put(kind, object);
    }
    assert!(w.gone().is_empty());
    let mut other = taint("NoExecute", T0);
    other["value"] = json!("else");
    w.put(Kind::Slice, slice("slice", "worker", 1, json!([other])));
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn evict_pod_resourceclaim_again() {
    let mut w = pending();
    w.remove(Kind::Slice, "slice");
    w.put(Kind::Slice, tainted());
    w.pass(seconds(3600));
    assert_eq!(w.announced(), ["ns/pod Cancelling deletion", "ns/pod Marking for"]);
}

#[test]
fn evict_pod_resourceclaim_unrelated_changes_leave_the_time_alone() {
    let mut w = pending();
    let mut more = tainted();
    more["spec"]["devices"]
        .as_array_mut()
        .unwrap()
        .push(json!({"name": "x", "taints": [taint("NoExecute", T0)]}));
    w.put(Kind::Slice, more);
    w.change(Kind::Claim, "ns/claim", |c| c["metadata"]["labels"] = json!({"a": "b"}));
    w.change(Kind::Pod, "ns/pod", |p| p["metadata"]["labels"] = json!({"a": "b"}));
    assert!(w.announced().is_empty());
    w.pass(seconds(3600));
    assert_eq!(w.evicted, [("ns/pod".to_owned(), 3600)]);
}

#[test]
fn everything_that_comes_true_by_updates_evicts_too() {
    let mut waiting = user();
    waiting["spec"]["nodeName"] = Value::Null;
    let mut unallocated = used();
    unallocated["status"] = json!({});
    for order in permutations(&[(Kind::Slice, tainted()), (Kind::Claim, used()), (Kind::Pod, user())]) {
        let mut w = World::new();
        w.put(Kind::Slice, untainted());
        w.put(Kind::Claim, unallocated.clone());
        w.put(Kind::Pod, waiting.clone());
        for (kind, object) in order {
            w.put(kind, object);
        }
        assert_eq!(w.gone(), ["ns/pod"]);
        assert_eq!((w.requests["disrupt"], w.requests["evict"]), (1, 1));
    }
}

#[test]
fn the_deletion_of_a_newer_slice_and_of_a_claim_evict_too() {
    let mut w = World::new();
    w.put(Kind::Slice, tainted());
    w.put(Kind::Slice, slice("newer", "worker", 2, json!([])));
    w.put(Kind::Claim, used());
    w.put(Kind::Pod, user());
    assert!(w.gone().is_empty());
    w.remove(Kind::Claim, "ns/claim");
    w.remove(Kind::Slice, "newer");
    assert!(w.gone().is_empty());
    w.put(Kind::Claim, used());
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn taint_and_untaint_leave_nothing_behind() {
    let mut w = World::new();
    w.put(Kind::Claim, used());
    let mut later = user();
    later["spec"]["nodeName"] = Value::Null;
    w.put(Kind::Pod, later);
    for _ in 0..20 {
        w.put(Kind::Slice, tainted());
        w.put(Kind::Slice, untainted());
    }
    assert_eq!(w.view.evictions.counts(w.now), dra_controllers::view::EvictionCounts::default());
    assert!(w.is_idle());
}

#[test]
fn a_taint_in_the_future_evicts_when_its_time_has_come() {
    let s = slice("slice", "worker", 1, json!([taint("NoExecute", &at(40))]));
    evicted_after(&vec![(Kind::Slice, s), (Kind::Claim, used()), (Kind::Pod, user())], 40);
}

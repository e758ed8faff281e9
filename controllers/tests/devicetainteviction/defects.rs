//! In-tree defects ([BUG] and [WEAK] in the specification) that are not copied. Each test fails with in-tree's
//! behaviour.

use serde_json::{Value, json};

use crate::world::{Kind, T0, World, at, claim, pod, rule, seconds, slice, taint, tainted, tolerate};

fn used() -> Value {
    claim("ns/claim", "instance", ("pod", "1234"))
}

fn one_user(w: &mut World) {
    w.put(Kind::Claim, used());
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
}

fn tolerating(tolerations: Value) -> World {
    let mut w = World::new();
    let mut c = used();
    tolerate(&mut c, tolerations);
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w
}

#[test]
fn a_toleration_without_effect_tolerates_every_effect_unless_parity_is_asked_for() {
    for (strict, gone) in [(false, 0), (true, 1)] {
        let mut w = tolerating(json!([{"operator": "Exists"}]));
        w.planner.strict_effects = strict;
        w.put(Kind::Slice, tainted());
        assert_eq!(w.gone().len(), gone);
    }
}

#[test]
fn toleration_seconds_beyond_all_dates_never_end() {
    for forever in [9_223_372_037_i64, i64::MAX] {
        let mut w =
            tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": forever}]));
        w.put(Kind::Slice, tainted());
        w.pass(seconds(1_000_000));
        assert!(w.gone().is_empty(), "{forever} s are not over");
    }
    let mut w =
        tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": i64::MIN}]));
    w.put(Kind::Slice, tainted());
    assert_eq!(w.gone(), ["ns/pod"], "negative is not at all");
}

#[test]
fn a_taint_without_a_time_counts_from_when_it_was_first_seen() {
    let mut untimed = taint("NoExecute", T0);
    untimed["timeAdded"] = Value::Null;
    let mut w = tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]));
    w.pass(seconds(100));
    w.put(Kind::Slice, slice("slice", "worker", 1, json!([untimed])));
    w.pass(seconds(20));
    // Whatever else happens does not start the time again.
    w.change(Kind::Pod, "ns/pod", |p| p["metadata"]["labels"] = json!({"a": "b"}));
    w.change(Kind::Claim, "ns/claim", |c| c["status"]["reservedFor"][0]["name"] = json!("pod"));
    w.pass(seconds(20));
    assert_eq!(w.evicted, [("ns/pod".to_owned(), 130)]);
    let mut w = World::new();
    one_user(&mut w);
    let mut r = rule("r", "NoExecute", T0);
    r["spec"]["taint"]["timeAdded"] = Value::Null;
    w.put(Kind::Rule, r);
    assert_eq!(w.gone(), ["ns/pod"], "untolerated is evicted although the time is missing");
}

#[test]
fn finished_pods_are_neither_evicted_nor_counted() {
    for phase in ["Succeeded", "Failed"] {
        let mut w = World::new();
        let mut c = used();
        c["status"]["reservedFor"] =
            json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "group", "uid": "g"}]);
        w.put(Kind::Claim, c);
        let mut p = pod("ns/pod", "1234", "claim");
        p["spec"]["schedulingGroup"] = json!({"podGroupName": "group"});
        p["status"]["phase"] = json!(phase);
        w.put(Kind::Pod, p);
        w.put(Kind::Rule, rule("evict", "NoExecute", T0));
        w.pass(seconds(20));
        assert!(w.gone().is_empty());
        assert_eq!(w.condition("evict").unwrap().1, "NotStarted");
    }
}

#[test]
fn a_pod_that_finishes_while_it_waits_is_not_evicted_any_more() {
    let mut w = tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]));
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.change(Kind::Pod, "ns/pod", |p| p["status"]["phase"] = json!("Succeeded"));
    w.pass(seconds(100));
    assert!(w.gone().is_empty() && w.announced().is_empty());
    assert_eq!(w.condition("evict").unwrap().0, "False");
}

#[test]
fn pods_deleted_by_others_are_not_counted_as_evicted() {
    let mut w = tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]));
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    // The watch has not shown it when our time comes; the answer to our first request does.
    w.pod_watch_lags = true;
    w.change(Kind::Pod, "ns/pod", |p| p["metadata"]["deletionTimestamp"] = json!(at(29)));
    w.pass(seconds(100));
    assert!(w.gone().is_empty());
    let (status, reason, message) = w.condition("evict").unwrap();
    assert_eq!((&*status, &*reason, &*message), ("False", "NotStarted", ""));
}

#[test]
fn a_condition_never_stays_true_when_nothing_is_pending() {
    // The reasons why a Pod is pending no more, without our doing.
    type Ending = fn(&mut World);
    let endings: [(&str, Ending); 5] = [
        ("deleted by others", |w| w.remove(Kind::Pod, "ns/pod")),
        ("terminating", |w| {
            w.change(Kind::Pod, "ns/pod", |p| p["metadata"]["deletionTimestamp"] = json!(at(20)));
        }),
        ("claim released", |w| w.change(Kind::Claim, "ns/claim", |c| c["status"] = json!({}))),
        ("claim deleted", |w| w.remove(Kind::Claim, "ns/claim")),
        ("tolerated", |w| {
            w.change(Kind::Claim, "ns/claim", |c| {
                tolerate(c, json!([{"operator": "Exists", "effect": "NoExecute"}]));
            });
        }),
    ];
    for (what, end) in endings {
        let mut w =
            tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}]));
        w.put(Kind::Rule, rule("evict", "NoExecute", T0));
        w.pass(seconds(20));
        assert_eq!(w.condition("evict").unwrap().0, "True", "{what}");
        end(&mut w);
        w.pass(seconds(10));
        let (status, reason, _) = w.condition("evict").unwrap();
        assert_eq!((&*status, &*reason), ("False", "NotStarted"), "{what}");
        w.pass(seconds(4000));
        assert!(w.is_idle(), "{what}");
    }
}

#[test]
fn pending_and_evicted_never_exceed_the_real_number_although_deletions_are_shown_late() {
    let mut w = World::new();
    for n in 0..20 {
        w.put(
            Kind::Claim,
            claim(&format!("ns/c{n}"), &format!("d{n}"), (&format!("p{n}"), &format!("u{n}"))),
        );
        w.put(Kind::Pod, pod(&format!("ns/p{n}"), &format!("u{n}"), &format!("c{n}")));
    }
    w.pod_watch_lags = true;
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    for _ in 0..30 {
        w.pass(seconds(1));
    }
    w.catch_up();
    w.pass(seconds(20));
    assert_eq!(w.gone().len(), 20);
    for (.., text) in &w.said {
        let numbers: usize =
            text.split(' ').filter_map(|word| word.parse::<usize>().ok()).filter(|n| *n > 1).sum();
        assert!(numbers <= 20, "{text}");
    }
    assert_eq!(w.condition("evict").unwrap().2, "20 pods evicted since starting the controller.");
}

#[test]
fn a_new_generation_published_slice_by_slice_does_not_cancel_evictions() {
    let mut w = tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}]));
    let part = |name: &str, generation: i64, device: &str| {
        json!({
            "metadata": {"name": name, "uid": format!("uid-{name}")},
            "spec": {"driver": "some-driver", "nodeName": "worker",
                "pool": {"name": "worker", "generation": generation, "resourceSliceCount": 2},
                "devices": [{"name": device, "taints": [taint("NoExecute", T0)]}]},
        })
    };
    w.put(Kind::Slice, part("a", 1, "instance"));
    w.put(Kind::Slice, part("b", 1, "other"));
    w.put(Kind::Slice, part("b", 2, "other"));
    w.put(Kind::Slice, part("a", 2, "instance"));
    assert!(w.announced().is_empty(), "{:?}", w.announced());
    w.pass(seconds(3600));
    assert_eq!(w.evicted, [("ns/pod".to_owned(), 3600)]);
}

#[test]
fn a_rule_replaced_under_the_same_name_starts_anew() {
    let mut w = World::new();
    one_user(&mut w);
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(20));
    assert_eq!(w.condition("evict").unwrap().2, "1 pod evicted since starting the controller.");
    // Seen as one update.
    let mut other = rule("evict", "NoExecute", T0);
    other["metadata"]["uid"] = json!("another");
    w.put(Kind::Rule, other);
    w.pass(seconds(20));
    let (status, reason, message) = w.condition("evict").unwrap();
    assert_eq!((&*status, &*reason, &*message), ("False", "NotStarted", ""));
}

#[test]
fn a_status_that_cannot_be_written_holds_up_no_eviction() {
    let mut w = World::new();
    one_user(&mut w);
    w.status_hangs = true;
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn a_list_after_a_lost_watch_removes_the_taints_of_slices_that_are_gone() {
    let mut w = tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]));
    w.put(Kind::Slice, tainted());
    w.view.list_begins::<dra_controllers::view::ResourceSlice>(w.now);
    let changes = w.view.list_ends::<dra_controllers::view::ResourceSlice>();
    assert_eq!(changes.len(), 1);
    for change in changes {
        assert!(!w.planner.affected(&w.view, &change).is_empty(), "the Pod is looked at again");
    }
    w.pass(seconds(100));
    assert!(w.gone().is_empty());
}

#[test]
fn a_claim_that_is_allocated_anew_in_one_update_is_judged_by_its_new_devices() {
    let mut w = World::new();
    w.put(Kind::Slice, tainted());
    w.put(Kind::Claim, claim("ns/claim", "healthy", ("pod", "1234")));
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    assert!(w.gone().is_empty());
    w.put(Kind::Claim, used());
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn a_pod_replaced_under_the_same_name_in_one_update_is_looked_at() {
    let mut w = World::new();
    w.put(Kind::Slice, tainted());
    w.put(Kind::Claim, claim("ns/claim", "instance", ("pod", "new")));
    w.put(Kind::Pod, pod("ns/pod", "old", "claim"));
    assert!(w.gone().is_empty());
    w.put(Kind::Pod, pod("ns/pod", "new", "claim"));
    assert_eq!(w.gone(), ["ns/pod"]);
}

#[test]
fn a_slice_that_changes_its_pool_takes_its_taints_along() {
    let mut w = tolerating(json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]));
    w.put(Kind::Slice, tainted());
    w.put(Kind::Slice, slice("slice", "worker-2", 1, json!([taint("NoExecute", T0)])));
    assert_eq!(w.announced(), ["ns/pod Cancelling deletion"]);
    w.pass(seconds(100));
    assert!(w.gone().is_empty());
}

#[test]
fn a_condition_changes_its_transition_time_only_with_its_status() {
    let mut w = World::new();
    w.put(Kind::Claim, claim("ns/c1", "x", ("p1", "u1")));
    w.put(Kind::Pod, pod("ns/p1", "u1", "c1"));
    let mut slow = claim("ns/c2", "y", ("p2", "u2"));
    tolerate(&mut slow, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}]));
    w.put(Kind::Claim, slow);
    w.put(Kind::Pod, pod("ns/p2", "u2", "c2"));
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(30));
    assert_eq!(
        w.condition("evict").unwrap().2,
        "1 pod needs to be evicted in 1 namespace. 1 pod evicted since starting the controller."
    );
    let condition = &w.object(Kind::Rule, "evict").unwrap()["status"]["conditions"][0];
    assert_eq!(condition["lastTransitionTime"], T0);
}

#[test]
fn after_a_restart_an_eviction_that_was_under_way_ends_as_completed() {
    let mut w = World::new();
    one_user(&mut w);
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    assert_eq!(w.condition("evict").unwrap().0, "True");
    assert_eq!(w.gone(), ["ns/pod"]);
    w.restart();
    w.pass(seconds(20));
    let (status, reason, _) = w.condition("evict").unwrap();
    assert_eq!((&*status, &*reason), ("False", "Completed"));
    w.restart();
    w.pass(seconds(20));
    assert_eq!(w.condition("evict").unwrap().1, "Completed");
    assert_eq!(w.gone(), ["ns/pod"], "once");
}

#[test]
fn a_condition_that_somebody_else_keeps_rewriting_is_not_fought_over() {
    let mut w = World::new();
    w.put(Kind::Rule, rule("r", "NoExecute", T0));
    w.pass(seconds(20));
    assert_eq!(w.said.len(), 1);
    for (status, most) in [("False", 3), ("True", 13)] {
        let before = w.said.len();
        for _ in 0..20 {
            w.change(Kind::Rule, "r", |r| {
                r["status"]["conditions"][0]["status"] = json!(status);
                r["status"]["conditions"][0]["message"] = json!("another manager counts otherwise");
            });
            w.pass(std::time::Duration::from_millis(500));
        }
        let written = w.said.len() - before;
        assert!((1..=most).contains(&written), "{status}: {written} writes in 10 s");
    }
}

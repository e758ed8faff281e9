//! Promises of the documentation (documented-behaviour D83 to D114) that no other test shows.

use serde_json::json;

use crate::world::{Kind, T0, World, at, claim, pod, rule, seconds, slice, taint, tainted, tolerate};

fn one_user(w: &mut World) {
    w.put(Kind::Claim, claim("ns/claim", "instance", ("pod", "1234")));
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
}

/// D84.
#[test]
fn the_effect_reaches_every_pod_that_shares_the_claim() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("p0", "u0"));
    c["status"]["reservedFor"] = (0..3)
        .map(|n| json!({"resource": "pods", "name": format!("p{n}"), "uid": format!("u{n}")}))
        .collect::<Vec<_>>()
        .into();
    w.put(Kind::Claim, c);
    for n in 0..4 {
        w.put(Kind::Pod, pod(&format!("ns/p{n}"), &format!("u{n}"), "claim"));
    }
    w.put(Kind::Slice, tainted());
    assert_eq!(w.gone(), ["ns/p0", "ns/p1", "ns/p2"], "the fourth has no reservation");
}

/// D86: an allocated claim is not checked again by the scheduler, so a late Pod must be caught.
#[test]
fn a_pod_that_is_placed_on_an_affected_claim_later_is_evicted_too() {
    let mut w = World::new();
    w.put(Kind::Slice, tainted());
    one_user(&mut w);
    w.change(Kind::Claim, "ns/claim", |c| {
        c["status"]["reservedFor"] = json!([{"resource": "pods", "name": "late", "uid": "5678"}]);
    });
    w.put(Kind::Pod, pod("ns/late", "5678", "claim"));
    assert_eq!(w.gone(), ["ns/pod", "ns/late"]);
}

/// D94.
#[test]
fn admin_access_is_no_exemption() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    c["status"]["allocation"]["devices"]["results"][0]["adminAccess"] = json!(true);
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(Kind::Slice, tainted());
    assert_eq!(w.gone(), ["ns/pod"]);
}

/// D96.
#[test]
fn a_rule_adds_to_the_taints_of_slices() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    tolerate(&mut c, json!([{"key": "driver", "operator": "Exists", "effect": "NoExecute"}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(
        Kind::Slice,
        slice("slice", "worker", 1, json!([{"key": "driver", "effect": "NoExecute", "timeAdded": T0}])),
    );
    assert!(w.gone().is_empty());
    w.put(Kind::Rule, rule("admin", "NoExecute", T0));
    assert_eq!(w.gone(), ["ns/pod"]);
}

/// D97.
#[test]
fn a_rule_without_a_selector_taints_nothing() {
    let mut w = World::new();
    one_user(&mut w);
    let mut r = rule("none", "NoExecute", T0);
    r["spec"]["deviceSelector"] = json!(null);
    w.put(Kind::Rule, r);
    w.pass(seconds(20));
    assert!(w.gone().is_empty());
    assert_eq!(w.condition("none").unwrap().1, "NotStarted");
}

/// D100, D101.
#[test]
fn a_pool_named_after_its_node_taints_the_whole_node_and_no_other() {
    let mut w = World::new();
    one_user(&mut w);
    let mut elsewhere = claim("ns/elsewhere", "instance", ("other", "5678"));
    elsewhere["status"]["allocation"]["devices"]["results"][0]["pool"] = json!("worker-2");
    w.put(Kind::Claim, elsewhere);
    w.put(Kind::Pod, pod("ns/other", "5678", "elsewhere"));
    let mut r = rule("node", "NoExecute", T0);
    r["spec"]["deviceSelector"] = json!({"pool": "worker"});
    w.put(Kind::Rule, r);
    assert_eq!(w.gone(), ["ns/pod"]);
}

/// D92, D104: the clock is timeAdded; an explicit value reschedules both ways.
#[test]
fn an_explicit_time_added_moves_the_eviction_both_ways() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    tolerate(&mut c, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 100}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.put(Kind::Rule, rule("evict", "NoExecute", &at(500)));
    w.pass(seconds(300));
    assert!(w.gone().is_empty());
    w.put(Kind::Rule, rule("evict", "NoExecute", &at(250)));
    w.pass(seconds(49));
    assert!(w.gone().is_empty());
    w.pass(seconds(1));
    assert_eq!(w.evicted, [("ns/pod".to_owned(), 350)]);
}

/// D92: it survives restarts, because nothing but the cluster's own times counts.
#[test]
fn a_restart_changes_no_deadline() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    tolerate(&mut c, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 100}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(Kind::Slice, tainted());
    for _ in 0..5 {
        w.pass(seconds(15));
        w.restart();
    }
    w.pass(seconds(100));
    assert_eq!(w.evicted, [("ns/pod".to_owned(), 100)]);
}

/// D102.
#[test]
fn a_rule_acts_while_it_exists() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    tolerate(&mut c, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 100}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(50));
    w.remove(Kind::Rule, "evict");
    w.pass(seconds(1000));
    assert!(w.gone().is_empty());
    assert_eq!(w.announced(), ["ns/pod Cancelling deletion"]);
}

/// D109.
#[test]
fn a_pod_that_is_placed_after_the_end_is_evicted_and_counted() {
    let mut w = World::new();
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(60));
    assert_eq!(w.condition("evict").unwrap().1, "NotStarted");
    one_user(&mut w);
    w.pass(seconds(20));
    assert_eq!(w.condition("evict").unwrap().2, "1 pod evicted since starting the controller.");
}

/// D95.
#[test]
fn taints_of_an_older_generation_do_not_count() {
    let mut w = World::new();
    w.put(Kind::Slice, slice("new", "worker", 2, json!([])));
    w.put(Kind::Slice, slice("old", "worker", 1, json!([taint("NoExecute", T0)])));
    one_user(&mut w);
    assert!(w.gone().is_empty());
}

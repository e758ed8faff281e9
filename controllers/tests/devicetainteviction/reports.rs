//! What users have reported about the in-tree controller, as stories.

use serde_json::json;

use crate::world::{Kind, T0, World, at, claim, pod, rule, seconds, slice, taint, tainted, tolerate};

#[test]
fn a_toleration_in_the_claims_spec_alone_does_not_protect_and_in_the_allocation_it_does() {
    for (allocated, gone) in [(false, 1), (true, 0)] {
        let mut w = World::new();
        let mut c = claim("ns/claim", "instance", ("pod", "1234"));
        let tolerations = json!([{"operator": "Exists", "effect": "NoExecute"}]);
        c["spec"] = json!({"devices": {"requests": [{"name": "r",
            "exactly": {"deviceClassName": "gpu", "tolerations": tolerations}}]}});
        if allocated {
            tolerate(&mut c, tolerations);
        }
        w.put(Kind::Claim, c);
        w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
        w.put(Kind::Slice, tainted());
        assert_eq!(w.gone().len(), gone);
    }
}

#[test]
fn a_pod_that_holds_a_device_through_plain_resource_limits_is_evicted_and_counted() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    c["metadata"]["annotations"] = json!({"resource.kubernetes.io/extended-resource-claim": "true"});
    c["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "pod", "uid": "1234", "controller": true}]);
    let mut p = pod("ns/pod", "1234", "claim");
    p["spec"]["resourceClaims"] = json!(null);
    p["spec"]["containers"] = json!([{"name": "c", "resources": {"limits": {"example.com/gpu": "1"}}}]);
    p["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "claim"});
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, p);
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(10));
    assert_eq!(w.gone(), ["ns/pod"]);
    assert_eq!(w.condition("evict").unwrap().2, "1 pod evicted since starting the controller.");
}

#[test]
fn one_pod_whose_deletion_is_shown_two_seconds_late_never_counts_twice() {
    let mut w = World::new();
    w.put(Kind::Claim, claim("ns/claim", "instance", ("pod", "1234")));
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.pod_watch_lags = true;
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(2));
    w.catch_up();
    w.pass(seconds(30));
    for (.., text) in &w.said {
        assert!(!(text.contains("1 pod needs") && text.contains("1 pod evicted")), "{text}");
    }
    assert_eq!(w.said.last().unwrap().4, "1 pod evicted since starting the controller.");
}

#[test]
fn a_rule_does_not_say_false_in_its_first_seconds_while_the_scheduler_may_still_place_pods() {
    let mut w = World::new();
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(4));
    // The scheduler had not seen the taint yet.
    w.put(Kind::Claim, claim("ns/claim", "instance", ("pod", "1234")));
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    assert_eq!(w.gone(), ["ns/pod"]);
    w.pass(seconds(60));
    let first = w.said.iter().find(|(_, _, status, ..)| status == "False").unwrap();
    assert_eq!((first.0, &*first.3), (14, "Completed"));
}

#[test]
fn an_effect_that_changes_to_no_execute_is_as_new() {
    let mut w = World::new();
    w.put(Kind::Rule, rule("evict", "None", T0));
    w.pass(seconds(100));
    w.put(Kind::Rule, rule("evict", "NoExecute", &at(100)));
    w.pass(seconds(9));
    let condition = &w.object(Kind::Rule, "evict").unwrap()["status"]["conditions"][0];
    assert_eq!(
        condition["observedGeneration"], 1,
        "what it says is about the spec before: kubectl wait goes on"
    );
    w.pass(seconds(1));
    assert_eq!(w.condition("evict").unwrap().1, "NotStarted");
}

#[test]
fn a_driver_that_toggles_taints_each_second_evicts_by_time_added_and_does_not_flap() {
    let mut w = World::new();
    let node = |taints: bool, n: i64| {
        let mut s = slice("slice", "worker", 1, json!([]));
        let list = if taints { json!([taint("NoExecute", &at(n))]) } else { json!([]) };
        s["spec"]["devices"] =
            (0..8).map(|d| json!({"name": format!("d{d}"), "taints": list})).collect::<Vec<_>>().into();
        s
    };
    for n in 0..8 {
        let mut c = claim(&format!("ns/c{n}"), &format!("d{n}"), (&format!("p{n}"), &format!("u{n}")));
        tolerate(&mut c, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}]));
        w.put(Kind::Claim, c);
        w.put(Kind::Pod, pod(&format!("ns/p{n}"), &format!("u{n}"), &format!("c{n}")));
    }
    for n in 0..30 {
        w.put(Kind::Slice, node(n % 2 == 0, n));
        w.pass(seconds(1));
    }
    assert!(w.gone().is_empty(), "no taint has stood for ten seconds");
    assert!(w.requests.is_empty(), "and no request was made");
    // Now it stays, and the time is that of the taint.
    w.put(Kind::Slice, node(true, 30));
    w.pass(seconds(60));
    assert_eq!(w.evicted.len(), 8);
    assert!(w.evicted.iter().all(|(_, at)| *at == 40));
    assert!(w.is_idle());
}

#[test]
fn a_rule_that_is_toggled_each_second_keeps_a_steady_condition() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    tolerate(&mut c, json!([{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    for n in 0..60 {
        w.change(Kind::Claim, "ns/claim", |c| {
            let pod = if n % 2 == 0 { "gone" } else { "pod" };
            c["status"]["reservedFor"][0]["name"] = json!(pod);
            c["status"]["reservedFor"][0]["uid"] = json!(if n % 2 == 0 { "5678" } else { "1234" });
        });
        w.pass(seconds(1));
    }
    assert_eq!(w.said.len(), 1, "{:?}", w.said);
}

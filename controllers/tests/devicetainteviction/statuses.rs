//! The condition of rules: texts, times, dry run (spec §5 and the rows of §9 about rules).

use serde_json::json;

use crate::world::{
    Kind, T0, World, at, claim, permutations, pod, rule, seconds, slice, tainted, tolerate, untainted,
};

fn said(w: &World) -> Vec<(u64, &str, &str, &str)> {
    w.said.iter().map(|(at, _, status, reason, text)| (*at, &**status, &**reason, &**text)).collect()
}

fn one_user(w: &mut World) {
    w.put(Kind::Claim, claim("ns/claim", "instance", ("pod", "1234")));
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
}

#[test]
fn a_rule_that_concerns_nobody_says_not_started_once_the_scheduler_must_have_seen_it() {
    let mut w = World::new();
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(100));
    assert_eq!(said(&w), [(10, "False", "NotStarted", "")]);
    assert!(w.is_idle());
}

#[test]
fn evict_pod_rule_is_pending_and_then_completed() {
    let mut w = World::new();
    one_user(&mut w);
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(100));
    assert_eq!(
        said(&w),
        [
            (0, "True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."),
            (10, "False", "Completed", "1 pod evicted since starting the controller."),
        ]
    );
    assert!(w.is_idle());
}

#[test]
fn evict_pod_rule_later_keeps_its_text_until_the_pod_goes() {
    let mut w = World::new();
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    // Neither key nor operator: any key with this value.
    tolerate(&mut c, json!([{"value": "something", "effect": "NoExecute", "tolerationSeconds": 30}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(100));
    assert_eq!(w.evicted, [("ns/pod".to_owned(), 30)]);
    assert_eq!(
        said(&w),
        [
            (0, "True", "PodsPendingEviction", "1 pod needs to be evicted in 1 namespace."),
            (40, "False", "Completed", "1 pod evicted since starting the controller."),
        ]
    );
}

#[test]
fn many_pods_are_counted_with_their_namespaces() {
    for (second, wanted) in [("other/pod", "2 different namespaces"), ("ns/pod-2", "1 namespace")] {
        let mut w = World::new();
        one_user(&mut w);
        let (namespace, name) = second.split_once('/').unwrap();
        w.put(Kind::Claim, claim(&format!("{namespace}/claim-2"), "y", (name, "5678")));
        w.put(Kind::Pod, pod(second, "5678", "claim-2"));
        w.put(Kind::Rule, rule("evict", "NoExecute", T0));
        w.pass(seconds(20));
        let texts: Vec<String> = w.said.iter().map(|(.., text)| text.clone()).collect();
        assert_eq!(
            texts,
            [
                format!("2 pods need to be evicted in {wanted}."),
                "2 pods evicted since starting the controller.".to_owned()
            ]
        );
        assert_eq!(w.announced().len(), 2);
    }
}

#[test]
fn the_end_of_a_long_eviction_is_told_ten_seconds_after_it_began_not_after_it_ended() {
    let mut w = World::new();
    for second in [0, 4, 8] {
        let (name, uid) = (format!("pod-{second}"), format!("uid-{second}"));
        let mut c = claim(&format!("ns/claim-{second}"), "instance", (&name, &uid));
        tolerate(&mut c, json!([{"operator": "Exists", "tolerationSeconds": second}]));
        w.put(Kind::Claim, c);
        w.put(Kind::Pod, pod(&format!("ns/{name}"), &uid, &format!("claim-{second}")));
    }
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(100));
    assert_eq!(w.evicted.iter().map(|(_, at)| *at).collect::<Vec<_>>(), [0, 4, 8]);
    let times: Vec<_> = said(&w).iter().map(|(at, status, ..)| (*at, status.to_string())).collect();
    assert_eq!(times, [(0, "True".to_owned()), (10, "False".to_owned())]);
    assert!(w.is_idle());
}

fn dry_run(w: &mut World) -> String {
    w.pass(seconds(2));
    let (status, reason, message) = w.condition("rule").unwrap();
    assert_eq!((status.as_str(), reason.as_str()), ("False", "NoEffect"));
    message.split(" if the effect was").next().unwrap().to_owned()
}

#[test]
fn none_pod_rule_tells_what_would_happen_and_does_nothing() {
    let mut w = World::new();
    w.put(Kind::Slice, untainted());
    one_user(&mut w);
    w.put(Kind::Rule, rule("rule", "None", T0));
    assert_eq!(
        dry_run(&mut w),
        "3 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace"
    );
    w.pass(seconds(1000));
    assert!(w.gone().is_empty() && w.announced().is_empty() && w.is_idle());
    assert_eq!(w.said.len(), 1);
}

#[test]
fn a_dry_run_counts_what_the_watches_show_a_moment_after_the_rule() {
    let mut w = World::new();
    w.put(Kind::Rule, rule("rule", "None", T0));
    w.pass(seconds(1));
    assert!(w.condition("rule").is_none());
    one_user(&mut w);
    assert_eq!(
        dry_run(&mut w),
        "0 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace"
    );
}

#[test]
fn none_many_pods() {
    for (second, wanted) in [("other/pod", "2 different namespaces"), ("ns/pod-2", "1 namespace")] {
        let mut w = World::new();
        let mut first = claim("ns/claim", "instance", ("pod", "1234"));
        let results = first["status"]["allocation"]["devices"]["results"].as_array_mut().unwrap();
        let mut more = results[0].clone();
        more["device"] = json!("more");
        results.push(more);
        w.put(Kind::Claim, first);
        w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
        let (namespace, name) = second.split_once('/').unwrap();
        w.put(Kind::Claim, claim(&format!("{namespace}/claim-2"), "y", (name, "5678")));
        w.put(Kind::Pod, pod(second, "5678", "claim-2"));
        w.put(Kind::Rule, rule("rule", "None", T0));
        assert_eq!(
            dry_run(&mut w),
            format!(
                "0 published devices selected. 3 allocated devices selected. 2 pods would be evicted in {wanted}"
            )
        );
    }
}

#[test]
fn none_podgroup_rule() {
    let mut w = World::new();
    w.put(Kind::Slice, untainted());
    let mut c = claim("ns/claim", "instance", ("group", "g"));
    c["status"]["reservedFor"][0]["apiGroup"] = json!("scheduling.k8s.io");
    c["status"]["reservedFor"][0]["resource"] = json!("podgroups");
    w.put(Kind::Claim, c);
    let mut p = pod("ns/pod", "1234", "claim");
    p["spec"]["schedulingGroup"] = json!({"podGroupName": "group"});
    w.put(Kind::Pod, p);
    w.put(Kind::Rule, rule("rule", "None", T0));
    assert_eq!(
        dry_run(&mut w),
        "3 published devices selected. 1 allocated device selected. 1 pod would be evicted in 1 namespace"
    );
}

#[test]
fn the_dry_run_respects_tolerations_and_counts_the_newest_generation_only() {
    let mut w = World::new();
    w.put(Kind::Slice, slice("old", "worker", 1, json!([])));
    w.put(Kind::Slice, slice("new", "worker", 2, json!([])));
    let mut c = claim("ns/claim", "instance", ("pod", "1234"));
    tolerate(&mut c, json!([{"operator": "Exists", "effect": "NoExecute"}]));
    w.put(Kind::Claim, c);
    w.put(Kind::Pod, pod("ns/pod", "1234", "claim"));
    w.put(Kind::Rule, rule("rule", "None", T0));
    assert_eq!(
        dry_run(&mut w),
        "3 published devices selected. 1 allocated device selected. 0 pods would be evicted in 0 different namespaces"
    );
}

#[test]
fn an_edit_repeats_the_dry_run_and_no_execute_begins_the_eviction() {
    let mut w = World::new();
    w.put(Kind::Rule, rule("rule", "None", T0));
    assert!(dry_run(&mut w).contains("0 allocated devices"));
    one_user(&mut w);
    w.pass(seconds(60));
    assert!(dry_run(&mut w).contains("0 allocated devices"), "it is told once");
    w.put(Kind::Rule, rule("rule", "None", &at(1)));
    assert!(dry_run(&mut w).contains("1 allocated device selected"));
    w.put(Kind::Rule, rule("rule", "NoExecute", &at(60)));
    assert_eq!(w.gone(), ["ns/pod"]);
    w.pass(seconds(10));
    let (status, reason, message) = w.condition("rule").unwrap();
    assert_eq!(
        (&*status, &*reason, &*message),
        ("False", "Completed", "1 pod evicted since starting the controller.")
    );
    assert_eq!(w.object(Kind::Rule, "rule").unwrap()["status"]["conditions"][0]["observedGeneration"], 3);
    w.put(Kind::Rule, rule("rule", "NoSchedule", &at(60)));
    assert_eq!(
        w.condition("rule").unwrap().2,
        "Eviction only happens for the NoExecute effect. 1 pod evicted since starting the controller."
    );
}

#[test]
fn unknown_effects_are_other_effects() {
    let mut w = World::new();
    w.put(Kind::Rule, rule("rule", "FutureEffect", T0));
    let (status, reason, message) = w.condition("rule").unwrap();
    assert_eq!((&*status, &*reason), ("False", "OtherEffect"));
    assert_eq!(message, "Eviction only happens for the NoExecute effect.");
}

#[test]
fn multiple_claims_same_rule_count_the_pod_once() {
    let mut w = World::new();
    w.put(Kind::Claim, claim("ns/claim", "x", ("pod", "1234")));
    w.put(Kind::Claim, claim("ns/claim-2", "y", ("pod", "1234")));
    let mut p = pod("ns/pod", "1234", "claim");
    p["spec"]["resourceClaims"] = json!([{"name": "a", "resourceClaimName": "claim"},
        {"name": "b", "resourceClaimName": "claim-2"}]);
    w.put(Kind::Pod, p);
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(10));
    assert_eq!(w.condition("evict").unwrap().2, "1 pod evicted since starting the controller.");
}

#[test]
fn multiple_claims_different_rules_in_any_order_count_the_pod_for_both() {
    let only = |name: &str, device: &str, time: &str| {
        let mut r = rule(name, "NoExecute", time);
        r["spec"]["deviceSelector"]["device"] = json!(device);
        r
    };
    let mut p = pod("ns/pod", "1234", "claim");
    p["spec"]["resourceClaims"] = json!([{"name": "a", "resourceClaimName": "claim"},
        {"name": "b", "resourceClaimName": "claim-2"}]);
    let events = [
        (Kind::Claim, claim("ns/claim", "x", ("pod", "1234"))),
        (Kind::Claim, claim("ns/claim-2", "y", ("pod", "1234"))),
        (Kind::Pod, p),
        (Kind::Rule, only("rule-1", "x", T0)),
        (Kind::Rule, only("rule-2", "y", &at(40))),
    ];
    for order in permutations(&events) {
        let mut w = World::new();
        for (kind, object) in order {
            w.event(kind, object);
        }
        w.settle();
        w.pass(seconds(60));
        assert_eq!(w.evicted, [("ns/pod".to_owned(), 0)]);
        for rule in ["rule-1", "rule-2"] {
            let (_, reason, message) = w.condition(rule).unwrap();
            assert_eq!((&*reason, &*message), ("Completed", "1 pod evicted since starting the controller."));
        }
    }
}

#[test]
fn a_condition_of_somebody_else_and_our_own_writes_cause_no_writes() {
    let mut w = World::new();
    one_user(&mut w);
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.pass(seconds(20));
    let before = w.requests["report"];
    w.change(Kind::Rule, "evict", |r| r["metadata"]["labels"] = json!({"a": "b"}));
    w.pass(seconds(100));
    assert_eq!(w.requests["report"], before);
}

#[test]
fn a_slice_taint_needs_no_rule_and_changes_no_condition() {
    let mut w = World::new();
    w.put(Kind::Slice, tainted());
    one_user(&mut w);
    assert_eq!(w.gone(), ["ns/pod"]);
    assert!(w.said.is_empty());
}

#[test]
fn a_rule_that_is_deleted_is_forgotten() {
    let mut w = World::new();
    one_user(&mut w);
    w.put(Kind::Rule, rule("evict", "NoExecute", T0));
    w.remove(Kind::Rule, "evict");
    w.pass(seconds(100));
    assert_eq!(w.view.evictions.rule(&"uid-evict".into()), dra_controllers::view::RuleNote::default());
    assert!(w.is_idle());
}

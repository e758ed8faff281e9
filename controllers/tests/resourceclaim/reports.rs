//! Public reports against the in-tree controller, as stories (issue 3, "What it must show").

use std::{collections::BTreeMap, time::Duration};

use dra_controllers::resourceclaim::REASON_CREATION;
use serde_json::json;

use crate::common::{World, driver::Verb, map, objects::*, server::Kind};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// No Pod's or group's recorded name ever changed or vanished.
fn records_only_grow(w: &World) {
    for (uid, history) in &w.server.recorded {
        for pair in history.windows(2) {
            for (entry, name) in &pair[0] {
                assert_eq!(pair[1].get(entry), Some(name), "{uid}: {history:?}");
            }
        }
    }
}

/// kubernetes #141274: one status write, then none in 60 s of virtual time.
#[test]
fn a_finished_pod_that_shares_a_claim_is_released_once_and_never_reserved_again() {
    for prescheduled in [false, true] {
        let mut w = World::default();
        w.put(claim("shared"));
        for name in ["finishes", "goes-on"] {
            w.put(pod(name).direct("e", "shared"));
        }
        w.settle();
        if prescheduled {
            let uid = w.uid(Kind::Pod, "goes-on");
            w.allocate("shared", pod_consumer("goes-on", &uid));
            for name in ["finishes", "goes-on"] {
                w.edit(Kind::Pod, name, |p| p["spec"]["nodeName"] = json!("node"));
            }
        } else {
            assert!(w.schedule("finishes") && w.schedule("goes-on"));
        }
        w.settle();
        assert_eq!(w.reserved("shared").len(), 2);
        let before = w.writes();
        w.phase("finishes", "Succeeded");
        w.settle();
        assert_eq!(w.writes(), before + 1);
        for n in 0..60 {
            // The kubelet goes on reporting.
            w.edit(Kind::Pod, "finishes", |p| p["status"]["conditions"] = json!([n]));
            w.run_for(SECOND);
        }
        assert_eq!(w.writes(), before + 1, "{:?}", w.driver.log);
        assert_eq!(w.reserved("shared"), ["goes-on"]);
        assert!(w.is_allocated("shared"));
    }
}

/// 6,000 Pods at once with the claim watch lagging 30 s (the in-tree mutation cache holds 1,000).
#[test]
fn six_thousand_pods_at_once_get_one_claim_each_however_late_the_watch_is() {
    let mut w = World::default();
    w.put(template("t"));
    w.settle();
    w.server.lag.insert(Kind::Claim, 30 * SECOND);
    for n in 0..6000 {
        w.put(pod(&format!("p{n}")).templated("e", "t"));
    }
    w.run_for(20 * SECOND);
    // Half of the Pods get another event while nothing of their claims has been shown.
    for n in 0..3000 {
        w.edit(Kind::Pod, &format!("p{n}"), |p| p["status"]["phase"] = json!("Pending"));
    }
    w.run_for(40 * SECOND);
    assert_eq!(w.claim_names().len(), 6000);
    assert_eq!(w.server.created.len(), 6000);
    assert_eq!((w.requests(Verb::Create), w.requests(Verb::RecordPod)), (6000, 6000));
    records_only_grow(&w);
}

/// kubernetes #138407: the status list only grows.
#[test]
fn with_one_of_two_templates_late_the_status_list_only_grows() {
    for late_is_first in [false, true] {
        let mut w = World::default();
        w.put(template("early"));
        let (a, b) = if late_is_first { ("late", "early") } else { ("early", "late") };
        let uid = w.put(pod("p").templated("a", a).templated("b", b));
        w.run_for(5 * MINUTE);
        assert_eq!(w.recorded(Kind::Pod, "p").len(), 1);
        w.put(template("late"));
        w.run_for(SECOND);
        let (a, b) = (w.only_claim_of(&uid, "a"), w.only_claim_of(&uid, "b"));
        assert_eq!(w.recorded(Kind::Pod, "p"), map([("a", &a), ("b", &b)]));
        assert_eq!(w.server.recorded[&uid].iter().map(BTreeMap::len).collect::<Vec<_>>(), [0, 1, 2]);
        records_only_grow(&w);
    }
}

/// In-tree backs off up to 1000 s.
#[test]
fn a_template_made_fifteen_minutes_after_its_pod_gives_the_claim_within_two_seconds() {
    for owner in [pod("o").templated("e", "t"), group("o").templated("e", "t")] {
        let kind = owner.kind;
        let subject = format!("{} ns/o", kind.name());
        let mut w = World::default();
        let uid = w.put(owner);
        w.settle();
        assert!(w.was_told(&subject, REASON_CREATION, "template \"t\""));
        let requests = w.driver.requests.clone();
        w.run_for(15 * MINUTE);
        assert_eq!(w.driver.requests, requests, "no polling");
        w.put(template("t"));
        w.run_for(2 * SECOND);
        assert_eq!(w.recorded(kind, "o"), map([("e", &w.only_claim_of(&uid, "e"))]));
        assert_eq!(w.driver.told.values().sum::<usize>(), 1, "told once");
    }
}

/// The deletions happened while the manager was down.
#[test]
fn a_claim_already_being_deleted_with_a_vanished_consumer_at_start_is_released() {
    for finalizers in [1, 2] {
        let mut w = World::default();
        let mut draft = claim("c")
            .generated_for("p", "uid-p", "e")
            .allocated()
            .reserved_for(pod_consumer("p", "uid-p"))
            .deleting();
        if finalizers == 2 {
            draft = draft.finalizer("example.com/hold");
        }
        w.put(draft);
        w.restart();
        w.run_for(SECOND);
        assert_eq!(w.get(Kind::Claim, "c").is_some(), finalizers == 2);
        if finalizers == 2 {
            assert!(w.reserved("c").is_empty() && !w.is_allocated("c") && !w.has_finalizer("c"));
        }
        assert_eq!(w.requests(Verb::Delete), 0);
        assert!(w.requests(Verb::GetPod) <= 1, "confirmed live, once");
    }
}

#[test]
fn a_consumer_of_an_unknown_kind_is_kept_and_blocks_no_pod_beside_it() {
    let foreign = json!({"apiGroup": "foo.com", "resource": "foos", "name": "f", "uid": "uid-f"});
    let mut w = World::default();
    w.put(claim("c").allocated().reserved_for(foreign.clone()));
    for name in ["a", "b"] {
        w.put(pod(name).direct("e", "c").on("node"));
    }
    w.settle();
    assert_eq!(w.reserved("c"), ["f", "a", "b"]);
    w.phase("a", "Failed");
    w.settle();
    w.vanish(Kind::Pod, "b");
    w.settle();
    assert_eq!(w.claim("c")["status"]["reservedFor"], json!([foreign]));
    assert!(w.is_allocated("c") && w.has_finalizer("c"));
    w.put(pod("later").direct("e", "c").on("node"));
    w.settle();
    assert_eq!(w.reserved("c"), ["f", "later"]);
    w.delete(Kind::Claim, "c");
    w.vanish(Kind::Pod, "later");
    w.run_for(MINUTE);
    assert_eq!(w.reserved("c"), ["f"], "its own controller must take it off");
    // It does, and the claim goes.
    w.edit(Kind::Claim, "c", |c| c["status"]["reservedFor"] = json!([]));
    w.settle();
    assert!(w.claim_names().is_empty());
}

#[test]
fn a_template_annotation_is_not_mixed_between_two_claims_of_one_pod() {
    let mut t = template("t");
    t.body["spec"]["metadata"]["annotations"] = json!({"example.com/color": "red"});
    let mut other = template("other");
    other.body["spec"]["metadata"]["annotations"] = json!({"example.com/size": "big"});
    let mut w = World::default();
    w.put(t);
    w.put(other);
    let uid = w.put(pod("p").templated("a", "t").templated("b", "t").templated("c", "other"));
    w.settle();
    let annotations = |entry: &str| w.claim(&w.only_claim_of(&uid, entry))["metadata"]["annotations"].clone();
    assert_eq!(annotations("a"), json!({"example.com/color": "red", ANNOTATION: "a"}));
    assert_eq!(annotations("b"), json!({"example.com/color": "red", ANNOTATION: "b"}));
    assert_eq!(annotations("c"), json!({"example.com/size": "big", ANNOTATION: "c"}));
}

/// D47, D48: 256 Pods is the ceiling of a claim; a group is one consumer, however large.
#[test]
fn a_group_of_five_thousand_pods_keeps_one_claim_with_one_consumer() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(group("g").templated("e", "t"));
    for n in 0..5000 {
        w.put(pod(&format!("p{n}")).templated("e", "t").member_of("g"));
    }
    w.settle();
    let name = w.only_claim_of(&uid, "e");
    assert_eq!(w.claim_names().len(), 1);
    for n in 0..5000 {
        assert_eq!(w.recorded(Kind::Pod, &format!("p{n}")), map([("e", &name)]));
    }
    assert_eq!(w.requests(Verb::RecordPod), 5000);
    w.allocate(&name, group_consumer("g", &uid));
    for n in 0..5000 {
        w.edit(Kind::Pod, &format!("p{n}"), |p| p["spec"]["nodeName"] = json!("node"));
    }
    w.settle();
    assert_eq!(w.reserved(&name), ["g"]);
    for n in 0..5000 {
        w.vanish(Kind::Pod, &format!("p{n}"));
    }
    w.settle();
    assert_eq!(w.reserved(&name), ["g"], "the group holds it, with or without Pods (D32)");
    assert!(w.is_allocated(&name));
    assert_eq!(w.writes(), 5000 + 2);
    w.vanish(Kind::PodGroup, "g");
    w.settle();
    assert!(w.reserved(&name).is_empty() && !w.is_allocated(&name) && !w.has_finalizer(&name));
    w.collect_garbage();
    w.settle();
    assert!(w.claim_names().is_empty());
}

/// The same group, all of whose Pods already have a node: one reservation, not five thousand.
#[test]
fn a_group_of_pods_on_nodes_is_reserved_with_one_write() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(group("g").templated("e", "t"));
    for n in 0..300 {
        w.put(pod(&format!("p{n}")).templated("e", "t").member_of("g").on("node"));
    }
    w.settle();
    let name = w.only_claim_of(&uid, "e");
    assert_eq!(w.requests(Verb::Reserve), 0, "never allocated by us (D43)");
    w.edit(Kind::Claim, &name, |c| c["status"]["allocation"] = json!({}));
    w.settle();
    assert_eq!(w.reserved(&name), ["g"]);
    assert_eq!(w.requests(Verb::Reserve), 1);
}

/// dra/ShareResourceClaimSequentially: 256 Pods share a claim, ten wait; the 256 are force-deleted, the ten follow.
#[test]
fn the_places_of_256_deleted_pods_are_free_for_the_next_ones() {
    let mut w = World::default();
    w.put(claim("c"));
    for n in 0..266 {
        w.put(pod(&format!("p{n}")).direct("e", "c"));
    }
    w.settle();
    let placed = (0..266).filter(|n| w.schedule(&format!("p{n}"))).count();
    assert_eq!(placed, 256);
    w.settle();
    for n in 0..256 {
        w.vanish(Kind::Pod, &format!("p{n}"));
    }
    w.settle();
    assert!(w.reserved("c").is_empty() && !w.is_allocated("c"));
    assert!(w.requests(Verb::Release) <= 256);
    for n in 256..266 {
        assert!(w.schedule(&format!("p{n}")));
    }
    w.settle();
    assert_eq!(w.reserved("c").len(), 10);
}

/// kubernetes #141276 and D23: a thousand finished Pods cost a release, a finalizer and a deletion each, and
/// restarts cost nothing.
#[test]
fn a_job_of_many_pods_leaves_nothing_behind_and_restarts_cost_nothing() {
    let mut w = World::default();
    w.put(template("t"));
    for n in 0..300 {
        w.put(pod(&format!("p{n}")).templated("e", "t"));
    }
    w.settle();
    for n in 0..300 {
        assert!(w.schedule(&format!("p{n}")));
    }
    w.settle();
    for n in 0..300 {
        w.phase(&format!("p{n}"), if n % 2 == 0 { "Succeeded" } else { "Failed" });
    }
    w.settle();
    assert!(w.claim_names().is_empty());
    let counts = [Verb::Create, Verb::RecordPod, Verb::Release, Verb::RemoveFinalizer, Verb::Delete];
    assert_eq!(counts.map(|verb| w.requests(verb)), [300; 5]);
    let requests = w.driver.requests.clone();
    w.restart();
    w.run_for(MINUTE);
    assert_eq!(w.driver.requests, requests);
}

/// X2 and X3 of documented-behaviour.md: a group with a claim and a template, then a Pod with four entries.
#[test]
fn the_documented_training_group_works_as_printed() {
    let mut w = World::default();
    w.put(claim("my-pg-claim"));
    w.put(claim("my-pod-claim"));
    let group_uid = w.put(
        group("training-group")
            .direct("pg-claim", "my-pg-claim")
            .templated("pg-claim-template", "my-pg-template"),
    );
    w.settle();
    assert!(w.was_told("PodGroup ns/training-group", REASON_CREATION, "my-pg-template"));
    w.put(template("my-pg-template"));
    w.put(template("my-pod-template"));
    w.settle();
    let group_claim = w.only_claim_of(&group_uid, "pg-claim-template");
    assert_eq!(w.recorded(Kind::PodGroup, "training-group"), map([("pg-claim-template", &group_claim)]));
    assert!(!w.claims_of(&group_uid).contains_key("pg-claim"));

    let pod_uid = w.put(
        pod("training-group-pod-1")
            .direct("pod-claim", "my-pod-claim")
            .templated("pod-claim-template", "my-pod-template")
            .direct("pg-claim", "my-pg-claim")
            .templated("pg-claim-template", "my-pg-template")
            .member_of("training-group"),
    );
    w.settle();
    let pod_claim = w.only_claim_of(&pod_uid, "pod-claim-template");
    assert_eq!(
        w.recorded(Kind::Pod, "training-group-pod-1"),
        map([("pg-claim-template", &group_claim), ("pod-claim-template", &pod_claim)]),
    );
    assert!(w.schedule("training-group-pod-1"));
    w.settle();
    let reserved = |w: &World| {
        ["my-pod-claim", pod_claim.as_str(), "my-pg-claim", group_claim.as_str()].map(|c| w.reserved(c))
    };
    assert_eq!(
        reserved(&w).concat(),
        ["training-group-pod-1", "training-group-pod-1", "training-group", "training-group"]
    );
    w.vanish(Kind::Pod, "training-group-pod-1");
    w.settle();
    assert_eq!(reserved(&w).concat(), ["training-group", "training-group"]);
    assert!(!w.is_allocated("my-pod-claim") && !w.is_allocated(&pod_claim));
    w.vanish(Kind::PodGroup, "training-group");
    w.settle();
    assert!(reserved(&w).concat().is_empty());
    assert!(!w.is_allocated("my-pg-claim") && !w.is_allocated(&group_claim));
    w.collect_garbage();
    w.settle();
    assert_eq!(w.claim_names(), ["my-pg-claim", "my-pod-claim"]);
}

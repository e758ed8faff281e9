//! Spec §10: what the in-tree controller gets wrong, one test each; in-tree behaviour would fail it.

use std::{collections::BTreeMap, time::Duration};

use dra_controllers::{
    plan::Action,
    resourceclaim::{Gate, Gates, REASON_CREATION, REASON_RESERVATION},
};
use serde_json::json;

use crate::common::{
    ALL_ON, World, claim_key, driver::Verb, group_key, map, objects::*, pod_key, server::Kind,
    server::Refusal,
};

const MINUTE: Duration = Duration::from_mins(1);

fn ran_and_finished(w: &mut World, name: &str) {
    w.put(pod(name).templated("e", "t"));
    w.settle();
    assert!(w.schedule(name));
    w.settle();
    w.phase(name, "Succeeded");
    w.settle();
}

/// 1a: in-tree made a new claim for each later event of a finished Pod, and for each restart.
#[test]
fn a_finished_pod_never_gets_another_claim() {
    let mut w = World::default();
    w.put(template("t"));
    ran_and_finished(&mut w, "p");
    assert!(w.claim_names().is_empty());
    let (before, recorded) = (w.writes(), w.recorded(Kind::Pod, "p"));
    for n in 0..3 {
        w.edit(Kind::Pod, "p", |p| p["metadata"]["labels"] = json!({"n": n.to_string()}));
        w.edit(Kind::Template, "t", |t| t["metadata"]["labels"] = json!({"n": n.to_string()}));
        w.settle();
        w.restart();
        w.settle();
    }
    w.vanish(Kind::Template, "t");
    w.resync();
    w.settle();
    assert_eq!(w.writes(), before);
    assert_eq!(w.recorded(Kind::Pod, "p"), recorded, "nor is its record touched");
    assert!(w.driver.told.is_empty());
    assert_eq!(w.requests(Verb::GetClaim), 0, "nor is its old claim looked up");
}

/// 1b: in-tree reserved a shared claim again for the finished Pod and released it, 236 writes in 10 s.
#[test]
fn a_finished_pod_on_a_node_is_never_reserved_again() {
    let mut w = World::default();
    w.put(claim("shared"));
    for name in ["done", "goes-on"] {
        w.put(pod(name).direct("e", "shared").on("node"));
    }
    w.settle();
    let uid = w.uid(Kind::Pod, "goes-on");
    w.allocate("shared", pod_consumer("goes-on", &uid));
    w.settle();
    assert_eq!(w.reserved("shared"), ["goes-on", "done"]);
    let before = w.writes();
    w.phase("done", "Succeeded");
    w.run_for(MINUTE);
    w.restart();
    w.run_for(MINUTE);
    assert_eq!(w.writes(), before + 1, "one release");
    assert_eq!(w.reserved("shared"), ["goes-on"]);
}

/// 2: in-tree's applies of a group with a recorded and an unrecorded entry evicted each other for ever.
#[test]
fn a_groups_status_is_applied_whole_and_sorted() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(group("g").templated("b", "t").templated("a", "t"));
    w.settle();
    let (a, b) = (w.only_claim_of(&uid, "a"), w.only_claim_of(&uid, "b"));
    assert_eq!(w.recorded(Kind::PodGroup, "g"), map([("a", &a), ("b", &b)]));
    let before = w.requests(Verb::RecordGroup);
    // One entry is lost from the status.
    w.edit(Kind::PodGroup, "g", |g| {
        g["status"]["resourceClaimStatuses"] = json!([{"name": "b", "resourceClaimName": b}]);
    });
    w.run_for(MINUTE);
    assert_eq!(w.recorded(Kind::PodGroup, "g"), map([("a", &a), ("b", &b)]));
    assert_eq!(w.requests(Verb::RecordGroup), before + 1);
    let list = &w.get(Kind::PodGroup, "g").unwrap()["status"]["resourceClaimStatuses"];
    assert_eq!(list.as_array().map(Vec::len), Some(2));
}

/// 3: in-tree did not notice for an hour that a claim it had made was deleted.
#[test]
fn a_claim_that_somebody_deletes_is_made_again_at_once() {
    for owner in [pod("o").templated("e", "t"), group("o").templated("e", "t")] {
        let kind = owner.kind;
        let mut w = World::default();
        w.put(template("t"));
        let uid = w.put(owner);
        w.settle();
        let first = w.only_claim_of(&uid, "e");
        w.run_for(Duration::from_secs(5));
        w.delete(Kind::Claim, &first);
        w.run_for(Duration::from_secs(1));
        let second = w.only_claim_of(&uid, "e");
        assert_ne!(first, second);
        assert_eq!(w.recorded(kind, "o"), map([("e", &second)]));
    }
}

/// 4: in-tree cut a name behind a dot, which the API server refused for ever.
#[test]
fn a_pod_name_cut_at_a_dot_still_gives_a_claim() {
    let name = format!("{}.{}", "a".repeat(40), "b".repeat(19));
    let entry = "c".repeat(20);
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod(&name).templated(&entry, "t"));
    w.settle();
    assert!(w.only_claim_of(&uid, &entry).starts_with(&format!("{}-ccc", "a".repeat(40))));
    assert_eq!(w.requests(Verb::Create), 1);
}

/// 5: in-tree retried for ever (workload claims off) or dropped the Pod in silence (generic workload off).
#[test]
fn a_gate_that_is_off_is_said_once_and_not_retried() {
    let off = [
        (Gates { workload_resource_claims: Gate::Off, ..ALL_ON }, "DRAWorkloadResourceClaims"),
        (
            Gates { generic_workload: Gate::Off, workload_resource_claims: Gate::Off, ..ALL_ON },
            "GenericWorkload",
        ),
    ];
    for (gates, name) in off {
        let mut w = World::new(gates);
        w.put(template("t"));
        w.put(group("g").templated("e", "t"));
        w.settle();
        w.put(pod("p").templated("e", "t").member_of("g"));
        w.run_for(10 * MINUTE);
        assert_eq!(w.writes(), 0);
        assert!(w.was_told("Pod ns/p", REASON_CREATION, name), "{:?}", w.driver.told);
        let times: usize = w.driver.told.values().sum();
        assert_eq!(times, 1, "{:?}", w.driver.told);
    }
}

/// 6: in-tree's first sync of a Pod that already had a node always failed.
#[test]
fn the_first_sync_of_a_pod_on_a_node_succeeds() {
    let mut w = World::default();
    w.put(template("t"));
    w.put(pod("p").templated("e", "t").on("node"));
    w.seen();
    assert!(w.sync(&pod_key("p")));
    assert_eq!(w.recorded(Kind::Pod, "p").len(), 1);
    assert_eq!(w.writes(), 2);
}

/// 7: in-tree deleted without preconditions, again while the claim was terminating, and took 404 for an error.
#[test]
fn a_claim_is_deleted_once_and_only_as_it_was_seen() {
    // Once, although it terminates for a while.
    let mut w = World::default();
    w.put(template("t"));
    w.put(pod("p").templated("e", "t"));
    w.settle();
    w.schedule("p");
    w.settle();
    let name = w.claim_names().remove(0);
    w.edit(Kind::Claim, &name, |c| push(c, "metadata", "finalizers", json!("example.com/hold")));
    w.settle();
    w.phase("p", "Failed");
    w.settle();
    assert!(!w.claim(&name)["metadata"]["deletionTimestamp"].is_null());
    w.resync();
    w.run_for(MINUTE);
    assert_eq!(w.requests(Verb::Delete), 1);

    // Gone meanwhile: no failure. Another one of the name meanwhile: not touched.
    for replaced in [false, true] {
        let mut w = World::default();
        w.put(pod("p").phase("Failed"));
        let uid = w.uid(Kind::Pod, "p");
        w.put(claim("c").generated_for("p", &uid, "e"));
        w.seen();
        w.vanish(Kind::Claim, "c");
        if replaced {
            w.put(claim("c"));
        }
        assert!(w.sync(&claim_key("c")));
        w.settle();
        assert_eq!(w.get(Kind::Claim, "c").is_some(), replaced);
        assert_eq!(w.requests(Verb::Delete), 1);
    }

    // In use again by the time the request arrives: not deleted.
    let mut w = World::default();
    w.put(pod("p").phase("Failed"));
    let uid = w.uid(Kind::Pod, "p");
    w.put(claim("c").generated_for("p", &uid, "e"));
    w.put(pod("q").direct("e", "c"));
    w.seen();
    let q = w.uid(Kind::Pod, "q");
    w.allocate("c", pod_consumer("q", &q));
    w.sync(&claim_key("c"));
    assert_eq!(w.requests(Verb::Delete), 1);
    w.settle();
    assert!(w.claim("c")["metadata"]["deletionTimestamp"].is_null());
    w.phase("q", "Succeeded");
    w.settle();
    assert!(w.claim_names().is_empty(), "owner done and nothing reserved (D10)");
}

/// 8: in-tree's status apply could hit a Pod that replaced the one it was meant for.
#[test]
fn a_replaced_pod_is_not_given_the_old_ones_claims() {
    let mut w = World::default();
    w.put(template("t"));
    let old = w.put(pod("p").templated("e", "t"));
    let mut replaced = false;
    w.driver.meddle = Some(Box::new(move |server, action| {
        if matches!(action, Action::Record { .. }) && !replaced {
            replaced = true;
            server.vanish(Kind::Pod, &dra_api::ObjectKey::new(NS, "p"));
            server.create(Kind::Pod, pod("p").templated("e", "t").body).unwrap();
        }
    }));
    w.settle();
    let new = w.uid(Kind::Pod, "p");
    assert_ne!(old, new);
    let claim = w.only_claim_of(&new, "e");
    let lists: Vec<BTreeMap<String, String>> = w.server.recorded[&new].clone();
    assert_eq!(lists, [map([]), map([("e", &claim)])], "never the old one's claim");
    assert!(w.claims_of(&old).is_empty(), "the old one's claim is deleted: its owner was replaced");
}

/// 9: in-tree polled for a missing group with a back-off of up to 1000 s, and a group without claims woke nobody.
#[test]
fn pods_wait_for_their_group_without_polling_and_are_woken_by_it() {
    let mut w = World::default();
    w.put(template("t"));
    w.put(pod("p").templated("e", "t").member_of("g"));
    w.put(pod("done").templated("e", "t").member_of("g").phase("Succeeded"));
    w.settle();
    let asked = w.driver.requests.clone();
    w.run_for(20 * MINUTE);
    assert_eq!(w.driver.requests, asked, "no polling");
    w.put(group("g"));
    w.run_for(Duration::from_secs(1));
    let name = w.only_claim_of(&w.uid(Kind::Pod, "p"), "e");
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &name)]));
    assert!(w.claims_of(&w.uid(Kind::Pod, "done")).is_empty());
}

/// 10: in-tree stopped at the first entry that failed and did not record the others.
#[test]
fn one_entry_that_fails_does_not_hold_up_the_others() {
    // A missing template between two good ones, and an entry that we do not understand.
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated("a", "t").templated("b", "late").neither("c").templated("d", "t"));
    w.settle();
    let (a, d) = (w.only_claim_of(&uid, "a"), w.only_claim_of(&uid, "d"));
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("a", &a), ("d", &d)]));
    assert!(w.was_told("Pod ns/p", REASON_CREATION, "PodResourceClaim b:"));
    assert!(w.was_told("Pod ns/p", REASON_CREATION, "PodResourceClaim c:"));

    // A create request that keeps failing.
    let mut w = World::default();
    w.put(template("t"));
    w.put(template("bad"));
    let uid = w.put(pod("p").templated("a", "bad").templated("b", "t"));
    w.fail(Verb::Create, "ns/p a", Refusal::Invalid("quota".to_owned()), 5);
    w.seen();
    assert!(!w.sync(&pod_key("p")));
    let b = w.only_claim_of(&uid, "b");
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("b", &b)]));
    w.settle();
    assert_eq!(w.recorded(Kind::Pod, "p").len(), 2);

    // A claim that cannot be looked up.
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated("a", "t").templated("b", "t").recorded("a", Some("lost")));
    w.fail(Verb::GetClaim, "ns/lost", Refusal::Internal, 1);
    w.seen();
    assert!(!w.sync(&pod_key("p")));
    let b = w.only_claim_of(&uid, "b");
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("a", "lost"), ("b", &b)]));
}

/// 11, first half: a relist that merges deletion and re-creation of a Pod into one update.
#[test]
fn a_pod_that_is_replaced_between_two_lists_gives_its_claim_back() {
    let mut w = World::default();
    w.put(template("t"));
    w.put(claim("shared"));
    let old = w.put(pod("p").templated("e", "t").direct("s", "shared"));
    w.settle();
    w.schedule("p");
    w.settle();
    let first = w.only_claim_of(&old, "e");
    w.vanish(Kind::Pod, "p");
    let new = w.put(pod("p").templated("e", "t").direct("s", "shared"));
    w.relist(Kind::Pod);
    w.settle();
    assert!(w.get(Kind::Claim, &first).is_none());
    assert!(w.reserved("shared").is_empty() && !w.is_allocated("shared"));
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &w.only_claim_of(&new, "e"))]));
    assert_eq!(w.requests(Verb::GetPod), 0, "the replacement was seen");
}

/// 11, second half: a Pod whose only problem is that somebody else owns its recorded claim.
#[test]
fn a_pod_whose_recorded_claim_is_somebody_elses_is_queued_by_its_own_event() {
    let mut w = World::default();
    w.put(template("t"));
    w.put(claim("foreign"));
    w.settle();
    let uid = w.put(pod("p").templated("e", "t").recorded("e", Some("foreign")));
    w.settle();
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &w.only_claim_of(&uid, "e"))]));
}

/// 12: in-tree looked up every unknown consumer again on each event of the claim, one after another, and ran the
/// handlers of all n Pods of a claim for each of their n reservations.
#[test]
fn consumers_are_looked_up_once_and_growing_reservations_wake_nobody() {
    let mut w = World::default();
    let consumers: Vec<_> = (0..200).map(|n| pod_consumer(&format!("p{n}"), &format!("u{n}"))).collect();
    for n in 0..100 {
        w.put(pod(&format!("p{n}")).uid(&format!("u{n}")).direct("e", "c").on("node"));
    }
    // Pods 100 to 199 are gone. The watch shows the claim before any Pod.
    w.server.lag.insert(Kind::Pod, MINUTE);
    w.seen();
    w.put(consumers.into_iter().fold(claim("c").allocated(), Draft::reserved_for));
    w.settle();
    assert_eq!(w.reserved("c").len(), 100);
    assert_eq!(w.requests(Verb::Release), 1, "a hundred consumers in one write");
    let asked = w.requests(Verb::GetPod);
    assert!(asked <= 200, "{asked}");
    for n in 0..5 {
        w.edit(Kind::Claim, "c", |c| c["metadata"]["labels"] = json!({"n": n.to_string()}));
        w.settle();
    }
    assert_eq!(w.requests(Verb::GetPod), asked);

    // A reservation that is added queues the claim alone.
    w.put(pod("late").direct("e", "c"));
    w.seen();
    w.allocate("c", pod_consumer("late", "uid-late"));
    assert_eq!(w.triggered(), [claim_key("c")]);
}

/// 13: in-tree retried reservations that the API server refuses, blindly and in silence.
#[test]
fn a_reservation_that_cannot_be_is_said_and_not_tried() {
    // 256 consumers: parked until there is room.
    let mut w = World::default();
    let mut full = claim("full").allocated();
    for n in 0..256 {
        let (name, uid) = (format!("p{n}"), format!("u{n}"));
        w.put(pod(&name).uid(&uid).direct("e", "full").on("node"));
        full = full.reserved_for(pod_consumer(&name, &uid));
    }
    w.put(full);
    w.settle();
    w.put(pod("late").direct("e", "full").on("node"));
    w.run_for(10 * MINUTE);
    assert_eq!(w.requests(Verb::Reserve), 0);
    assert!(w.was_told("Pod ns/late", REASON_RESERVATION, "256 consumers"), "{:?}", w.driver.told);
    w.phase("p17", "Succeeded");
    w.run_for(Duration::from_secs(1));
    assert!(w.reserved("full").contains(&"late".to_owned()));
    assert_eq!((w.requests(Verb::Release), w.requests(Verb::Reserve)), (1, 1));

    // A claim that is being deleted.
    let mut w = World::default();
    w.put(pod("user").uid("u").direct("e", "c").on("node"));
    w.put(claim("c").allocated().reserved_for(pod_consumer("user", "u")).deleting());
    w.put(pod("p").direct("e", "c").on("node"));
    w.run_for(10 * MINUTE);
    assert_eq!(w.writes(), 0);
    assert!(w.was_told("Pod ns/p", REASON_RESERVATION, "is being deleted"), "{:?}", w.driver.told);

    // Devices that the node cannot reach (D43).
    let mut w = World::default();
    w.put(claim("c").allocated_at("near"));
    w.put(pod("far").direct("e", "c").on("far"));
    w.put(pod("near").direct("e", "c").on("near"));
    w.run_for(MINUTE);
    assert_eq!(w.reserved("c"), ["near"]);
    assert!(w.was_told("Pod ns/far", REASON_RESERVATION, "cannot reach"), "{:?}", w.driver.told);
}

/// 14: in-tree wrote whole objects from a stale cache; what must never happen is that an allocation is cleared while
/// somebody adds a consumer.
#[test]
fn an_allocation_is_never_cleared_while_a_consumer_is_being_added() {
    let mut w = World::default();
    w.put(pod("late").uid("uid-late").direct("e", "c"));
    w.put(claim("c").allocated().reserved_for(pod_consumer("gone", "uid-gone")));
    w.seen();
    let mut once = true;
    w.driver.meddle = Some(Box::new(move |server, action| {
        if matches!(action, Action::Release { .. }) && std::mem::take(&mut once) {
            let key = dra_api::ObjectKey::new(NS, "c");
            server
                .change(Kind::Claim, &key, None, |c| {
                    push(c, "status", "reservedFor", pod_consumer("late", "uid-late"));
                    c["status"]["conditions"] = json!("not ours");
                })
                .unwrap();
        }
    }));
    w.sync(&claim_key("c"));
    w.settle();
    assert_eq!(w.reserved("c"), ["late"]);
    assert!(w.is_allocated("c"));
    assert_eq!(w.claim("c")["status"]["conditions"], "not ours", "nothing else is overwritten");
    assert_eq!(w.requests(Verb::Release), 2);
}

/// 15: in-tree's events named the random suffix or an empty claim, so that no two were alike.
#[test]
fn the_same_trouble_is_told_in_the_same_words() {
    let mut w = World::default();
    w.put(pod("p").templated("e", "t").neither("odd"));
    for n in 0..10 {
        w.edit(Kind::Pod, "p", |p| p["metadata"]["labels"] = json!({"n": n.to_string()}));
        w.settle();
    }
    w.restart();
    w.settle();
    assert_eq!(w.driver.told.len(), 2, "one text for each entry: {:?}", w.driver.told);
    assert!(w.driver.told.keys().all(|(_, _, note)| !note.contains("  ") && !note.contains(" : ")));
}

/// 16: in-tree explained with placeholders that were never filled in.
#[test]
fn explanations_name_what_they_are_about() {
    let mut w = World::default();
    w.put(claim("unallocated"));
    w.put(
        claim("deleting")
            .allocated()
            .deleting()
            .finalizer("example.com/hold")
            .reserved_for(json!({"resource": "pods", "name": "gone", "uid": "gone"}))
            .reserved_for(json!({"apiGroup": "foo.com", "resource": "foo", "name": "f", "uid": "f"})),
    );
    let entries = ["no-template", "unallocated", "deleting"];
    w.put(
        pod("p").templated("a", "no-template").direct("b", "unallocated").direct("c", "deleting").on("node"),
    );
    w.put(pod("q").templated("a", "t").member_of("no-group"));
    w.settle();
    let why = w.why(&pod_key("p"));
    for name in entries {
        assert!(why.contains(&format!("\"{name}\"")), "{name} in {why}");
    }
    assert!(w.why(&pod_key("q")).contains("\"no-group\""));
    assert!(w.why(&claim_key("deleting")).contains("foo.foo.com \"f\""));
    let all = w.driver.why.values().flatten().chain(w.driver.told.keys().map(|(_, _, note)| note));
    for text in all {
        assert!(!text.contains("%s") && !text.contains("{}") && !text.contains("\"\""), "{text}");
    }
}

/// 17: in-tree adopted and accepted claims that were being deleted.
#[test]
fn a_claim_that_is_being_deleted_is_neither_adopted_nor_kept() {
    for (kind, owner) in
        [(Kind::Pod, pod("o").templated("e", "t")), (Kind::PodGroup, group("o").templated("e", "t"))]
    {
        for recorded in [false, true] {
            let mut w = World::default();
            w.put(template("t"));
            let owner = owner.clone();
            let uid = w.put(if recorded { owner.recorded("e", Some("dying")) } else { owner });
            let dying = claim("dying").finalizer("example.com/hold").deleting();
            w.put(dying.generated_by(kind, "o", &uid, "e"));
            w.settle();
            let name = w.recorded(kind, "o").remove("e").unwrap();
            assert_ne!(name, "dying");
            assert!(w.claim(&name)["metadata"]["deletionTimestamp"].is_null());
            let key = if kind == Kind::Pod { pod_key("o") } else { group_key("o") };
            assert!(w.sync(&key));
            assert_eq!(w.requests(Verb::Create), 1);
        }
    }
}

/// 17, the other side: a claim in use stays its Pod's until the Pod ends, although somebody marked it for deletion.
#[test]
fn a_running_pod_keeps_the_claim_that_somebody_deleted_under_it() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated("e", "t"));
    w.settle();
    w.schedule("p");
    w.settle();
    let name = w.only_claim_of(&uid, "e");
    let before = w.writes();
    w.delete(Kind::Claim, &name);
    w.run_for(MINUTE);
    assert_eq!(w.only_claim_of(&uid, "e"), name);
    assert_eq!(w.writes(), before);
    w.phase("p", "Succeeded");
    w.settle();
    assert!(w.claim_names().is_empty());
}

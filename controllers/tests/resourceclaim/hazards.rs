//! Harm that the contract does not mention, found by the property test; one story each.

use std::time::Duration;

use serde_json::{Value, json};

use dra_controllers::plan::Action;

use crate::common::{
    World, claim_key,
    driver::Verb,
    map,
    objects::*,
    server::{Kind, Refusal},
};

const MINUTE: Duration = Duration::from_mins(1);

/// Pod `p` (and group `g`) of an earlier life is known; its successor has reserved the claim, and the watch of Pods
/// (and groups) is behind the watch of claims.
fn successors(group_too: bool) -> World {
    let mut w = World::default();
    w.put(pod("p").direct("e", "c"));
    w.put(group("g").direct("e", "d"));
    w.put(claim("c"));
    w.put(claim("d"));
    w.settle();
    w.server.lag.insert(Kind::Pod, MINUTE);
    w.server.lag.insert(Kind::PodGroup, MINUTE);
    w.vanish(Kind::Pod, "p");
    let p = w.put(pod("p").direct("e", "c"));
    w.allocate("c", pod_consumer("p", &p));
    if group_too {
        w.vanish(Kind::PodGroup, "g");
        let g = w.put(group("g").direct("e", "d"));
        w.allocate("d", group_consumer("g", &g));
    }
    w
}

#[test]
fn a_new_pod_of_an_old_name_keeps_its_reservation_while_the_old_one_is_still_in_the_view() {
    let mut w = successors(true);
    w.run_for(MINUTE / 2);
    assert_eq!(w.reserved("c"), ["p"]);
    assert_eq!(w.reserved("d"), ["g"]);
    w.run_for(2 * MINUTE);
    assert!(w.is_allocated("c") && w.is_allocated("d"));
    assert_eq!(w.writes(), 0);
}

#[test]
fn a_new_pod_of_an_old_name_keeps_its_reservation_although_a_lookup_did_not_find_the_old_one() {
    let mut w = World::default();
    w.put(claim("c").allocated().reserved_for(pod_consumer("p", "old")));
    w.settle();
    assert!(w.reserved("c").is_empty(), "looked up, and gone");
    w.server.lag.insert(Kind::Pod, MINUTE);
    w.run_for(Duration::from_secs(5));
    let p = w.put(pod("p").direct("e", "c").on("node"));
    w.allocate("c", pod_consumer("p", &p));
    w.run_for(MINUTE / 2);
    assert_eq!(w.reserved("c"), ["p"]);
    assert!(w.is_allocated("c"));
}

#[test]
fn a_new_pod_of_an_old_name_keeps_the_claim_that_the_scheduler_made_for_it() {
    let mut w = World::default();
    w.put(pod("p"));
    w.settle();
    w.server.lag.insert(Kind::Pod, MINUTE);
    w.vanish(Kind::Pod, "p");
    let p = w.put(pod("p"));
    w.put(claim("p-extended-resources-x").owned_by("v1", "Pod", "p", &p).annotated(EXTENDED, "true"));
    w.run_for(MINUTE / 2);
    assert_eq!(w.claim_names(), ["p-extended-resources-x"]);
    w.run_for(MINUTE);
    assert_eq!(w.writes(), 0);
}

/// The other side of it: what is really gone or replaced is taken off, however it became known.
#[test]
fn consumers_that_are_really_gone_go_whichever_way_that_became_known() {
    // Replaced while the manager was down.
    let mut w = World::default();
    w.put(pod("p").direct("e", "c"));
    w.put(claim("c").allocated().reserved_for(pod_consumer("p", "old")));
    w.put(group("g"));
    w.put(claim("d").allocated().reserved_for(group_consumer("g", "old-g")));
    w.restart();
    w.settle();
    assert!(w.reserved("c").is_empty() && w.reserved("d").is_empty());

    // Gone while the manager was down.
    let mut w = World::default();
    w.put(claim("c").allocated().reserved_for(pod_consumer("p", "old")));
    w.put(claim("d").allocated().reserved_for(group_consumer("g", "old-g")));
    w.restart();
    w.settle();
    assert!(w.reserved("c").is_empty() && w.reserved("d").is_empty());

    // Replaced before our eyes.
    let mut w = World::default();
    let p = w.put(pod("p").direct("e", "c"));
    w.put(claim("c").allocated().reserved_for(pod_consumer("p", &p)));
    w.settle();
    w.vanish(Kind::Pod, "p");
    w.put(pod("p").direct("e", "c"));
    w.settle();
    assert!(w.reserved("c").is_empty() && !w.is_allocated("c"));
    assert!(w.sync(&claim_key("c")));
}

/// A consumer entry may be forged or broken: it is kept or dropped by the same rules, and breaks nothing.
#[test]
fn odd_consumers_break_nothing() {
    let odd = [
        json!({"apiGroup": "", "resource": "pods", "name": "p", "uid": ""}),
        json!({"resource": "pods", "name": "", "uid": "u1"}),
        json!({"apiGroup": "v1", "resource": "pods", "name": "p", "uid": "u2"}),
        json!({"apiGroup": "scheduling.k8s.io/v1beta1", "resource": "podgroups", "name": "g", "uid": "u3"}),
        json!({"resource": "Pods", "name": "p", "uid": "u4"}),
    ];
    let mut w = World::default();
    let draft = odd.iter().cloned().fold(claim("c").allocated(), Draft::reserved_for);
    w.put(draft);
    w.settle();
    let left: Vec<_> = w.claim("c")["status"]["reservedFor"].as_array().unwrap().clone();
    assert_eq!(left, odd[2..], "unknown kinds are kept");
}

/// §5-A: status first, finalizer second; when the second request fails it is tried again.
#[test]
fn a_finalizer_that_could_not_be_removed_is_removed_later() {
    for how in [Refusal::Internal, Refusal::Lost, Refusal::Conflict] {
        let mut w = World::default();
        w.put(claim("c").allocated().reserved_for(pod_consumer("p", "uid-p")));
        w.fail(Verb::RemoveFinalizer, "", how, 3);
        w.settle();
        assert!(!w.is_allocated("c") && !w.has_finalizer("c"));
        assert_eq!((w.requests(Verb::Release), w.requests(Verb::RemoveFinalizer)), (1, 4));
    }
}

/// §5, §4.2: the scheduler sets the finalizer and then the allocation. A claim that it allocates again between our two
/// requests keeps its finalizer; so does one for which it has set the finalizer only.
#[test]
fn the_finalizer_of_a_claim_that_is_being_allocated_is_left_alone() {
    let mut w = World::default();
    w.put(pod("next").uid("uid-next").direct("e", "c"));
    w.put(claim("c").allocated().reserved_for(pod_consumer("p", "uid-p")));
    w.put(claim("prepared").finalizer(FINALIZER));
    let mut once = true;
    w.driver.meddle = Some(Box::new(move |server, action| {
        if matches!(action, Action::RemoveFinalizer { .. }) && std::mem::take(&mut once) {
            server
                .change(Kind::Claim, &dra_api::ObjectKey::new(NS, "c"), None, |c| {
                    c["status"]["allocation"] = json!({});
                    c["status"]["reservedFor"] = json!([pod_consumer("next", "uid-next")]);
                })
                .unwrap();
        }
    }));
    w.settle();
    w.restart();
    w.settle();
    assert!(w.has_finalizer("c") && w.is_allocated("c") && w.has_finalizer("prepared"));
    assert_eq!(w.reserved("c"), ["next"]);
    assert_eq!(w.requests(Verb::RemoveFinalizer), 1);
}

/// §5: a claim that was released while it was being deleted by somebody else goes without a second deletion, in
/// whichever order the requests and the watch come.
#[test]
fn a_deletion_that_crosses_our_release_is_no_trouble() {
    for late_answers in [false, true] {
        let mut w = World::default();
        w.put(pod("p").uid("uid-p").direct("e", "c").on("node"));
        w.put(claim("c").allocated().reserved_for(pod_consumer("p", "uid-p")));
        w.settle();
        w.driver.late_answers = late_answers;
        let mut once = true;
        w.driver.meddle = Some(Box::new(move |server, action| {
            if matches!(action, Action::Release { .. }) && std::mem::take(&mut once) {
                server.delete(Kind::Claim, &dra_api::ObjectKey::new(NS, "c"), None).unwrap();
            }
        }));
        w.phase("p", "Succeeded");
        w.settle();
        assert!(w.claim_names().is_empty());
        assert_eq!(w.driver.view.claims.len(), 0);
        assert_eq!(w.requests(Verb::Delete), 0);
    }
}

/// §4.3, unlike in-tree, which gives up on the whole claim: a consumer that cannot be looked up stays and is asked about
/// again; those that are known to be gone do not wait for it.
#[test]
fn a_consumer_that_cannot_be_looked_up_does_not_hold_up_the_others() {
    let mut w = World::default();
    w.put(pod("done").uid("uid-done").direct("e", "c").on("node").phase("Failed"));
    w.put(
        claim("c")
            .allocated()
            .reserved_for(pod_consumer("unknown", "uid-unknown"))
            .reserved_for(pod_consumer("done", "uid-done"))
            .reserved_for(pod_consumer("gone", "uid-gone")),
    );
    w.fail(Verb::GetPod, "ns/unknown", Refusal::Internal, 5);
    w.seen();
    assert!(!w.sync(&claim_key("c")));
    assert_eq!(w.reserved("c"), ["unknown"]);
    assert!(w.is_allocated("c"));
    w.settle();
    assert!(w.reserved("c").is_empty() && !w.is_allocated("c"));
    assert_eq!(w.requests(Verb::GetPod), 7, "each failure is one question");
}

/// DEVIATIONS, "duplicate generated claims": a claim that a lost answer left behind is deleted once the owner's status
/// names another one for the entry; in-tree leaves it until the Pod goes.
#[test]
fn of_two_claims_for_one_entry_the_unused_unrecorded_one_is_deleted() {
    for kind in [Kind::Pod, Kind::PodGroup] {
        let mut w = with_two_claims(kind, |_| {}, |_| {});
        w.settle();
        assert_eq!(w.claim_names(), ["used"]);
        assert_eq!((w.requests(Verb::Delete), w.writes()), (1, 1));
    }
}

/// Each of the three may become known last: the owner with its record, the recorded claim, and the one too many.
#[test]
fn of_two_claims_for_one_entry_one_goes_in_whatever_order_they_become_known() {
    for kind in [Kind::Pod, Kind::PodGroup] {
        for claims in [["used", "other"], ["other", "used"]] {
            for (owner_lag, claim_lag) in [(0, 0), (0, 2), (1, 0), (1, 2), (3, 2)] {
                let mut w = World::default();
                let owner = if kind == Kind::Pod { pod("o") } else { group("o") };
                w.server.lag.insert(kind, Duration::from_secs(owner_lag));
                let uid = w.put(owner.templated("e", "t").recorded("e", Some("used")));
                for (name, lag) in claims.into_iter().zip([0, claim_lag]) {
                    w.server.lag.insert(Kind::Claim, Duration::from_secs(lag));
                    w.put(claim(name).generated_by(kind, "o", &uid, "e"));
                }
                w.settle();
                let case = format!("{kind:?} seen after {owner_lag} s, {} after {claim_lag} s", claims[1]);
                assert_eq!((w.claim_names(), w.writes()), (vec!["used".to_owned()], 1), "{case}");
            }
        }
    }
}

/// Two managers whose watches show different things would otherwise replace each other's records as fast as they can.
#[test]
fn a_record_of_another_manager_is_replaced_only_after_the_claim_was_asked_for() {
    // The view still has the claim of that name that an earlier Pod had.
    let mut w = World::default();
    w.put(template("t"));
    w.put(claim("same").generated_for("p", "uid-before", "e"));
    w.seen();
    w.server.lag.insert(Kind::Claim, MINUTE);
    w.vanish(Kind::Claim, "same");
    w.put(claim("same").generated_for("p", "uid-p", "e"));
    w.put(pod("p").uid("uid-p").templated("e", "t").recorded("e", Some("same")));
    w.run_for(2 * MINUTE);
    assert_eq!((w.recorded(Kind::Pod, "p"), w.writes()), (map([("e", "same")]), 0));

    // It was not there when we looked, and has been made since.
    let mut w = World::default();
    w.put(template("t"));
    w.put(pod("p").uid("uid-p").templated("e", "t").recorded("e", Some("late")));
    w.settle();
    assert_eq!(w.requests(Verb::RecordPod), 1);
    w.server.lag.insert(Kind::Claim, MINUTE);
    w.put(claim("late").generated_for("p", "uid-p", "e"));
    w.edit(Kind::Pod, "p", |p| p["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = json!("late"));
    w.run_for(2 * MINUTE);
    assert_eq!((w.recorded(Kind::Pod, "p"), w.requests(Verb::RecordPod)), (map([("e", "late")]), 1));
    assert_eq!(w.claim_names(), ["late"], "ours is one too many");
}

/// A manager that does not know yet of a record replaces it, and a scheduler has already bound the Pod with what it named:
/// by the record the kubelet would wait for a claim that nobody allocates any more.
#[test]
fn the_claim_with_which_a_pod_was_bound_is_recorded_instead_of_an_unused_one() {
    for (kind, later) in
        [(Kind::Pod, false), (Kind::Pod, true), (Kind::PodGroup, false), (Kind::PodGroup, true)]
    {
        let bind = if kind == Kind::Pod { bind } else { bind_group };
        let mut w = with_two_claims(
            kind,
            |_| {},
            |c| {
                if !later {
                    bind(c);
                }
            },
        );
        w.put(pod("member").templated("e", "t").member_of("o").recorded("e", Some("used")));
        if kind == Kind::Pod {
            w.edit(Kind::Pod, "o", |p| p["spec"]["nodeName"] = json!("node"));
        }
        if later {
            w.seen();
            w.edit(Kind::Claim, "other", bind);
        }
        w.settle();
        assert_eq!(w.recorded(kind, "o"), map([("e", "other")]), "{kind:?} {later}");
        assert_eq!(w.claim_names(), ["other"], "{kind:?} {later}");
        if kind == Kind::PodGroup {
            assert_eq!(w.recorded(Kind::Pod, "member"), map([("e", "other")]));
        }
        let rest = w.writes();
        w.resync();
        w.settle();
        assert_eq!(w.writes(), rest);
    }
}

fn bind(claim: &mut Value) {
    claim["status"] =
        json!({"allocation": {"devices": {"results": []}}, "reservedFor": [pod_consumer("o", "uid-o")]});
}

fn bind_group(claim: &mut Value) {
    bind(claim);
    claim["status"]["reservedFor"] = json!([group_consumer("o", "uid-o")]);
}

/// While the scheduler may still allocate the recorded one, or has, or the other cannot be used on the node, the record
/// stays.
#[test]
fn a_claim_that_a_pod_may_not_have_been_bound_with_is_not_recorded() {
    let stays = |what: &str, recorded: fn(&mut Value), other: fn(&mut Value), node: Value| {
        let mut w = with_two_claims(Kind::Pod, recorded, other);
        w.edit(Kind::Pod, "o", |p| p["spec"]["nodeName"] = node);
        w.settle();
        w.resync();
        w.settle();
        assert_eq!(w.recorded(Kind::Pod, "o"), map([("e", "used")]), "{what}");
        assert_eq!(w.claim_names(), ["other", "used"], "{what}");
    };
    stays("without a node", |_| {}, bind, Value::Null);
    stays(
        "allocated",
        |c| c["status"]["allocation"] = json!({"devices": {"results": []}}),
        bind,
        json!("node"),
    );
    stays(
        "out of reach",
        |_| {},
        |c| {
            bind(c);
            c["status"]["allocation"]["nodeSelector"] = json!({"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": ["elsewhere"]}]}]});
        },
        json!("node"),
    );
}

/// A view that is behind says that the other one is in use; the record names the right one.
#[test]
fn a_record_is_not_replaced_by_what_was_in_use_a_while_ago() {
    let mut w = with_two_claims(Kind::Pod, |_| {}, bind);
    w.seen();
    w.server.lag.insert(Kind::Claim, MINUTE);
    w.edit(Kind::Claim, "other", |c| c["status"] = json!({}));
    w.edit(Kind::Claim, "used", bind);
    w.edit(Kind::Pod, "o", |p| p["spec"]["nodeName"] = json!("node"));
    w.run_for(2 * MINUTE);
    assert_eq!(w.recorded(Kind::Pod, "o"), map([("e", "used")]));
    assert_eq!(w.requests(Verb::RecordPod), 0);

    // Also when we had asked for the recorded one shortly before the Pod was bound with it.
    let mut w = World::default();
    w.put(template("t"));
    w.put(claim("other").generated_for("o", "uid-o", "e"));
    w.edit(Kind::Claim, "other", bind);
    w.seen();
    w.server.lag.insert(Kind::Claim, MINUTE);
    w.put(claim("used").generated_for("o", "uid-o", "e"));
    w.put(pod("o").uid("uid-o").templated("e", "t").recorded("e", Some("used")));
    w.run_for(Duration::from_secs(1));
    assert_eq!(w.requests(Verb::GetClaim), 1);
    w.edit(Kind::Claim, "used", bind);
    w.edit(Kind::Pod, "o", |p| p["spec"]["nodeName"] = json!("node"));
    w.run_for(2 * MINUTE);
    assert_eq!(w.recorded(Kind::Pod, "o"), map([("e", "used")]));
    assert_eq!(w.requests(Verb::RecordPod), 0);
}

/// A scheduler sets the finalizer before it allocates. If it gives up then, nobody ever takes the finalizer off again.
#[test]
fn of_two_claims_for_one_entry_the_one_that_a_scheduler_gave_up_is_deleted_too() {
    for kind in [Kind::Pod, Kind::PodGroup] {
        let mut w = with_two_claims(kind, |_| {}, |c| push(c, "metadata", "finalizers", json!(FINALIZER)));
        w.settle();
        assert_eq!(w.claim_names(), ["used"]);
        assert_eq!(w.writes(), 2, "the deletion, and the finalizer");
    }
}

/// If it has not given up, one of the two loses, and it is not the one that allocates first.
#[test]
fn a_second_claim_that_is_allocated_before_its_deletion_arrives_stays() {
    for kind in [Kind::Pod, Kind::PodGroup] {
        let mut w = with_two_claims(kind, |_| {}, |c| push(c, "metadata", "finalizers", json!(FINALIZER)));
        w.seen();
        w.server.lag.insert(Kind::Claim, MINUTE);
        w.edit(Kind::Claim, "other", |c| c["status"]["allocation"] = json!({}));
        w.sync(&claim_key("other"));
        w.run_for(2 * MINUTE);
        assert_eq!(w.claim_names(), ["other", "used"]);
        assert!(w.is_allocated("other"));
    }
}

/// The other side: what somebody has is theirs, and what may still be needed stays.
#[test]
fn a_second_claim_that_is_used_or_may_be_needed_stays() {
    for kind in [Kind::Pod, Kind::PodGroup] {
        let stays = |what: &str, recorded: &mut dyn FnMut(&mut Value), other: &mut dyn FnMut(&mut Value)| {
            let mut w = with_two_claims(kind, recorded, other);
            // Whichever is looked at first.
            w.seen();
            w.sync(&claim_key("other"));
            w.resync();
            w.settle();
            assert!(w.get(Kind::Claim, "other").is_some(), "{what}");
            assert_eq!(w.requests(Verb::Delete), 0, "{what}");
        };
        stays("allocated", &mut |_| {}, &mut |c| c["status"]["allocation"] = json!({}));
        stays("made by the scheduler", &mut |_| {}, &mut |c| {
            c["metadata"]["annotations"][EXTENDED] = json!("true");
        });
        stays("for another entry", &mut |_| {}, &mut |c| {
            c["metadata"]["annotations"][ANNOTATION] = json!("no-entry-of-the-owner");
        });
        stays(
            "the recorded one is somebody else's",
            &mut |c| {
                c["metadata"]["ownerReferences"] = json!([]);
            },
            &mut |_| {},
        );
        stays(
            "the recorded one is for another entry",
            &mut |c| {
                c["metadata"]["annotations"][ANNOTATION] = json!("another");
            },
            &mut |_| {},
        );
        stays(
            "the recorded one is being deleted",
            &mut |c| {
                push(c, "metadata", "finalizers", json!("example.com/hold"));
                c["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            },
            &mut |_| {},
        );
    }
}

/// An owner whose status names claim `used` for its entry, and claim `other` made for the same.
fn with_two_claims(
    kind: Kind,
    edit_recorded: impl FnOnce(&mut Value),
    edit_other: impl FnOnce(&mut Value),
) -> World {
    let mut w = World::default();
    w.put(template("t"));
    let owner = if kind == Kind::Pod { pod("o") } else { group("o") };
    let uid = w.put(owner.uid("uid-o").templated("e", "t").recorded("e", Some("used")));
    let made = |name: &str| claim(name).generated_by(kind, "o", &uid, "e");
    let (mut used, mut other) = (made("used"), made("other"));
    edit_recorded(&mut used.body);
    edit_other(&mut other.body);
    w.put(used);
    w.put(other);
    w
}

/// The same when the claims were there before their owner was seen: one is adopted, and that wakes the other.
#[test]
fn of_two_claims_that_nobody_recorded_one_is_adopted_and_the_other_deleted() {
    for owner in [pod("o").templated("e", "t"), group("o").templated("e", "t")] {
        let kind = owner.kind;
        let mut w = World::default();
        w.put(template("t"));
        for name in ["one", "another", "yet-another"] {
            w.put(claim(name).generated_by(kind, "o", "uid-o", "e"));
        }
        w.settle();
        assert_eq!(w.writes(), 0, "the owner may not be known yet");
        w.put(owner.uid("uid-o"));
        w.settle();
        assert_eq!(w.claim_names(), ["another"], "the lowest name, every time");
        assert_eq!(w.recorded(kind, "o"), map([("e", "another")]));
    }
}

/// Of several claims the one in use is adopted, whatever its name.
#[test]
fn of_two_claims_that_nobody_recorded_the_one_in_use_is_adopted() {
    let mut w = World::default();
    w.put(template("t"));
    w.put(claim("a").generated_for("o", "uid-o", "e"));
    w.put(claim("b").generated_for("o", "uid-o", "e").allocated().reserved_for(pod_consumer("o", "uid-o")));
    w.put(claim("c").generated_for("o", "uid-o", "e").allocated());
    w.put(pod("o").uid("uid-o").templated("e", "t").on("node"));
    w.settle();
    assert_eq!(w.recorded(Kind::Pod, "o"), map([("e", "b")]));
    assert_eq!(w.claim_names(), ["b", "c"], "what somebody allocated is not ours to delete");
}

#[test]
fn a_consumer_with_a_name_that_no_object_can_have_is_released_and_its_name_reaches_no_url() {
    for name in ["../secrets/s", "a/b", "P", "..", "p?watch=true"] {
        let mut w = World::default();
        let p = w.put(pod("p").direct("e", "c").on("node").phase("Running"));
        w.put(
            claim("c").allocated().reserved_for(pod_consumer(name, "u")).reserved_for(pod_consumer("p", &p)),
        );
        w.put(claim("d").allocated().reserved_for(group_consumer(name, "u")));
        w.settle();
        assert_eq!(w.reserved("c"), ["p"], "{name}");
        assert!(w.reserved("d").is_empty(), "{name}");
        assert_eq!((w.requests(Verb::GetPod), w.requests(Verb::GetGroup)), (0, 0), "{name}");
    }
}

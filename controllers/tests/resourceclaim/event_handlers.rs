//! Spec §9.2 `TestEventHandlers` and §1.5–§1.8: which keys a change queues, and the gauge of claims.

use dra_api::{ClaimSource, ObjectKey};
use dra_controllers::{
    resourceclaim::{Gate, Gates, Key},
    view::ClaimLabels,
};
use serde_json::{Value, json};

use crate::common::{ALL_ON, World, all_gates, claim_key, group_key, objects::*, pod_key, server::Kind};

const ENTRY: &str = "acme-resource";
const TEMPLATE: &str = "my-template";

const NO_WORKLOAD_CLAIMS: Gates = Gates { workload_resource_claims: Gate::Off, ..ALL_ON };

fn gauge(w: &World) -> Vec<(ClaimLabels, u64)> {
    w.driver.view.claim_counts().collect()
}

fn other_pod(name: &str) -> Key {
    Key::Pod(ObjectKey::new("other-ns", name))
}

fn admin(mut draft: Draft) -> Draft {
    draft.body["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"] = json!(true);
    draft
}

/// nothing → no key, no gauge.
#[test]
fn without_events_nothing_is_queued() {
    let mut w = World::default();
    assert_eq!(w.triggered(), []);
    assert_eq!(gauge(&w), []);
}

/// new-, update-, allocate-, deallocate-, delete-claim: plain, with admin access, for extended resources, from a
/// template (whose gauge label upstream tests elsewhere). Deliberately unlike in-tree, only claims of which
/// something may have to be tidied up are queued: these have the scheduler's finalizer.
#[test]
fn a_claims_events_queue_the_claim_and_move_the_gauge() {
    let cases: [(Draft, bool, ClaimSource); 4] = [
        (claim("c"), false, ClaimSource::User),
        (admin(claim("c")), true, ClaimSource::User),
        (claim("c").annotated(EXTENDED, "true"), false, ClaimSource::ExtendedResource),
        (claim("c").annotated(ANNOTATION, ENTRY), false, ClaimSource::Template),
    ];
    for (draft, is_admin, source) in cases {
        let mut w = World::default();
        w.put(claim("plain"));
        assert_eq!(w.triggered(), [], "nobody's claim without consumers is nobody's business");
        w.vanish(Kind::Claim, "plain");
        w.seen();
        w.put(draft.finalizer(FINALIZER));
        assert_eq!(w.triggered(), [claim_key("c")], "new");
        assert_eq!(gauge(&w), [((false, is_admin, source), 1)]);

        w.edit(Kind::Claim, "c", |c| c["metadata"]["labels"] = json!({"a": "b"}));
        assert_eq!(w.triggered(), [claim_key("c")], "update");
        assert_eq!(gauge(&w), [((false, is_admin, source), 1)]);

        w.edit(Kind::Claim, "c", |c| c["status"]["allocation"] = json!({}));
        assert_eq!(w.triggered(), [claim_key("c")], "allocate");
        assert_eq!(gauge(&w), [((true, is_admin, source), 1)]);

        w.put(claim("another").finalizer(FINALIZER));
        w.seen();
        w.edit(Kind::Claim, "another", |c| c["status"]["allocation"] = json!({}));
        assert_eq!(w.triggered(), [claim_key("another")], "allocate another");
        w.vanish(Kind::Claim, "another");
        w.seen();

        w.edit(Kind::Claim, "c", |c| c["status"]["allocation"] = Value::Null);
        assert_eq!(w.triggered(), [claim_key("c")], "deallocate");
        assert_eq!(gauge(&w), [((false, is_admin, source), 1)]);

        w.vanish(Kind::Claim, "c");
        assert_eq!(w.triggered(), [], "delete");
        assert_eq!(gauge(&w), []);
    }
}

/// The annotation counts with the value "true" only; it wins over the other one; an empty entry name is none.
#[test]
fn the_gauges_source_follows_the_annotations() {
    let cases = [
        (claim("c").annotated(EXTENDED, "false"), ClaimSource::User),
        (claim("c").annotated(ANNOTATION, ""), ClaimSource::User),
        (claim("c").annotated(ANNOTATION, ENTRY).annotated(EXTENDED, "true"), ClaimSource::ExtendedResource),
    ];
    for (draft, source) in cases {
        let mut w = World::default();
        w.put(draft);
        w.seen();
        assert_eq!(gauge(&w), [((false, false, source), 1)]);
    }
}

/// new-pods, new-template-for-pod, new-template-for-pod-other-namespace.
#[test]
fn pods_and_their_templates_queue_pods_of_their_namespace() {
    let mut w = World::default();
    w.put(pod("p").templated(ENTRY, TEMPLATE));
    w.put(pod("p").templated(ENTRY, TEMPLATE).in_namespace("other-ns"));
    assert_eq!(w.triggered(), [pod_key("p"), other_pod("p")]);
    w.put(template(TEMPLATE));
    assert_eq!(w.triggered(), [pod_key("p")]);
    w.put(template(TEMPLATE).in_namespace("other-ns"));
    assert_eq!(w.triggered(), [other_pod("p")]);
    w.edit(Kind::Template, TEMPLATE, |t| t["metadata"]["labels"] = json!({"a": "b"}));
    assert_eq!(w.triggered(), [pod_key("p")]);
    w.vanish(Kind::Template, TEMPLATE);
    assert_eq!(w.triggered(), [], "a template that goes takes nothing with it");
}

/// pod-without-resource-claims, running-pod-with-extended-resource-claim.
#[test]
fn pods_that_need_nothing_queue_nothing() {
    let mut w = World::default();
    w.put(pod("plain"));
    w.put(pod("running").on("node").phase("Running").extended_status("x"));
    assert_eq!(w.triggered(), []);
}

/// A world that has seen these claims.
fn with_claims(gates: Gates, claims: &[&str]) -> World {
    let mut w = World::new(gates);
    for name in claims {
        w.put(claim(name));
    }
    w.seen();
    w
}

/// completed-, failed-, delete-pod-with-extended-resource-claim, whatever the gates. Deliberately unlike in-tree,
/// only claims that are known are queued: another one queues itself when it appears.
#[test]
fn a_pod_that_ends_queues_its_extended_resource_claim() {
    for gates in all_gates() {
        for phase in ["Succeeded", "Failed"] {
            let mut w = with_claims(gates, &["x"]);
            w.put(pod("p").on("node").phase(phase).extended_status("x"));
            assert_eq!(w.triggered(), [claim_key("x")], "{phase}");
        }
        let mut w = with_claims(gates, &["x"]);
        w.put(pod("p").on("node").phase("Running").extended_status("x"));
        w.seen();
        w.vanish(Kind::Pod, "p");
        assert_eq!(w.triggered(), [claim_key("x")], "deleted");

        let mut w = with_claims(gates, &[]);
        w.put(pod("p").on("node").phase("Failed").extended_status("x"));
        assert_eq!(w.triggered(), [], "not known yet");
        w.put(claim("x").finalizer(FINALIZER));
        assert_eq!(w.triggered(), [claim_key("x")], "queues itself");
    }
}

/// completed-pod-with-regular-and-extended-resource-claim. Deliberately unlike in-tree, which queues the Pod too
/// (defect 1a): a finished Pod needs no claim, so only what it holds is queued.
#[test]
fn a_finished_pod_queues_its_claims_and_not_itself() {
    let mut w = with_claims(ALL_ON, &["x"]);
    w.put(pod("p").neither(ENTRY).on("node").phase("Succeeded").extended_status("x"));
    assert_eq!(w.triggered(), [claim_key("x")]);
}

/// §1.5-3: all claims of a Pod that ends: direct, generated, extended; not those it never got (`TestPodClaims`).
#[test]
fn a_pod_that_ends_queues_all_claims_that_it_resolves_to() {
    let draft = || {
        pod("p")
            .direct("a", "hand-made")
            .templated("b", TEMPLATE)
            .templated("c", TEMPLATE)
            .templated("d", TEMPLATE)
            .neither("e")
            .recorded("b", Some("generated"))
            .recorded("c", None)
            .extended_status("x")
    };
    let claims = ["generated", "hand-made", "x", "unrelated"];
    let expected = [claim_key("generated"), claim_key("hand-made"), claim_key("x")];
    let mut w = with_claims(ALL_ON, &claims);
    w.put(draft().on("node").phase("Failed"));
    assert_eq!(w.triggered(), expected, "ended");

    let mut w = with_claims(ALL_ON, &claims);
    w.put(draft().deleting());
    assert_eq!(w.triggered(), expected, "deleted before it had a node");

    let mut w = with_claims(ALL_ON, &claims);
    w.put(draft().on("node"));
    w.seen();
    w.vanish(Kind::Pod, "p");
    assert_eq!(w.triggered(), expected, "gone");
    assert_eq!(w.driver.view.pods.len(), 0);

    let mut w = with_claims(ALL_ON, &claims);
    w.put(draft().on("node").phase("Running").deleting());
    assert_eq!(w.triggered(), [], "a terminating Pod on its node still needs its claims, but no new ones");
}

/// new-podgroup-feature-disabled, podgroup-claim-status-update-feature-disabled.
#[test]
fn groups_queue_nothing_while_workload_claims_are_off() {
    let mut w = World::new(NO_WORKLOAD_CLAIMS);
    w.put(group("g").templated(ENTRY, TEMPLATE));
    assert_eq!(w.triggered(), []);
    w.edit(Kind::PodGroup, "g", |g| {
        push(g, "status", "resourceClaimStatuses", json!({"name": ENTRY, "resourceClaimName": "c"}));
    });
    assert_eq!(w.triggered(), []);
}

/// new-podgroup: its status names a claim that is missing.
#[test]
fn a_group_whose_claim_is_missing_is_queued() {
    let mut w = World::default();
    w.put(group("g").templated(ENTRY, TEMPLATE).recorded(ENTRY, Some("missing")));
    assert_eq!(w.triggered(), [group_key("g")]);
    w.put(group("new").templated(ENTRY, TEMPLATE));
    assert_eq!(w.triggered(), [group_key("new")]);
}

/// new-podgroup-templated-claim-already-exists.
#[test]
fn a_group_whose_claim_is_there_is_not_queued() {
    let mut w = World::default();
    w.put(claim("c").generated_for_group("g", "uid-g", ENTRY));
    w.seen();
    w.put(group("g").uid("uid-g").templated(ENTRY, TEMPLATE).recorded(ENTRY, Some("c")));
    assert_eq!(w.triggered(), []);
}

/// new-templated-claim-for-podgroup.
#[test]
fn a_recorded_group_claim_that_appears_queues_the_claim_only() {
    let mut w = World::default();
    w.put(group("g").uid("uid-g").templated(ENTRY, TEMPLATE).recorded(ENTRY, Some("c")));
    w.seen();
    w.put(claim("c").generated_for_group("g", "uid-g", ENTRY));
    assert_eq!(w.triggered(), [claim_key("c")]);
}

/// new-template-for-podgroup.
#[test]
fn a_groups_template_queues_the_group() {
    let mut w = World::default();
    w.put(group("g").templated(ENTRY, TEMPLATE));
    w.seen();
    w.put(template(TEMPLATE));
    assert_eq!(w.triggered(), [group_key("g")]);
}

/// podgroup-claim-status-update: the members that have claims, not those of another group. Deliberately unlike
/// in-tree, they are woken only when there is something to record: the group's claim must be known.
#[test]
fn a_groups_new_status_queues_the_group_or_its_members_that_have_claims() {
    let world = || {
        let mut w = World::default();
        w.put(group("g").uid("uid-g").templated(ENTRY, TEMPLATE));
        for (name, of) in [("one", "g"), ("two", "g"), ("other", "another-group")] {
            w.put(pod(name).templated(ENTRY, TEMPLATE).member_of(of));
        }
        w.put(pod("claimless").member_of("g"));
        w.seen();
        w
    };
    let record = |w: &mut World| {
        w.edit(Kind::PodGroup, "g", |g| {
            push(g, "status", "resourceClaimStatuses", json!({"name": ENTRY, "resourceClaimName": "c"}));
        });
    };
    let mut w = world();
    record(&mut w);
    assert_eq!(w.triggered(), [group_key("g")], "the claim is missing");

    let mut w = world();
    w.put(claim("c").generated_for_group("g", "uid-g", ENTRY));
    w.seen();
    record(&mut w);
    assert_eq!(w.triggered(), [pod_key("one"), pod_key("two")], "the claim is there");
}

/// §1.6, §2.2-5, D33, D34: the watches of different kinds are not in step. When the group's status shows the
/// claim's name before the claim itself is shown, its members must still hear of it in the end.
#[test]
fn members_are_woken_when_the_groups_claim_appears_after_its_name() {
    let mut w = World::default();
    w.put(template(TEMPLATE));
    w.put(group("g").uid("uid-g").templated(ENTRY, TEMPLATE));
    w.put(pod("p").templated(ENTRY, TEMPLATE).member_of("g"));
    w.seen();
    w.server.lag.insert(Kind::Claim, std::time::Duration::from_secs(5));
    // Somebody else (the in-tree controller before it is switched off) makes and records the claim.
    w.put(claim("c").generated_for_group("g", "uid-g", ENTRY));
    w.edit(Kind::PodGroup, "g", |g| {
        push(g, "status", "resourceClaimStatuses", json!({"name": ENTRY, "resourceClaimName": "c"}));
    });
    w.run_for(std::time::Duration::from_mins(1));
    assert_eq!(w.claim_names(), ["c"]);
    assert_eq!(w.recorded(Kind::Pod, "p").get(ENTRY).map(String::as_str), Some("c"));
}

/// The same at a start: the Pod came while the manager was down.
#[test]
fn members_are_served_whichever_list_ends_last_at_a_start() {
    for order in [
        [Kind::Template, Kind::PodGroup, Kind::Pod, Kind::Claim],
        [Kind::Claim, Kind::PodGroup, Kind::Pod, Kind::Template],
        [Kind::Pod, Kind::Claim, Kind::Template, Kind::PodGroup],
        [Kind::PodGroup, Kind::Claim, Kind::Template, Kind::Pod],
    ] {
        let mut w = World::default();
        w.put(template(TEMPLATE));
        w.put(group("g").templated(ENTRY, TEMPLATE));
        w.settle();
        w.put(pod("p").templated(ENTRY, TEMPLATE).member_of("g"));
        w.restart_in(order);
        w.settle();
        assert_eq!(w.recorded(Kind::Pod, "p").len(), 1, "{order:?}");
    }
}

/// §1.7: a consumer that somebody took off by mistake is put back.
#[test]
fn a_pods_reservation_that_somebody_removed_is_put_back() {
    let mut w = World::default();
    w.put(pod("p").direct(ENTRY, "c").on("node"));
    w.put(claim("c").allocated());
    w.settle();
    assert_eq!(w.reserved("c"), ["p"]);
    w.edit(Kind::Claim, "c", |c| c["status"]["reservedFor"] = json!([]));
    w.settle();
    assert_eq!(w.reserved("c"), ["p"]);
}

/// §1.7, for a group: all Pods of the claim are looked at on each of its updates.
#[test]
fn a_groups_reservation_that_somebody_removed_is_put_back() {
    let mut w = World::default();
    w.put(group("g").direct(ENTRY, "d"));
    w.put(pod("member").direct(ENTRY, "d").member_of("g").on("node"));
    w.put(claim("d").allocated());
    w.settle();
    assert_eq!(w.reserved("d"), ["g"]);
    w.edit(Kind::Claim, "d", |c| c["status"]["reservedFor"] = json!([]));
    w.settle();
    assert_eq!(w.reserved("d"), ["g"]);
}

/// §1.6: a group that goes queues its claims; a terminating one still needs them.
#[test]
fn a_group_that_goes_queues_its_claims() {
    let mut w = World::default();
    w.put(group("g").direct("a", "hand-made").templated("b", TEMPLATE).recorded("b", Some("generated")));
    w.put(claim("hand-made"));
    let uid = w.uid(Kind::PodGroup, "g");
    w.put(claim("generated").generated_for_group("g", &uid, "b"));
    w.seen();
    w.edit(Kind::PodGroup, "g", |g| g["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
    assert!(!w.triggered().contains(&claim_key("generated")), "terminating is not enough");
    w.vanish(Kind::PodGroup, "g");
    assert_eq!(w.triggered(), [claim_key("generated"), claim_key("hand-made")]);
}

/// §1.5 `podNeedsWork`, case by case, by the Pod's own event. Unlike in-tree, a generated claim of somebody else
/// does queue the Pod (defect 11).
#[test]
fn a_pod_is_queued_when_a_claim_is_missing_or_not_yet_reserved() {
    let with =
        |status: Option<&str>| pod("p").uid("uid-p").templated(ENTRY, TEMPLATE).recorded(ENTRY, status);
    let made = || claim("c").generated_for("p", "uid-p", ENTRY);
    let yes = vec![pod_key("p")];
    let no = Vec::new();
    let cases: Vec<(&str, Vec<Draft>, Draft, &Vec<Key>)> = vec![
        ("not made yet", vec![], pod("p").templated(ENTRY, TEMPLATE), &yes),
        ("gone", vec![], with(Some("c")), &yes),
        ("not needed", vec![], with(None), &no),
        ("there", vec![made()], with(Some("c")), &no),
        ("there, on a node, unallocated", vec![made()], with(Some("c")).on("n"), &no),
        ("there, on a node, allocated", vec![made().allocated()], with(Some("c")).on("n"), &yes),
        (
            "there, on a node, reserved",
            vec![made().allocated().reserved_for(pod_consumer("p", "uid-p"))],
            with(Some("c")).on("n"),
            &no,
        ),
        ("allocated, without node", vec![made().allocated()], with(Some("c")), &no),
        ("somebody else's", vec![claim("c")], with(Some("c")), &yes),
        ("user's claim missing", vec![], pod("p").direct(ENTRY, "c"), &no),
        ("user's claim there", vec![claim("c")], pod("p").direct(ENTRY, "c"), &no),
        ("user's claim allocated", vec![claim("c").allocated()], pod("p").direct(ENTRY, "c").on("n"), &yes),
        ("being deleted", vec![], with(Some("c")).on("n").deleting(), &no),
    ];
    for (what, before, the_pod, expected) in cases {
        let mut w = World::default();
        for draft in before {
            w.put(draft);
        }
        w.seen();
        w.put(the_pod);
        assert_eq!(w.triggered(), *expected, "{what}");
    }
}

/// §1.7: a claim's events reach the Pods and groups that use it, which are queued if they then have work.
#[test]
fn a_claim_that_is_deleted_queues_those_who_miss_it() {
    let mut w = World::default();
    w.put(template(TEMPLATE));
    w.put(pod("p").uid("uid-p").templated(ENTRY, TEMPLATE).recorded(ENTRY, Some("c")));
    w.put(claim("c").generated_for("p", "uid-p", ENTRY));
    w.put(group("g").uid("uid-g").templated(ENTRY, TEMPLATE).recorded(ENTRY, Some("d")));
    w.put(claim("d").generated_for_group("g", "uid-g", ENTRY));
    w.seen();
    w.vanish(Kind::Claim, "c");
    assert_eq!(w.triggered(), [pod_key("p")]);
    w.vanish(Kind::Claim, "d");
    assert_eq!(w.triggered(), [group_key("g")]);
}

/// §1.7: an allocation by the scheduler queues the Pod that already has a node.
#[test]
fn a_claim_that_gets_allocated_queues_the_pods_that_wait_on_their_node() {
    let mut w = World::default();
    for name in ["waiting", "elsewhere"] {
        w.put(pod(name).direct(ENTRY, "c"));
    }
    w.edit(Kind::Pod, "waiting", |p| p["spec"]["nodeName"] = json!("n"));
    w.put(claim("c"));
    w.seen();
    w.allocate("c", pod_consumer("normal", "uid-normal"));
    assert_eq!(w.triggered(), [pod_key("waiting"), claim_key("c")]);
}

/// §1.5 with a UID change that a relist merges into one update (defect 11): the claims of the old Pod are queued.
#[test]
fn a_pod_that_was_replaced_between_two_lists_queues_the_old_ones_claims() {
    let mut w = World::default();
    w.put(pod("p").uid("old").templated(ENTRY, TEMPLATE).recorded(ENTRY, Some("c")).on("n"));
    w.put(claim("c").generated_for("p", "old", ENTRY).allocated().reserved_for(pod_consumer("p", "old")));
    w.seen();
    w.vanish(Kind::Pod, "p");
    w.put(pod("p").uid("new").templated(ENTRY, TEMPLATE));
    w.relist(Kind::Pod);
    assert_eq!(w.triggered(), [pod_key("p"), claim_key("c")]);
}

/// §1.1: a group that never was watched queues nothing, and its members say that it is missing.
#[test]
fn the_automatic_gates_follow_what_the_server_serves() {
    for served in [false, true] {
        let mut w = World::new(Gates::default());
        w.server.pod_groups_served = served;
        w.restart();
        w.put(template(TEMPLATE));
        w.put(group("g").templated(ENTRY, TEMPLATE));
        w.put(pod("p").templated(ENTRY, TEMPLATE).member_of("g"));
        w.put(pod("alone").templated(ENTRY, TEMPLATE));
        w.settle();
        let uid = w.uid(Kind::Pod, "alone");
        w.only_claim_of(&uid, ENTRY);
        assert_eq!(w.claim_names().len(), if served { 2 } else { 1 });
        assert_eq!(w.recorded(Kind::Pod, "p").len(), usize::from(served));
    }
}

/// Issue 3 and D39: an API that is not served is not waited for; when it appears, what waited for it goes on.
#[test]
fn when_the_server_begins_to_serve_groups_everything_that_waited_goes_on() {
    let mut w = World::new(Gates::default());
    w.server.pod_groups_served = false;
    w.restart();
    w.put(template(TEMPLATE));
    w.put(group("g").templated(ENTRY, TEMPLATE));
    w.put(pod("member").templated(ENTRY, TEMPLATE).member_of("g"));
    w.put(pod("alone").templated(ENTRY, TEMPLATE));
    w.put(claim("c").allocated().reserved_for(group_consumer("gone", "uid-gone")));
    w.settle();
    assert_eq!(w.reserved("c"), ["gone"]);
    assert!(w.recorded(Kind::Pod, "member").is_empty());
    let writes = w.writes();
    w.serve_pod_groups();
    let queued = w.driver.queued();
    assert!(queued.contains(&group_key("g")), "{queued:?}");
    assert!(queued.contains(&claim_key("c")) && !queued.contains(&pod_key("alone")), "{queued:?}");
    w.settle();
    assert_eq!(w.recorded(Kind::Pod, "member"), w.recorded(Kind::PodGroup, "g"));
    assert!(w.reserved("c").is_empty());
    // The group's claim, two records, and release and finalizer of the other claim.
    assert_eq!(w.writes(), writes + 5);
}

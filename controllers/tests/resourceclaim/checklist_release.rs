//! Spec §9.1, rows about reserving and releasing: 40–55.

use dra_controllers::resourceclaim::Gate;
use serde_json::json;

use crate::common::{
    World, all_gates, claim_key, driver::Verb, gates_with, objects::*, pod_key, server::Kind, workload_gates,
};

const ENTRY: &str = "acme-resource";

fn foreign_consumer() -> serde_json::Value {
    json!({"apiGroup": "foo.com", "resource": "foo", "name": "some-foo", "uid": "uid-foo"})
}

/// Row 40 (stay-reserved-seen), all gates.
#[test]
fn a_consumer_that_runs_keeps_its_claim() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        let uid = w.put(pod("p").direct(ENTRY, "c").on("node").phase("Running"));
        w.put(claim("c").allocated().reserved_for(pod_consumer("p", &uid)));
        w.seen();
        assert!(w.sync(&claim_key("c")));
        assert!(w.driver.requests.is_empty(), "neither a write nor a question");
    }
}

/// Row 41 (stay-reserved-not-seen), all gates.
#[test]
fn a_consumer_that_only_the_server_knows_keeps_its_claim() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        w.server.lag.insert(Kind::Pod, std::time::Duration::from_mins(1));
        let uid = w.put(pod("p").direct(ENTRY, "c").on("node"));
        w.put(claim("c").allocated().reserved_for(pod_consumer("p", &uid)));
        w.deliver();
        assert!(w.sync(&claim_key("c")));
        assert_eq!((w.requests(Verb::GetPod), w.writes()), (1, 0));
        assert!(w.sync(&claim_key("c")));
        assert_eq!(w.requests(Verb::GetPod), 1, "the answer is remembered (defect 12)");
    }
}

/// Row 42 (clear-reserved-structured), all gates.
#[test]
fn a_claim_whose_consumer_is_gone_is_released_deallocated_and_freed_of_its_finalizer() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        w.put(
            claim("c")
                .generated_for("p", "uid-p", ENTRY)
                .allocated()
                .finalizer("example.com/other")
                .reserved_for(pod_consumer("p", "uid-p")),
        );
        w.seen();
        assert!(w.sync(&claim_key("c")));
        assert!(w.reserved("c").is_empty() && !w.is_allocated("c") && !w.has_finalizer("c"));
        assert_eq!(w.claim("c")["metadata"]["finalizers"], json!(["example.com/other"]), "others are kept");
        assert_eq!(w.requests(Verb::Release), 1, "consumer and allocation go in one write");
        assert_eq!(w.requests(Verb::RemoveFinalizer), 1);
        assert_eq!(w.requests(Verb::Delete), 0, "the owner may be unknown only to us");
    }
}

/// Row 43 (clear-reserved-podgroup), workload claims on.
#[test]
fn a_claim_whose_group_is_gone_is_released_deallocated_and_freed_of_its_finalizer() {
    for gates in workload_gates() {
        let mut w = World::new(gates);
        w.put(
            claim("c")
                .generated_for_group("g", "uid-g", ENTRY)
                .allocated()
                .reserved_for(group_consumer("g", "uid-g")),
        );
        w.seen();
        assert!(w.sync(&claim_key("c")));
        assert!(w.reserved("c").is_empty() && !w.is_allocated("c") && !w.has_finalizer("c"));
        assert_eq!(w.requests(Verb::GetGroup), 1);
        assert_eq!(w.requests(Verb::Delete), 0);
    }
}

/// Row 44 (dont-clear-reserved-podgroup-feature-disabled), workload claims off.
#[test]
fn a_gone_groups_reservation_stays_while_workload_claims_are_off() {
    for gates in gates_with(|g| g.workload_resource_claims == Gate::Off) {
        let mut w = World::new(gates);
        w.put(claim("c").allocated().reserved_for(group_consumer("g", "uid-g")));
        w.seen();
        assert!(w.sync(&claim_key("c")));
        w.settle();
        assert_eq!(w.writes(), 0);
        assert_eq!(w.reserved("c"), ["g"]);
    }
}

/// Row 45 (dont-clear-reserved-structured), all gates.
#[test]
fn of_two_consumers_only_the_gone_one_is_taken_off() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        let uid = w.put(pod("p").direct(ENTRY, "c").on("node"));
        w.put(
            claim("c")
                .allocated()
                .reserved_for(pod_consumer("gone", "uid-gone"))
                .reserved_for(pod_consumer("p", &uid)),
        );
        w.seen();
        assert!(w.sync(&claim_key("c")));
        assert_eq!(w.reserved("c"), ["p"]);
        assert!(w.is_allocated("c") && w.has_finalizer("c"));
        assert_eq!(w.writes(), 1);
    }
}

/// Row 46 (clear-reserved-structured-deleted), all gates.
#[test]
fn a_deleted_claim_whose_consumer_is_gone_goes() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        w.put(claim("c").allocated().reserved_for(pod_consumer("p", "uid-p")).deleting());
        w.seen();
        assert!(w.sync(&claim_key("c")));
        assert!(w.get(Kind::Claim, "c").is_none());
        assert_eq!((w.requests(Verb::Release), w.requests(Verb::RemoveFinalizer)), (1, 1));
    }
}

/// Row 47 (structured-deleted), all gates.
#[test]
fn a_deleted_claim_without_consumers_is_deallocated_and_goes() {
    for gates in all_gates() {
        for draft in [claim("c").allocated().deleting(), claim("c").finalizer(FINALIZER).deleting()] {
            let mut w = World::new(gates);
            w.put(draft);
            w.seen();
            assert!(w.sync(&claim_key("c")));
            assert!(w.get(Kind::Claim, "c").is_none());
            assert!(w.requests(Verb::Release) <= 1, "status first, finalizer second");
            assert_eq!(w.requests(Verb::Delete), 0, "it is being deleted already");
        }
    }
}

/// Row 48 (clear-reserved-when-done), all gates.
#[test]
fn without_the_schedulers_finalizer_the_allocation_is_not_ours_to_clear() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        let uid = w.put(pod("p").direct(ENTRY, "c").on("node").phase("Succeeded"));
        w.put(claim("c").allocated_without_finalizer().reserved_for(pod_consumer("p", &uid)));
        w.seen();
        assert!(w.sync(&claim_key("c")));
        assert!(w.reserved("c").is_empty() && w.is_allocated("c"));
        assert_eq!(w.writes(), 1);
    }
}

/// Row 49 (remove-reserved), all gates.
#[test]
fn the_consumers_that_stay_keep_their_order() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        let a = w.put(pod("a").direct(ENTRY, "c").on("node"));
        let b = w.put(pod("b").direct(ENTRY, "c").on("node"));
        w.put(
            claim("c")
                .allocated()
                .reserved_for(pod_consumer("b", &b))
                .reserved_for(pod_consumer("other", "uid-other"))
                .reserved_for(pod_consumer("a", &a)),
        );
        w.seen();
        assert!(w.sync(&claim_key("c")));
        assert_eq!(w.reserved("c"), ["b", "a"]);
    }
}

/// Row 50 (delete-claim-when-done), all gates.
#[test]
fn a_finished_pods_generated_claim_is_deleted() {
    for gates in all_gates() {
        for phase in ["Succeeded", "Failed"] {
            let mut w = World::new(gates);
            let uid =
                w.put(pod("p").templated(ENTRY, "t").recorded(ENTRY, Some("c")).on("node").phase(phase));
            w.put(
                claim("c").generated_for("p", &uid, ENTRY).allocated().reserved_for(pod_consumer("p", &uid)),
            );
            w.put(template("t"));
            w.settle();
            assert!(w.claim_names().is_empty());
            assert_eq!(w.requests(Verb::Delete), 1);
            assert!(w.get(Kind::Pod, "p").is_some());
        }
    }
}

/// Row 51 (add-reserved), all gates.
#[test]
fn a_pod_that_already_has_a_node_is_added_to_its_allocated_claim() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        let uid = w.put(pod("p").templated(ENTRY, "t").recorded(ENTRY, Some("c")).on("node"));
        w.put(claim("c").generated_for("p", &uid, ENTRY).allocated().reserved_for(foreign_consumer()));
        w.put(template("t"));
        w.seen();
        assert!(w.sync(&pod_key("p")));
        assert_eq!(
            w.claim("c")["status"]["reservedFor"],
            json!([foreign_consumer(), {"resource": "pods", "name": "p", "uid": uid}]),
            "appended, without apiGroup",
        );
        assert_eq!(w.writes(), 1);
    }
}

/// Row 52 (add-reserved-podgroup), workload claims on.
#[test]
fn a_groups_claim_is_reserved_for_the_group_of_a_pod_that_already_has_a_node() {
    for gates in workload_gates() {
        let mut w = World::new(gates);
        let uid = w.put(group("g").templated(ENTRY, "t").recorded(ENTRY, Some("c")));
        w.put(claim("c").generated_for_group("g", &uid, ENTRY).allocated());
        for name in ["p", "q"] {
            w.put(pod(name).templated(ENTRY, "t").recorded(ENTRY, Some("c")).member_of("g").on("node"));
        }
        w.put(template("t"));
        w.settle();
        assert_eq!(
            w.claim("c")["status"]["reservedFor"],
            json!([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": uid}]),
        );
        assert_eq!(w.writes(), 1, "once for all members");
    }
}

/// Row 53 (skip-add-reserved-podgroup-genericworkload-disabled), generic workload off.
#[test]
fn a_grouped_pod_is_not_reserved_while_generic_workload_is_off() {
    for gates in gates_with(|g| g.generic_workload == Gate::Off) {
        let mut w = World::new(gates);
        let uid = w.put(group("g").templated(ENTRY, "t").recorded(ENTRY, Some("c")));
        w.put(claim("c").generated_for_group("g", &uid, ENTRY).allocated());
        w.put(pod("p").templated(ENTRY, "t").recorded(ENTRY, Some("c")).member_of("g").on("node"));
        w.put(template("t"));
        w.settle();
        w.sync(&pod_key("p"));
        assert_eq!(w.writes(), 0);
        assert!(w.why(&pod_key("p")).contains("GenericWorkload feature is disabled"));
    }
}

/// Row 54 (skip-add-reserved-podgroup-workloadresourceclaims-disabled), generic workload on, workload claims off.
#[test]
fn a_groups_claim_is_not_reserved_while_workload_claims_are_off() {
    for gates in gates_with(|g| g.generic_workload == Gate::On && g.workload_resource_claims == Gate::Off) {
        let mut w = World::new(gates);
        let uid = w.put(group("g").templated(ENTRY, "t").recorded(ENTRY, Some("c")));
        w.put(claim("c").generated_for_group("g", &uid, ENTRY).allocated());
        w.put(pod("p").templated(ENTRY, "t").recorded(ENTRY, Some("c")).member_of("g").on("node"));
        w.put(template("t"));
        w.seen();
        assert!(w.sync(&pod_key("p")));
        w.settle();
        assert_eq!(w.writes(), 0, "no reservation, and no claim for the Pod alone (D35)");

        // The same with a claim that a user made.
        let mut w = World::new(gates);
        w.put(group("g").direct(ENTRY, "c"));
        w.put(claim("c").allocated());
        w.put(pod("p").direct(ENTRY, "c").member_of("g").on("node"));
        w.settle();
        assert!(w.sync(&pod_key("p")));
        assert_eq!(w.writes(), 0);
    }
}

/// Row 55 (remove-pod-reservation-with-non-pod-reservation-present), all gates.
#[test]
fn beside_a_consumer_of_an_unknown_kind_the_done_pod_goes_and_the_allocation_stays() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        let uid =
            w.put(pod("p").templated(ENTRY, "t").recorded(ENTRY, Some("c")).on("node").phase("Succeeded"));
        w.put(
            claim("c")
                .generated_for("p", &uid, ENTRY)
                .allocated()
                .reserved_for(pod_consumer("p", &uid))
                .reserved_for(foreign_consumer()),
        );
        w.put(template("t"));
        w.settle();
        assert_eq!(w.claim("c")["status"]["reservedFor"], json!([foreign_consumer()]));
        assert!(w.is_allocated("c") && w.has_finalizer("c"));
        assert!(w.claim("c")["metadata"]["deletionTimestamp"].is_null());
        assert_eq!(w.writes(), 1);
    }
}

/// §4.3: which Pods are done with a claim, and which only look like it.
#[test]
fn a_pod_is_done_when_it_ended_or_was_deleted_before_it_had_a_node() {
    let cases: [(&str, Draft, bool); 8] = [
        ("running", pod("p").on("node").phase("Running"), true),
        ("pending on a node", pod("p").on("node").phase("Pending"), true),
        ("pending without node", pod("p").phase("Pending"), true),
        ("terminating on its node", pod("p").on("node").phase("Running").deleting(), true),
        ("unknown phase", pod("p").on("node").phase("Unknown"), true),
        ("deleted before it had a node", pod("p").phase("Pending").deleting(), false),
        ("succeeded", pod("p").on("node").phase("Succeeded"), false),
        ("failed and terminating", pod("p").on("node").phase("Failed").deleting(), false),
    ];
    for (what, draft, keeps) in cases {
        let mut w = World::default();
        let uid = w.put(draft.direct(ENTRY, "c"));
        w.put(claim("c").allocated().reserved_for(pod_consumer("p", &uid)));
        w.settle();
        assert_eq!(w.reserved("c").len() == 1, keeps, "{what}");
        assert_eq!(w.is_allocated("c"), keeps, "{what}");
        assert!(w.get(Kind::Claim, "c").is_some(), "a user's claim is never deleted (D8)");
    }
}

/// §4.3: a consumer whose name now belongs to another Pod is gone, whatever that Pod does.
#[test]
fn a_replaced_consumer_is_taken_off() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        w.put(pod("p").direct(ENTRY, "c"));
        w.put(claim("c").allocated().reserved_for(pod_consumer("p", "uid-of-the-old-one")));
        w.settle();
        assert!(w.reserved("c").is_empty() && !w.is_allocated("c"));
    }
}

/// §5-D: a generated claim of a replaced owner is deleted; one whose owner is merely unknown is not.
#[test]
fn a_generated_claim_is_deleted_when_its_owner_was_replaced_but_not_when_it_is_unknown() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        w.put(pod("p"));
        w.put(claim("replaced").generated_for("p", "uid-of-the-old-one", ENTRY));
        w.put(claim("unknown").generated_for("q", "uid-q", ENTRY));
        w.put(claim("hand-made"));
        w.put(claim("of-a-job").owned_by("batch/v1", "Job", "p", "uid-j"));
        w.settle();
        assert_eq!(w.claim_names(), ["hand-made", "of-a-job", "unknown"]);
    }
}

/// §5-C: what was allocated and never used is not deallocated.
#[test]
fn an_allocated_claim_that_was_never_reserved_stays_allocated() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        w.put(claim("c").allocated());
        w.settle();
        w.restart();
        w.settle();
        assert_eq!(w.writes(), 0);
    }
}

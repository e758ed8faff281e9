//! Promises of the documentation (documented-behaviour.md, groups B, C, D, E, H) and stories of spec §9.3 and §9.4, as far
//! as the planner keeps them; the row numbers stand at each test.

use std::time::Duration;

use dra_controllers::resourceclaim::{Gate, Gates, REASON_CREATION};
use serde_json::json;

use crate::common::{
    ALL_ON, World, all_gates, driver::Verb, group_key, map, objects::*, pod_key, server::Kind,
};

const MINUTE: Duration = Duration::from_mins(1);

/// D21, D25: before scheduling, also for a Pod that is held by a scheduling gate.
#[test]
fn a_pod_held_by_a_scheduling_gate_gets_its_claims_at_once() {
    let mut w = World::default();
    w.put(template("t"));
    let mut gated = pod("p").templated("e", "t").phase("Pending");
    gated.body["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    let uid = w.put(gated);
    w.run_for(Duration::from_secs(1));
    let name = w.only_claim_of(&uid, "e");
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &name)]));
    assert_eq!(w.claim(&name)["status"], json!(null));
}

/// D21: each Pod gets its own.
#[test]
fn pods_of_one_template_get_a_claim_each() {
    let mut w = World::default();
    w.put(template("t"));
    let uids: Vec<String> = (0..10).map(|n| w.put(pod(&format!("p{n}")).templated("e", "t"))).collect();
    w.settle();
    let mut names: Vec<String> = uids.iter().map(|uid| w.only_claim_of(uid, "e")).collect();
    names.dedup();
    assert_eq!(names.len(), 10);
}

/// D22, e2e "does not delete generated claims when pod is restarting".
#[test]
fn a_pod_that_restarts_its_containers_keeps_its_claim() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated("e", "t"));
    w.settle();
    w.schedule("p");
    w.phase("p", "Running");
    w.settle();
    let (name, writes) = (w.only_claim_of(&uid, "e"), w.writes());
    for n in 1..5 {
        w.edit(Kind::Pod, "p", |p| {
            p["status"]["containerStatuses"] = json!([{"name": "c", "restartCount": n}]);
        });
        w.settle();
    }
    assert_eq!(w.only_claim_of(&uid, "e"), name);
    assert_eq!(w.writes(), writes);
}

/// D23, e2e "deletes generated claims when pod is done", "removes reservation from claim when pod is done",
/// "must deallocate after use": the terminal phase is enough.
#[test]
fn a_pods_end_deletes_its_claim_and_releases_shared_ones_while_the_pod_is_still_there() {
    for phase in ["Succeeded", "Failed"] {
        let mut w = World::default();
        w.put(template("t"));
        w.put(claim("external"));
        w.put(pod("p").templated("e", "t").direct("x", "external"));
        w.settle();
        assert!(w.schedule("p"));
        w.settle();
        assert!(w.is_allocated("external"));
        w.phase("p", phase);
        w.run_for(Duration::from_secs(1));
        assert_eq!(w.claim_names(), ["external"]);
        assert!(w.reserved("external").is_empty() && !w.is_allocated("external"));
        assert!(!w.has_finalizer("external"));
    }
}

/// D26: the annotation that the in-container metadata is filed under, for Pods and groups.
#[test]
fn generated_claims_say_which_entry_they_are_for() {
    let mut w = World::default();
    w.put(template("t"));
    for draft in [pod("o").templated("my-entry", "t"), group("o").templated("my-entry", "t")] {
        let uid = w.put(draft);
        w.settle();
        let claim = w.claim(&w.only_claim_of(&uid, "my-entry"));
        assert_eq!(claim["metadata"]["annotations"]["resource.kubernetes.io/pod-claim-name"], "my-entry");
    }
}

/// D28, D33, D34, D36: one claim for the group, whichever of group, template and Pods comes first; each Pod records it.
#[test]
fn the_groups_one_claim_is_made_in_whatever_order_things_come() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut w = World::default();
        for what in order {
            match what {
                0 => drop(w.put(group("g").templated("e", "t"))),
                1 => drop(w.put(template("t"))),
                _ => {
                    for n in 0..3 {
                        w.put(pod(&format!("p{n}")).templated("e", "t").member_of("g"));
                    }
                }
            }
            w.run_for(MINUTE);
        }
        let name = w.only_claim_of(&w.uid(Kind::PodGroup, "g"), "e");
        assert_eq!(w.claim_names(), [name.as_str()], "{order:?}");
        for n in 0..3 {
            assert_eq!(w.recorded(Kind::Pod, &format!("p{n}")), map([("e", &name)]), "{order:?}");
        }
        assert_eq!(w.requests(Verb::Create), 1);
    }
}

/// D32: finished members and a terminating group release nothing.
#[test]
fn a_groups_reservation_outlives_its_pods_until_the_group_is_gone() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(group("g").templated("e", "t"));
    w.put(pod("p").templated("e", "t").member_of("g"));
    w.settle();
    let name = w.only_claim_of(&uid, "e");
    assert!(w.schedule("p"));
    w.settle();
    let writes = w.writes();
    w.phase("p", "Succeeded");
    w.settle();
    w.vanish(Kind::Pod, "p");
    w.settle();
    w.edit(Kind::PodGroup, "g", |g| {
        push(g, "metadata", "finalizers", json!("scheduling.k8s.io/podgroup-protection"));
        g["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    });
    w.run_for(MINUTE);
    w.restart();
    w.run_for(MINUTE);
    assert_eq!(w.reserved(&name), ["g"]);
    assert_eq!(w.writes(), writes);
    w.vanish(Kind::PodGroup, "g");
    w.settle();
    assert!(w.reserved(&name).is_empty() && !w.is_allocated(&name) && !w.has_finalizer(&name));
}

/// D35, e2e "workload-resourceclaims gate cycle" (on → off → on).
#[test]
fn switching_workload_claims_off_and_on_again_leaves_the_groups_claim_as_it_is() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(group("g").templated("e", "t"));
    w.put(pod("first").templated("e", "t").member_of("g"));
    w.settle();
    assert!(w.schedule("first"));
    w.settle();
    let name = w.only_claim_of(&uid, "e");
    let before = w.claim(&name);

    w.driver.planner.gates.workload_resource_claims = Gate::Off;
    w.restart();
    w.run_for(Duration::from_secs(15));
    assert_eq!(w.claim(&name), before, "byte-identical");
    w.put(pod("stuck").templated("e", "t").member_of("g"));
    w.put(pod("served").templated("own", "t").member_of("g"));
    w.run_for(MINUTE);
    assert!(w.recorded(Kind::Pod, "stuck").is_empty());
    assert_eq!(w.recorded(Kind::Pod, "served").len(), 1, "an unrelated entry is served");
    w.vanish(Kind::Pod, "first");
    w.vanish(Kind::Pod, "served");
    w.collect_garbage();
    w.settle();
    assert_eq!(w.claim_names(), [name.as_str()], "and no stray claim");
    assert_eq!(w.claim(&name), before);

    w.driver.planner.gates.workload_resource_claims = Gate::On;
    w.restart();
    w.run_for(Duration::from_secs(15));
    assert_eq!(w.recorded(Kind::Pod, "stuck"), map([("e", &name)]));
    w.put(pod("new").templated("e", "t").member_of("g"));
    w.settle();
    assert_eq!(w.recorded(Kind::Pod, "new"), map([("e", &name)]));
    assert_eq!(w.claim_names(), [name.as_str()]);
}

/// D38: fast deletion and re-creation of a group of the same name.
#[test]
fn a_group_that_is_replaced_gets_its_own_claim_and_leaves_none_behind() {
    for merged in [false, true] {
        let mut w = World::default();
        w.put(template("t"));
        let old = w.put(group("g").templated("e", "t"));
        w.settle();
        let first = w.only_claim_of(&old, "e");
        w.allocate(&first, group_consumer("g", &old));
        w.settle();
        w.vanish(Kind::PodGroup, "g");
        let new = w.put(group("g").templated("e", "t"));
        if merged {
            w.relist(Kind::PodGroup);
        }
        w.settle();
        let second = w.only_claim_of(&new, "e");
        assert_eq!(w.recorded(Kind::PodGroup, "g"), map([("e", &second)]));
        assert!(w.reserved(&first).is_empty() && !w.is_allocated(&first));
        w.collect_garbage();
        w.settle();
        assert_eq!(w.claim_names(), [second.as_str()]);
        w.put(pod("p").templated("e", "t").member_of("g"));
        w.settle();
        assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &second)]));
    }
}

/// D38: members that recorded the claim of the old group get the new group's.
#[test]
fn members_of_a_replaced_group_follow_it() {
    let mut w = World::default();
    w.put(template("t"));
    w.put(group("g").templated("e", "t"));
    w.put(pod("p").templated("e", "t").member_of("g"));
    w.settle();
    w.vanish(Kind::PodGroup, "g");
    w.settle();
    let new = w.put(group("g").templated("e", "t"));
    w.settle();
    w.collect_garbage();
    w.settle();
    let second = w.only_claim_of(&new, "e");
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &second)]));
    assert_eq!(w.claim_names(), [second.as_str()]);
}

/// D39, §1.1: with both gates off PodGroups are neither watched nor asked for.
#[test]
fn with_the_gates_off_pod_groups_are_never_touched() {
    let gates = Gates { generic_workload: Gate::Off, workload_resource_claims: Gate::Off, ..ALL_ON };
    let mut w = World::new(gates);
    assert!(!w.driver.planner.wants_pod_groups());
    w.put(template("t"));
    w.put(group("g").templated("e", "t"));
    w.put(pod("p").templated("e", "t").member_of("g").on("node"));
    w.put(claim("c").allocated().reserved_for(group_consumer("g", "uid-gone")));
    w.run_for(MINUTE);
    assert_eq!(w.requests(Verb::GetGroup) + w.requests(Verb::RecordGroup), 0);
    assert_eq!(w.reserved("c"), ["g"], "an unknown consumer stays");
    assert_eq!(w.driver.view.pod_groups.len(), 0);
    assert!(w.sync(&group_key("g")));
}

/// D42, D43, X5, e2e "must not run a pod if a claim is not ready": never allocated by us; reserved as soon as another
/// Pod made the scheduler allocate it.
#[test]
fn a_pod_on_a_node_waits_for_somebody_elses_allocation_and_is_then_reserved() {
    let mut w = World::default();
    w.put(claim("c"));
    w.put(pod("pre-scheduled").direct("e", "c").on("node"));
    w.run_for(MINUTE);
    assert_eq!(w.writes(), 0);
    assert!(!w.is_allocated("c"));
    w.put(pod("normal").direct("e", "c"));
    w.settle();
    assert!(w.schedule("normal"));
    w.settle();
    assert_eq!(w.reserved("c"), ["normal", "pre-scheduled"]);
}

/// D41: the same state however it came about: the scheduler placed the Pod without looking at its claims.
#[test]
fn a_pod_placed_without_regard_to_its_claims_is_treated_alike() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated("e", "t"));
    w.settle();
    w.edit(Kind::Pod, "p", |p| p["spec"]["nodeName"] = json!("node"));
    w.settle();
    let name = w.only_claim_of(&uid, "e");
    assert!(w.reserved(&name).is_empty());
    w.edit(Kind::Claim, &name, |c| c["status"]["allocation"] = json!({}));
    w.settle();
    assert_eq!(w.reserved(&name), ["p"]);
}

/// D40: a Pod that waits is told why.
#[test]
fn a_waiting_pod_on_a_node_explains_which_claim_it_waits_for() {
    let mut w = World::default();
    w.put(claim("c"));
    w.put(pod("p").direct("e", "c").on("node"));
    w.settle();
    w.sync(&pod_key("p"));
    assert!(
        w.why(&pod_key("p")).contains("ResourceClaim \"c\" is not allocated"),
        "{}",
        w.why(&pod_key("p"))
    );
}

/// D8, D9: a claim that a user made is theirs: waited for in silence, never deleted.
#[test]
fn a_users_claim_is_waited_for_and_never_deleted() {
    let mut w = World::default();
    w.put(pod("p").direct("e", "mine"));
    w.run_for(MINUTE);
    assert!(w.driver.told.is_empty(), "not an error for the controller");
    w.put(claim("mine"));
    w.settle();
    assert!(w.schedule("p"));
    w.settle();
    w.vanish(Kind::Pod, "p");
    w.settle();
    assert_eq!(w.claim_names(), ["mine"]);
    assert!(!w.is_allocated("mine") && !w.has_finalizer("mine"));
}

/// D10: a generated claim that another Pod names goes when its owner is done and nothing reserves it, not before.
#[test]
fn a_generated_claim_that_another_pod_uses_goes_after_both() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("owner").templated("e", "t"));
    w.settle();
    let name = w.only_claim_of(&uid, "e");
    w.put(pod("guest").direct("e", &name));
    w.settle();
    assert!(w.schedule("owner") && w.schedule("guest"));
    w.settle();
    w.phase("owner", "Succeeded");
    w.settle();
    assert_eq!(w.reserved(&name), ["guest"]);
    assert!(w.is_allocated(&name));
    w.phase("guest", "Succeeded");
    w.settle();
    assert!(w.claim_names().is_empty());
}

/// D63: the scheduler's claims for extended resources are never adopted, recorded or reserved by us.
#[test]
fn an_extended_resource_claim_is_the_schedulers_until_its_pod_ends() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        let uid = w.put(pod("p").extended_status("x").on("node").phase("Running"));
        w.put(claim("x").owned_by("v1", "Pod", "p", &uid).annotated(EXTENDED, "true").allocated());
        w.settle();
        assert_eq!(w.writes(), 0, "not reserved by us");
        w.allocate("x", pod_consumer("p", &uid));
        w.run_for(MINUTE);
        assert_eq!(w.writes(), 0);
        // D64, e2e "must cleanup extended resource claims when pods complete": whatever the gates.
        w.phase("p", "Failed");
        w.run_for(Duration::from_secs(1));
        assert!(w.claim_names().is_empty());
        assert!(w.get(Kind::Pod, "p").is_some());
    }
}

/// D63, with a template beside it: the extended claim is not taken for the entry's.
#[test]
fn an_extended_resource_claim_is_not_adopted_for_an_entry() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated("e", "t").extended_status("x"));
    w.put(claim("x").owned_by("v1", "Pod", "p", &uid).annotated(EXTENDED, "true"));
    w.settle();
    let name = w.only_claim_of(&uid, "e");
    assert_ne!(name, "x");
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &name)]));
    assert!(w.get(Kind::Claim, "x").is_some());
}

/// D64: an extended claim of a Pod that was force-deleted, or deleted before it had a node.
#[test]
fn an_extended_resource_claim_is_released_when_its_pod_vanishes() {
    let mut w = World::default();
    let uid = w.put(pod("p").extended_status("x").on("node"));
    w.put(
        claim("x")
            .owned_by("v1", "Pod", "p", &uid)
            .annotated(EXTENDED, "true")
            .allocated()
            .reserved_for(pod_consumer("p", &uid)),
    );
    w.settle();
    w.vanish(Kind::Pod, "p");
    w.settle();
    assert!(w.reserved("x").is_empty() && !w.is_allocated("x") && !w.has_finalizer("x"));
    w.collect_garbage();
    assert!(w.claim_names().is_empty());
}

/// e2e "must unprepare resources for force-deleted pod", "blocks new pod after force-delete": a deleted claim vanishes
/// with its last Pod.
#[test]
fn a_claim_deleted_in_use_vanishes_as_soon_as_its_pod_is_force_deleted() {
    let mut w = World::default();
    w.put(claim("c"));
    w.put(pod("p").direct("e", "c"));
    w.settle();
    assert!(w.schedule("p"));
    w.settle();
    w.delete(Kind::Claim, "c");
    w.run_for(MINUTE);
    assert_eq!(w.reserved("c"), ["p"]);
    w.vanish(Kind::Pod, "p");
    w.run_for(Duration::from_secs(1));
    assert!(w.claim_names().is_empty());
}

/// e2e "runs a pod without a generated resource claim".
#[test]
fn a_pod_whose_entry_needs_no_claim_needs_no_template_either() {
    let mut w = World::default();
    w.put(pod("p").templated("e", "no-such-template").recorded("e", None));
    w.run_for(MINUTE);
    assert!(w.driver.requests.is_empty() && w.driver.told.is_empty());
}

/// dra/WorkloadResourceClaims, "all": a Pod claim and a group claim, shared by two Pods each.
#[test]
fn pod_and_group_reservations_live_and_end_separately() {
    let mut w = World::default();
    w.put(claim("pod-claim"));
    w.put(claim("group-claim"));
    w.put(group("g").direct("shared", "group-claim"));
    for name in ["p", "q"] {
        w.put(pod(name).direct("own", "pod-claim").direct("shared", "group-claim").member_of("g"));
    }
    w.settle();
    assert!(w.schedule("p") && w.schedule("q"));
    w.settle();
    assert_eq!(w.reserved("pod-claim"), ["p", "q"]);
    assert_eq!(w.reserved("group-claim"), ["g"]);
    w.vanish(Kind::Pod, "p");
    w.run_for(Duration::from_secs(15));
    assert_eq!(w.reserved("pod-claim"), ["q"]);
    w.vanish(Kind::Pod, "q");
    w.run_for(Duration::from_secs(15));
    assert!(w.reserved("pod-claim").is_empty());
    assert_eq!(w.reserved("group-claim"), ["g"]);
    w.vanish(Kind::PodGroup, "g");
    w.run_for(Duration::from_secs(15));
    assert!(w.reserved("group-claim").is_empty());
    assert_eq!(w.claim_names(), ["group-claim", "pod-claim"]);
}

/// e2e "supports count/resourceclaims… ResourceQuota": over quota is a failure that is counted and tried again, and the
/// claim comes once there is room.
#[test]
fn a_pod_over_quota_gets_its_claim_once_there_is_room() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated("e", "t"));
    w.fail(Verb::Create, "", crate::common::server::Refusal::Invalid("exceeded quota".to_owned()), 12);
    w.run_for(3 * MINUTE);
    let failures = w.driver.creates.get(&(false, false, "", "Pod")).copied();
    assert_eq!(failures, Some(12));
    assert_eq!(w.recorded(Kind::Pod, "p"), map([("e", &w.only_claim_of(&uid, "e"))]));
}

/// Issue 3: events for what in-tree leaves silent, and none for what is in order.
#[test]
fn waiting_is_said_in_stable_words() {
    let mut w = World::default();
    w.put(pod("p").templated("e", "t"));
    w.put(pod("q").templated("e", "t").member_of("g"));
    w.put(group("h").templated("e", "t"));
    w.settle();
    let told: Vec<_> = w.driver.told.keys().map(|(s, r, note)| format!("{s} {r} {note}")).collect();
    let template = "resource claim template \"t\": resourceclaimtemplate.resource.k8s.io \"t\" not found";
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with(&format!("Pod ns/p {REASON_CREATION} PodResourceClaim e: {template}")));
    assert!(told[1].starts_with(&format!(
        "Pod ns/q {REASON_CREATION} PodResourceClaim e: podgroup.scheduling.k8s.io \"g\" not found"
    )));
    assert!(
        told[2].starts_with(&format!("PodGroup ns/h {REASON_CREATION} PodGroupResourceClaim e: {template}"))
    );
    let mut w = World::default();
    w.put(template_with_everything());
    w.put(pod("p").templated("e", "t"));
    w.settle();
    assert!(w.driver.told.is_empty());
}

fn template_with_everything() -> Draft {
    let mut t = template("t");
    t.body["spec"]["spec"]["devices"]["requests"] = json!([
        {"name": "a", "exactly": {"deviceClassName": "gpu", "adminAccess": true, "count": 2}},
        {"name": "b", "firstAvailable": [{"name": "s", "deviceClassName": "gpu"}]},
    ]);
    t
}

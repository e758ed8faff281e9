//! Spec §9.1, rows about making claims: 1–11, 20, 21, 33–39.

use dra_controllers::resourceclaim::{Gate, Gates, REASON_CREATION};
use serde_json::json;

use crate::common::{
    World, all_gates, driver::Verb, gates_with, group_key, map, objects::*, pod_key, server::Kind,
    server::Refusal, workload_gates,
};

const ENTRY: &str = "acme-resource";
const TEMPLATE: &str = "my-template";
const POD: &str = "Pod ns/test-pod";
const GROUP: &str = "PodGroup ns/test-podgroup";

fn test_pod() -> Draft {
    pod("test-pod").templated(ENTRY, TEMPLATE)
}

fn test_group() -> Draft {
    group("test-podgroup").templated(ENTRY, TEMPLATE)
}

/// The controller has seen these objects and not acted on them.
fn world(gates: Gates, drafts: impl IntoIterator<Item = Draft>) -> World {
    let mut w = World::new(gates);
    for draft in drafts {
        w.put(draft);
    }
    w.seen();
    w
}

fn success(w: &World, admin: bool) -> usize {
    w.driver.creates.get(&(true, admin, "", "Pod")).copied().unwrap_or_default()
}

/// Row 1 (create), all gates.
#[test]
fn a_pod_and_a_template_give_a_claim_owned_by_the_pod_and_recorded_in_it() {
    for gates in all_gates() {
        let mut w = world(gates, [template(TEMPLATE), test_pod()]);
        assert!(w.sync(&pod_key("test-pod")));

        let uid = w.uid(Kind::Pod, "test-pod");
        let name = w.only_claim_of(&uid, ENTRY);
        assert!(name.starts_with("test-pod-acme-resource-"), "{name}");
        assert_eq!(name.len(), "test-pod-acme-resource-".len() + 5);
        let claim = w.claim(&name);
        assert_eq!(
            claim["metadata"]["ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "Pod", "name": "test-pod", "uid": uid, "controller": true}]),
        );
        assert_eq!(claim["metadata"]["annotations"], json!({ANNOTATION: ENTRY}));
        assert_eq!(claim["spec"], claim_spec());
        assert_eq!(
            (&claim["apiVersion"], &claim["kind"]),
            (&json!("resource.k8s.io/v1"), &json!("ResourceClaim"))
        );
        assert_eq!(w.recorded(Kind::Pod, "test-pod"), map([(ENTRY, &name)]));
        assert_eq!(success(&w, false), 1);
        assert_eq!(w.writes(), 2, "one create request, one status apply");
        assert!(w.driver.told.is_empty(), "{:?}", w.driver.told);
    }
}

/// Row 2 (create-adminaccess-feature-disabled), admin access off.
#[test]
fn an_admin_template_is_refused_while_the_gate_is_off() {
    for gates in gates_with(|g| !g.admin_access) {
        let mut w = world(gates, [admin_template(TEMPLATE), test_pod()]);
        w.sync(&pod_key("test-pod"));
        assert!(w.was_told(
            POD,
            REASON_CREATION,
            "PodResourceClaim acme-resource: admin access is requested, but the feature is disabled"
        ));
        assert_eq!(w.writes(), 0);
        assert!(w.driver.creates.is_empty(), "a refusal before the request is not counted");
    }
}

/// Row 3 (create-adminaccess-feature-enabled), admin access on.
#[test]
fn an_admin_template_gives_a_claim_counted_as_admin_while_the_gate_is_on() {
    for gates in gates_with(|g| g.admin_access) {
        let mut w = world(gates, [admin_template(TEMPLATE), test_pod()]);
        assert!(w.sync(&pod_key("test-pod")));
        let name = w.only_claim_of(&w.uid(Kind::Pod, "test-pod"), ENTRY);
        assert_eq!(w.claim(&name)["spec"]["devices"]["requests"][0]["exactly"]["adminAccess"], true);
        assert_eq!(success(&w, true), 1);
        assert_eq!(success(&w, false), 0);
    }
}

/// The prioritized-list half of §2.2-7, which has no row of its own.
#[test]
fn a_prioritized_template_depends_on_its_gate() {
    for gates in all_gates() {
        let mut w = world(gates, [prioritized_template(TEMPLATE), test_pod()]);
        w.sync(&pod_key("test-pod"));
        let made = w.claim_names().len();
        assert_eq!(made, usize::from(gates.prioritized_list));
        let refused = w.was_told(
            POD,
            REASON_CREATION,
            "template includes a prioritized list of subrequests, but the feature is disabled",
        );
        assert_eq!(refused, !gates.prioritized_list);
    }
}

/// Row 4 (create-for-grouped-pod), workload claims on.
#[test]
fn a_grouped_pod_whose_entry_is_not_the_groups_gets_its_own_claim() {
    for gates in workload_gates() {
        let member = test_pod().member_of("test-podgroup");
        let mut w = world(gates, [template(TEMPLATE), group("test-podgroup"), member]);
        assert!(w.sync(&pod_key("test-pod")));
        let name = w.only_claim_of(&w.uid(Kind::Pod, "test-pod"), ENTRY);
        assert_eq!(w.recorded(Kind::Pod, "test-pod"), map([(ENTRY, &name)]));
        assert_eq!(success(&w, false), 1);
    }
    // A group's entry that differs in one field only is another entry (D29).
    for entry in [
        group("test-podgroup").templated(ENTRY, "other-template"),
        group("test-podgroup").templated("other-entry", TEMPLATE),
        group("test-podgroup").direct(ENTRY, TEMPLATE),
    ] {
        let member = test_pod().member_of("test-podgroup");
        let mut w = world(workload_gates()[0], [template(TEMPLATE), entry, member]);
        w.sync(&pod_key("test-pod"));
        w.only_claim_of(&w.uid(Kind::Pod, "test-pod"), ENTRY);
    }
}

/// Row 5 (skip-create-for-pod-podgroup-does-not-exist), generic workload on.
#[test]
fn a_pod_of_a_missing_group_gets_nothing_and_says_so() {
    for gates in gates_with(|g| g.generic_workload == Gate::On) {
        let member = test_pod().member_of("test-podgroup");
        let mut w = world(gates, [template(TEMPLATE), member]);
        w.sync(&pod_key("test-pod"));
        assert_eq!(w.writes(), 0);
        assert!(
            w.was_told(POD, REASON_CREATION, "podgroup.scheduling.k8s.io \"test-podgroup\" not found"),
            "{:?}",
            w.driver.told
        );
    }
}

/// Row 6 (create-for-podgroup), workload claims on.
#[test]
fn a_group_and_a_template_give_a_claim_owned_by_the_group_and_recorded_in_it() {
    for gates in workload_gates() {
        let mut w = world(gates, [template(TEMPLATE), test_group()]);
        assert!(w.sync(&group_key("test-podgroup")));
        let uid = w.uid(Kind::PodGroup, "test-podgroup");
        let name = w.only_claim_of(&uid, ENTRY);
        assert!(name.starts_with("test-podgroup-acme-resource-"), "{name}");
        let claim = w.claim(&name);
        assert_eq!(
            claim["metadata"]["ownerReferences"],
            json!([{"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "test-podgroup",
                "uid": uid, "controller": true}]),
        );
        assert_eq!(claim["metadata"]["annotations"], json!({ANNOTATION: ENTRY}));
        assert_eq!(w.recorded(Kind::PodGroup, "test-podgroup"), map([(ENTRY, &name)]));
        assert_eq!(w.driver.creates.get(&(true, false, "scheduling.k8s.io", "PodGroup")), Some(&1));
    }
}

/// Row 7 (skip-create-podgroup-claim-for-pod), workload claims on.
#[test]
fn a_pod_waits_for_its_groups_claim_and_does_not_make_it() {
    for gates in workload_gates() {
        let member = test_pod().member_of("test-podgroup");
        let mut w = world(gates, [template(TEMPLATE), test_group(), member]);
        assert!(w.sync(&pod_key("test-pod")), "waiting is no failure");
        assert_eq!(w.writes(), 0);
        assert!(w.driver.told.is_empty(), "pods wait in silence (D33): {:?}", w.driver.told);
    }
}

/// Row 8 (update-pod-status-with-podgroup-claim), workload claims on.
#[test]
fn the_groups_claim_is_recorded_in_the_pod_and_not_made_again() {
    for gates in workload_gates() {
        let member = test_pod().member_of("test-podgroup");
        let mut w = World::new(gates);
        w.put(template(TEMPLATE));
        let uid = w.put(test_group());
        w.put(claim("the-claim").generated_for_group("test-podgroup", &uid, ENTRY));
        w.put(member);
        w.seen();
        assert!(w.sync(&pod_key("test-pod")));
        assert_eq!(w.claim_names(), ["the-claim"]);
        assert_eq!(w.recorded(Kind::Pod, "test-pod"), map([(ENTRY, "the-claim")]));
        assert_eq!(w.requests(Verb::Create), 0);
    }
}

/// Row 9 (skip-create-for-pod-with-podgroup-claim-genericworkload-disabled), generic workload off.
#[test]
fn a_grouped_pod_gets_nothing_while_generic_workload_is_off_and_says_so() {
    for gates in gates_with(|g| g.generic_workload == Gate::Off) {
        let member = test_pod().member_of("test-podgroup");
        let mut w = world(gates, [template(TEMPLATE), test_group(), member]);
        w.sync(&pod_key("test-pod"));
        assert_eq!(w.writes(), 0);
        assert!(w.why(&pod_key("test-pod")).contains("GenericWorkload feature is disabled"));
        assert!(
            w.was_told(POD, REASON_CREATION, "GenericWorkload feature is disabled"),
            "{:?}",
            w.driver.told
        );
    }
}

/// Row 10 (skip-create-for-pod-with-podgroup-claim-workloadresourceclaims-disabled), generic workload on,
/// workload claims off.
#[test]
fn a_groups_entry_makes_no_claim_while_workload_claims_are_off_and_says_so() {
    for gates in gates_with(|g| g.generic_workload == Gate::On && g.workload_resource_claims == Gate::Off) {
        let member = test_pod().member_of("test-podgroup");
        let mut w = world(gates, [template(TEMPLATE), test_group(), member]);
        w.sync(&pod_key("test-pod"));
        assert_eq!(w.writes(), 0, "skew between servers makes no stray claim (D35)");
        assert!(w.was_told(POD, REASON_CREATION, "claim acme-resource is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"), "{:?}", w.driver.told);
    }
}

/// Row 11 (create-for-grouped-pod-with-claim-workloadresourceclaims-disabled), generic workload on, workload
/// claims off.
#[test]
fn a_grouped_pods_own_entry_is_served_while_workload_claims_are_off() {
    for gates in gates_with(|g| g.generic_workload == Gate::On && g.workload_resource_claims == Gate::Off) {
        let member = test_pod().member_of("test-podgroup");
        let mut w = world(gates, [template(TEMPLATE), group("test-podgroup"), member]);
        assert!(w.sync(&pod_key("test-pod")));
        let name = w.only_claim_of(&w.uid(Kind::Pod, "test-pod"), ENTRY);
        assert_eq!(w.recorded(Kind::Pod, "test-pod"), map([(ENTRY, &name)]));
    }
}

/// Row 20 (missing-template), all gates.
#[test]
fn a_missing_template_is_said_and_counts_as_no_request() {
    for gates in all_gates() {
        let mut w = world(gates, [test_pod()]);
        w.sync(&pod_key("test-pod"));
        let note = "PodResourceClaim acme-resource: resource claim template \"my-template\": \
                    resourceclaimtemplate.resource.k8s.io \"my-template\" not found";
        assert!(w.was_told(POD, REASON_CREATION, note), "{:?}", w.driver.told);
        assert_eq!(w.writes(), 0);
        assert!(w.driver.creates.is_empty());
    }
}

/// Row 21 (missing-template-podgroup), workload claims on.
#[test]
fn a_groups_missing_template_is_said_on_the_group() {
    for gates in workload_gates() {
        let mut w = world(gates, [test_group()]);
        w.sync(&group_key("test-podgroup"));
        let note = "PodGroupResourceClaim acme-resource: resource claim template \"my-template\": \
                    resourceclaimtemplate.resource.k8s.io \"my-template\" not found";
        assert!(w.was_told(GROUP, REASON_CREATION, note), "{:?}", w.driver.told);
        assert_eq!(w.writes(), 0);
        assert!(w.driver.creates.is_empty());
    }
}

/// Row 33 (create-with-other-claim), all gates.
#[test]
fn a_claim_in_another_namespace_does_not_stand_for_ours() {
    for gates in all_gates() {
        let other = claim("test-pod-acme-resource").in_namespace("other-ns");
        let mut w = world(gates, [test_pod(), other, template(TEMPLATE)]);
        assert!(w.sync(&pod_key("test-pod")));
        let recorded = w.recorded(Kind::Pod, "test-pod");
        assert!(w.get(Kind::Claim, &recorded[ENTRY]).is_some());
        assert_eq!(success(&w, false), 1);
    }
}

/// Row 34 (create-with-other-claim-podgroup), workload claims on.
#[test]
fn a_claim_in_another_namespace_does_not_stand_for_the_groups() {
    for gates in workload_gates() {
        let other = claim("test-podgroup-acme-resource").in_namespace("other-ns");
        let mut w = world(gates, [test_group(), other, template(TEMPLATE)]);
        assert!(w.sync(&group_key("test-podgroup")));
        let recorded = w.recorded(Kind::PodGroup, "test-podgroup");
        assert!(w.get(Kind::Claim, &recorded[ENTRY]).is_some());
        assert_eq!(w.requests(Verb::Create), 1);
    }
}

/// Rows 33 and 34 where the stranger goes further and names our object as its owner: owners are looked for in
/// their own namespace only (§1.2, §2.3), so that nobody can reach into another namespace with a uid.
#[test]
fn a_claim_in_another_namespace_cannot_claim_our_pod_as_its_owner() {
    let mut w = World::default();
    let uid = w.put(test_pod());
    w.put(claim("stray").in_namespace("other-ns").generated_for("test-pod", &uid, ENTRY));
    let group = w.put(test_group());
    w.put(claim("stray-2").in_namespace("other-ns").generated_for_group("test-podgroup", &group, ENTRY));
    w.put(template(TEMPLATE));
    w.settle();
    assert_eq!(w.recorded(Kind::Pod, "test-pod"), map([(ENTRY, &w.only_claim_of(&uid, ENTRY))]));
    assert_eq!(w.recorded(Kind::PodGroup, "test-podgroup"), map([(ENTRY, &w.only_claim_of(&group, ENTRY))]));
}

/// Row 35 (wrong-claim-owner), all gates.
#[test]
fn a_same_named_claim_of_nobody_is_not_adopted() {
    for gates in all_gates() {
        let mut w = world(gates, [claim("test-pod-acme-resource"), test_pod()]);
        w.sync(&pod_key("test-pod"));
        assert!(w.was_told(POD, REASON_CREATION, "resource claim template \"my-template\""));
        assert!(w.recorded(Kind::Pod, "test-pod").is_empty());
        assert_eq!(w.writes(), 0);
    }
}

/// Row 36 (wrong-claim-owner-podgroup), workload claims on.
#[test]
fn a_same_named_claim_of_nobody_is_not_adopted_by_a_group() {
    for gates in workload_gates() {
        let mut w = world(gates, [claim("test-podgroup-acme-resource"), test_group()]);
        w.sync(&group_key("test-podgroup"));
        assert!(w.was_told(GROUP, REASON_CREATION, "resource claim template \"my-template\""));
        assert!(w.recorded(Kind::PodGroup, "test-podgroup").is_empty());
        assert_eq!(w.writes(), 0);
    }
}

/// Row 37 (create-conflict), all gates.
#[test]
fn a_refused_create_request_is_counted_and_tried_again() {
    for gates in all_gates() {
        let mut w = world(gates, [template(TEMPLATE), test_pod()]);
        w.fail(Verb::Create, "", Refusal::Conflict, 1);
        assert!(!w.sync(&pod_key("test-pod")), "a failure is retried");
        assert!(w.claim_names().is_empty());
        assert_eq!(w.driver.creates.get(&(false, false, "", "Pod")), Some(&1));
        assert_eq!(w.requests(Verb::RecordPod), 0);
        w.settle();
        w.only_claim_of(&w.uid(Kind::Pod, "test-pod"), ENTRY);
    }
}

/// Row 38 (create-conflict-admin-access), admin access on.
#[test]
fn a_refused_admin_claim_is_counted_as_admin() {
    for gates in gates_with(|g| g.admin_access) {
        let mut w = world(gates, [admin_template(TEMPLATE), test_pod()]);
        w.fail(Verb::Create, "", Refusal::Conflict, 1);
        assert!(!w.sync(&pod_key("test-pod")));
        assert_eq!(w.driver.creates.get(&(false, true, "", "Pod")), Some(&1));
    }
}

/// Row 39 (create-conflict-podgroup), workload claims on.
#[test]
fn a_refused_group_claim_is_counted_for_the_group() {
    for gates in workload_gates() {
        let mut w = world(gates, [template(TEMPLATE), test_group()]);
        w.fail(Verb::Create, "", Refusal::Conflict, 1);
        assert!(!w.sync(&group_key("test-podgroup")));
        assert_eq!(w.driver.creates.get(&(false, false, "scheduling.k8s.io", "PodGroup")), Some(&1));
        assert!(w.claim_names().is_empty());
    }
}

/// §2.2-8: a refused create request is an event on the Pod. The reason of the refusal is the executor's to add;
/// what the planner must not do is to go silent for ever.
#[test]
fn the_settled_world_is_the_same_whether_requests_failed_or_not() {
    for how in [Refusal::Conflict, Refusal::Internal, Refusal::Invalid("quota".to_owned()), Refusal::Lost] {
        let mut w = world(all_gates()[0], [template(TEMPLATE), test_pod()]);
        w.fail(Verb::Create, "", how.clone(), 7);
        w.fail(Verb::RecordPod, "", how, 3);
        w.sync(&pod_key("test-pod"));
        w.settle();
        let name = w.only_claim_of(&w.uid(Kind::Pod, "test-pod"), ENTRY);
        assert_eq!(w.recorded(Kind::Pod, "test-pod"), map([(ENTRY, &name)]));
        assert_eq!(w.requests(Verb::Create), 8);
    }
}

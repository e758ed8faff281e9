//! Spec §9.1, rows about claims that are there already, and about nothing to do: 12–19, 22–32, 56.

use dra_controllers::resourceclaim::{Gates, Key, REASON_CREATION};
use serde_json::json;

use crate::common::{
    World, all_gates, driver::Verb, group_key, map, objects::*, pod_key, server::Kind, workload_gates,
};

const ENTRY: &str = "acme-resource";
const TEMPLATE: &str = "my-template";

/// Who the claim is for: the rows come in pairs.
#[derive(Clone, Copy, PartialEq)]
enum For {
    Pod,
    Group,
}

impl For {
    fn gates(self) -> Vec<Gates> {
        match self {
            Self::Pod => all_gates(),
            Self::Group => workload_gates(),
        }
    }

    fn kind(self) -> Kind {
        match self {
            Self::Pod => Kind::Pod,
            Self::Group => Kind::PodGroup,
        }
    }

    fn draft(self) -> Draft {
        match self {
            Self::Pod => pod("owner").templated(ENTRY, TEMPLATE),
            Self::Group => group("owner").templated(ENTRY, TEMPLATE),
        }
    }

    fn key(self) -> Key {
        match self {
            Self::Pod => pod_key("owner"),
            Self::Group => group_key("owner"),
        }
    }

    fn generated(self, name: &str, uid: &str, entry: &str) -> Draft {
        claim(name).generated_by(self.kind(), "owner", uid, entry)
    }

    fn record(self) -> Verb {
        match self {
            Self::Pod => Verb::RecordPod,
            Self::Group => Verb::RecordGroup,
        }
    }
}

/// Rows 12 and 13 (nop, nop-podgroup).
fn recorded_and_there(who: For) {
    for gates in who.gates() {
        let mut w = World::new(gates);
        let uid = w.put(who.draft().recorded(ENTRY, Some("claim")));
        w.put(who.generated("claim", &uid, ENTRY));
        w.put(template(TEMPLATE));
        w.seen();
        assert!(w.sync(&who.key()));
        assert_eq!(w.writes(), 0);
        assert_eq!(w.driver.requests.values().sum::<usize>(), 0, "nor a question");
    }
}

/// Row 12.
#[test]
fn a_recorded_claim_that_is_there_needs_nothing() {
    recorded_and_there(For::Pod);
}

/// Row 13.
#[test]
fn a_groups_recorded_claim_that_is_there_needs_nothing() {
    recorded_and_there(For::Group);
}

/// Rows 14 and 15 (nop-claim-in-mutation-cache-only): the claim is known from the answer to our own request; the
/// watch has shown neither the claim nor the recorded name.
fn known_from_our_own_request(who: For) {
    for gates in who.gates() {
        let mut w = World::new(gates);
        w.put(template(TEMPLATE));
        let uid = w.put(who.draft());
        w.seen();
        w.server.lag.insert(Kind::Claim, std::time::Duration::from_secs(30));
        assert!(w.sync(&who.key()));
        let name = w.only_claim_of(&uid, ENTRY);
        let before = w.writes();
        w.edit(who.kind(), "owner", |o| o["metadata"]["labels"] = json!({"touched": "yes"}));
        w.deliver();
        assert!(w.sync(&who.key()));
        assert_eq!(w.only_claim_of(&uid, ENTRY), name);
        assert_eq!(w.writes(), before);
    }
}

/// Row 14.
#[test]
fn a_claim_known_from_our_own_request_only_is_not_made_again() {
    known_from_our_own_request(For::Pod);
}

/// Row 15.
#[test]
fn a_groups_claim_known_from_our_own_request_only_is_not_made_again() {
    known_from_our_own_request(For::Group);
}

/// Rows 16 and 17 (nop-claim-in-apiserver-only): an earlier run recorded the claim; the watch is late.
fn known_to_the_server_only(who: For) {
    for gates in who.gates() {
        let mut w = World::new(gates);
        w.put(template(TEMPLATE));
        let uid = w.put(who.draft().recorded(ENTRY, Some("claim")));
        w.seen();
        w.server.lag.insert(Kind::Claim, std::time::Duration::from_secs(30));
        w.put(who.generated("claim", &uid, ENTRY));
        assert!(w.sync(&who.key()));
        assert_eq!(w.requests(Verb::GetClaim), 1, "one live look");
        assert_eq!(w.writes(), 0);
        assert_eq!(w.claim_names(), ["claim"]);
    }
}

/// Row 16.
#[test]
fn a_recorded_claim_that_only_the_server_knows_is_looked_up_and_kept() {
    known_to_the_server_only(For::Pod);
}

/// Row 17.
#[test]
fn a_groups_recorded_claim_that_only_the_server_knows_is_looked_up_and_kept() {
    known_to_the_server_only(For::Group);
}

/// Rows 18 and 19 (recreate).
fn recorded_and_gone(who: For) {
    for gates in who.gates() {
        let mut w = World::new(gates);
        w.put(template(TEMPLATE));
        let uid = w.put(who.draft().recorded(ENTRY, Some("lost")));
        w.seen();
        assert!(w.sync(&who.key()));
        let name = w.only_claim_of(&uid, ENTRY);
        assert_ne!(name, "lost");
        assert_eq!(w.recorded(who.kind(), "owner"), map([(ENTRY, &name)]));
        assert_eq!(w.driver.creates.iter().filter(|((ok, ..), _)| *ok).map(|(_, n)| n).sum::<usize>(), 1);
    }
}

/// Row 18.
#[test]
fn a_recorded_claim_that_is_gone_is_made_again_and_recorded() {
    recorded_and_gone(For::Pod);
}

/// Row 19.
#[test]
fn a_groups_recorded_claim_that_is_gone_is_made_again_and_recorded() {
    recorded_and_gone(For::Group);
}

/// Rows 22 and 23 (find-existing-claim-by-label): made, but never recorded; the template is gone by now.
fn made_and_not_recorded(who: For) {
    for gates in who.gates() {
        let mut w = World::new(gates);
        let uid = w.put(who.draft());
        w.put(who.generated("orphan", &uid, ENTRY));
        w.seen();
        assert!(w.sync(&who.key()));
        assert_eq!(w.recorded(who.kind(), "owner"), map([(ENTRY, "orphan")]));
        assert_eq!((w.requests(Verb::Create), w.requests(who.record())), (0, 1));
        assert!(w.driver.told.is_empty());
    }
}

/// Row 22.
#[test]
fn a_claim_that_was_made_but_not_recorded_is_adopted() {
    made_and_not_recorded(For::Pod);
}

/// Row 23.
#[test]
fn a_groups_claim_that_was_made_but_not_recorded_is_adopted() {
    made_and_not_recorded(For::Group);
}

/// Rows 24 and 25 (find-created-claim-in-cache): the create request succeeded, the status apply failed, and the
/// watch shows neither.
fn made_by_us_and_not_recorded(who: For) {
    for gates in who.gates() {
        let mut w = World::new(gates);
        w.put(template(TEMPLATE));
        let uid = w.put(who.draft());
        w.seen();
        w.server.lag.insert(Kind::Claim, std::time::Duration::from_secs(30));
        w.fail(who.record(), "", crate::common::server::Refusal::Internal, 1);
        assert!(!w.sync(&who.key()));
        assert!(w.recorded(who.kind(), "owner").is_empty());
        assert!(w.sync(&who.key()));
        let name = w.only_claim_of(&uid, ENTRY);
        assert_eq!(w.recorded(who.kind(), "owner"), map([(ENTRY, &name)]));
        assert_eq!(w.requests(Verb::Create), 1);
    }
}

/// Row 24.
#[test]
fn a_claim_that_we_just_made_is_adopted_before_the_watch_shows_it() {
    made_by_us_and_not_recorded(For::Pod);
}

/// Row 25.
#[test]
fn a_groups_claim_that_we_just_made_is_adopted_before_the_watch_shows_it() {
    made_by_us_and_not_recorded(For::Group);
}

/// Rows 26 and 27 (recreate-wrong-owner), through real events: in-tree never queues such a Pod (defect 11).
fn recorded_but_somebody_elses(who: For) {
    for gates in who.gates() {
        let mut w = World::new(gates);
        w.put(template(TEMPLATE));
        w.put(claim("foreign"));
        let uid = w.put(who.draft().recorded(ENTRY, Some("foreign")));
        w.server.own_statuses(who.kind(), &dra_api::ObjectKey::new(NS, "owner"));
        let foreign = w.claim("foreign");
        w.settle();
        let name = w.only_claim_of(&uid, ENTRY);
        assert_eq!(w.recorded(who.kind(), "owner"), map([(ENTRY, &name)]));
        assert_eq!(w.claim("foreign"), foreign, "not ours to touch");
        assert_eq!(w.requests(Verb::Create), 1);
    }
}

/// Row 26.
#[test]
fn a_recorded_claim_of_somebody_else_is_left_alone_and_replaced() {
    recorded_but_somebody_elses(For::Pod);
}

/// Row 27.
#[test]
fn a_groups_recorded_claim_of_somebody_else_is_left_alone_and_replaced() {
    recorded_but_somebody_elses(For::Group);
}

/// Rows 28 and 29 (no-such-pod, no-such-podgroup).
#[test]
fn an_object_that_does_not_exist_needs_nothing() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        for key in [For::Pod.key(), For::Group.key(), crate::common::claim_key("none")] {
            assert!(w.sync(&key));
        }
        assert!(w.driver.requests.is_empty());
    }
}

/// Rows 30 and 31 (pod-deleted, podgroup-deleted).
#[test]
fn an_object_that_is_being_deleted_gets_no_claim() {
    for who in [For::Pod, For::Group] {
        for gates in who.gates() {
            let mut w = World::new(gates);
            w.put(template(TEMPLATE));
            w.put(who.draft().deleting());
            w.seen();
            assert!(w.sync(&who.key()));
            assert_eq!(w.writes(), 0);
            assert!(w.driver.told.is_empty());
        }
    }
}

/// Row 32 (no-volumes).
#[test]
fn a_pod_without_claims_needs_nothing() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        w.put(pod("owner"));
        assert_eq!(w.triggered(), []);
        assert!(w.sync(&For::Pod.key()));
        assert!(w.driver.requests.is_empty());
    }
}

/// Row 56 (flapping-resourceclaim-statuses), all gates.
#[test]
fn one_apply_holds_the_recorded_claim_and_the_new_one() {
    for gates in all_gates() {
        let mut w = World::new(gates);
        w.put(template(TEMPLATE));
        let uid = w.put(
            pod("owner").templated("a", TEMPLATE).templated("b", TEMPLATE).recorded("a", Some("claim-a")),
        );
        w.put(claim("claim-a").generated_for("owner", &uid, "a"));
        w.server.own_statuses(Kind::Pod, &dra_api::ObjectKey::new(NS, "owner"));
        w.settle();
        let b = w.only_claim_of(&uid, "b");
        assert_eq!(w.recorded(Kind::Pod, "owner"), map([("a", "claim-a"), ("b", &b)]));
        assert_eq!(w.requests(Verb::RecordPod), 1);
        let sizes: Vec<usize> = w.server.recorded[&uid].iter().map(std::collections::BTreeMap::len).collect();
        assert_eq!(sizes, [1, 2]);
    }
}

/// §2.5, §2.6: an entry that its Pod does not need (a recorded null) is honoured: no claim, and the entry stays
/// as it is beside ours.
#[test]
fn an_entry_recorded_as_not_needed_gets_no_claim_and_stays() {
    for who in [For::Pod, For::Group] {
        for gates in who.gates() {
            let mut w = World::new(gates);
            w.put(template(TEMPLATE));
            let uid = w.put(who.draft().templated("second", TEMPLATE).recorded(ENTRY, None));
            w.settle();
            let second = w.only_claim_of(&uid, "second");
            assert!(!w.claims_of(&uid).contains_key(ENTRY));
            let owner = w.get(who.kind(), "owner").unwrap();
            assert_eq!(
                owner["status"]["resourceClaimStatuses"],
                json!([{"name": ENTRY}, {"name": "second", "resourceClaimName": second}]),
            );
        }
    }
}

/// §2.5: entries for claims that a user made are never recorded.
#[test]
fn a_users_claim_is_never_recorded_nor_missed_aloud() {
    for who in [For::Pod, For::Group] {
        for gates in who.gates() {
            let mut w = World::new(gates);
            w.put(template(TEMPLATE));
            let uid = w.put(who.draft().direct("mine", "hand-made"));
            w.settle();
            let name = w.only_claim_of(&uid, ENTRY);
            assert_eq!(w.recorded(who.kind(), "owner"), map([(ENTRY, &name)]));
            assert!(!w.driver.told.keys().any(|(_, reason, _)| *reason == REASON_CREATION));
            w.put(claim("hand-made"));
            w.settle();
            assert_eq!(w.recorded(who.kind(), "owner"), map([(ENTRY, &name)]));
            assert_eq!(w.writes(), 2);
        }
    }
}

/// §2.2-6: of several orphans exactly one is used; none is adopted without annotation or controller ownership.
#[test]
fn only_a_claim_with_our_annotation_and_controller_ownership_is_adopted() {
    let mut w = World::default();
    w.put(template(TEMPLATE));
    let uid = w.put(For::Pod.draft());
    let mut unannotated = claim("unannotated").owned_by("v1", "Pod", "owner", &uid);
    unannotated.body["metadata"]["annotations"] = json!({"other": ENTRY});
    w.put(unannotated);
    let mut uncontrolled = claim("uncontrolled").generated_for("owner", &uid, ENTRY);
    uncontrolled.body["metadata"]["ownerReferences"][0]["controller"] = json!(false);
    w.put(uncontrolled);
    w.put(claim("other-entry").generated_for("owner", &uid, "other"));
    w.put(claim("other-version").owned_by("v2", "Pod", "owner", &uid).annotated(ANNOTATION, ENTRY));
    w.seen();
    assert!(w.sync(&For::Pod.key()));
    let recorded = w.recorded(Kind::Pod, "owner");
    assert!(recorded[ENTRY].starts_with("owner-acme-resource-"), "{recorded:?}");
}

/// §2.3: for a Pod of a group the recorded claim may belong to the group, in any version of its API, by name.
#[test]
fn a_group_claim_recorded_in_a_pod_is_right_in_any_version_of_the_groups_api() {
    for gates in workload_gates() {
        let mut w = World::new(gates);
        w.put(template(TEMPLATE));
        let uid = w.put(group("g").templated(ENTRY, TEMPLATE).recorded(ENTRY, Some("shared")));
        w.put(
            claim("shared")
                .owned_by("scheduling.k8s.io/v1alpha9", "PodGroup", "g", &uid)
                .annotated(ANNOTATION, ENTRY),
        );
        w.put(For::Pod.draft().member_of("g").recorded(ENTRY, Some("shared")));
        w.settle();
        assert_eq!(w.writes(), 0, "{:?}", w.driver.log);
    }
}

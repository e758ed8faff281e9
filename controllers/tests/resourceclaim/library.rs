//! Spec §9.2, the smaller unit tests: template copies, existence, ownership, reservation, binding, names,
//! the admin label.

use dra_controllers::{plan::Action, resourceclaim::naming::generate_name};
use serde_json::{Value, json};

use crate::common::{
    World, driver::Verb, group_key, map, objects::*, pod_key, server::Kind, server::Refusal,
};

const ENTRY: &str = "e";

/// `TestCreateClaimDoesNotMutateTemplate`, pod and podGroup, and §2.4: what is copied and what is not.
#[test]
fn a_claim_gets_a_copy_of_the_templates_metadata_and_the_template_stays_as_it_is() {
    let mut t = template("t").finalizer("example.com/hold").annotated("own", "not-copied");
    t.body["metadata"]["labels"] = json!({"own": "not-copied"});
    t.body["spec"]["metadata"] = json!({
        "labels": {"app": "x"},
        "annotations": {"example.com/color": "red", ANNOTATION: "overridden"},
        "finalizers": ["example.com/not-copied"]
    });
    t.body["spec"]["spec"]["fieldOfALaterVersion"] = json!({"kept": [1, 2.5, "three", null]});
    let mut w = World::default();
    w.put(t.clone());
    let p = w.put(pod("p").templated(ENTRY, "t"));
    let g = w.put(group("g").templated(ENTRY, "t"));
    w.settle();
    for uid in [p, g] {
        let claim = w.claim(&w.only_claim_of(&uid, ENTRY));
        assert_eq!(claim["metadata"]["labels"], json!({"app": "x"}));
        assert_eq!(claim["metadata"]["annotations"], json!({"example.com/color": "red", ANNOTATION: ENTRY}));
        assert!(claim["metadata"]["finalizers"].is_null());
        assert_eq!(claim["spec"], t.body["spec"]["spec"], "verbatim, unknown fields included");
        assert!(claim["metadata"]["ownerReferences"][0]["blockOwnerDeletion"].is_null());
    }
    let cached = w.driver.view.templates.iter().next().unwrap();
    assert_eq!(cached.annotations.len(), 2);
    assert_eq!(cached.annotations.get(ANNOTATION).map(String::as_str), Some("overridden"));
}

/// `TestClaimExists`: found in the view (by the watch or by an answer) or on the server: no new claim. Nowhere: a new
/// one. When the server cannot say, nothing is made and the key is tried again.
#[test]
fn a_claim_is_made_again_only_when_the_server_says_that_it_is_gone() {
    let mut w = World::default();
    w.put(template("t"));
    let uid = w.put(pod("p").templated(ENTRY, "t").recorded(ENTRY, Some("c")));
    w.seen();
    w.server.lag.insert(Kind::Claim, std::time::Duration::from_hours(1));
    w.put(claim("c").generated_for("p", &uid, ENTRY));
    w.fail(Verb::GetClaim, "ns/c", Refusal::Internal, 2);
    assert!(!w.sync(&pod_key("p")));
    assert_eq!((w.requests(Verb::GetClaim), w.writes()), (1, 0), "one question a pass, and no guess");
    assert!(!w.sync(&pod_key("p")));
    assert!(w.sync(&pod_key("p")));
    assert_eq!((w.requests(Verb::GetClaim), w.writes()), (3, 0));

    let mut w = World::default();
    w.put(template("t"));
    w.put(pod("p").templated(ENTRY, "t").recorded(ENTRY, Some("c")));
    w.seen();
    assert!(w.sync(&pod_key("p")));
    assert_eq!((w.requests(Verb::GetClaim), w.requests(Verb::Create)), (1, 1));
}

/// `TestResourceClaimIsFor`: owner by uid for Pods and groups; a Pod of a group accepts the group's by name in any
/// API version; another namespace, another uid, another kind, no owner are refused.
#[test]
fn a_generated_claim_must_belong_to_the_pod_or_its_group() {
    let cases: [(&str, Draft, bool); 7] = [
        ("the Pod's", claim("c").generated_for("p", "uid-p", ENTRY), true),
        ("another uid's", claim("c").generated_for("p", "uid-other", ENTRY), false),
        ("nobody's", claim("c").annotated(ANNOTATION, ENTRY), false),
        (
            "a Job's",
            claim("c").owned_by("batch/v1", "Job", "p", "uid-job").annotated(ANNOTATION, ENTRY),
            false,
        ),
        ("the group's", claim("c").generated_for_group("g", "uid-g", ENTRY), true),
        (
            "the group's in another version",
            claim("c")
                .owned_by("scheduling.k8s.io/v2", "PodGroup", "g", "uid-g")
                .annotated(ANNOTATION, ENTRY),
            true,
        ),
        ("another group's", claim("c").generated_for_group("h", "uid-h", ENTRY), false),
    ];
    for (what, draft, accepted) in cases {
        let mut w = World::default();
        w.put(template("t"));
        w.put(group("g").uid("uid-g").templated(ENTRY, "t"));
        w.put(pod("p").uid("uid-p").templated(ENTRY, "t").member_of("g").recorded(ENTRY, Some("c")));
        w.put(draft);
        w.seen();
        w.sync(&pod_key("p"));
        assert_eq!(w.writes(), 0, "a Pod never makes its group's claim: {what}");
        let settled = w.why(&pod_key("p")).is_empty();
        assert_eq!(settled, accepted, "{what}: {}", w.why(&pod_key("p")));
    }
}

/// The text of a refusal names the claim (`TestResourceClaimIsFor` checks exact texts; ours are ours, and stable).
#[test]
fn a_refused_claim_is_named_in_the_explanation() {
    let mut w = World::default();
    w.put(pod("p").templated(ENTRY, "t").recorded(ENTRY, Some("c")));
    w.put(claim("c"));
    w.settle();
    let why = w.why(&pod_key("p"));
    assert!(why.contains("ResourceClaim \"c\"") || why.contains("template \"t\""), "{why}");
}

/// `TestIsReservedForPod`, 11 cases: by the Pod's uid in any entry, or by its group's name.
#[test]
fn a_pod_on_a_node_is_reserved_once_by_its_uid_or_through_its_group() {
    let foreign = json!({"apiGroup": "foo.com", "resource": "foo", "name": "p", "uid": "uid-foo"});
    let odd_group = json!({"apiGroup": "other.io", "resource": "podgroups", "name": "g", "uid": "uid-x"});
    let odd_kind =
        json!({"apiGroup": "scheduling.k8s.io", "resource": "queues", "name": "g", "uid": "uid-q"});
    let lookalike = json!({"apiGroup": "foo.com", "resource": "foo", "name": "x", "uid": "uid-p"});
    let cases: Vec<(&str, bool, Vec<Value>, bool)> = vec![
        ("no consumer", false, vec![], false),
        ("this Pod", false, vec![pod_consumer("p", "uid-p")], true),
        ("this Pod among others", false, vec![foreign.clone(), pod_consumer("p", "uid-p")], true),
        ("an entry with its uid, whatever it says", false, vec![lookalike], true),
        ("somebody else", false, vec![foreign], false),
        ("its group", true, vec![group_consumer("g", "uid-g")], true),
        (
            "its group among others",
            true,
            vec![pod_consumer("live", "uid-l"), group_consumer("g", "uid-g")],
            true,
        ),
        ("another group", true, vec![group_consumer("h", "uid-h")], false),
        ("an odd API group", true, vec![odd_group], false),
        ("an odd resource", true, vec![odd_kind], false),
        ("a group, but it is in none", false, vec![group_consumer("g", "uid-g")], false),
    ];
    for (what, grouped, consumers, reserved) in cases {
        let mut w = World::default();
        w.put(group("g").uid("uid-g").direct("group-entry", "c"));
        w.put(group("h").uid("uid-h"));
        w.put(pod("live").uid("uid-l").on("n"));
        let mut p = pod("p").uid("uid-p").direct(ENTRY, "c").on("n");
        if grouped {
            p = p.member_of("g");
        }
        w.put(p);
        let draft = consumers.into_iter().fold(claim("c").allocated(), Draft::reserved_for);
        w.put(draft);
        w.seen();
        assert!(w.sync(&pod_key("p")), "{what}");
        assert_eq!(w.requests(Verb::Reserve), usize::from(!reserved), "{what}");
    }
}

/// `TestBindTo`: the group is the consumer only where name, claim and template are all equal (null equals null).
#[test]
fn a_claim_is_bound_to_the_group_only_where_the_entries_are_equal() {
    let cases: Vec<(&str, Draft, Option<Draft>, &str)> = vec![
        ("no group", pod("p").direct(ENTRY, "c"), None, "p"),
        ("group without entries", pod("p").direct(ENTRY, "c"), Some(group("g")), "p"),
        ("equal direct entries", pod("p").direct(ENTRY, "c"), Some(group("g").direct(ENTRY, "c")), "g"),
        ("other claim", pod("p").direct(ENTRY, "c"), Some(group("g").direct(ENTRY, "d")), "p"),
        ("other name", pod("p").direct(ENTRY, "c"), Some(group("g").direct("f", "c")), "p"),
        ("template instead", pod("p").direct(ENTRY, "c"), Some(group("g").templated(ENTRY, "c")), "p"),
        (
            "second of two",
            pod("p").direct(ENTRY, "c"),
            Some(group("g").direct("f", "d").direct(ENTRY, "c")),
            "g",
        ),
    ];
    for (what, p, g, consumer) in cases {
        let mut w = World::default();
        let mut p = p.on("n");
        if let Some(g) = g {
            w.put(g);
            p = p.member_of("g");
        }
        w.put(p);
        w.put(claim("c").allocated());
        w.seen();
        w.sync(&pod_key("p"));
        assert_eq!(w.reserved("c"), [consumer], "{what}");
    }
}

/// `TestBindTo`, errors: an entry of the group with neither field, before the match, leaves the rest usable: the
/// Pod's entries are judged one by one.
#[test]
fn a_group_entry_that_we_do_not_understand_does_not_stop_the_others() {
    let mut w = World::default();
    w.put(template("t"));
    w.put(group("g").neither("new-kind").templated(ENTRY, "t"));
    w.put(pod("p").templated(ENTRY, "t").templated("own", "t").member_of("g"));
    w.settle();
    let group_claim = w.only_claim_of(&w.uid(Kind::PodGroup, "g"), ENTRY);
    let own = w.only_claim_of(&w.uid(Kind::Pod, "p"), "own");
    assert_eq!(w.recorded(Kind::Pod, "p"), map([(ENTRY, &group_claim), ("own", &own)]));
}

/// `TestName` and `TestNameFromPodGroup`: direct, generated, not made yet, neither.
#[test]
fn an_entry_stands_for_its_users_claim_its_generated_claim_or_none() {
    let mut w = World::default();
    let statuses = pod("p")
        .direct("direct", "hand-made")
        .templated("made", "t")
        .templated("null", "t")
        .templated("not-made", "t")
        .neither("neither")
        .recorded("made", Some("generated"))
        .recorded("null", None);
    let mut g = group("g");
    g.body["spec"] = json!({"resourceClaims": statuses.body["spec"]["resourceClaims"]});
    g.body["status"] = statuses.body["status"].clone();
    w.put(statuses);
    w.put(g);
    w.seen();
    let resolve =
        |entries: &[dra_api::ClaimEntry], statuses: &[dra_api::ClaimStatus]| -> Vec<Option<String>> {
            let name = |e| dra_controllers::view::resolved(e, statuses).map(ToString::to_string);
            entries.iter().map(name).collect()
        };
    let expected = [Some("hand-made".to_owned()), Some("generated".to_owned()), None, None, None];
    let p = w.driver.view.pods.iter().next().unwrap();
    assert_eq!(resolve(&p.claims, &p.claim_statuses), expected);
    let g = w.driver.view.pod_groups.iter().next().unwrap();
    assert_eq!(resolve(&g.claims, &g.claim_statuses), expected);
}

/// `TestGetAdminAccessMetricLabel`, on the claims that are created.
#[test]
fn a_claim_counts_as_admin_when_an_exact_request_asks_for_it() {
    let exactly =
        |admin: Value| json!({"name": "r", "exactly": {"deviceClassName": "g", "adminAccess": admin}});
    let list = json!({"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "g"}]});
    let cases = [
        (json!([]), false),
        (json!([exactly(json!(false))]), false),
        (json!([exactly(Value::Null)]), false),
        (json!([list.clone()]), false),
        (json!([exactly(json!(false)), exactly(Value::Null)]), false),
        (json!([exactly(json!(true))]), true),
        (json!([list, exactly(json!(false)), exactly(json!(true))]), true),
    ];
    for (requests, admin) in cases {
        let mut t = template("t");
        t.body["spec"]["spec"]["devices"]["requests"] = requests.clone();
        let mut w = World::default();
        w.put(t);
        w.put(pod("p").templated(ENTRY, "t"));
        w.settle();
        assert_eq!(w.driver.creates.get(&(true, admin, "", "Pod")), Some(&1), "{requests}");
    }
    let mut t = template("t");
    t.body["spec"]["spec"] = json!({});
    let mut w = World::default();
    w.put(t);
    w.put(pod("p").templated(ENTRY, "t"));
    w.settle();
    assert_eq!(w.driver.creates.get(&(true, false, "", "Pod")), Some(&1), "no devices at all");
}

/// §2.4: names up to 57 bytes are joined, longer ones cut in proportion; examples observed on the real server.
#[test]
fn generated_names_are_cut_as_in_tree() {
    let p = |n: usize| "p".repeat(n);
    let c = |n: usize| "c".repeat(n);
    assert_eq!(generate_name("test-pod", "acme"), "test-pod-acme-");
    assert_eq!(generate_name(&p(63), &c(63)), format!("{}-{}", p(28), c(28)));
    assert_eq!(generate_name(&p(253), "x"), format!("{}-", p(56)));
    // N = len + len + 2: 57 is whole, 58 is cut and loses the trailing hyphen.
    assert_eq!(generate_name(&p(50), &c(5)), format!("{}-{}-", p(50), c(5)));
    assert_eq!(generate_name(&p(50), &c(6)), format!("{}-{}", p(49), c(5)));
}

/// §2.4 on the server: truncated names are accepted, whatever the owner is called.
#[test]
fn the_server_accepts_every_generated_name() {
    let long = ["p".repeat(253), format!("{}.{}", "a".repeat(40), "b".repeat(19)), "a.".repeat(60) + "a"];
    for owner in long {
        for entry in ["x".to_owned(), "c".repeat(20), "c".repeat(63), format!("{}-c", "-".repeat(0) + "a")] {
            let mut w = World::default();
            w.put(template("t"));
            let uid = w.put(pod(&owner).templated(&entry, "t"));
            w.settle();
            let name = w.only_claim_of(&uid, &entry);
            assert!(name.len() <= 63 && w.driver.told.is_empty(), "{name}");
        }
    }
}

/// §5: the planner deallocates with status first and the finalizer in a second request, and deletes with both
/// preconditions (defect 7); the plan says so itself.
#[test]
fn a_release_is_planned_with_the_claim_as_it_was_seen() {
    let mut w = World::default();
    w.put(claim("c").allocated().reserved_for(pod_consumer("p", "uid-p")));
    w.seen();
    w.sync(&crate::common::claim_key("c"));
    let writes: Vec<&String> = w.driver.log.iter().filter(|l| l.contains("ResourceClaim ns/c")).collect();
    assert_eq!(
        writes,
        [
            "release ResourceClaim ns/c of uid-p (gone) and deallocate it",
            "remove the finalizer of ResourceClaim ns/c"
        ]
    );
}

/// The same view gives the same plan, and planning changes nothing.
#[test]
fn planning_twice_gives_the_same_actions() {
    let mut w = World::default();
    w.put(template("t"));
    w.put(pod("p").templated("b", "t").templated("a", "t"));
    w.put(group("g").templated("b", "t"));
    w.seen();
    let pass = dra_controllers::plan::Pass::at(w.server.now);
    for key in [pod_key("p"), group_key("g")] {
        let plan = |w: &World| w.driver.planner.plan(&w.driver.view, &key, &pass);
        let (one, two) = (plan(&w), plan(&w));
        assert_eq!(one.actions, two.actions);
        assert!(one.actions.iter().any(|a| matches!(a, Action::Create(_))));
    }
}

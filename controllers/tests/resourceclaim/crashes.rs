//! The manager ends between any two of its actions and starts again; answers get lost at any request. Every story
//! ends as it does without.

use std::collections::BTreeMap;

use serde_json::json;

use crate::common::{World, driver::Verb, objects::*, server::Kind};

/// One step of a story: what somebody else does while the controller rests.
type Step = fn(&mut World);

const A_POD_FROM_START_TO_END: &[Step] = &[
    |w| {
        w.put(template("t"));
        w.put(claim("hand-made"));
        w.put(pod("p").templated("a", "t").templated("b", "t").direct("c", "hand-made"));
    },
    |w| assert!(w.schedule("p")),
    |w| w.phase("p", "Running"),
    |w| w.phase("p", "Succeeded"),
];

const A_POD_THAT_STAYS: &[Step] = &[
    |w| {
        w.put(template("t"));
        w.put(pod("p").templated("a", "t").templated("b", "t"));
    },
    |w| assert!(w.schedule("p")),
];

const A_POD_ON_A_NODE: &[Step] = &[
    |w| {
        w.put(template("t"));
        w.put(pod("p").templated("a", "t").templated("b", "t").on("node"));
    },
    |w| {
        for name in w.claim_names() {
            w.edit(Kind::Claim, &name, |c| {
                push(c, "metadata", "finalizers", json!(FINALIZER));
                c["status"]["allocation"] = json!({});
            });
        }
    },
    |w| w.delete(Kind::Pod, "p"),
    |w| w.vanish(Kind::Pod, "p"),
];

const A_CLAIM_THAT_A_USER_DELETES: &[Step] = &[
    |w| {
        w.put(template("t"));
        w.put(pod("p").templated("a", "t").templated("b", "t"));
        w.put(group("g").templated("a", "t"));
    },
    |w| {
        for name in w.claim_names() {
            w.delete(Kind::Claim, &name);
        }
    },
];

const A_GROUP_FROM_START_TO_END: &[Step] = &[
    |w| {
        w.put(template("t"));
        w.put(group("g").templated("a", "t").templated("b", "t"));
        w.put(pod("p").templated("a", "t").templated("own", "t").member_of("g"));
        w.put(pod("q").templated("b", "t").member_of("g"));
    },
    |w| assert!(w.schedule("p") && w.schedule("q")),
    |w| w.vanish(Kind::Pod, "p"),
    |w| w.phase("q", "Failed"),
    |w| w.vanish(Kind::PodGroup, "g"),
];

const A_POD_THAT_IS_REPLACED: &[Step] = &[
    |w| {
        w.put(template("t"));
        w.put(pod("p").templated("a", "t"));
    },
    |w| assert!(w.schedule("p")),
    |w| {
        w.vanish(Kind::Pod, "p");
        w.put(pod("p").templated("a", "t"));
    },
];

const STORIES: &[(&str, &[Step])] = &[
    ("a Pod from start to end", A_POD_FROM_START_TO_END),
    ("a Pod that stays", A_POD_THAT_STAYS),
    ("a Pod on a node", A_POD_ON_A_NODE),
    ("claims that a user deletes", A_CLAIM_THAT_A_USER_DELETES),
    ("a group from start to end", A_GROUP_FROM_START_TO_END),
    ("a Pod that is replaced", A_POD_THAT_IS_REPLACED),
];

/// What counts in the end: by owner and entry, whether the claim is recorded, its consumers and allocation; random
/// names left out. A finalizer that outlived its allocation is harmless (§5-A).
fn outcome(w: &World) -> BTreeMap<String, String> {
    let mut result = BTreeMap::new();
    for (kind, of) in [(Kind::Pod, "Pod"), (Kind::PodGroup, "PodGroup")] {
        for owner in w.server.list(kind) {
            let name = owner["metadata"]["name"].as_str().unwrap();
            let claims = w.claims_of(&w.uid(kind, name));
            for (entry, names) in &claims {
                assert_eq!(names.len(), 1, "{of} {name} {entry}: {names:?}");
            }
            let mine = w.recorded(kind, name);
            for (entry, claims) in &claims {
                let ended = matches!(owner["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
                assert!(ended || mine.get(entry) == Some(&claims[0]), "{of} {name} {entry}: {mine:?}");
            }
            let entries: Vec<_> = claims.keys().cloned().collect();
            let recorded: Vec<_> = mine.keys().cloned().collect();
            result.insert(format!("{of} {name}"), format!("{entries:?} {recorded:?}"));
        }
    }
    for claim in w.server.list(Kind::Claim) {
        let owner = &claim["metadata"]["ownerReferences"][0]["name"];
        let entry = &claim["metadata"]["annotations"][ANNOTATION];
        let name = claim["metadata"]["name"].as_str().unwrap();
        let consumers = w.reserved(name);
        let key = if owner.is_null() { name.to_owned() } else { format!("claim {owner} {entry}") };
        let state = format!("{consumers:?} {}", w.is_allocated(name));
        assert_eq!(result.insert(key, state), None);
    }
    result
}

/// Tells a story; returns how often the manager died.
fn tell(w: &mut World, story: &[Step], lives: &[usize]) -> usize {
    let mut lives = lives.iter().copied();
    let mut deaths = 0;
    w.driver.dies_after = lives.next();
    for step in story {
        step(w);
        loop {
            w.settle();
            if !w.driver.dead {
                break;
            }
            deaths += 1;
            w.restart();
            w.driver.dies_after = lives.next();
        }
    }
    w.collect_garbage();
    w.driver.dies_after = None;
    w.settle();
    deaths
}

#[test]
fn a_crash_between_any_two_actions_changes_no_story() {
    for (name, story) in STORIES {
        let mut w = World::default();
        tell(&mut w, story, &[]);
        let (expected, writes) = (outcome(&w), w.writes());
        for first in 1.. {
            let mut w = World::default();
            let deaths = tell(&mut w, story, &[first]);
            assert_eq!(outcome(&w), expected, "{name}, crash after action {first}: {:#?}", w.driver.log);
            assert!(w.writes() <= writes + 1, "{name}: {:#?}", w.driver.log);
            if deaths == 0 {
                break;
            }
            // And once more, soon after it is back.
            for second in 1..4 {
                let mut w = World::default();
                tell(&mut w, story, &[first, second]);
                assert_eq!(outcome(&w), expected, "{name}, crashes after {first} and {second}");
            }
        }
    }
}

#[test]
fn the_order_in_which_the_first_lists_end_changes_no_story() {
    let mut orders = Vec::new();
    for a in Kind::ALL {
        for b in Kind::ALL {
            for c in Kind::ALL {
                for d in Kind::ALL {
                    let order = [a, b, c, d];
                    if Kind::ALL.iter().all(|k| order.contains(k)) {
                        orders.push(order);
                    }
                }
            }
        }
    }
    assert_eq!(orders.len(), 24);
    for (name, story) in STORIES {
        let mut w = World::default();
        tell(&mut w, story, &[]);
        let expected = outcome(&w);
        for order in &orders {
            // The manager is down during each step.
            let mut w = World::default();
            for step in *story {
                step(&mut w);
                w.restart_in(*order);
                w.settle();
            }
            w.collect_garbage();
            w.restart_in(*order);
            w.settle();
            assert_eq!(outcome(&w), expected, "{name}, {order:?}: {:#?}", w.driver.log);
        }
    }
}

#[test]
fn an_answer_lost_at_any_request_changes_no_story() {
    let verbs = [
        Verb::Create,
        Verb::RecordPod,
        Verb::RecordGroup,
        Verb::Reserve,
        Verb::Release,
        Verb::RemoveFinalizer,
        Verb::Delete,
        Verb::GetClaim,
        Verb::GetPod,
        Verb::GetGroup,
        Verb::ListClaims,
    ];
    for (name, story) in STORIES {
        let mut w = World::default();
        tell(&mut w, story, &[]);
        let expected = outcome(&w);
        for verb in verbs {
            for times in [1, 2, 5] {
                for (carried_out, lag) in [(false, 0), (true, 0), (true, 20)] {
                    let mut w = World::default();
                    if verb == Verb::ListClaims {
                        w.lose_answers(Verb::Create, "", 1);
                    }
                    w.server.lag.insert(Kind::Claim, std::time::Duration::from_secs(lag));
                    if carried_out {
                        w.lose_answers(verb, "", times);
                    } else {
                        w.fail(verb, "", crate::common::server::Refusal::Lost, times);
                    }
                    tell(&mut w, story, &[]);
                    let what =
                        format!("{name}, {verb:?} lost {times} times, carried out: {carried_out}, lag {lag}");
                    assert_eq!(outcome(&w), expected, "{what}: {:#?}", w.driver.log);
                }
            }
        }
    }
}

#[test]
fn watches_that_lag_by_any_amount_change_no_story() {
    for (name, story) in STORIES {
        let mut w = World::default();
        tell(&mut w, story, &[]);
        let expected = outcome(&w);
        for kind in Kind::ALL {
            for lag in [1, 29, 31, 90] {
                for late_answers in [false, true] {
                    let mut w = World::default();
                    w.server.lag.insert(kind, std::time::Duration::from_secs(lag));
                    w.driver.late_answers = late_answers;
                    tell(&mut w, story, &[]);
                    assert_eq!(outcome(&w), expected, "{name}, {kind:?} {lag} s: {:#?}", w.driver.log);
                }
            }
        }
    }
}

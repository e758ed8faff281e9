//! Random cluster life: whatever happens in whatever order, with lagging watches, lost answers, relists and restarts,
//! no action does harm (common/guards.rs checks each against the server's truth), and once it is quiet everything is
//! as it should be, with few writes, and stays so.

use std::{collections::BTreeMap, time::Duration};

use dra_api::ObjectKey;
use proptest::prelude::*;
use serde_json::{Value, json};

use dra_controllers::resourceclaim::Gates;

use crate::common::{
    ALL_ON, World, all_gates,
    driver::Verb,
    guards::{RIVAL, is_deleting, is_done, is_live_consumer, made_for},
    objects::*,
    server::{Kind, Refusal, items, key_of, statuses, uid_of},
};

const PODS: u8 = 4;
const GROUPS: u8 = 2;

/// Something that happens in the cluster.
#[derive(Clone, Debug)]
enum Happening {
    Template(u8),
    NoTemplate(u8),
    UserClaim(u8),
    Group {
        n: u8,
        shape: u8,
    },
    GroupGoes(u8),
    GroupTerminates(u8),
    Pod {
        n: u8,
        shape: u8,
        group: Option<u8>,
        node: bool,
    },
    Schedule(u8),
    /// The scheduler allocates and reserves all claims of a Pod, and then fails to bind it.
    ReserveOnly(u8),
    /// The scheduler takes the reservation of a Pod back.
    Unreserve(u8),
    Finish(u8, bool),
    DeletePod(u8),
    PodGoes(u8),
    TouchPod(u8),
    DeleteClaim(u8),
    TouchClaim(u8),
    /// Somebody takes a consumer off.
    Meddle(u8),
    /// Somebody removes an entry from a recorded list.
    Forget(u8, bool),
    /// Another manager makes a claim for an entry, and records it if none is recorded.
    Rival(u8, bool),
    /// Somebody holds a claim with a finalizer of their own, or lets go of it.
    Hold(u8),
    LetGo(u8),
    CollectGarbage,
    Lag(u8, u16),
    LateAnswers(bool),
    Eager(bool),
    Interleave(Option<u64>),
    /// The process dies after this many more writes.
    Crash(u8),
    Lose(u8, bool),
    Refuse(u8),
    Relist(u8),
    Restart(u8),
    Wait(u16),
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening as H;
    prop_oneof![
        3 => (0..2u8).prop_map(H::Template),
        1 => (0..2u8).prop_map(H::NoTemplate),
        2 => (0..2u8).prop_map(H::UserClaim),
        3 => (0..GROUPS, 0..5u8).prop_map(|(n, shape)| H::Group { n, shape }),
        1 => (0..GROUPS).prop_map(H::GroupGoes),
        1 => (0..GROUPS).prop_map(H::GroupTerminates),
        8 => (0..PODS, 0..8u8, prop::option::of(0..GROUPS), prop::bool::weighted(0.3))
            .prop_map(|(n, shape, group, node)| H::Pod { n, shape, group, node }),
        6 => (0..PODS).prop_map(H::Schedule),
        2 => (0..PODS).prop_map(H::ReserveOnly),
        2 => (0..PODS).prop_map(H::Unreserve),
        3 => (0..PODS, any::<bool>()).prop_map(|(n, ok)| H::Finish(n, ok)),
        2 => (0..PODS).prop_map(H::DeletePod),
        3 => (0..PODS).prop_map(H::PodGoes),
        2 => (0..PODS).prop_map(H::TouchPod),
        2 => (0..8u8).prop_map(H::DeleteClaim),
        1 => (0..8u8).prop_map(H::TouchClaim),
        1 => (0..8u8).prop_map(H::Meddle),
        1 => (0..PODS, any::<bool>()).prop_map(|(n, pod)| H::Forget(n, pod)),
        2 => (0..PODS, any::<bool>()).prop_map(|(n, pod)| H::Rival(n, pod)),
        1 => (0..8u8).prop_map(H::Hold),
        1 => (0..8u8).prop_map(H::LetGo),
        1 => Just(H::CollectGarbage),
        3 => (0..4u8, 0..40_000u16).prop_map(|(kind, ms)| H::Lag(kind, ms)),
        1 => any::<bool>().prop_map(H::LateAnswers),
        1 => any::<bool>().prop_map(H::Eager),
        2 => prop::option::of(any::<u64>()).prop_map(H::Interleave),
        1 => (1..5u8).prop_map(H::Crash),
        2 => (0..11u8, any::<bool>()).prop_map(|(verb, done)| H::Lose(verb, done)),
        1 => (0..11u8).prop_map(H::Refuse),
        2 => (0..4u8).prop_map(H::Relist),
        2 => (0..24u8).prop_map(H::Restart),
        10 => (0..20_000u16).prop_map(H::Wait),
    ]
}

const VERBS: [Verb; 11] = [
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

fn verb(n: u8) -> Verb {
    VERBS[usize::from(n) % VERBS.len()]
}

fn kind(n: u8) -> Kind {
    Kind::ALL[usize::from(n) % 4]
}

/// The n-th permutation of the kinds.
fn order(n: u8) -> [Kind; 4] {
    let mut left = Kind::ALL.to_vec();
    let mut n = usize::from(n);
    [4, 3, 2, 1].map(|choices| {
        let kind = left.remove(n % choices);
        n /= choices;
        kind
    })
}

fn entries(draft: Draft, shape: u8) -> Draft {
    match shape {
        0 => draft.templated("a", "t0"),
        1 => draft.templated("a", "t0").templated("b", "t1"),
        2 => draft.direct("a", "c0"),
        3 => draft.templated("b", "t1").direct("c", "c1"),
        4 => draft.templated("a", "t0").templated("b", "t0").direct("c", "c0"),
        5 => draft.templated("a", "t1").recorded("b", None).templated("b", "t0"),
        6 => draft.neither("odd").templated("a", "t0"),
        _ => draft,
    }
}

/// Names of the claims that a Pod's entries stand for.
fn claims_of_pod(w: &World, name: &str) -> Vec<String> {
    let Some(pod) = w.get(Kind::Pod, name) else { return Vec::new() };
    let recorded = statuses(&pod);
    items(&pod["spec"]["resourceClaims"])
        .filter_map(|e| {
            let direct = e["resourceClaimName"].as_str().map(str::to_owned);
            direct.or_else(|| recorded.get(e["name"].as_str()?).cloned())
        })
        .collect()
}

fn nth_claim(w: &World, n: u8) -> Option<String> {
    let names = w.claim_names();
    (!names.is_empty()).then(|| names[usize::from(n) % names.len()].clone())
}

fn put_if_new(w: &mut World, draft: Draft) {
    if w.server.get(draft.kind, &key_of(&draft.body)).is_none() {
        w.put(draft);
    }
}

fn edit_if_there(w: &mut World, kind: Kind, name: &str, edit: impl FnOnce(&mut Value)) {
    // The server may refuse what the test thinks up, as it does with people.
    w.server.change(kind, &ObjectKey::new(NS, name), None, edit).ok();
}

/// How often each name was used. A name of an earlier life is used again only where `reuse` says so.
#[derive(Default)]
struct Lives {
    reuse: bool,
    pods: [u32; PODS as usize],
    groups: [u32; GROUPS as usize],
}

impl Lives {
    fn pod(&self, n: u8) -> String {
        let life = self.pods[usize::from(n)];
        if self.reuse { format!("p{n}") } else { format!("p{n}-{life}") }
    }

    fn group(&self, n: u8) -> String {
        let life = self.groups[usize::from(n)];
        if self.reuse { format!("g{n}") } else { format!("g{n}-{life}") }
    }
}

fn happen(w: &mut World, lives: &mut Lives, what: &Happening) {
    use Happening as H;
    let pod_name = |n: &u8| lives.pod(*n);
    match what {
        H::Template(n) => put_if_new(w, template(&format!("t{n}"))),
        H::NoTemplate(n) => w.vanish(Kind::Template, &format!("t{n}")),
        H::UserClaim(n) => put_if_new(w, claim(&format!("c{n}"))),
        H::Group { n, shape } => put_if_new(w, entries(group(&lives.group(*n)), *shape)),
        H::GroupGoes(n) => {
            w.vanish(Kind::PodGroup, &lives.group(*n));
            lives.groups[usize::from(*n)] += 1;
        }
        H::GroupTerminates(n) => edit_if_there(w, Kind::PodGroup, &lives.group(*n), |g| {
            g["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }),
        H::Pod { n, shape, group, node } => {
            let mut draft = entries(pod(&pod_name(n)), *shape);
            if let Some(g) = group {
                draft = draft.member_of(&lives.group(*g));
            }
            put_if_new(w, if *node { draft.on("node") } else { draft });
        }
        H::Schedule(n) => {
            w.schedule(&pod_name(n));
        }
        H::ReserveOnly(n) => {
            if w.schedule(&pod_name(n)) {
                w.edit(Kind::Pod, &pod_name(n), |p| p["spec"]["nodeName"] = Value::Null);
            }
        }
        H::Unreserve(n) => unreserve(w, &pod_name(n)),
        H::Finish(n, ok) => edit_if_there(w, Kind::Pod, &pod_name(n), |p| {
            if !is_done(p) {
                p["status"]["phase"] = json!(if *ok { "Succeeded" } else { "Failed" });
            }
        }),
        H::DeletePod(n) => {
            if let Ok(None) = w.server.delete(Kind::Pod, &ObjectKey::new(NS, &pod_name(n)), None) {
                lives.pods[usize::from(*n)] += 1;
            }
        }
        H::PodGoes(n) => {
            w.vanish(Kind::Pod, &pod_name(n));
            lives.pods[usize::from(*n)] += 1;
        }
        H::TouchPod(n) => edit_if_there(w, Kind::Pod, &pod_name(n), touch),
        H::DeleteClaim(n) => {
            if let Some(name) = nth_claim(w, *n) {
                w.delete(Kind::Claim, &name);
            }
        }
        H::TouchClaim(n) => {
            if let Some(name) = nth_claim(w, *n) {
                edit_if_there(w, Kind::Claim, &name, touch);
            }
        }
        H::Meddle(n) => {
            if let Some(name) = nth_claim(w, *n) {
                edit_if_there(w, Kind::Claim, &name, |c| {
                    if let Some(list) = c["status"]["reservedFor"].as_array_mut() {
                        list.pop();
                    }
                });
            }
        }
        H::Forget(n, of_pod) => {
            let (kind, name) =
                if *of_pod { (Kind::Pod, pod_name(n)) } else { (Kind::PodGroup, lives.group(n % GROUPS)) };
            edit_if_there(w, kind, &name, |o| {
                if let Some(list) = o["status"]["resourceClaimStatuses"].as_array_mut() {
                    list.pop();
                }
            });
        }
        H::Rival(n, of_pod) => {
            let (kind, name) =
                if *of_pod { (Kind::Pod, pod_name(n)) } else { (Kind::PodGroup, lives.group(n % GROUPS)) };
            rival(w, kind, &name);
        }
        H::Hold(n) => {
            if let Some(name) = nth_claim(w, *n) {
                edit_if_there(w, Kind::Claim, &name, |c| {
                    if !is_deleting(c) {
                        push(c, "metadata", "finalizers", json!("example.com/hold"));
                    }
                });
            }
        }
        H::LetGo(n) => {
            if let Some(name) = nth_claim(w, *n) {
                let_go(w, &name);
            }
        }
        H::CollectGarbage => w.collect_garbage(),
        _ => trouble(w, what),
    }
}

/// What happens between us and the server, and time.
fn trouble(w: &mut World, what: &Happening) {
    use Happening as H;
    match what {
        H::Lag(n, ms) => {
            w.server.lag.insert(kind(*n), Duration::from_millis(u64::from(*ms)));
        }
        H::LateAnswers(late) => w.driver.late_answers = *late,
        H::Eager(eager) => w.driver.eager = *eager,
        H::Interleave(seed) => w.driver.interleave = *seed,
        H::Crash(writes) => w.driver.dies_after = Some(usize::from(*writes)),
        H::Lose(n, carried_out) => {
            if *carried_out {
                w.lose_answers(verb(*n), "", 1);
            } else {
                w.fail(verb(*n), "", Refusal::Lost, 1);
            }
        }
        H::Refuse(n) => w.fail(verb(*n), "", Refusal::Internal, 2),
        H::Relist(n) => w.relist(kind(*n)),
        H::Restart(n) => w.restart_in(order(*n)),
        H::Wait(ms) => w.run_for(Duration::from_millis(u64::from(*ms))),
        _ => unreachable!("{what:?} happens in the cluster"),
    }
}

fn touch(object: &mut Value) {
    let n = object["metadata"]["labels"]["n"].as_u64().unwrap_or_default();
    object["metadata"]["labels"] = json!({"n": n + 1});
}

fn let_go(w: &mut World, name: &str) {
    edit_if_there(w, Kind::Claim, name, |c| {
        if let Some(list) = c["metadata"]["finalizers"].as_array_mut() {
            list.retain(|f| f != "example.com/hold");
        }
    });
}

/// A claim as another manager would make and record it for the last entry that has a template.
fn rival(w: &mut World, kind: Kind, name: &str) {
    let Some(owner) = w.get(kind, name).filter(|o| !is_deleting(o) && !is_done(o)) else { return };
    let templated =
        items(&owner["spec"]["resourceClaims"]).filter(|e| e["resourceClaimTemplateName"].is_string());
    let Some(entry) = templated.last().and_then(|e| e["name"].as_str()) else { return };
    let is_recorded = items(&owner["status"]["resourceClaimStatuses"]).any(|s| s["name"] == entry);
    if is_recorded && !statuses(&owner).contains_key(entry) {
        // It was found not to be needed.
        return;
    }
    let made = format!("{RIVAL}{}", w.server.revision);
    w.put(claim(&made).generated_by(kind, name, uid_of(&owner), entry));
    if !is_recorded {
        let item = json!({"name": entry, "resourceClaimName": made});
        edit_if_there(w, kind, name, |o| push(o, "status", "resourceClaimStatuses", item));
    }
}

/// The scheduler gives up on a Pod: its reservations go, allocations stay for the next try.
fn unreserve(w: &mut World, name: &str) {
    let Some(pod) = w.get(Kind::Pod, name).filter(|p| p["spec"]["nodeName"].is_null()) else { return };
    let uid = uid_of(&pod).to_owned();
    for claim in claims_of_pod(w, name) {
        edit_if_there(w, Kind::Claim, &claim, |c| {
            if let Some(list) = c["status"]["reservedFor"].as_array_mut() {
                list.retain(|r| r["uid"] != uid);
            }
        });
    }
}

/// Trouble ends; everything comes to rest; the garbage collector has been by.
fn quiet_down(w: &mut World) {
    w.driver.mend();
    w.server.lag.clear();
    w.server.catch_up();
    w.settle();
    for _ in 0..3 {
        // Long enough for unconfirmed answers and absences to be looked at again.
        w.run_for(Duration::from_secs(70));
        for name in w.claim_names() {
            let_go(w, &name);
        }
        w.collect_garbage();
        w.settle();
    }
}

/// Everything is as it should be.
fn check(w: &World) {
    for kind in [Kind::Pod, Kind::PodGroup] {
        for owner in w.server.list(kind) {
            check_owner(w, kind, &owner);
        }
    }
    for claim in w.server.list(Kind::Claim) {
        check_claim(w, &claim);
    }
    compare_view(w);
}

/// Each entry has exactly the right claim, and it is recorded.
fn check_owner(w: &World, kind: Kind, owner: &Value) {
    if is_deleting(owner) || (kind == Kind::Pod && is_done(owner)) {
        return;
    }
    let name = owner["metadata"]["name"].as_str().unwrap();
    let recorded = statuses(owner);
    let group_name = owner["spec"]["schedulingGroup"]["podGroupName"].as_str();
    let group = group_name.map(|g| w.get(Kind::PodGroup, g));
    for entry in items(&owner["spec"]["resourceClaims"]) {
        let entry_name = entry["name"].as_str().unwrap();
        let what = format!("{} {name} entry {entry_name}", kind.name());
        check_reservation(w, kind, owner, entry, &what);
        let Some(template) = entry["resourceClaimTemplateName"].as_str() else { continue };
        let not_needed = items(&owner["status"]["resourceClaimStatuses"])
            .any(|s| s["name"] == entry_name && s["resourceClaimName"].is_null());
        let claims = w.claims_of(uid_of(owner));
        let mine: Vec<&String> =
            claims.get(entry_name).into_iter().flatten().filter(|c| !is_deleting(&w.claim(c))).collect();
        if not_needed {
            assert!(mine.is_empty(), "{what} needs no claim: {mine:?}");
            continue;
        }
        // It is being deleted, and stands as long as it is used.
        let in_use = recorded.get(entry_name).and_then(|c| w.get(Kind::Claim, c)).is_some_and(|c| {
            let by_us = |r: &Value| {
                r["uid"] == uid_of(owner)
                    || (r["resource"] == "podgroups" && r["name"].as_str() == group_name)
            };
            is_deleting(&c) && items(&c["status"]["reservedFor"]).any(by_us)
        });
        match &group {
            Some(None) => continue,
            Some(Some(g)) if items(&g["spec"]["resourceClaims"]).any(|e| e == entry) => {
                // A claim of its own, from before a group of that name had the entry, stays.
                if mine.first().is_some_and(|one| recorded.get(entry_name) == Some(one)) {
                    continue;
                }
                // One that was made before, and not recorded, is nobody's and goes with the Pod.
                for one in &mine {
                    assert!(!w.is_allocated(one), "{what} is the group's, and uses {one}");
                }
                let theirs = statuses(g).get(entry_name).cloned();
                let theirs = theirs.filter(|c| w.get(Kind::Claim, c).is_some_and(|c| !is_deleting(&c)));
                if theirs.is_some() && !in_use {
                    assert_eq!(recorded.get(entry_name), theirs.as_ref(), "{what}");
                }
                continue;
            }
            _ => {}
        }
        assert!(mine.len() <= 1, "{what}: {mine:?}");
        if let Some(one) = mine.first() {
            assert!(in_use || recorded.get(entry_name) == Some(one), "{what}: {one} in {recorded:?}");
        } else if w.get(Kind::Template, template).is_some() {
            let kept = recorded.get(entry_name).and_then(|c| w.get(Kind::Claim, c));
            let kept = kept.expect(&what);
            assert!(is_deleting(&kept) && made_for(&kept) == Some((uid_of(owner), entry_name)), "{what}");
            assert!(items(&kept["status"]["reservedFor"]).next().is_some(), "{what}");
        }
    }
}

/// A Pod on a node has its allocated claims reserved, for itself or its group.
fn check_reservation(w: &World, kind: Kind, pod: &Value, entry: &Value, what: &str) {
    if kind != Kind::Pod || pod["spec"]["nodeName"].is_null() {
        return;
    }
    let name = entry["resourceClaimName"].as_str().map(str::to_owned);
    let name = name.or_else(|| statuses(pod).remove(entry["name"].as_str().unwrap()));
    let Some(claim) = name.and_then(|n| w.get(Kind::Claim, &n)) else { return };
    if claim["status"]["allocation"].is_null() || is_deleting(&claim) {
        return;
    }
    let group = pod["spec"]["schedulingGroup"]["podGroupName"].as_str();
    if group.is_some_and(|g| w.get(Kind::PodGroup, g).is_none()) {
        return;
    }
    let reserved = items(&claim["status"]["reservedFor"])
        .any(|r| r["uid"] == uid_of(pod) || (r["resource"] == "podgroups" && r["name"].as_str() == group));
    assert!(reserved, "{what} is not reserved: {claim}");
}

/// No claim without a reason, no consumer that ended, no allocation kept for a claim that goes.
fn check_claim(w: &World, claim: &Value) {
    let key = key_of(claim);
    for consumer in items(&claim["status"]["reservedFor"]) {
        assert!(is_live_consumer(&w.server, &key, consumer), "{key} is held by {consumer}");
    }
    let unused = items(&claim["status"]["reservedFor"]).next().is_none();
    let finalizers: Vec<&Value> = items(&claim["metadata"]["finalizers"]).collect();
    assert!(!(is_deleting(claim) && unused), "{key} does not go: {claim}");
    assert!(!finalizers.contains(&&json!("example.com/hold")));
    let Some((uid, entry)) = made_for(claim) else { return };
    let pods = w.server.list(Kind::Pod);
    let groups = w.server.list(Kind::PodGroup);
    let pod = pods.iter().find(|p| uid_of(p) == uid);
    let alive = pod.map(|p| !is_done(p)).or_else(|| groups.iter().find(|g| uid_of(g) == uid).map(|_| true));
    assert!(alive == Some(true) || !unused, "{key} for entry {entry} has no reason: {claim}");
}

/// The view shows the server's state, and its indexes and counts are those of its objects.
fn compare_view(w: &World) {
    let view = &w.driver.view;
    let server: BTreeMap<ObjectKey, String> = w
        .server
        .list(Kind::Claim)
        .iter()
        .map(|c| (key_of(c), c["metadata"]["resourceVersion"].as_str().unwrap().to_owned()))
        .collect();
    let seen: BTreeMap<ObjectKey, String> =
        view.claims.iter().map(|c| (c.meta.key.clone(), c.meta.resource_version.0.to_string())).collect();
    assert_eq!(seen, server);
    assert_eq!(view.pods.len(), w.server.list(Kind::Pod).len());
    assert_eq!(view.pod_groups.len(), w.server.list(Kind::PodGroup).len());
    assert_eq!(view.templates.len(), w.server.list(Kind::Template).len());
    assert_eq!(view.claim_counts().map(|(_, n)| n).sum::<u64>(), u64::try_from(seen.len()).unwrap());
    assert!(view.claims.overdue(w.server.now + Duration::from_mins(1)).is_empty());
    assert!(view.pods.overdue(w.server.now + Duration::from_mins(1)).is_empty());
}

/// Lives through it all; the world at rest.
fn live(happenings: &[Happening], reuse: bool) -> World {
    live_with(ALL_ON, happenings, reuse)
}

fn live_with(gates: Gates, happenings: &[Happening], reuse: bool) -> World {
    let mut w = World::new(gates);
    let mut lives = Lives { reuse, ..Lives::default() };
    for what in happenings {
        happen(&mut w, &mut lives, what);
        if w.driver.dead {
            w.restart();
        }
    }
    quiet_down(&mut w);
    w
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(192),
        // A failure becomes a test with a name.
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn whatever_happens_everything_comes_right_and_stays_so(
        happenings in prop::collection::vec(happening(), 1..50),
        reuse in any::<bool>(),
    ) {
        let mut w = live(&happenings, reuse);
        check(&w);

        let bound = 12 * (happenings.len() + 4);
        prop_assert!(w.writes() <= bound, "{} writes after {} events", w.writes(), happenings.len());

        let rest = w.writes();
        w.resync();
        w.run_for(Duration::from_mins(2));
        prop_assert_eq!(w.writes(), rest, "a resync writes: {:#?}", w.driver.log.last());
        w.restart();
        w.run_for(Duration::from_mins(2));
        prop_assert_eq!(w.writes(), rest, "a restart writes: {:#?}", w.driver.log.last());
        check(&w);
    }

    /// With any gates: no harm, rest, and nothing left of Pods that are gone.
    #[test]
    fn with_any_gates_there_is_rest_in_the_end(
        happenings in prop::collection::vec(happening(), 1..30),
        reuse in any::<bool>(),
        gates in prop::sample::select([all_gates(), vec![Gates::default()]].concat()),
        later in prop::sample::select(all_gates()),
    ) {
        let mut w = live_with(gates, &happenings, reuse);
        let rest = w.writes();
        w.resync();
        w.run_for(Duration::from_mins(2));
        prop_assert_eq!(w.writes(), rest, "a resync writes: {:#?}", w.driver.log.last());
        // The manager comes back with other gates, and in the end with all of them.
        w.driver.planner.gates = later;
        w.restart();
        quiet_down(&mut w);
        w.driver.planner.gates = ALL_ON;
        w.restart();
        quiet_down(&mut w);
        check(&w);
    }

    /// Lag, late answers, relists and restarts are no part of what happens: without them the end is the same, as far
    /// as users see it.
    #[test]
    fn trouble_between_us_and_the_server_leaves_no_trace(
        happenings in prop::collection::vec(happening(), 1..40),
        reuse in any::<bool>(),
    ) {
        use Happening as H;
        let mut w = live(&happenings, reuse);
        check(&w);
        let calm: Vec<Happening> = happenings
            .iter()
            .filter(|h| !matches!(h, H::Lag(..) | H::LateAnswers(_) | H::Eager(_) | H::Interleave(_) | H::Crash(_) | H::Lose(..) | H::Refuse(_) | H::Relist(_) | H::Restart(_)))
            .cloned()
            .collect();
        let c = live(&calm, reuse);
        check(&c);
        prop_assert!(c.requests(Verb::ListClaims) == 0);
        // Stays right when everybody leaves.
        for kind in [Kind::Pod, Kind::PodGroup] {
            for object in w.server.list(kind) {
                w.server.vanish(kind, &key_of(&object));
            }
        }
        quiet_down(&mut w);
        check(&w);
        let left = w.claim_names();
        prop_assert!(left.iter().all(|name| name == "c0" || name == "c1"), "{left:?}");
        for name in left {
            prop_assert!(w.reserved(&name).is_empty());
        }
    }
}

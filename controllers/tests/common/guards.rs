//! What no action may do, whatever the view believed: checked against the server's truth before each write.

use std::sync::Arc;

use dra_api::ObjectKey;
use dra_controllers::{
    plan::{Action, DeleteReason, Precondition, Subject, SubjectKind},
    view::View,
};
use serde_json::Value;

use super::{
    objects::{ANNOTATION, FINALIZER},
    server::{Kind, Server, items, key_of, statuses, uid_of, version_of},
};

/// True when a Pod will never need its claims again.
pub(crate) fn is_done(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
        || (!pod["metadata"]["deletionTimestamp"].is_null() && pod["spec"]["nodeName"].is_null())
}

/// True when a consumer is there and may still use its claim.
pub(crate) fn is_live_consumer(server: &Server, claim: &ObjectKey, consumer: &Value) -> bool {
    let key = claim.sibling(&consumer["name"].as_str().unwrap().into());
    let kind = match (consumer["apiGroup"].as_str().unwrap_or_default(), consumer["resource"].as_str()) {
        ("", Some("pods")) => Kind::Pod,
        ("scheduling.k8s.io", Some("podgroups")) => Kind::PodGroup,
        _ => return true,
    };
    server
        .get(kind, &key)
        .is_some_and(|o| consumer["uid"] == uid_of(&o) && (kind == Kind::PodGroup || !is_done(&o)))
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn controller(claim: &Value) -> Option<&Value> {
    items(&claim["metadata"]["ownerReferences"]).find(|o| o["controller"] == true)
}

/// The controller owner's uid, and the entry, of a generated claim; extended-resource claims have no entry.
pub(crate) fn made_for(claim: &Value) -> Option<(&str, &str)> {
    let owner = controller(claim)?;
    let group =
        owner["apiVersion"].as_str()?.starts_with("scheduling.k8s.io/") && owner["kind"] == "PodGroup";
    let pod = owner["apiVersion"] == "v1" && owner["kind"] == "Pod";
    if !group && !pod {
        return None;
    }
    let entry = claim["metadata"]["annotations"][ANNOTATION].as_str();
    Some((owner["uid"].as_str()?, entry.unwrap_or_default()))
}

fn holds(server: &Server, claim: &Precondition) -> Option<std::sync::Arc<Value>> {
    server
        .get(Kind::Claim, &claim.key)
        .filter(|c| *claim.uid == *uid_of(c) && version_of(c) == claim.resource_version.0)
}

/// How names of claims begin that another manager makes.
pub(crate) const RIVAL: &str = "rival-";

/// Panics when an action would do harm. Actions whose preconditions fail are left to the server.
pub(crate) fn check(server: &Server, view: &View, action: &Action) {
    match action {
        Action::Create(new) => {
            for claim in server.owned(&new.owner.uid) {
                let same = made_for(&claim) == Some((&*new.owner.uid, &*new.entry))
                    && claim["metadata"]["namespace"] == *new.owner.key.namespace;
                // What another manager has just made, nobody can know.
                let rival = claim["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(RIVAL))
                    && view.claims.get(&key_of(&claim)).is_none();
                assert!(!same || is_deleting(&claim) || rival, "a second claim for one entry: {action}");
            }
        }
        Action::Record { owner, statuses } => check_record(server, view, action, owner, statuses),
        Action::Release { claim, consumers, deallocate } => {
            let Some(object) = holds(server, claim) else { return };
            let (mut left, mut has) = (0, 0);
            for consumer in items(&object["status"]["reservedFor"]) {
                has += 1;
                if !consumers.iter().any(|(uid, _)| consumer["uid"] == **uid) {
                    left += 1;
                    continue;
                }
                assert!(
                    !is_live_consumer(server, &claim.key, consumer),
                    "a live consumer is taken off: {action}, {consumer}"
                );
            }
            let finalizer = items(&object["metadata"]["finalizers"]).any(|f| f == FINALIZER);
            let allocated = !object["status"]["allocation"].is_null();
            assert!(!(left == 0 && has > 0 && finalizer && allocated) || *deallocate, "kept: {action}");
            assert!(!deallocate || (left == 0 && finalizer), "an allocation in use is cleared: {action}");
        }
        Action::RemoveFinalizer { claim } => {
            let Some(object) = holds(server, claim) else { return };
            assert!(object["status"]["allocation"].is_null(), "finalizer before allocation: {action}");
            assert!(items(&object["status"]["reservedFor"]).next().is_none(), "still in use: {action}");
        }
        Action::Delete { claim, reason } => {
            let Some(object) = holds(server, claim) else { return };
            assert!(items(&object["status"]["reservedFor"]).next().is_none(), "still in use: {action}");
            let (Some((uid, entry)), Some(owner)) = (made_for(&object), controller(&object)) else {
                panic!("not a generated claim: {action}");
            };
            let kind = if owner["kind"] == "Pod" { Kind::Pod } else { Kind::PodGroup };
            let key = claim.key.sibling(&owner["name"].as_str().unwrap().into());
            let Some(o) = server.get(kind, &key).filter(|o| uid_of(o) == uid) else { return };
            let done = kind == Kind::Pod && is_done(&o);
            let is_recorded = statuses(&o).get(entry).map(String::as_str) == Some(&*claim.key.name);
            // What another manager has just recorded, nobody can know.
            let rival = claim.key.name.starts_with(RIVAL) && !is_seen(view, kind, &key, &claim.key.name);
            assert!(
                done || !is_recorded || rival,
                "the recorded claim of somebody who needs it is deleted: {action}"
            );
            assert!(done || *reason == DeleteReason::Duplicate, "the owner is not done: {action}");
        }
        Action::Reserve { claim, after, consumer } => {
            let Some(object) = holds(server, claim) else { return };
            let present: Vec<&str> =
                items(&object["status"]["reservedFor"]).filter_map(|c| c["uid"].as_str()).collect();
            let expected: Vec<&str> = after.iter().map(|uid| &**uid).collect();
            assert_eq!(present, expected, "{action}");
            assert!(!object["status"]["allocation"].is_null(), "reserved without allocation: {action}");
            assert!(!present.contains(&&*consumer.uid), "reserved twice: {action}");
        }
        Action::Notify(_)
        | Action::Schedule { .. }
        | Action::Disrupt { .. }
        | Action::Evict { .. }
        | Action::Report(_)
        | Action::Answer(_)
        | Action::Expire { .. }
        | Action::Expand { .. }
        | Action::CreateRule(_)
        | Action::CorrectRule(_)
        | Action::DeleteRule { .. } => {}
    }
}

fn check_record(
    server: &Server,
    view: &View,
    action: &Action,
    owner: &Subject,
    new: &[(Arc<str>, Arc<str>)],
) {
    let kind = match owner.kind {
        SubjectKind::Pod => Kind::Pod,
        SubjectKind::PodGroup => Kind::PodGroup,
        SubjectKind::DeviceTaintRule => panic!("claims are not recorded in rules"),
    };
    let Some(object) = server.get(kind, &owner.key).filter(|o| *owner.uid == *uid_of(o)) else {
        return;
    };
    for (entry, old) in statuses(&object) {
        if old.starts_with(RIVAL) && !is_seen(view, kind, &owner.key, &old) {
            continue;
        }
        let name = new.iter().find(|(e, _)| **e == *entry).map(|(_, n)| &**n);
        assert!(name.is_some(), "a status list that shrinks by {entry}: {action}");
        if name == Some(&old) {
            continue;
        }
        if let Some(claim) = server.get(Kind::Claim, &owner.key.sibling(&old.as_str().into())) {
            let used = |c: &Value| items(&c["status"]["reservedFor"]).any(|r| r["uid"] == *owner.uid);
            let made = (&*owner.uid, entry.as_str());
            let right = made_for(&claim) == Some(made) && !is_deleting(&claim);
            // Unless it uses the other one already.
            let mut others = server.owned(&owner.uid).into_iter().filter(|c| made_for(c) == Some(made));
            let right = right && (used(&claim) || !others.any(|c| used(&c)));
            assert!(!right, "a recorded claim that is right is replaced: {action}");
        }
    }
}

/// Whether the view shows that the claim is recorded in its owner's status.
fn is_seen(view: &View, kind: Kind, owner: &ObjectKey, claim: &str) -> bool {
    let statuses = match kind {
        Kind::Pod => view.pods.get(owner).map(|pod| &pod.claim_statuses),
        _ => view.pod_groups.get(owner).map(|group| &group.claim_statuses),
    };
    statuses.is_some_and(|all| all.iter().any(|status| status.claim_name.as_deref() == Some(claim)))
}

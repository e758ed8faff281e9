//! Decisions about one entry of `spec.resourceClaims`, shared by Pods and PodGroups.

use std::{collections::BTreeMap, sync::Arc};

use dra_api::{Claim, ClaimEntry, ClaimStatus, ClaimTemplate, ObjectKey, Pod, PodGroup, Uid, names};
use serde::Serialize;
use serde_json::value::RawValue;

use super::{Gates, REASON_CREATION, naming::generate_name};
use crate::{
    plan::{Action, Lookup, NewClaim, Notice, Pass, Plan, Subject, SubjectKind, Why},
    view::View,
};

/// What the status says about an entry that names a template.
pub(super) enum Recorded<'a> {
    /// Nothing yet.
    No,
    /// The entry needs no claim.
    NotNeeded,
    /// A claim of this name.
    Name(&'a Arc<str>),
}

pub(super) fn recorded<'a>(entry: &ClaimEntry, statuses: &'a [ClaimStatus]) -> Recorded<'a> {
    match statuses.iter().find(|s| s.name == entry.name) {
        None => Recorded::No,
        Some(status) => status.claim_name.as_ref().map_or(Recorded::NotNeeded, Recorded::Name),
    }
}

/// True when the PodGroup has an entry with the same name, claim and template: then the claim is the group's
/// (upstream `BindTo`; null equals null).
pub(super) fn is_group_entry(group: &PodGroup, entry: &ClaimEntry) -> bool {
    group.claims.contains(entry)
}

/// True when the claim has a consumer with this uid.
pub(super) fn has_consumer(claim: &Claim, uid: &Uid) -> bool {
    claim.reserved_for.iter().any(|c| c.uid == *uid)
}

/// True when the claim serves its owner: a claim that is being deleted does only while it is reserved, because
/// it takes no new consumers.
fn serves(claim: &Claim, reserved: bool) -> bool {
    !claim.meta.deleting || reserved
}

/// The owner's side of an entry, for both kinds of owners.
pub(super) struct Owner<'a> {
    pub(super) subject: Subject,
    pub(super) statuses: &'a [ClaimStatus],
    /// For a Pod: the Pod itself and whether PodGroup claims count.
    pub(super) pod: Option<(&'a Pod, bool)>,
}

impl Owner<'_> {
    /// True when the claim was made for this owner, or for the PodGroup that the Pod is a member of (by name:
    /// the Pod does not know the group's uid).
    pub(super) fn owns(&self, claim: &Claim) -> bool {
        let Some(controller) = &claim.controller else { return false };
        controller.uid == self.subject.uid
            || self.pod.is_some_and(|(pod, group_claims)| {
                group_claims && controller.is_pod_group() && pod.group.as_ref() == Some(&controller.name)
            })
    }

    /// True when the claim is reserved for this owner, or for the Pod's PodGroup.
    pub(super) fn is_reserved(&self, claim: &Claim) -> bool {
        has_consumer(claim, &self.subject.uid)
            || self.pod.is_some_and(|(pod, group_claims)| {
                group_claims
                    && claim
                        .reserved_for
                        .iter()
                        .any(|c| c.is_pod_group() && pod.group.as_ref() == Some(&c.name))
            })
    }

    /// The claim that the scheduler has allocated for this owner, when that is not the recorded one, which nobody has
    /// allocated: a manager that did not know of the other has replaced the record. A kubelet goes by the record, and nobody
    /// allocates any more for a Pod that has a node; before, the scheduler may. Members of a PodGroup would have two.
    pub(super) fn used_instead<'v>(
        &self,
        view: &'v View,
        entry: &ClaimEntry,
        recorded: &Claim,
    ) -> Option<&'v Claim> {
        let node = match self.pod {
            Some((pod, _)) => Some(pod.node_name.as_ref()?),
            None => None,
        };
        let Subject { key, uid, .. } = &self.subject;
        let own = |c: &Claim| c.pod_owner().or(c.pod_group_owner()).is_some_and(|owner| owner.uid == *uid);
        if recorded.allocation.is_some() || !own(recorded) {
            return None;
        }
        let reaches = |c: &Claim| {
            c.allocation.as_ref().is_some_and(|a| node.is_none_or(|node| a.reach.may_reach(node)))
        };
        view.index
            .claims_by_owner
            .get(&key.sibling(uid))
            .filter_map(|key| view.claims.get(key))
            .filter(|c| own(c) && c.pod_claim_name.as_ref() == Some(&entry.name))
            .find(|c| has_consumer(c, uid) && reaches(c))
    }

    /// True when the recorded claim is right for its entry.
    pub(super) fn accepts(&self, claim: &Claim) -> bool {
        self.owns(claim) && serves(claim, self.is_reserved(claim))
    }
}

/// The claim that was generated for an entry of the owner, found by ownership and annotation. Of
/// several, the one in use comes first, then the one with the lowest name.
pub(super) fn find_generated<'v>(view: &'v View, owner: &Subject, entry: &str) -> Option<&'v Claim> {
    view.index
        .claims_by_owner
        .get(&owner.key.sibling(&owner.uid))
        .filter_map(|key| view.claims.get(key))
        .filter(|c| match owner.kind {
            SubjectKind::Pod => c.pod_owner().is_some(),
            SubjectKind::PodGroup => c.pod_group_owner().is_some(),
            // Nothing is generated for rules.
            SubjectKind::DeviceTaintRule => false,
        })
        .filter(|c| c.pod_claim_name.as_deref() == Some(entry) && serves(c, has_consumer(c, &owner.uid)))
        .max_by(|a, b| {
            let in_use = |c: &Claim| (!c.reserved_for.is_empty(), c.allocation.is_some());
            in_use(a).cmp(&in_use(b)).then_with(|| b.meta.key.cmp(&a.meta.key))
        })
}

/// What stands in the status for an entry, checked against the claims.
pub(super) enum Check {
    /// The entry needs nothing: its claim is there and right, or it has no use for one.
    Settled,
    /// This other claim is in use.
    Uses(Arc<str>),
    /// There is none, or it is gone or wrong: another one is needed.
    Needed {
        /// True when the status names one.
        replaces: bool,
    },
    /// Not known yet.
    Unknown,
}

/// Checks the record of one templated entry. Before a record is replaced, the claims are asked for: whoever recorded one
/// has seen what the view may not show yet. `refused` says that the record will not be replaced anyway.
pub(super) fn check(
    view: &View,
    owner: &Owner<'_>,
    entry: &ClaimEntry,
    refused: bool,
    pass: &Pass,
    plan: &mut Plan,
) -> Check {
    let name = match recorded(entry, owner.statuses) {
        Recorded::No => return Check::Needed { replaces: false },
        Recorded::NotNeeded => return Check::Settled,
        Recorded::Name(name) => name,
    };
    let key = owner.subject.key.sibling(name);
    match view.claims.get(&key) {
        Some(claim) if owner.accepts(claim) => {
            let Some(other) = owner.used_instead(view, entry, claim) else { return Check::Settled };
            let read = [&key, &other.meta.key].map(|key| is_read(view, key, pass, plan));
            if read.contains(&false) {
                return Check::Unknown;
            }
            Check::Uses(Arc::clone(&other.meta.key.name))
        }
        Some(claim) => {
            if owner.owns(claim) {
                // It is being deleted, and that never changes.
                return Check::Needed { replaces: true };
            }
            plan.why.push(Why::NotOwned { claim: Arc::clone(name) });
            if refused || is_read(view, &key, pass, plan) {
                Check::Needed { replaces: true }
            } else {
                Check::Unknown
            }
        }
        None if is_read(view, &key, pass, plan) => Check::Needed { replaces: true },
        None => Check::Unknown,
    }
}

/// True when a GET lately showed what the view shows of a claim; asks for it otherwise.
fn is_read(view: &View, key: &ObjectKey, pass: &Pass, plan: &mut Plan) -> bool {
    let read = view.claims.was_read(key, pass.now);
    if !read {
        look_up(Lookup::Claim(key.clone()), pass, plan);
    }
    read
}

/// Asks for a fact, unless asking has already failed in this pass.
pub(super) fn look_up(lookup: Lookup, pass: &Pass, plan: &mut Plan) {
    if !pass.failed_lookups.contains(&lookup) && !plan.lookups.contains(&lookup) {
        plan.lookups.push(lookup);
    }
}

/// Makes a claim for an entry from its template, or says why it cannot be made.
pub(super) fn generate(
    view: &View,
    gates: &Gates,
    owner: &Owner<'_>,
    entry: &ClaimEntry,
    replaces: bool,
    pass: &Pass,
    plan: &mut Plan,
) {
    let subject = &owner.subject;
    let Some(template) = &entry.template_name else {
        return refuse(subject, entry, Why::UnsupportedEntry { entry: Arc::clone(&entry.name) }, plan);
    };
    let Some(found) = view.templates.get(&subject.key.sibling(template)) else {
        return refuse(subject, entry, Why::TemplateMissing { template: Arc::clone(template) }, plan);
    };
    if found.admin_access && !gates.admin_access {
        return refuse(subject, entry, Why::AdminAccessDisabled, plan);
    }
    if found.prioritized && !gates.prioritized_list {
        return refuse(subject, entry, Why::PrioritizedListDisabled, plan);
    }
    if view.create_is_doubtful(&subject.key.namespace, &subject.uid) {
        return look_up(Lookup::ClaimsIn(Arc::clone(&subject.key.namespace)), pass, plan);
    }
    if !pass.failed_creates.contains(&entry.name) {
        plan.actions.push(Action::Create(Box::new(new_claim(subject, entry, found, replaces))));
    }
}

/// Says on the owner why an entry gets no claim.
pub(super) fn refuse(subject: &Subject, entry: &ClaimEntry, why: Why, plan: &mut Plan) {
    say(subject, entry, (REASON_CREATION, "GenerateClaim"), why, plan);
}

/// Says on the owner why something cannot be done for an entry; reason and action are the event's.
pub(super) fn say(
    subject: &Subject,
    entry: &ClaimEntry,
    (reason, action): (&'static str, &'static str),
    why: Why,
    plan: &mut Plan,
) {
    let note = note(subject.kind, &entry.name, &why);
    plan.actions.push(Action::Notify(Notice {
        subject: subject.clone(),
        reason,
        action,
        note,
        warning: true,
    }));
    plan.why.push(why);
}

/// The text of an event about one entry, as in-tree puts it.
pub fn note(kind: SubjectKind, entry: &str, why: &dyn std::fmt::Display) -> String {
    match kind {
        SubjectKind::Pod | SubjectKind::DeviceTaintRule => format!("PodResourceClaim {entry}: {why}"),
        SubjectKind::PodGroup => format!("PodGroupResourceClaim {entry}: {why}"),
    }
}

/// Records claims in the owner's status if that changes it: always the whole list, because an entry that our
/// field manager owns and an apply leaves out is removed. While claims are still to be created, their names are
/// recorded together with these in the next round.
pub(super) fn record(owner: &Owner<'_>, new: &BTreeMap<Arc<str>, Arc<str>>, plan: &mut Plan) {
    if plan.actions.iter().any(|a| matches!(a, Action::Create(_))) {
        return;
    }
    let mut all: BTreeMap<&Arc<str>, &Arc<str>> =
        owner.statuses.iter().filter_map(|s| Some((&s.name, s.claim_name.as_ref()?))).collect();
    let mut changed = false;
    for (entry, claim) in new {
        changed |= all.insert(entry, claim) != Some(claim);
    }
    if changed {
        plan.actions.push(Action::Record {
            owner: owner.subject.clone(),
            statuses: all.into_iter().map(|(e, c)| (Arc::clone(e), Arc::clone(c))).collect(),
        });
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: BodyMeta<'a>,
    spec: &'a RawValue,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BodyMeta<'a> {
    generate_name: &'a str,
    namespace: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: &'a BTreeMap<String, String>,
    annotations: BTreeMap<&'a str, &'a str>,
    owner_references: [BodyOwner<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BodyOwner<'a> {
    api_version: &'static str,
    kind: &'static str,
    name: &'a str,
    uid: &'a str,
    controller: bool,
}

/// The claim as in-tree makes it (spec §2.4): labels and annotations of the template, the entry's name as
/// annotation, the owner as controller without `blockOwnerDeletion`, and the template's spec verbatim.
fn new_claim(subject: &Subject, entry: &ClaimEntry, template: &ClaimTemplate, replaces: bool) -> NewClaim {
    let generate_name = generate_name(&subject.key.name, &entry.name);
    let mut annotations: BTreeMap<&str, &str> =
        template.annotations.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    annotations.insert(names::POD_CLAIM_NAME_ANNOTATION, &entry.name);
    let body = Body {
        api_version: "resource.k8s.io/v1",
        kind: "ResourceClaim",
        metadata: BodyMeta {
            generate_name: &generate_name,
            namespace: &subject.key.namespace,
            labels: &template.labels,
            annotations,
            owner_references: [BodyOwner {
                api_version: subject.kind.api_version(),
                kind: subject.kind.name(),
                name: &subject.key.name,
                uid: &subject.uid,
                controller: true,
            }],
        },
        spec: &template.spec,
    };
    NewClaim {
        owner: subject.clone(),
        entry: Arc::clone(&entry.name),
        // Strings and checked raw JSON always serialise.
        body: serde_json::to_string(&body).unwrap_or_default(),
        generate_name,
        admin_access: template.admin_access,
        replaces,
    }
}

/// The key of an entry's claim, if it has one: named directly or recorded.
pub(super) fn claim_key(
    owner: &ObjectKey,
    entry: &ClaimEntry,
    statuses: &[ClaimStatus],
) -> Option<ObjectKey> {
    crate::view::resolved(entry, statuses).map(|name| owner.sibling(name))
}

//! What a planner returns: facts it misses, things to do, and why something is not done.

use std::{fmt, sync::Arc};

use dra_api::{
    Consumer, Meta, ObjectKey, ResourceVersion, TaintEffect, Uid,
    taint::{Condition, DeviceTaintSelector, RuleVersion, Taint},
};
use jiff::Timestamp;

use crate::{
    Elapsed,
    view::{Eviction, Expansion},
};

/// The result of planning one key.
#[derive(Debug, Default)]
pub struct Plan {
    /// Facts to fetch; the key is planned again with them.
    pub lookups: Vec<Lookup>,
    /// What to do, in order.
    pub actions: Vec<Action>,
    /// When to plan the key again although nothing changes.
    pub wake_at: Option<Elapsed>,
    /// Why the key is not where it should be, for people.
    pub why: Vec<Why>,
}

impl Plan {
    /// True when there is nothing to fetch and nothing to do.
    pub fn is_settled(&self) -> bool {
        self.lookups.is_empty() && self.actions.is_empty()
    }
}

/// A fact that only the API server can tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lookup {
    /// Does this claim exist?
    Claim(ObjectKey),
    /// Does this very Pod exist?
    Pod {
        /// Its key.
        key: ObjectKey,
        /// Its uid: another Pod of that name is not it.
        uid: Uid,
    },
    /// Does this very PodGroup exist?
    PodGroup {
        /// Its key.
        key: ObjectKey,
        /// Its uid: another PodGroup of that name is not it.
        uid: Uid,
    },
    /// Which claims does the namespace have? Asked when the answer to a create request was lost.
    ClaimsIn(Arc<str>),
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(key) => write!(f, "ResourceClaim {key}"),
            Self::Pod { key, uid } => write!(f, "Pod {key} ({uid})"),
            Self::PodGroup { key, uid } => write!(f, "PodGroup {key} ({uid})"),
            Self::ClaimsIn(namespace) => write!(f, "the ResourceClaims in namespace {namespace}"),
        }
    }
}

/// What happened so far while one key is being settled. A planner leaves out what has failed, so that one
/// failure does not hold up the rest.
#[derive(Debug, Default)]
pub struct Pass {
    /// The time.
    pub now: Elapsed,
    /// The same as the wall clock shows it, when the pass began.
    pub wall: Timestamp,
    /// Entries whose claim could not be created.
    pub failed_creates: Vec<Arc<str>>,
    /// Facts that could not be fetched.
    pub failed_lookups: Vec<Lookup>,
}

impl Pass {
    /// A pass in which nothing has failed yet.
    pub fn at(now: Elapsed) -> Self {
        Self { now, ..Self::default() }
    }
}

/// What kind of object a [`Subject`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SubjectKind {
    /// A Pod.
    Pod,
    /// A PodGroup.
    PodGroup,
    /// A DeviceTaintRule.
    DeviceTaintRule,
}

impl SubjectKind {
    /// `kind` in the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::PodGroup => "PodGroup",
            Self::DeviceTaintRule => "DeviceTaintRule",
        }
    }

    /// `apiVersion` in the API.
    pub fn api_version(self) -> &'static str {
        match self {
            Self::Pod => "v1",
            Self::PodGroup => dra_api::names::POD_GROUP_API_VERSION,
            Self::DeviceTaintRule => "resource.k8s.io/v1",
        }
    }

    /// API group, empty for core.
    pub fn group(self) -> &'static str {
        match self {
            Self::Pod => "",
            Self::PodGroup => dra_api::names::SCHEDULING_GROUP,
            Self::DeviceTaintRule => dra_api::names::RESOURCE_GROUP,
        }
    }
}

/// The object that claims are made for, or that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Pod or PodGroup.
    pub kind: SubjectKind,
    /// Namespace and name.
    pub key: ObjectKey,
    /// Uid.
    pub uid: Uid,
}

impl Subject {
    /// The object of this kind that `meta` identifies.
    pub fn of(kind: SubjectKind, meta: &Meta) -> Self {
        Self { kind, key: meta.key.clone(), uid: Arc::clone(&meta.uid) }
    }
}

/// A claim to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewClaim {
    /// Its owner, in the claim's namespace.
    pub owner: Subject,
    /// The owner's entry that it is for.
    pub entry: Arc<str>,
    /// `metadata.generateName`; the API server appends five characters.
    pub generate_name: String,
    /// The whole object as JSON.
    pub body: String,
    /// True when a request asks for admin access; a metric label.
    pub admin_access: bool,
    /// True when the owner's status already named a claim for this entry, which was lost.
    pub replaces: bool,
}

/// Why a consumer is taken off a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReleaseReason {
    /// It no longer exists.
    Gone,
    /// Another object has its name now.
    Replaced,
    /// The Pod has ended, or was deleted before it had a node.
    Done,
}

impl ReleaseReason {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Gone => "gone",
            Self::Replaced => "replaced",
            Self::Done => "done",
        }
    }
}

/// Why a claim is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    /// The Pod that it was made for has ended or was replaced.
    OwnerDone,
    /// The owner uses another claim that was made for the same entry.
    Duplicate,
}

impl DeleteReason {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::OwnerDone => "owner_done",
            Self::Duplicate => "duplicate",
        }
    }
}

/// The exact state of an object under which an action is right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precondition {
    /// The object's key.
    pub key: ObjectKey,
    /// Its uid.
    pub uid: Uid,
    /// Its resourceVersion.
    pub resource_version: ResourceVersion,
}

impl Precondition {
    /// The state in which an object was seen.
    pub fn of(meta: &Meta) -> Self {
        Self { key: meta.key.clone(), uid: Arc::clone(&meta.uid), resource_version: meta.resource_version }
    }
}

/// An event for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about.
    pub subject: Subject,
    /// `reason`, stable, for filters.
    pub reason: &'static str,
    /// `action`: what was attempted.
    pub action: &'static str,
    /// The text; the same words for the same situation, so that repetitions aggregate.
    pub note: String,
    /// Something is wrong; otherwise it is news.
    pub warning: bool,
}

/// How Pods are made to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EvictionMode {
    /// They are deleted, as in-tree. PodDisruptionBudgets do not count.
    Delete,
    /// The eviction subresource is asked, which honours PodDisruptionBudgets.
    Evict,
}

/// The condition that a rule is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleReport {
    /// The rule.
    pub rule: Subject,
    /// Its resourceVersion when this was decided: an older condition never replaces a newer one.
    pub resource_version: ResourceVersion,
    /// The version it is written through.
    pub version: RuleVersion,
    /// The effect of its taint.
    pub effect: TaintEffect,
    /// The condition `EvictionInProgress`.
    pub condition: Condition,
    /// When what it tells happened.
    pub changed: Elapsed,
}

/// A rule to be created, because another one is expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRule {
    /// Its key.
    pub key: ObjectKey,
    /// The version it is written through.
    pub version: RuleVersion,
    /// The rule that is expanded.
    pub parent: Subject,
    /// The whole object as JSON.
    pub body: String,
}

/// What is to be put right in a rule that another one was expanded into.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCorrection {
    /// The rule as it was seen.
    pub rule: Precondition,
    /// The version it is written through.
    pub version: RuleVersion,
    /// The rule that is expanded.
    pub parent: Subject,
    /// `spec.deviceSelector`.
    pub selector: DeviceTaintSelector,
    /// `spec.taint`.
    pub taint: Taint,
}

/// Why a request about pools is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpireReason {
    /// It was answered long ago.
    Answered,
    /// It could not be answered for too long.
    Unanswered,
}

impl ExpireReason {
    /// The metric label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Unanswered => "unanswered",
        }
    }
}

/// The answer to a request about pools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolAnswer {
    /// The request as it was seen.
    pub request: Precondition,
    /// `spec.driver`; a metric label.
    pub driver: Arc<str>,
    /// `status` as JSON.
    pub status: String,
    /// It only says that there is no answer.
    pub failed: bool,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create a claim.
    Create(Box<NewClaim>),
    /// Write `status.resourceClaimStatuses` of the owner: all entries, sorted by name.
    Record {
        /// Pod or PodGroup.
        owner: Subject,
        /// Entry and claim name.
        statuses: Vec<(Arc<str>, Arc<str>)>,
    },
    /// Add a consumer to `status.reservedFor`.
    Reserve {
        /// The claim as it was seen.
        claim: Precondition,
        /// Uids of its consumers, in order; the new one comes last.
        after: Vec<Uid>,
        /// The new consumer.
        consumer: Consumer,
    },
    /// Take consumers off `status.reservedFor`, and clear the allocation in the same write if asked to.
    Release {
        /// The claim as it was seen.
        claim: Precondition,
        /// Uids of the consumers, and why each is taken off.
        consumers: Vec<(Uid, ReleaseReason)>,
        /// Clear `status.allocation` too.
        deallocate: bool,
    },
    /// Remove the delete-protection finalizer.
    RemoveFinalizer {
        /// The claim as it was seen.
        claim: Precondition,
    },
    /// Delete a claim.
    Delete {
        /// The claim as it was seen.
        claim: Precondition,
        /// Why.
        reason: DeleteReason,
    },
    /// Tell people.
    Notify(Notice),
    /// Remember that a Pod is to be evicted, or that it is not any more. No request is made.
    Schedule {
        /// The Pod.
        pod: Subject,
        /// When and why; none to forget it.
        eviction: Option<Box<Eviction>>,
    },
    /// Set the Pod's condition `DisruptionTarget`.
    Disrupt {
        /// The Pod.
        pod: Subject,
        /// `lastTransitionTime`.
        since: Timestamp,
    },
    /// Make the Pod go.
    Evict {
        /// The Pod as it was seen.
        pod: Precondition,
        /// How.
        mode: EvictionMode,
        /// Uids of the rules because of which it goes.
        rules: Vec<Uid>,
        /// Since when it should be gone.
        at: Timestamp,
    },
    /// Write the condition of a rule.
    Report(Box<RuleReport>),
    /// Remember what a rule is expanded into, or that it is not. No request is made.
    Expand {
        /// The rule.
        rule: Subject,
        /// What it is expanded into; none to forget it.
        expansion: Option<Box<Expansion>>,
    },
    /// Create one of the rules that another one is expanded into.
    CreateRule(Box<NewRule>),
    /// Put selector and taint of such a rule right.
    CorrectRule(Box<RuleCorrection>),
    /// Delete such a rule.
    DeleteRule {
        /// The rule as it was seen.
        rule: Precondition,
        /// The version it was read through.
        version: RuleVersion,
    },
    /// Write the status of a request about pools.
    Answer(Box<PoolAnswer>),
    /// Delete a request about pools.
    Expire {
        /// The request as it was seen; only its uid is a precondition.
        request: Precondition,
        /// Why.
        reason: ExpireReason,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Create(new) => write!(
                f,
                "create ResourceClaim {}* for {} {} entry {}",
                new.generate_name,
                new.owner.kind.name(),
                new.owner.key,
                new.entry
            ),
            Self::Record { owner, statuses } => {
                write!(f, "record claims in {} {}:", owner.kind.name(), owner.key)?;
                statuses.iter().try_for_each(|(entry, name)| write!(f, " {entry}={name}"))
            }
            Self::Reserve { claim, consumer, .. } => {
                write!(f, "reserve ResourceClaim {} for {} {}", claim.key, consumer.resource, consumer.name)
            }
            Self::Release { claim, consumers, deallocate } => {
                write!(f, "release ResourceClaim {} of", claim.key)?;
                for (uid, reason) in consumers {
                    write!(f, " {uid} ({})", reason.label())?;
                }
                if *deallocate { f.write_str(" and deallocate it") } else { Ok(()) }
            }
            Self::RemoveFinalizer { claim } => {
                write!(f, "remove the finalizer of ResourceClaim {}", claim.key)
            }
            Self::Delete { claim, reason } => {
                write!(f, "delete ResourceClaim {} ({})", claim.key, reason.label())
            }
            Self::Notify(notice) => write!(
                f,
                "tell {} {} {}: {}",
                notice.subject.kind.name(),
                notice.subject.key,
                notice.reason,
                notice.note
            ),
            Self::Schedule { pod, eviction: Some(eviction) } => {
                write!(f, "schedule eviction of Pod {}", pod.key)?;
                match eviction.at {
                    Some(at) => write!(f, " at {at}"),
                    None => f.write_str(" once it is not paused any more"),
                }
            }
            Self::Schedule { pod, eviction: None } => write!(f, "cancel eviction of Pod {}", pod.key),
            Self::Disrupt { pod, .. } => write!(f, "mark Pod {} as disrupted", pod.key),
            Self::Evict { pod, mode: EvictionMode::Delete, .. } => write!(f, "delete Pod {}", pod.key),
            Self::Evict { pod, mode: EvictionMode::Evict, .. } => write!(f, "evict Pod {}", pod.key),
            Self::Report(report) => write!(
                f,
                "report {} {}: {}",
                report.condition.reason, report.rule.key, report.condition.message
            ),
            Self::Expand { rule, expansion: Some(expansion) } => match &expansion.result {
                Ok(selected) => {
                    write!(f, "expand DeviceTaintRule {} into {}", rule.key, selected.children.len())
                }
                Err(refusal) => {
                    write!(f, "do not expand DeviceTaintRule {}: {}", rule.key, refusal.text())
                }
            },
            Self::Expand { rule, expansion: None } => {
                write!(f, "expand DeviceTaintRule {} no more", rule.key)
            }
            Self::CreateRule(new) => {
                write!(f, "create DeviceTaintRule {} for {}", new.key, new.parent.key)
            }
            Self::CorrectRule(to) => write!(f, "correct DeviceTaintRule {}", to.rule.key),
            Self::DeleteRule { rule, .. } => write!(f, "delete DeviceTaintRule {}", rule.key),
            Self::Answer(answer) => write!(f, "answer ResourcePoolStatusRequest {}", answer.request.key),
            Self::Expire { request, reason } => {
                write!(f, "delete ResourcePoolStatusRequest {} ({})", request.key, reason.label())
            }
        }
    }
}

/// Why an entry of a Pod or PodGroup, or a consumer of a claim, is not (yet) where it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// The template does not exist.
    TemplateMissing {
        /// Its name.
        template: Arc<str>,
    },
    /// The template asks for admin access and the gate is off.
    AdminAccessDisabled,
    /// The template has a prioritized list and the gate is off.
    PrioritizedListDisabled,
    /// The entry names neither a claim nor a template.
    UnsupportedEntry {
        /// Name of the entry.
        entry: Arc<str>,
    },
    /// The Pod is in a PodGroup and the gate is off.
    GenericWorkloadDisabled {
        /// Name of the PodGroup.
        group: Arc<str>,
    },
    /// The entry is one of the PodGroup's and the gate is off.
    WorkloadClaimsDisabled {
        /// Name of the entry.
        entry: Arc<str>,
    },
    /// The Pod's PodGroup does not exist.
    PodGroupMissing {
        /// Its name.
        group: Arc<str>,
        /// False when the API server does not serve PodGroups at all.
        served: bool,
    },
    /// The entry is one of the PodGroup's, whose claim is not there yet.
    GroupClaimMissing {
        /// Name of the PodGroup.
        group: Arc<str>,
    },
    /// Nobody allocated the claim; only the scheduler can, and it does not for a Pod that already has a node.
    Unallocated {
        /// Name of the claim.
        claim: Arc<str>,
    },
    /// The claim has as many consumers as it can have.
    ReservationFull {
        /// Name of the claim.
        claim: Arc<str>,
    },
    /// The claim is being deleted and takes no new consumers.
    ClaimTerminating {
        /// Name of the claim.
        claim: Arc<str>,
    },
    /// The claim's devices can be reached from other nodes only.
    OutOfReach {
        /// Name of the claim.
        claim: Arc<str>,
        /// The Pod's node.
        node: Arc<str>,
    },
    /// The consumer is of a kind that we do not manage: it stays until its own controller takes it off.
    ForeignConsumer {
        /// `resource.apiGroup`, and the name.
        consumer: String,
    },
    /// Another claim of the same name belongs to somebody else.
    NotOwned {
        /// Name of the claim.
        claim: Arc<str>,
    },
    /// No pool matches a request.
    NoPool {
        /// The driver that it asks for.
        driver: Arc<str>,
    },
    /// Pools are not published completely.
    SlicesMissing {
        /// Their names.
        pools: String,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TemplateMissing { template } => write!(
                f,
                "resource claim template \"{template}\": resourceclaimtemplate.resource.k8s.io \"{template}\" not \
                 found; waiting for it"
            ),
            Self::AdminAccessDisabled => {
                f.write_str("admin access is requested, but the feature is disabled")
            }
            Self::PrioritizedListDisabled => f.write_str(
                "template includes a prioritized list of subrequests, but the feature is disabled",
            ),
            Self::UnsupportedEntry { entry } => {
                write!(f, "pod claim {entry}: neither resourceClaimName nor resourceClaimTemplateName is set")
            }
            Self::GenericWorkloadDisabled { group } => {
                write!(f, "Pod is a member of PodGroup {group} but GenericWorkload feature is disabled")
            }
            Self::WorkloadClaimsDisabled { entry } => write!(
                f,
                "claim {entry} is a PodGroup claim but the DRAWorkloadResourceClaims feature is disabled"
            ),
            Self::PodGroupMissing { group, served: true } => {
                write!(f, "podgroup.scheduling.k8s.io \"{group}\" not found; waiting for it")
            }
            Self::PodGroupMissing { group, served: false } => write!(
                f,
                "podgroup.scheduling.k8s.io \"{group}\" not found: the API server does not serve \
                 scheduling.k8s.io/v1beta1"
            ),
            Self::GroupClaimMissing { group } => write!(f, "waiting for the claim of PodGroup \"{group}\""),
            Self::Unallocated { claim } => write!(
                f,
                "ResourceClaim \"{claim}\" is not allocated; the Pod already has a node, so that the scheduler will \
                 not do it"
            ),
            Self::ReservationFull { claim } => write!(
                f,
                "ResourceClaim \"{claim}\" has {max} consumers, the most that it can have; waiting for one to end",
                max = dra_api::names::RESERVED_FOR_MAX
            ),
            Self::ClaimTerminating { claim } => {
                write!(f, "ResourceClaim \"{claim}\" is being deleted and takes no new consumers")
            }
            Self::OutOfReach { claim, node } => write!(
                f,
                "ResourceClaim \"{claim}\" is allocated to devices that node \"{node}\" cannot reach"
            ),
            Self::ForeignConsumer { consumer } => {
                write!(f, "consumer {consumer} is of a kind that this controller does not manage")
            }
            Self::NotOwned { claim } => {
                write!(f, "ResourceClaim \"{claim}\" was not made for this object; another one will be made")
            }
            Self::NoPool { driver } => {
                write!(f, "no pool of driver {driver} matches; slices may be on their way")
            }
            Self::SlicesMissing { pools } => write!(f, "waiting for slices of these pools: {pools}"),
        }
    }
}

//! What a run of `simulate` tells, as data.

use std::collections::BTreeMap;

use dra_allocator::summary::report::PoolReport;
use jiff::Timestamp;
use serde::{Serialize, Serializer};

/// An object by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Subject {
    pub(super) kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) namespace: String,
    /// For a claim that does not exist yet, the beginning of its name and `*`.
    pub(super) name: String,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", self.kind)?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(super) enum Deed {
    CreateClaim,
    RecordClaims,
    ReserveClaim,
    ReleaseClaim,
    RemoveFinalizer,
    DeleteClaim,
    MarkDisrupted,
    EvictPod,
    CancelEviction,
    ReportCondition,
    /// A rule that selects by annotation is expanded into rules that name devices.
    CreateRule,
    CorrectRule,
    DeleteRule,
    AnswerPoolRequest,
    DeletePoolRequest,
    /// An event for people.
    Tell,
    /// A request was refused and is tried again.
    Fail,
    /// A Pod's grace period is over.
    RemovePod,
    /// Its owner is gone.
    CollectGarbage,
}

/// A device that is free again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Freed {
    /// `driver/pool/device`.
    pub(super) device: String,
    #[serde(rename = "shareID", skip_serializing_if = "Option::is_none")]
    pub(super) share: Option<String>,
    /// Counters that the device consumes, as `counterSet/counter`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) counters: BTreeMap<String, String>,
    /// What the claim took of the capacity of a device that can be shared.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) capacity: BTreeMap<String, String>,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Happening {
    #[serde(serialize_with = "time")]
    pub(super) at: Timestamp,
    /// Whole seconds since the beginning.
    pub(super) after_seconds: i64,
    /// The controller, `kubelet` or `garbage-collector`.
    pub(super) by: &'static str,
    pub(super) action: Deed,
    pub(super) object: Subject,
    pub(super) reason: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) frees: Vec<Freed>,
}

/// An eviction that lies beyond the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Later {
    pub(super) pod: Subject,
    /// None while it is paused.
    #[serde(serialize_with = "maybe_time", skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
    pub(super) reason: String,
}

/// Something that is not as it should be at the end, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Waiting {
    /// The controller.
    pub(super) by: &'static str,
    /// What it waits for to be settled.
    pub(super) key: String,
    pub(super) reasons: Vec<String>,
}

/// A pool that is different at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PoolChange {
    pub(super) pool: String,
    pub(super) before: Option<PoolReport>,
    pub(super) after: Option<PoolReport>,
}

/// Numbers of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Summary {
    pub(super) claims_created: usize,
    pub(super) pods_evicted: usize,
    pub(super) evictions_to_come: usize,
    pub(super) claims_deallocated: usize,
    pub(super) devices_freed: usize,
    pub(super) claims_deleted: usize,
    pub(super) pool_requests_answered: usize,
    pub(super) requests_failed: usize,
}

/// What one run came to.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) happenings: Vec<Happening>,
    pub(super) later: Vec<Later>,
    pub(super) waiting: Vec<Waiting>,
    /// Pools at the beginning and at the end, by name.
    pub(super) pools_before: BTreeMap<String, PoolReport>,
    pub(super) pools_after: BTreeMap<String, PoolReport>,
    /// Pods, claims, rules and requests at the end, and how they stand.
    pub(super) end: BTreeMap<Subject, String>,
    /// What the API server said to a change.
    pub(super) refused: Vec<String>,
}

impl Outcome {
    pub(super) fn summary(&self) -> Summary {
        let count = |deed: Deed| self.happenings.iter().filter(|h| h.action == deed).count();
        let deleted = |h: &&Happening| {
            h.action == Deed::DeleteClaim
                || (h.action == Deed::CollectGarbage && h.object.kind == "ResourceClaim")
        };
        Summary {
            claims_created: count(Deed::CreateClaim),
            pods_evicted: count(Deed::EvictPod),
            evictions_to_come: self.later.len(),
            claims_deallocated: self.happenings.iter().filter(|h| !h.frees.is_empty()).count(),
            devices_freed: self.happenings.iter().map(|h| h.frees.len()).sum(),
            claims_deleted: self.happenings.iter().filter(deleted).count(),
            pool_requests_answered: count(Deed::AnswerPoolRequest),
            requests_failed: count(Deed::Fail),
        }
    }

    /// Pools that are different at the end.
    pub(super) fn pool_changes(&self) -> Vec<PoolChange> {
        pool_changes(&self.pools_before, &self.pools_after)
    }
}

/// Pools that differ.
pub(super) fn pool_changes(
    before: &BTreeMap<String, PoolReport>,
    after: &BTreeMap<String, PoolReport>,
) -> Vec<PoolChange> {
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    names
        .into_iter()
        .filter(|name| before.get(*name) != after.get(*name))
        .map(|name| PoolChange {
            pool: name.clone(),
            before: before.get(name).cloned(),
            after: after.get(name).cloned(),
        })
        .collect()
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reading {
    /// Objects that take part, by kind.
    pub(super) objects: BTreeMap<String, usize>,
    /// Objects of which the input has a later version.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) replaced: usize,
    /// Objects of kinds that no controller here reads, by kind.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) skipped: BTreeMap<String, usize>,
    /// Objects that were left out because something is wrong with them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) malformed: Vec<String>,
    /// What is missing and makes the result different from what would happen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) warnings: Vec<String>,
}

/// The answer of `simulate`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// When it begins.
    #[serde(serialize_with = "time")]
    pub(super) from: Timestamp,
    /// When it ends.
    #[serde(serialize_with = "time")]
    pub(super) until: Timestamp,
    pub(super) input: Reading,
    pub(super) summary: Summary,
    pub(super) actions: Vec<Happening>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) later: Vec<Later>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) waiting: Vec<Waiting>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) pools: Vec<PoolChange>,
}

/// An action that a change adds, removes or moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ActionChange {
    /// `added`, `removed`, `changed` (another time, reason or effect).
    pub(super) change: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) without: Option<Happening>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) with: Option<Happening>,
}

/// An object that ends differently.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct EndChange {
    pub(super) object: Subject,
    /// None where it is not there.
    pub(super) without: Option<String>,
    pub(super) with: Option<String>,
}

/// The answer of `simulate --diff`.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Difference {
    #[serde(serialize_with = "time")]
    pub(super) from: Timestamp,
    #[serde(serialize_with = "time")]
    pub(super) until: Timestamp,
    pub(super) input: Reading,
    /// What the change consists of.
    pub(super) change: Reading,
    /// What the API server would refuse of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) refused: Vec<String>,
    pub(super) without: Summary,
    pub(super) with: Summary,
    pub(super) actions: Vec<ActionChange>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) later: Vec<Later>,
    pub(super) end: Vec<EndChange>,
    /// Pools at the end without and with the change.
    pub(super) pools: Vec<PoolChange>,
}

/// As the API writes times.
pub(super) fn written(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn time<S: Serializer>(at: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&written(*at))
}

#[allow(clippy::ref_option, reason = "the signature that serde asks for")]
fn maybe_time<S: Serializer>(at: &Option<Timestamp>, to: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => time(at, to),
        None => to.serialize_none(),
    }
}

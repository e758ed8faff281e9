//! The pool status controller: answers each `ResourcePoolStatusRequest` once, from the inventory, and deletes it when its
//! time is over.
//!
//! ```text
//!   ResourcePoolStatusRequest ── driver, poolName ──▶ pool ◀── ResourceSlice, DeviceTaintRule
//!                                                      ▲
//!                                    status.allocation ┴── ResourceClaim
//! ```
//!
//! Contract: spec pool-status.md; where this controller differs from the in-tree one on purpose, the difference stands in
//! docs/DEVIATIONS.md.

mod affected;
mod answer;
pub mod live;

use std::{fmt, sync::Arc};

use dra_api::ResourcePoolStatusRequest;
use jiff::{SignedDuration, Timestamp};

use crate::{
    Elapsed,
    plan::{Action, ExpireReason, Pass, Plan, Precondition, Why},
    view::View,
};

/// How long the slices of an incomplete pool are waited for: less than the documented
/// `kubectl wait --for=condition=Complete --timeout=30s` waits for the answer (documented-behaviour D118).
pub const GRACE: Elapsed = Elapsed::from_secs(25);
/// How long a request is held back while slices, claims or taint rules change. Watches run beside each other and let such
/// events gather for some 20 ms: one that was written before the request may be seen after it.
pub const SETTLE: Elapsed = Elapsed::from_millis(40);
/// How long it is held back when nothing has changed for longer than that: the watches read at once, and only the API
/// server may show events in another order than that in which they were written.
pub const SETTLE_QUIET: Elapsed = Elapsed::from_millis(2);
/// How long a request that no pool matches is held back: slices that were made just before it may not have been seen.
pub const EMPTY_GRACE: Elapsed = Elapsed::from_secs(1);
/// How long an answered request is kept (in-tree).
pub const ANSWERED_FOR: SignedDuration = SignedDuration::from_hours(1);
/// How long a request without an answer is kept (in-tree).
pub const PENDING_FOR: SignedDuration = SignedDuration::from_hours(24);

/// A request, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub Arc<str>);

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "poolstatusrequest:{}", self.0)
    }
}

/// The pool status controller's planner.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolStatusRequests;

impl PoolStatusRequests {
    /// What follows for `key` from the view.
    pub fn plan(&self, view: &View, key: &Key, pass: &Pass) -> Plan {
        let Some(request) = view.pool_requests.get(&ResourcePoolStatusRequest::key(&key.0)) else {
            return Plan::default();
        };
        if request.meta.deleting {
            return Plan::default();
        }
        if let Some(answer) = request.answer {
            return expire(request, answer.at.or(request.created), ExpireReason::Answered, pass);
        }
        let given_up = expire(request, request.created, ExpireReason::Unanswered, pass);
        if !given_up.is_settled() {
            return given_up;
        }
        answer(view, request, pass)
    }
}

/// Deletes the request when its time is over; a time that is not known never is.
fn expire(
    request: &ResourcePoolStatusRequest,
    since: Option<Timestamp>,
    reason: ExpireReason,
    pass: &Pass,
) -> Plan {
    let mut plan = Plan::default();
    let Some(since) = since else { return plan };
    let keep = match reason {
        ExpireReason::Answered => ANSWERED_FOR,
        ExpireReason::Unanswered => PENDING_FOR,
    };
    let age = pass.wall.duration_since(since);
    if age > keep {
        plan.actions.push(Action::Expire { request: Precondition::of(&request.meta), reason });
    } else {
        let wait = keep.saturating_sub(age).saturating_add(SignedDuration::from_millis(1));
        plan.wake_at = Some(pass.now.saturating_add(wait.try_into().unwrap_or_default()));
    }
    plan
}

/// Answers the request, or says until when it waits.
fn answer(view: &View, request: &ResourcePoolStatusRequest, pass: &Pass) -> Plan {
    let mut plan = Plan::default();
    let Some(inventory) = view.inventory() else { return plan };
    let note = view.unanswered.note(&request.meta.uid);
    if let Some(refused) = &note.refused {
        plan.actions.push(answer::failed(request, refused, pass));
        return plan;
    }
    let limit = request.limit.map_or(answer::DEFAULT_LIMIT, |limit| usize::try_from(limit).unwrap_or(0));
    let (found, listed) = inventory.pool_statuses(
        &request.driver,
        request.pool.as_deref(),
        request.default_attribute.as_deref(),
        limit.min(answer::MOST_POOLS),
    );
    let missing: Vec<&str> =
        listed.iter().filter(|pool| pool.is_incomplete()).map(|pool| pool.pool_name.as_str()).collect();
    let wait = if found == 0 {
        EMPTY_GRACE
    } else if missing.is_empty() {
        let is_busy = view.unanswered.is_stirred(note.seen.saturating_sub(SETTLE));
        if is_busy { SETTLE } else { SETTLE_QUIET }
    } else {
        GRACE
    };
    let until = note.seen.saturating_add(wait);
    if pass.now < until {
        plan.wake_at = Some(until);
        if found == 0 {
            plan.why.push(Why::NoPool { driver: Arc::clone(&request.driver) });
        } else if !missing.is_empty() {
            plan.why.push(Why::SlicesMissing { pools: named(&missing) });
        }
        return plan;
    }
    plan.actions.push(answer::complete(request, found, listed, pass));
    plan
}

/// The first names, and how many more there are.
fn named(names: &[&str]) -> String {
    const MOST: usize = 10;
    let first = names.get(..MOST).unwrap_or(names).join(", ");
    match names.len().saturating_sub(MOST) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

//! The taint eviction controller: Pods whose devices have a NoExecute taint that their claims do not tolerate (any
//! longer) are deleted, and rules report on it in a condition.
//!
//! ```text
//!   DeviceTaintRule ── selector ──▶ device ◀── status.allocation ── ResourceClaim ◀── spec, status ── Pod
//!   ResourceSlice ── taints ─────────┘              └── status.reservedFor ──────────────────────────▶ Pod
//! ```
//!
//! A Pod is looked at whenever something on this chain changes ([`Key::Pod`]); what follows for it is remembered in
//! [`crate::view::Evictions`], from where it is carried out when its time has come ([`Key::Evict`], lowest priority
//! first) and counted for the conditions of rules ([`Key::Rule`]). Rules that select by annotation are expanded into one
//! rule for each device ([`expand`]).
//!
//! Contract: spec device-taint-eviction.md; where this controller differs from the in-tree one on purpose, the
//! difference stands in docs/DEVIATIONS.md.

mod affected;
mod evaluate;
pub mod expand;
pub mod message;
mod pod;
mod rule;

use std::{fmt, sync::Arc};

use dra_api::{DeviceTaintRule, ObjectKey};

use crate::{
    plan::{EvictionMode, Pass, Plan},
    view::View,
};

/// Reason of events about Pods; the in-tree one.
pub const REASON_EVICTION: &str = "DeviceTaintManagerEviction";

/// What is planned and queued as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Whether and when a Pod is to be evicted. Planning it costs no request.
    Pod(ObjectKey),
    /// The eviction of a Pod whose time has come.
    Evict {
        /// The Pod's priority.
        priority: i32,
        /// The Pod.
        pod: ObjectKey,
    },
    /// The condition of a rule, by name.
    Rule(Arc<str>),
    /// Which devices a rule selects by annotation. Planning it costs no request.
    Expand(Arc<str>),
    /// One of the rules that another one is expanded into.
    Child {
        /// Name of the rule that is expanded.
        parent: Arc<str>,
        /// Name of the one that it is expanded into.
        child: Arc<str>,
    },
}

impl Key {
    /// Keys of a lower rank are worked on first, those of the same rank in the order in which they came.
    pub fn rank(&self) -> i64 {
        match self {
            Self::Evict { priority, .. } => i64::from(*priority),
            Self::Expand(_) => -1,
            Self::Pod(_) | Self::Rule(_) | Self::Child { .. } => 0,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "pod:{key}"),
            Self::Evict { priority, pod } => write!(f, "evict:{pod} (priority {priority})"),
            Self::Rule(name) => write!(f, "rule:{name}"),
            Self::Expand(name) => write!(f, "expand:{name}"),
            Self::Child { child, .. } => write!(f, "child:{child}"),
        }
    }
}

/// The taint eviction controller's planner.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTaintEviction {
    /// How Pods are made to go.
    pub mode: EvictionMode,
    /// A toleration protects only if its effect is literally NoExecute, as in-tree; otherwise an empty effect stands
    /// for all effects, as the API documents.
    pub strict_effects: bool,
    /// Rules that select every device of the cluster need no confirmation, as in-tree.
    pub allow_everything: bool,
    /// PodGroups may own claims and have them reserved (`DRAWorkloadResourceClaims`).
    pub workload_claims: bool,
    /// A rule that selects more devices than this by annotation is not expanded.
    pub most_expanded: usize,
}

/// Default of [`DeviceTaintEviction::most_expanded`].
pub const MOST_EXPANDED: usize = 1000;

impl Default for DeviceTaintEviction {
    fn default() -> Self {
        Self {
            mode: EvictionMode::Delete,
            strict_effects: false,
            allow_everything: false,
            workload_claims: true,
            most_expanded: MOST_EXPANDED,
        }
    }
}

impl DeviceTaintEviction {
    /// What follows for `key` from the view.
    pub fn plan(&self, view: &View, key: &Key, pass: &Pass) -> Plan {
        match key {
            Key::Pod(key) => self.plan_pod(view, key, pass),
            Key::Evict { pod, .. } => self.plan_eviction(view, pod, pass),
            Key::Rule(name) => self.plan_rule(view, name, pass),
            Key::Expand(name) => self.plan_expansion(view, name),
            Key::Child { parent, child } => self.plan_child(view, parent, child),
        }
    }

    /// True when the rule selects every device of the cluster and nobody has confirmed that: it evicts nothing.
    pub fn is_held(&self, rule: &DeviceTaintRule) -> bool {
        !self.allow_everything
            && !rule.confirmed
            && rule.selector.as_ref().is_some_and(dra_api::taint::DeviceTaintSelector::is_everything)
    }
}

//! Metrics of what was asked and done (docs/METRICS.md).

use std::time::Duration;

use dra_controllers::plan::{Action, EvictionMode, NewClaim};
use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry};

use crate::failure::Failure;

/// Counters of the executor.
#[derive(Clone, Debug)]
pub struct Metrics {
    creates: IntCounterVec,
    actions: IntCounterVec,
    releases: IntCounterVec,
    deletes: IntCounterVec,
    lookups: IntCounterVec,
    deallocations: IntCounter,
    regenerations: IntCounter,
}

/// Metrics of taint evictions; registered where that controller runs.
#[derive(Clone, Debug)]
pub struct EvictionMetrics {
    deletions: IntCounter,
    latency: Histogram,
    detection: Histogram,
    blocked: IntCounter,
    status_lag: Histogram,
}

/// Buckets of the in-tree histogram, in seconds.
const LATENCIES: [f64; 12] = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];

impl EvictionMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let histogram = |name: &str, help: &str| {
            let histogram = Histogram::with_opts(HistogramOpts::new(name, help).buckets(LATENCIES.to_vec()))?;
            registry.register(Box::new(histogram.clone()))?;
            Ok::<_, prometheus::Error>(histogram)
        };
        Ok(Self {
            deletions: counter(
                "device_taint_eviction_controller_pod_deletions_total",
                "Total number of Pods deleted by DeviceTaintEvictionController since its start.",
            )?,
            latency: histogram(
                "device_taint_eviction_controller_pod_deletion_duration_seconds",
                "Latency, in seconds, between the time when a device taint effect has been activated and a Pod's \
                 deletion via DeviceTaintEvictionController.",
            )?,
            detection: histogram(
                "dra_controller_manager_taint_eviction_detection_to_delete_seconds",
                "Time between the moment at which the controller knew that a Pod was due and its deletion",
            )?,
            blocked: counter(
                "dra_controller_manager_taint_eviction_blocked_total",
                "Evictions that a PodDisruptionBudget forbade (with --eviction-mode=evict); they are tried again",
            )?,
            status_lag: histogram(
                "dra_controller_manager_taint_rule_status_lag_seconds",
                "Time between a change of what a DeviceTaintRule's condition tells and the condition, the deliberate \
                 delay of ten seconds included",
            )?,
        })
    }

    /// A Pod was made to go so long after the taint asked for it, and after that was known here.
    pub(crate) fn evicted(&self, late: Duration, known: Duration) {
        self.deletions.inc();
        self.latency.observe(late.as_secs_f64());
        self.detection.observe(known.as_secs_f64());
    }

    pub(crate) fn blocked(&self) {
        self.blocked.inc();
    }

    pub(crate) fn reported(&self, lag: Duration) {
        self.status_lag.observe(lag.as_secs_f64());
    }
}

impl Metrics {
    /// Registers the counters.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let vec = |name: &str, help: &str, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let single = |name: &str, help: &str| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        Ok(Self {
            creates: vec(
                "dynamic_resource_allocation_resourceclaim_creates_total",
                "Number of ResourceClaims creation requests, categorized by creation status and admin access",
                &["status", "admin_access", "owner_api_group", "owner_api_kind"],
            )?,
            actions: vec(
                "dra_controller_manager_actions_total",
                "Requests that change the cluster, by action and outcome (ok, conflict, gone, refused, busy, \
                 not_sent, unknown)",
                &["action", "outcome"],
            )?,
            releases: vec(
                "dra_controller_manager_resourceclaim_releases_total",
                "Consumers taken off status.reservedFor, by reason (gone, replaced, done)",
                &["reason"],
            )?,
            deletes: vec(
                "dra_controller_manager_resourceclaim_deletes_total",
                "Generated claims deleted, by reason (owner_done, duplicate)",
                &["reason"],
            )?,
            lookups: vec(
                "dra_controller_manager_lookups_total",
                "Live reads of facts that the watches have not shown, by what was read and outcome (found, \
                 absent, failed)",
                &["lookup", "outcome"],
            )?,
            deallocations: single(
                "dra_controller_manager_resourceclaim_deallocations_total",
                "Allocations cleared because the last consumer is gone",
            )?,
            regenerations: single(
                "dra_controller_manager_resourceclaim_regenerations_total",
                "Claims created again because the one in the owner's status was lost or not the owner's",
            )?,
        })
    }

    pub(crate) fn created(&self, new: &NewClaim, ok: bool) {
        let admin = if new.admin_access { "true" } else { "false" };
        let status = if ok { "success" } else { "failure" };
        let kind = new.owner.kind;
        self.creates.with_label_values(&[status, admin, kind.group(), kind.name()]).inc();
        if ok && new.replaces {
            self.regenerations.inc();
        }
    }

    pub(crate) fn acted(&self, action: &Action, failure: Option<&Failure>) {
        let name = match action {
            Action::Create(_) => "create",
            Action::Record { .. } => "record",
            Action::Reserve { .. } => "reserve",
            Action::Release { .. } => "release",
            Action::RemoveFinalizer { .. } => "remove_finalizer",
            Action::Delete { .. } => "delete",
            Action::Disrupt { .. } => "disrupt",
            Action::Evict { mode: EvictionMode::Delete, .. } => "delete_pod",
            Action::Evict { mode: EvictionMode::Evict, .. } => "evict_pod",
            Action::Report(_) => "report",
            // No request is made.
            Action::Notify(_) | Action::Schedule { .. } => return,
        };
        let outcome = failure.map_or("ok", Failure::label);
        self.actions.with_label_values(&[name, outcome]).inc();
        if failure.is_some() {
            return;
        }
        match action {
            Action::Release { consumers, deallocate, .. } => {
                for (_, reason) in consumers {
                    self.releases.with_label_values(&[reason.label()]).inc();
                }
                self.deallocations.inc_by(u64::from(*deallocate));
            }
            Action::Delete { reason, .. } => {
                self.deletes.with_label_values(&[reason.label()]).inc();
            }
            _ => {}
        }
    }

    pub(crate) fn looked_up(&self, lookup: &str, outcome: &str) {
        self.lookups.with_label_values(&[lookup, outcome]).inc();
    }
}

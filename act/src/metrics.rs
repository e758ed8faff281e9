//! Metrics of what was asked and done (docs/METRICS.md).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use dra_api::TaintEffect;
use dra_controllers::plan::{Action, EvictionMode, NewClaim};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts, Registry};

use crate::{executor::Done, failure::Failure};

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
    status_lag: HistogramVec,
}

/// Metrics of answers to requests about pools; registered where that controller runs.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    processed: IntCounterVec,
    errors: IntCounterVec,
    duration: HistogramVec,
    expired: IntCounterVec,
    /// Values of the label `driver_name` so far. Users choose them.
    drivers: Arc<Mutex<BTreeSet<Arc<str>>>>,
}

/// Most values of the label `driver_name`; further drivers are counted as [`OTHER_DRIVER`].
const MOST_DRIVERS: usize = 100;
/// Label of the drivers beyond [`MOST_DRIVERS`]; no driver can have this name.
const OTHER_DRIVER: &str = "<other>";

impl PoolMetrics {
    /// Registers them.
    ///
    /// # Errors
    /// When they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter = |name: &str, help: &str, label: &str| {
            let counter = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let buckets = prometheus::exponential_buckets(0.001, 2.0, 15)?;
        let duration = HistogramVec::new(
            HistogramOpts::new(
                "resourcepoolstatusrequest_controller_request_processing_duration_seconds",
                "Time taken to process a ResourcePoolStatusRequest",
            )
            .buckets(buckets),
            &["driver_name"],
        )?;
        registry.register(Box::new(duration.clone()))?;
        Ok(Self {
            processed: counter(
                "resourcepoolstatusrequest_controller_requests_processed_total",
                "Total number of ResourcePoolStatusRequests processed",
                "driver_name",
            )?,
            errors: counter(
                "resourcepoolstatusrequest_controller_request_processing_errors_total",
                "Total number of errors encountered while processing ResourcePoolStatusRequests",
                "driver_name",
            )?,
            duration,
            expired: counter(
                "dra_controller_manager_pool_status_requests_expired_total",
                "ResourcePoolStatusRequests deleted because their time was over, by reason (answered, unanswered)",
                "reason",
            )?,
            drivers: Arc::default(),
        })
    }

    /// Counts an attempt to write an answer, or an end; `done` is none when it failed.
    pub(crate) fn done(&self, action: &Action, done: Option<&Done>, took: Duration) {
        match action {
            Action::Answer(answer) => {
                let label = self.label(&answer.driver);
                let driver: &[&str] = &[&label];
                self.processed.with_label_values(driver).inc();
                self.duration.with_label_values(driver).observe(took.as_secs_f64());
                if done.is_none() {
                    self.errors.with_label_values(driver).inc();
                }
            }
            Action::Expire { reason, .. } if matches!(done, Some(Done::Accepted)) => {
                self.expired.with_label_values(&[reason.label()]).inc();
            }
            _ => {}
        }
    }

    fn label(&self, driver: &Arc<str>) -> Arc<str> {
        let mut known = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        if known.contains(driver) {
            return Arc::clone(driver);
        }
        if known.len() >= MOST_DRIVERS {
            return Arc::from(OTHER_DRIVER);
        }
        known.insert(Arc::clone(driver));
        Arc::clone(driver)
    }
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
        let status_lag = HistogramVec::new(
            HistogramOpts::new(
                "dra_controller_manager_taint_rule_status_lag_seconds",
                "Time between a change of what a DeviceTaintRule's condition tells and the condition, the deliberate \
                 delay of ten seconds included, by effect of the rule",
            )
            .buckets(LATENCIES.to_vec()),
            &["effect"],
        )?;
        registry.register(Box::new(status_lag.clone()))?;
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
            status_lag,
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

    pub(crate) fn reported(&self, effect: &TaintEffect, lag: Duration) {
        let effect = match effect {
            // Whatever people may write into a rule.
            TaintEffect::Other(_) => "other",
            known => known.name(),
        };
        self.status_lag.with_label_values(&[effect]).observe(lag.as_secs_f64());
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
            Action::CreateRule(_) => "create_rule",
            Action::CorrectRule(_) => "correct_rule",
            Action::DeleteRule { .. } => "delete_rule",
            Action::Answer(_) => "answer",
            Action::Expire { .. } => "expire",
            // No request is made.
            Action::Notify(_) | Action::Schedule { .. } | Action::Expand { .. } => return,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_users_choose_make_a_bounded_number_of_series() {
        let metrics = PoolMetrics::new(&Registry::new()).unwrap();
        let labels: BTreeSet<_> =
            (0..300).map(|number| metrics.label(&format!("d{number}.dev").into())).collect();
        assert_eq!(labels.len(), MOST_DRIVERS + 1);
        assert_eq!(&*metrics.label(&"d7.dev".into()), "d7.dev", "the first ones keep their own");
        assert_eq!(&*metrics.label(&"d299.dev".into()), OTHER_DRIVER);
    }
}

//! Metrics of what was asked and done (docs/METRICS.md).

use dra_controllers::plan::{Action, NewClaim};
use prometheus::{IntCounter, IntCounterVec, Opts, Registry};

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
            Action::Notify(_) => return,
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

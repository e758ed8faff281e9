//! The claim controller: claims from templates for Pods and PodGroups, reservation, release, deallocation.
//!
//! Contract: spec resourceclaim.md; where this controller differs from the in-tree one on purpose, the
//! difference stands in docs/DEVIATIONS.md.

mod affected;
mod claim;
mod entries;
mod group;
pub mod naming;
mod pod;

pub use entries::note;

use std::fmt;

use dra_api::ObjectKey;

use crate::{
    plan::{Pass, Plan},
    view::View,
};

/// Reason of events about claims that cannot be made; the in-tree one.
pub const REASON_CREATION: &str = "FailedResourceClaimCreation";
/// Reason of events about claims that cannot be reserved for a Pod that already has a node.
pub const REASON_RESERVATION: &str = "FailedResourceClaimReservation";

/// A setting of a feature gate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gate {
    /// On.
    On,
    /// Off.
    Off,
    /// On while the API server serves what it is about.
    #[default]
    Auto,
}

/// The feature gates that this controller consults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `GenericWorkload`.
    pub generic_workload: Gate,
    /// `DRAWorkloadResourceClaims`; has no effect without `GenericWorkload`.
    pub workload_resource_claims: Gate,
    /// `DRAAdminAccess`.
    pub admin_access: bool,
    /// `DRAPrioritizedList`.
    pub prioritized_list: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            generic_workload: Gate::Auto,
            workload_resource_claims: Gate::Auto,
            admin_access: true,
            prioritized_list: true,
        }
    }
}

/// What is planned and queued as one: an object that this controller keeps in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// Claims for the entries of a Pod, and reservation for one that already has a node.
    Pod(ObjectKey),
    /// Claims for the entries of a PodGroup.
    PodGroup(ObjectKey),
    /// Consumers, allocation, finalizer and end of a claim.
    Claim(ObjectKey),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(key) => write!(f, "pod:{key}"),
            Self::PodGroup(key) => write!(f, "podgroup:{key}"),
            Self::Claim(key) => write!(f, "claim:{key}"),
        }
    }
}

/// The claim controller's planner.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceClaims {
    /// Feature gates.
    pub gates: Gates,
}

impl ResourceClaims {
    /// What follows for `key` from the view.
    pub fn plan(&self, view: &View, key: &Key, pass: &Pass) -> Plan {
        match key {
            Key::Pod(key) => self.plan_pod(view, key, pass),
            Key::PodGroup(key) => self.plan_group(view, key, pass),
            Key::Claim(key) => self.plan_claim(view, key, pass),
        }
    }

    /// True when Pods may be members of PodGroups.
    fn generic_workload(&self, view: &View) -> bool {
        follows(self.gates.generic_workload, view)
    }

    /// True when PodGroups may have claims.
    fn workload_claims(&self, view: &View) -> bool {
        self.generic_workload(view) && follows(self.gates.workload_resource_claims, view)
    }

    /// True when PodGroups need to be watched where they are served.
    pub fn wants_pod_groups(&self) -> bool {
        self.gates.generic_workload != Gate::Off
    }
}

fn follows(gate: Gate, view: &View) -> bool {
    match gate {
        Gate::On => true,
        Gate::Off => false,
        Gate::Auto => view.pod_groups_served,
    }
}

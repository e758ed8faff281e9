//! The Kubernetes objects as this project reads them.
//!
//! The types here are slim on purpose: a decoded Pod of the generated types takes about 10 KB, and the
//! controllers need a dozen of its fields. Each type decodes from the JSON of the API server in one pass and
//! keeps only those fields; nothing here is ever written back whole, so unknown fields are never lost.
//!
//! **Invariant.** This crate knows no client, no clock and no async runtime.

pub mod claim;
pub mod meta;
pub mod names;
pub mod object;
pub mod pod;
pub mod pod_group;
pub mod quantity;
pub mod taint;
pub mod template;

pub use claim::{AllocatedDevice, Allocation, Claim, ClaimSource, Consumer, NodeReach, Owner};
pub use meta::{Meta, ObjectKey, ResourceVersion, Uid};
pub use object::{DecodeError, Kind, Object};
pub use pod::{ClaimEntry, ClaimStatus, Disruption, Phase, Pod};
pub use pod_group::PodGroup;
pub use taint::{DeviceTaintRule, TaintEffect, Toleration};
pub use template::ClaimTemplate;

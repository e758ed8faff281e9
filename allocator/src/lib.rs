//! The structured allocator of Kubernetes Dynamic Resource Allocation as a library.
//!
//! It gives the answer that the v1.37 scheduler gives for claims on a node, and can also say why not, how many more
//! would fit, and what a pool has left. It has no clock, no network and no global state: an [`Inventory`] is told what
//! there is, and is asked.
//!
//! ```
//! use dra_allocator::{Answer, Features, Inventory, Limits};
//! use dra_allocator::objects::{Node, ResourceClaim};
//!
//! let inventory = Inventory::new(Features::default());
//! let claim: ResourceClaim = serde_json::from_str(r#"{"metadata": {"name": "nothing"}}"#)?;
//! let outcome = inventory.allocate(&Node::default(), &[claim], Limits::NONE, &mut String::new);
//! assert!(matches!(outcome.answer, Ok(Answer::Allocated(_))));
//! # Ok::<(), serde_json::Error>(())
//! ```

mod allocate;
mod amount;
mod capacity;
mod cluster;
mod constraint;
mod error;
mod evaluate;
mod explain;
mod features;
mod fit;
mod ids;
mod inventory;
pub mod lint;
mod nodes;
pub mod objects;
mod plan;
#[cfg(test)]
mod properties;
mod prune;
mod result;
pub mod scheduling;
mod search;
mod selector;
mod state;
pub mod summary;
mod taints;
mod view;

pub use allocate::{Answer, Outcome};
pub use cluster::{ClusterError, ClusterExplanation, ClusterRequest};
pub use error::AllocateError;
pub use explain::{DeviceReason, Explanation, FailedRequest, Reason, ReasonCount, Verdict};
pub use features::Features;
pub use fit::{Fit, FitEnd, NodeFit};
pub use ids::{DeviceId, PoolId};
pub use inventory::Inventory;
pub use inventory::matching::{Matching, Unmatched};
pub use inventory::tainting::{DeviceFilter, SliceTaint};
pub use inventory::usage::{Holding, HoldingKind, holdings};
pub use nodes::selects;
pub use plan::CLAIM_LIMIT;
pub use search::{GaveUp, Limits};

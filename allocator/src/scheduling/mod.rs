//! What the scheduler does with devices before and after it asks the allocator: claims for extended resources, the node
//! resources that devices stand for or need, and the score of a node.
//!
//! Source: `pkg/scheduler/framework/plugins/dynamicresources` of Kubernetes.

mod extended;
mod node_allocatable;
mod pod;
mod score;

pub use extended::{
    EXTENDED_CLAIM, ExtendedClaim, ExtendedResources, IMPLICIT_PREFIX, NotProvided, RequestMapping,
};
pub use node_allocatable::{
    AllocatedClaim, ClaimStatus, MappedResource, Misfit, NodeAllocatableError, OverheadResource, check,
    has_mapped_device, statuses,
};
pub use pod::{ClaimReference, Container, ContainerResources, PodSpec, Resources, demand};
pub use score::{normalise, score};

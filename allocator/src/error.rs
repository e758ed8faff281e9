//! Why an allocation was given up for good.
//!
//! "Does not fit" is not an error. The texts are the scheduler's, so that events and logs read alike.

/// An error that ends the allocation. Unless [`AllocateError::is_node_only`], it would be the same on any node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllocateError {
    /// A slice's or device's node selector is malformed.
    #[error("{0}")]
    NodeSelection(String),
    /// A request uses what a gate forbids, or what the allocator does not know.
    #[error("{0}")]
    Request(String),
    /// A selector does not compile, or fails on a device.
    #[error("{0}")]
    Selector(String),
    /// A derived attribute does not compile, or fails on a device.
    #[error("{0}")]
    DerivedAttribute(String),
    /// A request for all devices cannot be satisfied as stated.
    #[error("{0}")]
    AllDevices(String),
    /// A capacity request is negative, or too large for a device's policy.
    #[error("{0}")]
    Capacity(String),
    /// A claim asks for more devices than fit into an allocation.
    #[error("{0}")]
    ClaimLimit(String),
    /// Nothing fits, and a pool of the node is invalid, so that this may be why.
    #[error("invalid resource pools were encountered")]
    InvalidPools,
    /// The devices' node selectors cannot be combined.
    #[error("{0}")]
    NodeSelector(String),
}

impl AllocateError {
    /// Whether another node may do better.
    pub fn is_node_only(&self) -> bool {
        *self == Self::InvalidPools
    }
}

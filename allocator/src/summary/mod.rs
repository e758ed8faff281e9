//! What a pool has, what of it is in use, and what is left.
//!
//! [`status`] computes it as the in-tree controller does, to the letter, for `ResourcePoolStatusRequest`; [`report`] as
//! people need it.

pub mod report;
pub mod status;

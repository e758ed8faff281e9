//! The only writer: looks up and carries out what a plan asks for.
//!
//! [`shared::Shared`] holds the view that watches and answers feed; [`executor::Executor`] settles one key by
//! planning, asking and acting until the plan is empty; `request` says how an action looks on the wire and
//! decides nothing else; [`failure`] says what an error of the API server means.

pub mod executor;
pub mod failure;
pub mod journal;
pub mod metrics;
mod request;
pub mod shared;

pub use executor::Executor;
pub use journal::Journal;
pub use metrics::{EvictionMetrics, Metrics, PoolMetrics};
pub use shared::Shared;

//! The taint eviction controller on a real API server. The stories share one control plane and one manager; each has a
//! pool of devices of its own.

// `json!` reads best where it is passed on.
#![allow(clippy::needless_pass_by_value)]

mod cluster;
mod expansion;
mod guard;
mod mass;
mod stories;
mod versions;

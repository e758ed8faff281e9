//! The real control plane for tests, the demo, conformance runs and benchmarks.
//!
//! [`ControlPlane`] starts etcd, kube-apiserver and, where asked, kube-scheduler and kube-controller-manager
//! (garbage collector and PodGroup protection only) as processes on loopback ports in a folder of its own.
//! [`Manager`] is the `dra-controller-manager` binary against it, with the rights of `manifests/` and no others.
//! There are no nodes: [`FakeKubelet`] plays their part, and [`scheduler`] that of kube-scheduler where a story
//! wants to say exactly what is allocated when.
//!
//! Nothing here decides anything about DRA, and nothing of the product depends on this crate.

pub mod binaries;
pub mod control_plane;
pub mod fixtures;
pub mod kubelet;
pub mod manager;
pub mod metrics;
mod ports;
mod processes;
pub mod scheduler;
pub mod story;
pub mod wait;

pub use control_plane::{ControlPlane, Options};
pub use kubelet::FakeKubelet;
pub use manager::{Manager, ManagerOptions, Program};
pub use story::{SharedManager, Story};
pub use wait::{holds_for, wait_until};

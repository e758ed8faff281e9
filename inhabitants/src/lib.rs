//! Who else lives in a cluster, in as few lines as a simulation, the demo and `simulate` need: a scheduler, kubelets and
//! the garbage collector, on the embedded API server.
//!
//! Nothing here waits: whoever uses it says when somebody acts ([`scheduler::Scheduler::act`],
//! [`kubelet::Kubelet::act`], [`cluster::Cluster::collect_garbage`]). The same seed and the same order of acts give the
//! same history.

pub mod cluster;
pub mod kubelet;
pub mod scheduler;

//! The claim controller on a real API server, with kube-scheduler and the garbage collector beside it. All stories share
//! one control plane and one manager, each in its own namespace.

mod generation;
mod messages;
mod pod_groups;
mod release;
mod reservation;
mod scheduling;

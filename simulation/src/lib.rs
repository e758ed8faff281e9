//! Deterministic simulation: the real controllers, wired as the manager wires them, on the embedded API server.
//!
//! One seed is one history: users create, change and delete Pods, PodGroups, templates, claims and slices; a little
//! scheduler on the allocator crate places Pods; kubelets run and end them; requests fail, watches lag and break, the
//! manager crashes at any moment and starts again. Time is virtual. Then nothing goes wrong any more, and when nothing
//! changes either, the outcome is checked ([`run::run`]). The same seed gives the same history.

mod check;
pub mod many;
pub mod run;
mod user;

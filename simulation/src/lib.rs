//! Deterministic simulation: the real controllers, wired as the manager wires them, on the embedded API server.
//!
//! One seed is one history: users create, change and delete Pods, PodGroups, templates and claims; drivers publish
//! their pools slice after slice and taint devices; administrators make rules and ask about pools; a little scheduler
//! on the allocator crate places Pods; kubelets run and end them; requests fail, watches lag and break, the manager
//! crashes or is replaced at any moment. Time is virtual. Each write of the manager is judged when it happens
//! (`judge`). Then nothing goes wrong any more, and when nothing changes either, the outcome is checked
//! ([`run::run`]) against what the specification says, computed from the objects alone (`check`, `taints`, `pools`). The
//! same seed gives the same history.
//!
//! [`mass`] is one story at full size.

mod admin;
mod check;
mod history;
mod judge;
mod lives;
pub mod many;
pub mod mass;
mod pools;
mod publish;
pub mod run;
mod taints;
mod user;

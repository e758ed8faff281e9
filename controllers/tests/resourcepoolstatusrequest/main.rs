//! The pool status planner: what it answers, when it waits, and when a request is deleted.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::needless_pass_by_value,
    reason = "a test that cannot go on should say where"
)]

mod checklist;
mod defects;
mod lifetime;
mod live;
mod world;

//! The claim controller's planner, driven through whole stories without a server.
//!
//! Expectations come from spec resourceclaim.md; docs/conformance-claims-planner.md maps its rows to tests.

// clippy.toml allows these in test functions; the helpers that tell the stories are test code too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "../common/mod.rs"]
mod common;

mod checklist_create;
mod checklist_existing;
mod checklist_release;
mod crashes;
mod defects;
mod documented;
mod event_handlers;
mod hazards;
mod library;
mod properties;
mod reports;
mod stories;
mod view;

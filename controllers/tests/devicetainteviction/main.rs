//! The taint eviction controller in a small world: stories, the specification's checklist, its defects, and what the
//! documentation promises.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]

mod checklist;
mod defects;
mod documented;
mod more;
mod reports;
mod statuses;
mod world;

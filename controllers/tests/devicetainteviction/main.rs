//! The taint eviction controller in a small world: stories, the specification's checklist, its defects, and what the
//! documentation promises.

// clippy.toml allows these in test functions; the helpers that tell the stories are test code too. `json!` reads best
// where it is passed on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::needless_pass_by_value)]

mod checklist;
mod defects;
mod documented;
mod expansion;
mod expansion_properties;
mod more;
mod reports;
mod statuses;
mod world;

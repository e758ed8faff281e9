//! The allocator from outside: objects in, answers out.

// clippy.toml allows these in test functions; what builds the objects and reads the answers is test code too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::needless_pass_by_value
)]

mod bad_input;
mod documented;
mod explaining;
mod explaining_clusters;
mod fitting;
mod hopeless;
mod limits;
mod linting;
mod one_node;
mod pool_reports;
mod pool_status_corrections;
mod pool_status_rows;
mod pool_status_withdrawn;
mod pool_statuses;
mod world;

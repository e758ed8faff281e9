//! The allocator from outside: objects in, answers out.

mod bad_input;
mod documented;
mod explaining;
mod fitting;
mod hopeless;
mod pool_reports;
mod pool_statuses;
mod world;

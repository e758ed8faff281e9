//! Watches, work queue, events and clock; knows nothing of DRA.

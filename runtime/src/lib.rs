//! What any controller needs and no controller decides: watches, a work queue, events, a client, a clock.
//!
//! **Invariants.** Nothing here knows of Pods, claims or devices. Time and chance are injected ([`Clock`],
//! [`Chance`]), so that everything runs under tokio's paused time with the same outcome every time.

pub mod client;
pub mod clock;
pub mod events;
pub mod limit;
pub mod queue;
pub mod watch;

pub use clock::{Chance, Clock};

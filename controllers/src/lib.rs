//! The pure half of the controller manager: what is known (the [`view`]), what follows from it (a planner per
//! controller), and what can be done about it ([`plan::Action`]).
//!
//! ```text
//!   PodGroup ◀─ spec.schedulingGroup ── Pod ── spec.resourceClaims ─▶ ResourceClaimTemplate
//!      ▲ │                              ▲ │                                  │ copied into
//!      │ └──── status.resourceClaimStatuses ────────▶ ResourceClaim ◀────────┘
//!      └── ownerReferences / status.reservedFor ───────────┘ (of the Pod or the PodGroup)
//! ```
//!
//! **Invariant.** Nothing here does I/O, reads a clock or awaits: time is an argument, and the same view gives
//! the same plan.

pub mod devicetainteviction;
pub mod plan;
pub mod resourceclaim;
pub mod view;

/// Monotonic time since the manager started. Not wall-clock time: it never jumps.
pub type Elapsed = std::time::Duration;

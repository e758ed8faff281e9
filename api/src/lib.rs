//! What the project reads and writes: Kubernetes objects in slim form, well-known names, Quantity.

pub mod quantity;

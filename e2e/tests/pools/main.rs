//! `ResourcePoolStatusRequests` on a real API server: what is answered, and that it is what the in-tree controller
//! answers except where a deviation says otherwise.

mod answers;
mod differential;
mod generate;
mod world;

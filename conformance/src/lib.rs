//! What `dra-conformance` does: the harness's wire format, its benchmark, and a comparison with the Go allocator on
//! generated requests.

pub mod bench;
pub mod differential;
pub mod generate;
pub mod scale;
pub mod wire;

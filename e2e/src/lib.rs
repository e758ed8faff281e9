//! The real control plane for tests, conformance and benchmarks.

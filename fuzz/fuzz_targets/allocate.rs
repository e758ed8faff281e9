//! Any text as an allocation request: an error or an answer, in bounded time. Seeds: `dra-conformance generate N`.

#![no_main]

use dra_conformance::wire::Request;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    if let Ok(request) = Request::parse(text) {
        let _ = dra_conformance::wire::respond_within(&request, 100_000);
    }
});

//! Arbitrary bytes as input of the session proxy from clients and upstreams.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| criscope::proxy::sessions::fuzz(bytes));

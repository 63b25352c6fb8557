//! Any bytes as what the relay reads of clients and upstreams.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| criscope::proxy::sessions::fuzz(bytes));

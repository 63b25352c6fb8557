//! Arbitrary bytes as the client's half of a SPDY connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    cri_streaming::spdy::fuzz(bytes);
});

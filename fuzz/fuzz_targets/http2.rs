//! Any bytes as the caller's half of an HTTP/2 connection.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    criscope::http2::fuzz(bytes);
});

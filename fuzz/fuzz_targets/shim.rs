//! Arbitrary bytes as frames between the daemon and a shim.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    criscope_shim::protocol::fuzz::fuzz(bytes);
});

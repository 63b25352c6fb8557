//! Arbitrary bytes as the client's half of an exec, attach or port-forward session.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = cri_streaming::fuzz(bytes);
});

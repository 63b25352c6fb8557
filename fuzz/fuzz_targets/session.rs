//! Any bytes as the client's half of a session of exec, attach or port-forward.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = cri_streaming::fuzz(bytes);
});

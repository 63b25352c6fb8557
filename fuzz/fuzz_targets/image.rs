//! Arbitrary bytes as a reference, a manifest, an archive and so on.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    criscope_image::fuzz(bytes);
});

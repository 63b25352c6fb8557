//! Any bytes as what plugins, vendors, images, the kubelet and the kernel write.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    criscope::runtime::fuzz(bytes);
});

//! Arbitrary bytes as files and output of plugins, vendors, images, the kubelet and the kernel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    criscope_runtime::fuzz(bytes);
});

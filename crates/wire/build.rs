//! Compiles `proto/` with protox, so that no `protoc` has to be installed.

/// The files, each with one package.
const FILES: &[&str] = &[
    "cgroups.proto",
    "cgroups_v1.proto",
    "cgroups_v2.proto",
    "services.proto",
    "task.proto",
    "ttrpc.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    prost_build::Config::new()
        // Payloads hold environment values and annotations: no request or response can be printed.
        .skip_debug([".ttrpc"])
        .include_file("messages.rs")
        .compile_fds(descriptors)?;
    Ok(())
}

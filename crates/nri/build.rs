//! Compiles `proto/nri.proto` with protox, so that no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/nri.proto");
    let descriptors = protox::compile(["nri.proto"], ["proto"])?;
    prost_build::Config::new()
        .btree_map(["."])
        // Messages hold environment values and annotations: none can be printed.
        .skip_debug(["."])
        .compile_fds(descriptors)?;
    Ok(())
}

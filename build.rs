//! Compiles `proto/api.proto` with protox, so that no `protoc` has to be installed.

use std::path::PathBuf;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/api.proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("api.proto")?;

    // The descriptor set as protox writes it keeps options that prost-types does not know, such as `debug_redact`.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(
        out.join("descriptor.bin"),
        compiler.encode_file_descriptor_set(),
    )?;

    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".runtime.v1.KeyValue.value")
        // A derived Debug would print credentials and environment values. No message of this protocol is ever
        // formatted outside tests, so none has a Debug.
        .skip_debug(["."])
        .compile_fds(compiler.file_descriptor_set())?;
    Ok(())
}

//! Compiles `proto/api.proto` with protox, so that no `protoc` has to be installed.
//!
//! `proto/` at the top of the repository has the file; here is a link to it, which packages of this crate replace with a copy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed=proto/api.proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("api.proto")?;

    // Written by protox, the descriptor set keeps options that prost-types does not know, such as `debug_redact`.
    fs::write(
        out.join("descriptor.bin"),
        compiler.encode_file_descriptor_set(),
    )?;

    let descriptors = compiler.file_descriptor_set();
    let mut config = tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".runtime.v1.KeyValue.value");
    // The built-in runtime's records of a pod and a container: human-readable JSON. Missing fields have their defaults, so
    // that records of older versions can be read.
    for message in reachable(&descriptors, RECORDED) {
        config = config
            .message_attribute(&message, "#[derive(serde::Serialize, serde::Deserialize)]")
            .message_attribute(&message, "#[serde(default)]");
    }
    config
        .field_attribute(
            ".runtime.v1.KeyValue.value",
            "#[serde(with = \"crate::readable\")]",
        )
        // A derived Debug would print credentials and environment values. No message of this protocol is formatted outside
        // tests, so none has a Debug.
        .skip_debug(["."])
        .compile_fds(descriptors)?;
    Ok(())
}

/// The messages in records.
const RECORDED: &[&str] = &[
    ".runtime.v1.PodSandboxConfig",
    ".runtime.v1.ContainerConfig",
];

/// These messages and all messages within them.
fn reachable(set: &prost_types::FileDescriptorSet, from: &[&str]) -> BTreeSet<String> {
    let messages: BTreeMap<String, &prost_types::DescriptorProto> = set
        .file
        .iter()
        .flat_map(|file| {
            let package = file.package();
            file.message_type
                .iter()
                .map(move |message| (format!(".{package}.{}", message.name()), message))
        })
        .collect();
    let mut found = BTreeSet::new();
    let mut open: Vec<String> = from.iter().map(ToString::to_string).collect();
    while let Some(name) = open.pop() {
        // A map is a nested message, which prost generates as a map.
        let Some(message) = messages.get(&name) else {
            continue;
        };
        if found.insert(name) {
            open.extend(
                message
                    .field
                    .iter()
                    .map(|field| field.type_name().to_owned()),
            );
        }
    }
    found
}

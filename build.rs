//! Compiles `proto/api.proto` with protox, so that no `protoc` has to be installed, and finds the file in which git records
//! commits.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?);
    find_head_log(&out)?;
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
            "#[serde(with = \"crate::cri::readable\")]",
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

/// Sets `CRISCOPE_HEAD_LOG` to git's reflog of HEAD, from which `src/main.rs` takes the commit. Without a reflog it is a
/// file in `out` of the same form, empty if there is no commit either.
fn find_head_log(out: &Path) -> Result<(), Box<dyn Error>> {
    let path = match head_log() {
        Some(path) => path,
        None => {
            let commit = own_repository().and_then(|()| git(&["rev-parse", "HEAD"]));
            let path = out.join("head");
            fs::write(
                &path,
                commit.map_or_else(String::new, |commit| format!("- {commit}\n")),
            )?;
            path
        }
    };
    println!("cargo:rustc-env=CRISCOPE_HEAD_LOG={}", path.display());
    Ok(())
}

fn head_log() -> Option<PathBuf> {
    own_repository()?;
    let path = fs::canonicalize(git(&["rev-parse", "--git-path", "logs/HEAD"])?).ok()?;
    // git gc empties the reflog of a repository without recent commits.
    (fs::metadata(&path).ok()?.len() > 0).then_some(path)
}

/// A source archive unpacked inside another repository must not take that one's commit.
fn own_repository() -> Option<()> {
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    (top.canonicalize().ok()? == here.canonicalize().ok()?).then_some(())
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}

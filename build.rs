//! Compiles `proto/api.proto` with protox, so that no `protoc` has to be installed, and notes the commit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    note_commit();
    println!("cargo:rerun-if-changed=proto/api.proto");
    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).open_file("api.proto")?;

    // The descriptor set as protox writes it keeps options that prost-types does not know, such as `debug_redact`.
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(
        out.join("descriptor.bin"),
        compiler.encode_file_descriptor_set(),
    )?;

    let descriptors = compiler.file_descriptor_set();
    let mut config = tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".runtime.v1.KeyValue.value");
    // What the built-in runtime writes down of a pod and a container: JSON that a human can read. Missing fields have
    // their defaults, so that the record of an older version can be read.
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
        // A derived Debug would print credentials and environment values. No message of this protocol is ever
        // formatted outside tests, so none has a Debug.
        .skip_debug(["."])
        .compile_fds(descriptors)?;
    Ok(())
}

/// The messages that records are made of.
const RECORDED: &[&str] = &[
    ".runtime.v1.PodSandboxConfig",
    ".runtime.v1.ContainerConfig",
];

/// These messages and all they are made of.
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
        // A map is a message inside its message, which prost writes as a map.
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

/// Sets `CRISCOPE_COMMIT` for the crate, from the environment if a packager set it there, else from git, else not; and
/// `CRISCOPE_VERSION`, the version with the commit if there is one.
fn note_commit() {
    println!("cargo:rerun-if-env-changed=CRISCOPE_COMMIT");
    let commit = match env::var("CRISCOPE_COMMIT") {
        // Set to nothing: the packager wants no commit in it.
        Ok(commit) => Some(commit).filter(|commit| !commit.is_empty()),
        Err(_) => commit_from_git(),
    };
    let mut version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    if let Some(commit) = commit {
        println!("cargo:rustc-env=CRISCOPE_COMMIT={commit}");
        version = format!("{version} ({commit})");
    }
    println!("cargo:rustc-env=CRISCOPE_VERSION={version}");
}

fn commit_from_git() -> Option<String> {
    // A source archive unpacked inside another repository must not take that one's commit.
    let top = PathBuf::from(git(&["rev-parse", "--show-toplevel"])?);
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
    if top.canonicalize().ok()? != here.canonicalize().ok()? {
        return None;
    }
    // HEAD changes when another branch is checked out, its log with every commit. Cargo would rebuild each time for a
    // file that is not there.
    for name in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", name])?;
        if Path::new(&path).exists() {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(args: &[&str]) -> Option<String> {
    let output = Command::new("git").args(args).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let text = text.trim();
    (output.status.success() && !text.is_empty()).then(|| text.to_owned())
}

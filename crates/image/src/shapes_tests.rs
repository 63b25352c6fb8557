//! A corpus of shapes: manifests, configurations and indexes as tools write them, with other names and digests. Each file of
//! `testdata/shapes` comes from one tool and says how it must be read. A shape that was misread gets a
//! file here.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::choice::{Choice, choose};
use crate::image_config::ParsedConfig;
use crate::manifest::Manifest;
use crate::platform::{Fit, Platform};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Shape {
    index: Option<Box<RawValue>>,
    /// The digest of the manifest in the index that is for `linux/amd64/v2`.
    chosen: Option<String>,
    manifest: Option<Box<RawValue>>,
    config: Option<Box<RawValue>>,
    #[serde(default)]
    expect: Expected,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Expected {
    kind: String,
    layers: usize,
    files: Vec<String>,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
    env: Vec<String>,
    user: String,
    working_dir: String,
    stop_signal: String,
    ports: Vec<String>,
    volumes: Vec<String>,
}

fn shapes() -> BTreeMap<String, Shape> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/shapes"));
    let files = fs::read_dir(&folder).expect("testdata/shapes");
    files
        .map(|file| {
            let path = file.expect("a file").path();
            let name = path.file_stem().expect("a name").display().to_string();
            let text = fs::read_to_string(&path).expect("text");
            let shape = serde_json::from_str(&text);
            let shape = shape.unwrap_or_else(|error| panic!("{name}: {error}"));
            (name, shape)
        })
        .collect()
}

fn platform() -> Platform {
    Platform {
        os: "linux".to_owned(),
        architecture: "amd64".to_owned(),
        variant: "v2".to_owned(),
    }
}

fn bytes(part: &RawValue) -> &[u8] {
    part.get().as_bytes()
}

#[test]
fn shapes_of_tools_are_read() {
    let all = shapes();
    assert!(all.len() >= 20, "{}", all.len());
    for (name, shape) in &all {
        let (Some(manifest), Some(config)) = (&shape.manifest, &shape.config) else {
            continue;
        };
        let (expected, config) = (&shape.expect, bytes(config));
        let parsed = Manifest::parse(bytes(manifest), "");
        let mut parsed = parsed.unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Manifest::Undeclared(manifest) = parsed {
            parsed = manifest.decide(config).expect(name);
        }
        let layers = match (parsed, expected.kind.as_str()) {
            (Manifest::Image(image), "image") => image.layers,
            (Manifest::Artifact(artifact), "artifact") => {
                let files = artifact.files.into_iter().map(|file| file.path);
                assert_eq!(files.collect::<Vec<_>>(), expected.files, "{name}");
                continue;
            }
            (other, kind) => panic!("{name}: {other:?} in place of an {kind}"),
        };
        let parsed = ParsedConfig::read(config).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(layers.len(), expected.layers, "{name}");
        assert!(parsed.check_layers(layers.len()).is_ok(), "{name}");
        assert!(
            parsed.fit(&platform()) != Fit::Other || name == "windows-base",
            "{name}"
        );
        let read = &parsed.config;
        assert_eq!(read.entrypoint, expected.entrypoint, "{name}");
        assert_eq!(read.cmd, expected.cmd, "{name}");
        assert_eq!(read.env, expected.env, "{name}");
        assert_eq!(read.user, expected.user, "{name}");
        assert_eq!(read.working_dir, expected.working_dir, "{name}");
        assert_eq!(read.stop_signal, expected.stop_signal, "{name}");
        assert_eq!(read.exposed_ports, expected.ports, "{name}");
        assert_eq!(read.volumes, expected.volumes, "{name}");
    }
}

#[test]
fn indexes_of_tools_lead_to_the_right_manifest() {
    for (name, shape) in &shapes() {
        let (Some(index), Some(chosen)) = (&shape.index, &shape.chosen) else {
            continue;
        };
        let Ok(Manifest::Index(manifests)) = Manifest::parse(bytes(index), "") else {
            panic!("{name}: not an index");
        };
        let found = match choose(name, &manifests, &platform()) {
            Ok(Choice::Declared(found)) => found,
            Ok(Choice::Undeclared(found)) => found[0],
            Err(error) => panic!("{name}: {error}"),
        };
        assert_eq!(found.digest.as_str(), chosen, "{name}");
    }
}

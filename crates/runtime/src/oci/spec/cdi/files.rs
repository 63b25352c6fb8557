//! CDI specification files, `.json` and `.yaml`. Like the reference implementation (`tags.cncf.io/container-device-interface`),
//! this does not read `.yml`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criscope_linux::untrusted;
use serde::Deserialize;
use serde::de::IgnoredAny;

use super::super::error::SpecError;
use super::edits::Edits;

/// Maximum size of one file in bytes, and of the text of a YAML file with its aliases expanded.
const FILE_LIMIT: usize = 4 << 20;
/// Maximum number of unreadable files named in the error for a missing device.
const MAX_NAMED: usize = 3;

/// A field that is not known is an error, as in [`Edits`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default, rename = "cdiVersion")]
    _version: IgnoredAny,
    #[serde(default, rename = "annotations")]
    _annotations: IgnoredAny,
    kind: String,
    #[serde(default)]
    devices: Vec<NamedDevice>,
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedDevice {
    name: String,
    #[serde(default, rename = "annotations")]
    _annotations: IgnoredAny,
    #[serde(default, rename = "containerEdits")]
    edits: Edits,
}

/// The format of a file, by its extension.
#[derive(Clone, Copy)]
enum Format {
    Json,
    Yaml,
}

impl Format {
    fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "json" => Some(Self::Json),
            "yaml" => Some(Self::Yaml),
            _ => None,
        }
    }

    fn parse(self, text: &str) -> Result<File, String> {
        match self {
            Self::Json => serde_json::from_str(text).map_err(|error| error.to_string()),
            Self::Yaml => {
                serde_saphyr::from_str_with_options(text, options()).map_err(|e| e.to_string())
            }
        }
    }
}

/// Parser options: the dialect of the reference implementation, with bounded memory.
fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            // Counts the text of an alias at each use.
            max_total_scalar_bytes: FILE_LIMIT,
        },
        // `fileMode: 0660`.
        legacy_octal_numbers: true,
        // Errors on one line.
        with_snippet: false,
    }
}

/// The CDI devices of the node.
#[derive(Default)]
pub struct Registry {
    devices: BTreeMap<String, (Arc<Edits>, Edits)>,
    /// Files that could not be read, with the reason. The other files are used regardless.
    pub broken: Vec<(PathBuf, String)>,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry")
            .field("devices", &self.devices.keys())
            .field("broken", &self.broken)
            .finish()
    }
}

impl Registry {
    /// Reads all `.json` and `.yaml` files of the directories, in lexical order; devices of later directories take precedence.
    /// Missing directories are ignored.
    pub fn read<P: AsRef<Path>>(directories: &[P]) -> Self {
        let mut registry = Self::default();
        for directory in directories {
            let Ok(entries) = fs::read_dir(directory) else {
                continue;
            };
            let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
            let mut files: Vec<_> = paths
                .filter_map(|path| Some((Format::from_path(&path)?, path)))
                .collect();
            files.sort_by(|(_, one), (_, other)| one.cmp(other));
            for (format, path) in files {
                if let Err(reason) = registry.add(&path, format) {
                    registry.broken.push((path, reason));
                }
            }
        }
        registry
    }

    fn add(&mut self, path: &Path, format: Format) -> Result<(), String> {
        let file = format.parse(&text(path)?)?;
        // The common edits of a file are stored once.
        let shared = Arc::new(file.edits);
        for device in file.devices {
            let name = format!("{}={}", file.kind, device.name);
            self.devices
                .insert(name, (Arc::clone(&shared), device.edits));
        }
        Ok(())
    }

    /// Returns the edits of a device: those common to its file, and its own. The error names files that could not be read, since
    /// the device may be in one of them.
    pub(super) fn device(&self, name: &str) -> Result<&(Arc<Edits>, Edits), SpecError> {
        self.devices.get(name).ok_or_else(|| {
            let mut text = format!("CDI device {name} does not exist on this node");
            for (path, reason) in self.broken.iter().take(MAX_NAMED) {
                let _ = write!(text, "; {} was not read: {reason}", path.display());
            }
            if let Some(more @ 1..) = self.broken.len().checked_sub(MAX_NAMED) {
                let _ = write!(text, "; nor were {more} more files");
            }
            SpecError::NotFound(text)
        })
    }
}

/// Fuzz target: parses a text as a file.
///
/// # Panics
/// If the parsed form is much larger than the text.
#[cfg(any(test, fuzzing))]
pub(crate) fn fuzz(text: &str, yaml: bool) {
    let format = if yaml { Format::Yaml } else { Format::Json };
    let Ok(file) = format.parse(text) else {
        return;
    };
    let names = file.devices.iter().map(|device| device.name.len());
    let edits = file.devices.iter().map(|device| &device.edits);
    let env = edits.chain([&file.edits]).flat_map(|edits| &edits.env);
    let total = file.kind.len() + names.sum::<usize>() + env.map(String::len).sum::<usize>();
    // YAML aliases expand the text, up to the limit.
    let most = if yaml { FILE_LIMIT } else { text.len() };
    assert!(total <= most, "{total} bytes of {}", text.len());
}

/// Reads a file. One above the size limit is an error, since a truncated YAML file may still be valid.
fn text(path: &Path) -> Result<String, String> {
    untrusted::read_text(path, FILE_LIMIT as u64).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(files: &[(&str, &str)]) -> Registry {
        let folder = tempfile::tempdir().expect("present");
        for (name, text) in files {
            fs::write(folder.path().join(name), text).expect("written");
        }
        Registry::read(&[folder.path()])
    }

    /// In the form written by `nvidia-ctk cdi generate`: a document marker, block style, quoted names.
    const VENDOR: &str = "---
cdiVersion: 0.5.0
kind: v.com/gpu
# of all
containerEdits:
  env:
  - COMMON=1
  hooks:
  - hookName: createContainer
    path: /bin/hook
    args: [hook, --flag]
    timeout: 5
  mounts:
  - containerPath: /lib/v.so
    hostPath: /opt/v.so
    options: [ro, nosuid, bind]
devices:
- name: \"0\"
  containerEdits:
    deviceNodes:
    - {path: /dev/v0, fileMode: 0660, permissions: rw}
    additionalGids: [44]
- name: 1
  containerEdits: {}
";

    #[test]
    fn yaml_and_json_are_parsed_alike() {
        let registry = read(&[("v.yaml", VENDOR)]);
        assert!(registry.broken.is_empty(), "{registry:?}");
        let names: Vec<_> = registry.devices.keys().collect();
        assert_eq!(names, ["v.com/gpu=0", "v.com/gpu=1"]);
        let (common, own) = registry.device("v.com/gpu=0").expect("present");
        assert_eq!(common.env, ["COMMON=1"]);
        let hook = &common.hooks[0];
        assert_eq!(
            (hook.hook_name, hook.timeout),
            (super::super::edits::HookName::CreateContainer, Some(5))
        );
        assert_eq!(common.mounts[0].options, ["ro", "nosuid", "bind"]);
        let node = &own.device_nodes[0];
        assert_eq!(node.file_mode, Some(0o660));
        assert_eq!(node.permissions, "rw");
        assert_eq!(own.additional_gids, [44]);
        // JSON is valid YAML, but not vice versa.
        let json = r#"{"kind": "v.com/net", "devices": [{"name": "a"}]}"#;
        let registry = read(&[
            ("a.json", json),
            ("b.yaml", &json.replace("net", "nic")),
            ("c.json", VENDOR),
        ]);
        let names: Vec<_> = registry.devices.keys().collect();
        assert_eq!(names, ["v.com/net=a", "v.com/nic=a"]);
        assert_eq!(registry.broken.len(), 1);
    }

    #[test]
    fn files_with_other_extensions_are_not_read() {
        let registry = read(&[("v.yml", VENDOR), ("yaml", VENDOR), ("v.yaml.bak", VENDOR)]);
        assert!(registry.devices.is_empty() && registry.broken.is_empty());
    }

    #[test]
    fn a_malformed_file_affects_only_its_own_devices() {
        let other = VENDOR.replace("v.com", "w.com");
        let broken = [
            ("a.yaml", "kind: [".to_owned()),
            ("b.yaml", "- no\n- table\n".to_owned()),
            ("c.yaml", VENDOR.replace("- COMMON=1", "- {a: b}")),
            ("d.yaml", format!("{VENDOR}{}", "#".repeat(FILE_LIMIT))),
            ("e.yaml", format!("{VENDOR}---\nkind: more/than=one\n")),
            ("f.yaml", String::new()),
        ];
        let mut files: Vec<_> = broken.iter().map(|(n, t)| (*n, t.as_str())).collect();
        files.push(("v.yaml", &other));
        let registry = read(&files);
        assert!(registry.device("w.com/gpu=0").is_ok());
        let names = registry.broken.iter().map(|(path, _)| path.file_name());
        let expected = broken.iter().map(|(name, _)| Some(name.as_ref()));
        assert!(names.eq(expected), "{registry:?}");
        let missing = registry.device("v.com/gpu=0").map(drop);
        let missing = missing.expect_err("missing").to_string();
        assert!(missing.contains("a.yaml was not read: "), "{missing}");
        assert!(missing.ends_with("; nor were 3 more files"), "{missing}");
        assert!(!missing.contains('\n'), "{missing}");
    }

    #[test]
    fn the_expansion_of_aliases_is_limited() {
        let few = VENDOR.replace("- name: 1\n  containerEdits: {}", "- &a {name: b}")
            + "- <<: *a\n  name: c\n";
        let registry = read(&[("v.yaml", &few)]);
        assert!(registry.device("v.com/gpu=c").is_ok(), "{registry:?}");

        let mut laughs = "a0: &a0 [ha, ha]\n".to_owned();
        for level in 1..40 {
            let below = level - 1;
            let _ = writeln!(laughs, "a{level}: &a{level} [*a{below}, *a{below}]");
        }
        // One long text repeatedly, in a field that is kept.
        let long = "x".repeat(1 << 20);
        let again = "    - *a\n".repeat(50);
        let quadratic = format!("  containerEdits:\n    env:\n    - &a {long}\n{again}");
        for bomb in [
            format!("{laughs}kind: v.com/gpu\ndevices: [{{name: *a39}}]\n"),
            format!("kind: v.com/gpu\ndevices:\n- name: a\n{quadratic}"),
        ] {
            let registry = read(&[("v.yaml", &bomb)]);
            assert_eq!(registry.broken.len(), 1);
            let reason = &registry.broken[0].1;
            assert!(reason.len() < 500, "{reason}");
        }
    }
}

//! The cache of attachments, in libcni's format (`cniCacheV1`) and by default in its directory: other tools find these
//! attachments, and the attachments of a node's previous runtime are found here.
//!
//! An entry is written without a result before the first plugin runs, and again with the result. So a DEL after a crash
//! uses the parameters of the ADD. [`super::lookup`] finds entries, and files that are none.
//!
//! Like libcni, this cache does not sync its files: a killed process loses nothing, but a power failure may lose any entry.
//! The attachments of a pod are still released, because the record of its sandbox, which is synced before the first plugin
//! runs, names the pod, and DEL is called for the currently configured networks in addition to the remaining entries
//! (`Cni::del`).

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::Error;

/// One attachment. It has no `Debug`, which would show annotations.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) kind: String,
    pub(crate) container_id: String,
    /// The network configuration list as base64, which is how Go encodes `[]byte`.
    #[serde(with = "base64_json")]
    pub(crate) config: Value,
    pub(crate) if_name: String,
    pub(crate) network_name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) netns: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cni_args: Option<Vec<(String, String)>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) capability_args: Option<Map<String, Value>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Value>,
    /// Whether it was detached without plugins that are not installed, which are called later. libcni ignores the key.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) criscope_lacks_plugins: bool,
}

impl Entry {
    /// Returns whether two entries are those of one interface of a container.
    pub(crate) fn is_same_attachment(&self, other: &Self) -> bool {
        self.network_name == other.network_name
            && self.container_id == other.container_id
            && self.if_name == other.if_name
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature that serde calls"
)]
fn is_false(value: &bool) -> bool {
    !value
}

pub(crate) const KIND: &str = "cniCacheV1";

/// Modes of directories and entries, as those of libcni, which hold annotations; the umask does not widen or narrow them.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A directory of entries.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    pub(super) dir: PathBuf,
    /// Where files are moved that are no entries.
    pub(super) damaged_dir: PathBuf,
}

impl Cache {
    pub(crate) fn new(cache_dir: &Path) -> Self {
        Self {
            dir: cache_dir.join("results"),
            damaged_dir: cache_dir.join("damaged"),
        }
    }

    pub(super) fn path(&self, network: &str, container: &str, interface: &str) -> PathBuf {
        self.dir.join(format!("{network}-{container}-{interface}"))
    }

    /// Replaces the entry.
    pub(crate) fn write(&self, entry: &Entry) -> Result<(), Error> {
        let path = self.path(&entry.network_name, &entry.container_id, &entry.if_name);
        let text = serde_json::to_vec(entry)
            .map_err(|error| Error::cache("encode", &path, error.into()))?;
        let temp = self.dir.join(format!(
            ".{}-{}-{}.tmp",
            entry.network_name, entry.container_id, entry.if_name
        ));
        self.replace(&path, &temp, &text).map_err(|error| {
            let _ = fs::remove_file(&temp);
            Error::cache("write", &path, error)
        })
    }

    /// Writes a temporary file and renames it to `path`. Creates the directory if necessary.
    fn replace(&self, path: &Path, temp: &Path, text: &[u8]) -> io::Result<()> {
        let mut file = match create(temp) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_dir(&self.dir)?;
                create(temp)?
            }
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                self.move_aside(&self.dir)?;
                make_dir(&self.dir)?;
                create(temp)?
            }
            other => other?,
        };
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
        file.write_all(text)?;
        fs::rename(temp, path)
    }
}

fn create(path: &Path) -> io::Result<File> {
    File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(FILE_MODE)
        .open(path)
}

/// JSON inside base64 inside JSON.
mod base64_json {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use serde_json::Value;

    pub(crate) fn serialize<S: Serializer>(value: &Value, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(value.to_string()))
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Value, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = STANDARD.decode(&text).map_err(D::Error::custom)?;
        serde_json::from_slice(&bytes).map_err(D::Error::custom)
    }
}

/// Creates a directory, and those above it that are missing.
pub(super) fn make_dir(dir: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIR_MODE).create(dir) {
        Ok(()) => fs::set_permissions(dir, Permissions::from_mode(DIR_MODE)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(error) => match dir.parent() {
            Some(parent) if error.kind() == io::ErrorKind::NotFound => {
                make_dir(parent)?;
                make_dir(dir)
            }
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// An entry written by libcni 1.1 (Go: field order of `cachedInfo`, `[]byte` as base64, pairs as lists).
    const LIBCNI: &str = r#"{"kind":"cniCacheV1","containerId":"c1","config":"eyJuYW1lIjoiYSJ9","ifName":"eth0",
        "networkName":"a","netns":"/run/netns/x","cniArgs":[["K8S_POD_NAME","p"],["IgnoreUnknown","1"]],
        "capabilityArgs":{"dns":{}},"result":{"cniVersion":"1.0.0"}}"#;

    #[test]
    fn only_root_reads_entries_whatever_the_umask() {
        use nix::sys::stat::Mode;
        for umask in [0o000, 0o777] {
            let dir = tempfile::tempdir().expect("dir");
            let root = dir.path().join("cni");
            let entry: Entry = serde_json::from_str(LIBCNI).expect("reads");
            let write = || {
                // The umask of this thread alone.
                nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS).expect("unshare");
                nix::sys::stat::umask(Mode::from_bits_truncate(umask));
                Cache::new(&root).write(&entry).expect("written");
            };
            std::thread::scope(|scope| scope.spawn(write).join().expect("no panic"));
            let mode = |name: &str| {
                let metadata = fs::metadata(root.join(name)).expect("made");
                metadata.permissions().mode() & 0o7777
            };
            assert_eq!((mode(""), mode("results")), (0o700, 0o700), "{umask:o}");
            assert_eq!(mode("results/a-c1-eth0"), 0o600, "{umask:o}");
        }
    }

    #[test]
    fn libcni_entries_round_trip() {
        let dir = tempfile::tempdir().expect("dir");
        let entry: Entry = serde_json::from_str(LIBCNI).expect("reads");
        assert_eq!(entry.config, json!({"name": "a"}));
        Cache::new(dir.path()).write(&entry).expect("write");
        let text = fs::read(dir.path().join("results/a-c1-eth0")).expect("libcni's name");
        let (ours, theirs): (Value, Value) = (
            serde_json::from_slice(&text).expect("json"),
            serde_json::from_str(LIBCNI).expect("json"),
        );
        assert_eq!(ours, theirs);
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_moved_aside() {
        let dir = tempfile::tempdir().expect("dir");
        let entry: Entry = serde_json::from_str(LIBCNI).expect("reads");
        fs::write(dir.path().join("results"), "no directory").expect("file");
        Cache::new(dir.path()).write(&entry).expect("write");
        assert!(dir.path().join("results/a-c1-eth0").exists());
        let aside = fs::read(dir.path().join("damaged/results")).expect("moved");
        assert_eq!(aside, b"no directory");
    }
}

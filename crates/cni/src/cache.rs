//! The cache of attachments, in libcni's format (`cniCacheV1`) and by default in its directory: other tools find these
//! attachments, and the attachments of a node's previous runtime are found here.
//!
//! An entry is written without a result before the first plugin runs, and again with the result. So a DEL after a crash
//! uses the parameters of the ADD. A damaged entry is logged and skipped: the DEL then uses the current configuration.
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
}

pub(crate) const KIND: &str = "cniCacheV1";

/// Maximum size of an entry, in bytes.
const MAX_ENTRY: u64 = 4 << 20;

/// Modes of directories and entries, as those of libcni, which hold annotations; the umask does not widen or narrow them.
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// A directory of entries.
#[derive(Debug, Clone)]
pub(crate) struct Cache {
    dir: PathBuf,
}

impl Cache {
    pub(crate) fn new(cache_dir: &Path) -> Self {
        Self {
            dir: cache_dir.join("results"),
        }
    }

    fn path(&self, network: &str, container: &str, interface: &str) -> PathBuf {
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
        let write = || -> io::Result<()> {
            let open = || {
                File::options()
                    .write(true)
                    .create(true)
                    .truncate(true)
                    .mode(FILE_MODE)
                    .open(&temp)
            };
            let mut file = match open() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    make_dir(&self.dir)?;
                    open()?
                }
                other => other?,
            };
            file.set_permissions(Permissions::from_mode(FILE_MODE))?;
            file.write_all(&text)?;
            fs::rename(&temp, &path)
        };
        write().map_err(|error| {
            let _ = fs::remove_file(&temp);
            Error::cache("write", &path, error)
        })
    }

    pub(crate) fn remove(&self, entry: &Entry) -> Result<(), Error> {
        let path = self.path(&entry.network_name, &entry.container_id, &entry.if_name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::cache("remove", &path, error))
            }
            _ => Ok(()),
        }
    }

    /// Returns the entries of one container, or of all, by name, and whether others of them are damaged. Temporary files
    /// that a killed daemon left for this container are removed: verbs on one container do not overlap, so no other task
    /// writes them.
    ///
    /// # Errors
    /// If the directory cannot be read, or an entry that may belong to this container: ignoring it would leak an address.
    pub(crate) fn find(&self, container: Option<&str>) -> Result<(Vec<Entry>, bool), Error> {
        let listing = match fs::read_dir(&self.dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => return Err(Error::cache("read", &self.dir, error)),
        };
        let within = container.map(|id| format!("-{id}-"));
        let (mut found, mut damaged) = (Vec::new(), false);
        for file in listing {
            let file = file.map_err(|error| Error::cache("read", &self.dir, error))?;
            let name = file.file_name();
            let Some(name) = name.to_str() else { continue };
            if within.as_ref().is_some_and(|within| !name.contains(within)) {
                continue;
            }
            if name.starts_with('.') {
                if within.is_some() && name.ends_with(".tmp") {
                    let _gone = fs::remove_file(file.path());
                }
                continue;
            }
            match read(&file.path()) {
                Ok(entry) if container.is_none_or(|id| id == entry.container_id) => {
                    found.push((name.to_owned(), entry))
                }
                Ok(_) => {}
                Err(Fault::Unreadable(error)) if container.is_some() => {
                    return Err(Error::cache("read", &file.path(), error));
                }
                Err(fault) => {
                    let why = fault.to_string();
                    tracing::warn!(file.path = %file.path().display(), why, "a cached attachment is skipped");
                    damaged = true;
                }
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        let entries = found.into_iter().map(|(_, entry)| entry).collect();
        Ok((entries, damaged))
    }
}

impl Cache {
    /// Returns the entries of one container that can be read, by name. Unlike [`Self::find`], it changes nothing, so it may run
    /// next to a verb on that container.
    pub(crate) fn peek(&self, container: &str) -> Result<Vec<Entry>, Error> {
        let listing = match fs::read_dir(&self.dir) {
            Ok(listing) => listing,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::cache("read", &self.dir, error)),
        };
        let within = format!("-{container}-");
        let names = listing.filter_map(|file| file.ok()?.file_name().into_string().ok());
        let ours = |name: &String| name.contains(&within) && !name.starts_with('.');
        let mut names: Vec<_> = names.filter(ours).collect();
        names.sort();
        let entries = names
            .iter()
            .filter_map(|name| read(&self.dir.join(name)).ok());
        Ok(entries
            .filter(|entry| entry.container_id == container)
            .collect())
    }
}

/// Why a file is not a valid entry.
#[derive(Debug, thiserror::Error)]
enum Fault {
    /// The content of the file is unknown.
    #[error(transparent)]
    Unreadable(#[from] io::Error),
    #[error("{0}")]
    Damaged(String),
}

fn read(path: &Path) -> Result<Entry, Fault> {
    let size = fs::metadata(path)?.len();
    if size > MAX_ENTRY {
        return Err(Fault::Damaged(format!("{size} bytes exceed the limit")));
    }
    let text = fs::read(path)?;
    let entry: Entry =
        serde_json::from_slice(&text).map_err(|error| Fault::Damaged(error.to_string()))?;
    if entry.kind == KIND {
        Ok(entry)
    } else {
        Err(Fault::Damaged("unknown kind".to_owned()))
    }
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
fn make_dir(dir: &Path) -> io::Result<()> {
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
    fn drafts_of_a_killed_daemon_are_removed_with_their_pod() {
        let dir = tempfile::tempdir().expect("dir");
        let cache = Cache::new(dir.path());
        let draft = |name: &str| dir.path().join("results").join(name);
        fs::create_dir_all(dir.path().join("results")).expect("directory");
        for name in [".a-c1-eth0.tmp", ".a-c2-eth0.tmp"] {
            fs::write(draft(name), "{").expect("draft");
        }
        cache.find(None).expect("find");
        assert!(
            draft(".a-c1-eth0.tmp").exists(),
            "a running ADD may write it"
        );
        cache.find(Some("c1")).expect("find");
        assert!(!draft(".a-c1-eth0.tmp").exists());
        assert!(draft(".a-c2-eth0.tmp").exists(), "belongs to another pod");
    }

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
        let cache = Cache::new(dir.path());
        assert!(
            cache
                .find(None)
                .expect("no directory is no entry")
                .0
                .is_empty()
        );
        let entry: Entry = serde_json::from_str(LIBCNI).expect("reads");
        assert_eq!(entry.config, json!({"name": "a"}));
        cache.write(&entry).expect("write");
        let text = fs::read(dir.path().join("results/a-c1-eth0")).expect("libcni's name");
        let (ours, theirs): (Value, Value) = (
            serde_json::from_slice(&text).expect("json"),
            serde_json::from_str(LIBCNI).expect("json"),
        );
        assert_eq!(ours, theirs);
        fs::write(dir.path().join("results/b-c1-eth1"), "{").expect("a damaged one");
        let (entries, damaged) = cache.find(Some("c1")).expect("find");
        assert_eq!((entries.len(), damaged), (1, true));
        assert!(cache.find(Some("c")).expect("find").0.is_empty());
        // An entry that cannot be read is not treated as damaged.
        fs::create_dir(dir.path().join("results/d-c1-eth2")).expect("in its place");
        cache
            .find(Some("c1"))
            .err()
            .expect("it may belong to this container");
        cache.find(None).expect("unreadable entries are skipped");
        fs::remove_dir(dir.path().join("results/d-c1-eth2")).expect("gone");
        cache.remove(&entry).expect("remove");
        cache.remove(&entry).expect("again");
        assert!(cache.find(Some("c1")).expect("find").0.is_empty());
    }
}

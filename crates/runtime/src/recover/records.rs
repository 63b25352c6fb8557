//! Reads the records, or the copies of the ones that cannot be read.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::id;
use crate::paths::Paths;
use crate::store::disk::Written;
use crate::store::record::VERSION;
use crate::store::{ContainerRecord, SandboxRecord, disk, versions};
use criscope_shim::record::INIT;

/// Maximum number of damaged records that are kept for inspection.
const MAX_ASIDE: usize = 64;

/// All records.
#[derive(Default)]
pub(super) struct Found {
    pub(super) sandboxes: Vec<Entry<SandboxRecord>>,
    pub(super) containers: Vec<Entry<ContainerRecord>>,
}

/// The directory of an object.
pub(super) struct Entry<T> {
    pub(super) id: String,
    pub(super) dir: PathBuf,
    pub(super) record: std::result::Result<T, Unusable>,
    /// Why a copy of the record was used; `None` if it was not.
    pub(super) instead: Option<String>,
}

/// Why an object has no usable record.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The record does not exist: the object was being created or removed.
    Missing,
    /// The record is invalid, for this reason, and the object is not running.
    Damaged(String),
    /// The record may become readable or be repaired; until then the object is left alone.
    Kept {
        why: String,
        /// True if the object seems to be running.
        runs: bool,
    },
}

/// Why a file is not a valid record.
enum Fault {
    Missing,
    /// An I/O error.
    Unreadable(String),
    Damaged(String),
}

impl Fault {
    fn invalid_json(path: &Path, error: serde_json::Error) -> Self {
        Self::Damaged(Error::io("read", path, error).to_string())
    }
}

trait Record: DeserializeOwned + Written {
    const STEPS: &[fn(&mut Value)];
    fn id(&self) -> &str;
    fn set_unknown(&mut self, unknown: Option<Value>);
    /// Returns whether the object seems to be running, by the directories of its shim, namespaces and OCI runtime.
    fn runs(paths: &Paths, id: &str) -> bool;
    /// Returns whether it was written in an earlier boot.
    fn is_old(&self) -> bool;
}

impl Record for SandboxRecord {
    const STEPS: &[fn(&mut Value)] = versions::SANDBOX_STEPS;

    fn id(&self) -> &str {
        &self.id
    }

    fn set_unknown(&mut self, unknown: Option<Value>) {
        self.unknown = unknown;
    }

    fn runs(paths: &Paths, id: &str) -> bool {
        paths.pod(id).exists() || paths.namespaces().join(id).exists()
    }

    fn is_old(&self) -> bool {
        self.boot != id::boot()
    }
}

impl Record for ContainerRecord {
    const STEPS: &[fn(&mut Value)] = versions::CONTAINER_STEPS;

    fn id(&self) -> &str {
        &self.id
    }

    fn set_unknown(&mut self, unknown: Option<Value>) {
        self.unknown = unknown;
    }

    fn runs(paths: &Paths, id: &str) -> bool {
        exists_below(&paths.state().join("oci"), id)
            || exists_below(&paths.pods(), &format!("{id}.{INIT}"))
    }

    fn is_old(&self) -> bool {
        false
    }
}

/// Returns whether a directory in `parent` has an entry of this name.
fn exists_below(parent: &Path, name: &str) -> bool {
    let dirs = disk::list(parent).unwrap_or_default();
    dirs.iter().any(|(_, dir)| dir.join(name).exists())
}

/// Reads all records.
pub(super) fn read(paths: &Paths) -> Result<Found> {
    Ok(Found {
        sandboxes: read_all(paths, &paths.sandboxes(), |_| true)?,
        containers: read_all(paths, &paths.containers(), |_| true)?,
    })
}

/// Reads some records again.
pub(super) fn read_again(
    paths: &Paths,
    sandboxes: &BTreeSet<String>,
    containers: &BTreeSet<String>,
) -> Result<Found> {
    Ok(Found {
        sandboxes: read_all(paths, &paths.sandboxes(), |id| sandboxes.contains(id))?,
        containers: read_all(paths, &paths.containers(), |id| containers.contains(id))?,
    })
}

fn read_all<T: Record>(
    paths: &Paths,
    dir: &Path,
    wanted: impl Fn(&str) -> bool,
) -> Result<Vec<Entry<T>>> {
    let entries = disk::list(dir)?.into_iter().filter(|(id, _)| wanted(id));
    let entries = entries.map(|(id, dir)| {
        let (record, instead) = match read_one::<T>(paths, &id, &dir) {
            Ok((record, instead)) => (Ok(record), instead),
            Err(unusable) => (Err(unusable), None),
        };
        if record.is_ok() {
            tidy(&dir);
        }
        Entry {
            id,
            dir,
            record,
            instead,
        }
    });
    Ok(entries.collect())
}

/// Returns a record and, if its copy was used, the reason.
fn read_one<T: Record>(
    paths: &Paths,
    id: &str,
    dir: &Path,
) -> std::result::Result<(T, Option<String>), Unusable> {
    let fault = match parse::<T>(id, &dir.join(disk::RECORD)) {
        Ok((record, old)) => {
            if old && let Err(error) = disk::write(dir, &paths.copy(id), &record) {
                // The next change of the record writes it.
                tracing::debug!(target: "criscope::runtime::recover::records", event = "runtime.record", error.message = %error, "a migrated record could not be written");
            }
            return Ok((record, None));
        }
        Err(fault) => fault,
    };
    let copy = parse::<T>(id, &paths.copy(id));
    // The record that was synced before a power failure. Too old to be used while the pod is running.
    let stand_in = copy.ok().or_else(|| {
        let made = parse::<T>(id, &dir.join(disk::MADE)).ok();
        made.filter(|(made, _)| made.is_old())
    });
    let stand_in = stand_in.map(|(record, _)| record);
    match (stand_in, fault) {
        (Some(record), Fault::Unreadable(why)) => Ok((record, Some(why))),
        (Some(record), Fault::Missing) => Ok((record, Some("its record is missing".to_owned()))),
        (Some(record), Fault::Damaged(why)) => {
            let mended =
                put_aside(paths, dir).and_then(|()| disk::write(dir, &paths.copy(id), &record));
            let why = match mended {
                Ok(()) => why,
                Err(error) => format!("{why}; {error}"),
            };
            Ok((record, Some(why)))
        }
        (None, Fault::Missing) => Err(Unusable::Missing),
        (None, Fault::Damaged(why)) if !T::runs(paths, id) => Err(Unusable::Damaged(why)),
        (None, Fault::Damaged(why) | Fault::Unreadable(why)) => Err(Unusable::Kept {
            why,
            runs: T::runs(paths, id),
        }),
    }
}

/// Parses a record; returns whether it was migrated from an older version.
fn parse<T: Record>(id: &str, path: &Path) -> std::result::Result<(T, bool), Fault> {
    let text = fs::read(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Fault::Missing,
        _ => Fault::Unreadable(Error::io("read", path, error).to_string()),
    })?;
    let mut read: Value =
        serde_json::from_slice(&text).map_err(|error| Fault::invalid_json(path, error))?;
    let old = versions::migrate(&mut read, T::STEPS);
    if read["version"] != VERSION {
        let unsupported = format!(
            "{}: unsupported version {}",
            path.display(),
            read["version"]
        );
        return Err(Fault::Damaged(unsupported));
    }
    let mut record = T::deserialize(&read).map_err(|error| Fault::invalid_json(path, error))?;
    if record.id() != id {
        let other = format!("{}: it belongs to another object", path.display());
        return Err(Fault::Damaged(other));
    }
    let known = serde_json::to_value(&record).map_err(|error| Fault::invalid_json(path, error))?;
    record.set_unknown(versions::unknown(&read, &known));
    Ok((record, old))
}

/// Removes leftovers of a killed daemon: drafts, and process specifications of execs, which contain the environment.
fn tidy(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let draft = name.starts_with(&format!(".{}.", disk::RECORD)) || name.ends_with(".new");
        if draft || (name.starts_with("exec-") && name.ends_with(".json")) {
            // Best effort: it is removed with the object.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Moves the record of a directory to `ROOT/broken/ID.json`, where the last 64 are kept.
pub(super) fn put_aside(paths: &Paths, dir: &Path) -> Result<()> {
    let broken = paths.broken();
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&broken)
        .map_err(|e| Error::io("make", &broken, e))?;
    let mut kept: Vec<_> = disk::list(&broken)?
        .into_iter()
        .map(|(_, path)| {
            let modified = fs::metadata(&path).and_then(|found| found.modified());
            (modified.ok(), path)
        })
        .collect();
    kept.sort();
    while kept.len() >= MAX_ASIDE {
        let (_, oldest) = kept.remove(0);
        fs::remove_file(&oldest).map_err(|e| Error::io("remove", &oldest, e))?;
    }
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let record = dir.join(disk::RECORD);
    let aside = broken.join(format!("{name}.json"));
    fs::rename(&record, &aside).map_err(|e| Error::io("move", &record, e))
}

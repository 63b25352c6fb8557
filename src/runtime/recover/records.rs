//! Reading what is written down, and putting aside what cannot be read.

use std::fs;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;

use crate::runtime::error::{Error, Result};
use crate::runtime::paths::Paths;
use crate::runtime::store::record::VERSION;
use crate::runtime::store::{ContainerRecord, SandboxRecord, disk};

/// Damaged records that are kept for a human to look at.
const MAX_ASIDE: usize = 64;

/// All that is written down.
pub(super) struct Found {
    pub(super) sandboxes: Vec<Entry<SandboxRecord>>,
    pub(super) containers: Vec<Entry<ContainerRecord>>,
}

/// A directory of an object.
pub(super) struct Entry<T> {
    pub(super) id: String,
    pub(super) dir: PathBuf,
    pub(super) record: std::result::Result<T, Unusable>,
}

/// Why there is no record to be used.
pub(super) enum Unusable {
    /// There is none: the object was just being made, or was almost removed.
    Missing,
    /// In words.
    Damaged(String),
}

trait Record: DeserializeOwned {
    fn version(&self) -> u32;
    fn id(&self) -> &str;
}

impl Record for SandboxRecord {
    fn version(&self) -> u32 {
        self.version
    }

    fn id(&self) -> &str {
        &self.id
    }
}

impl Record for ContainerRecord {
    fn version(&self) -> u32 {
        self.version
    }

    fn id(&self) -> &str {
        &self.id
    }
}

/// Reads all records.
pub(super) fn read(paths: &Paths) -> Result<Found> {
    Ok(Found {
        sandboxes: read_all(&paths.sandboxes())?,
        containers: read_all(&paths.containers())?,
    })
}

fn read_all<T: Record>(dir: &Path) -> Result<Vec<Entry<T>>> {
    let entries = disk::list(dir)?.into_iter().map(|(id, dir)| {
        let record = read_one(&id, &dir);
        if record.is_ok() {
            tidy(&dir);
        }
        Entry { id, dir, record }
    });
    Ok(entries.collect())
}

fn read_one<T: Record>(id: &str, dir: &Path) -> std::result::Result<T, Unusable> {
    if !dir.join(disk::RECORD).exists() {
        return Err(Unusable::Missing);
    }
    let damaged = |reason: String| Err(Unusable::Damaged(reason));
    match disk::read::<T>(dir) {
        Err(error) => damaged(error.to_string()),
        Ok(record) if record.version() != VERSION => {
            damaged(format!("it is of version {}", record.version()))
        }
        Ok(record) if record.id() != id => damaged("it is of another object".to_owned()),
        Ok(record) => Ok(record),
    }
}

/// Removes what a kill left of files that were being written, and the processes of execs, which hold the environment.
fn tidy(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        let draft = name.starts_with(&format!(".{}.", disk::RECORD)) || name.ends_with(".new");
        if draft || (name.starts_with("exec-") && name.ends_with(".json")) {
            // What stays goes with the object.
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

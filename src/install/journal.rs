//! The journal of an installation, in `/var/lib/criscope-install`: changes under way, and completed changes.
//!
//! `transaction.json` exists from before the first change until after the last. `record.json` holds the originals from a
//! committed installation until it is uninstalled. Contents are in `blobs/`, named by their SHA-256.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::files::{self, PathContent};
use super::root::FilesystemRoot;

/// The directory of the journal.
pub(super) const DIRECTORY: &str = "/var/lib/criscope-install";
/// The file whose existence says that something is unfinished.
pub(super) const TRANSACTION: &str = "/var/lib/criscope-install/transaction.json";
const RECORD: &str = "/var/lib/criscope-install/record.json";

/// Returns whether `criscope install` has changed a node, completely or not.
pub fn is_installed(root: &FilesystemRoot) -> bool {
    root.has(RECORD) || root.has(TRANSACTION)
}
const BLOBS: &str = "/var/lib/criscope-install/blobs";

/// The order of changes: an installation goes down this list, taking away goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeGroup {
    /// Programs, and the unit that recovers at boot.
    Program,
    /// Units and configuration of criscope.
    Service,
    /// The configuration of the other runtime.
    Runtime,
    /// The configuration of the kubelet.
    Kubelet,
}

impl ChangeGroup {
    /// Returns whether links are followed: other programs' files may be links, and stay links.
    fn follows(self) -> bool {
        matches!(self, Self::Runtime | Self::Kubelet)
    }
}

/// One change of one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileChange {
    pub(super) path: PathBuf,
    pub(super) group: ChangeGroup,
    pub(super) before: PathContent,
    pub(super) after: PathContent,
    /// The lines that differ, for a file that others change later.
    #[serde(default)]
    pub(super) lines: Vec<ChangedLine>,
    /// Directories that did not exist.
    #[serde(default)]
    pub(super) made: Vec<PathBuf>,
}

/// A line that was changed, or added if there is no old one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangedLine {
    pub(super) old: Option<String>,
    pub(super) new: String,
}

impl FileChange {
    /// The path of the file itself.
    pub(super) fn file(&self, root: &FilesystemRoot) -> PathBuf {
        if self.group.follows() {
            files::behind_links(root, &self.path)
        } else {
            root.path(&self.path)
        }
    }
}

/// Units and sockets, for the commands between the changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AffectedUnits {
    /// The kubelet's unit.
    pub(super) kubelet: String,
    /// True if the kubelet ran.
    pub(super) kubelet_active: bool,
    /// The other runtime's unit, if its configuration changes.
    #[serde(default)]
    pub(super) runtime: Option<String>,
    /// The endpoint before, and criscope's.
    pub(super) old: PathBuf,
    pub(super) new: PathBuf,
}

/// Changes that belong together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transaction {
    /// Which one, to recognise it in the record.
    pub(super) id: u64,
    /// An unfinished installation is undone; taking away is finished.
    pub(super) installs: bool,
    /// criscope was not installed before.
    pub(super) first: bool,
    pub(super) units: AffectedUnits,
    pub(super) changes: Vec<FileChange>,
}

/// A committed installation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstallationRecord {
    /// The last transaction.
    pub(super) id: u64,
    pub(super) version: String,
    pub(super) mode: String,
    pub(super) units: AffectedUnits,
    /// Changes from the originals to the installed files.
    pub(super) changes: Vec<FileChange>,
}

/// The journal on the disk.
#[derive(Debug)]
pub(super) struct InstallJournal<'a> {
    pub(super) root: &'a FilesystemRoot,
}

impl InstallJournal<'_> {
    /// The transaction that is not finished.
    pub(super) fn pending(&self) -> io::Result<Option<Transaction>> {
        self.json(TRANSACTION)
    }

    /// The committed installation.
    pub(super) fn record(&self) -> io::Result<Option<InstallationRecord>> {
        self.json(RECORD)
    }

    /// Returns whether the committed installation is this transaction.
    pub(super) fn has_record(&self, id: u64) -> io::Result<bool> {
        Ok(self.record()?.is_some_and(|record| record.id == id))
    }

    /// Writes a transaction. From now on it is undone or finished after a power failure. Contents come first.
    pub(super) fn begin(&self, transaction: &Transaction) -> io::Result<()> {
        self.write(TRANSACTION, transaction)
    }

    /// Stores a content.
    pub(super) fn keep(&self, bytes: &[u8]) -> io::Result<()> {
        self.make_directories()?;
        let path = self.blob(&files::sha256(bytes));
        // One that a power failure left incomplete is not under its name.
        if path.exists() {
            return Ok(());
        }
        files::write_synced(&path, bytes)
    }

    /// A stored content.
    pub(super) fn content(&self, sha256: &str) -> io::Result<Vec<u8>> {
        let path = self.blob(sha256);
        let bytes = fs::read(&path).map_err(|error| files::at(&path, &error))?;
        if files::sha256(&bytes) != sha256 {
            let text = format!("{}: damaged", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(bytes)
    }

    /// Commits an installation: with the rename of the record it counts.
    pub(super) fn commit(&self, record: &InstallationRecord) -> io::Result<()> {
        self.write(RECORD, record)
    }

    /// Forgets the transaction, and the contents that are not needed any more.
    pub(super) fn finish(&self) -> io::Result<()> {
        self.remove(TRANSACTION)?;
        let record = self.record()?;
        let changes = record.iter().flat_map(|record| &record.changes);
        let kept: BTreeSet<_> = changes
            .filter_map(|change| match &change.before {
                PathContent::File { sha256, .. } => Some(sha256.clone()),
                _ => None,
            })
            .collect();
        let Ok(entries) = fs::read_dir(self.root.path(BLOBS)) else {
            return Ok(());
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if name.to_str().is_none_or(|name| !kept.contains(name)) {
                fs::remove_file(entry.path()).map_err(|error| files::at(&entry.path(), &error))?;
            }
        }
        if record.is_none() {
            files::remove_empty(self.root, &[DIRECTORY.into(), BLOBS.into()]);
        }
        Ok(())
    }

    /// Forgets the installation.
    pub(super) fn forget(&self) -> io::Result<()> {
        self.remove(RECORD)
    }

    fn blob(&self, sha256: &str) -> PathBuf {
        self.root.path(BLOBS).join(sha256)
    }

    fn json<T: DeserializeOwned>(&self, path: &str) -> io::Result<Option<T>> {
        let Some(text) = self.root.read(path)? else {
            return Ok(None);
        };
        let value = serde_json::from_slice(&text);
        let value = value.map_err(|error| files::at(Path::new(path), &error.into()))?;
        Ok(Some(value))
    }

    fn write(&self, path: &str, value: &impl Serialize) -> io::Result<()> {
        self.make_directories()?;
        let text = serde_json::to_vec_pretty(value)?;
        files::write_synced(&self.root.path(path), &text)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let path = self.root.path(path);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(files::at(&path, &error)),
            _ => files::sync_directory(&path),
        }
    }

    /// Only root reads them: configuration of others may hold secrets.
    fn make_directories(&self) -> io::Result<()> {
        for directory in [DIRECTORY, BLOBS] {
            let path = self.root.path(directory);
            let made = fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&path);
            made.map_err(|error| files::at(&path, &error))?;
            files::sync_directory(&path)?;
        }
        Ok(())
    }
}

//! Imports a directory of archives, for nodes without a network. Each archive is imported once.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::blocking::blocking;
use crate::error::{At as _, Error, Result};
use crate::files::{if_present, listed};
use crate::image_store::{ImageId, ImageStore};

/// An image that was imported from an archive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ImportedImage {
    /// The ID.
    pub id: ImageId,
    /// The references in the archive. If there are none, the image is known by its ID only.
    pub names: Vec<String>,
}

/// The result of importing a directory of archives.
#[derive(Debug, Default)]
pub struct DirectoryImport {
    /// Archives that were imported, and their images.
    pub imported: Vec<(PathBuf, Vec<ImportedImage>)>,
    /// The number of archives that were imported before and have not changed.
    pub unchanged: usize,
    /// Archives that could not be imported. They do not prevent the import of others.
    pub failed: Vec<(PathBuf, Error)>,
}

/// The archives imported so far, persisted so that they are not imported again at each start.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
struct ImportLedger(BTreeMap<String, ArchiveState>);

/// The identity of an archive's file when it was imported, and its images.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct ArchiveState {
    size: u64,
    inode: u64,
    /// Seconds and nanoseconds since the Unix epoch.
    modified: (i64, i64),
    #[serde(default)]
    images: Vec<ImageId>,
}

/// A directory to import archives from.
#[derive(Debug)]
pub struct ImportDirectory {
    dir: PathBuf,
    /// The archives imported so far; `None` until the list is loaded.
    seen: Option<ImportLedger>,
    /// The archives at the last scan.
    last: BTreeMap<PathBuf, ArchiveState>,
    /// Archives that failed, which are retried when they change.
    failed: BTreeMap<PathBuf, ArchiveState>,
}

/// An archive that has not changed for this long is complete.
const SETTLED: Duration = Duration::from_secs(2);

impl ImportDirectory {
    /// Represents `dir`, which is not read yet and need not exist.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            seen: None,
            last: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Imports archives that are new or have changed since the last scan: files that end in `.tar`, `.tar.gz`, `.tgz`,
    /// `.tar.zst` or `.tzst`. Files that are still being written are left for a later scan. A failed archive is reported
    /// once, and retried when it changes.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the directory cannot be read, or the list of imported archives cannot be written.
    pub async fn scan(&mut self, images: &ImageStore) -> Result<DirectoryImport> {
        let dir = self.dir.clone();
        let archives = blocking(move || archives(&dir)).await?;
        let mut seen = match self.seen.take() {
            Some(seen) => seen,
            None => read(images.store.disk.root().join(LIST)).await?,
        };
        let before = seen.clone();
        seen.0
            .retain(|path, _| archives.contains_key(Path::new(path)));
        self.failed.retain(|path, _| archives.contains_key(path));
        let mut result = DirectoryImport::default();
        for (path, archive) in &archives {
            let key = path.display().to_string();
            let known = seen.0.get(&key);
            if known.is_some_and(|known| images.is_unchanged(known, archive)) {
                result.unchanged += 1;
            } else if archive.is_complete(self.last.get(path))
                && self.failed.get(path) != Some(archive)
            {
                match images.import(path).await {
                    Ok(imported) => {
                        let images = imported.iter().map(|image| image.id.clone()).collect();
                        let archive = ArchiveState {
                            images,
                            ..archive.clone()
                        };
                        seen.0.insert(key, archive);
                        result.imported.push((path.clone(), imported));
                    }
                    Err(error) => {
                        let text = images.config.observer.error_text(&error);
                        tracing::warn!(event = "image.import", archive = key, error.message = %text, "an archive cannot be imported");
                        self.failed.insert(path.clone(), archive.clone());
                        result.failed.push((path.clone(), error));
                    }
                }
            }
        }
        self.last = archives;
        if seen != before {
            write(images, &seen).await?;
        }
        self.seen = Some(seen);
        Ok(result)
    }
}

/// The list of imported archives, in the root of the store.
const LIST: &str = "imported.json";

async fn read(list: PathBuf) -> Result<ImportLedger> {
    blocking(move || {
        // Without the list, archives are merely imported again.
        let bytes = fs::read(&list).ok();
        let seen = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        Ok(seen.unwrap_or_default())
    })
    .await
}

async fn write(images: &ImageStore, seen: &ImportLedger) -> Result<()> {
    let bytes = serde_json::to_vec_pretty(seen).map_err(|e| Error::internal(e.to_string()))?;
    let store = Arc::clone(&images.store);
    blocking(move || store.disk.write(&store.disk.root().join(LIST), &bytes)).await
}

impl ArchiveState {
    /// Returns whether the archive is complete: unchanged since the last scan, or not written to recently.
    fn is_complete(&self, last: Option<&Self>) -> bool {
        let seconds = u64::try_from(self.modified.0).unwrap_or(0);
        let modified = UNIX_EPOCH + Duration::from_secs(seconds);
        let age = SystemTime::now().duration_since(modified);
        last == Some(self) || age.is_ok_and(|age| age > SETTLED)
    }
}

impl ImageStore {
    fn is_unchanged(&self, known: &ArchiveState, archive: &ArchiveState) -> bool {
        let same = ArchiveState {
            images: known.images.clone(),
            ..archive.clone()
        };
        *known == same && known.images.iter().all(|id| self.store.image(id).is_some())
    }
}

fn archives(dir: &Path) -> Result<BTreeMap<PathBuf, ArchiveState>> {
    let mut archives = BTreeMap::new();
    for path in if_present(listed(dir)).at(dir)?.unwrap_or_default() {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let endings = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];
        if name.starts_with('.') || !endings.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        // Removed since, or a dangling link.
        let Some(metadata) = if_present(fs::metadata(&path)).at(&path)? else {
            continue;
        };
        if metadata.is_file() {
            let archive = ArchiveState {
                size: metadata.len(),
                inode: metadata.ino(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                images: Vec::new(),
            };
            archives.insert(path, archive);
        }
    }
    Ok(archives)
}

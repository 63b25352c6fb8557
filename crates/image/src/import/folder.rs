//! A folder of archives, for nodes without a network: every archive is taken in, those that were already are passed over.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::{ImageId, ImportedImage};
use crate::ImageStore;
use crate::error::{At as _, Error, Result};
use crate::layer::blocking;

/// What became of a folder of archives.
#[derive(Debug, Default)]
pub struct FolderImport {
    /// Archives that were taken in, and their images.
    pub imported: Vec<(PathBuf, Vec<ImportedImage>)>,
    /// Archives that had been already, and have not changed.
    pub unchanged: usize,
    /// Archives that could not be: the others are taken in all the same.
    pub failed: Vec<(PathBuf, Error)>,
}

/// What was taken in, so that it is not read again at each start.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(transparent)]
struct ImportLedger(BTreeMap<String, ArchiveState>);

/// An archive as it was.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct ArchiveState {
    size: u64,
    inode: u64,
    /// Seconds and nanoseconds after 1970.
    modified: (i64, i64),
    #[serde(default)]
    images: Vec<ImageId>,
}

/// A folder that archives are put into.
#[derive(Debug)]
pub struct ImportFolder {
    dir: PathBuf,
    /// What was taken in; nothing before it was read.
    seen: Option<ImportLedger>,
    /// What the last look saw.
    last: BTreeMap<PathBuf, ArchiveState>,
    /// What could not be taken in, and is tried again when it changes.
    failed: BTreeMap<PathBuf, ArchiveState>,
}

/// An archive that did not change for so long is whole.
const SETTLED: Duration = Duration::from_secs(2);

impl ImportFolder {
    /// Nothing is read yet. The folder need not exist.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            seen: None,
            last: BTreeMap::new(),
            failed: BTreeMap::new(),
        }
    }

    /// Takes in what is new or has changed since the last look: files that end in `.tar`, or that and a compression. RedirectTokens
    /// are left alone, and so are those that still grow: they are for a later look. One that cannot be taken in is told
    /// once, and tried again when it has changed.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the folder cannot be read, or what was done not be written down.
    pub async fn look(&mut self, images: &ImageStore) -> Result<FolderImport> {
        self.take_in(images, false).await
    }

    async fn take_in(&mut self, images: &ImageStore, growing: bool) -> Result<FolderImport> {
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
        let mut folder = FolderImport::default();
        for (path, archive) in &archives {
            let key = path.display().to_string();
            let known = seen.0.get(&key);
            if known.is_some_and(|known| images.is_unchanged(known, archive)) {
                folder.unchanged += 1;
            } else if (growing || archive.is_whole(self.last.get(path)))
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
                        folder.imported.push((path.clone(), imported));
                    }
                    Err(error) => {
                        let text = images.config.observer.error_text(&error);
                        tracing::warn!(event = "image.import", archive = key, error = %text, "an archive cannot be imported");
                        self.failed.insert(path.clone(), archive.clone());
                        folder.failed.push((path.clone(), error));
                    }
                }
            }
        }
        self.last = archives;
        if seen != before {
            write(images, &seen).await?;
        }
        self.seen = Some(seen);
        Ok(folder)
    }
}

/// Where it is written down what was taken in, in the image store.
const LIST: &str = "imported.json";

async fn read(list: PathBuf) -> Result<ImportLedger> {
    blocking(move || {
        // A damaged list only costs time.
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
    /// Whether nobody writes to it any more: it is as it was at the last look, or was last written a while ago.
    fn is_whole(&self, last: Option<&Self>) -> bool {
        let seconds = u64::try_from(self.modified.0).unwrap_or(0);
        let modified = UNIX_EPOCH + Duration::from_secs(seconds);
        let age = SystemTime::now().duration_since(modified);
        last == Some(self) || age.is_ok_and(|age| age > SETTLED)
    }
}

impl ImageStore {
    /// Takes in every archive of a folder once, as [`ImportFolder::look`] does, but does not ask whether they still grow.
    ///
    /// # Errors
    ///
    /// As [`ImportFolder::look`].
    pub async fn import_folder(&self, dir: &Path) -> Result<FolderImport> {
        ImportFolder::new(dir).take_in(self, true).await
    }

    fn is_unchanged(&self, known: &ArchiveState, archive: &ArchiveState) -> bool {
        let same = ArchiveState {
            images: known.images.clone(),
            ..archive.clone()
        };
        *known == same && known.images.iter().all(|id| self.store.image(id).is_some())
    }
}

fn archives(dir: &Path) -> Result<BTreeMap<PathBuf, ArchiveState>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.at(dir)?,
    };
    let mut archives = BTreeMap::new();
    for entry in entries {
        let path = entry.at(dir)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let endings = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];
        if name.starts_with('.') || !endings.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        let metadata = match fs::metadata(&path) {
            // Gone meanwhile, or a link to nothing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            metadata => metadata.at(&path)?,
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

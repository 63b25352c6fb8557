//! A folder of archives, for nodes without a network: every archive is taken in, those that were already are passed over.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ImageId, Imported};
use crate::runtime::error::shown;
use crate::runtime::image::Images;
use crate::runtime::image::error::{At as _, Error, Result};
use crate::runtime::image::layer::blocking;

/// What became of a folder of archives.
#[derive(Debug, Default)]
pub struct FolderImport {
    /// Archives that were taken in, and their images.
    pub imported: Vec<(PathBuf, Vec<Imported>)>,
    /// Archives that had been already, and have not changed.
    pub unchanged: usize,
    /// Archives that could not be: the others are taken in all the same.
    pub failed: Vec<(PathBuf, Error)>,
}

/// What was taken in, so that it is not read again at each start.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
struct Seen(BTreeMap<String, Archive>);

/// An archive as it was.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
struct Archive {
    size: u64,
    inode: u64,
    /// Seconds and nanoseconds after 1970.
    modified: (i64, i64),
    #[serde(default)]
    images: Vec<ImageId>,
}

impl Images {
    /// Takes in every archive of a folder: files that end in `.tar`, or that and a compression. Others are left alone.
    ///
    /// # Errors
    ///
    /// [`Error::Io`] if the folder cannot be read. One that is not there is empty.
    pub async fn import_folder(&self, dir: &Path) -> Result<FolderImport> {
        let own = dir.to_owned();
        let archives = blocking(move || archives(&own)).await?;
        let list = self.store.disk.root().join("imported.json");
        // A damaged list only costs time.
        let old: Seen = fs::read(&list)
            .ok()
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default();
        let mut seen = Seen::default();
        let mut folder = FolderImport::default();
        for (path, mut archive) in archives {
            let key = path.display().to_string();
            if let Some(known) = old
                .0
                .get(&key)
                .filter(|known| self.is_unchanged(known, &archive))
            {
                seen.0.insert(key, known.clone());
                folder.unchanged += 1;
                continue;
            }
            match self.import(&path).await {
                Ok(images) => {
                    archive.images = images.iter().map(|image| image.id.clone()).collect();
                    seen.0.insert(key, archive);
                    folder.imported.push((path, images));
                }
                Err(error) => {
                    tracing::warn!(archive = key, error = %shown(&error), "an archive cannot be imported");
                    folder.failed.push((path, error));
                }
            }
        }
        let bytes = serde_json::to_vec_pretty(&seen).map_err(|e| Error::internal(e.to_string()))?;
        let store = std::sync::Arc::clone(&self.store);
        blocking(move || store.disk.write(&list, &bytes)).await?;
        Ok(folder)
    }

    fn is_unchanged(&self, known: &Archive, archive: &Archive) -> bool {
        let same = Archive {
            images: known.images.clone(),
            ..archive.clone()
        };
        *known == same && known.images.iter().all(|id| self.store.image(id).is_some())
    }
}

fn archives(dir: &Path) -> Result<Vec<(PathBuf, Archive)>> {
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.at(dir)?,
    };
    let mut archives = Vec::new();
    for entry in entries {
        let path = entry.at(dir)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let endings = [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst"];
        if name.starts_with('.') || !endings.iter().any(|ending| name.ends_with(ending)) {
            continue;
        }
        let metadata = fs::metadata(&path).at(&path)?;
        if metadata.is_file() {
            let archive = Archive {
                size: metadata.len(),
                inode: metadata.ino(),
                modified: (metadata.mtime(), metadata.mtime_nsec()),
                images: Vec::new(),
            };
            archives.push((path, archive));
        }
    }
    archives.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(archives)
}

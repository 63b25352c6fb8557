//! The files of an artifact, fetched into a directory that is stacked like a layer.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use bytes::Bytes;

use super::task::LayerTask;
use crate::artifact::ArtifactFile;
use crate::blocking::{blocking, lock};
use crate::digest::Hasher;
use crate::error::{At as _, Error, Result};
use crate::registry::{BlobPart, Repository};
use crate::store::NewLayer;

/// Approximate bytes of a directory or the end of a file on disk.
const BLOCK: u64 = 4096;

/// A file being written.
struct Output {
    file: File,
    hasher: Hasher,
    failure: Option<Error>,
}

impl LayerTask {
    /// Fetches the files in order, and renames their directory into the store.
    pub(super) async fn fetch_files(
        &self,
        repository: &Repository,
        files: &[ArtifactFile],
    ) -> Result<()> {
        let total = files.iter().map(|file| file.blob.size);
        let total = total.fold(0, u64::saturating_add);
        self.check_size(total)?;
        let store = self.store();
        let staging = blocking(move || store.disk.staging()).await?;
        let work = self.fill(repository, files, &staging);
        let filled = tokio::select! {
            filled = work => filled,
            () = self.cancel.cancelled() => Err(self.cancelled()),
            () = self.give_up.cancelled() => Err(self.too_slow(repository)),
        };
        let inodes = files.iter().map(|file| file.path.split('/').count() as u64);
        let inodes = 1 + inodes.sum::<u64>();
        let bytes = total.saturating_add(inodes * BLOCK);
        let (store, layer, claim) = (self.store(), self.layer.clone(), self.claim);
        blocking(move || {
            let placed = filled.and_then(|()| {
                let new = NewLayer::new(bytes, inodes, Vec::new(), store.disk.boot());
                store.add_layer(&layer, &staging, new.shown_by(claim))
            });
            // Nothing is left of it if it was placed.
            let removed = store.disk.remove(&staging);
            placed.and(removed)
        })
        .await
    }

    async fn fill(
        &self,
        repository: &Repository,
        files: &[ArtifactFile],
        staging: &Path,
    ) -> Result<()> {
        let root = staging.join("fs");
        let made = root.clone();
        blocking(move || make_dir(&made)).await?;
        for file in files {
            self.fetch_file(repository, file, &root).await?;
        }
        Ok(())
    }

    async fn fetch_file(
        &self,
        repository: &Repository,
        file: &ArtifactFile,
        root: &Path,
    ) -> Result<()> {
        let path = root.join(&file.path);
        let made = path.clone();
        let (store, min_free) = (self.store(), self.min_free());
        let size = file.blob.size;
        let created = blocking(move || {
            // Other pulls write as well, and directories and empty files take inodes only.
            store.disk.check_space(min_free, size)?;
            if let Some(parent) = made.parent() {
                make_dir(parent)?;
            }
            let mut options = OpenOptions::new();
            options.create_new(true).write(true).mode(0o644);
            options.open(&made).at(&made)
        });
        let output = Arc::new(Mutex::new(Output {
            file: created.await?,
            hasher: file.blob.digest.hasher(),
            failure: None,
        }));
        let part = BlobPart {
            range: 0..file.blob.size,
            sends_parts: &AtomicBool::new(false),
            is_further: false,
        };
        let sink = |_: u64, chunk: Bytes| {
            self.fetched(chunk.len() as u64);
            let (output, path) = (Arc::clone(&output), path.clone());
            async move {
                let written = blocking(move || {
                    let mut output = lock(&output);
                    output.hasher.update(&chunk);
                    let written = output.file.write_all(&chunk).at(&path);
                    output.failure = written.clone().err();
                    written
                });
                written.await.is_ok()
            }
        };
        repository.blob(&file.blob, &part, sink).await?;
        let mut output = lock(&output);
        if let Some(failure) = output.failure.take() {
            return Err(failure);
        }
        file.blob
            .digest
            .compare("file of an artifact", output.hasher.clone())
    }
}

fn make_dir(path: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o755).create(path).at(path)?;
    // The mask of the process must not decide what containers may read.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(path, open).at(path)
}

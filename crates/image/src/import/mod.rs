//! Import of archives: OCI layouts in a tar file and archives of `docker save`, compressed or not.

mod archive;
mod directory;
mod docker;
mod oci;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use tracing::Instrument;

use self::archive::Archive;
use super::blocking::blocking;
use super::digest::Digest;
use super::error::{At as _, Error, Result};
use super::image_config::ParsedConfig;
use super::image_store::ImageStore;
use super::layer::LayerSource;
use super::observer::Steps;
use super::platform::Fit;
use super::progress::PullPhase;
use super::reference::Reference;
use super::store::{NewImage, Record};

pub use self::directory::{DirectoryImport, ImportDirectory, ImportedImage};

/// Maximum size of manifests, indexes and configurations in an archive, the same as from a registry.
const MAX_JSON: u64 = super::manifest::MAX_CONFIG;

/// An image in an archive.
#[derive(Debug)]
struct ArchivedImage {
    names: Vec<Reference>,
    /// Only in an OCI layout.
    manifest: Option<(Digest, Vec<u8>)>,
    config: (Digest, Vec<u8>),
    layers: Vec<LayerSource>,
}

/// Parses an archive, for the fuzzer.
#[cfg(any(test, fuzzing))]
pub(super) fn fuzz(bytes: &[u8]) {
    if let Some(archive) = Archive::from_bytes(bytes) {
        let _ = oci::read(&archive, &super::platform::Platform::host());
        let _ = docker::read(&archive);
    }
}

impl ImageStore {
    /// Imports all images of an archive that are for this platform. Dropping the future cancels it.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if it is damaged or not an archive of images; [`Error::NoPlatform`] if no image is for this
    /// platform; otherwise as for a pull.
    pub async fn import(&self, path: &Path) -> Result<Vec<ImportedImage>> {
        let own = path.to_owned();
        let file = blocking(move || File::open(&own).at(&own)).await?;
        self.import_file(file, path).await
    }

    /// Imports an open file, which must be seekable. `path` is for progress and errors.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::import`].
    pub async fn import_file(&self, file: File, path: &Path) -> Result<Vec<ImportedImage>> {
        let span = tracing::info_span!("image.import", archive = %path.display());
        self.import_archive(file, path).instrument(span).await
    }

    async fn import_archive(&self, file: File, path: &Path) -> Result<Vec<ImportedImage>> {
        let progress = self.pulls.begin(path.display().to_string());
        let (store, limits, path) = (Arc::clone(&self.store), self.config.limits, path.to_owned());
        let platform = self.config.platform.clone();
        let work = blocking(move || {
            let archive = Archive::open(&store.disk, file, &path, &limits)?;
            if archive.has("oci-layout") && archive.has("index.json") {
                oci::read(&archive, &platform)
            } else if archive.has("manifest.json") {
                docker::read(&archive)
            } else {
                let reason = "neither an OCI layout nor an archive of docker save";
                Err(Error::invalid(path.display().to_string(), reason))
            }
        });
        let found = work.await?;
        let steps = self.config.observer.operation();
        let mut imported = Vec::new();
        for image in found {
            progress.enter(PullPhase::Layers);
            imported.push(self.import_image(image, &progress, &steps).await?);
        }
        Ok(imported)
    }

    async fn import_image(
        &self,
        image: ArchivedImage,
        progress: &super::progress::PullGuard,
        steps: &Arc<dyn Steps>,
    ) -> Result<ImportedImage> {
        let (id, config) = image.config;
        let parsed = ParsedConfig::read(&config)?;
        // An archive may be for several machines, and images with the same names would replace each other.
        let platform = &self.config.platform;
        if parsed.fit(platform) == Fit::Other {
            return Err(parsed.other_platform(&format!("image {id}"), platform));
        }
        parsed.check_layers(image.layers.len())?;
        let layers = parsed.diff_ids.into_iter().zip(image.layers).collect();
        let held = self.get_layers(layers, progress, steps).await?;
        progress.enter(PullPhase::Recording);
        let mut record = Record::new(id, held.layers.clone());
        for name in &image.names {
            record.add_reference(name);
            if let Some((digest, _)) = &image.manifest {
                record.add_reference(&name.at(digest.clone()));
            }
        }
        record.manifest = image.manifest.as_ref().map(|(digest, _)| digest.clone());
        let new = NewImage {
            record,
            config,
            contents: image.manifest.into_iter().collect(),
        };
        let id = self.record(new, held, steps).await?;
        let names = image.names.iter().map(Reference::to_string).collect();
        Ok(ImportedImage { id, names })
    }
}

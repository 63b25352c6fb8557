//! Export of images into an archive: an OCI layout in a tar file, with the `manifest.json` of `docker load`.
//!
//! The store keeps layers unpacked, so they are packed again; with their digests those of the image change (ADR 0073). Every
//! layer is read twice: an archive names a layer by its digest before its content.

mod artifact;
mod documents;
mod layer;
mod links;
mod output;
mod selection;
mod tar;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::PathBuf;

use ::tar::EntryType;

use self::documents::{Config, DockerImage, Document, Listed};
use self::layer::LayerWriter;
use self::output::Output;
use self::selection::Selected;
use self::tar::{TarEntry, end, pad};
use super::digest::{Digest, Hasher};
use super::error::{At as _, Error, Result, carried};
use super::image_store::ImageStore;
use super::store::ContentStore;

pub use self::output::ExportWatch;
pub use self::selection::ExportOptions;

const LAYOUT: &[u8] = br#"{"imageLayoutVersion":"1.0.0"}"#;
const BUFFER: usize = 256 << 10;

/// An image in the archive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ExportedImage {
    /// The ID in the store.
    pub id: Digest,
    /// The ID once it is imported: the digest of the configuration in the archive, or of the manifest of an artifact.
    pub exported_id: Digest,
    /// The digest of its manifest in the archive.
    pub manifest: Digest,
    /// The names in the archive.
    pub names: Vec<String>,
}

/// A layer in the archive.
struct PackedLayer {
    digest: Digest,
    size: u64,
}

/// An image, ready to be written.
struct Prepared<'a> {
    selected: &'a Selected,
    manifest: Document,
    content: Content,
}

enum Content {
    Image(Config),
    Artifact {
        kind: String,
        blobs: Vec<(Digest, u64, PathBuf)>,
    },
}

impl ImageStore {
    /// Writes images into an archive. Blocks. The same images make the same bytes. Their layers are protected from removal
    /// meanwhile. After an error, the output must not be used.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::status`]; [`Error::NotFound`]; [`Error::Decrypted`]; [`Error::Cancelled`] after [`ExportWatch::cancel`];
    /// [`Error::Io`], for the archive with the path `archive`.
    pub fn export(
        &self,
        options: &ExportOptions,
        to: impl Write,
        watch: &ExportWatch,
    ) -> Result<Vec<ExportedImage>> {
        let selected = self.select(options)?;
        let layers = pack(&self.store, &selected, watch)?;
        let mut prepared = selected
            .iter()
            .map(|selected| prepare(&self.store, selected, &layers))
            .collect::<Result<Vec<_>>>()?;
        // Named by the output, not by the input: so an imported image makes the same archive again.
        prepared.sort_by(|a, b| a.manifest.digest.cmp(&b.manifest.digest));
        let files = prepared.iter().map(Prepared::file_bytes);
        let sizes = layers.values().map(|layer| layer.size).chain(files);
        watch.begin(true, sizes.sum());
        let mut archive = ArchiveWriter {
            to: BufWriter::with_capacity(BUFFER, Output::new(to, watch, Hasher::sha256())),
            written: BTreeSet::new(),
        };
        archive.documents(&prepared, &layers)?;
        for image in &prepared {
            archive.image(image)?;
        }
        let mut packed: Vec<_> = layers.iter().collect();
        packed.sort_by(|(_, a), (_, b)| a.digest.cmp(&b.digest));
        for (id, layer) in packed {
            archive.layer(&self.store, id, layer)?;
        }
        archive.finish()?;
        Ok(prepared.iter().map(Prepared::exported).collect())
    }
}

impl Prepared<'_> {
    /// Bytes of the files of an artifact.
    fn file_bytes(&self) -> u64 {
        match &self.content {
            Content::Image(_) => 0,
            Content::Artifact { blobs, .. } => blobs.iter().map(|(_, size, _)| size).sum(),
        }
    }

    fn exported(&self) -> ExportedImage {
        let exported_id = match &self.content {
            Content::Image(config) => &config.document.digest,
            Content::Artifact { .. } => &self.manifest.digest,
        };
        ExportedImage {
            id: self.selected.record.id.clone(),
            exported_id: exported_id.clone(),
            manifest: self.manifest.digest.clone(),
            names: self.selected.names.clone(),
        }
    }
}

/// Reads all layers of images for their digests when packed, each once.
fn pack(
    store: &ContentStore,
    selected: &[Selected],
    watch: &ExportWatch,
) -> Result<BTreeMap<Digest, PackedLayer>> {
    let images = selected.iter().filter(|image| !image.is_artifact());
    let ids: BTreeSet<_> = images.flat_map(|image| &image.record.diff_ids).collect();
    let sizes = ids
        .iter()
        .filter_map(|id| Some(store.layer(id)?.file.bytes));
    watch.begin(false, sizes.sum());
    let mut layers = BTreeMap::new();
    for id in ids {
        let mut output = Output::new(io::sink(), watch, Hasher::sha256());
        write_layer(store, id, &mut output)?;
        let (digest, size) = output.finish();
        layers.insert(id.clone(), PackedLayer { digest, size });
    }
    Ok(layers)
}

fn write_layer(store: &ContentStore, id: &Digest, to: &mut impl Write) -> Result<()> {
    let source = store.disk.layer(id).join("fs");
    let written = LayerWriter::new(&source, store.implied(id)?, to).and_then(LayerWriter::run);
    written.map_err(|error| carried(error).unwrap_or_else(|error| Error::io(source, error)))
}

fn prepare<'a>(
    store: &ContentStore,
    selected: &'a Selected,
    layers: &BTreeMap<Digest, PackedLayer>,
) -> Result<Prepared<'a>> {
    let record = &selected.record;
    if selected.is_artifact() {
        let found = artifact::read(&record.id, selected.config.clone())?;
        let root = store.disk.layer(&record.id).join("fs");
        let files = found.files.into_iter();
        let blobs = files.map(|file| (file.blob.digest, file.blob.size, root.join(file.path)));
        let content = Content::Artifact {
            kind: found.artifact_type,
            blobs: blobs.collect(),
        };
        return Ok(Prepared {
            selected,
            manifest: found.manifest,
            content,
        });
    }
    let packed = record.diff_ids.iter().map(|id| {
        layers
            .get(id)
            .ok_or_else(|| Error::internal(format!("layer {id} was not packed")))
    });
    let packed = packed.collect::<Result<Vec<_>>>()?;
    let ids: Vec<_> = packed.iter().map(|layer| &layer.digest).collect();
    let config = documents::config(&selected.config, &ids)?;
    let named: Vec<_> = packed
        .iter()
        .map(|layer| (&layer.digest, layer.size))
        .collect();
    let annotations = documents::annotations(
        selected.manifest.as_deref(),
        record.manifest.as_ref(),
        Some(&record.id),
    );
    Ok(Prepared {
        selected,
        manifest: documents::manifest(&config.document, &named, annotations)?,
        content: Content::Image(config),
    })
}

/// The archive. Errors of its writer count as errors of the archive, not of the store.
struct ArchiveWriter<W: Write> {
    to: W,
    /// Blobs that the archive has.
    written: BTreeSet<Digest>,
}

impl<W: Write> ArchiveWriter<W> {
    /// Writes what says which images there are.
    fn documents(
        &mut self,
        images: &[Prepared<'_>],
        layers: &BTreeMap<Digest, PackedLayer>,
    ) -> Result<()> {
        let listed = images.iter().map(|image| {
            let (kind, platform) = match &image.content {
                Content::Image(config) => (None, Some(&config.platform)),
                Content::Artifact { kind, .. } => (Some(kind.as_str()), None),
            };
            Listed {
                manifest: &image.manifest,
                artifact_type: kind,
                platform,
                names: &image.selected.names,
            }
        });
        let index = documents::index(&listed.collect::<Vec<_>>())?;
        self.file("oci-layout", LAYOUT)?;
        self.file("index.json", &index)?;
        let docker = images.iter().filter_map(|image| match &image.content {
            Content::Image(config) => Some(DockerImage {
                config: blob_path(&config.document.digest),
                repo_tags: &image.selected.names,
                layers: image
                    .selected
                    .record
                    .diff_ids
                    .iter()
                    .filter_map(|id| layers.get(id))
                    .map(|layer| blob_path(&layer.digest))
                    .collect(),
            }),
            Content::Artifact { .. } => None,
        });
        let docker: Vec<_> = docker.collect();
        if !docker.is_empty() {
            self.file("manifest.json", &documents::docker(&docker)?)?;
        }
        for dir in ["blobs/", "blobs/sha256/"] {
            let entry = TarEntry::new(EntryType::Directory, dir.as_bytes(), 0o755);
            entry.write(&mut self.to).map_err(failed)?;
        }
        Ok(())
    }

    fn file(&mut self, path: &str, bytes: &[u8]) -> Result<()> {
        self.begin(path, bytes.len() as u64)?;
        self.to.write_all(bytes).map_err(failed)?;
        pad(&mut self.to, bytes.len() as u64).map_err(failed)
    }

    fn begin(&mut self, path: &str, size: u64) -> Result<()> {
        let mut entry = TarEntry::new(EntryType::Regular, path.as_bytes(), 0o444);
        entry.size = size;
        entry.write(&mut self.to).map_err(failed)
    }

    /// Writes a blob from memory, unless it was written.
    fn blob(&mut self, digest: &Digest, bytes: &[u8]) -> Result<()> {
        if self.written.insert(digest.clone()) {
            self.file(&blob_path(digest), bytes)
        } else {
            Ok(())
        }
    }

    /// Writes what an image consists of besides its layers.
    fn image(&mut self, image: &Prepared<'_>) -> Result<()> {
        self.blob(&image.manifest.digest, &image.manifest.bytes)?;
        match &image.content {
            Content::Image(config) => self.blob(&config.document.digest, &config.document.bytes),
            Content::Artifact { blobs, .. } => {
                self.blob(&Digest::sha256(artifact::EMPTY), artifact::EMPTY)?;
                blobs
                    .iter()
                    .try_for_each(|(digest, size, path)| self.copy(digest, *size, path))
            }
        }
    }

    /// Writes a file of an artifact. Its content is checked: it was checked when it was pulled, and the disk may have failed.
    fn copy(&mut self, digest: &Digest, size: u64, path: &PathBuf) -> Result<()> {
        if !self.written.insert(digest.clone()) {
            return Ok(());
        }
        self.begin(&blob_path(digest), size)?;
        let uncounted = ExportWatch::default();
        let mut output = Output::new(&mut self.to, &uncounted, digest.hasher());
        let file = File::open(path).at(path)?.take(size);
        let copied = io::copy(&mut BufReader::with_capacity(BUFFER, file), &mut output);
        copied.map_err(|error| carried(error).unwrap_or_else(|error| Error::io(path, error)))?;
        digest.compare("file of an artifact", output.hasher)?;
        pad(&mut self.to, size).map_err(failed)
    }

    /// Writes a layer. If it has another digest than before, it was changed on the disk.
    fn layer(&mut self, store: &ContentStore, id: &Digest, layer: &PackedLayer) -> Result<()> {
        if !self.written.insert(layer.digest.clone()) {
            return Ok(());
        }
        self.begin(&blob_path(&layer.digest), layer.size)?;
        let uncounted = ExportWatch::default();
        let mut output = Output::new(&mut self.to, &uncounted, Hasher::sha256());
        write_layer(store, id, &mut output)?;
        if output.finish() != (layer.digest.clone(), layer.size) {
            let reason = "was changed on the disk while it was read";
            return Err(Error::invalid(format!("layer {id}"), reason));
        }
        pad(&mut self.to, layer.size).map_err(failed)
    }

    fn finish(mut self) -> Result<()> {
        end(&mut self.to).map_err(failed)?;
        self.to.flush().map_err(failed)
    }
}

fn failed(error: io::Error) -> Error {
    carried(error).unwrap_or_else(|error| Error::io("archive", error))
}

fn blob_path(digest: &Digest) -> String {
    format!("blobs/{}", digest.as_str().replacen(':', "/", 1))
}

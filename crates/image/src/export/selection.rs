//! Which images an export writes, and with which names.

use std::collections::{BTreeMap, BTreeSet};

use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::image_store::ImageStore;
use crate::reference::Reference;
use crate::store::{Held, Record};

/// The contents of an archive.
#[derive(Clone, Debug, Default)]
pub struct ExportOptions {
    /// Images by a reference, an ID, or a prefix of an ID. One that is named by a reference with a tag gets this name in the
    /// archive, another one all its tags.
    pub images: Vec<String>,
    /// Writes images whose layers came encrypted, which the archive contains in plain text.
    pub allow_decrypted: bool,
}

/// An image to export. Its documents are read at once and its layers held, so it may be removed meanwhile.
pub(super) struct Selected {
    pub(super) record: Record,
    pub(super) names: Vec<String>,
    /// The configuration, or the manifest of an artifact.
    pub(super) config: Vec<u8>,
    /// The manifest, if it can be read: an image is complete without.
    pub(super) manifest: Option<Vec<u8>>,
    _held: Held,
}

impl Selected {
    pub(super) fn is_artifact(&self) -> bool {
        self.record.artifact.is_some()
    }
}

impl ImageStore {
    /// The images, each once, in the order of their IDs.
    pub(super) fn select(&self, options: &ExportOptions) -> Result<Vec<Selected>> {
        let mut wanted: BTreeMap<Digest, BTreeSet<String>> = BTreeMap::new();
        for text in &options.images {
            let id = self
                .resolve(text)?
                .ok_or_else(|| Error::missing_image(text))?
                .id;
            let (record, _) = self
                .store
                .image(&id)
                .ok_or_else(|| Error::missing_image(text))?;
            wanted
                .entry(id)
                .or_default()
                .extend(self.names(text, &record));
        }
        wanted
            .into_iter()
            .map(|(id, names)| self.open_selected(&id, names, options))
            .collect()
    }

    /// The tag that `text` is; all tags of the image if it is something else.
    fn names(&self, text: &str, record: &Record) -> Vec<String> {
        let candidates = self.names_for(text).unwrap_or_default();
        let mut named = candidates.iter().map(Reference::to_string);
        match named.find(|name| record.tags.contains_key(name)) {
            Some(name) => vec![name],
            None => record.tags.keys().cloned().collect(),
        }
    }

    fn open_selected(
        &self,
        id: &Digest,
        names: BTreeSet<String>,
        options: &ExportOptions,
    ) -> Result<Selected> {
        let image = self.store.image(id);
        let (record, _) = image.ok_or_else(|| Error::missing_image(id.as_str()))?;
        // Held before the check; otherwise they could be removed in between.
        let held = self.store.hold(record.diff_ids.clone());
        for layer in &record.diff_ids {
            let layer = self.store.layer(layer);
            let layer = layer.ok_or_else(|| Error::missing_image(id.as_str()))?;
            if layer.came_encrypted() && !options.allow_decrypted {
                let image = names.first().cloned().unwrap_or_else(|| id.to_string());
                return Err(Error::Decrypted { image });
            }
        }
        let manifest = record.manifest.as_ref();
        let manifest = manifest.and_then(|digest| self.store.content(digest).ok());
        // The layer is gone if the image was removed since.
        let config = match self.store.content(id) {
            Err(_) if self.store.image(id).is_none() => {
                return Err(Error::missing_image(id.as_str()));
            }
            config => config?,
        };
        Ok(Selected {
            record,
            names: names.into_iter().collect(),
            config,
            manifest,
            _held: held,
        })
    }
}

//! Archives of `docker save`: `manifest.json` names the configuration and layers of each image. The layers have no digests;
//! their diff IDs are checked against the configuration, whose digest is the image ID.

use serde::Deserialize;

use super::archive::Archive;
use super::{ArchivedImage, MAX_JSON};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::reference::Reference;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Entry {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

pub(super) fn read(archive: &Archive) -> Result<Vec<ArchivedImage>> {
    let bytes = archive.read("manifest.json", MAX_JSON)?;
    let entries: Vec<Entry> = serde_json::from_slice(&bytes)
        .map_err(|e| Error::invalid(archive.what(), e.to_string()))?;
    entries
        .into_iter()
        .map(|entry| image(archive, entry))
        .collect()
}

fn image(archive: &Archive, entry: Entry) -> Result<ArchivedImage> {
    let config = archive.read(&entry.config, MAX_JSON)?;
    let names = entry.repo_tags.unwrap_or_default();
    Ok(ArchivedImage {
        names: names
            .iter()
            .map(|name| Reference::parse(name))
            .collect::<Result<_>>()?,
        manifest: None,
        config: (Digest::of(&config), config),
        layers: entry
            .layers
            .iter()
            .map(|name| archive.layer(name, None))
            .collect::<Result<_>>()?,
    })
}

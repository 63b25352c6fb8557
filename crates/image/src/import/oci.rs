//! OCI layouts (image-spec, "Image Layout"): `index.json` names everything else by digest.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap};

use super::archive::Archive;
use super::{ArchivedImage, MAX_JSON};
use crate::artifact::ArtifactManifest;
use crate::choice::{Choice, MAX_UNDECLARED, choose, no_platform};
use crate::decrypt::is_encrypted;
use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::image_config::ParsedConfig;
use crate::manifest::{ImageManifest, MAX_DEPTH, MAX_MANIFEST, Manifest};
use crate::platform::{Fit, Platform};
use crate::reference::Reference;

/// The full reference, as written by containerd, BuildKit and newer versions of Docker.
const FULL_NAME: &str = "io.containerd.image.name";
/// The reference as specified; often only a tag.
const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// Reads the images of the index. One image may have several entries with different references.
pub(super) fn read(archive: &Archive, platform: &Platform) -> Result<Vec<ArchivedImage>> {
    let index = archive.read("index.json", MAX_JSON)?;
    let Manifest::Index(entries) = Manifest::parse(&index, "")? else {
        return Err(Error::invalid(archive.what(), "its index.json is none"));
    };
    let mut found: BTreeMap<Digest, ArchivedImage> = BTreeMap::new();
    let mut other_machines = None;
    // A manifest is read once, however many entries name it.
    let mut manifests: HashMap<&Digest, Digest> = HashMap::new();
    for entry in &entries {
        let known = manifests.get(&entry.digest);
        if let Some(image) = known.and_then(|digest| found.get_mut(digest)) {
            image.names.extend(name(entry)?);
            continue;
        }
        match image(archive, entry, platform) {
            Ok((digest, image)) => {
                manifests.insert(&entry.digest, digest.clone());
                let image = found.entry(digest).or_insert(image);
                image.names.extend(name(entry)?);
            }
            Err(error @ Error::NoPlatform { .. }) => other_machines = Some(error),
            Err(error) => return Err(error),
        }
    }
    match other_machines {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found.into_values().collect()),
    }
}

/// The reference of an entry. A tag alone has no repository.
fn name(entry: &Descriptor) -> Result<Option<Reference>> {
    let full = entry.annotations.get(FULL_NAME);
    let partial = entry.annotations.get(REF_NAME);
    let name = full.or(partial.filter(|name| name.contains([':', '/', '@'])));
    name.map(|name| Reference::parse(name)).transpose()
}

fn image(
    archive: &Archive,
    entry: &Descriptor,
    platform: &Platform,
) -> Result<(Digest, ArchivedImage)> {
    // An entry is an image of its own, which is asked for as such if it does not name its platform.
    choose(&archive.what(), std::slice::from_ref(entry), platform)?;
    let reader = LayoutReader {
        archive,
        platform,
        tries_left: Cell::new(MAX_UNDECLARED),
    };
    reader.descend(&entry.digest, MAX_DEPTH - 1)
}

struct LayoutReader<'a> {
    archive: &'a Archive,
    platform: &'a Platform,
    /// The manifests that may still be tried, over all indexes.
    tries_left: Cell<usize>,
}

impl LayoutReader<'_> {
    /// Follows indexes to an image.
    fn descend(&self, digest: &Digest, depth: usize) -> Result<(Digest, ArchivedImage)> {
        let bytes = blob(self.archive, digest, "manifest", MAX_MANIFEST)?;
        let own = (digest.clone(), bytes);
        let manifests = match Manifest::parse(&own.1, "")? {
            Manifest::Index(manifests) => manifests,
            Manifest::Image(manifest) => return whole(self.archive, &manifest, own),
            Manifest::Artifact(artifact) => return Err(self.not_to_run(&artifact)),
            Manifest::Undeclared(manifest) => {
                let config = blob(
                    self.archive,
                    &manifest.config.digest,
                    "image configuration",
                    MAX_JSON,
                )?;
                return match manifest.decide(&config)? {
                    Manifest::Image(manifest) => whole(self.archive, &manifest, own),
                    Manifest::Artifact(artifact) => Err(self.not_to_run(&artifact)),
                    _ => Err(Error::internal("a manifest that is neither")),
                };
            }
        };
        let Some(depth) = depth.checked_sub(1) else {
            let reason = "an index of indexes without end";
            return Err(Error::invalid(self.archive.what(), reason));
        };
        match choose(&self.archive.what(), &manifests, self.platform)? {
            Choice::Declared(chosen) => self.descend(&chosen.digest, depth),
            Choice::Undeclared(tried) => self.first_that_runs(&manifests, &tried, depth),
        }
    }

    /// Tries manifests in their order: the first whose configuration names this platform, else the first that names none.
    fn first_that_runs(
        &self,
        manifests: &[Descriptor],
        tried: &[&Descriptor],
        depth: usize,
    ) -> Result<(Digest, ArchivedImage)> {
        let mut silent = None;
        for descriptor in tried {
            let Some(left) = self.tries_left.get().checked_sub(1) else {
                break;
            };
            self.tries_left.set(left);
            let found = match self.descend(&descriptor.digest, depth) {
                Err(Error::NoPlatform { .. }) => continue,
                found => found?,
            };
            match ParsedConfig::read(&found.1.config.1)?.fit(self.platform) {
                Fit::Runs => return Ok(found),
                Fit::Silent => drop(silent.get_or_insert(found)),
                Fit::Other => {}
            }
        }
        silent.ok_or_else(|| no_platform(&self.archive.what(), manifests, self.platform))
    }

    fn not_to_run(&self, artifact: &ArtifactManifest) -> Error {
        let kind: String = artifact.artifact_type.chars().take(100).collect();
        let reason = format!("not an image to run: an artifact of type {kind}");
        Error::invalid(self.archive.what(), reason)
    }
}

fn whole(
    archive: &Archive,
    manifest: &ImageManifest,
    own: (Digest, Vec<u8>),
) -> Result<(Digest, ArchivedImage)> {
    let id = &manifest.config.digest;
    let config = blob(archive, id, "image configuration", MAX_JSON)?;
    if let Some(layer) = manifest.layers.iter().find(|layer| is_encrypted(layer)) {
        let reason = format!(
            "layer {} is encrypted: only images of registries are decrypted",
            layer.digest
        );
        return Err(Error::invalid(archive.what(), reason));
    }
    let layers = manifest.layers.iter();
    let layers =
        layers.map(|layer| archive.layer(&path(&layer.digest), Some(layer.digest.clone())));
    let image = ArchivedImage {
        names: Vec::new(),
        config: (id.clone(), config),
        layers: layers.collect::<Result<_>>()?,
        manifest: Some(own.clone()),
    };
    Ok((own.0, image))
}

fn blob(archive: &Archive, digest: &Digest, what: &'static str, most: u64) -> Result<Vec<u8>> {
    let bytes = archive.read(&path(digest), most)?;
    digest.check(what, &bytes)?;
    Ok(bytes)
}

fn path(digest: &Digest) -> String {
    format!("blobs/{}", digest.as_str().replacen(':', "/", 1))
}

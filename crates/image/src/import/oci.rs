//! OCI layouts (image-spec, "Image Layout"): `index.json` names everything else by digest.

use std::collections::{BTreeMap, HashMap};

use super::archive::Archive;
use super::{ArchivedImage, MAX_JSON};
use crate::decrypt::is_encrypted;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::manifest::{Descriptor, ImageManifest, MAX_DEPTH, MAX_MANIFEST, Manifest, choose};
use crate::platform::Platform;
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
    let annotation = |key: &str| entry.annotations.get(key).map(String::as_str);
    let partial = annotation(REF_NAME).filter(|name| name.contains([':', '/', '@']));
    let name = annotation(FULL_NAME).or(partial);
    name.map(Reference::parse).transpose()
}

fn image(
    archive: &Archive,
    entry: &Descriptor,
    platform: &Platform,
) -> Result<(Digest, ArchivedImage)> {
    if let Some(offered) = &entry.platform
        && platform.fits(offered).is_none()
    {
        choose(&archive.what(), std::slice::from_ref(entry), platform)?;
    }
    let mut digest = entry.digest.clone();
    for _ in 0..MAX_DEPTH {
        let bytes = blob(archive, &digest, "manifest", MAX_MANIFEST)?;
        match Manifest::parse(&bytes, "")? {
            Manifest::Index(manifests) => {
                digest = choose(&archive.what(), &manifests, platform)?
                    .digest
                    .clone();
            }
            Manifest::Artifact(artifact) => {
                let kind: String = artifact.artifact_type.chars().take(100).collect();
                let reason = format!("not an image to run: an artifact of type {kind}");
                return Err(Error::invalid(archive.what(), reason));
            }
            Manifest::Image(manifest) => {
                let found = whole(archive, &manifest, (digest.clone(), bytes))?;
                return Ok((digest, found));
            }
        }
    }
    Err(Error::invalid(
        archive.what(),
        "an index of indexes without end",
    ))
}

fn whole(
    archive: &Archive,
    manifest: &ImageManifest,
    own: (Digest, Vec<u8>),
) -> Result<ArchivedImage> {
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
    Ok(ArchivedImage {
        names: Vec::new(),
        manifest: Some(own),
        config: (id.clone(), config),
        layers: layers.collect::<Result<_>>()?,
    })
}

fn blob(archive: &Archive, digest: &Digest, what: &'static str, most: u64) -> Result<Vec<u8>> {
    let bytes = archive.read(&path(digest), most)?;
    digest.check(what, &bytes)?;
    Ok(bytes)
}

fn path(digest: &Digest) -> String {
    format!("blobs/{}", digest.as_str().replacen(':', "/", 1))
}

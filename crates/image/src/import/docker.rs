//! Archives of `docker save`: `manifest.json` names the configuration and layers of each image. The layers have no digests;
//! their diff IDs are checked against the configuration, whose digest is the image ID.

use serde::Deserialize;

use super::archive::Archive;
use super::{ArchivedImage, MAX_JSON};
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::json;
use crate::reference::Reference;

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Entry {
    config: String,
    repo_tags: Vec<String>,
    layers: Vec<String>,
}

pub(super) fn read(archive: &Archive) -> Result<Vec<ArchivedImage>> {
    let bytes = archive.read("manifest.json", MAX_JSON)?;
    let entries = parse(&bytes).map_err(|e| Error::invalid(archive.what(), e.to_string()))?;
    entries.iter().map(|entry| image(archive, entry)).collect()
}

fn parse(bytes: &[u8]) -> std::result::Result<Vec<Entry>, json::JsonError> {
    json::from_slice(bytes)
}

fn image(archive: &Archive, entry: &Entry) -> Result<ArchivedImage> {
    let config = archive.read(&entry.config, MAX_JSON)?;
    Ok(ArchivedImage {
        names: entry
            .repo_tags
            .iter()
            .filter(|name| !name.is_empty())
            .map(|name| Reference::parse(name))
            .collect::<Result<_>>()?,
        manifest: None,
        config: (Digest::sha256(&config), config),
        layers: entry
            .layers
            .iter()
            .map(|name| archive.layer(name, None))
            .collect::<Result<_>>()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_images_are_read_as_docker_reads_them() {
        for (text, names) in [
            (r#"[{"Config":"c","RepoTags":null,"Layers":null}]"#, &[][..]),
            (r#"[{"Config":"c","Layers":["l"]}]"#, &[]),
            (
                r#"[{"config":"c","repotags":["a:1"],"layers":[],"Parent":null}]"#,
                &["a:1"],
            ),
        ] {
            let entries = parse(text.as_bytes()).expect(text);
            assert_eq!(entries[0].config, "c");
            assert_eq!(entries[0].repo_tags, names, "{text}");
        }
        assert!(parse(b"null").expect("nothing").is_empty());
        assert!(parse(b"{}").is_err());
    }
}

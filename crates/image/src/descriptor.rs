//! References to content by its digest, in manifests and indexes.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use super::digest::Digest;
use super::json::{bounded_list, bounded_map};
use super::platform::Platform;

/// Maximum number of addresses of a layer outside of the registry that are kept.
const MAX_URLS: usize = 8;

/// A reference to content by its digest (image-spec, "Descriptors").
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type; empty if the document has none.
    #[serde(default)]
    pub media_type: String,
    /// The digest of the content.
    pub digest: Digest,
    /// Bytes of the content.
    #[serde(default)]
    pub size: u64,
    /// The platform of an image in an index.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// Where the content is if the registry does not have it, at most 8 addresses.
    #[serde(default, deserialize_with = "urls")]
    pub urls: Vec<String>,
    /// Annotations, at most 10,000.
    #[serde(default, deserialize_with = "bounded_map")]
    pub annotations: BTreeMap<String, String>,
}

impl Descriptor {
    /// Describes content by its digest alone.
    pub(super) fn from_digest(digest: Digest) -> Self {
        Self {
            media_type: String::new(),
            digest,
            size: 0,
            platform: None,
            urls: Vec::new(),
            annotations: BTreeMap::new(),
        }
    }
}

/// The first addresses of a list.
fn urls<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<String>, D::Error> {
    let mut urls = bounded_list(deserializer)?;
    urls.truncate(MAX_URLS);
    Ok(urls)
}

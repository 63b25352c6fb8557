//! Fetches signatures from a lookaside store: files `signature-1`, `signature-2` and so on in a directory per manifest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::blocking::blocking;
use crate::digest::Digest;
use crate::error::{At as _, Error, Result};
use crate::files::{self, if_present};
use crate::registry::RegistryClient;
use crate::verify::evidence::Signature;

/// The media type of a signed message in the store. Registries do not have them.
pub(crate) const MEDIA_TYPE: &str = "application/pgp-signature";
/// The most signatures of one image, and the largest.
const MAX_SIGNATURES: usize = 128;
const MAX_SIGNATURE: u64 = 256 << 10;

impl RegistryClient {
    /// The signatures of a manifest in the store of a repository. Nothing of them is checked but their size. The first number
    /// without a file ends the list.
    ///
    /// # Errors
    ///
    /// [`Error::Settings`] for a store that is neither a file nor on the web, [`Error::TooLarge`], and those of the store.
    pub(crate) async fn lookaside(&self, store: &str, manifest: &Digest) -> Result<Vec<Signature>> {
        let dir = format!("{store}@{}", manifest.as_str().replacen(':', "=", 1));
        let mut found = Vec::new();
        loop {
            let name = format!("{dir}/signature-{}", found.len() + 1);
            let bytes = match name.strip_prefix("file://") {
                Some(path) => {
                    let path = PathBuf::from(path);
                    let read = move || if_present(files::read(&path, MAX_SIGNATURE)).at(&path);
                    blocking(read).await?
                }
                None => self.get_plain(&name, MAX_SIGNATURE).await?,
            };
            let Some(bytes) = bytes else {
                return Ok(found);
            };
            if found.len() == MAX_SIGNATURES {
                let reason = format!("more than {MAX_SIGNATURES} signatures");
                return Err(Error::too_large(dir, reason));
            }
            let media_type = MEDIA_TYPE.to_owned();
            found.push(Signature::new(media_type, &bytes, BTreeMap::new()));
        }
    }
}

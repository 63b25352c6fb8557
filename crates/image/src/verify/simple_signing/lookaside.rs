//! Fetches signatures from a lookaside store: files `signature-1`, `signature-2` and so on in a directory per manifest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use super::MEDIA_TYPE;
use crate::digest::Digest;
use crate::error::{At as _, Error, Result};
use crate::layer::blocking;
use crate::registry::RegistryClient;
use crate::verify::evidence::Signature;

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
                    blocking(move || read(&path)).await?
                }
                None => self.get_plain(&name, MAX_SIGNATURE).await?,
            };
            let Some(bytes) = bytes else {
                return Ok(found);
            };
            if found.len() == MAX_SIGNATURES {
                return Err(Error::TooLarge {
                    what: dir,
                    reason: format!("more than {MAX_SIGNATURES} signatures"),
                });
            }
            let media_type = MEDIA_TYPE.to_owned();
            found.push(Signature::new(media_type, &bytes, BTreeMap::new()));
        }
    }
}

/// Reads a file; `None` if there is none.
fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let file = match File::open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.at(path)?,
    };
    let mut bytes = Vec::new();
    file.take(MAX_SIGNATURE + 1)
        .read_to_end(&mut bytes)
        .at(path)?;
    if bytes.len() as u64 > MAX_SIGNATURE {
        return Err(Error::TooLarge {
            what: path.display().to_string(),
            reason: format!("more than {MAX_SIGNATURE} bytes"),
        });
    }
    Ok(Some(bytes))
}

//! The signatures of an image, as they were found in its registry. They are kept with the image, so that a policy can be
//! evaluated later, without the registry.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::digest::Digest;
use crate::error::{Error, Result};

/// The result of a verification, with the reason of a refusal.
pub(crate) type VerifyResult<T> = std::result::Result<T, String>;

/// The signatures of one manifest or index.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Evidence {
    /// The signed digest. That it is, or leads to, the manifest of the image was checked when it was pulled.
    pub(crate) manifest: Digest,
    pub(crate) signatures: Vec<Signature>,
}

/// A signature as cosign stores it: a layer with annotations. Nothing of it is trusted.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Signature {
    pub(crate) media_type: String,
    /// The signed document, in base64.
    payload: String,
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Signature {
    pub(crate) fn new(
        media_type: String,
        payload: &[u8],
        annotations: BTreeMap<String, String>,
    ) -> Self {
        Self {
            media_type,
            payload: STANDARD.encode(payload),
            annotations,
        }
    }

    pub(super) fn payload(&self) -> Vec<u8> {
        // Written by `new`; a damaged one verifies against no key.
        STANDARD.decode(&self.payload).unwrap_or_default()
    }
}

impl Evidence {
    /// The document in the store, and its digest.
    pub(crate) fn document(&self) -> Result<(Digest, Vec<u8>)> {
        let bytes = serde_json::to_vec(self).map_err(|e| Error::internal(e.to_string()))?;
        Ok((Digest::sha256(&bytes), bytes))
    }

    /// Reads such a document.
    pub(super) fn read(digest: &Digest, bytes: &[u8]) -> Result<Self> {
        digest.check("signatures", bytes)?;
        serde_json::from_slice(bytes)
            .map_err(|e| Error::invalid(format!("signatures {digest}"), e.to_string()))
    }
}

//! The parameters of a layer's cipher: the private ones, which were wrapped, and the public ones in an annotation.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::digest::Digest;
use crate::json;

const PUBLIC: &str = "org.opencontainers.image.enc.pubopts";
const CIPHER: &str = "AES_256_CTR_HMAC_SHA256";
const NONCE: &str = "nonce";
pub(super) const KEY_BYTES: usize = 32;
pub(super) const NONCE_BYTES: usize = 16;

/// The key of an encrypted layer, and what its content is checked with.
pub(crate) struct LayerKey {
    pub(super) key: Zeroizing<[u8; KEY_BYTES]>,
    pub(super) nonce: [u8; NONCE_BYTES],
    /// The HMAC of the encrypted content, by the same key.
    pub(super) hmac: Vec<u8>,
    /// The digest of the content before it was encrypted; of the archive, if it was compressed in between.
    pub(super) plain: Option<Digest>,
    proof: [u8; 32],
}

/// `PrivateLayerBlockCipherOptions` of ocicrypt.
#[derive(Deserialize)]
struct Private {
    symkey: String,
    #[serde(default)]
    digest: String,
    #[serde(default)]
    cipheroptions: Option<BTreeMap<String, String>>,
}

/// `PublicLayerBlockCipherOptions` of ocicrypt.
#[derive(Deserialize)]
struct Public {
    #[serde(default)]
    cipher: String,
    #[serde(default)]
    hmac: Option<String>,
    #[serde(default)]
    cipheroptions: Option<BTreeMap<String, String>>,
}

type Parsed<T> = Result<T, String>;

impl LayerKey {
    /// Parses the unwrapped options and the annotation with the public ones. Errors quote neither.
    pub(super) fn parse(
        unwrapped: &[u8],
        annotations: &BTreeMap<String, String>,
        diff_id: &Digest,
    ) -> Parsed<Self> {
        // The text of such an error could quote the key.
        let private: Private = json::from_slice(unwrapped)
            .map_err(|_| "what was unwrapped is not a key of ocicrypt".to_owned())?;
        let symkey = Zeroizing::new(private.symkey);
        let public = annotations.get(PUBLIC).ok_or("it has no public options")?;
        let public = STANDARD.decode(public).ok();
        let public = public.and_then(|bytes| json::from_slice::<Public>(&bytes).ok());
        let public = public.ok_or("its public options cannot be read")?;
        if public.cipher != CIPHER {
            return Err(format!(
                "its cipher is not {CIPHER}, which is the only one that is known"
            ));
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        let decoded = STANDARD.decode(symkey.as_bytes()).map(Zeroizing::new);
        match decoded {
            Ok(bytes) if bytes.len() == KEY_BYTES => key.copy_from_slice(&bytes),
            _ => return Err(format!("its key does not have {KEY_BYTES} bytes")),
        }
        let all = [public.cipheroptions, private.cipheroptions];
        let mut nonces = all
            .iter()
            .flatten()
            .filter_map(|options| options.get(NONCE));
        let nonce = nonces.next().and_then(|text| STANDARD.decode(text).ok());
        let nonce = nonce.and_then(|bytes| bytes.try_into().ok());
        let nonce = nonce.ok_or_else(|| format!("its nonce does not have {NONCE_BYTES} bytes"))?;
        let hmac = public.hmac.and_then(|text| STANDARD.decode(text).ok());
        let plain = match private.digest.as_str() {
            "" => None,
            text => Some(Digest::parse(text).map_err(|error| error.to_string())?),
        };
        Ok(Self {
            proof: proof(&key, diff_id),
            key,
            nonce,
            hmac: hmac
                .filter(|hmac| !hmac.is_empty())
                .ok_or("it has no HMAC")?,
            plain,
        })
    }

    /// Recorded with the decrypted layer, to recognise the key when the layer is pulled again. Nothing about the key can be learned
    /// from it: the key is random.
    pub(crate) fn proof(&self) -> [u8; 32] {
        self.proof
    }
}

fn proof(key: &[u8; KEY_BYTES], diff_id: &Digest) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let text = format!("criscope: the key of layer {diff_id}");
    let tag = hmac::sign(&key, text.as_bytes());
    let mut proof = [0; 32];
    proof.copy_from_slice(tag.as_ref());
    proof
}

impl fmt::Debug for LayerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LayerKey")
    }
}

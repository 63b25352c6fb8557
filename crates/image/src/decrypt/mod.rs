//! Encrypted layers, as the project ocicrypt defines them (media types that end in `+encrypted`).
//!
//! Each layer is encrypted with a key of its own. Annotations of its descriptor have that key, wrapped for one or several recipients.
//! Only key providers are supported, services or programs of the node; private keys (`jwe`, `pgp`, `pkcs7`) are not.
//! [`unwrap_keys`](Decryption::unwrap_keys) gets the keys before anything of the image is fetched, for every pull; `cipher` decrypts the
//! content as it arrives.
//!
//! Off unless configured. No key is logged, written to disk or part of an error.

mod cipher;
mod options;
mod providers;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::future::try_join_all;

pub(crate) use self::cipher::DecryptReader;
pub(crate) use self::options::LayerKey;
use self::providers::KeyProviders;
use crate::blocking::blocking;
use crate::config::Decryption;
use crate::descriptor::Descriptor;
use crate::digest::Digest;
use crate::error::{Error, KeyFailure, Result};
use crate::observer::{Step, Steps, observed};
use crate::reference::Reference;

/// Layers whose keys are unwrapped at the same time: providers are programs and services of the node.
const CONCURRENT_UNWRAPS: usize = 4;
/// The most wrapped keys of one layer for one key provider.
const MAX_WRAPPED: usize = 64;
/// Characters of the name of a recipient in an error.
const MAX_SHOWN: usize = 100;

const SUFFIX: &str = "+encrypted";
const KEYS: &str = "org.opencontainers.image.enc.keys.";
const PROVIDER: &str = "provider.";

impl Decryption {
    /// Reads the configuration of providers. Blocks. Returns the reasons why they cannot be used.
    pub(crate) fn check(&self) -> Vec<String> {
        match self.key_providers.as_deref().map(KeyProviders::read) {
            Some(Ok(providers)) => providers.without_program().collect(),
            Some(Err(error)) => vec![error.to_string()],
            None => Vec::new(),
        }
    }

    /// Unwraps the keys of all layers that are encrypted; `None` for the others. Also for layers that are in the store: a node
    /// that has lost the key may not use the image.
    ///
    /// # Errors
    ///
    /// [`Error::NoLayerKey`]; [`Error::Settings`] for a configuration that cannot be read; [`Error::Invalid`].
    pub(crate) async fn unwrap_keys(
        &self,
        reference: &Reference,
        layers: &[Descriptor],
        diff_ids: &[Digest],
        steps: &Arc<dyn Steps>,
    ) -> Result<Vec<Option<Arc<LayerKey>>>> {
        if !layers.iter().any(is_encrypted) {
            return Ok(vec![None; layers.len()]);
        }
        let path = self.key_providers.clone();
        let read = blocking(move || path.as_deref().map(KeyProviders::read).transpose());
        let providers = read.await?.unwrap_or_default();
        let image = reference.to_string();
        let mut keys = Vec::with_capacity(layers.len());
        let all: Vec<_> = layers.iter().zip(diff_ids).collect();
        for some in all.chunks(CONCURRENT_UNWRAPS) {
            let unwrapping = some.iter().map(|(layer, diff_id)| async {
                if !is_encrypted(layer) {
                    return Ok(None);
                }
                let work = providers.unwrap(self.provider_timeout, &image, layer, diff_id);
                let key = observed(&**steps, Step::UnwrapKey, Some(diff_id.short()), work).await?;
                Ok(Some(Arc::new(key)))
            });
            keys.extend(try_join_all(unwrapping).await?);
        }
        Ok(keys)
    }
}

/// Returns whether the content of a descriptor is encrypted.
pub(crate) fn is_encrypted(descriptor: &Descriptor) -> bool {
    descriptor.media_type.ends_with(SUFFIX)
}

impl KeyProviders {
    /// Unwraps the key of a layer with the first key provider that succeeds.
    async fn unwrap(
        &self,
        timeout: Duration,
        image: &str,
        layer: &Descriptor,
        diff_id: &Digest,
    ) -> Result<LayerKey> {
        let what = format!("image {image}: encrypted layer {}", layer.digest);
        let recipients: Vec<_> = layer
            .annotations
            .iter()
            .filter_map(|(name, value)| Some((name.strip_prefix(KEYS)?, value)))
            .filter(|(_, value)| !value.is_empty())
            .collect();
        if recipients.is_empty() {
            return Err(Error::invalid(what, "it has no wrapped key"));
        }
        let names: Vec<_> = recipients.iter().map(|(name, _)| shown(name)).collect();
        let mut reasons = vec![format!("its key is wrapped for {}", names.join(", "))];
        let mut cause = KeyFailure::Unsupported;
        for (recipient, value) in &recipients {
            let Some(name) = recipient.strip_prefix(PROVIDER) else {
                continue;
            };
            let wrapped = wrapped(value).map_err(|reason| {
                Error::invalid(&what, format!("key for {}: {reason}", shown(recipient)))
            })?;
            let Some(provider) = self.get(name) else {
                if cause == KeyFailure::Unsupported {
                    cause = KeyFailure::NotConfigured;
                }
                reasons.push(format!("key provider {} is not configured", shown(name)));
                continue;
            };
            for key in wrapped {
                match provider.unwrap(&key, timeout).await {
                    Ok(options) => {
                        let key = LayerKey::parse(&options, &layer.annotations, diff_id);
                        return key.map_err(|reason| Error::invalid(what, reason));
                    }
                    Err(reason) => {
                        cause = KeyFailure::Provider;
                        reasons.push(format!("key provider {}: {reason}", shown(name)));
                    }
                }
            }
        }
        if cause == KeyFailure::Unsupported {
            reasons.push("only key providers are supported".to_owned());
        }
        reasons.dedup();
        reasons.truncate(names.len() + 5);
        Err(Error::NoLayerKey {
            image: image.to_owned(),
            layer: layer.digest.clone(),
            cause,
            reason: reasons.join("; "),
        })
    }
}

/// The wrapped keys of an annotation: base64, with commas between several keys.
fn wrapped(value: &str) -> std::result::Result<Vec<Vec<u8>>, String> {
    let all: Vec<_> = value.split(',').collect();
    if all.len() > MAX_WRAPPED {
        return Err(format!(
            "{} wrapped keys, at most {MAX_WRAPPED} are allowed",
            all.len()
        ));
    }
    let decoded = all.iter().map(|one| STANDARD.decode(one));
    let decoded = decoded.collect::<std::result::Result<_, _>>();
    decoded.map_err(|_| "not base64".to_owned())
}

/// The name of a recipient, which the image chooses, for people.
fn shown(name: &str) -> String {
    let plain = name.chars().filter(|c| !c.is_control());
    plain.take(MAX_SHOWN).collect()
}

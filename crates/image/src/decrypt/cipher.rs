//! AES-256-CTR with an HMAC of the encrypted content, as a stream.

use std::io::{self, Read};

use aes::Aes256;
use ctr::Ctr128BE;
use ctr::cipher::{KeyIvInit as _, StreamCipher as _};
use ring::hmac;

use super::options::LayerKey;
use crate::digest::{Digest, Hasher};
use crate::error::{Error, carry};

/// Decrypts a layer. The end is returned only if HMAC and digest are right; bytes that were read before must not be used.
pub(crate) struct DecryptReader<'a, R> {
    inner: R,
    cipher: Ctr128BE<Aes256>,
    key: &'a LayerKey,
    diff_id: &'a Digest,
    hmac: Option<hmac::Context>,
    /// The digest of the decrypted content, unless the digest to compare is the archive's, which is checked anyway.
    plain: Option<(&'a Digest, Hasher)>,
}

impl<'a, R: Read> DecryptReader<'a, R> {
    pub(crate) fn new(inner: R, key: &'a LayerKey, diff_id: &'a Digest) -> Self {
        let digest = key.plain.as_ref().filter(|digest| *digest != diff_id);
        let hmac = hmac::Key::new(hmac::HMAC_SHA256, &*key.key);
        Self {
            inner,
            cipher: Ctr128BE::new((&*key.key).into(), (&key.nonce).into()),
            key,
            diff_id,
            hmac: Some(hmac::Context::with_key(&hmac)),
            plain: digest.map(|digest| (digest, digest.hasher())),
        }
    }

    /// Reads the rest, and returns the error of the content as a whole.
    pub(crate) fn verdict(&mut self) -> io::Result<()> {
        io::copy(self, &mut io::sink()).map(drop)
    }

    fn end(&mut self) -> io::Result<()> {
        let Some(hmac) = self.hmac.take() else {
            return Ok(());
        };
        if !is_same(hmac.sign().as_ref(), &self.key.hmac) {
            let reason = "wrong HMAC: the encrypted content was changed, or its key is another one";
            let what = format!("encrypted layer {}", self.diff_id);
            return Err(carry(Error::invalid(what, reason)));
        }
        match self.plain.take() {
            Some((digest, hasher)) => digest.compare("decrypted layer", hasher).map_err(carry),
            None => Ok(()),
        }
    }
}

impl<R: Read> Read for DecryptReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let length = self.inner.read(buffer)?;
        if length == 0 {
            self.end()?;
            return Ok(0);
        }
        let content = &mut buffer[..length];
        if let Some(hmac) = &mut self.hmac {
            hmac.update(content);
        }
        self.cipher.apply_keystream(content);
        if let Some((_, hasher)) = &mut self.plain {
            hasher.update(content);
        }
        Ok(length)
    }
}

/// Compares without telling by the time where the first difference is.
fn is_same(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |all, (a, b)| all | (a ^ b));
    a.len() == b.len() && differences == 0
}

//! Content digests.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256, Sha512};
use thiserror::Error;

/// `sha256:` or `sha512:` and the digest in lower-case hex. Safe as a file name once the colon is replaced.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(Box<str>);

/// Not a digest of a supported algorithm.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[error("not a digest: sha256 or sha512, a colon, and 64 or 128 lower-case hex digits")]
pub struct InvalidDigest;

/// Returns whether a byte is a hex digit in lower case.
pub(crate) const fn is_lower_hex(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

impl Digest {
    /// Parses a digest strictly.
    ///
    /// # Errors
    ///
    /// Another algorithm, length or spelling.
    pub fn parse(text: &str) -> Result<Self, InvalidDigest> {
        let (algorithm, hex) = text.split_once(':').ok_or(InvalidDigest)?;
        let length = match algorithm {
            "sha256" => 64,
            "sha512" => 128,
            _ => return Err(InvalidDigest),
        };
        if hex.len() != length || !hex.bytes().all(is_lower_hex) {
            return Err(InvalidDigest);
        }
        Ok(Self(text.into()))
    }

    /// The SHA-256 digest of these bytes.
    #[must_use]
    pub fn sha256(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::sha256();
        hasher.update(bytes);
        hasher.finish()
    }

    /// The digest with its algorithm.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The hex digits without the algorithm.
    #[must_use]
    pub fn hex(&self) -> &str {
        self.0.split_once(':').map_or(&self.0, |(_, hex)| hex)
    }

    /// The digest as a file name. The colon is replaced, because overlayfs uses it as a separator in mount options.
    pub(super) fn file_name(&self) -> String {
        self.0.replace(':', "-")
    }

    /// The inverse of [`Self::file_name`].
    pub(super) fn from_file_name(name: &str) -> Result<Self, InvalidDigest> {
        Self::parse(&name.replacen('-', ":", 1))
    }

    /// The beginning, as tools print it.
    pub(super) fn short(&self) -> &str {
        const SHOWN: usize = "sha256:".len() + 12;
        &self.0[..SHOWN]
    }

    /// A hasher of the same algorithm.
    pub(super) fn hasher(&self) -> Hasher {
        if self.0.starts_with("sha512:") {
            Hasher::Sha512(Sha512::new())
        } else {
            Hasher::sha256()
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = InvalidDigest;

    fn try_from(text: String) -> Result<Self, InvalidDigest> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0.into()
    }
}

/// Computes a digest incrementally.
#[derive(Clone, Debug)]
pub(super) enum Hasher {
    Sha256(Sha256),
    Sha512(Sha512),
}

impl Hasher {
    pub(super) fn sha256() -> Self {
        Self::Sha256(Sha256::new())
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    pub(super) fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => write("sha256:", &hasher.finalize()),
            Self::Sha512(hasher) => write("sha512:", &hasher.finalize()),
        }
    }
}

fn write(algorithm: &str, bytes: &[u8]) -> Digest {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(algorithm.len() + 2 * bytes.len());
    text.push_str(algorithm);
    for byte in bytes {
        text.push(char::from(HEX[usize::from(byte >> 4)]));
        text.push(char::from(HEX[usize::from(byte & 15)]));
    }
    Digest(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn the_digest_of_empty_input() {
        assert_eq!(Digest::sha256(b"").as_str(), EMPTY);
    }

    #[test]
    fn only_canonical_digests_are_parsed() {
        let digest = Digest::parse(EMPTY).expect("a digest");
        assert_eq!(Digest::from_file_name(&digest.file_name()), Ok(digest));
        let long = format!("sha512:{}", "0".repeat(128));
        assert!(Digest::parse(&long).is_ok());
        for wrong in [
            "",
            "sha256:",
            "e3b0",
            "md5:d41d8cd98f00b204e9800998ecf8427e",
            &EMPTY.to_uppercase(),
            &EMPTY[..70],
            &format!("{EMPTY}0"),
            &format!("sha256:../{}", "0".repeat(61)),
        ] {
            assert_eq!(Digest::parse(wrong), Err(InvalidDigest), "{wrong}");
        }
    }
}

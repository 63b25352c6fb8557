//! Errors of the crate.

use std::fmt::Display;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criscope_linux::free_space::{MinFree, Shortage};
use thiserror::Error;

use super::digest::{Digest, Hasher};

/// Why a pull, an import, an export or another operation on images failed. Cheap to clone, because all pulls that wait for a layer get
/// its error.
///
/// No text contains a secret known to the crate: URLs have no query, responses of registries are truncated.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// Neither a reference nor an ID.
    #[error("invalid image reference \"{reference}\": {reason}")]
    InvalidReference {
        /// The input.
        reference: String,
        /// The cause.
        reason: &'static str,
    },
    /// A prefix of more than one image ID.
    #[error("image id \"{prefix}\" is the beginning of more than one id")]
    AmbiguousId {
        /// The input.
        prefix: String,
    },
    /// Not in the store, or not in the registry.
    #[error("{what}: not found")]
    NotFound {
        /// The image, layer or blob.
        what: String,
    },
    /// The registry requires credentials, or rejected those it received.
    #[error("{host}: authentication failed: {reason}")]
    Unauthenticated {
        /// The registry or its token service.
        host: String,
        /// The error of the registry or the operating system.
        reason: String,
    },
    /// The registry accepted the credentials, and denies access.
    #[error("{host}: access denied: {reason}")]
    PermissionDenied {
        /// The registry.
        host: String,
        /// The error of the registry or the operating system.
        reason: String,
    },
    /// No response, or only responses that ask to retry later. The kubelet recognises the first word of the text
    /// (`ErrRegistryUnavailable` in `pkg/kubelet/images/types.go`).
    #[error("RegistryUnavailable: {host}: {reason}")]
    RegistryUnavailable {
        /// The registry.
        host: String,
        /// The last failure.
        reason: String,
    },
    /// Several servers were asked one after the other, such as mirrors and then the registry.
    #[error("{}", all_servers(what, answers, *telling))]
    AllServersFailed {
        /// The image or the blob.
        what: String,
        /// The answer of each server, in the order in which they were asked; at least two.
        answers: Vec<ServerAnswer>,
        /// The index of the answer that tells most. Its kind is that of this error.
        telling: usize,
    },
    /// A response that violates the protocol.
    #[error("{host}: unusable answer: {reason}")]
    BadResponse {
        /// The registry.
        host: String,
        /// The cause.
        reason: String,
    },
    /// The caller's deadline has passed.
    #[error("deadline exceeded while pulling {reference}")]
    DeadlineExceeded {
        /// The image.
        reference: String,
    },
    /// All callers that waited for it have been cancelled.
    #[error("cancelled: no caller waits for {what} any more")]
    Cancelled {
        /// The layer.
        what: String,
    },
    /// Content does not match its digest.
    #[error("{what}: wrong digest: expected {expected}, got {found}")]
    WrongDigest {
        /// The kind of content.
        what: &'static str,
        /// The digest it was requested by.
        expected: Digest,
        /// The digest of the content.
        found: Digest,
    },
    /// A manifest, configuration or archive that cannot be used.
    #[error("{what}: {reason}")]
    Invalid {
        /// The object.
        what: String,
        /// The cause.
        reason: String,
    },
    /// A verifier refuses the image, or cannot decide. The kubelet recognises the first word of the text
    /// (`ErrSignatureValidationFailed` in `k8s.io/cri-api/pkg/errors`).
    #[error("SignatureValidationFailed: {reference}: {reason}")]
    SignatureValidationFailed {
        /// The image.
        reference: String,
        /// The cause.
        reason: String,
    },
    /// The key of an encrypted layer is not available.
    #[error("image {image}: layer {layer} is encrypted: {reason}")]
    NoLayerKey {
        /// The image.
        image: String,
        /// The digest of the encrypted layer.
        layer: Digest,
        /// The kind of the cause.
        cause: KeyFailure,
        /// The recipients that the key is wrapped for, and the failure of each key provider.
        reason: String,
    },
    /// Layers came encrypted, and an archive would contain them in plain text.
    #[error(
        "image {image} came encrypted, and the archive would contain it decrypted: that must be allowed"
    )]
    Decrypted {
        /// The image.
        image: String,
    },
    /// The image has no manifest for this platform.
    #[error("{what}: no image for {wanted}, only for {offered}")]
    NoPlatform {
        /// The image.
        what: String,
        /// The platform of the store.
        wanted: String,
        /// The platforms of the image.
        offered: String,
    },
    /// A layer that cannot be unpacked, or violates a rule.
    #[error("layer {layer}: {entry}: {reason}")]
    Unpack {
        /// The layer's diff ID.
        layer: Digest,
        /// The entry of the archive.
        entry: String,
        /// The cause.
        reason: String,
    },
    /// A limit is exceeded.
    #[error("{what}: {reason}")]
    TooLarge {
        /// The object.
        what: String,
        /// The limit.
        reason: String,
    },
    /// Not enough free space or inodes.
    #[error("{}: no space: {shortage}", path.display())]
    NoSpace {
        /// The directory or file.
        path: PathBuf,
        /// What is short.
        shortage: Shortage,
    },
    /// Another process uses the store.
    #[error("{}: in use by another process", path.display())]
    Locked {
        /// The root of the store.
        path: PathBuf,
    },
    /// A configuration file that cannot be used.
    #[error("{}: {reason}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A system call failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The error of the registry or the operating system.
        source: Arc<io::Error>,
    },
    /// A bug in this crate, such as a task that has panicked.
    #[error("internal: {what}")]
    Internal {
        /// The part that failed.
        what: String,
    },
}

/// Why the key of a layer is not available.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum KeyFailure {
    /// None of its recipients is a key provider.
    Unsupported,
    /// None of the key providers that it is wrapped for is configured.
    NotConfigured,
    /// A key provider failed; it may succeed later.
    Provider,
}

/// The answer of one of several servers.
#[derive(Clone, Debug)]
pub struct ServerAnswer {
    /// Host and port.
    pub server: String,
    /// The error.
    pub error: Error,
}

impl Error {
    pub(super) fn io(path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        let (path, source) = (path.as_ref().to_owned(), source.into());
        if source.kind() == io::ErrorKind::FileTooLarge {
            return Self::too_large(path.display().to_string(), source.to_string());
        }
        let source = Arc::new(source);
        Self::Io { path, source }
    }

    pub(super) fn invalid(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid {
            what: what.into(),
            reason: reason.into(),
        }
    }

    pub(super) fn too_large(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::TooLarge {
            what: what.into(),
            reason: reason.into(),
        }
    }

    pub(super) fn cancelled(what: impl Into<String>) -> Self {
        Self::Cancelled { what: what.into() }
    }

    pub(super) fn missing_image(image: impl Display) -> Self {
        Self::NotFound {
            what: format!("image {image}"),
        }
    }

    /// The answer that tells most, if several servers failed; otherwise the error itself.
    #[must_use]
    pub fn telling(&self) -> &Self {
        match self {
            Self::AllServersFailed {
                answers, telling, ..
            } => answers.get(*telling).map_or(self, |answer| &answer.error),
            other => other,
        }
    }

    /// Returns whether the server that was asked last, the registry itself, does not have it.
    pub(super) fn is_not_found(&self) -> bool {
        match self {
            Self::AllServersFailed { answers, .. } => {
                let last = answers.last();
                last.is_some_and(|answer| matches!(answer.error, Self::NotFound { .. }))
            }
            other => matches!(other, Self::NotFound { .. }),
        }
    }

    /// Returns whether a server was silent for the whole timeout. Another request would wait as long, with any credentials.
    pub(super) fn is_silence(&self) -> bool {
        match self.telling() {
            Self::RegistryUnavailable { reason, .. } => reason.starts_with(TIMED_OUT),
            _ => false,
        }
    }

    pub(super) fn internal(what: impl Into<String>) -> Self {
        Self::Internal { what: what.into() }
    }
}

/// Begins the reason of [`Error::RegistryUnavailable`] if a server was silent for as long as it may.
pub(super) const TIMED_OUT: &str = "timed out: ";

/// Begins texts that the kubelet knows: see [`Error::RegistryUnavailable`].
const UNAVAILABLE: &str = "RegistryUnavailable: ";
/// Most servers of one error that are named, and most bytes of the answer of each.
const MAX_ANSWERS: usize = 6;
const MAX_ANSWER: usize = 900;

/// The text of [`Error::AllServersFailed`]. Only the kubelet's word is not repeated.
fn all_servers(what: &str, answers: &[ServerAnswer], telling: usize) -> String {
    let word = match answers.get(telling).map(|answer| &answer.error) {
        Some(Error::RegistryUnavailable { .. }) => UNAVAILABLE,
        _ => "",
    };
    let left_out = answers.len().saturating_sub(MAX_ANSWERS);
    let first = answers.len().min(MAX_ANSWERS - 1);
    let mut shown: Vec<_> = answers[..first].iter().map(ServerAnswer::text).collect();
    if left_out > 0 {
        shown.push(format!("{left_out} more"));
    }
    if first < answers.len() {
        shown.extend(answers.last().map(ServerAnswer::text));
    }
    let (count, shown) = (answers.len(), shown.join("; then "));
    let text = format!("{what}: {count} servers were asked: {shown}");
    format!("{word}{text}")
}

impl ServerAnswer {
    fn text(&self) -> String {
        let text = self.error.to_string();
        let text = text.strip_prefix(UNAVAILABLE).unwrap_or(&text);
        let end = text.floor_char_boundary(MAX_ANSWER);
        let (text, rest) = text.split_at(end);
        let cut = if rest.is_empty() { "" } else { "..." };
        if text.contains(&self.server) {
            return format!("{text}{cut}");
        }
        format!("{}: {text}{cut}", self.server)
    }
}

/// [`std::result::Result`] with [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Adds the path to an I/O error.
pub(super) trait At<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::io(path, error))
    }
}

/// Checks that enough space stays free on the disk of a directory after this many further bytes. `path` is for errors.
pub(super) fn check_space(
    min_free: MinFree,
    dir: impl AsFd,
    path: &Path,
    planned: u64,
) -> Result<()> {
    match min_free.shortage(dir, planned).at(path)? {
        Some(shortage) => Err(Error::NoSpace {
            path: path.to_owned(),
            shortage,
        }),
        None => Ok(()),
    }
}

impl Digest {
    /// Checks that these bytes have this digest.
    pub(super) fn check(&self, what: &'static str, bytes: &[u8]) -> Result<()> {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        self.compare(what, hasher)
    }

    /// Checks that the hashed bytes have this digest.
    pub(super) fn compare(&self, what: &'static str, hasher: Hasher) -> Result<()> {
        let found = hasher.finish();
        if found == *self {
            return Ok(());
        }
        let expected = self.clone();
        Err(Error::WrongDigest {
            what,
            expected,
            found,
        })
    }
}

/// Wraps an error of this crate for readers, which return [`io::Error`].
pub(super) fn carry(error: Error) -> io::Error {
    io::Error::other(error)
}

/// The inverse of [`carry`].
pub(super) fn carried(error: io::Error) -> std::result::Result<Error, io::Error> {
    error.downcast::<Error>()
}

/// An error about invalid contents of a layer.
pub(super) fn bad(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha512_digests_are_checked() {
        let content = b"content";
        let mut hasher = Digest::parse(&format!("sha512:{}", "0".repeat(128)))
            .expect("a digest")
            .hasher();
        hasher.update(content);
        let digest = hasher.finish();
        digest.check("blob", content).expect("matching digest");
        assert!(digest.check("blob", b"other").is_err());
    }
}

//! What can go wrong with an image, in words for the event of a pod, and the gRPC code of each.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tonic::Code;

use super::digest::Digest;

/// Why something about an image did not work. Cheap to clone, because all that wait for one layer hear of it.
///
/// No text holds a secret: addresses are without their query, answers of registries are cut.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// Neither a reference nor an id.
    #[error("invalid image reference \"{reference}\": {reason}")]
    InvalidReference {
        /// As it was given.
        reference: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The beginning of more than one image id.
    #[error("image id \"{prefix}\" is the beginning of more than one id")]
    AmbiguousId {
        /// As it was given.
        prefix: String,
    },
    /// Not here, or not in the registry.
    #[error("{what}: not found")]
    NotFound {
        /// The image, or what of it.
        what: String,
    },
    /// The registry wants credentials, or others.
    #[error("{host}: authentication failed: {reason}")]
    Unauthenticated {
        /// The registry or its token service.
        host: String,
        /// What it said.
        reason: String,
    },
    /// The registry knows who asks, and does not let them.
    #[error("{host}: access denied: {reason}")]
    PermissionDenied {
        /// The registry.
        host: String,
        /// What it said.
        reason: String,
    },
    /// No answer, or only answers that ask to come back later. The kubelet knows the first word
    /// (`ErrRegistryUnavailable` in its `pkg/kubelet/images/types.go`).
    #[error("RegistryUnavailable: {host}: {reason}")]
    RegistryUnavailable {
        /// The registry.
        host: String,
        /// The last failure.
        reason: String,
    },
    /// The registry answered with something that no registry should.
    #[error("{host}: unusable answer: {reason}")]
    BadAnswer {
        /// The registry.
        host: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The caller's deadline ended first.
    #[error("deadline exceeded while pulling {reference}")]
    DeadlineExceeded {
        /// The image.
        reference: String,
    },
    /// Everyone who waited has gone.
    #[error("cancelled: nobody waits for {what} any more")]
    Cancelled {
        /// The layer.
        what: String,
    },
    /// Content is not what its name says.
    #[error("{what}: wrong digest: expected {expected}, got {found}")]
    WrongDigest {
        /// What kind of content.
        what: &'static str,
        /// The name it goes by.
        expected: Digest,
        /// The digest of what came.
        found: Digest,
    },
    /// A manifest, configuration or archive that cannot be used.
    #[error("{what}: {reason}")]
    Invalid {
        /// What it is.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Nothing in the image is for this machine.
    #[error("{what}: no image for {wanted}, only for {offered}")]
    NoPlatform {
        /// The image.
        what: String,
        /// Of this machine.
        wanted: String,
        /// Of the image.
        offered: String,
    },
    /// A layer that cannot be unpacked, or must not.
    #[error("layer {layer}: {entry}: {reason}")]
    Unpack {
        /// The layer's diff id.
        layer: Digest,
        /// The entry of its archive.
        entry: String,
        /// What is wrong with it.
        reason: String,
    },
    /// More than a limit allows.
    #[error("{what}: {reason}")]
    TooLarge {
        /// What it is.
        what: String,
        /// Which limit.
        reason: String,
    },
    /// The disk would be full.
    #[error("{}: no space: {free} bytes are free, {needed} are needed", path.display())]
    NoSpace {
        /// Where.
        path: PathBuf,
        /// Bytes free.
        free: u64,
        /// Bytes wanted, with what must stay free.
        needed: u64,
    },
    /// The disk would have no inodes left.
    #[error("{}: no space: {free} inodes are free, {needed} are needed", path.display())]
    NoInodes {
        /// Where.
        path: PathBuf,
        /// Inodes free.
        free: u64,
        /// Those that must stay free.
        needed: u64,
    },
    /// Another process uses the image store.
    #[error("{}: in use by another process", path.display())]
    Locked {
        /// The root of the store.
        path: PathBuf,
    },
    /// A settings file that cannot be used.
    #[error("{}: {reason}", path.display())]
    Settings {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system said no.
    #[error("{}: {source}", path.display())]
    Io {
        /// Where.
        path: PathBuf,
        /// What it said.
        source: Arc<io::Error>,
    },
    /// A part of this program has ended early, which is a mistake in it.
    #[error("internal: {what}")]
    Internal {
        /// Which part.
        what: String,
    },
}

impl Error {
    /// The code that the CRI's callers expect.
    ///
    /// `RegistryUnavailable` is `Unknown`: only of that code does the kubelet strip the code's own words, and only then
    /// does it find the word that it looks for at the beginning (`parseStatusErr` in its `cri-client`).
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::InvalidReference { .. } | Self::AmbiguousId { .. } => Code::InvalidArgument,
            Self::NotFound { .. } => Code::NotFound,
            Self::Unauthenticated { .. } => Code::Unauthenticated,
            Self::PermissionDenied { .. } => Code::PermissionDenied,
            Self::RegistryUnavailable { .. } | Self::BadAnswer { .. } => Code::Unknown,
            Self::DeadlineExceeded { .. } => Code::DeadlineExceeded,
            Self::Cancelled { .. } => Code::Cancelled,
            Self::WrongDigest { .. } => Code::DataLoss,
            Self::Invalid { .. }
            | Self::NoPlatform { .. }
            | Self::Unpack { .. }
            | Self::Settings { .. } => Code::FailedPrecondition,
            Self::TooLarge { .. } | Self::NoSpace { .. } | Self::NoInodes { .. } => {
                Code::ResourceExhausted
            }
            Self::Locked { .. } => Code::Unavailable,
            Self::Io { .. } | Self::Internal { .. } => Code::Internal,
        }
    }

    pub(super) fn io(path: impl AsRef<Path>, source: impl Into<io::Error>) -> Self {
        let path = path.as_ref().to_owned();
        let source = Arc::new(source.into());
        Self::Io { path, source }
    }

    pub(super) fn invalid(what: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Invalid {
            what: what.into(),
            reason: reason.into(),
        }
    }

    pub(super) fn internal(what: impl Into<String>) -> Self {
        Self::Internal { what: what.into() }
    }
}

/// [`std::result::Result`] with [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Puts the path to an error of the operating system.
pub(super) trait At<T> {
    fn at(self, path: impl AsRef<Path>) -> Result<T>;
}

impl<T, E: Into<io::Error>> At<T> for std::result::Result<T, E> {
    fn at(self, path: impl AsRef<Path>) -> Result<T> {
        self.map_err(|error| Error::io(path, error))
    }
}

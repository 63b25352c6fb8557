//! Why a verb failed, and which gRPC code says so.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criscope_linux::{namespace, rootfs};
use tonic::{Code, Status};

use super::code::GrpcCode as _;
use super::oci::OciError;
use super::oci::spec::SpecError;
use super::shim_client;
use super::store::refused::Refused;
use crate::cri::redact;

/// What a verb works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A pod sandbox.
    Sandbox,
    /// A container.
    Container,
    /// An image.
    Image,
}

impl What {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "pod sandbox",
            Self::Container => "container",
            Self::Image => "image",
        }
    }
}

/// Why a verb failed. Cheap to clone: all callers that wait for one attempt are told the same.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// There is no such object.
    #[error("{} {id:?} does not exist", what.name())]
    NotFound {
        /// Of which kind.
        what: What,
        /// As the caller named it.
        id: String,
    },
    /// A prefix of an id that several have.
    #[error("{} {id:?} is the beginning of several ids", what.name())]
    Ambiguous {
        /// Of which kind.
        what: What,
        /// As the caller named it.
        id: String,
    },
    /// The name is another's.
    #[error("name {name:?} is reserved for {} {by}", what.name())]
    Taken {
        /// Of which kind.
        what: What,
        /// The name.
        name: String,
        /// Its owner's id.
        by: String,
    },
    /// The request makes no sense, whatever the state.
    #[error("{0}")]
    Invalid(String),
    /// The request makes no sense in the present state.
    #[error("{0}")]
    State(String),
    /// Not in this configuration, or not on this node.
    #[error("{0}")]
    Unsupported(String),
    /// The caller's time was over first. What was begun goes on, or was undone.
    #[error("{0}")]
    Deadline(String),
    /// The caller went away.
    #[error("{0}")]
    Cancelled(String),
    /// There is more than there may be.
    #[error("{0}")]
    Exhausted(String),
    /// Not yet, or not now.
    #[error("{0}")]
    Unavailable(String),
    /// The directories, or what is in them, are not for this daemon.
    #[error(transparent)]
    Refused(Arc<Refused>),
    /// The network.
    #[error("network: {0}")]
    Network(Arc<criscope_cni::Error>),
    /// The configuration of a network from a template.
    #[error(transparent)]
    Template(Arc<criscope_cni::TemplateError>),
    /// An image.
    #[error(transparent)]
    Image(Arc<criscope_image::Error>),
    /// The specification.
    #[error(transparent)]
    Spec(Arc<SpecError>),
    /// The OCI runtime.
    #[error(transparent)]
    Oci(Arc<OciError>),
    /// The shim, or the OCI runtime by way of it.
    #[error(transparent)]
    Process(Arc<shim_client::Error>),
    /// The namespaces.
    #[error(transparent)]
    Namespace(Arc<namespace::Error>),
    /// The root file system.
    #[error(transparent)]
    Rootfs(Arc<rootfs::Error>),
    /// The kernel or the file system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// A part of this program ended early, which is a mistake in it.
    #[error("internal: {0}")]
    Internal(String),
}

/// [`std::result::Result`] with [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error in a log. Plugins, OCI runtimes and registries put whatever they were told into theirs: what may be a secret is
/// hidden. The caller of a verb is told all.
pub(in crate::runtime) fn shown(error: &impl fmt::Display) -> Box<str> {
    redact::error_text(&error.to_string(), None, None, None)
}

/// Who works on a process is told that nobody is left who knows of it.
pub(in crate::runtime) fn shim_gone() -> Error {
    Error::Unavailable("the pod's shim has gone".to_owned())
}

impl Error {
    /// An object that is not there.
    pub fn not_found(what: What, id: impl Into<String>) -> Self {
        let id = id.into();
        Self::NotFound { what, id }
    }

    /// A request that makes no sense.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }

    /// A request that makes no sense now.
    pub fn state(why: impl Into<String>) -> Self {
        Self::State(why.into())
    }

    /// What was tried on a path, and what came of it.
    pub fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(source.into()),
        }
    }

    /// A start that is refused.
    pub fn refused(why: Refused) -> Self {
        Self::Refused(Arc::new(why))
    }

    /// Whether it says that there is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// What a gRPC caller is told.
    pub fn code(&self) -> Code {
        match self {
            Self::NotFound { .. } => Code::NotFound,
            Self::Ambiguous { .. } | Self::Invalid(_) => Code::InvalidArgument,
            Self::Taken { .. } => Code::AlreadyExists,
            Self::State(_) | Self::Refused(_) => Code::FailedPrecondition,
            Self::Unsupported(_) => Code::Unimplemented,
            Self::Deadline(_) => Code::DeadlineExceeded,
            Self::Cancelled(_) => Code::Cancelled,
            Self::Exhausted(_) => Code::ResourceExhausted,
            Self::Unavailable(_) => Code::Unavailable,
            Self::Network(error) => error.code(),
            Self::Template(error) => error.code(),
            Self::Image(error) => error.code(),
            Self::Spec(error) => error.code(),
            Self::Oci(error) => error.code(),
            Self::Process(error) => error.code(),
            Self::Namespace(error) => error.code(),
            Self::Rootfs(error) => error.code(),
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Code::ResourceExhausted
            }
            Self::Io { .. } | Self::Internal(_) => Code::Internal,
        }
    }
}

/// What a verb's own parts say becomes one of ours.
macro_rules! from {
    ($($variant:ident($source:ty)),* $(,)?) => {$(
        impl From<$source> for Error {
            fn from(source: $source) -> Self {
                Self::$variant(Arc::new(source))
            }
        }
    )*};
}

from!(
    Network(criscope_cni::Error),
    Template(criscope_cni::TemplateError),
    Image(criscope_image::Error),
    Spec(SpecError),
    Oci(OciError),
    Process(shim_client::Error),
    Namespace(namespace::Error),
    Rootfs(rootfs::Error),
);

impl From<tokio::task::JoinError> for Error {
    fn from(error: tokio::task::JoinError) -> Self {
        Self::Internal(error.to_string())
    }
}

/// The longest message of a status, in bytes. It travels in a header (gRPC over HTTP/2, "Responses"): a caller that bounds
/// its headers would end the connection, and all calls on it, for a longer one.
const MAX_MESSAGE: usize = 8 << 10;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(error.code(), bounded(error.to_string()))
    }
}

/// The beginning of a message that is too long, with its full length: errors quote requests, plugins and OCI runtimes.
fn bounded(mut message: String) -> String {
    let length = message.len();
    if length > MAX_MESSAGE {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE));
        message.push_str(&format!("... ({length} bytes)"));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_status_is_bounded() {
        let short = Status::from(Error::invalid("short"));
        assert_eq!(short.message(), "short");
        let long = Status::from(Error::invalid("\u{e9}".repeat(1 << 20)));
        assert_eq!(long.code(), Code::InvalidArgument);
        assert!(long.message().len() < MAX_MESSAGE + 64);
        assert!(long.message().ends_with("... (2097152 bytes)"));
    }
}

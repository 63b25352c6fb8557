//! Errors of the verbs and their gRPC codes.

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
use criscope_cri::redact;

/// The kind of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A pod sandbox.
    Sandbox,
    /// A container.
    Container,
    /// An image.
    Image,
    /// The process of a container or sandbox, in containerd's words.
    Task,
}

impl What {
    /// The name for messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sandbox => "pod sandbox",
            Self::Container => "container",
            Self::Image => "image",
            Self::Task => "task",
        }
    }
}

/// An error of a verb. Cheap to clone: all callers that share an attempt receive the same error.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The object does not exist.
    #[error("{} {id:?} does not exist", what.name())]
    NotFound {
        /// The kind.
        what: What,
        /// The caller's name for the object.
        id: String,
    },
    /// An ambiguous prefix of an id.
    #[error("{} {id:?} is the beginning of several ids", what.name())]
    Ambiguous {
        /// The kind.
        what: What,
        /// The caller's name for the object.
        id: String,
    },
    /// The name belongs to another object.
    #[error("name {name:?} is reserved for {} {by}", what.name())]
    Taken {
        /// The kind.
        what: What,
        /// The name.
        name: String,
        /// The owner's id.
        by: String,
    },
    /// The request is invalid in any state.
    #[error("{0}")]
    Invalid(String),
    /// The request is not possible in the current state.
    #[error("{0}")]
    State(String),
    /// Not supported by the configuration or the node.
    #[error("{0}")]
    Unsupported(String),
    /// The deadline was exceeded. Work in progress continues, or was rolled back.
    #[error("{0}")]
    Deadline(String),
    /// The caller cancelled.
    #[error("{0}")]
    Cancelled(String),
    /// A limit is exceeded.
    #[error("{0}")]
    Exhausted(String),
    /// Temporarily not possible.
    #[error("{0}")]
    Unavailable(String),
    /// The directories or their contents do not belong to this daemon.
    #[error(transparent)]
    Refused(Arc<Refused>),
    /// The network.
    #[error("network: {0}")]
    Network(Arc<criscope_cni::Error>),
    /// The template of a network configuration.
    #[error(transparent)]
    Template(Arc<criscope_cni::TemplateError>),
    /// An image.
    #[error(transparent)]
    Image(Arc<criscope_image::Error>),
    /// The specification.
    #[error(transparent)]
    Spec(Arc<SpecError>),
    /// A plugin of the Node Resource Interface.
    #[error(transparent)]
    Nri(Arc<criscope_nri::EventError>),
    /// The OCI runtime.
    #[error(transparent)]
    Oci(Arc<OciError>),
    /// The shim, or the OCI runtime that it runs.
    #[error(transparent)]
    Process(Arc<shim_client::Error>),
    /// The namespaces.
    #[error(transparent)]
    Namespace(Arc<namespace::Error>),
    /// The root file system.
    #[error(transparent)]
    Rootfs(Arc<rootfs::Error>),
    /// A system call failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The failed operation, as a verb.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The cause.
        source: Arc<io::Error>,
    },
    /// A bug, such as a panicked task.
    #[error("internal: {0}")]
    Internal(String),
}

/// [`std::result::Result`] with [`enum@Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// An error as text for logs. Plugins, OCI runtimes and registries quote their input, so possible secrets are redacted. The
/// caller of a verb receives the full text.
pub(crate) fn shown(error: &impl fmt::Display) -> Box<str> {
    redact::error_text(&error.to_string(), None, None, None)
}

/// The error of operations on a process whose shim is gone.
pub(crate) fn shim_gone() -> Error {
    Error::Unavailable("the pod's shim is gone".to_owned())
}

impl Error {
    /// The error for an object that does not exist.
    pub fn not_found(what: What, id: impl Into<String>) -> Self {
        let id = id.into();
        Self::NotFound { what, id }
    }

    /// The error for an invalid request.
    pub fn invalid(why: impl Into<String>) -> Self {
        Self::Invalid(why.into())
    }

    /// The error for a request that is not possible in the current state.
    pub fn state(why: impl Into<String>) -> Self {
        Self::State(why.into())
    }

    /// An I/O error of an action on a path.
    pub fn io(action: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(source.into()),
        }
    }

    /// The error for a refused start of the daemon.
    pub fn refused(why: Refused) -> Self {
        Self::Refused(Arc::new(why))
    }

    /// Returns whether the object does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// The gRPC status code for the caller.
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
            // The code that containerd answers with; a plugin's result says nothing about this call.
            Self::Nri(_) => Code::Unknown,
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

/// Implements conversions from the errors of the parts.
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
    Nri(criscope_nri::EventError),
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

/// Maximum length of a status message, in bytes. It is sent in a header (gRPC over HTTP/2, "Responses"): a client with a
/// smaller limit on headers would close the connection, and with it all calls on it.
const MAX_MESSAGE: usize = 8 << 10;

impl From<Error> for Status {
    fn from(error: Error) -> Self {
        Self::new(error.code(), bounded(error.to_string()))
    }
}

/// Truncates a long message and appends its full length: errors quote requests, plugins and OCI runtimes.
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

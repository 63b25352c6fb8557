//! The gRPC status codes for errors of the library crates, which do not know gRPC.

use std::io;

use criscope_cni::TemplateError;
use criscope_image::KeyFailure;
use criscope_linux::cgroup::{self, usage};
use criscope_linux::{idmap, namespace, rootfs, sysctl};
use tonic::Code;

/// An error that a verb can return.
pub trait GrpcCode {
    /// The gRPC status code that the caller receives.
    fn code(&self) -> Code;
}

impl GrpcCode for idmap::Invalid {
    fn code(&self) -> Code {
        Code::InvalidArgument
    }
}

impl GrpcCode for sysctl::Error {
    fn code(&self) -> Code {
        match self {
            Self::Name { .. } | Self::NotNamespaced { .. } => Code::InvalidArgument,
            Self::Write { .. } => Code::Internal,
        }
    }
}

impl GrpcCode for namespace::Error {
    fn code(&self) -> Code {
        match self {
            Self::Id { .. } => Code::InvalidArgument,
            Self::Sysctl(error) => error.code(),
            Self::Exists { .. } => Code::AlreadyExists,
            Self::NotPinned { .. } => Code::NotFound,
            Self::Thread { .. } => Code::ResourceExhausted,
            Self::User { .. } => Code::FailedPrecondition,
            Self::Helper { .. } | Self::Io { .. } => Code::Internal,
        }
    }
}

impl GrpcCode for rootfs::Error {
    fn code(&self) -> Code {
        match self {
            Self::Exists { .. } => Code::AlreadyExists,
            Self::Invalid(_) => Code::InvalidArgument,
            Self::Kind { .. } | Self::Unsupported(_) => Code::FailedPrecondition,
            Self::TooManyVolumes { .. } | Self::OverBudget { .. } | Self::NoSpace { .. } => {
                Code::ResourceExhausted
            }
            Self::Io { source, .. } => match source.kind() {
                // An oversized file in the image, which no valid container needs.
                io::ErrorKind::FileTooLarge => Code::FailedPrecondition,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Code::ResourceExhausted
                }
                _ => Code::Internal,
            },
        }
    }
}

/// `RegistryUnavailable` maps to `Unknown`: only for that code does the kubelet strip the `rpc error` prefix, so that it
/// finds the word at the start of the message (`parseStatusErr` in its `cri-client`).
impl GrpcCode for criscope_image::Error {
    fn code(&self) -> Code {
        match self {
            Self::InvalidReference { .. } | Self::AmbiguousId { .. } => Code::InvalidArgument,
            Self::NotFound { .. } => Code::NotFound,
            Self::Unauthenticated { .. } => Code::Unauthenticated,
            Self::PermissionDenied { .. } => Code::PermissionDenied,
            Self::RegistryUnavailable { .. }
            | Self::BadResponse { .. }
            | Self::SignatureValidationFailed { .. } => Code::Unknown,
            Self::NoLayerKey { cause, .. } => match cause {
                KeyFailure::Unsupported | KeyFailure::NotConfigured => Code::FailedPrecondition,
                KeyFailure::Provider => Code::Unavailable,
            },
            Self::DeadlineExceeded { .. } => Code::DeadlineExceeded,
            Self::Cancelled { .. } => Code::Cancelled,
            Self::WrongDigest { .. } => Code::DataLoss,
            Self::Invalid { .. }
            | Self::Decrypted { .. }
            | Self::NoPlatform { .. }
            | Self::Unpack { .. }
            | Self::Settings { .. } => Code::FailedPrecondition,
            Self::TooLarge { .. } | Self::NoSpace { .. } => Code::ResourceExhausted,
            Self::Locked { .. } => Code::Unavailable,
            Self::Io { .. } | Self::Internal { .. } => Code::Internal,
            // Each answer is the error of one server.
            Self::AllServersFailed { .. } => match self.telling() {
                Self::AllServersFailed { .. } => Code::Unknown,
                telling => telling.code(),
            },
        }
    }
}

impl GrpcCode for cgroup::Error {
    fn code(&self) -> Code {
        match self {
            Self::NotFound { .. } => Code::NotFound,
            Self::Invalid { .. } => Code::InvalidArgument,
            Self::NotMounted => Code::FailedPrecondition,
            Self::Busy { .. } | Self::Io { .. } => Code::Internal,
        }
    }
}

impl GrpcCode for usage::Error {
    fn code(&self) -> Code {
        match self {
            Self::NotFound { .. } => Code::NotFound,
            Self::Io { .. } | Self::Format { .. } => Code::Internal,
        }
    }
}

impl GrpcCode for criscope_cni::Error {
    fn code(&self) -> Code {
        match self {
            Self::NotReady { .. } => Code::Unavailable,
            // CNI errors: 11 is "try again later"; 50 and 51 mean that the plugin is not available, or only partly.
            Self::Plugin { error, .. } if matches!(error.code, 11 | 50 | 51) => Code::Unavailable,
            Self::Invalid { .. } => Code::InvalidArgument,
            Self::PluginMissing { .. } => Code::FailedPrecondition,
            Self::TimedOut { .. } => Code::DeadlineExceeded,
            Self::NotUndone { add: error, .. } | Self::Several { first: error, .. } => error.code(),
            Self::Namespace(error) => error.code(),
            Self::Plugin { .. }
            | Self::PluginFailed { .. }
            | Self::BadResult { .. }
            | Self::Run { .. }
            | Self::Cache { .. } => Code::Internal,
        }
    }
}

impl GrpcCode for TemplateError {
    fn code(&self) -> Code {
        match self {
            Self::Cidr { .. } | Self::Template { .. } => Code::InvalidArgument,
            Self::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Code::ResourceExhausted
            }
            Self::Io { .. } => Code::Internal,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use criscope_cni::{Error, PluginError, Verb};

    use super::*;

    #[test]
    fn plugin_errors_have_the_code_that_tells_whether_to_retry() {
        let plugin = || "x".to_owned();
        let failed = |code| Error::Plugin {
            plugin: plugin(),
            verb: Verb::Add,
            error: PluginError {
                code,
                msg: "busy".to_owned(),
                details: String::new(),
            },
        };
        let why = || "why".to_owned();
        let timed_out = || Error::TimedOut {
            plugin: plugin(),
            verb: Verb::Add,
            after: Duration::from_secs(1),
        };
        for (error, code) in [
            (failed(11), Code::Unavailable),
            (failed(50), Code::Unavailable),
            (failed(7), Code::Internal),
            (Error::NotReady { why: why() }, Code::Unavailable),
            (
                Error::BadResult {
                    plugin: plugin(),
                    verb: Verb::Add,
                    why: why(),
                },
                Code::Internal,
            ),
            (timed_out(), Code::DeadlineExceeded),
            (
                Error::Invalid {
                    what: "pod name",
                    value: "a;b".to_owned(),
                },
                Code::InvalidArgument,
            ),
            (
                Error::NotUndone {
                    add: Box::new(timed_out()),
                    undo: Box::new(failed(7)),
                },
                Code::DeadlineExceeded,
            ),
        ] {
            assert_eq!(error.code(), code, "{error}");
        }
    }
}

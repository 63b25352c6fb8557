//! The gRPC code of each error of the libraries, which know nothing of gRPC.

use std::io;

use criscope_linux::{idmap, namespace, rootfs, sysctl};
use tonic::Code;

/// An error that a verb can end with.
pub trait GrpcCode {
    /// The gRPC code that the caller of the verb receives.
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
            Self::Io { source, .. } => match source.kind() {
                // A file of the image that no container needs to be so large.
                io::ErrorKind::FileTooLarge => Code::FailedPrecondition,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                    Code::ResourceExhausted
                }
                _ => Code::Internal,
            },
        }
    }
}

/// `RegistryUnavailable` is `Unknown`: of that code alone the kubelet strips the code's own words, and then finds the word at
/// the beginning of the message that it looks for (`parseStatusErr` in its `cri-client`).
impl GrpcCode for criscope_image::Error {
    fn code(&self) -> Code {
        match self {
            Self::InvalidReference { .. } | Self::AmbiguousId { .. } => Code::InvalidArgument,
            Self::NotFound { .. } => Code::NotFound,
            Self::Unauthenticated { .. } => Code::Unauthenticated,
            Self::PermissionDenied { .. } => Code::PermissionDenied,
            Self::RegistryUnavailable { .. } | Self::BadResponse { .. } => Code::Unknown,
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
}

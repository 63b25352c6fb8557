//! Whose fault a cause is: the question to whom an alert goes.

use super::cause::{CallFailure, FailureKind};
use super::fault::FaultClass;
use super::syncs::FailingSync;
use crate::episode_store::ExitRecord;
use crate::kubelet::sync_error::SyncError;
use criscope_cri::Method;
use criscope_cri::subject::ExitReason;

criscope_cri::named! {
    /// Whose fault a cause is. A metric label.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[repr(u8)]
    pub(crate) enum FaultOrigin {
        /// The pod's author: command, image name, credentials, probes, limits, the program itself.
        Pod = "pod",
        /// The node: its runtime, its disks, its programs, or a reason that is not known.
        Node = "node",
        /// The cluster: its API, its addresses.
        Cluster = "cluster",
        /// The registry, or the way to it.
        Registry = "registry",
    }
}

use FaultOrigin::{Cluster, Node, Pod, Registry};

impl FaultClass {
    /// Whose fault a class of faults is.
    pub(super) fn origin(self) -> FaultOrigin {
        match self {
            // The name of the image, and who may pull it.
            Self::ImageMissing
            | Self::NoLogin
            | Self::NoAccess
            | Self::Unauthorized
            | Self::Denied
            | Self::Reference
            | Self::Platform
            | Self::OldManifest
            | Self::Verifier
            | Self::Signature
            | Self::SignatureOfContainer
            | Self::LayerKey => Pod,
            // The container as it is specified.
            Self::CommandPath
            | Self::CommandMissing
            | Self::CommandOrInterpreterMissing
            | Self::CommandDenied
            | Self::CommandFormat
            | Self::WorkingDir
            | Self::User
            | Self::MemoryLimit
            | Self::CgroupLimit
            | Self::Sysctl
            | Self::HostPort
            | Self::MountType => Pod,
            Self::ApiAway
            | Self::ApiCertificate
            | Self::ApiDenied
            | Self::Addresses
            | Self::Dhcp => Cluster,
            Self::PartMissing
            | Self::LayerBroken
            | Self::ManifestBroken
            | Self::Digest
            | Self::NoRegistry
            | Self::RateLimited
            | Self::Dns
            | Self::Refused
            | Self::Unreachable
            | Self::PlainRedirect
            | Self::PlainHttp
            | Self::NoAnswer
            | Self::Stalled
            | Self::Certificate
            | Self::Tls
            | Self::Broke
            | Self::RegistryFails
            | Self::BadRequest => Registry,
            _ => Node,
        }
    }
}

impl CallFailure<'_> {
    /// Whose fault the failure is.
    pub(super) fn origin(&self) -> FaultOrigin {
        match &self.kind {
            // The pause image is the node's.
            FailureKind::PauseImage { fault } => fault
                .map(FaultClass::origin)
                .filter(|origin| *origin != Pod)
                .unwrap_or(Node),
            // The request explains it.
            _ if self
                .evidence
                .is_some_and(|evidence| evidence.is_of_author()) =>
            {
                Pod
            }
            kind => match kind.fault() {
                Some(fault) => fault.origin(),
                None if self.last.method == Method::PullImage && !self.is_of_runtime() => Registry,
                None => Node,
            },
        }
    }

    /// Returns whether a pull failed for something else than an answer of the registry.
    fn is_of_runtime(&self) -> bool {
        matches!(
            self.kind,
            FailureKind::Injected
                | FailureKind::NameReserved { .. }
                | FailureKind::CallerCancelled { .. }
        )
    }
}

impl FailingSync<'_> {
    /// Whose fault the failure is.
    pub(super) fn origin(&self) -> FaultOrigin {
        let error = self.sync.error.as_ref();
        let is_of_author = error.is_some_and(SyncError::is_of_author);
        if is_of_author { Pod } else { Node }
    }
}

/// Whose fault the end of a container is. A container without a limit of its own is killed when the memory of its pod or of the node
/// runs out.
pub(super) fn exit_origin(exit: &ExitRecord) -> FaultOrigin {
    let request = exit.request.as_deref();
    let has_no_limit = request.is_some_and(|request| request.memory == Some(0));
    let is_lost = matches!(exit.reason, ExitReason::Unknown | ExitReason::Evicted);
    if is_lost || exit.node_restarted.is_some() || exit.is_out_of_memory() && has_no_limit {
        Node
    } else {
        Pod
    }
}

//! Sentences on what the request for a container says.

use std::fmt::{self, Display, Formatter};

use crate::diagnosis::evidence::RequestEvidence;
use criscope_cri::container_request::{ContainerRequest, MountedVolume, SeccompKind, VolumeKind};
use criscope_cri::units;

/// The memory limit of a container that the kernel killed, as a suffix.
pub(super) fn memory_limit(request: Option<&ContainerRequest>) -> String {
    let known = request.filter(|request| request.memory.is_some());
    match known.map(|request| request.memory_limit()) {
        Some(Some(bytes)) => format!(", limit {}", size(bytes)),
        Some(None) => ", no limit of its own".to_owned(),
        None => String::new(),
    }
}

/// A size as people write limits: `24 MiB`.
pub(super) fn size(bytes: u64) -> String {
    for (unit, name) in [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    units::bytes(bytes)
}

/// A number of CPUs: `0.01 CPU`, `2 CPU`.
pub(super) fn cpus(millis: u32) -> String {
    format!("{} CPU", f64::from(millis) / 1000.0)
}

/// `an emptyDir over /bin`.
pub(super) fn volume(mount: &MountedVolume) -> String {
    let kind = match mount.kind {
        VolumeKind::EmptyDir => "an emptyDir",
        VolumeKind::ConfigMap => "a ConfigMap",
        VolumeKind::Secret => "a Secret",
        VolumeKind::Projected => "a projected volume",
        VolumeKind::DownwardApi => "a downwardAPI volume",
        VolumeKind::Image => "an image volume",
        VolumeKind::HostPath => "a hostPath",
        VolumeKind::Other => "a volume",
    };
    format!("{kind} over {}", mount.path)
}

impl Display for RequestEvidence<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::HidingVolume(mount) => f.write_str(&hidden_by(mount)),
            Self::HoldingVolume(mount) if mount.no_exec => {
                write!(f, "from {}, which is mounted noexec", volume(mount))
            }
            Self::HoldingVolume(mount) => write!(f, "from {}", volume(mount)),
            Self::MemoryLimit(bytes) => write!(f, "with a memory limit of {}", size(*bytes)),
            Self::Rights(request) => f.write_str(&rights(request).unwrap_or_default()),
            Self::ReadOnlyRoot => f.write_str("as the pod asks for a read-only root file system"),
            Self::PulledBefore(before) => write!(
                f,
                "pulled {} before and removed since",
                super::duration(*before)
            ),
            Self::ReadOnlyVolume(mount) => write!(f, "{} is read-only", volume(mount)),
        }
    }
}

/// A volume that hides files of the image.
pub(super) fn hidden_by(mount: &MountedVolume) -> String {
    format!("{} hides what the image has there", volume(mount))
}

/// A program that is missing although a volume was made for it, or is mounted over it.
pub(super) fn missing_in(mount: &MountedVolume, program: &str, error: &str) -> String {
    let volume = volume(mount);
    if *mount.path == *program {
        // The file is there: its mount has not failed.
        format!("the interpreter of {program} is not in the image; {program} is {volume}")
    } else if !program.starts_with('/') {
        format!("{program} is no executable file: it is {volume}")
    } else if error.contains(&format!("stat {program}")) {
        format!("{program} is not among the files of {volume}")
    } else {
        format!("{program}, or its interpreter, is not found; {program} comes from {volume}")
    }
}

/// What a container may not do: `run as user 1000, without capabilities`; `None` if nothing is restricted.
pub(super) fn rights(request: &ContainerRequest) -> Option<String> {
    let mut parts = Vec::new();
    if let Some(user) = request.user.filter(|user| *user > 0) {
        parts.push(format!("as user {user}"));
    }
    if request.drops_all_capabilities {
        parts.push("without capabilities".to_owned());
    }
    if request.read_only_root {
        parts.push("with a read-only root file system".to_owned());
    }
    match request.seccomp {
        Some(SeccompKind::RuntimeDefault) => {
            parts.push("with the runtime's seccomp profile".to_owned());
        }
        Some(SeccompKind::Localhost) => parts.push("with a seccomp profile of the node".to_owned()),
        Some(SeccompKind::Unconfined) | None => {}
    }
    (!parts.is_empty()).then(|| format!("run {}", parts.join(", ")))
}

/// The seccomp profile of a container whose system call was forbidden.
pub(super) fn seccomp(request: &ContainerRequest) -> Option<String> {
    let profile = match request.seccomp? {
        SeccompKind::RuntimeDefault => "the runtime's seccomp profile",
        SeccompKind::Localhost => "its seccomp profile",
        SeccompKind::Unconfined => return None,
    };
    Some(format!("{profile} may forbid a system call"))
}

//! Failpoints: the points of every verb after which a crash leaves work for recovery.
//!
//! A build with debug assertions kills itself at the failpoint named by the variable `CRISCOPE_CRASH_AT`, for tests of
//! recovery. A release build does not read the variable.

use std::env;
use std::fmt;

use criscope_image::FailpointHook;

/// The environment variable that names the failpoint.
const VARIABLE: &str = "CRISCOPE_CRASH_AT";

macro_rules! failpoints {
    ($($(#[$doc:meta])* $point:ident = $name:literal),* $(,)?) => {
        /// A point after which a crash leaves work for recovery.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Failpoint {$($(#[$doc])* $point),*}

        impl Failpoint {
            /// All failpoints, in the order of a pod's lifecycle.
            pub const ALL: &[Self] = &[$(Self::$point),*];

            /// The name.
            pub fn name(self) -> &'static str {
                match self {$(Self::$point => $name),*}
            }
        }
    };
}

failpoints! {
    /// The sandbox is recorded.
    SandboxRecorded = "sandbox.recorded",
    /// The files are written and its shm is mounted.
    SandboxFiles = "sandbox.files",
    /// The namespaces are pinned.
    SandboxNamespaces = "sandbox.namespaces",
    /// The shim is running.
    SandboxShim = "sandbox.shim",
    /// The network is attached.
    SandboxNetwork = "sandbox.network",
    /// The sandbox is ready, but the call has not returned.
    SandboxReady = "sandbox.ready",
    /// The container is recorded.
    ContainerRecorded = "container.recorded",
    /// The root file system is mounted.
    ContainerRootfs = "container.rootfs",
    /// The bundle is written.
    ContainerBundle = "container.bundle",
    /// The container is created, but the call has not returned.
    ContainerCreated = "container.created",
    /// The container is about to be started.
    ContainerStarting = "container.starting",
    /// The OCI runtime has created it.
    ContainerMade = "container.made",
    /// The container is running, but not yet recorded as such.
    ContainerStarted = "container.started",
    /// The process specification of an exec is written.
    ExecWritten = "exec.written",
    /// The exec process is running.
    ExecBegun = "exec.begun",
    /// The stop signal was sent.
    ContainerSignalled = "container.signalled",
    /// The container has exited.
    ContainerEnded = "container.ended",
    /// The OCI runtime has deleted it.
    ContainerDeleted = "container.deleted",
    /// The root file system is unmounted.
    ContainerUnmounted = "container.unmounted",
    /// The directory is removed.
    ContainerRemoved = "container.removed",
    /// The containers of the sandbox have exited.
    SandboxKilled = "sandbox.killed",
    /// The network is detached.
    SandboxDetached = "sandbox.detached",
    /// The namespaces are unpinned.
    SandboxUnpinned = "sandbox.unpinned",
    /// The sandbox is stopped, but the call has not returned.
    SandboxStopped = "sandbox.stopped",
    /// The shim has exited.
    SandboxShimGone = "sandbox.shim-gone",
    /// The directories are removed.
    SandboxRemoved = "sandbox.removed",
}

impl fmt::Display for Failpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Kills the process with SIGKILL if this failpoint is set.
pub fn failpoint(point: Failpoint) {
    if cfg!(debug_assertions) && env::var_os(VARIABLE).is_some_and(|at| at == point.name()) {
        end();
    }
}

/// The hook for the failpoints of pulls, imports and removals, such as `image.LayerPlaced`; `None` if none is set.
pub fn image_failpoints() -> Option<FailpointHook> {
    let at = env::var(VARIABLE).ok().filter(|_| cfg!(debug_assertions))?;
    let at = at.strip_prefix("image.")?.to_owned();
    Some(FailpointHook::new(
        move |point: criscope_image::Failpoint| {
            if format!("{point:?}") == at {
                end();
            }
        },
    ))
}

fn end() {
    // An error is ignored: the test notices that the process continues.
    let _ = nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::SIGKILL);
}

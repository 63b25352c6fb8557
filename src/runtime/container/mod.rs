//! The verbs of containers. CreateContainer makes the root and the bundle; StartContainer has the pod's shim run the OCI
//! runtime; what ends is noticed by [`watch`].

mod atomic_replace;
mod bundle;
mod create;
mod exec_sync;
mod exit;
mod list;
mod log;
mod remove;
mod start;
mod status;
mod stop;
mod update;
mod volumes;
pub(super) mod watch;

pub(super) use self::bundle::SPEC;
pub(super) use self::remove::remove_dir;

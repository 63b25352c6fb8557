//! The verbs of containers. CreateContainer makes the root and the bundle; StartContainer has the pod's shim run the OCI
//! runtime; what ends is noticed by [`watch`].

mod assemble;
mod create;
mod draft;
mod exec_sync;
mod finish;
mod list;
mod log;
mod remove;
mod start;
mod status;
mod stop;
mod update;
mod volumes;
pub(super) mod watch;

pub(super) use self::assemble::SPEC;
pub(super) use self::remove::remove_dir;

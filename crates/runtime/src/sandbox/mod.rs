//! The sandbox verbs. A sandbox consists of pinned namespaces, a few files, a network and a shim. It has a process (an
//! init) only if its containers share a PID namespace.

mod cni_result;
pub(super) mod files;
mod kept_init;
mod list;
pub(super) mod namespaces;
mod network;
pub(crate) mod pid_namespace;
mod remove;
mod resources;
mod run;
mod shims;
mod status;
mod stop;
mod task;
pub(super) mod teardown;
mod unresponsive_shim;

pub(super) use self::list::selects;
pub use self::task::SandboxLimit;

//! The container verbs. CreateContainer mounts the root file system and writes the bundle; StartContainer makes the pod's
//! shim run the OCI runtime; [`watch`] handles exits.

mod atomic_replace;
mod bundle;
mod create;
mod exec_sync;
mod exit;
mod freezer;
mod frozen_exec;
mod id_mapped;
mod image_volumes;
mod list;
mod log;
mod pod_config;
mod remove;
mod start;
mod status;
mod stop;
mod stop_signal;
mod update;
mod volumes;
pub(super) mod watch;
mod working_directory;

pub(super) use self::bundle::{SPEC, write_private};
pub(super) use self::create::create_fingerprint;
pub(super) use self::exec_sync::{ExecKind, Running, kill_exec};
pub(super) use self::freezer::Freezers;
pub(super) use self::log::path_of as log_path;
pub(super) use self::remove::remove_dir;
pub(super) use self::update::read_spec_json;

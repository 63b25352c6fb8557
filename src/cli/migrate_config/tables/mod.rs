//! Maps keys of containerd and CRI-O to settings of criscope. docs/MIGRATION.md has the same tables for readers; a test compares them.

mod containerd;
mod crio;

use super::convert::ValueConversion;

pub(super) use containerd::{CONTAINERD, DEFAULTS_OF_CONTAINERD};
pub(super) use crio::{CRIO, DEFAULTS_OF_CRIO};

/// One key, or several with `*` in the place of a part or of a piece of one.
#[derive(Debug)]
pub(crate) struct KeyMapping {
    pub(super) from: &'static str,
    pub(super) to: KeyConversion,
}

/// Conversion of a key. The part that the first `*` stands for is `NAME` in the key of criscope.
#[derive(Debug)]
pub(super) enum KeyConversion {
    /// A key of criscope.
    Key(&'static str, ValueConversion),
    /// A key of criscope, and a note for the user.
    Noted(&'static str, ValueConversion, &'static str),
    /// A file for the registry: `hosts.toml` below this key's registry.
    Hosts,
    /// Credentials, which are never shown.
    Secret,
    /// A shim of containerd other than the shim for runc.
    RuntimeType,
    /// The path of the shim.
    ShimPath,
    /// Nothing: the reason. The last are values with which it is not worth mentioning.
    None(&'static str, &'static [&'static str]),
    /// Nothing, and nothing is lost.
    Quiet,
}

const fn row(from: &'static str, to: KeyConversion) -> KeyMapping {
    KeyMapping { from, to }
}

const CLASSES: &str =
    "containers that name a class of it are refused while it is broken, or has not that class";
const HOOKS: &str =
    "only schema 1.0.0 of its files is read, and no container is created while a file is broken";
const NO_PAUSE: &str = "there is no pause container";
const NO_PRIVATE_KEYS: &str = "private keys are not supported: RSA in Rust has an advisory without a fix, RUSTSEC-2023-0071. Encrypt for a key provider, which `runtime.images.keyprovider_config` names";
const NO_SNAPSHOTTERS: &str =
    "layers are stacked by overlayfs; for other snapshotters keep containerd as a second backend";
const NO_SHIM: &str = "handlers have no such setting";
const POD_SPEC: &str =
    "it belongs in the specification of pods; an admission policy can set it for all";
const NRI: &str = "its plugins run as root, and may change every container";
const NO_VALIDATOR: &str =
    "there is no built-in validator; plugins that validate adjustments are called";
const ONE_RUNTIME: &str = "the key is for one handler here: `runtime.handlers.NAME.no_pivot`";

//! How settings are declared, read and documented. This crate contains no setting: each module declares its own with
//! [`settings!`] ([`declare`]), and `src/config` composes them.
//!
//! A file goes through `reader` (TOML with positions), `merge` (drop-in files), `shape` (unknown keys, tables in the wrong place) and the
//! generated readers (typed values). Every error is collected, with its line, before any is reported.

pub mod declare;
mod error;
pub mod merge;
pub mod reader;
mod schema;
mod shape;
mod shown;
mod suggest;
pub mod value;

use std::path::PathBuf;

pub use error::{ConfigError, ConfigErrors, ConfigProblem, ValuePlace, ValueSuggestion};
pub use merge::ValueOrigins;
pub use reader::{GivenValue, SettingsReader, TableScope};
pub use schema::{
    EffectiveSetting, EffectiveSettings, KeyDescription, SettingDefault, SettingKey,
    SettingsSchema, SettingsSection, UntypedKey, fingerprint,
};
pub use shape::check as check_shape;
pub use shown::without_user;
pub use value::{ValueError, lexical, show_endpoint};

/// Owner of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOwner {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// A seccomp profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SeccompProfile {
    /// No filter.
    #[default]
    Unconfined,
    /// The built-in default.
    RuntimeDefault,
    /// A file of this node.
    Localhost(PathBuf),
}

//! The tables of keys: `containerd.toml` and `crio.toml`. docs/MIGRATION.md has the same tables for readers; a test compares them.

use serde::Deserialize;

use super::convert::ValueConversion;
use super::source::fits;

/// What becomes of the keys of a runtime.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyTable {
    pub(super) rows: Vec<KeyMapping>,
    /// Settings whose default differs: the key, and what to know.
    pub(super) defaults: Vec<(String, String)>,
}

impl KeyTable {
    /// Reads a table.
    ///
    /// # Errors
    /// If the text is not a table.
    pub(super) fn read(text: &str) -> std::io::Result<Self> {
        toml::from_str(text).map_err(std::io::Error::other)
    }
}

/// What becomes of one key, or of several with `*` in the place of a part or of a piece of one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeyMapping {
    pub(super) from: String,
    /// The key of criscope.
    pub(super) to: Option<String>,
    #[serde(default)]
    pub(super) convert: ValueConversion,
    /// A note for the user; without a key of criscope the reason why there is none.
    pub(super) note: Option<String>,
    /// Values for which the reason is not worth mentioning.
    #[serde(default)]
    pub(super) usual: Vec<String>,
    pub(super) special: Option<SpecialKey>,
}

/// Keys that are more than one setting.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum SpecialKey {
    /// A file for the registry: `hosts.toml` below this key's registry.
    Hosts,
    /// Credentials, which are never shown.
    Secret,
    /// A shim of containerd other than the shim for runc.
    RuntimeType,
    /// The path of the shim.
    ShimPath,
}

impl KeyMapping {
    /// The part of a key that the first `*` of the row stands for, empty without one; `None` if the key does not fit.
    pub(super) fn captured(&self, key: &[String]) -> Option<String> {
        let parts: Vec<_> = self.from.split('.').collect();
        let fit =
            parts.len() == key.len() && parts.iter().zip(key).all(|(part, key)| fits(part, key));
        let star = parts.iter().position(|part| *part == "*");
        fit.then(|| star.map(|at| key[at].clone()).unwrap_or_default())
    }
}

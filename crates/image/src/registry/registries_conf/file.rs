//! One file of `registries.conf`.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

/// Which pulls a mirror is used for.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Use {
    #[default]
    All,
    DigestOnly,
    TagOnly,
}

/// True if a short name may be looked for in several registries. There is no terminal to ask the user which one is meant.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "lowercase")]
pub(super) enum ShortNameMode {
    Enforcing,
    #[default]
    Permissive,
    Disabled,
}

/// A `[[registry]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Table {
    prefix: Location,
    /// Empty for the names as they are, which only a prefix with a wildcard may have.
    pub(super) location: Location,
    pub(super) insecure: bool,
    pub(super) blocked: bool,
    mirror_by_digest_only: bool,
    /// Only mirrors may have it.
    pull_from_mirror: Option<Use>,
    #[serde(rename = "mirror")]
    pub(super) mirrors: Vec<Mirror>,
}

/// A `[[registry.mirror]]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct Mirror {
    pub(super) location: Location,
    pub(super) insecure: bool,
    #[serde(rename = "pull-from-mirror")]
    used: Option<Use>,
}

impl Mirror {
    pub(super) fn used(&self) -> Use {
        self.used.unwrap_or_default()
    }
}

/// `host[:port][/path]`, without slashes at its end.
#[derive(Clone, Debug, Default)]
pub(super) struct Location(pub(super) String);

impl<'de> Deserialize<'de> for Location {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let text = text.trim_end_matches('/');
        if text.contains("://") {
            return Err(D::Error::custom(format!(
                "{text:?}: a location has no scheme; insecure = true allows plain HTTP"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A parsed file. Like in containers/image, unknown keys are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub(super) struct File {
    #[serde(rename = "registry")]
    list: Vec<Table>,
    /// By prefix; of several with the same one, the first.
    #[serde(skip)]
    pub(super) tables: BTreeMap<String, Table>,
    #[serde(rename = "unqualified-search-registries")]
    pub(super) search: Option<Vec<Location>>,
    pub(super) aliases: BTreeMap<String, String>,
    #[serde(rename = "short-name-mode")]
    pub(super) mode: Option<ShortNameMode>,
    /// The tables of version 1.
    registries: Option<toml::Value>,
}

impl File {
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut file: Self = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        if file.registries.is_some() {
            return Err("of version 1; [[registry]] of version 2 is needed".to_owned());
        }
        for mut table in std::mem::take(&mut file.list) {
            if table.prefix.0.is_empty() {
                table.prefix = table.location.clone();
            }
            let prefix = table.prefix.0.clone();
            let checked = table.check();
            checked.map_err(|reason| format!("registry {prefix:?}: {reason}"))?;
            file.tables.entry(prefix).or_insert(table);
        }
        for (name, full) in &file.aliases {
            let is_wrong = !is_short(name) || name.contains([':', '@']);
            let is_full = full.is_empty() || !is_short(full);
            if is_wrong || !is_full {
                return Err(format!(
                    "alias {name:?} = {full:?}: a short name and a full one are needed, without tags"
                ));
            }
        }
        Ok(file)
    }
}

impl Table {
    /// Checks the table, and applies `mirror-by-digest-only` to its mirrors.
    fn check(&mut self) -> Result<(), &'static str> {
        let prefix = &self.prefix.0;
        let wild = prefix.strip_prefix("*.");
        if prefix.is_empty() {
            return Err("neither a prefix nor a location");
        }
        if prefix.contains('*') && wild.is_none_or(|name| name.contains(['/', ':', '@', '*'])) {
            return Err("a wildcard must be the first label of a host name without a path");
        }
        if self.location.0.is_empty() && wild.is_none() {
            return Err("no location");
        }
        if self.pull_from_mirror.is_some() {
            return Err("pull-from-mirror is for mirrors");
        }
        for mirror in &mut self.mirrors {
            if mirror.location.0.is_empty() {
                return Err("a mirror without a location");
            }
            if self.mirror_by_digest_only && mirror.used.replace(Use::DigestOnly).is_some() {
                return Err("mirror-by-digest-only beside pull-from-mirror");
            }
        }
        Ok(())
    }
}

/// Returns whether a name lacks a registry.
pub(super) fn is_short(text: &str) -> bool {
    let name = text.split('@').next().unwrap_or_default();
    match name.split_once('/') {
        Some((first, _)) => !first.contains(['.', ':']) && first != "localhost",
        None => true,
    }
}

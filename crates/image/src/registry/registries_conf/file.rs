//! One file of `registries.conf`.

use std::collections::BTreeMap;

use serde::Deserialize;

type Parsed<T> = std::result::Result<T, String>;

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
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// `None` for the names as they are, which only a prefix with a wildcard may have.
    pub(super) location: Option<String>,
    pub(super) insecure: bool,
    pub(super) blocked: bool,
    pub(super) mirrors: Vec<Mirror>,
}

/// A `[[registry.mirror]]`.
#[derive(Clone, Debug)]
pub(super) struct Mirror {
    pub(super) location: String,
    pub(super) insecure: bool,
    pub(super) used: Use,
}

/// A parsed file.
#[derive(Debug, Default)]
pub(super) struct File {
    /// By prefix; of several with the same one, the first.
    pub(super) tables: BTreeMap<String, Table>,
    pub(super) search: Option<Vec<String>>,
    pub(super) aliases: BTreeMap<String, String>,
    pub(super) mode: Option<ShortNameMode>,
}

/// Like in containers/image, unknown keys are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Raw {
    unqualified_search_registries: Option<Vec<String>>,
    short_name_mode: Option<ShortNameMode>,
    #[serde(default)]
    registry: Vec<RawTable>,
    #[serde(default)]
    aliases: BTreeMap<String, String>,
    /// The tables of version 1.
    registries: Option<toml::Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawTable {
    #[serde(default)]
    prefix: String,
    #[serde(default)]
    location: String,
    #[serde(default)]
    insecure: bool,
    #[serde(default)]
    blocked: bool,
    #[serde(default)]
    mirror_by_digest_only: bool,
    pull_from_mirror: Option<Use>,
    #[serde(default)]
    mirror: Vec<RawMirror>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct RawMirror {
    #[serde(default)]
    location: String,
    #[serde(default)]
    insecure: bool,
    pull_from_mirror: Option<Use>,
}

impl File {
    pub(super) fn parse(text: &str) -> Parsed<Self> {
        let raw: Raw = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        if raw.registries.is_some() {
            return Err("of version 1; [[registry]] of version 2 is needed".to_owned());
        }
        let mut file = Self {
            aliases: raw.aliases,
            mode: raw.short_name_mode,
            ..Self::default()
        };
        for table in raw.registry {
            let (prefix, table) = table.checked()?;
            file.tables.entry(prefix).or_insert(table);
        }
        let search = raw.unqualified_search_registries;
        let search = search.map(|all| all.iter().map(|one| location(one)).collect());
        file.search = search.transpose()?;
        for (name, full) in &file.aliases {
            let is_wrong = !super::is_short(name) || name.contains([':', '@']);
            let is_full = full.is_empty() || !super::is_short(full);
            if is_wrong || !is_full {
                return Err(format!(
                    "alias {name:?} = {full:?}: a short name and a full one are needed, without tags"
                ));
            }
        }
        Ok(file)
    }
}

impl RawTable {
    fn checked(self) -> Parsed<(String, Table)> {
        let own = location(&self.location)?;
        let prefix = match self.prefix.as_str() {
            "" => own.clone(),
            prefix => location(prefix)?,
        };
        let named = |reason: &str| format!("registry {prefix:?}: {reason}");
        let wild = prefix.strip_prefix("*.");
        if prefix.is_empty() {
            return Err(named("neither a prefix nor a location"));
        }
        if prefix.contains('*') && wild.is_none_or(|name| name.contains(['/', ':', '@', '*'])) {
            return Err(named(
                "a wildcard must be the first label of a host name without a path",
            ));
        }
        if own.is_empty() && wild.is_none() {
            return Err(named("no location"));
        }
        if self.pull_from_mirror.is_some() {
            return Err(named("pull-from-mirror is for mirrors"));
        }
        let mut mirrors = Vec::new();
        for mirror in self.mirror {
            if mirror.location.is_empty() {
                return Err(named("a mirror without a location"));
            }
            if self.mirror_by_digest_only && mirror.pull_from_mirror.is_some() {
                return Err(named("mirror-by-digest-only beside pull-from-mirror"));
            }
            let used = if self.mirror_by_digest_only {
                Use::DigestOnly
            } else {
                mirror.pull_from_mirror.unwrap_or_default()
            };
            mirrors.push(Mirror {
                location: location(&mirror.location)?,
                insecure: mirror.insecure,
                used,
            });
        }
        let table = Table {
            location: Some(own).filter(|own| !own.is_empty()),
            insecure: self.insecure,
            blocked: self.blocked,
            mirrors,
        };
        Ok((prefix, table))
    }
}

/// Checks `host[:port][/path]`, and removes slashes at its end.
fn location(text: &str) -> Parsed<String> {
    let text = text.trim_end_matches('/');
    if text.contains("://") {
        Err(format!(
            "{text:?}: a location has no scheme; insecure = true allows plain HTTP"
        ))
    } else {
        Ok(text.to_owned())
    }
}

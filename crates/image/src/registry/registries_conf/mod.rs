//! `registries.conf` (containers-registries.conf(5), version 2): short names, mirrors, and other locations of registries.
//!
//! The file decides from which registries and repositories an image is fetched; `hosts.toml` then decides how each of these is
//! reached. Without a matching table there is only `hosts.toml`.

mod file;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use self::file::{File, Location, ShortNameMode, Table, Use, is_short};
use crate::error::{At as _, Error, Result};
use crate::files::with_extension;
use crate::reference::Reference;

/// The merged contents of the files.
#[derive(Clone, Debug, Default)]
pub(super) struct RegistriesConf {
    /// True if there is a file at all: otherwise short names are those of Docker Hub.
    is_there: bool,
    tables: BTreeMap<String, Table>,
    search: Vec<Location>,
    aliases: BTreeMap<String, String>,
    mode: ShortNameMode,
}

/// Where a repository is fetched from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Source {
    /// The repository there, with the tag or digest of the image.
    pub(super) name: Reference,
    /// True if plain HTTP and certificates of unknown authorities are accepted.
    pub(super) insecure: bool,
    /// True if it takes the place of the registry, whose credentials it gets. Mirrors do not.
    pub(super) is_primary: bool,
}

/// Reads `path`, and then the files in the directory of the same name with `.d`, in the order of their names; later ones
/// replace tables with the same prefix.
pub(super) fn read(path: Option<&Path>) -> Result<RegistriesConf> {
    let mut all = RegistriesConf::default();
    let Some(path) = path else {
        return Ok(all);
    };
    all.is_there = true;
    let mut dir = path.as_os_str().to_owned();
    dir.push(".d");
    let drop_ins = with_extension(Path::new(&dir), "conf").at(&dir)?;
    for path in [path.to_owned()].into_iter().chain(drop_ins) {
        let text = fs::read_to_string(&path).at(&path)?;
        let file = File::parse(&text).map_err(|reason| Error::Settings {
            path: path.clone(),
            reason,
        })?;
        all.merge(file);
    }
    Ok(all)
}

impl RegistriesConf {
    fn merge(&mut self, file: File) {
        self.tables.extend(file.tables);
        self.search = file.search.unwrap_or(std::mem::take(&mut self.search));
        for (name, full) in file.aliases {
            if full.is_empty() {
                self.aliases.remove(&name)
            } else {
                self.aliases.insert(name, full)
            };
        }
        self.mode = file.mode.unwrap_or(self.mode);
    }

    /// The names that a name of an image can stand for, in the order in which they are tried. A full name stands for itself.
    pub(super) fn candidates(&self, text: &str) -> Result<Vec<Reference>> {
        let own = Reference::parse(text)?;
        if !self.is_there || !is_short(text) {
            return Ok(vec![own]);
        }
        let name = text.split('@').next().unwrap_or_default();
        let name = match name.rsplit_once(':') {
            Some((name, tag)) if !tag.contains('/') => name,
            _ => name,
        };
        let rest = &text[name.len()..];
        if let Some(full) = self.aliases.get(name) {
            return Ok(vec![Reference::parse(&format!("{full}{rest}"))?]);
        }
        let reason = if self.search.is_empty() {
            "a short name without an alias, and there are no unqualified-search-registries"
        } else if self.mode == ShortNameMode::Enforcing && self.search.len() > 1 {
            "a short name without an alias, of which short-name-mode allows no search"
        } else {
            let found = self.search.iter();
            return found
                .map(|registry| Reference::parse(&format!("{}/{text}", registry.0)))
                .collect();
        };
        Err(Error::InvalidReference {
            reference: text.chars().take(300).collect(),
            reason,
        })
    }

    /// Where an image is fetched from: the mirrors, and then the registry or what takes its place.
    pub(super) fn sources(&self, name: &Reference) -> Result<Vec<Source>> {
        let text = name.to_string();
        let matching = self.tables.iter().filter_map(|(prefix, table)| {
            let length = matched(&text, prefix)?;
            Some((prefix, length, table))
        });
        let own = Source {
            name: name.clone(),
            insecure: false,
            is_primary: true,
        };
        let Some((_, length, table)) = matching.max_by_key(|(prefix, ..)| prefix.len()) else {
            return Ok(vec![own]);
        };
        if table.blocked {
            return Err(Error::PermissionDenied {
                host: name.registry().to_owned(),
                reason: "registries.conf blocks it".to_owned(),
            });
        }
        let by_digest = name.digest().is_some();
        let mirrors = table.mirrors.iter().filter(|mirror| match mirror.used() {
            Use::All => true,
            Use::DigestOnly => by_digest,
            Use::TagOnly => !by_digest,
        });
        let mut sources = Vec::new();
        for mirror in mirrors {
            sources.push(Source {
                name: moved(name, &mirror.location.0, length)?,
                insecure: mirror.insecure,
                is_primary: false,
            });
        }
        sources.push(Source {
            name: match table.location.0.as_str() {
                "" => name.clone(),
                location => moved(name, location, length)?,
            },
            insecure: table.insecure,
            ..own
        });
        Ok(sources)
    }
}

/// The length of the part of a name that a prefix matches. `*.` stands for any number of subdomains.
fn matched(name: &str, prefix: &str) -> Option<usize> {
    let length = match prefix.strip_prefix('*') {
        None => name.starts_with(prefix).then_some(prefix.len())?,
        Some(domain) => {
            let host = name.split(['/', ':', '@']).next().unwrap_or_default();
            host.ends_with(domain).then_some(host.len())?
        }
    };
    let after = name[length..].chars().next();
    // A port belongs to the host: `example.com` is not `example.com:5000`.
    let is_port = !name[..length].contains('/') && name[length..].contains('/');
    match after {
        None | Some('/' | '@') => Some(length),
        Some(':') if prefix.starts_with('*') || !is_port => Some(length),
        _ => None,
    }
}

/// The name with its first bytes replaced by another location. Tag and digest stay.
fn moved(name: &Reference, location: &str, length: usize) -> Result<Reference> {
    let repository = format!("{}/{}", name.registry(), name.repository());
    let rest = repository.get(length..).unwrap_or_default();
    Reference::parse(&format!("{location}{rest}")).map(|there| there.with_version_of(name))
}

#[cfg(test)]
mod tests;

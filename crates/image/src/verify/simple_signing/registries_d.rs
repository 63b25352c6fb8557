//! Where the signatures of a repository are: the files of `registries.d` (containers-registries.d(5)).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::Display;
use std::path::Path;

use serde::Deserialize;

use crate::files::{self, MAX_CONFIG_FILE};
use crate::reference::Reference;
use crate::verify::evidence::VerifyResult;

/// The store of images that no file names, as in containers/image.
const DEFAULT: &str = "file:///var/lib/containers/sigstore";

/// The files, merged.
#[derive(Debug, Default)]
pub(crate) struct RegistriesD {
    default: Option<Namespace>,
    docker: BTreeMap<String, Namespace>,
}

/// One file. What is for writing and for sigstore is ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct RegistriesFile {
    default_docker: Option<Namespace>,
    docker: Option<BTreeMap<String, Option<Namespace>>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Namespace {
    lookaside: Option<String>,
    /// The name of the key before containers/image 5.22.
    sigstore: Option<String>,
}

impl Namespace {
    fn store(&self) -> Option<&str> {
        let all = [&self.lookaside, &self.sigstore];
        let mut all = all.into_iter().flatten();
        all.find(|url| !url.is_empty()).map(String::as_str)
    }
}

fn unusable(path: &Path, reason: &dyn Display) -> String {
    format!("signature stores {}: {reason}", path.display())
}

impl RegistriesD {
    /// Reads all files `*.yaml` of a directory, which need not exist.
    pub(crate) fn read(dir: &Path) -> VerifyResult<Self> {
        let files = files::with_extension(dir, "yaml").map_err(|e| unusable(dir, &e))?;
        let mut merged = Self::default();
        for path in files {
            let text = files::read(&path, MAX_CONFIG_FILE).map_err(|e| unusable(&path, &e))?;
            let text = String::from_utf8(text).map_err(|e| unusable(&path, &e))?;
            merged.add(&text).map_err(|e| unusable(&path, &e))?;
        }
        Ok(merged)
    }

    /// Adds a file. No two may say something about the same.
    fn add(&mut self, text: &str) -> VerifyResult<()> {
        let file: Option<RegistriesFile> =
            serde_saphyr::from_str(text).map_err(|e| e.to_string())?;
        let file = file.unwrap_or_default();
        if let Some(default) = file.default_docker
            && self.default.replace(default).is_some()
        {
            return Err("default-docker is in another file too".to_owned());
        }
        for (name, namespace) in file.docker.unwrap_or_default() {
            match self.docker.entry(name) {
                Entry::Occupied(entry) => {
                    return Err(format!("{:?} is in another file too", entry.key()));
                }
                Entry::Vacant(entry) => drop(entry.insert(namespace.unwrap_or_default())),
            }
        }
        Ok(())
    }

    /// The URL of the directory with the signatures of a repository, without a digest.
    pub(crate) fn store(&self, reference: &Reference) -> String {
        let scopes = repository_scopes(reference);
        let named = scopes.iter().filter_map(|scope| self.docker.get(scope));
        let mut all = named.chain(&self.default);
        let top = all.find_map(Namespace::store).unwrap_or(DEFAULT);
        format!("{}/{}", top.trim_end_matches('/'), reference.repository())
    }
}

/// The scopes that contain an image, from the narrowest to the widest: the image, its repository, its namespaces, the host, and the
/// parent domains of the host (`*.example.com`).
pub(crate) fn repository_scopes(reference: &Reference) -> Vec<String> {
    let mut scopes = vec![reference.to_string()];
    let mut name = format!("{}/{}", reference.registry(), reference.repository());
    loop {
        scopes.push(name.clone());
        match name.rfind('/') {
            Some(slash) => name.truncate(slash),
            None => break,
        }
    }
    let host = name.split(':').next().unwrap_or_default();
    let dots = host.match_indices('.');
    scopes.extend(dots.map(|(dot, _)| format!("*{}", &host[dot..])));
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_namespace_with_a_store_counts() {
        let dir = tempfile::tempdir().expect("directory");
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("write");
        };
        write(
            "a.yaml",
            "docker:\n  q.io/a/b:\n    lookaside: https://one/\n    lookaside-staging: file:///x\n  \
             q.io/a:\n    sigstore: https://two\n    sigstore-staging: file:///y\n  \
             q.io/a/c:\n    use-sigstore-attachments: true\n  '*.example.com':\n    lookaside: file:///z\n",
        );
        write("b.yaml", "");
        write("c.txt", "nothing: [");
        let read = || RegistriesD::read(dir.path());
        let store = |name: &str| {
            let reference = Reference::parse(name).expect(name);
            read().expect("files").store(&reference)
        };
        for (name, wanted) in [
            ("q.io/a/b:1", "https://one/a/b"),
            ("q.io/a/b/c:1", "https://one/a/b/c"),
            ("q.io/a/c:1", "https://two/a/c"),
            ("q.io/z:1", "file:///var/lib/containers/sigstore/z"),
            ("r.example.com/z:1", "file:///z/z"),
            (
                "busybox",
                "file:///var/lib/containers/sigstore/library/busybox",
            ),
        ] {
            assert_eq!(store(name), wanted, "{name}");
        }
        write("d.yaml", "default-docker:\n  lookaside: http://default/x\n");
        assert_eq!(store("q.io/z:1"), "http://default/x/z");
        for twice in [
            "default-docker:\n  lookaside: http://y\n",
            "docker:\n  q.io/a:\n    lookaside: http://y\n",
            "docker: [",
        ] {
            write("e.yaml", twice);
            let error = read().expect_err(twice);
            assert!(error.contains("e.yaml"), "{error}");
        }
        let none = RegistriesD::read(&dir.path().join("none")).expect("no files");
        assert!(none.docker.is_empty());
    }
}

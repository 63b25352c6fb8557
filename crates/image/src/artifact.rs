//! Artifacts: manifests whose content is files, not an image to run (image-spec, "Guidelines for Artifact Usage"). They are for
//! image volumes.

use std::collections::BTreeSet;
use std::path::{Component, Path};

use crate::descriptor::Descriptor;
use crate::error::{Error, Result};

/// Annotations with the path of a file: of the image-spec, and of the model-spec of CNCF's ModelPack.
const NAMES: [&str; 2] = ["org.opencontainers.image.title", "org.cncf.model.filepath"];
/// The most files of an artifact.
const MAX_FILES: usize = 4096;
/// The longest path of a file, and the deepest.
const MAX_PATH: usize = 1024;
const MAX_DEPTH: usize = 32;

/// The manifest of an artifact.
#[derive(Clone, Debug)]
pub struct ArtifactManifest {
    /// The `artifactType`, or the media type of its configuration.
    pub artifact_type: String,
    /// The files. Layers without a name cannot be mounted, and are left out.
    pub files: Vec<ArtifactFile>,
}

/// A file of an artifact.
#[derive(Clone, Debug)]
pub struct ArtifactFile {
    /// The path, relative and without `..`.
    pub path: String,
    /// The content.
    pub blob: Descriptor,
}

impl ArtifactManifest {
    /// From the layers of a manifest.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if a name is not a path below the artifact, or two are in each other's way.
    pub(crate) fn new(artifact_type: String, layers: Vec<Descriptor>) -> Result<Self> {
        let mut files = Vec::new();
        for blob in layers {
            let name = NAMES.iter().find_map(|key| blob.annotations.get(*key));
            let Some(path) = name.cloned() else { continue };
            if !is_inside(&path) {
                let shown: String = path.chars().take(100).collect();
                return Err(invalid(format!(
                    "{shown:?} is not the path of a file in it"
                )));
            }
            files.push(ArtifactFile { path, blob });
        }
        if files.len() > MAX_FILES {
            let reason = format!("{} files, at most {MAX_FILES}", files.len());
            return Err(invalid(reason));
        }
        check_apart(&files)?;
        Ok(Self {
            artifact_type,
            files,
        })
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::invalid("artifact", reason)
}

/// Returns whether a path stays below the directory of the artifact, no matter which files are there.
fn is_inside(path: &str) -> bool {
    let mut parts = Path::new(path).components();
    let plain = parts.all(|part| matches!(part, Component::Normal(_)));
    let depth = path.split('/').count();
    let is_clean = !path.contains("//") && !path.ends_with('/') && !path.contains("/./");
    !path.is_empty()
        && plain
        && is_clean
        && depth <= MAX_DEPTH
        && path.len() <= MAX_PATH
        && path.split('/').all(|part| part.len() <= 255)
        && !path.contains('\0')
}

/// No file may be another one, or a directory of one.
fn check_apart(files: &[ArtifactFile]) -> Result<()> {
    let mut paths = BTreeSet::new();
    for file in files {
        if !paths.insert(file.path.as_str()) {
            return Err(invalid(format!("two files {:?}", file.path)));
        }
    }
    for file in files {
        for (at, _) in file.path.match_indices('/') {
            if paths.contains(&file.path[..at]) {
                return Err(invalid(format!(
                    "{:?} is a file and a directory",
                    &file.path[..at]
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Digest;

    fn artifact(names: &[Option<&str>]) -> Result<Vec<String>> {
        let layers = names.iter().map(|name| Descriptor {
            media_type: "text/plain".to_owned(),
            digest: Digest::sha256(b"x"),
            size: 1,
            platform: None,
            urls: Vec::new(),
            annotations: name
                .iter()
                .map(|name| (NAMES[0].to_owned(), (*name).to_owned()))
                .collect(),
        });
        let manifest = ArtifactManifest::new(String::new(), layers.collect())?;
        Ok(manifest.files.into_iter().map(|file| file.path).collect())
    }

    #[test]
    fn files_have_names_and_layers_without_one_are_left_out() {
        let files = artifact(&[Some("a"), None, Some("d/e/f"), Some("d/e/g"), Some("..a")]);
        assert_eq!(files.expect("files"), ["a", "d/e/f", "d/e/g", "..a"]);
    }

    #[test]
    fn names_that_lead_out_or_collide_are_refused() {
        let deep = "d/".repeat(MAX_DEPTH) + "f";
        let long = "x".repeat(256);
        for wrong in [
            "", "/", "/a", "..", "../a", "a/../b", "a/..", ".", "./a", "a/./b", "a//b", "a/",
            "a\0b", &deep, &long,
        ] {
            assert!(artifact(&[Some(wrong)]).is_err(), "{wrong:?}");
        }
        assert!(artifact(&[Some("a"), Some("a")]).is_err());
        assert!(artifact(&[Some("a/b"), Some("a")]).is_err());
        assert!(artifact(&[Some("a"), Some("a-b"), Some("a/b")]).is_err());
    }
}

//! Signature policies as containers-policy.json(5) documents them, for the transport `docker`.
//!
//! Files are read strictly, as by containers/image: an unknown or repeated key makes the file unusable, and an unusable file
//! allows nothing.

mod identity;
mod json;
mod keys;
mod requirement;
mod signed_by;

use std::fmt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use self::json::{NonEmpty, StrictMap};
use self::requirement::{Needs, Requirement};
use super::simple_signing::{RegistriesD, repository_scopes};
use crate::config::PolicyFiles;
use crate::digest::Digest;
use crate::error::{Error, Result};
use crate::files::{self, MAX_CONFIG_FILE, if_present};
use crate::reference::Reference;
use crate::verify::evidence::{Evidence, VerifyResult};

/// The transport of images from registries.
const DOCKER: &str = "docker";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Policy {
    default: NonEmpty<Requirement>,
    #[serde(default)]
    transports: StrictMap<StrictMap<NonEmpty<Requirement>>>,
}

/// Under what a policy judges an image.
#[derive(Clone, Debug)]
pub(super) enum JudgedName {
    /// A name in full form.
    Name(Reference),
    /// The ID of an image that has no name.
    Nameless(Digest),
}

impl fmt::Display for JudgedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Nameless(id) => id.fmt(f),
        }
    }
}

/// The error for an image that a policy refuses under a name.
fn refused(name: Option<&JudgedName>, reason: String) -> Error {
    Error::SignatureValidationFailed {
        reference: name.map_or_else(String::new, JudgedName::to_string),
        reason,
    }
}

impl PolicyFiles {
    /// Evaluates the policy of a namespace for all these names of an image, and its signatures. The first refusal counts.
    ///
    /// # Errors
    ///
    /// [`Error::SignatureValidationFailed`].
    pub(super) fn judge(
        &self,
        names: &[JudgedName],
        namespace: Option<&str>,
        evidence: &[Evidence],
    ) -> Result<()> {
        let path = self.file_of(namespace);
        let Some(path) = path.map_err(|reason| refused(names.first(), reason))? else {
            return Ok(());
        };
        let policy = read(&path).map_err(|reason| refused(names.first(), reason))?;
        names.iter().try_for_each(|name| {
            let judged = policy.judge(name, evidence);
            judged.map_err(|why| refused(Some(name), format!("{why} ({})", path.display())))
        })
    }

    /// Reads all policies. Blocks. Returns the reasons why some cannot be used.
    pub(crate) fn check(&self) -> Vec<String> {
        self.files().filter_map(|path| read(&path).err()).collect()
    }

    /// The default policy, and those of namespaces.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let dir = self.namespaces.as_deref();
        let others = dir.and_then(|dir| files::with_extension(dir, "json").ok());
        let all = self.default.clone().into_iter();
        all.chain(others.into_iter().flatten())
    }

    /// The signatures of this image that a policy needs: that of any namespace, because an image that was pulled for one can be used
    /// in another.
    pub(super) fn needs(&self, reference: &Reference) -> Needs {
        let mut needs = Needs::default();
        for path in self.files() {
            // An unreadable policy allows nothing, regardless of signatures.
            let Ok(policy) = read(&path) else { continue };
            for requirement in policy.requirements(reference) {
                requirement.add_needs(&mut needs);
            }
        }
        needs
    }

    /// The lookaside store of an image's repository.
    pub(super) fn lookaside(&self, reference: &Reference) -> VerifyResult<String> {
        Ok(RegistriesD::read(&self.registries_d)?.store(reference))
    }

    fn file_of(&self, namespace: Option<&str>) -> VerifyResult<Option<PathBuf>> {
        let own = match (&self.namespaces, namespace.filter(|name| !name.is_empty())) {
            (Some(dir), Some(namespace)) => {
                if !namespace
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
                {
                    return Err("the namespace of the pod is not the name of one".to_owned());
                }
                let path = dir.join(format!("{namespace}.json"));
                let found = if_present(path.symlink_metadata());
                let found = found.map_err(|error| unusable(&path, &error))?;
                found.map(|_| path)
            }
            _ => None,
        };
        Ok(own.or_else(|| self.default.clone()))
    }
}

fn read(path: &Path) -> VerifyResult<Policy> {
    let bytes = files::read(path, MAX_CONFIG_FILE).map_err(|e| unusable(path, &e))?;
    serde_json::from_slice(&bytes).map_err(|e| unusable(path, &e))
}

fn unusable(path: &Path, reason: &dyn fmt::Display) -> String {
    format!("policy {}: {reason}", path.display())
}

impl Policy {
    fn judge(&self, name: &JudgedName, evidence: &[Evidence]) -> VerifyResult<()> {
        match name {
            JudgedName::Name(name) => {
                let mut requirements = self.requirements(name).iter();
                requirements.try_for_each(|one| one.judge(name, evidence))
            }
            JudgedName::Nameless(_) => self.judge_nameless(),
        }
    }

    /// No scope contains an image without a name, and no signature is one for it: what applies to all images must accept anything.
    fn judge_nameless(&self) -> VerifyResult<()> {
        let docker = self.transports.get(DOCKER);
        let wide = docker.and_then(|docker| docker.get(""));
        let mut requirements = self
            .default
            .iter()
            .chain(wide.into_iter().flat_map(|all| all.iter()));
        if requirements.all(|one| matches!(one, Requirement::InsecureAcceptAnything {})) {
            Ok(())
        } else {
            Err(
                "the image has no name, and the default of the policy does not accept every image"
                    .to_owned(),
            )
        }
    }

    /// The requirements of the narrowest scope that contains an image.
    fn requirements(&self, reference: &Reference) -> &[Requirement] {
        let docker = self.transports.get(DOCKER);
        let scope = docker.and_then(|docker| {
            // The last is the default of the transport.
            let mut scopes = repository_scopes(reference)
                .into_iter()
                .chain([String::new()]);
            scopes.find_map(|scope| docker.get(&scope))
        });
        scope.unwrap_or(&self.default)
    }
}

#[cfg(test)]
mod tests;

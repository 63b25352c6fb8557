//! Signature policies as containers-policy.json(5) documents them, for the transport `docker`.
//!
//! Files are read strictly, as by containers/image: an unknown or repeated key makes the file unusable, and an unusable file
//! allows nothing.

mod identity;
mod json;
mod requirement;
mod signed_by;

use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use self::json::{NonEmpty, StrictMap};
use self::requirement::Requirement;
use super::Evidence;
use super::simple_signing::RegistriesD;
use crate::digest::Digest;
use crate::reference::Reference;

/// Limit of a file's size.
const MAX_FILE: u64 = 4 << 20;
/// The transport of images from registries.
const DOCKER: &str = "docker";

/// Where the signature policies are.
#[derive(Clone, Debug, Default)]
pub struct PolicyFiles {
    /// The policy of namespaces without one of their own. Without it they have none.
    pub default: Option<PathBuf>,
    /// The directory with policies for single Kubernetes namespaces, `NAMESPACE.json`.
    pub namespaces: Option<PathBuf>,
    /// The directory `registries.d`, which says where signatures with GPG keys are. It need not exist.
    pub registries_d: PathBuf,
}

/// Which signatures the policies need.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Needs {
    /// Signatures of cosign, in the registry.
    pub(super) attached: bool,
    /// Signatures with GPG keys, in a lookaside store.
    pub(super) lookaside: bool,
}

type Judged<T> = std::result::Result<T, String>;

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

/// Why a policy refuses an image.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The first name that is refused.
    pub(super) name: String,
    pub(super) reason: String,
}

impl Refusal {
    fn new(name: Option<&JudgedName>, reason: String) -> Self {
        Self {
            name: name.map_or_else(String::new, JudgedName::to_string),
            reason,
        }
    }
}

impl PolicyFiles {
    /// Evaluates the policy of a namespace for all these names of an image, and its signatures. The first refusal counts.
    pub(super) fn judge(
        &self,
        names: &[JudgedName],
        namespace: Option<&str>,
        evidence: &[Evidence],
    ) -> std::result::Result<(), Refusal> {
        let path = self.file_of(namespace);
        let Some(path) = path.map_err(|reason| Refusal::new(names.first(), reason))? else {
            return Ok(());
        };
        let policy = read(&path).map_err(|reason| Refusal::new(names.first(), reason))?;
        names.iter().try_for_each(|name| {
            let judged = policy.judge(name, evidence);
            judged.map_err(|why| Refusal::new(Some(name), format!("{why} ({})", path.display())))
        })
    }

    /// Reads all policies. Blocks. Returns the reasons why some cannot be used.
    pub(crate) fn check(&self) -> Vec<String> {
        self.files().filter_map(|path| read(&path).err()).collect()
    }

    /// The default policy, and those of namespaces.
    fn files(&self) -> impl Iterator<Item = PathBuf> {
        let dir = self.namespaces.as_deref();
        let entries = dir.and_then(|dir| fs::read_dir(dir).ok());
        let entries = entries.into_iter().flatten().flatten();
        let others = entries
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "json"));
        self.default.clone().into_iter().chain(others)
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
    pub(super) fn lookaside(&self, reference: &Reference) -> Judged<String> {
        Ok(RegistriesD::read(&self.registries_d)?.store(reference))
    }

    fn file_of(&self, namespace: Option<&str>) -> Judged<Option<PathBuf>> {
        let own = match (&self.namespaces, namespace.filter(|name| !name.is_empty())) {
            (Some(dir), Some(namespace)) => {
                if !namespace
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
                {
                    return Err("the namespace of the pod is not the name of one".to_owned());
                }
                let path = dir.join(format!("{namespace}.json"));
                match path.symlink_metadata() {
                    Ok(_) => Some(path),
                    Err(error) if error.kind() == ErrorKind::NotFound => None,
                    Err(error) => return Err(unusable(&path, &error)),
                }
            }
            _ => None,
        };
        Ok(own.or_else(|| self.default.clone()))
    }
}

fn read(path: &Path) -> Judged<Policy> {
    let length = fs::metadata(path).map_err(|e| unusable(path, &e))?.len();
    if length > MAX_FILE {
        let reason = format!("larger than {MAX_FILE} bytes");
        return Err(unusable(path, &reason));
    }
    let bytes = fs::read(path).map_err(|e| unusable(path, &e))?;
    serde_json::from_slice(&bytes).map_err(|e| unusable(path, &e))
}

fn unusable(path: &Path, reason: &dyn fmt::Display) -> String {
    format!("policy {}: {reason}", path.display())
}

impl Policy {
    fn judge(&self, name: &JudgedName, evidence: &[Evidence]) -> Judged<()> {
        match name {
            JudgedName::Name(name) => {
                let mut requirements = self.requirements(name).iter();
                requirements.try_for_each(|one| one.judge(name, evidence))
            }
            JudgedName::Nameless(_) => self.judge_nameless(),
        }
    }

    /// No scope contains an image without a name, and no signature is one for it: what applies to all images must accept anything.
    fn judge_nameless(&self) -> Judged<()> {
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
            let mut scopes = scopes(reference).into_iter();
            scopes.find_map(|scope| docker.get(&scope))
        });
        scope.unwrap_or(&self.default)
    }
}

/// The scopes that contain an image, from the narrowest to the widest, and last the transport's default.
fn scopes(reference: &Reference) -> Vec<String> {
    let mut scopes = repository_scopes(reference);
    scopes.push(String::new());
    scopes
}

/// The scopes that contain an image, from the narrowest to the widest: the image, its repository, its namespaces, the host, and the
/// parent domains of the host (`*.example.com`).
pub(super) fn repository_scopes(reference: &Reference) -> Vec<String> {
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
mod tests;

//! Hooks that the administrator of the node adds to containers, by files in directories (oci-hooks(5), as of CRI-O's `hooks_dir`).
//!
//! A hook may be what confines a container, or gives it a device. So a container for which it is not known whether it has a hook is
//! refused: where CRI-O leaves out a file that it cannot read, this refuses every container until the file is fixed or removed.

mod file;

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use oci_spec::runtime::{Hooks, Spec};

pub use self::file::HookFileError;
#[cfg(any(test, fuzzing))]
pub(crate) use self::file::fuzz;
use self::file::{HookFile, Stage};
use super::build::Request;
use super::error::SpecError;

/// The hooks of the node, in the order in which they run.
#[derive(Debug, Default)]
pub struct Registry {
    hooks: Vec<(PathBuf, HookFile)>,
    /// Files and directories that cannot be used, each with the reason. While there is one, no container can be created.
    pub broken: Vec<(PathBuf, HookFileError)>,
}

impl Registry {
    /// Reads all `.json` files of the directories. A file replaces one of the same name in an earlier directory. Directories that
    /// do not exist are ignored. The order follows the names in lower case.
    pub fn read<P: AsRef<Path>>(directories: &[P]) -> Self {
        let mut registry = Self::default();
        let mut files = BTreeMap::new();
        for directory in directories.iter().map(AsRef::as_ref) {
            match names(directory) {
                Ok(names) => files.extend(names.map(|name| {
                    let path = directory.join(&name);
                    (name, path)
                })),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => registry.broken.push((directory.into(), error.into())),
            }
        }
        let mut files: Vec<_> = files.into_iter().collect();
        files.sort_by(|(one, _), (other, _)| by_lower_case(one, other));
        for (_, path) in files {
            match HookFile::read(&path) {
                Ok(file) => registry.hooks.push((path, file)),
                // Removed since the directory was read; a link that leads nowhere still has an entry.
                Err(HookFileError::Read(_)) if fs::symlink_metadata(&path).is_err() => {}
                Err(error) => registry.broken.push((path, error)),
            }
        }
        registry
    }

    /// The number of hooks.
    pub fn len(&self) -> usize {
        self.hooks.len()
    }

    /// Returns whether there are no hooks.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Files whose program is not on the node, with its path.
    pub fn without_program(&self) -> impl Iterator<Item = (&Path, &Path)> {
        let missing = self.hooks.iter().filter(|(_, file)| !file.has_program());
        missing.map(|(path, file)| (path.as_path(), file.hook.path().as_path()))
    }
}

/// The names of the files of a directory that end in `.json`.
fn names(directory: &Path) -> io::Result<iter::Flatten<std::vec::IntoIter<Option<OsString>>>> {
    let entries = fs::read_dir(directory)?;
    let names = entries.map(|entry| {
        let name = entry?.file_name();
        let is_hook = Path::new(&name).extension() == Some(OsStr::new("json"));
        Ok(is_hook.then_some(name))
    });
    Ok(names.collect::<io::Result<Vec<_>>>()?.into_iter().flatten())
}

/// Two names that differ only in case have the order of their bytes.
fn by_lower_case(one: &OsStr, other: &OsStr) -> Ordering {
    let [one_lower, other_lower] = [one, other].map(|name| name.to_string_lossy().to_lowercase());
    one_lower.cmp(&other_lower).then_with(|| one.cmp(other))
}

/// Adds the hooks whose conditions a container meets. As with CRI-O they are before those of CDI devices and NRI plugins, and
/// conditions see the annotations of Kubernetes; the pod's replace the container's.
///
/// # Errors
/// If a file of the directories is broken, or the program of a hook of this container is missing.
pub(super) fn apply(request: &Request<'_>, spec: &mut Spec) -> Result<(), SpecError> {
    let registry = request.hooks;
    if let Some((path, error)) = registry.broken.first() {
        let path = path.display();
        return Err(SpecError::Unsupported(format!("hooks: {path}: {error}")));
    }
    let mut annotations: HashMap<&str, &str> = HashMap::new();
    for (key, value) in request
        .container
        .annotations
        .iter()
        .chain(&request.pod.annotations)
    {
        annotations.insert(key, value);
    }
    let has_mounts = !request.container.mounts.is_empty();
    for (path, file) in &registry.hooks {
        let args = spec.process().as_ref().and_then(|p| p.args().as_ref());
        let command = args.and_then(|args| args.first()).map(String::as_str);
        if !file.when.matches(&annotations, command, has_mounts) {
            continue;
        }
        if !file.has_program() {
            let (path, program) = (path.display(), file.hook.path().display());
            let text = format!("hooks: {path}: its program {program} does not exist");
            return Err(SpecError::Unsupported(text));
        }
        add(spec, file);
    }
    Ok(())
}

/// Adds a hook in each of its stages. As in the reference implementation (containers/common, `pkg/hooks`) `prestart`, which the OCI
/// runtime specification deprecates, is `createRuntime`.
fn add(spec: &mut Spec, file: &HookFile) {
    let hooks = spec.hooks_mut().get_or_insert_with(Hooks::default);
    for stage in &file.stages {
        let list = match stage {
            Stage::Prestart | Stage::CreateRuntime => hooks.create_runtime_mut(),
            Stage::CreateContainer => hooks.create_container_mut(),
            Stage::StartContainer => hooks.start_container_mut(),
            Stage::Poststart => hooks.poststart_mut(),
            Stage::Poststop => hooks.poststop_mut(),
        };
        list.get_or_insert_with(Vec::new).push(file.hook.clone());
    }
}

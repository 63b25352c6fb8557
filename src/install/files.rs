//! States of files: recorded before a change, and restored. Every change is one atomic rename or unlink, synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::machine::NodeOperations;
use super::root::FilesystemRoot;

/// The content at a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PathContent {
    /// Nothing.
    Absent,
    /// A file; its content is a blob of the journal.
    File {
        sha256: String,
        mode: u32,
        uid: u32,
        gid: u32,
    },
    /// A symbolic link.
    Link { target: PathBuf },
}

impl PathContent {
    /// Compares without mode and owner: an administrator's chmod is no change of content.
    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { sha256: one, .. }, Self::File { sha256: other, .. }) => one == other,
            _ => self == other,
        }
    }
}

/// The name of a content.
pub(super) fn sha256(bytes: &[u8]) -> String {
    let digest = Sha256::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The state at a path, with the content if it is a file.
///
/// # Errors
/// If it cannot be read, or is neither file nor link.
pub(super) fn capture(path: &Path) -> io::Result<(PathContent, Option<Vec<u8>>)> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok((PathContent::Absent, None));
        }
        found => found.map_err(|error| at(path, &error))?,
    };
    if found.is_symlink() {
        let target = fs::read_link(path).map_err(|error| at(path, &error))?;
        return Ok((PathContent::Link { target }, None));
    }
    if !found.is_file() {
        let text = format!("{}: neither a file nor a link", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let bytes = fs::read(path).map_err(|error| at(path, &error))?;
    let state = PathContent::File {
        sha256: sha256(&bytes),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
    };
    Ok((state, Some(bytes)))
}

/// The file behind links, for configuration of others that is a link: the link stays, and its target changes.
pub(super) fn behind_links(root: &FilesystemRoot, path: &Path) -> PathBuf {
    let found = root.path(path);
    fs::canonicalize(&found).unwrap_or(found)
}

/// Brings a path into a state; `content` gives the content of a file by its name. Does nothing if it is in that state already.
///
/// # Errors
/// If the path cannot be changed. It then has its old state.
pub(super) fn apply(
    path: &Path,
    state: &PathContent,
    content: impl FnOnce(&str) -> io::Result<Vec<u8>>,
    machine: &dyn NodeOperations,
) -> io::Result<bool> {
    // Left by a power failure.
    let temporary = temporary(path);
    remove(&temporary)?;
    if capture(path).is_ok_and(|(found, _)| found == *state) {
        return Ok(false);
    }
    match state {
        PathContent::Absent => remove(path)?,
        PathContent::Link { target } => {
            symlink(target, &temporary).map_err(|error| at(path, &error))?;
            machine.reached("a link made, not yet in place");
            fs::rename(&temporary, path).map_err(|error| at(path, &error))?;
        }
        PathContent::File { sha256, .. } => {
            let bytes = content(sha256)?;
            write_temporary(&temporary, path, state, &bytes).map_err(|error| at(path, &error))?;
            machine.reached("a file written, not yet in place");
            fs::rename(&temporary, path).map_err(|error| at(path, &error))?;
        }
    }
    machine.reached("a change made, not yet synced");
    sync_directory(path)?;
    Ok(true)
}

/// Writes the file that will replace `path`, with the mode and the owner of `state`.
fn write_temporary(
    temporary: &Path,
    path: &Path,
    state: &PathContent,
    bytes: &[u8],
) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(temporary)?;
    file.write_all(bytes)?;
    if let PathContent::File { mode, uid, gid, .. } = state {
        fchown(&file, Some(*uid), Some(*gid))?;
        file.set_permissions(fs::Permissions::from_mode(*mode))?;
    }
    copy_label(path, &file);
    file.sync_all()
}

fn temporary(path: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(".criscope-new");
    path.with_file_name(name)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(path, &error)),
        _ => Ok(()),
    }
}

/// Syncs the directory of a path; without one there is nothing to sync.
pub(super) fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    match File::open(parent) {
        Ok(directory) => directory.sync_all().map_err(|error| at(parent, &error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(at(parent, &error)),
    }
}

/// The replacement has the SELinux label of the original; a new file gets that of its directory.
fn copy_label(from: &Path, to: &File) {
    const LABEL: &str = "security.selinux";
    let mut label = [0_u8; 256];
    // Without SELinux there is none.
    let Ok(length) = rustix::fs::getxattr(from, LABEL, &mut label[..]) else {
        return;
    };
    let label = label.get(..length).unwrap_or_default();
    let _ = rustix::fs::fsetxattr(to, LABEL, label, rustix::fs::XattrFlags::empty());
}

/// Creates the directories above a path.
///
/// # Errors
/// If that fails.
pub(super) fn make_parents(root: &FilesystemRoot, directories: &[PathBuf]) -> io::Result<()> {
    for directory in directories {
        let path = root.path(directory);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(at(&path, &error));
            }
            _ => {}
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
            .map_err(|error| at(&path, &error))?;
        sync_directory(&path)?;
    }
    Ok(())
}

/// The directories above a path that do not exist, the outermost first.
pub(super) fn missing_parents(root: &FilesystemRoot, path: &Path) -> Vec<PathBuf> {
    let parents = path.ancestors().skip(1);
    let missing = parents.take_while(|parent| !root.path(parent).exists());
    let mut missing: Vec<_> = missing.map(Path::to_owned).collect();
    missing.reverse();
    missing
}

/// Removes directories that are empty, the innermost first.
pub(super) fn remove_empty(root: &FilesystemRoot, directories: &[PathBuf]) {
    for directory in directories.iter().rev() {
        // Others may use it now.
        let path = root.path(directory);
        if fs::remove_dir(&path).is_ok() {
            let _ = sync_directory(&path);
        }
    }
}

/// Writes a file of our own by an atomic rename, synced.
///
/// # Errors
/// If that fails.
pub(super) fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = temporary(path);
    remove(&temporary)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(|error| at(path, &error))?;
    file.write_all(bytes).map_err(|error| at(path, &error))?;
    file.sync_all().map_err(|error| at(path, &error))?;
    fs::rename(&temporary, path).map_err(|error| at(path, &error))?;
    sync_directory(path)
}

/// An error with its path.
pub(super) fn at(path: &Path, error: &io::Error) -> io::Error {
    let path = String::from_utf8_lossy(path.as_os_str().as_bytes());
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

//! Records on disk: a directory per object with one file that is replaced atomically.
//!
//! Replacing a record does not sync it: it survives any exit of the daemon, but not a power failure. What must survive a power
//! failure is that a pod existed, because its addresses must be released: [`sync_record`] syncs the first record of a sandbox
//! under a second name that is never replaced. A rename alone is not enough (XFS may keep it and lose the data).

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde_json::Value;

use super::versions;
use crate::error::{Error, Result};

/// Name of the record in an object's directory.
pub(crate) const RECORD: &str = "record.json";

/// Name of the first record of a sandbox, which was synced.
pub(crate) const MADE: &str = "made.json";

/// A record that is stored as JSON.
pub(crate) trait Written: Serialize {
    /// Fields that this version does not know, which are preserved.
    fn unknown(&self) -> Option<&Value> {
        None
    }

    /// The record as JSON.
    ///
    /// # Errors
    /// If the serialisation fails.
    fn text(&self) -> serde_json::Result<Vec<u8>> {
        let Some(unknown) = self.unknown() else {
            return serde_json::to_vec(self);
        };
        let mut value = serde_json::to_value(self)?;
        versions::add(&mut value, unknown);
        serde_json::to_vec(&value)
    }
}

/// Mode of the directories of objects and of those above them. Containers write files and set-user-ID programs below them, so no
/// other user of the node may enter.
const DIR_MODE: u32 = 0o700;

/// Mode of directories that other users may pass through and not list.
const PASSABLE_MODE: u32 = 0o711;

/// Creates the directory of an object, and missing ones above it, for root alone, regardless of the umask.
pub(crate) fn make_dir(dir: &Path) -> Result<()> {
    make_dir_with(dir, DIR_MODE)
}

/// Like [`make_dir`], with this mode.
pub(crate) fn make_dir_with(dir: &Path, mode: u32) -> Result<()> {
    let made = DirBuilder::new().mode(mode).create(dir);
    let made = match (made, dir.parent()) {
        (Err(error), Some(parent)) if error.kind() == io::ErrorKind::NotFound => {
            make_dir_with(parent, mode)?;
            return make_dir_with(dir, mode);
        }
        (made, _) => made,
    };
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        made => made
            .map_err(|e| Error::io("make", dir, e))
            .and_then(|()| set_mode(dir, mode)),
    }
}

/// Creates a directory of the runtime for root alone. Missing directories above it are not the runtime's: every user may pass through
/// them.
pub(crate) fn make_top(dir: &Path) -> Result<()> {
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => make_dir_with(parent, PASSABLE_MODE)?,
        _ => {}
    }
    make_dir(dir)
}

/// Closes a directory to other users if an earlier version left it open to them.
pub(crate) fn close_to_others(dir: &Path) -> Result<()> {
    let mode = mode_of(dir)?;
    if mode == PASSABLE_MODE {
        set_mode(dir, DIR_MODE)
    } else {
        Ok(())
    }
}

/// Lets every user pass through a directory, without listing it: below it is the root file system of a container with a user
/// namespace, whose root is another user of the node. What is in the directory has to be closed to others itself.
pub(crate) fn let_pass(dir: &Path) -> Result<()> {
    let mode = mode_of(dir)?;
    match mode & 0o011 {
        0o011 => Ok(()),
        _ => set_mode(dir, mode | 0o011),
    }
}

fn mode_of(dir: &Path) -> Result<u32> {
    let found = fs::metadata(dir).map_err(|e| Error::io("read the mode of", dir, e))?;
    Ok(found.mode() & 0o7777)
}

fn set_mode(dir: &Path, mode: u32) -> Result<()> {
    let set = fs::set_permissions(dir, Permissions::from_mode(mode));
    set.map_err(|e| Error::io("set the mode of", dir, e))
}

/// Replaces the record in a directory, and then, best effort, its copy, which recovery uses if the record cannot be read.
pub(crate) fn write(dir: &Path, copy: &Path, record: &impl Written) -> Result<()> {
    let path = dir.join(RECORD);
    let text = record.text().map_err(|e| Error::io("write", &path, e))?;
    let written = replace(&path, &text, false);
    if let Err(error) = replace(copy, &text, false) {
        tracing::debug!(target: "criscope::runtime::store::disk", event = "runtime.record", error.message = %error, "the copy of a record could not be written");
    }
    written
}

/// Replaces a file whose contents must survive a power failure.
pub(crate) fn write_file(path: &Path, content: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec_pretty(content).map_err(|e| Error::io("write", path, e))?;
    replace(path, &text, true)?;
    sync(path.parent().unwrap_or(path))
}

fn replace(path: &Path, text: &[u8], sync: bool) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{number}"));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| {
            file.write_all(text)?;
            if sync { file.sync_all() } else { Ok(()) }
        })
        .and_then(|()| fs::rename(&draft, path));
    written.map_err(|e| {
        let _ = fs::remove_file(&draft);
        Error::io("write", path, e)
    })
}

/// Links the record of a directory under a second name and syncs it, the directory and its parent: the link survives a power
/// failure.
pub(crate) fn sync_record(dir: &Path) -> Result<()> {
    let (record, made) = (dir.join(RECORD), dir.join(MADE));
    fs::hard_link(&record, &made).map_err(|e| Error::io("link", &made, e))?;
    sync(&made)?;
    sync(dir)?;
    sync(dir.parent().unwrap_or(dir))
}

fn sync(path: &Path) -> Result<()> {
    let synced = File::open(path).and_then(|file| file.sync_all());
    synced.map_err(|e| Error::io("sync", path, e))
}

/// Removes the copy of a record. Succeeds if it does not exist.
pub(crate) fn remove_copy(copy: &Path) -> Result<()> {
    match fs::remove_file(copy) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", copy, error))
        }
        _ => Ok(()),
    }
}

/// Returns the entries of a directory, sorted by name. Empty if it does not exist.
pub(crate) fn list(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("read", dir, error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| Error::io("read", dir, e))?;
        if let Ok(name) = entry.file_name().into_string() {
            found.push((name, entry.path()));
        }
    }
    found.sort();
    Ok(found)
}

/// Removes a directory with its contents, in which nothing may be mounted. Succeeds if it does not exist.
pub(crate) fn remove(dir: &Path) -> Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", dir, error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_umask;

    impl Written for &str {}
    impl Written for i32 {}

    #[test]
    fn a_record_is_replaced_atomically_and_private() {
        let dir = tempfile::tempdir().expect("valid");
        let copy = tempfile::tempdir().expect("valid");
        let copy = copy.path().join("copy.json");
        for text in ["first", "second"] {
            write(dir.path(), &copy, &text).expect("valid");
            for path in [&dir.path().join(RECORD), &copy] {
                let read = fs::read_to_string(path).expect("valid");
                assert_eq!(read, format!("\"{text}\""));
                let mode = fs::metadata(path).expect("valid").permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
        }
        let entries: Vec<_> = fs::read_dir(dir.path()).expect("valid").collect();
        assert_eq!(entries.len(), 1, "no draft is left");
    }

    #[test]
    fn modes_of_directories_do_not_depend_on_the_umask() {
        let root = tempfile::tempdir().expect("valid");
        let mode = |name: &str| {
            let metadata = fs::metadata(root.path().join(name)).expect("valid");
            metadata.permissions().mode() & 0o7777
        };
        with_umask(0o077, || {
            make_dir(&root.path().join("pods/a")).expect("valid");
            // An existing file stays as it is.
            fs::create_dir(root.path().join("own")).expect("valid");
            make_dir(&root.path().join("own")).expect("valid");
        });
        assert_eq!((mode("pods"), mode("pods/a")), (0o700, 0o700));
        assert_eq!(mode("own"), 0o700);
        fs::write(root.path().join("file"), "").expect("valid");
        assert!(make_dir(&root.path().join("file")).is_err());
    }

    #[test]
    fn directories_of_earlier_versions_are_closed_and_others_stay() {
        let root = tempfile::tempdir().expect("valid");
        for (mode, closed, passable) in [
            (0o711, 0o700, 0o711),
            (0o700, 0o700, 0o711),
            (0o755, 0o755, 0o755),
            (0o750, 0o750, 0o751),
        ] {
            let dir = root.path().join(format!("{mode:o}"));
            make_dir_with(&dir, mode).expect("valid");
            close_to_others(&dir).expect("valid");
            assert_eq!(mode_of(&dir).expect("valid"), closed, "{mode:o}");
            let_pass(&dir).expect("valid");
            assert_eq!(mode_of(&dir).expect("valid"), passable, "{mode:o}");
        }
        let top = root.path().join("above/top");
        make_top(&top).expect("valid");
        let above = mode_of(&root.path().join("above")).expect("valid");
        assert_eq!((above, mode_of(&top).expect("valid")), (0o711, 0o700));
    }

    #[test]
    fn a_synced_record_is_not_replaced() {
        let dir = tempfile::tempdir().expect("valid");
        let copy = dir.path().join("copy.json");
        write(dir.path(), &copy, &"first").expect("valid");
        sync_record(dir.path()).expect("valid");
        write(dir.path(), &copy, &"second").expect("valid");
        let made = fs::read_to_string(dir.path().join(MADE)).expect("valid");
        assert_eq!(made, "\"first\"");
    }
}

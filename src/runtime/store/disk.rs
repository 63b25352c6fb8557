//! Records on disk: a directory per object with one file that is replaced as a whole.
//!
//! Nothing is synced: a record survives the daemon, however it ends. After a power failure no container runs any more,
//! and a record that came out damaged is reported and its remains are cleaned up like any other orphan.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::runtime::error::{Error, Result};

/// Name of the record in an object's directory.
pub const RECORD: &str = "record.json";

/// Makes the directory of an object. Its record is for root only; the directory can be passed through, because the
/// root of a container with a user namespace lies below.
pub fn make_dir(dir: &Path) -> Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(dir)
        .map_err(|e| Error::io("make", dir, e))
}

/// Replaces the record in a directory.
pub fn write<T: Serialize>(dir: &Path, record: &T) -> Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let path = dir.join(RECORD);
    let text = serde_json::to_vec(record).map_err(|e| Error::io("write", &path, e))?;
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let draft = dir.join(format!(".{RECORD}.{number}"));
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .and_then(|mut file| file.write_all(&text))
        .and_then(|()| fs::rename(&draft, &path));
    written.map_err(|e| {
        let _ = fs::remove_file(&draft);
        Error::io("write", &path, e)
    })
}

/// Reads the record in a directory.
pub fn read<T: DeserializeOwned>(dir: &Path) -> Result<T> {
    let path = dir.join(RECORD);
    let text = fs::read(&path).map_err(|e| Error::io("read", &path, e))?;
    serde_json::from_slice(&text).map_err(|e| Error::io("read", &path, e))
}

/// The directories below one, by name. None if it is not there.
pub fn list(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
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

/// Removes a directory with all that is in it; one that is not there is fine. Mounts below must be gone.
pub fn remove(dir: &Path) -> Result<()> {
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

    #[test]
    fn a_record_is_replaced_as_a_whole_and_for_root_only() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("valid");
        for text in ["first", "second"] {
            write(dir.path(), &text).expect("valid");
            assert_eq!(read::<String>(dir.path()).expect("valid"), text);
        }
        let entries: Vec<_> = fs::read_dir(dir.path()).expect("valid").collect();
        assert_eq!(entries.len(), 1, "no draft stays");
        let mode = fs::metadata(dir.path().join(RECORD))
            .expect("valid")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_record_is_named() {
        let dir = tempfile::tempdir().expect("valid");
        fs::write(dir.path().join(RECORD), "{").expect("valid");
        let error = read::<String>(dir.path()).expect_err("refused").to_string();
        assert!(error.contains("record.json"), "{error}");
    }
}

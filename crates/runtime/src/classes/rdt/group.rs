//! Groups of resctrl.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::{RdtError, is_system};

/// Why the last request was refused, in resctrl's words.
const STATUS: &str = "info/last_cmd_status";

/// Returns whether there is a group of this name.
pub(super) fn exists(root: &Path, name: &str) -> bool {
    root.join(name).join("tasks").is_file()
}

/// Makes the group of a class, unless it exists, and sets its shares.
///
/// # Errors
/// [`RdtError::Group`] if the kernel refuses.
pub(super) fn write(root: &Path, class: &str, schemata: &str) -> Result<(), RdtError> {
    let dir = if is_system(class) {
        root.to_owned()
    } else {
        root.join(class)
    };
    match fs::create_dir(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(refused(root, dir, &error));
        }
        _ => {}
    }
    if schemata.is_empty() {
        return Ok(());
    }
    let path = dir.join("schemata");
    // In one write, as the kernel wants it.
    fs::write(&path, schemata).map_err(|error| refused(root, path, &error))
}

fn refused(root: &Path, path: PathBuf, error: &io::Error) -> RdtError {
    let status = fs::read_to_string(root.join(STATUS)).unwrap_or_default();
    let reason = match status.trim() {
        "" | "ok" => error.to_string(),
        status => format!("{error}: {status}"),
    };
    RdtError::Group { path, reason }
}

//! The block devices that a pattern means.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};
use nix::sys::stat::{major, minor};

/// `*` ends at a slash, and matches names that begin with a dot, as in Go's `filepath.Glob`.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// The number of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number {
    /// The number of its driver.
    pub major: i64,
    /// The number with the driver.
    pub minor: i64,
}

/// Why a path of a class cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// A path without wildcards is another file.
    #[error("{} is no block device", .0.display())]
    Other(PathBuf),
    /// A path without wildcards is a partition.
    #[error("{} is a partition, for which the kernel has no limits", .0.display())]
    Partition(PathBuf),
    /// The OCI specification cannot say it.
    #[error(transparent)]
    Spec(#[from] oci_spec::OciSpecError),
    /// The file system failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Checks a pattern of paths: `*`, `?` and sets of characters, in which `^` negates as in Go.
pub(super) fn pattern(text: &str) -> Result<Pattern, String> {
    if !text.starts_with('/') {
        return Err(format!("device {text:?} is no absolute path"));
    }
    Pattern::new(&text.replace("[^", "[!"))
        .map_err(|error| format!("device {text:?}: {}", error.msg))
}

/// Returns the block devices of the node that a pattern matches, links followed. With wildcards partitions and all that is not a block
/// device are left out: `/dev/disk/by-id/*SSD*` matches them too.
///
/// # Errors
/// If a path without wildcards is no block device, or a partition.
pub fn matching(pattern: &Pattern) -> Result<Vec<Number>, DeviceError> {
    let text = pattern.as_str();
    let is_exact = !text.contains(['*', '?', '[']);
    // A pattern that was parsed once.
    let Ok(paths) = glob::glob_with(text, OPTIONS) else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for path in paths {
        let path = path.map_err(|error| DeviceError::Io {
            path: error.path().to_owned(),
            source: error.into(),
        })?;
        match device(&path) {
            Ok(Some(number)) => found.push(number),
            Ok(None) => {}
            Err(error) if is_exact => return Err(error),
            Err(_) => {}
        }
    }
    Ok(found)
}

/// `None` if it does not exist: devices come and go, and links to them later.
fn device(path: &Path) -> Result<Option<Number>, DeviceError> {
    let metadata = match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            let path = path.to_owned();
            return Err(DeviceError::Io { path, source });
        }
        Ok(metadata) => metadata,
    };
    if !metadata.file_type().is_block_device() {
        return Err(DeviceError::Other(path.to_owned()));
    }
    let number = metadata.rdev();
    let (major, minor) = (major(number), minor(number));
    if Path::new(&format!("/sys/dev/block/{major}:{minor}/partition")).exists() {
        return Err(DeviceError::Partition(path.to_owned()));
    }
    Ok(Some(Number {
        major: major.cast_signed(),
        minor: minor.cast_signed(),
    }))
}

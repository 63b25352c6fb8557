//! Files of the node that need not exist, and whose size may be anything.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

/// The limit of configuration files.
pub(crate) const MAX_CONFIG_FILE: u64 = 4 << 20;

/// `None` if it does not exist.
pub(crate) fn if_present<T>(found: io::Result<T>) -> io::Result<Option<T>> {
    match found {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        found => found.map(Some),
    }
}

/// Reads a file of at most `most` bytes. A larger one is [`ErrorKind::FileTooLarge`].
pub(crate) fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path)?;
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let reason = format!("larger than {most} bytes");
        return Err(io::Error::new(ErrorKind::FileTooLarge, reason));
    }
    Ok(bytes)
}

/// The paths in a directory, in the order of their names.
pub(crate) fn listed(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
    let mut paths = entries.collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The paths in a directory that end in this extension, in the order of their names; none if it does not exist.
pub(crate) fn with_extension(dir: &Path, extension: &str) -> io::Result<Vec<PathBuf>> {
    let mut paths = if_present(listed(dir))?.unwrap_or_default();
    paths.retain(|path| path.extension().is_some_and(|end| end == extension));
    Ok(paths)
}

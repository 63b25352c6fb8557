//! The files mapped into this program: itself, the loader, the C library.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Returns all of them.
///
/// # Errors
/// If a file was replaced or removed: an update is in progress, and the next shim has the new version.
pub(super) fn files() -> io::Result<BTreeSet<PathBuf>> {
    let maps = fs::read_to_string("/proc/self/maps")?;
    let paths = maps.lines().filter_map(|line| {
        let path = &line[line.find('/')?..];
        Some(path)
    });
    let mut files = BTreeSet::new();
    for path in paths {
        if path.ends_with(" (deleted)") {
            return Err(io::Error::other(format!("{path}: it was replaced")));
        }
        files.insert(PathBuf::from(path));
    }
    Ok(files)
}

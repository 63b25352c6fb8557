//! Dumps on disk: `DATE-REASON.json` and `DATE-REASON.trace.json` in a separate directory. Files are complete or absent.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nix::libc::O_NOFOLLOW;

/// A dump could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {source}", path = path.display())]
pub(super) struct DumpFileError {
    /// The file or directory.
    path: PathBuf,
    /// The system call's error.
    source: io::Error,
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> DumpFileError {
    let path = path.to_owned();
    move |source| DumpFileError { path, source }
}

/// The two files of a dump.
pub(super) const DUMP_FILE_ENDINGS: [&str; 2] = [".json", ".trace.json"];

/// Suffix of a file until it is complete.
const UNFINISHED_SUFFIX: &str = ".tmp";

/// Length of `20260131T235959.123Z`.
const STAMP_LEN: usize = 20;

/// The name of the dump to which a file belongs, and whether the file is complete; `None` for other files.
fn dump_of(file: &str) -> Option<(&str, bool)> {
    let (file, whole) = match file.strip_suffix(UNFINISHED_SUFFIX) {
        Some(rest) => (rest, false),
        None => (file, true),
    };
    let name = file
        .strip_suffix(DUMP_FILE_ENDINGS[1])
        .or_else(|| file.strip_suffix(DUMP_FILE_ENDINGS[0]))?;
    let (stamp, reason) = name.split_at_checked(STAMP_LEN)?;
    let form = stamp
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c });
    let is_stamp = form.eq("00000000T000000.000Z".chars());
    let reason = reason.strip_prefix('-')?;
    let is_word = !reason.is_empty() && reason.bytes().all(|b| b.is_ascii_alphanumeric());
    (is_stamp && is_word).then_some((name, whole))
}

/// Creates the directory if it is missing, mode 0700.
pub(super) fn prepare(dir: &Path) -> Result<(), DumpFileError> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    builder.create(dir).map_err(at(dir))
}

/// Writes a temporary file and renames it.
pub(super) fn write(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), DumpFileError> {
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(UNFINISHED_SUFFIX);
    let unfinished = PathBuf::from(unfinished);
    let written = write_whole(&unfinished, content).and_then(|()| fs::rename(&unfinished, path));
    written.map_err(|error| {
        // The temporary file may not exist.
        let _ = fs::remove_file(&unfinished);
        at(path)(error)
    })
}

fn write_whole(
    path: &Path,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let file = options.custom_flags(O_NOFOLLOW).open(path)?;
    let mut out = BufWriter::with_capacity(64 << 10, file);
    content(&mut out)?;
    out.flush()?;
    // After a power failure the name must not refer to an empty file.
    out.get_ref().sync_all()
}

/// Dumps and their files, the oldest first. Removes incomplete files: there is one writer, and it calls this between dumps.
fn list(dir: &Path) -> io::Result<BTreeMap<String, Vec<PathBuf>>> {
    let mut dumps: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        match name.to_str().and_then(dump_of) {
            Some((dump, true)) => dumps.entry(dump.to_owned()).or_default().push(entry.path()),
            Some((_, false)) => fs::remove_file(entry.path())?,
            None => {}
        }
    }
    Ok(dumps)
}

/// Removes the oldest dumps beyond `keep`, and no other files in the directory.
pub(super) fn prune(dir: &Path, keep: usize) -> Result<(), DumpFileError> {
    let dumps = list(dir).map_err(at(dir))?;
    let beyond = dumps.len().saturating_sub(keep);
    for path in dumps.into_values().take(beyond).flatten() {
        fs::remove_file(&path).map_err(at(&path))?;
    }
    Ok(())
}

/// Names and sizes of the complete dump files, the newest first.
pub(super) fn stored(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let files = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let (_, whole) = dump_of(&name)?;
        let len = entry.metadata().ok()?.len();
        whole.then_some((name, len))
    });
    let mut files: Vec<_> = files.collect();
    files.sort_unstable_by(|a, b| b.cmp(a));
    files
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_our_own_files_are_ours() {
        let name = "20260131T235959.123Z-sigusr2";
        assert_eq!(dump_of(&format!("{name}.json")), Some((name, true)));
        assert_eq!(dump_of(&format!("{name}.trace.json")), Some((name, true)));
        assert_eq!(dump_of(&format!("{name}.json.tmp")), Some((name, false)));
        for other in [
            "journal.json",
            ".json",
            "20260131T235959.123Z-.json",
            "20260131T235959.123Z.json",
            "20260131T235959-123Z-panic.json",
            "20260131T235959.123Z-panic",
            "20260131T235959.123Z-../x.json",
            "2026013éT235959.123Z-panic.json",
            "é",
        ] {
            assert_eq!(dump_of(other), None, "{other}");
        }
    }

    #[test]
    fn the_oldest_make_room_and_others_files_stay() {
        let dir = tempfile::tempdir().expect("dir");
        let dir = dir.path().join("state/dumps");
        prepare(&dir).expect("made");
        prepare(&dir).expect("it may be there");
        assert_eq!(
            fs::metadata(&dir).expect("dir").permissions().mode() & 0o777,
            0o700
        );
        for second in 0..4 {
            for ending in DUMP_FILE_ENDINGS {
                let path = dir.join(format!("20260131T23595{second}.123Z-panic{ending}"));
                write(&path, |out| out.write_all(b"x")).expect("written");
                let mode = fs::metadata(&path).expect("file").permissions().mode();
                assert_eq!(mode & 0o777, 0o600);
            }
        }
        fs::write(dir.join("notes.json"), "mine").expect("written");
        fs::write(dir.join("20260131T235959.000Z-panic.json.tmp"), "half").expect("written");
        prune(&dir, 2).expect("pruned");
        let left: Vec<_> = stored(&dir).into_iter().map(|(name, _)| name).collect();
        assert_eq!(
            left,
            [
                "20260131T235953.123Z-panic.trace.json",
                "20260131T235953.123Z-panic.json",
                "20260131T235952.123Z-panic.trace.json",
                "20260131T235952.123Z-panic.json",
            ]
        );
        assert_eq!(
            fs::read_dir(&dir).expect("dir").count(),
            5,
            "notes.json stays"
        );
    }

    #[test]
    fn what_fails_leaves_nothing_behind() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("20260131T235959.123Z-panic.json");
        let error = write(&path, |out| {
            out.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        let error = error.expect_err("it fails").to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
        assert_eq!(fs::read_dir(dir.path()).expect("dir").count(), 0);
        assert!(write(&dir.path().join("no/such"), |_| Ok(())).is_err());
    }
}

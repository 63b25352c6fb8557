//! The networks configured in a directory, which is checked at each use with `stat` calls: there is no watch that could
//! miss a change, and changes take effect immediately.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::conf::Network;
use super::error::ParseError;

/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// An invalid file, which is skipped.
#[derive(Debug)]
pub struct Problem {
    /// The file, or the directory.
    pub path: PathBuf,
    /// Why it is invalid.
    pub why: ParseError,
}

/// The configuration of a directory.
#[derive(Debug, Default)]
pub struct Loaded {
    /// In lexical order of their files, at most as many as requested.
    pub networks: Vec<Arc<Network>>,
    /// Files that were skipped.
    pub problems: Vec<Problem>,
}

/// A directory of configurations.
#[derive(Debug)]
pub(crate) struct ConfDir {
    path: PathBuf,
    /// Maximum number of networks; 0 means all.
    max: usize,
    last: Mutex<Option<(Vec<Mark>, Arc<Loaded>)>>,
}

/// File attributes that change when a file changes.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Mark {
    path: PathBuf,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl ConfDir {
    pub(crate) fn new(path: PathBuf, max: usize) -> Self {
        Self {
            path,
            max,
            last: Mutex::new(None),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Loads the current configuration. Blocks for some file system calls.
    pub(crate) fn load(&self) -> Arc<Loaded> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = match marks(&self.path) {
            Ok(marks) => marks,
            Err(error) => {
                *last = None;
                return Arc::new(Loaded {
                    networks: Vec::new(),
                    problems: vec![Problem {
                        path: self.path.clone(),
                        why: error.into(),
                    }],
                });
            }
        };
        if let Some((seen, loaded)) = last.as_ref()
            && *seen == marks
        {
            return Arc::clone(loaded);
        }
        let loaded = Arc::new(read(&marks, self.max));
        for problem in &loaded.problems {
            tracing::warn!(file.path = %problem.path.display(), why = %problem.why, "a network configuration is skipped");
        }
        *last = Some((marks, Arc::clone(&loaded)));
        loaded
    }
}

fn marks(dir: &Path) -> io::Result<Vec<Mark>> {
    let mut marks = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        // A file that was removed in the meantime is skipped; any other error is reported when the file is read.
        let Ok(status) = fs::metadata(&path) else {
            continue;
        };
        // Directories are included because they can hold plugins of a list.
        if status.is_dir() || configures(&path) {
            marks.push(Mark {
                path,
                inode: status.ino(),
                size: status.size(),
                modified: (status.mtime(), status.mtime_nsec()),
                changed: (status.ctime(), status.ctime_nsec()),
            });
        }
    }
    marks.sort_unstable();
    Ok(marks)
}

fn configures(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("conf" | "conflist" | "json"))
}

fn read(marks: &[Mark], max: usize) -> Loaded {
    let mut loaded = Loaded::default();
    for mark in marks.iter().filter(|mark| configures(&mark.path)) {
        if max != 0 && loaded.networks.len() == max {
            break;
        }
        match read_one(mark) {
            Ok(network)
                if loaded
                    .networks
                    .iter()
                    .any(|other| other.name == network.name) =>
            {
                loaded.problems.push(Problem {
                    path: mark.path.clone(),
                    why: ParseError::Duplicate(network.name),
                });
            }
            Ok(network) => loaded.networks.push(Arc::new(network)),
            Err(why) => loaded.problems.push(Problem {
                path: mark.path.clone(),
                why,
            }),
        }
    }
    loaded
}

fn read_one(mark: &Mark) -> Result<Network, ParseError> {
    if mark.size > MAX_FILE {
        return Err(ParseError::TooLarge {
            size: mark.size,
            limit: MAX_FILE,
        });
    }
    let text = fs::read(&mark.path)?;
    Network::parse(&mark.path, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conf(dir: &Path, file: &str, name: &str) {
        let text = format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"x"}}"#);
        fs::write(dir.join(file), text).expect("write");
    }

    fn names(loaded: &Loaded) -> Vec<&str> {
        loaded
            .networks
            .iter()
            .map(|network| network.name())
            .collect()
    }

    #[test]
    fn the_first_valid_file_in_lexical_order_is_used() {
        let dir = tempfile::tempdir().expect("dir");
        conf(dir.path(), "20-b.conf", "b");
        conf(dir.path(), "30-c.json", "c");
        conf(dir.path(), "05-not.txt", "no");
        fs::write(dir.path().join("10-broken.conflist"), "{").expect("write");
        let loaded = ConfDir::new(dir.path().to_owned(), 1).load();
        assert_eq!(names(&loaded), ["b"]);
        assert_eq!(loaded.problems.len(), 1);
        assert!(loaded.problems[0].path.ends_with("10-broken.conflist"));
        assert_eq!(
            names(&ConfDir::new(dir.path().to_owned(), 0).load()),
            ["b", "c"]
        );
    }

    #[test]
    fn changes_take_effect_at_the_next_load() {
        let dir = tempfile::tempdir().expect("dir");
        let confs = ConfDir::new(dir.path().join("later"), 1);
        assert_eq!(confs.load().problems.len(), 1);
        fs::create_dir(dir.path().join("later")).expect("dir");
        assert!(confs.load().networks.is_empty());
        conf(&dir.path().join("later"), "20.conf", "b");
        let first = confs.load();
        assert_eq!(names(&first), ["b"]);
        assert!(
            Arc::ptr_eq(&first, &confs.load()),
            "reloaded without a change"
        );
        conf(&dir.path().join("later"), "10.conf", "a");
        assert_eq!(names(&confs.load()), ["a"]);
        fs::remove_file(dir.path().join("later/10.conf")).expect("remove");
        assert_eq!(names(&confs.load()), ["b"]);
    }
}

//! Binds `runtime.root` (ROOT) and `runtime.state` (STATE) to each other and to one process.
//!
//! ROOT and STATE each have an `identity.json` that names the other. The pods running according to STATE have their records in
//! one ROOT only; with another ROOT, a daemon would treat all of them as orphans. So the match is checked before anything is
//! created, moved or removed. Both directories are locked (flock(2)) as long as the process lives.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::refused::Refused;
use super::{disk, versions};
use crate::error::{Error, Result};
use crate::id;
use crate::paths::Paths;

/// Name of the file in both directories.
pub(super) const FILE: &str = "identity.json";

/// Version of both files.
pub(super) const VERSION: u32 = 1;

/// How long to wait for a lock: a child that the previous daemon was starting inherits it until its execve.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

const PAUSE: Duration = Duration::from_millis(20);

/// `ROOT/identity.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RootIdentity {
    version: u32,
    /// Identity of this root.
    id: String,
    /// Identity of the state it was last used with; `boot` is the boot id at that time.
    state_id: String,
    state: PathBuf,
    boot: String,
}

/// `STATE/identity.json`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct StateIdentity {
    version: u32,
    /// Identity of this state.
    id: String,
    /// Identity of the root whose pods it holds.
    root_id: String,
    root: PathBuf,
    boot: String,
}

/// The inputs of [`decide`].
#[derive(Clone, Debug, Default)]
struct Found {
    root: Option<RootIdentity>,
    state: Option<StateIdentity>,
    /// Pods with a directory or pinned namespaces in the state.
    running: BTreeSet<String>,
    /// Pods with a directory in the root.
    stored: BTreeSet<String>,
    /// True if anything is mounted below the state.
    mounted: bool,
    /// True if the root has a record of this boot, or one that cannot be read.
    recent: bool,
    boot: String,
}

/// Both directories, bound to each other and locked for this process.
#[derive(Debug)]
pub(crate) struct Bound {
    _locks: Vec<File>,
}

/// Locks both directories and binds them to each other; creates the ones that do not exist. `images` is the image store, whose
/// record versions are also checked.
///
/// # Errors
/// [`Error::Refused`], before anything is changed; [`Error::Io`].
pub(crate) fn bind(paths: &Paths, images: &Path) -> Result<Bound> {
    let dirs = [paths.state(), paths.root()];
    let mut locks = Vec::new();
    // Existing directories are locked before they are read; a missing one cannot be in use.
    for dir in dirs {
        locks.extend(lock(dir, paths)?);
    }
    versions::check(paths, images)?;
    let found = look(paths)?;
    decide(&found, paths).map_err(Error::refused)?;
    if locks.len() < dirs.len() {
        locks.clear();
        for dir in dirs {
            disk::make_top(dir)?;
            locks.extend(lock(dir, paths)?);
        }
    }
    for dir in dirs {
        disk::close_to_others(dir)?;
    }
    write(found, paths)?;
    Ok(Bound { _locks: locks })
}

/// Locks a directory; `None` if it does not exist.
fn lock(dir: &Path, paths: &Paths) -> Result<Option<File>> {
    let open = match File::open(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        open => open.map_err(|e| Error::io("open", dir, e))?,
    };
    let until = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&open, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(open)),
            Err(Errno::WOULDBLOCK) if Instant::now() < until => std::thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::refused(Refused::Locked {
                    path: dir.to_owned(),
                    root: paths.root().to_owned(),
                    state: paths.state().to_owned(),
                }));
            }
            Err(error) => return Err(Error::io("lock", dir, error)),
        }
    }
}

fn look(paths: &Paths) -> Result<Found> {
    let boot = id::boot();
    let mut running = ids_in(&paths.pods())?;
    running.extend(ids_in(&paths.namespaces())?);
    Ok(Found {
        root: read(&paths.root().join(FILE))?,
        state: read(&paths.state().join(FILE))?,
        running,
        stored: ids_in(&paths.sandboxes())?,
        mounted: mounted_below(paths.state()),
        recent: versions::has_boot(paths, &boot)?,
        boot,
    })
}

fn ids_in(dir: &Path) -> Result<BTreeSet<String>> {
    let all = disk::list(dir)?.into_iter().map(|(name, _)| name);
    Ok(all.filter(|name| id::is_id(name)).collect())
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|e| Error::io("read", path, e))?,
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| {
        Error::refused(Refused::Damaged {
            path: path.to_owned(),
            why: error.to_string(),
        })
    })
}

/// Returns whether a namespace or shared memory is mounted below a directory: a sign of running pods.
fn mounted_below(dir: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    points.any(|point| Path::new(point) != dir && Path::new(point).starts_with(dir))
}

/// Checks that the root and the state may be used together.
fn decide(found: &Found, paths: &Paths) -> std::result::Result<(), Refused> {
    // After a reboot no pod is running, even if the state is on a persistent file system.
    let this_boot = found
        .state
        .as_ref()
        .is_none_or(|state| state.boot == found.boot);
    let busy = this_boot && (!found.running.is_empty() || found.mounted);
    let ids = found.root.as_ref().zip(found.state.as_ref());
    let bound = ids.map(|(root, state)| root.id == state.root_id);
    if busy {
        if bound == Some(false) {
            return Err(other_root(paths, "the two have different identities"));
        }
        if !found.running.is_empty() && found.running.is_disjoint(&found.stored) {
            return Err(other_root(paths, "none of these pods is in it"));
        }
        if found.root.is_none() && found.running.is_empty() {
            return Err(other_root(paths, "it has no identity"));
        }
    }
    let state = found.state.as_ref();
    // `mounted` is not used here: mounts of the bound state may be hidden by a mount over its directory.
    if let Some(root) = &found.root
        && root.boot == found.boot
        && found.recent
        && found.running.is_empty()
        && state.is_none_or(|state| state.id != root.state_id)
    {
        return Err(Refused::OtherState {
            root: paths.root().to_owned(),
            state: paths.state().to_owned(),
            bound: root.state.clone(),
        });
    }
    Ok(())
}

fn other_root(paths: &Paths, why: &str) -> Refused {
    Refused::OtherRoot {
        root: paths.root().to_owned(),
        state: paths.state().to_owned(),
        why: why.to_owned(),
    }
}

/// Writes the identities that are missing or outdated. A crash between the two writes leaves a root that is bound to an empty
/// state.
fn write(found: Found, paths: &Paths) -> Result<()> {
    let Found {
        root, state, boot, ..
    } = found;
    let root_id = match &root {
        Some(root) => root.id.clone(),
        None => match &state {
            // The root has lost its identity, but its pods are running.
            Some(state) if state.boot == boot => state.root_id.clone(),
            _ => new_identity()?,
        },
    };
    let state_id = match &state {
        Some(state) if state.boot == boot => state.id.clone(),
        _ => new_identity()?,
    };
    let new_root = RootIdentity {
        version: VERSION,
        id: root_id.clone(),
        state_id: state_id.clone(),
        state: paths.state().to_owned(),
        boot: boot.clone(),
    };
    let new_state = StateIdentity {
        version: VERSION,
        id: state_id,
        root_id,
        root: paths.root().to_owned(),
        boot,
    };
    if root.as_ref() != Some(&new_root) {
        disk::write_file(&paths.root().join(FILE), &new_root)?;
    }
    if state.as_ref() != Some(&new_state) {
        disk::write_file(&paths.state().join(FILE), &new_state)?;
    }
    Ok(())
}

fn new_identity() -> Result<String> {
    id::new_id().map(|id| id[..32].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Paths {
        Paths::new("/root-dir", "/state-dir")
    }

    fn bound() -> Found {
        let one = |text: &str| BTreeSet::from([text.to_owned()]);
        Found {
            root: Some(RootIdentity {
                id: "r".to_owned(),
                state_id: "s".to_owned(),
                boot: "now".to_owned(),
                ..Default::default()
            }),
            state: Some(StateIdentity {
                id: "s".to_owned(),
                root_id: "r".to_owned(),
                boot: "now".to_owned(),
                ..Default::default()
            }),
            running: one("pod"),
            stored: one("pod"),
            mounted: true,
            recent: true,
            boot: "now".to_owned(),
        }
    }

    fn fits(change: impl FnOnce(&mut Found)) -> bool {
        let mut found = bound();
        change(&mut found);
        decide(&found, &paths()).is_ok()
    }

    fn idle(found: &mut Found) {
        found.running.clear();
        found.mounted = false;
    }

    #[test]
    fn a_matching_root_and_state_are_accepted() {
        assert!(fits(|_| ()));
        // Nothing there yet, and everything wiped.
        assert!(decide(&Found::default(), &paths()).is_ok());
        // The machine was rebooted: the state is, or was, on a tmpfs.
        let reboot = |found: &mut Found| {
            found.boot = "later".to_owned();
            found.recent = false;
        };
        assert!(fits(|found| {
            reboot(found);
            idle(found);
            found.state = None;
        }));
        assert!(fits(reboot));
        // A wiped store, and an empty state.
        assert!(fits(|found| {
            idle(found);
            found.root = None;
            found.stored.clear();
            found.recent = false;
        }));
        // All pods are gone: either can be moved.
        assert!(fits(|found| {
            idle(found);
            found.state = None;
            found.recent = false;
        }));
        // Written by a version without identities, or by a daemon killed between the two writes.
        assert!(fits(|found| (found.root, found.state) = (None, None)));
        assert!(fits(|found| found.state = None));
        assert!(fits(|found| found.root = None));
    }

    #[test]
    fn a_mismatched_root_and_state_are_refused() {
        let other = |found: &mut Found| {
            if let Some(root) = &mut found.root {
                root.id = "another".to_owned();
            }
        };
        assert!(!fits(other));
        let gone = |found: &mut Found| {
            found.root = None;
            found.stored.clear();
            found.recent = false;
        };
        assert!(!fits(gone));
        // Only mounts indicate that a pod is running.
        assert!(!fits(|found| {
            gone(found);
            found.running.clear();
        }));
        // Part of the store is not mounted.
        assert!(!fits(|found| found.stored.clear()));
        // Another file system is mounted on the state of these pods.
        assert!(!fits(|found| {
            found.running.clear();
            found.state = None;
        }));
        // Pods of the current boot, which the state does not know.
        assert!(!fits(|found| {
            idle(found);
            found.state = None;
        }));
    }

    fn bind_at(paths: &Paths) -> Result<Bound> {
        bind(paths, &paths.images())
    }

    #[test]
    fn one_process_has_both_directories() {
        let dir = tempfile::tempdir().expect("dir");
        let place =
            |root: &str, state: &str| Paths::new(dir.path().join(root), dir.path().join(state));
        let first = bind_at(&place("r1", "s1")).expect("the first");
        for (root, state) in [("r1", "s1"), ("r1", "s2"), ("r2", "s1")] {
            let error = bind_at(&place(root, state))
                .expect_err("locked")
                .to_string();
            assert!(error.contains("another process"), "{error}");
        }
        assert!(!dir.path().join("r2").exists() && !dir.path().join("s2").exists());
        bind_at(&place("r2", "s2")).expect("others");
        drop(first);
        bind_at(&place("r1", "s1")).expect("again");
    }
}

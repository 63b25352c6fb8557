//! Frozen cgroups, and how they are thawed.
//!
//! A process in a frozen cgroup handles no signal. With version 1 not even SIGKILL ends it; with version 2 only SIGKILL does. A cgroup
//! is frozen by its own setting or by an ancestor's.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::mounts::gone;
use super::remove::tree;
use super::{Cgroup, Dir, Error};

/// The setting of version 1.
const STATE: &str = "freezer.state";
/// Whether a cgroup of version 1 is frozen by its own setting: [`STATE`] is also `FROZEN` if one above it is frozen.
const SELF_FREEZING: &str = "freezer.self_freezing";
/// The setting of version 2.
const FREEZE: &str = "cgroup.freeze";

impl Cgroup {
    /// The directories that are frozen by their own setting: of this cgroup and of all below it, each before those below it.
    #[must_use]
    pub fn frozen_tree(&self) -> Vec<PathBuf> {
        let all = self.freezers().flat_map(|dir| tree(&dir.path));
        all.filter(|dir| freezes(dir)).collect()
    }

    /// The directories of this cgroup alone that are frozen by their own setting.
    #[must_use]
    pub fn frozen_itself(&self) -> Vec<PathBuf> {
        let all = self.freezers().map(|dir| dir.path.clone());
        all.filter(|dir| freezes(dir)).collect()
    }

    /// The directory whose setting keeps the processes of this cgroup from running: its own, or the nearest above it.
    #[must_use]
    pub fn frozen_by(&self) -> Option<PathBuf> {
        let mut dirs = self.freezers();
        dirs.find_map(|dir| {
            let above = dir.path.ancestors();
            let mut above = above.take_while(|path| path.starts_with(&dir.point));
            above.find(|path| freezes(path)).map(Path::to_owned)
        })
    }

    /// The directories in hierarchies that can freeze.
    fn freezers(&self) -> impl Iterator<Item = &Dir> {
        self.dirs.iter().filter(|dir| {
            let mut controllers = dir.controllers.iter();
            dir.controllers.is_empty() || controllers.any(|name| name == "freezer")
        })
    }
}

/// Thaws a cgroup by its directory in one hierarchy, and not those below it. Succeeds if it does not exist, or cannot be frozen.
///
/// # Errors
/// If the setting cannot be written.
pub fn thaw(dir: &Path) -> Result<(), Error> {
    for (file, running) in [(STATE, "THAWED"), (FREEZE, "0")] {
        let file = dir.join(file);
        let opened = fs::OpenOptions::new().write(true).open(&file);
        let written =
            opened.and_then(|mut file| io::Write::write_all(&mut file, running.as_bytes()));
        match written {
            Err(error) if !gone(&error) => return Err(Error::io("thaw", &file, error)),
            _ => {}
        }
    }
    Ok(())
}

/// Returns whether the setting of a directory freezes it, even if some of its processes are not frozen yet.
fn freezes(dir: &Path) -> bool {
    [SELF_FREEZING, FREEZE].iter().any(|name| {
        let setting = fs::read_to_string(dir.join(name));
        setting.is_ok_and(|setting| setting.trim() == "1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::Hierarchies;

    fn set(dir: &Path, name: &str, value: &str) {
        fs::create_dir_all(dir).expect("directory");
        fs::write(dir.join(name), value).expect("setting");
    }

    fn read(dir: &Path, name: &str) -> String {
        fs::read_to_string(dir.join(name)).expect("setting")
    }

    /// Plain files stand for a hybrid node, which has the freezer of version 1 and a unified hierarchy that freezes too.
    #[test]
    fn a_cgroup_is_frozen_by_itself_by_one_above_or_in_part() {
        let mount = tempfile::tempdir().expect("directory");
        let (v1, v2) = (mount.path().join("freezer"), mount.path().join("unified"));
        let mounts = format!(
            "1 0 0:1 / {} rw - cgroup cgroup rw,freezer\n2 0 0:2 / {} rw - cgroup2 cgroup2 rw\n",
            v1.display(),
            v2.display()
        );
        let all = Hierarchies::parse(mounts.as_bytes()).expect("mounts");
        let cgroup = all.at(Path::new("/pod/c")).expect("a path");
        assert_eq!((cgroup.frozen_by(), cgroup.frozen_tree()), (None, vec![]));
        for (dir, own) in [
            ("pod", "0"),
            ("pod/c", "0"),
            ("pod/c/a", "0"),
            ("pod/c/a/b", "1"),
        ] {
            let state = if own == "1" { "FREEZING\n" } else { "THAWED\n" };
            set(&v1.join(dir), STATE, state);
            set(&v1.join(dir), SELF_FREEZING, own);
            set(&v2.join(dir), FREEZE, "0\n");
        }
        set(&v2.join("pod/c"), FREEZE, "1\n");
        let own = v2.join("pod/c");
        let nested = v1.join("pod/c/a/b");
        assert_eq!(cgroup.frozen_by(), Some(own.clone()));
        assert_eq!(cgroup.frozen_itself(), std::slice::from_ref(&own));
        assert_eq!(cgroup.frozen_tree(), [nested.clone(), own.clone()]);
        for dir in cgroup.frozen_tree() {
            thaw(&dir).expect("thawed");
        }
        assert!(read(&nested, STATE).starts_with("THAWED"));
        assert_eq!(read(&own, FREEZE), "0\n");
        set(&nested, SELF_FREEZING, "0\n");
        assert_eq!((cgroup.frozen_by(), cgroup.frozen_tree()), (None, vec![]));

        // By the cgroup of the pod: the state of those below follows, and their own setting does not.
        set(&v1.join("pod"), SELF_FREEZING, "1\n");
        set(&v1.join("pod/c"), STATE, "FROZEN\n");
        assert_eq!(cgroup.frozen_by(), Some(v1.join("pod")));
        assert_eq!(cgroup.frozen_tree(), [""; 0].map(PathBuf::from));
        let pod = cgroup.parent().expect("the cgroup of the pod");
        assert_eq!(pod.frozen_itself(), [v1.join("pod")]);
        let root = pod.parent().expect("the root of the hierarchies");
        assert_eq!((root.frozen_by(), root.parent()), (None, None));
        thaw(&mount.path().join("none")).expect("there is nothing to thaw");
    }
}

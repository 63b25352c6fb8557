//! The pod's parent cgroup: a runtime creates it if it is missing and leaves it behind, as it does for a kubelet. So
//! the run removes the cgroups that appeared during the run.
//!
//! Only an empty cgroup can be removed: the kernel refuses any other (cgroups(7)). A slice belongs to systemd, and is only
//! reported: stopping it would end processes that entered it meanwhile.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::LeftoverObject;

/// containerd's default parent with the driver cgroupfs: its namespace.
const CONTAINERD_CGROUP_PARENT: &str = "/k8s.io";

/// Cgroups that did not exist before the run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ParentCgroups {
    /// The name that the runtime is given, or its default.
    name: String,
    /// True if systemd creates the runtime's cgroups.
    systemd: bool,
    /// Missing directories of all hierarchies, parents first.
    missing: Vec<PathBuf>,
}

impl ParentCgroups {
    /// Checks the hierarchies visible to this process.
    pub(super) fn before(name: &str, systemd: bool) -> Self {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        Self::among(&mounts, name, systemd)
    }

    /// With the text of a `/proc/PID/mounts` (fstab(5)).
    fn among(mounts: &str, name: &str, systemd: bool) -> Self {
        let name = if name.is_empty() {
            CONTAINERD_CGROUP_PARENT
        } else {
            name
        };
        let points: Vec<_> = mounts.lines().filter_map(hierarchy).collect();
        let levels = if systemd {
            // A slice is one object, in all hierarchies.
            slices(name)
                .into_iter()
                .filter(|slice| points.iter().all(|point| is_missing(point.join(slice))))
                .collect()
        } else {
            levels(name)
        };
        let all = points
            .iter()
            .flat_map(|point| levels.iter().map(|level| point.join(level)));
        Self {
            name: name.to_owned(),
            systemd,
            missing: all.filter(|dir| is_missing(dir)).collect(),
        }
    }

    /// Removes the empty cgroups. With systemd none is removed, and slices in use are not reported.
    pub(super) fn remove(&mut self) {
        if !self.systemd {
            for dir in self.missing.iter().rev() {
                // The rest is reported.
                let _ = fs::remove_dir(dir);
            }
        } else if self.there().any(|dir| self.in_use(dir)) {
            self.missing.clear();
        }
    }

    /// Cgroups that exist now, and did not before.
    pub(super) fn left(&self) -> Option<LeftoverObject> {
        let top = self.there().next()?;
        if self.systemd {
            let slice = top.file_name().unwrap_or_default().display();
            return Some(LeftoverObject {
                what: format!("slice {slice}"),
                remove: format!("systemctl stop {slice}"),
            });
        }
        let dirs: Vec<_> = self
            .there()
            .rev()
            .map(|dir| dir.display().to_string())
            .collect();
        Some(LeftoverObject {
            what: format!("cgroup {}", self.name),
            remove: format!("rmdir {}", dirs.join(" ")),
        })
    }

    /// Returns whether it has a process, or a child that the run did not request.
    fn in_use(&self, dir: &Path) -> bool {
        let processes = fs::read(dir.join("cgroup.procs"));
        let mut below = fs::read_dir(dir).into_iter().flatten().flatten();
        processes.is_ok_and(|pids| !pids.is_empty())
            || below.any(|entry| {
                entry.file_type().is_ok_and(|kind| kind.is_dir())
                    && !self.missing.contains(&entry.path())
            })
    }

    fn there(&self) -> impl DoubleEndedIterator<Item = &Path> {
        let dirs = self.missing.iter().map(PathBuf::as_path);
        dirs.filter(|dir| dir.exists())
    }
}

/// Returns whether nothing is at a path. An inaccessible directory is another user's, not ours.
fn is_missing(dir: impl AsRef<Path>) -> bool {
    dir.as_ref().try_exists().is_ok_and(|there| !there)
}

/// The mount point of a cgroup hierarchy of either version. Mount points of cgroups have no blanks.
fn hierarchy(line: &str) -> Option<&Path> {
    let mut words = line.split(' ').skip(1);
    let point = words.next()?;
    matches!(words.next()?, "cgroup" | "cgroup2").then(|| Path::new(point))
}

/// `a`, `a/b` for `/a/b`; empty for a path with `..`.
fn levels(path: &str) -> Vec<PathBuf> {
    let mut levels = Vec::new();
    let mut level = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::Normal(name) => {
                level.push(name);
                levels.push(level.clone());
            }
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Vec::new(),
        }
    }
    levels
}

/// `a.slice`, `a.slice/a-b.slice` for `a-b.slice` (systemd.slice(5)); empty for anything but a slice.
fn slices(parent: &str) -> Vec<PathBuf> {
    let last = parent.trim_end_matches('/').rsplit('/').next();
    let Some(name) = last.and_then(|last| last.strip_suffix(".slice")) else {
        return Vec::new();
    };
    if name.split('-').any(str::is_empty) {
        return Vec::new();
    }
    let ends = name.match_indices('-').map(|(at, _)| at);
    let mut level = PathBuf::new();
    let mut slices = Vec::new();
    for end in ends.chain([name.len()]) {
        level.push(format!("{}.slice", &name[..end]));
        slices.push(level.clone());
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two directories as hierarchies, and a table of mounts with them.
    fn hierarchies() -> (tempfile::TempDir, [PathBuf; 2], String) {
        let dir = tempfile::tempdir().expect("a directory");
        let [one, two] = ["memory", "unified"].map(|name| dir.path().join(name));
        for point in [&one, &two] {
            fs::create_dir(point).expect("mkdir");
        }
        let mounts = format!(
            "proc /proc proc rw 0 0\ncgroup {} cgroup rw,memory 0 0\ncgroup2 {} cgroup2 rw 0 0\ntmpfs {}/x tmpfs rw 0 0\n",
            one.display(),
            two.display(),
            dir.path().display()
        );
        (dir, [one, two], mounts)
    }

    fn make(points: &[PathBuf], path: &str) {
        for point in points {
            fs::create_dir_all(point.join(path)).expect("mkdir");
        }
    }

    #[test]
    fn only_new_cgroups_are_removed_in_all_hierarchies() {
        let (_dir, points, mounts) = hierarchies();
        make(&points, "kubepods");
        make(&points[..1], "kubepods/there");
        let mut parent = ParentCgroups::among(&mounts, "/kubepods/there/new", false);
        make(&points, "kubepods/there/new");
        assert!(parent.left().is_some(), "as long as it exists");
        parent.remove();
        assert_eq!(parent.left(), None);
        assert!(points[0].join("kubepods/there").exists());
        assert!(!points[0].join("kubepods/there/new").exists());
        assert!(points[1].join("kubepods").exists());
        assert!(!points[1].join("kubepods/there").exists());
    }

    #[test]
    fn a_cgroup_in_use_is_kept_and_reported() {
        let (_dir, points, mounts) = hierarchies();
        let mut parent = ParentCgroups::among(&mounts, "/a/b", false);
        make(&points, "a/b");
        make(&points[1..], "a/b/pod");
        parent.remove();
        assert!(!points[0].join("a").exists());
        let there = points[1].join("a");
        let left = parent.left().expect("left");
        assert_eq!(left.what, "cgroup /a/b");
        let there = there.display();
        assert_eq!(left.remove, format!("rmdir {there}/b {there}"));
    }

    #[test]
    fn the_default_parent_is_that_of_containerd() {
        let (_dir, points, mounts) = hierarchies();
        let mut parent = ParentCgroups::among(&mounts, "", false);
        make(&points, "k8s.io");
        parent.remove();
        assert!(points.iter().all(|point| !point.join("k8s.io").exists()));
    }

    #[test]
    fn slices_are_reported_and_left_to_systemd() {
        let (_dir, points, mounts) = hierarchies();
        let look = || ParentCgroups::among(&mounts, "/x/a-b.slice", true);
        let (mut used, mut empty) = (look(), look());
        make(&points, "a.slice/a-b.slice");
        empty.remove();
        let left = empty.left().expect("left");
        assert_eq!(left.what, "slice a.slice");
        assert_eq!(left.remove, "systemctl stop a.slice");
        make(&points[..1], "a.slice/other.scope");
        used.remove();
        assert_eq!(used.left(), None, "another process is in it");
        assert!(points[0].join("a.slice/a-b.slice").exists());
        // It existed before.
        assert_eq!(look().left(), None);
    }

    #[test]
    fn a_slice_in_another_hierarchy_existed_before() {
        let (_dir, points, mounts) = hierarchies();
        make(&points[..1], "system.slice");
        let mut parent = ParentCgroups::among(&mounts, "system.slice", true);
        make(&points, "system.slice");
        parent.remove();
        assert_eq!(parent.left(), None);
    }

    #[test]
    fn invalid_paths_are_ignored() {
        for path in ["/a/../b", "..", "/"] {
            assert_eq!(levels(path), Vec::<PathBuf>::new(), "{path}");
        }
        for slice in ["/a/b", "a--b.slice", "-.slice", ".slice", ""] {
            assert_eq!(slices(slice), Vec::<PathBuf>::new(), "{slice}");
        }
    }
}

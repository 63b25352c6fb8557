//! Mounted cgroup hierarchies, from `/proc/self/mountinfo`.

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::place::{container_path, pod_path};
use super::{Cgroup, CgroupDriver, CgroupVersion, Dir, Error};
use crate::mountinfo::unescape;

/// Options of a version 1 mount that are not controllers (`cgroup_show_options` of the kernel).
const NO_CONTROLLERS: &[&str] = &[
    "rw",
    "ro",
    "none",
    "all",
    "noprefix",
    "xattr",
    "cpuset_v2_mode",
    "favordynmods",
    "clone_children",
    "seclabel",
];

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// The controllers, `name=systemd` for a named hierarchy; none for the unified hierarchy.
    pub controllers: Vec<String>,
    /// Where it is mounted.
    pub point: PathBuf,
    /// The root of the mount in the hierarchy: `/` except in a container.
    pub root: PathBuf,
}

/// All mounted hierarchies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    version: CgroupVersion,
    all: Vec<Hierarchy>,
}

impl Hierarchies {
    /// Reads the hierarchies of the calling process.
    ///
    /// # Errors
    /// [`Error::NotMounted`] on a node without cgroups.
    pub fn detect() -> Result<Self, Error> {
        let path = Path::new("/proc/self/mountinfo");
        let table = fs::read(path).map_err(|error| Error::io("read", path, error))?;
        Self::parse(&table)
    }

    /// Parses a `mountinfo` file (proc_pid_mountinfo(5)). Of a hierarchy that is mounted twice, the first mount is used.
    ///
    /// # Errors
    /// [`Error::NotMounted`] if there is none.
    pub fn parse(mountinfo: &[u8]) -> Result<Self, Error> {
        let mut all: Vec<Hierarchy> = Vec::new();
        for line in mountinfo.split(|byte| *byte == b'\n') {
            if let Some(found) = hierarchy(line)
                && !all
                    .iter()
                    .any(|known| known.controllers == found.controllers)
            {
                all.push(found);
            }
        }
        let has_v1_controllers = all
            .iter()
            .flat_map(|hierarchy| &hierarchy.controllers)
            .any(|name| !name.starts_with("name="));
        let version = if has_v1_controllers {
            CgroupVersion::V1
        } else if all.iter().any(|one| one.controllers.is_empty()) {
            // Only the unified hierarchy has controllers, even if named hierarchies exist next to it.
            all.retain(|one| one.controllers.is_empty());
            CgroupVersion::V2
        } else {
            return Err(Error::NotMounted);
        };
        Ok(Self { version, all })
    }

    /// The cgroup version; a hybrid node counts as version 1.
    #[must_use]
    pub fn version(&self) -> CgroupVersion {
        self.version
    }

    /// All hierarchies.
    pub fn iter(&self) -> impl Iterator<Item = &Hierarchy> {
        self.all.iter()
    }

    /// Returns whether a controller can be used: mounted with version 1, in `cgroup.controllers` with version 2.
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        match self.version {
            CgroupVersion::V1 => self
                .all
                .iter()
                .any(|one| one.controllers.iter().any(|name| name == controller)),
            CgroupVersion::V2 => self.all.iter().any(|one| {
                let list = fs::read_to_string(one.point.join("cgroup.controllers"));
                list.is_ok_and(|list| list.split_whitespace().any(|name| name == controller))
            }),
        }
    }

    /// The cgroup at a path below the mount points, in the form of `linux.cgroupsPath`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that leads upwards.
    pub fn at(&self, path: &Path) -> Result<Cgroup, Error> {
        let below = below(path)?;
        let dirs = self.all.iter().map(|one| Dir {
            controllers: one.controllers.clone(),
            point: one.point.clone(),
            path: one.point.join(&below),
        });
        Ok(Cgroup {
            version: self.version,
            dirs: dirs.collect(),
        })
    }

    /// The cgroup of a container by its `linux.cgroupsPath`; see [`container_path`].
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn container_cgroup(
        &self,
        cgroups_path: &Path,
        driver: CgroupDriver,
    ) -> Result<Cgroup, Error> {
        self.at(&container_path(cgroups_path, driver)?)
    }

    /// The cgroup of a pod by the parent in its configuration; see [`pod_path`].
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn pod_cgroup(&self, parent: &str, driver: CgroupDriver) -> Result<Cgroup, Error> {
        self.at(&pod_path(parent, driver)?)
    }

    /// The cgroup of a process.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is no such process, [`Error::Invalid`] if its cgroup is outside the mounts.
    pub fn pid_cgroup(&self, pid: u32) -> Result<Cgroup, Error> {
        let path = PathBuf::from(format!("/proc/{pid}/cgroup"));
        match fs::read_to_string(&path) {
            Ok(text) => self.parse_process(&text),
            Err(error) if gone(&error) => Err(Error::NotFound { path }),
            Err(error) => Err(Error::io("read", &path, error)),
        }
    }

    /// Parses a `/proc/PID/cgroup` file (cgroups(7)).
    fn parse_process(&self, text: &str) -> Result<Cgroup, Error> {
        let mut dirs = Vec::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
                continue;
            };
            let first = controllers.split(',').next().unwrap_or("");
            let Some(one) = self.all.iter().find(|one| match first {
                "" => one.controllers.is_empty(),
                first => one.controllers.iter().any(|name| name == first),
            }) else {
                continue;
            };
            // In a container, the root of the mount may be below the root of the hierarchy.
            let path = Path::new(path);
            let path = path.strip_prefix(&one.root).unwrap_or(path);
            dirs.push(Dir {
                controllers: one.controllers.clone(),
                point: one.point.clone(),
                path: one.point.join(below(path)?),
            });
        }
        if dirs.is_empty() {
            return Err(Error::NotMounted);
        }
        Ok(Cgroup {
            version: self.version,
            dirs,
        })
    }
}

/// Returns whether an error means that the process or cgroup does not exist, or no longer exists.
pub(super) fn gone(error: &std::io::Error) -> bool {
    use nix::errno::Errno;
    let number = error.raw_os_error().map(Errno::from_raw);
    matches!(number, Some(Errno::ENOENT | Errno::ESRCH | Errno::ENODEV))
}

/// Returns the path without its leading `/`. It comes from pods' configurations, so `..` is rejected.
fn below(path: &Path) -> Result<PathBuf, Error> {
    let mut below = PathBuf::new();
    for part in path.components() {
        match part {
            Component::RootDir | Component::CurDir => {}
            Component::Normal(name) => below.push(name),
            Component::ParentDir => return Err(Error::invalid(path, "it leads upwards")),
            Component::Prefix(_) => return Err(Error::invalid(path, "it is no path of Linux")),
        }
    }
    Ok(below)
}

/// `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAG...] - TYPE SOURCE SUPER-OPTIONS`
fn hierarchy(line: &[u8]) -> Option<Hierarchy> {
    let mut words = line.split(|byte| *byte == b' ');
    let root = words.nth(3)?;
    let point = words.next()?;
    let mut after = words.skip_while(|word| *word != b"-").skip(1);
    let kind = after.next()?;
    let options = String::from_utf8_lossy(after.nth(1)?);
    let controllers = match kind {
        b"cgroup2" => Vec::new(),
        b"cgroup" => options
            .split(',')
            .filter(|option| !NO_CONTROLLERS.contains(option))
            .filter(|option| option.starts_with("name=") || !option.contains('='))
            .map(str::to_owned)
            .collect(),
        _ => return None,
    };
    Some(Hierarchy {
        controllers,
        point: unescape(point),
        root: unescape(root),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory,release_agent=/x
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate
99 31 0:32 / /elsewhere rw - cgroup cgroup rw,memory
";
    const UNIFIED: &str = "\
30 23 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";

    fn dirs(cgroup: &Cgroup) -> Vec<String> {
        cgroup.dirs().map(|dir| dir.display().to_string()).collect()
    }

    #[test]
    fn a_hybrid_node_is_version_1_and_keeps_its_unified_hierarchy() {
        let all = Hierarchies::parse(HYBRID.as_bytes()).expect("mounted");
        assert_eq!(all.version(), CgroupVersion::V1);
        assert_eq!(all.iter().count(), 4);
        assert!(all.has("cpuacct") && all.has("memory") && !all.has("hugetlb"));
        let cgroup = all.at(Path::new("/kubepods/pod1/c")).expect("valid");
        assert_eq!(
            dirs(&cgroup),
            [
                "/sys/fs/cgroup/cpu,cpuacct/kubepods/pod1/c",
                "/sys/fs/cgroup/memory/kubepods/pod1/c",
                "/sys/fs/cgroup/systemd/kubepods/pod1/c",
                "/sys/fs/cgroup/unified/kubepods/pod1/c",
            ]
        );
        assert_eq!(
            cgroup.dir("memory"),
            Some(Path::new("/sys/fs/cgroup/memory/kubepods/pod1/c"))
        );
        assert_eq!(cgroup.dir("pids"), None);
    }

    #[test]
    fn a_unified_node_has_one_directory_for_every_controller() {
        let all = Hierarchies::parse(UNIFIED.as_bytes()).expect("mounted");
        assert_eq!(all.version(), CgroupVersion::V2);
        let cgroup = all.at(Path::new("a/b")).expect("valid");
        assert_eq!(dirs(&cgroup), ["/sys/fs/cgroup/a/b"]);
        assert_eq!(cgroup.dir("memory"), cgroup.dir("pids"));
        // A named hierarchy next to it does not make it version 1.
        let named =
            format!("{UNIFIED}40 31 0:37 / /run/systemd rw - cgroup cgroup rw,name=systemd\n");
        let all = Hierarchies::parse(named.as_bytes()).expect("mounted");
        assert_eq!((all.version(), all.iter().count()), (CgroupVersion::V2, 1));
        assert!(matches!(
            Hierarchies::parse(b"garbage"),
            Err(Error::NotMounted)
        ));
    }

    #[test]
    fn the_cgroup_of_a_process_is_found_if_the_mount_has_another_root() {
        let text = "12:pids:/p\n9:name=systemd:/s\n4:memory:/m/x\n2:cpu,cpuacct:/\n0::/u\n";
        let all = Hierarchies::parse(HYBRID.as_bytes()).expect("mounted");
        let cgroup = all.parse_process(text).expect("found");
        assert_eq!(
            cgroup.dir("memory"),
            Some(Path::new("/sys/fs/cgroup/memory/m/x"))
        );
        assert_eq!(
            cgroup.dir("cpu"),
            Some(Path::new("/sys/fs/cgroup/cpu,cpuacct/"))
        );
        assert_eq!(cgroup.dirs().count(), 4);
        let nested = UNIFIED.replace(" / /sys", " /docker/x /sys");
        let all = Hierarchies::parse(nested.as_bytes()).expect("mounted");
        let cgroup = all.parse_process("0::/docker/x/y\n").expect("found");
        assert_eq!(dirs(&cgroup), ["/sys/fs/cgroup/y"]);
        // Outside the cgroup namespace.
        let outside = all.parse_process("0::/../z\n").expect_err("refused");
        assert!(matches!(outside, Error::Invalid { .. }), "{outside}");
    }
}

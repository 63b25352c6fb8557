//! Id mappings of user namespaces, and id-mapped mounts.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;

use nix::libc;
use rustix::fs::CWD;
use rustix::mount::{OpenTreeFlags, open_tree};

/// Maximum number of ranges in one map (user_namespaces(7)).
const MAX_RANGES: usize = 340;

/// Invalid mappings.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("user namespace: {0}")]
pub struct Invalid(String);

/// A range of ids in a user namespace, and the ids on the node that they map to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// The first id in the namespace.
    pub container_id: u32,
    /// The first id on the node.
    pub host_id: u32,
    /// The number of ids.
    pub length: u32,
}

impl Range {
    fn host(&self, id: u32) -> Option<u32> {
        let offset = id.checked_sub(self.container_id)?;
        (offset < self.length).then(|| self.host_id + offset)
    }
}

/// The mappings of a user namespace: root is mapped, and no id is mapped twice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mappings {
    uids: Vec<Range>,
    gids: Vec<Range>,
}

impl Mappings {
    /// Validates mappings of users and of groups. The kubelet sends one range of each.
    ///
    /// # Errors
    /// If a range is empty, exceeds the highest id or overlaps another, if there are more than 340, or if none contains id
    /// 0.
    pub fn new(uids: Vec<Range>, gids: Vec<Range>) -> Result<Self, Invalid> {
        check("users", &uids)?;
        check("groups", &gids)?;
        Ok(Self { uids, gids })
    }

    /// The ids on the node of a user and group in the namespace; unmapped ids become those of root.
    #[must_use]
    pub fn host(&self, uid: u32, gid: u32) -> (u32, u32) {
        (host(&self.uids, uid), host(&self.gids, gid))
    }

    pub(crate) fn uid_table(&self) -> String {
        table(&self.uids)
    }

    pub(crate) fn gid_table(&self) -> String {
        table(&self.gids)
    }
}

fn host(ranges: &[Range], id: u32) -> u32 {
    let mapped = ranges.iter().find_map(|range| range.host(id));
    // Id 0 is mapped: `new` has checked it.
    mapped
        .or_else(|| ranges.iter().find_map(|range| range.host(0)))
        .unwrap_or(id)
}

fn check(what: &str, ranges: &[Range]) -> Result<(), Invalid> {
    check_ranges(ranges).map_err(|why| Invalid(format!("{what}: {why}")))
}

fn check_ranges(ranges: &[Range]) -> Result<(), &'static str> {
    if ranges.len() > MAX_RANGES {
        return Err("too many ranges");
    }
    if !ranges.iter().any(|range| range.host(0).is_some()) {
        return Err("no range holds id 0");
    }
    for side in [
        |range: &Range| range.container_id,
        |range: &Range| range.host_id,
    ] {
        let mut sorted: Vec<_> = ranges
            .iter()
            .map(|range| (side(range), range.length))
            .collect();
        sorted.sort_unstable();
        let mut next = 0_u64;
        for (first, length) in sorted {
            let (first, length) = (u64::from(first), u64::from(length));
            // The highest id means "no change" to the kernel, so it cannot be mapped.
            if length == 0 || first + length > u64::from(u32::MAX) {
                return Err("a range is empty or exceeds the highest id");
            }
            if first < next {
                return Err("ranges overlap");
            }
            next = first + length;
        }
    }
    Ok(())
}

fn table(ranges: &[Range]) -> String {
    let mut text = String::new();
    for range in ranges {
        let _ = writeln!(
            text,
            "{} {} {}",
            range.container_id, range.host_id, range.length
        );
    }
    text
}

/// Creates a detached, id-mapped mount of `path`: files of the node's root belong to the root of the user namespace, and so on.
/// Files of unmapped ids belong to the overflow id and cannot be written. With `recursive`, mounts below it are included.
///
/// A later mount below `path` appears in it, and not the other way round: without that, unmounting it would unmount on
/// the node the mounts below.
///
/// # Errors
/// `ENOSYS` before Linux 5.12; `EINVAL` from file systems without support for id-mapped mounts.
#[allow(unsafe_code)]
pub fn clone_mapped(path: &Path, namespace: &File, recursive: bool) -> io::Result<OwnedFd> {
    let (depth, all) = if recursive {
        (OpenTreeFlags::AT_RECURSIVE, libc::AT_RECURSIVE)
    } else {
        (OpenTreeFlags::empty(), 0)
    };
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | depth;
    let mount = open_tree(CWD, path, flags)?;
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_IDMAP,
        attr_clr: 0,
        propagation: libc::MS_SLAVE,
        userns_fd: u64::try_from(namespace.as_raw_fd()).map_err(io::Error::other)?,
    };
    let empty = c"";
    // SAFETY: both descriptors are open, the path is terminated by a zero, and the kernel reads no more than the size that
    // is passed, which is the structure's.
    let outcome = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            empty.as_ptr(),
            libc::AT_EMPTY_PATH | all,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    if outcome == 0 {
        Ok(mount)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(container_id: u32, host_id: u32, length: u32) -> Range {
        Range {
            container_id,
            host_id,
            length,
        }
    }

    #[test]
    fn invalid_ranges_are_rejected() {
        let good = || vec![range(0, 65536, 65536)];
        for bad in [
            vec![],
            vec![range(0, 65536, 0)],
            vec![range(1, 65536, 10)],
            vec![range(0, u32::MAX - 4, 5)],
            vec![range(0, 1000, 10), range(9, 2000, 10)],
            vec![range(0, 1000, 10), range(10, 1009, 10)],
            (0..341).map(|id| range(id, id, 1)).collect(),
        ] {
            for refused in [
                Mappings::new(bad.clone(), good()),
                Mappings::new(good(), bad.clone()),
            ] {
                assert!(refused.is_err(), "{bad:?}");
            }
        }
        Mappings::new(good(), good()).expect("as the kubelet sends it");
        Mappings::new(vec![range(0, u32::MAX - 5, 5)], good()).expect("up to the highest id");
    }

    #[test]
    fn ids_are_mapped_to_the_node() {
        let uids = vec![range(10, 5000, 5), range(0, 70_000, 10)];
        let mappings = Mappings::new(uids, vec![range(0, 80_000, 10)]).expect("valid");
        assert_eq!(mappings.host(0, 0), (70_000, 80_000));
        assert_eq!(mappings.host(14, 9), (5004, 80_009));
        // Unmapped.
        assert_eq!(mappings.host(15, 10), (70_000, 80_000));
        assert_eq!(mappings.uid_table(), "10 5000 5\n0 70000 10\n");
    }
}

//! `/proc/PID/mountinfo` (proc(5)): the mount that a path is on. The path itself is never touched: that could block too.

/// Longest path that is shown, in bytes; longer ones are left out.
const MAX_SHOWN_PATH_LEN: usize = 256;

/// A mount whose path and type are safe to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MountPoint {
    /// The mount point.
    pub(super) point: Box<str>,
    /// The type of its file system.
    pub(super) fs: Box<str>,
}

/// Finds the mount that holds `path`: the one with the longest mount point. Among several at one point it is the last.
pub(super) fn find_mount(mountinfo: &str, path: &str) -> Option<MountPoint> {
    let mut best: Option<(&str, &str)> = None;
    for line in mountinfo.lines() {
        let Some((mount, source)) = line.split_once(" - ") else {
            continue;
        };
        let point = mount.split_ascii_whitespace().nth(4);
        let fs = source.split_ascii_whitespace().next();
        let (Some(point), Some(fs)) = (point, fs) else {
            continue;
        };
        if holds(point, path) && best.is_none_or(|(longest, _)| point.len() >= longest.len()) {
            best = Some((point, fs));
        }
    }
    let (point, fs) = best?;
    Some(MountPoint {
        point: shown(point)?,
        fs: shown(fs)?,
    })
}

/// Returns whether the mount at `point` is above `path`. A point with escaped characters never matches.
fn holds(point: &str, path: &str) -> bool {
    let rest = path.strip_prefix(point);
    point == "/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A path, or the type of a file system, if it has ordinary characters only.
pub(super) fn shown(text: &str) -> Option<Box<str>> {
    let fits =
        !text.is_empty() && text.len() <= MAX_SHOWN_PATH_LEN && text.bytes().all(is_shown_byte);
    fits.then(|| text.into())
}

fn is_shown_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"/._-~:@+".contains(&byte)
}

/// The type of file system that a kernel function belongs to.
pub(super) fn fs_of_symbol(symbol: &str) -> Option<&'static str> {
    const PREFIXES: &[(&str, &str)] = &[
        ("nfs", "nfs"),
        ("rpc_", "nfs"),
        ("fuse_", "fuse"),
        ("request_wait_answer", "fuse"),
        ("cifs_", "cifs"),
        ("smb2_", "cifs"),
        ("ceph_", "ceph"),
        ("v9fs_", "9p"),
        ("p9_", "9p"),
        ("xfs_", "xfs"),
        ("ext4_", "ext4"),
        ("jbd2_", "ext4"),
        ("btrfs_", "btrfs"),
    ];
    let known = PREFIXES
        .iter()
        .find(|(prefix, _)| symbol.starts_with(prefix));
    known.map(|(_, fs)| *fs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /var/lib/kubelet/pods/1-2/volumes/kubernetes.io~nfs/data rw - nfs4 server:/export/hunter2 rw,addr=10.0.0.1
31 22 0:41 / /mnt/with\\040space rw - tmpfs tmpfs rw
32 22 0:42 / /mnt rw shared:3 master:1 - xfs /dev/sdb rw
33 22 0:43 / /mnt rw - fuse.sshfs user@host: rw
broken";

    #[test]
    fn the_longest_and_last_mount_holds_a_path() {
        let mount = |path: &str| {
            find_mount(TABLE, path).map(|mount| format!("{} {}", mount.point, mount.fs))
        };
        let volume = "/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~nfs/data";
        let want = Some(format!("{volume} nfs4"));
        assert_eq!(mount(volume), want);
        assert_eq!(mount(&format!("{volume}/secret/file")), want);
        assert_eq!(mount("/mnt/a").as_deref(), Some("/mnt fuse.sshfs"));
        assert_eq!(mount("/mntx").as_deref(), Some("/ ext4"));
        assert_eq!(find_mount("", "/a"), None);
    }

    #[test]
    fn only_ordinary_characters_are_shown() {
        assert!(shown("/a/b-c_d.e~f").is_some());
        for bad in ["", "/a b", "/a\nb", "/a?b=c", "/ä", &"/a".repeat(200)] {
            assert_eq!(shown(bad), None, "{bad}");
        }
    }

    #[test]
    fn kernel_functions_name_their_file_system() {
        assert_eq!(fs_of_symbol("rpc_wait_bit_killable"), Some("nfs"));
        assert_eq!(fs_of_symbol("fuse_simple_request"), Some("fuse"));
        assert_eq!(fs_of_symbol("do_wait"), None);
    }
}

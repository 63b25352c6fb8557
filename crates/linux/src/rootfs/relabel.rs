//! Labels all files of a volume for SELinux.
//!
//! The volume may belong to a pod with running containers: a directory that was just read may have become a link to `/etc`.
//! So a file is opened by one path component relative to an open directory, and labelled by its descriptor. No link is
//! followed, no other mount entered.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{
    CWD, Dir, FileType, Mode, OFlags, ResolveFlags, XattrFlags, fstat, getxattr, openat2, setxattr,
};
use rustix::io::Errno;

use super::error::{At as _, Error, Result};

/// The extended attribute of labels.
const LABEL: &str = "security.selinux";
/// Maximum nesting of directories: each stays open while its children are labelled.
const DEPTH: usize = 256;

/// Directories that the node could no longer use if they had the label of a pod. Their contents can be labelled.
const PROTECTED: &[&str] = &[
    "/",
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/etc/kubernetes",
    "/etc/pki",
    "/home",
    "/lib",
    "/lib32",
    "/lib64",
    "/media",
    "/mnt",
    "/opt",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/srv",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local",
    "/usr/sbin",
    "/usr/share",
    "/var",
    "/var/cache",
    "/var/lib",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/criscope",
    "/var/lib/kubelet",
    "/var/lib/kubelet/pods",
    "/var/log",
    "/var/run",
    "/var/spool",
    "/var/tmp",
];
/// Directory trees of the node in which nothing is labelled.
const PROTECTED_TREES: &[&str] = &[
    "/boot",
    "/dev",
    "/proc",
    "/sys",
    "/etc/passwd",
    "/etc/shadow",
];

/// Sets the label of `path` and of all its contents. Files that are removed concurrently and file systems without labels
/// are not errors.
///
/// # Errors
/// [`Error::Invalid`] for directories that the node itself needs, and for more than 256 nested directories.
pub fn relabel(path: &Path, label: &str) -> Result<()> {
    let path = fs::canonicalize(path).at("find", path)?;
    if is_protected(&path) {
        return Err(Error::Invalid(format!(
            "{} belongs to the node: it is not labelled for SELinux",
            path.display()
        )));
    }
    let value = [label.as_bytes(), b"\0"].concat();
    walk(&path, &mut |file| set(file, &value))
}

fn is_protected(path: &Path) -> bool {
    let inside = PROTECTED_TREES.iter().any(|tree| path.starts_with(tree));
    let up = path.components().any(|part| part == Component::ParentDir);
    inside || up || PROTECTED.iter().any(|one| path == Path::new(one))
}

/// Sets the label of a file opened with `O_PATH`.
fn set(file: BorrowedFd<'_>, value: &[u8]) -> Outcome {
    // Labels the file itself, even if it is a link: the kernel follows `/proc/self/fd` to the open file and no further.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut now = vec![0; value.len() + 1];
    if getxattr(&name, LABEL, &mut now[..]).is_ok_and(|length| &now[..length] == value) {
        return Ok(());
    }
    match setxattr(&name, LABEL, value, XattrFlags::empty()) {
        Err(Errno::OPNOTSUPP | Errno::NOENT) => Ok(()),
        outcome => outcome,
    }
}

type Outcome<T = ()> = std::result::Result<T, Errno>;

/// Calls `act` for a file and all its contents.
fn walk(path: &Path, act: &mut dyn FnMut(BorrowedFd<'_>) -> Outcome) -> Result<()> {
    let top = match find(CWD, path, ResolveFlags::NO_SYMLINKS) {
        Err(Errno::NOENT) => return Ok(()),
        top => top.at("open", path)?,
    };
    act(top.as_fd()).at("label", path)?;
    // The directories of the current path, each with its remaining entries.
    let mut open = Vec::new();
    open.extend(Folder::open(&top).at("read", path)?);
    while let Some(folder) = open.last_mut() {
        let Some(name) = folder.next().at("read", path)? else {
            open.pop();
            continue;
        };
        let Some(file) = folder.find(&name).at("open a file in", path)? else {
            continue;
        };
        act(file.as_fd()).at("label a file in", path)?;
        let Some(inner) = Folder::open(&file).at("read a folder in", path)? else {
            continue;
        };
        if open.len() >= DEPTH {
            return Err(Error::Invalid(format!(
                "{}: more than {DEPTH} nested folders are not labelled for SELinux",
                path.display()
            )));
        }
        open.push(inner);
    }
    Ok(())
}

/// Opens a file with `O_PATH`: this has no effect on it, and does not follow it if it is a link.
fn find(folder: impl AsFd, name: impl rustix::path::Arg, how: ResolveFlags) -> Outcome<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat2(folder, name, flags, Mode::empty(), how)
}

/// A directory that is being read.
struct Folder {
    fd: OwnedFd,
    entries: Dir,
}

impl Folder {
    /// The directory of an `O_PATH` descriptor; `None` if it is another type of file.
    fn open(found: &OwnedFd) -> Outcome<Option<Self>> {
        if FileType::from_raw_mode(fstat(found)?.st_mode) != FileType::Directory {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(found, ".", flags, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            fd => fd?,
        };
        let entries = Dir::read_from(&fd)?;
        Ok(Some(Self { fd, entries }))
    }

    fn next(&mut self) -> Outcome<Option<CString>> {
        loop {
            match self.entries.read().transpose()? {
                Some(entry) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                entry => return Ok(entry.map(|entry| entry.file_name().to_owned())),
            }
        }
    }

    /// Opens a file of this directory; `None` if it was removed, or is on another mount.
    fn find(&self, name: &CStr) -> Outcome<Option<OwnedFd>> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        match find(&self.fd, name, how) {
            Err(Errno::NOENT | Errno::XDEV) => Ok(None),
            found => found.map(Some),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// The labelled files, by their current path.
    fn labelled(top: &Path, mut before: impl FnMut(&Path)) -> Result<Vec<PathBuf>> {
        let mut all = Vec::new();
        walk(top, &mut |file| {
            let name = format!("/proc/self/fd/{}", file.as_raw_fd());
            let path = fs::read_link(name).expect("a path");
            before(&path);
            all.push(path);
            Ok(())
        })?;
        all.sort();
        Ok(all)
    }

    #[test]
    fn all_files_are_labelled_once_and_links_are_not_followed() {
        let dir = tempfile::tempdir().expect("dir");
        let outside = dir.path().join("outside");
        fs::create_dir_all(outside.join("deep")).expect("dirs");
        let top = dir.path().join("volume");
        fs::create_dir_all(top.join("a/b")).expect("dirs");
        fs::write(top.join("a/file"), "").expect("file");
        nix::unistd::mkfifo(&top.join("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
        symlink(&outside, top.join("a/link")).expect("link");
        symlink("nowhere", top.join("dangling")).expect("link");
        let mut expected: Vec<_> = ["", "a", "a/b", "a/file", "a/link", "dangling", "pipe"]
            .map(|name| top.join(name))
            .to_vec();
        expected[0] = top.clone();
        assert_eq!(labelled(&top, |_| {}).expect("walked"), expected);
        let gone = labelled(&dir.path().join("gone"), |_| {});
        assert!(gone.expect("nothing to do").is_empty());
        symlink(&top, dir.path().join("as-link")).expect("link");
        let link = dir.path().join("as-link");
        assert_eq!(labelled(&link, |_| {}).expect("a link"), [link]);
    }

    #[test]
    fn a_folder_that_becomes_a_link_meanwhile_leads_nowhere() {
        let dir = tempfile::tempdir().expect("dir");
        let outside = dir.path().join("outside");
        fs::create_dir(&outside).expect("dir");
        fs::write(outside.join("shadow"), "").expect("file");
        let top = dir.path().join("volume");
        fs::create_dir_all(top.join("a/b")).expect("dirs");
        fs::write(top.join("a/b/file"), "").expect("file");
        // When `a` is labelled, its child `b` has not been found yet; when `b` is labelled, it has not been read.
        for swapped_at in ["a", "a/b"] {
            let place = top.join("a/b");
            let swap = |path: &Path| {
                if path == top.join(swapped_at) && !place.is_symlink() {
                    fs::rename(&place, top.join("moved")).expect("moved");
                    symlink(&outside, &place).expect("link");
                }
            };
            let all = labelled(&top, swap).expect("walked");
            assert!(place.is_symlink(), "it was swapped");
            assert!(
                all.iter().all(|path| path.starts_with(&top)),
                "{swapped_at}: {all:?}"
            );
            fs::remove_file(&place).expect("link");
            fs::rename(top.join("moved"), &place).expect("back");
        }
    }

    #[test]
    fn files_removed_during_the_walk_are_skipped_and_depth_is_limited() {
        let dir = tempfile::tempdir().expect("dir");
        let top = dir.path().join("volume");
        fs::create_dir_all(top.join("a/b/c")).expect("dirs");
        let all = labelled(&top, |path| {
            if path == top.join("a") {
                fs::remove_dir_all(top.join("a")).expect("removed");
            }
        });
        assert_eq!(all.expect("walked").len(), 2);

        let deep: PathBuf = std::iter::repeat_n("d", DEPTH - 1).collect();
        fs::create_dir_all(top.join(&deep)).expect("dirs");
        assert_eq!(labelled(&top, |_| {}).expect("walked").len(), DEPTH);
        fs::create_dir(top.join(&deep).join("d")).expect("dir");
        let error = labelled(&top, |_| {}).expect_err("too deep");
        assert!(matches!(error, Error::Invalid(_)), "{error}");
    }

    #[test]
    fn folders_of_the_node_are_protected_and_volumes_are_not() {
        for (path, expected) in [
            ("/", true),
            ("/etc", true),
            ("/usr/lib", true),
            ("/proc/1/root", true),
            ("/var/lib/kubelet", true),
            (
                "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/x",
                false,
            ),
            ("/etc/app", false),
            ("/data", false),
        ] {
            assert_eq!(is_protected(Path::new(path)), expected, "{path}");
        }
        let error = relabel(Path::new("/usr"), "a:b:c").expect_err("refused");
        assert!(matches!(error, Error::Invalid(_)), "{error}");
        // The requested path itself may be a link.
        let dir = tempfile::tempdir().expect("dir");
        symlink("/etc", dir.path().join("link")).expect("link");
        relabel(&dir.path().join("link"), "a:b:c").expect_err("refused");
    }

    #[test]
    fn the_label_is_set_on_the_open_file() {
        let dir = tempfile::tempdir().expect("dir");
        let file = dir.path().join("file");
        fs::write(&file, "").expect("file");
        let found = find(CWD, &file, ResolveFlags::NO_SYMLINKS).expect("found");
        match set(found.as_fd(), b"a:b:c\0") {
            // Succeeds without an SELinux policy; the node may also refuse it.
            Ok(()) | Err(Errno::PERM | Errno::INVAL | Errno::ACCESS) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

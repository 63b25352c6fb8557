//! Checks the working directory of a process in a container that does not run yet.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::{Error, Result};
use super::view::{ContainerView, Found, MAX_LINKS, reversed_parts};

impl ContainerView {
    /// Checks that a path can be the working directory of the container's first process. Links are followed as the kernel does,
    /// so `..` leaves the directory that a link leads to. A missing directory is no error: the OCI runtime creates it. Where links lead to
    /// a missing directory its path without links is returned, because runc does not create a directory through a link.
    ///
    /// A path through the files of a process below `/proc` is refused: it may lead to a file that the OCI runtime has left open,
    /// and so out of the container (CVE-2024-21626).
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that the OCI runtime or the kernel would not enter, with the reason; or if a system call fails.
    pub fn check_working_directory(&self, path: &str) -> Result<Option<PathBuf>> {
        let mut place = PathBuf::from("/");
        let mut rest = reversed_parts(Path::new(path));
        let mut links = 0;
        let mut may_be_missing = false;
        while let Some(part) = rest.pop() {
            if part == ".." {
                place.pop();
                continue;
            }
            place.push(part);
            if is_of_process(&place) {
                return Err(Error::Invalid(format!(
                    "it leads to {}: files of a process may lead out of the container",
                    place.display()
                )));
            }
            let found = self.look(&place)?;
            may_be_missing = matches!(found, Found::Unknown);
            match found {
                Found::Directory | Found::Unknown => {}
                Found::Other => {
                    return Err(Error::Invalid(format!(
                        "{} is not a directory",
                        place.display()
                    )));
                }
                Found::Link(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Error::Invalid(format!("more than {MAX_LINKS} links")));
                    }
                    place.pop();
                    if target.is_absolute() {
                        place = PathBuf::from("/");
                    }
                    rest.extend(reversed_parts(&target));
                }
            }
        }
        Ok((links > 0 && may_be_missing).then_some(place))
    }
}

/// Returns whether a path is in the directory of a process, or in `/dev/fd`, which is a link there in every container.
fn is_of_process(place: &Path) -> bool {
    if place.starts_with("/dev/fd") {
        return true;
    }
    let Ok(below) = place.strip_prefix("/proc") else {
        return false;
    };
    let mut parts = below.iter();
    let process = parts.next().and_then(OsStr::to_str).unwrap_or_default();
    let is_process = matches!(process, "self" | "thread-self")
        || !process.is_empty() && process.bytes().all(|byte| byte.is_ascii_digit());
    is_process && parts.next().is_some()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn what_is_no_directory_or_leads_out_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let (root, volume) = (dir.path().join("root"), dir.path().join("volume"));
        for made in ["proc", "dev", "a/b", "data"] {
            fs::create_dir_all(root.join(made)).expect("a directory");
        }
        fs::create_dir_all(volume.join("sub")).expect("a directory");
        for file in [
            root.join("a/file"),
            root.join("data/hidden"),
            volume.join("file"),
        ] {
            fs::write(file, "").expect("a file");
        }
        for (link, target) in [
            ("fds", "/proc/self/fd"),
            ("own", "proc/thread-self"),
            ("init", "proc/1/cwd"),
            ("to-file", "a/file"),
            ("to-b", "/a/b"),
            ("loop", "/loop"),
            ("dangling", "/none/of/these"),
            ("std", "/dev/fd"),
            // Hidden by the file system of the kernel.
            ("proc/self", "/a"),
        ] {
            symlink(target, root.join(link)).expect("a link");
        }
        symlink("/proc/self/fd", volume.join("planted")).expect("a link");
        let mut view = ContainerView::new(&root).expect("a view");
        view.mount_unknown("/proc").expect("a place");
        view.mount("/data", &volume).expect("a place");
        view.mount("/data/config", Path::new("/etc/hostname"))
            .expect("a place");
        for good in [
            "/",
            "/a/b",
            "/a/./b/",
            "/none",
            "/none/below",
            "/dangling",
            "/to-b/../b",
            "/to-b/../../a",
            "/../a",
            "/data",
            "/data/sub",
            // The volume hides the file of the image.
            "/data/hidden/x",
            "/proc",
            "/proc/self",
            "/proc/sys/net",
            "/proc/fs",
            "/own",
            "/dev",
            "/dev/fdx",
            "/sys/fs/cgroup",
        ] {
            let found = view.check_working_directory(good).expect(good);
            let made = (good == "/dangling").then_some("/none/of/these");
            let made = made.or((good == "/own").then_some("/proc/thread-self"));
            assert_eq!(found.as_deref(), made.map(Path::new), "{good}");
        }
        for (bad, reason) in [
            ("/a/file", "/a/file is not a directory"),
            ("/a/file/x", "/a/file is not a directory"),
            ("/a/file/..", "/a/file is not a directory"),
            ("/to-file", "/a/file is not a directory"),
            ("/data/file", "/data/file is not a directory"),
            ("/loop", "more than 255 links"),
            ("/proc/self/fd/7", "/proc/self/fd"),
            ("/proc/self/fd/7/../..", "/proc/self/fd"),
            ("/proc/self/cwd", "/proc/self/cwd"),
            ("/proc/1/root/etc", "/proc/1/root"),
            ("/proc/thread-self/fd", "/proc/thread-self/fd"),
            ("//proc/./self//fd/7", "/proc/self/fd"),
            ("/fds/7", "/proc/self/fd"),
            ("/own/fd/7", "/proc/thread-self/fd"),
            ("/init", "/proc/1/cwd"),
            ("/std/7", "/dev/fd"),
            ("/dev/fd/7", "/dev/fd"),
            ("/data/planted/7", "/proc/self/fd"),
        ] {
            let error = view.check_working_directory(bad).expect_err(bad);
            assert!(error.to_string().contains(reason), "{bad}: {error}");
        }
    }
}

//! Resolves paths in a container that does not run yet.

use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, open, readlinkat};
use rustix::io::Errno;

use super::error::{At as _, Error, Result};
use super::inside;

/// Maximum number of links on the way to a mount, as in OCI runtimes.
pub(super) const MAX_LINKS: usize = 255;

/// The files of a container before it runs: its root, and directories that will be mounted into it.
#[derive(Debug)]
pub struct ContainerView {
    root: OwnedFd,
    /// Mounted directories by place, in the order of mounting; `None` if the source is no directory.
    mounts: Vec<(PathBuf, Option<OwnedFd>)>,
}

impl ContainerView {
    /// Opens the mounted root of a container.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn new(rootfs: &Path) -> Result<Self> {
        Ok(Self {
            root: inside::root(rootfs)?,
            mounts: Vec::new(),
        })
    }

    /// Adds a mount, and returns where it will be: see [`resolve`](Self::resolve). Mounts must be added in the order in which
    /// they are made, since links in one may lead others elsewhere.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn mount(&mut self, path: &str, source: &Path) -> Result<PathBuf> {
        let place = self.resolve(path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = open(source, flags, Mode::empty()).ok();
        self.mounts.push((place.clone(), directory));
        Ok(place)
    }

    /// Returns where a mount at this path will be: an absolute path without links, `.` and `..`. Parts of it that do not exist
    /// are kept, since the OCI runtime creates them.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path with a zero byte, or with more than 255 links; or if a system call fails.
    pub fn resolve(&self, path: &str) -> Result<PathBuf> {
        if path.contains('\0') {
            return Err(Error::Invalid(format!("path {path:?} has a zero byte")));
        }
        let mut place = PathBuf::from("/");
        let mut rest = reversed_parts(&lexical(path));
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == ".." {
                place.pop();
                continue;
            }
            let next = place.join(&part);
            let Some(target) = self.link(&next)? else {
                place = next;
                continue;
            };
            links += 1;
            if links > MAX_LINKS {
                return Err(Error::Invalid(format!(
                    "path {path:?} has more than {MAX_LINKS} links"
                )));
            }
            if target.is_absolute() {
                place = PathBuf::from("/");
            }
            rest.extend(reversed_parts(&target));
        }
        Ok(place)
    }

    /// Adds a mount whose files are not known, such as a file system of the kernel, and returns where it will be.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub fn mount_unknown(&mut self, path: &str) -> Result<PathBuf> {
        let place = self.resolve(path)?;
        self.mounts.push((place.clone(), None));
        Ok(place)
    }

    /// Returns the target of a link; `None` for other files and for what does not exist. No directory of the path is a link.
    fn link(&self, path: &Path) -> Result<Option<PathBuf>> {
        Ok(match self.look(path)? {
            Found::Link(target) => Some(target),
            Found::Directory | Found::Other | Found::Unknown => None,
        })
    }

    /// Looks up a path whose directories are not links.
    pub(super) fn look(&self, path: &Path) -> Result<Found> {
        let mut directory = Some(&self.root);
        let mut inside = path.strip_prefix("/").unwrap_or(path);
        // The last mount that contains the path hides the others.
        for (place, mounted) in &self.mounts {
            if let Ok(rest) = path.strip_prefix(place) {
                (directory, inside) = (mounted.as_ref(), rest);
            }
        }
        let Some(directory) = directory else {
            return Ok(Found::Unknown);
        };
        if inside.as_os_str().is_empty() {
            return Ok(Found::Directory);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = match inside::resolve(directory, inside, flags) {
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(Found::Unknown),
            found => found.at("find in the container", path)?,
        };
        let found_stat = fstat(&found).at("read in the container", path)?;
        Ok(match FileType::from_raw_mode(found_stat.st_mode) {
            FileType::Directory => Found::Directory,
            FileType::Symlink => {
                let target =
                    readlinkat(&found, "", Vec::new()).at("read in the container", path)?;
                Found::Link(OsString::from_vec(target.into_bytes()).into())
            }
            _ => Found::Other,
        })
    }
}

/// What is at a path of a container.
#[derive(Debug)]
pub(super) enum Found {
    /// A symbolic link with this target.
    Link(PathBuf),
    /// A directory.
    Directory,
    /// Another file.
    Other,
    /// Nothing yet, or what a mount has that is not known.
    Unknown,
}

/// Returns a container path as specifications have it: absolute, with `.` and `..` removed from the text.
#[must_use]
pub fn lexical(path: &str) -> PathBuf {
    let mut to = PathBuf::from("/");
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => {
                to.pop();
            }
            Component::Normal(name) => to.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    to
}

/// The names of a path and its `..`, the last one first.
pub(super) fn reversed_parts(path: &Path) -> Vec<OsString> {
    let parts = path
        .components()
        .rev()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name),
            Component::ParentDir => Some(OsStr::new("..")),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        });
    parts.map(OsStr::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_to_where_the_kernel_would_mount() {
        let dir = tempfile::tempdir().expect("a directory");
        let (root, volume) = (dir.path().join("root"), dir.path().join("volume"));
        for made in ["proc", "a/b", "data"] {
            fs::create_dir_all(root.join(made)).expect("a directory");
        }
        fs::create_dir(&volume).expect("a directory");
        for (link, target) in [
            ("v", "/proc"),
            ("a/relative", "../proc/x"),
            ("a/out", "../../../../proc"),
            ("again", "a/b/../../v"),
            ("dangling", "/none/../sys/x"),
            ("up", "/.."),
            ("loop", "/loop"),
        ] {
            symlink(target, root.join(link)).expect("a link");
        }
        symlink("/sys", volume.join("link")).expect("a link");
        symlink("/data", root.join("alias")).expect("a link");
        let mut view = ContainerView::new(&root).expect("a view");
        let leads = |view: &ContainerView, path: &str| view.resolve(path).expect("a place");
        for (path, place) in [
            ("/", "/"),
            ("", "/"),
            ("/proc/../proc/x", "/proc/x"),
            ("//proc", "/proc"),
            ("proc/./x/", "/proc/x"),
            ("/v", "/proc"),
            ("v/x/y", "/proc/x/y"),
            ("/a/relative/y", "/proc/x/y"),
            ("/a/out", "/proc"),
            ("/again/1", "/proc/1"),
            ("/dangling", "/sys/x"),
            ("/up", "/"),
            // The text is changed first, as in the specification.
            ("/v/../a", "/a"),
            ("/none/of/these", "/none/of/these"),
            ("/data/link", "/data/link"),
        ] {
            assert_eq!(leads(&view, path), Path::new(place), "{path}");
        }
        for path in ["/loop", "/loop/x", "a\0b"] {
            let error = view.resolve(path).expect_err(path);
            assert!(matches!(error, Error::Invalid(_)), "{error}");
        }
        // The mounted file system has links of its own, and hides those of the image.
        let place = view.mount("/alias", &volume).expect("a place");
        assert_eq!(place, Path::new("/data"));
        assert_eq!(leads(&view, "/data/link/x"), Path::new("/sys/x"));
        assert_eq!(leads(&view, "/alias/link"), Path::new("/sys"));
        view.mount("/a", &volume).expect("a place");
        assert_eq!(leads(&view, "/a/relative"), Path::new("/a/relative"));
        // The source of a mount may be a file, or not exist.
        view.mount("/data/file", Path::new("/none"))
            .expect("a place");
        assert_eq!(leads(&view, "/data/file/x"), Path::new("/data/file/x"));
    }
}

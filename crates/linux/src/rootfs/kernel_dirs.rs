//! The mount points of the kernel's file systems in a root file system.

use std::fs;
use std::io;
use std::path::Path;

use super::error::{At as _, Error, Result};

/// Where every container has a file system of the kernel. With files of an image in their place, nothing that the OCI runtime hides or
/// makes read-only there, and no label that it writes there, would have an effect.
const KERNEL_DIRS: [&str; 3] = ["/dev", "/proc", "/sys"];

/// The directory of the kernel that a container path is, or is below.
#[must_use]
pub fn kernel_dir(place: &Path) -> Option<&'static str> {
    let mut all = KERNEL_DIRS.into_iter();
    all.find(|directory| place.starts_with(directory))
}

/// Checks that `/dev`, `/proc` and `/sys` are directories, if the image has them. Older OCI runtimes follow a link in their place and
/// create files on the node (CVE-2026-41579, CVE-2026-47766), and a volume could hide the mount at the link's target.
///
/// # Errors
/// [`Error::Kind`], naming the path in the image.
pub fn check_kernel_dirs(root: &Path) -> Result<()> {
    for directory in KERNEL_DIRS {
        let path = root.join(directory.trim_start_matches('/'));
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                return Err(Error::Kind {
                    path: directory.to_owned(),
                    wanted: "directory",
                });
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).at("read", &path),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_and_files_in_place_of_kernel_directories_are_refused() {
        let root = tempfile::tempdir().expect("dir");
        let root = root.path();
        check_kernel_dirs(root).expect("an empty image");
        fs::create_dir(root.join("proc")).expect("dir");
        check_kernel_dirs(root).expect("a directory");
        symlink("/tmp", root.join("dev")).expect("link");
        let error = check_kernel_dirs(root).expect_err("a link");
        assert_eq!(error.to_string(), "/dev in the image is no directory");
        fs::remove_file(root.join("dev")).expect("removed");
        fs::write(root.join("sys"), "").expect("file");
        check_kernel_dirs(root).expect_err("a file");
    }
}

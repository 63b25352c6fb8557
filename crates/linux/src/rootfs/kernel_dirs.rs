//! The mount points of the kernel's file systems in a root file system.

use std::fs;
use std::io;
use std::path::Path;

use super::error::{At as _, Error, Result};

/// Where every container has a file system of the kernel.
const KERNEL_DIRS: [&str; 3] = ["dev", "proc", "sys"];

/// Checks that `dev`, `proc` and `sys` are directories, if the image has them. Older OCI runtimes follow a link in their place and
/// create files on the node (CVE-2026-41579, CVE-2026-47766).
///
/// # Errors
/// [`Error::Invalid`], naming the path in the image.
pub fn check_kernel_dirs(root: &Path) -> Result<()> {
    for name in KERNEL_DIRS {
        let path = root.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                return Err(Error::Invalid(format!(
                    "/{name} of the image is not a directory"
                )));
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
        assert_eq!(error.to_string(), "/dev of the image is not a directory");
        fs::remove_file(root.join("dev")).expect("removed");
        fs::write(root.join("sys"), "").expect("file");
        check_kernel_dirs(root).expect_err("a file");
    }
}

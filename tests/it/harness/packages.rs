//! What the machine must have for tests with real parts.

use std::path::{Path, PathBuf};

/// The path of a program, which comes with this Debian package.
pub(crate) fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let mut dirs = std::env::split_paths(&path).chain(more);
    let found = dirs.find_map(|dir| Some(dir.join(name)).filter(|p| p.exists()));
    found.unwrap_or_else(|| panic!("{name} is missing: apt-get install {package}"))
}

/// A file that comes with this Debian package.
pub(crate) fn file(path: &str, package: &str) -> PathBuf {
    let path = Path::new(path);
    assert!(
        path.exists(),
        "{} is missing: apt-get install {package}",
        path.display()
    );
    path.to_owned()
}

/// Fails unless the test runs as root.
pub(crate) fn need_root() {
    let user = nix::unistd::geteuid();
    assert!(
        user.is_root(),
        "this test makes namespaces and mounts: run it as root"
    );
}

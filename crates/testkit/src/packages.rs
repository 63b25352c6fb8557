//! Programs and files that tests require on the machine.

use std::path::{Path, PathBuf};

use crate::process;

/// The path of a program from this Debian package.
///
/// # Panics
/// If it is not installed.
pub fn program(name: &str, package: &str) -> PathBuf {
    process::find(name, package).unwrap_or_else(|error| panic!("{error}"))
}

/// The path of a file from this Debian package.
///
/// # Panics
/// If it is not installed.
pub fn file(path: &str, package: &str) -> PathBuf {
    let path = Path::new(path);
    assert!(
        path.exists(),
        "{} is missing: apt-get install {package}",
        path.display()
    );
    path.to_owned()
}

/// The static busybox: `CRISCOPE_BUSYBOX`, which `tests/run.sh` sets where the machine's own is not static, or Debian's.
///
/// # Panics
/// If it is not installed.
pub fn busybox() -> PathBuf {
    let named = std::env::var_os("CRISCOPE_BUSYBOX").map(PathBuf::from);
    named.unwrap_or_else(|| file("/bin/busybox", "busybox-static"))
}

/// # Panics
/// Unless the test runs as root.
pub fn need_root() {
    assert!(
        nix::unistd::geteuid().is_root(),
        "this test creates namespaces and mounts: run it as root"
    );
}

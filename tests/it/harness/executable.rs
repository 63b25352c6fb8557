//! Programs that a test makes and runs.
//!
//! The kernel runs no file that somebody has open for writing. Another test of this process may start a program at any
//! moment, and until that has become what it is to be, it holds every descriptor of this process: also one that is written
//! with, long after it was closed here. So files that are run are written by a process of their own.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::packages::program;

/// Writes a program, in place of what is there.
pub(crate) fn executable(path: &Path, text: &str) {
    let mut child = install(Path::new("/dev/stdin"), path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("start install");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(text.as_bytes()).expect("write");
    drop(input);
    let status = child.wait().expect("wait for install");
    assert!(status.success(), "{}: {status}", path.display());
}

/// Copies a program, in place of what is there.
pub(crate) fn copy_program(from: &Path, to: &Path) {
    let status = install(from, to).status().expect("start install");
    assert!(
        status.success(),
        "{} to {}: {status}",
        from.display(),
        to.display()
    );
}

/// Builds a program in C that needs nothing of the place where it runs. `source` is a path in this crate.
pub(crate) fn compile(source: &str, to: &Path) {
    let built = Command::new(program("cc", "gcc"))
        .args(["-static", "-O1", "-o"])
        .arg(to)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
        .output()
        .expect("start cc");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "cc {source}: {said}");
}

fn install(from: &Path, to: &Path) -> Command {
    let mut command = Command::new("install");
    command.arg("-m755").arg(from).arg(to);
    command
}

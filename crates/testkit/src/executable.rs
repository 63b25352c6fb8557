//! Programs written and run by tests.
//!
//! The kernel does not execute a file that is open for writing (ETXTBSY). Another thread may fork at any moment, and until
//! its child calls `execve` the child holds all descriptors of this process, including those open for writing. So a
//! separate process, `install`, writes these files.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::packages::program;

/// Writes a program, replacing the file.
pub fn executable(path: &Path, text: &str) {
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

/// Copies a program, replacing the file.
pub fn copy_program(from: &Path, to: &Path) {
    let status = install(from, to).status().expect("start install");
    assert!(
        status.success(),
        "{} to {}: {status}",
        from.display(),
        to.display()
    );
}

/// Compiles a static program from a C source.
pub fn compile(source: &Path, to: &Path) {
    let built = Command::new(program("cc", "gcc"))
        .args(["-static", "-O1", "-o"])
        .arg(to)
        .arg(source)
        .output()
        .expect("start cc");
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "cc {}: {errors}", source.display());
}

fn install(from: &Path, to: &Path) -> Command {
    let mut command = Command::new("install");
    command.arg("-m755").arg(from).arg(to);
    command
}

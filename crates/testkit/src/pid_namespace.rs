//! Runs tests that read all processes of the node in a PID namespace of their own.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::packages::{need_root, program};

/// Set in a process that runs one test in a PID namespace: the number that its ports are derived from.
const ALONE: &str = "CRISCOPE_TEST_ALONE";

/// The number of this process if it runs one test in a PID namespace.
pub fn number() -> Option<u32> {
    let number = std::env::var(ALONE).ok()?;
    Some(number.parse().expect("a number"))
}

/// Runs the calling test, which has this name, again as the init of a new PID namespace. Returns whether this is that
/// second run: if so, the test body continues, otherwise it returns.
///
/// # Panics If the test fails there, or no test has this name.
#[must_use]
pub fn is_alone(test: &str) -> bool {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    if number().is_some() {
        return true;
    }
    need_root();
    let number = std::process::id() + NEXT.fetch_add(1, Ordering::Relaxed);
    let output = Command::new(program("unshare", "util-linux"))
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, number.to_string())
        .stdin(Stdio::null())
        .output()
        .expect("start unshare");
    let [out, err] = [&output.stdout, &output.stderr].map(|o| String::from_utf8_lossy(o));
    let ran = out.contains("test result: ok. 1 passed");
    assert!(
        ran && output.status.success(),
        "{test} in a PID namespace: {}\n{out}\n{err}",
        output.status
    );
    false
}

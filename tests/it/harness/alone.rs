//! Tests that look at all processes of the node, where there are no others than their own.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use super::packages::{need_root, program};

/// Set for a test that is alone: the number that its ports are derived from.
const ALONE: &str = "CRISCOPE_TEST_ALONE";

/// The number that was given to this process if it runs one test alone.
pub(super) fn number() -> Option<u32> {
    let number = std::env::var(ALONE).ok()?;
    Some(number.parse().expect("a number"))
}

/// Runs the test of this name, which is the caller, once more: as the first process of a PID namespace, where what other
/// tests start is not seen. To be called first; the caller goes on if it is told that it is alone, and is done otherwise.
///
/// # Panics
/// If the test fails there, or if there is no test of this name.
#[must_use]
pub(crate) fn is_alone(test: &str) -> bool {
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
        "{test}, alone: {}\n{out}\n{err}",
        output.status
    );
    false
}

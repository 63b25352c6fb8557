//! The shutdown of the node: the service manager, PID 1, sends SIGTERM to all processes that are left, and waits for them.

use crate::prelude::*;

/// Runs in a PID namespace of its own, as PID 1: prints `kept` if a shim runs on after SIGTERM of another process, and `ended` once
/// it has ended after that of PID 1.
const SCRIPT: &str = r#"
cd "$1" && "$2" . || exit
(trap '' TERM; kill -TERM -1)
sleep 0.5
flock --nonblock shim.lock true || echo kept
kill -TERM -1
flock --timeout 20 shim.lock true && echo ended
"#;

#[test]
fn a_shim_without_processes_ends_when_the_node_shuts_down() {
    let dir = tempfile::tempdir().expect("dir");
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, "sh"])
        .arg(dir.path())
        .arg(crate::SHIM)
        .output()
        .expect("unshare");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "kept\nended\n",
        "{output:?}"
    );
}

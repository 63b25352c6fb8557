//! Real processes: a shell with the name of a plugin, and its children.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{CANARY, call, observations_of, ticks_now};
use crate::TEST_TIMEOUT;
use crate::process_scanner::proc::ProcFs;
use crate::process_scanner::scan::{ProcessScanner, ScanResult};
use crate::process_scanner::{Observation, WorkKind};
use criscope_cri::Method;

/// A child process. It ends with a pipe, and its own children with it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// A directory with a shell named `plugin` and a sleeping program named `tool`.
fn programs(plugin: &str, tool: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("dir");
    for (from, name) in [("/bin/sh", plugin), ("/bin/cat", tool)] {
        // Copied by another program: a child of a concurrent test would inherit our descriptor, and an executable open for
        // writing cannot be started (ETXTBSY).
        let mut copy = Command::new("cp");
        copy.arg(from).arg(dir.path().join(name));
        assert!(copy.status().expect("cp").success());
    }
    let path = dir.path().join(plugin);
    (dir, path)
}

fn plugin(path: &Path, tool: &str, pod: &str) -> Running {
    let child = Command::new(path)
        .args([
            "-c",
            &format!("{}/{tool}; true", path.parent().expect("dir").display()),
        ])
        .env("CNI_COMMAND", "ADD")
        .env("CNI_CONTAINERID", format!("sandbox-of-{pod}"))
        .env(
            "CNI_ARGS",
            format!(
                "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME={pod};K8S_POD_UID=uid-{pod}"
            ),
        )
        .env("TOKEN", CANARY)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("start");
    Running(child)
}

fn scanner() -> ProcessScanner {
    // This process must be older than the call.
    let own = ProcFs::new(Path::new("/proc"))
        .stat(std::process::id())
        .expect("stat");
    while ticks_now() <= own.start + 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let scanner = ProcessScanner::new(ProcFs::new(Path::new("/proc")));
    assert!(scanner.sees_others());
    scanner
}

/// The plugins that work for a call. An OCI runtime of another process on this machine may be attributed to our call.
fn plugins(found: &ScanResult, seq: u64) -> Vec<Observation> {
    let mut all = observations_of(found, seq);
    all.retain(|observation| observation.work == WorkKind::Cni);
    all
}

#[test]
fn a_real_plugin_and_what_it_started_are_found() {
    let (_dir, path) = programs("calico-with-a-long-name", "iptables");
    let mut scanner = scanner();
    let calls = [
        call(1, Method::RunPodSandbox, "real-cart", [None; 2]),
        call(2, Method::RunPodSandbox, "real-till", [None; 2]),
    ];
    let running = plugin(&path, "iptables", "real-cart");
    let end = Instant::now() + TEST_TIMEOUT;
    let want = "in the CNI plugin calico-with-a-long-name (iptables)";
    let found = loop {
        let found = scanner.scan(&calls).expect("scan");
        let ours: Vec<_> = plugins(&found, 1).iter().map(Observation::phrase).collect();
        if ours == [want] {
            break found;
        }
        assert!(Instant::now() < end, "{found:?}");
    };
    assert!(plugins(&found, 2).is_empty());
    assert!(!scanner.is_limited());
    assert!(!format!("{scanner:?} {found:?}").contains(CANARY));
    let began = plugins(&found, 1)[0].began;
    assert!(began >= calls[0].started_at && began <= found.at.expect("a scan"));

    drop(running);
    let gone = scanner.scan(&calls).expect("scan");
    assert_eq!(
        plugins(&gone, 1)[0].last_seen,
        plugins(&found, 1)[0].last_seen
    );
}

/// Processes appear and vanish during the scan.
#[test]
fn a_busy_node_does_no_harm() {
    let stop = Arc::new(AtomicBool::new(false));
    let churn = {
        let stop = Arc::clone(&stop);
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                let status = Command::new("/bin/true").env("CNI_COMMAND", "ADD").status();
                assert!(status.expect("start").success());
            }
        })
    };
    let mut scanner = scanner();
    let calls = [call(1, Method::RunPodSandbox, "unrelated", [None; 2])];
    for _ in 0..200 {
        let found = scanner.scan(&calls).expect("scan");
        assert!(plugins(&found, 1).is_empty(), "{found:?}");
    }
    stop.store(true, Ordering::Relaxed);
    churn.join().expect("churn");
}

//! The hierarchies of cgroup v1, which all tests share.

use std::fs;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio::process::Command;

use crate::until_true;

/// How long the kernel may take to give a hierarchy up that was unmounted.
const RELEASE: Duration = Duration::from_secs(1);

/// A cgroup without processes is left behind by a test that was killed if it is still there after this time. The files of cgroup v1 do not
/// tell their age.
const LEFT_BEHIND: Duration = Duration::from_secs(60);

/// Waits while a hierarchy of cgroup v1 is in use that is not mounted, as while another test has `hugetlb` in a mount namespace of its
/// own: with it containerd 1.6 watches no cgroup and tells of no OOM kill, and its shim for runc has no statistics. A hierarchy whose
/// last mount went before its last cgroup stays in use until it is mounted and unmounted once more.
pub async fn all_mounted() {
    let began = Instant::now();
    let released = Mutex::new(None::<Instant>);
    until_true("the mounts of all hierarchies", async || {
        let all = hugetlb_is_mounted_or_unused();
        let last = *released.lock().expect("lock");
        if !all && last.is_none_or(|at| at.elapsed() > RELEASE) {
            release_hugetlb(began.elapsed() > LEFT_BEHIND).await;
            *released.lock().expect("lock") = Some(Instant::now());
        }
        all
    })
    .await;
}

fn hugetlb_is_mounted_or_unused() -> bool {
    let table = fs::read_to_string("/proc/cgroups").unwrap_or_default();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table.lines().all(|line| {
        let fields: Vec<_> = line.split_ascii_whitespace().collect();
        match fields[..] {
            ["hugetlb", hierarchy, ..] => hierarchy == "0" || mounts.contains("hugetlb"),
            _ => true,
        }
    })
}

/// Mounts and unmounts it where no other test sees it, which would make cgroups in it. Empty cgroups keep it in use: `removes` them.
async fn release_hugetlb(removes: bool) {
    let dir = tempfile::tempdir().expect("a directory");
    let once = "mount -t cgroup -o hugetlb cgroup \"$1\" || exit
        [ \"$2\" = false ] || find \"$1\" -mindepth 1 -depth -type d -exec rmdir {} +
        umount \"$1\"";
    let mut unshared = Command::new("unshare");
    unshared.args(["--mount", "sh", "-c", once, "sh"]);
    unshared.arg(dir.path()).arg(removes.to_string());
    let _busy = unshared.output().await;
}

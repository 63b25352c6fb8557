//! What a case does to the machine under a containerd.

use nix::mount::{MsFlags, mount};

use crate::harness::containerd::Config;
use crate::prelude::*;

/// A containerd whose disk for unpacked images is small.
pub(super) fn small_disk(containerd: &Containerd, _: &mut Config) {
    let disk = containerd
        .root()
        .join("containerd/io.containerd.snapshotter.v1.overlayfs");
    fs::create_dir_all(&disk).expect("dir");
    // As the directory of a machine: containers of other users pass through it.
    let (tmpfs, options) = (Some("tmpfs"), Some("size=32m,mode=711"));
    mount(tmpfs, &disk, tmpfs, MsFlags::empty(), options).expect("tmpfs");
}

/// What containerd keeps of a sandbox or container while it runs.
fn task(name: &str, id: &str, file: &str) -> i32 {
    let file = format!("/run/{name}/state/io.containerd.runtime.v2.task/k8s.io/{id}/{file}");
    let pid = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    pid.trim().parse().expect("a pid")
}

/// The first process of a sandbox or container.
pub(super) fn pid_of(name: &str, id: &str) -> Pid {
    Pid::from_raw(task(name, id, "init.pid"))
}

/// The shim of a sandbox of containerd.
pub(super) fn shim_of(name: &str, id: &str) -> Pid {
    process_with(name, ["containerd-shim", &format!("-id {id}")])
}

/// The shim of a sandbox of the built-in runtime.
pub(super) fn own_shim_of(name: &str, id: &str) -> Pid {
    process_with(name, ["criscope-shim", id])
}

fn process_with(name: &str, parts: [&str; 2]) -> Pid {
    let all = leaks::processes(name);
    let is_it = |arguments: &str| parts.iter().all(|part| arguments.contains(part));
    let shim = all.iter().find(|(_, arguments)| is_it(arguments));
    Pid::from_raw(shim.expect("a shim").0)
}

/// The freezer of a container: its file, and the words for frozen and thawed.
pub(super) fn freezer(name: &str, id: &str) -> (PathBuf, [&'static str; 2]) {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", pid_of(name, id)));
    let groups = groups.expect("its cgroups");
    let v1 = groups
        .lines()
        .find_map(|line| line.split_once(":freezer:/"));
    let v2 = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let top = Path::new("/sys/fs/cgroup");
    match (v1, v2) {
        (Some((_, group)), _) => {
            let file = top.join("freezer").join(group).join("freezer.state");
            (file, ["FROZEN", "THAWED"])
        }
        (None, group) => {
            let file = top.join(group.expect("a cgroup")).join("cgroup.freeze");
            (file, ["1", "0"])
        }
    }
}

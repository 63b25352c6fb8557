//! Detects objects that a test's runtime has left behind on the machine, by the name they contain.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::PATIENCE;
use crate::lock;
use crate::packages::program;

/// The mount point of cgroups.
const HIERARCHIES: &str = "/sys/fs/cgroup";

/// The cgroup of all shims.
pub const SHIMS: &str = "criscope-shims";

/// The number of runtimes in this process, and a lock on [`HIERARCHIES`] that is held while there are any. Other
/// processes with such tests respect it.
static ALIVE: Mutex<(usize, Option<File>)> = Mutex::new((0, None));

/// All objects whose name contains a given name. Dropping it removes them, even if the test fails. The process that creates
/// them must be dropped first: declare it before this field.
pub struct Traces {
    name: String,
}

impl Traces {
    pub fn of(name: &str) -> Self {
        let mut alive = lock(&ALIVE);
        alive.0 += 1;
        alive.1.get_or_insert_with(|| {
            let top = File::open(HIERARCHIES).expect("cgroups");
            top.lock_shared().expect("a lock");
            top
        });
        drop(alive);
        Self {
            name: name.to_owned(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        remove(&self.name);
        let mut alive = lock(&ALIVE);
        alive.0 -= 1;
        if alive.0 > 0 {
            return;
        }
        let top = alive.1.take();
        // A killed daemon leaves the cgroup of all shims, which another daemon may be about to use, so the lock is held
        // until it is removed. It remains while it contains another process's shim.
        if let Some(top) = &top
            && top.try_lock().is_ok()
        {
            for dir in tops(SHIMS) {
                // Those of sandboxes that a failed test left behind; they have no name of a test.
                for sandbox in fs::read_dir(&dir).into_iter().flatten().flatten() {
                    let _ = fs::remove_dir(sandbox.path());
                }
                let _ = fs::remove_dir(dir);
            }
        }
    }
}

/// Mounts, processes, cgroups, links, network state, rules and directories with this name.
pub fn find(name: &str) -> Vec<String> {
    let mut found: Vec<_> = mounts(name).iter().map(|m| format!("mount {m}")).collect();
    found.extend(
        processes(name)
            .iter()
            .map(|(pid, what)| format!("process {pid}: {what}")),
    );
    found.extend(
        cgroups(name)
            .iter()
            .map(|c| format!("cgroup {}", c.display())),
    );
    found.extend(links(name).iter().map(|l| format!("link {l}")));
    found.extend(
        network_state(name)
            .iter()
            .map(|f| format!("file {}", f.display())),
    );
    found.extend(rules(name));
    found.extend(
        directories(name)
            .iter()
            .map(|d| format!("directory {}", d.display())),
    );
    found
}

fn directories(name: &str) -> Vec<PathBuf> {
    let all = ["/tmp", "/run"].map(|dir| Path::new(dir).join(name));
    all.into_iter().filter(|dir| dir.exists()).collect()
}

/// Removes the objects of a failed test. A passed one leaves only directories, the parent cgroup and the bridge.
fn remove(name: &str) {
    thaw(name);
    // Shims are recognized by the socket in their arguments, containers by their cgroup.
    end(|| processes(name));
    unmount(&mounts(name));
    remove_cgroups(name);
    for link in links(name) {
        let _ = Command::new(program("ip", "iproute2"))
            .args(["link", "delete", &link])
            .status();
    }
    for file in network_state(name) {
        let _ = fs::remove_file(file);
    }
    for dir in directories(name) {
        let _ = fs::remove_dir_all(dir);
    }
}

/// Thaws the cgroups with this name: a process in a frozen one of version 1 does not die of SIGKILL.
fn thaw(name: &str) {
    for cgroup in cgroups(name) {
        for (file, thawed) in [("freezer.state", "THAWED"), ("cgroup.freeze", "0")] {
            let file = cgroup.join(file);
            if file.exists() {
                let _ = fs::write(file, thawed);
            }
        }
    }
}

/// Kills processes and waits until there are none. Shims ignore SIGTERM.
pub fn end(processes: impl Fn() -> Vec<(i32, String)>) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let left = processes();
        if left.is_empty() {
            break;
        }
        for (pid, _) in left {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Unmounts in reverse order.
pub fn unmount(mounts: &[String]) {
    for mount in mounts.iter().rev() {
        let _ = umount2(mount.as_str(), MntFlags::MNT_DETACH);
    }
}

/// Removes the cgroups with this name. The cgroup of a process that is still exiting is removed by a later attempt.
pub fn remove_cgroups(name: &str) {
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        // The deepest first.
        for cgroup in cgroups(name).iter().rev() {
            let _ = fs::remove_dir(cgroup);
        }
        if cgroups(name).is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Mount points with this name, in the order of mounting.
pub fn mounts(name: &str) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let points = all.lines().filter_map(|line| line.split(' ').nth(1));
    let ours = points.filter(|point| point.split('/').any(|part| part == name));
    ours.map(str::to_owned).collect()
}

/// The shims of a daemon and the processes in its pods: pid and arguments.
pub fn processes(name: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    let own = i32::try_from(std::process::id()).expect("pid");
    for entry in fs::read_dir("/proc").expect("proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // The process may have exited.
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
        let cgroup = String::from_utf8_lossy(&read("cgroup")).into_owned();
        let is_shim = ["containerd-shim", "criscope-shim"]
            .iter()
            .any(|shim| arguments.contains(shim));
        let ours = is_shim && arguments.contains(&format!("/{name}/"))
            || cgroup.contains(&format!("/{name}/"));
        if ours && pid != own && !arguments.is_empty() {
            found.push((pid, arguments));
        }
    }
    found
}

/// The path of the cgroup with this name in each hierarchy; a hierarchy with several mount points counts once.
fn tops(name: &str) -> Vec<PathBuf> {
    let top = Path::new(HIERARCHIES);
    let hierarchies = fs::read_dir(top).into_iter().flatten().flatten();
    let tops: BTreeSet<_> = hierarchies
        .filter_map(|entry| fs::canonicalize(entry.path()).ok())
        .chain([top.to_owned()])
        .collect();
    tops.into_iter().map(|top| top.join(name)).collect()
}

/// The cgroups with this name, parents first.
pub fn cgroups(name: &str) -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>) {
        found.push(dir.to_owned());
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                below(&entry.path(), found);
            }
        }
    }
    let mut found = Vec::new();
    for dir in tops(name).iter().filter(|dir| dir.is_dir()) {
        below(dir, &mut found);
    }
    found
}

/// The bridge and its ports.
fn links(name: &str) -> Vec<String> {
    let bridge = Path::new("/sys/class/net").join(name);
    let ports = fs::read_dir(bridge.join("brif"))
        .into_iter()
        .flatten()
        .flatten();
    let ports = ports.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<_> = ports.collect();
    if bridge.exists() {
        found.push(name.to_owned());
    }
    found
}

/// Cached results of libcni: of the network with this name, and of loopback for sandboxes whose network namespace is in the
/// state directory with this name. containerd names every loopback network alike, and removes the result only in
/// StopPodSandbox.
fn network_state(name: &str) -> Vec<PathBuf> {
    let kept = fs::read_dir("/var/lib/cni/results")
        .into_iter()
        .flatten()
        .flatten();
    let prefix = format!("{name}-");
    let netns = format!("\"/run/{name}/");
    let ours = kept.filter(|entry| {
        entry.file_name().to_string_lossy().starts_with(&prefix)
            || fs::read_to_string(entry.path()).is_ok_and(|result| result.contains(&netns))
    });
    ours.map(|entry| entry.path()).collect()
}

fn rules(name: &str) -> Vec<String> {
    let output = Command::new(program("iptables-save", "iptables")).output();
    let all = String::from_utf8_lossy(&output.expect("iptables-save").stdout).into_owned();
    let ours = all
        .lines()
        .filter(|line| line.contains(&format!("\"{name}\\\"")));
    ours.map(|line| format!("rule {line}")).collect()
}

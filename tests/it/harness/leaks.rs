//! What a runtime of ours has left behind on the machine: everything carries its name.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::harness::packages::program;

/// Mounts, processes, cgroups, links, network state and rules with this name. Empty when all is clean.
pub(crate) fn find(name: &str) -> Vec<String> {
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
    for dir in ["/tmp", "/run"] {
        let dir = Path::new(dir).join(name);
        if dir.exists() {
            found.push(format!("directory {}", dir.display()));
        }
    }
    found
}

/// Removes what a test that failed has left; one that went well leaves nothing here to do but the parent cgroup and the
/// bridge, which are ours.
pub(crate) fn remove(name: &str) {
    // Shims are told apart by the socket in their arguments, what they run by its cgroup.
    for (pid, _) in processes(name) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    for _ in 0..200 {
        if processes(name).is_empty() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    for mount in mounts(name).iter().rev() {
        let _ = umount2(mount.as_str(), MntFlags::MNT_DETACH);
    }
    // The deepest first.
    for cgroup in cgroups(name).iter().rev() {
        let _ = fs::remove_dir(cgroup);
    }
    for link in links(name) {
        let _ = Command::new(program("ip", "iproute2"))
            .args(["link", "delete", &link])
            .status();
    }
    for file in network_state(name) {
        let _ = fs::remove_file(file);
    }
}

/// In the order they were made.
fn mounts(name: &str) -> Vec<String> {
    let all = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let points = all.lines().filter_map(|line| line.split(' ').nth(1));
    let ours = points.filter(|point| point.split('/').any(|part| part == name));
    ours.map(str::to_owned).collect()
}

/// Shims of a daemon, and all that runs in its pods: pid and arguments.
pub(crate) fn processes(name: &str) -> Vec<(i32, String)> {
    let mut found = Vec::new();
    let own = i32::try_from(std::process::id()).expect("pid");
    for entry in fs::read_dir("/proc").expect("proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        // It may end meanwhile.
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

/// Each before those in it.
fn cgroups(name: &str) -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>) {
        found.push(dir.to_owned());
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|t| t.is_dir()) {
                below(&entry.path(), found);
            }
        }
    }
    let mut found = Vec::new();
    let top = Path::new("/sys/fs/cgroup");
    let controllers = fs::read_dir(top).into_iter().flatten().flatten();
    let tops = controllers
        .map(|entry| entry.path())
        .chain([top.to_owned()]);
    for dir in tops.map(|top| top.join(name)).filter(|dir| dir.is_dir()) {
        below(&dir, &mut found);
    }
    found
}

/// The bridge, and what is plugged into it.
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

/// Results that the CNI library keeps.
fn network_state(name: &str) -> Vec<PathBuf> {
    let kept = fs::read_dir("/var/lib/cni/results")
        .into_iter()
        .flatten()
        .flatten();
    let ours = kept.filter(|entry| {
        entry
            .file_name()
            .to_string_lossy()
            .starts_with(&format!("{name}-"))
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

//! The ground everything stands on: two folders, a cgroup and bridges of one name, and nothing of that name afterwards.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use criscope_linux::rootfs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::error::{IoContext, Result};

/// Where containerd's shims have their sockets, whatever its configuration says.
const SHIM_SOCKETS: &str = "/run/containerd/s";
const CGROUPS: &str = "/sys/fs/cgroup";
/// How long what was killed may take to end.
const DYING: Duration = Duration::from_secs(10);

/// Dropping it ends and removes all that was made on it.
pub(crate) struct Ground {
    /// Of this run alone: 12 characters, as it names bridges.
    pub(crate) name: String,
    /// On a disk, as images and writable layers are.
    pub(crate) disk: PathBuf,
    /// In memory, as sockets and namespaces are.
    pub(crate) run: PathBuf,
    sockets: BTreeSet<PathBuf>,
    hugetlb: bool,
    _folders: [TempDir; 2],
}

impl Ground {
    /// Makes the folders.
    ///
    /// # Errors
    /// When they cannot be made.
    pub(crate) fn new() -> Result<Self> {
        let name = format!("crb{:08x}", std::process::id());
        let folder = |above: &str| {
            let made = tempfile::Builder::new().prefix(&name).tempdir_in(above);
            made.during(|| format!("making a folder in {above}"))
        };
        let folders = [folder("/var/tmp")?, folder("/run")?];
        Ok(Self {
            disk: folders[0].path().to_owned(),
            run: folders[1].path().to_owned(),
            _folders: folders,
            sockets: entries(Path::new(SHIM_SOCKETS)),
            hugetlb: false,
            name,
        })
    }

    /// The cgroup of all pods, as a path below the root of each hierarchy.
    pub(crate) fn cgroup(&self) -> String {
        format!("/{}", self.name)
    }

    /// The name of a network and its bridge.
    pub(crate) fn bridge(&self, letter: char) -> String {
        format!("{}{letter}", self.name)
    }

    /// Makes a place to mount the controller `hugetlb` at. Whether crun can be used: on cgroups of version 1 it wants
    /// this controller, and in each namespace of mounts it may be mounted anew.
    pub(crate) fn hugetlb(&mut self) -> bool {
        let point = Path::new(CGROUPS).join("hugetlb");
        if !point.is_dir() {
            self.hugetlb = fs::create_dir(&point).is_ok();
        }
        point.is_dir()
    }

    /// Processes in our cgroup, and helpers of the runtimes, which have one of our folders in their arguments.
    fn processes(&self) -> Vec<Pid> {
        let ours = |pid: &Pid| {
            let read = |file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let has = |text: &[u8], word: &str| String::from_utf8_lossy(text).contains(word);
            let arguments = read("cmdline");
            // One that has ended and was not waited for has no arguments.
            *pid != Pid::this()
                && !arguments.is_empty()
                && (has(&read("cgroup"), &format!("{}/", self.cgroup()))
                    || has(&arguments, &format!("{}/", self.run.display())))
        };
        pids().filter(ours).collect()
    }

    fn kill_all(&self) {
        let start = Instant::now();
        loop {
            let left = self.processes();
            if left.is_empty() || start.elapsed() > DYING {
                return;
            }
            for pid in left {
                let _ = kill(pid, Signal::SIGKILL);
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn unmount_all(&self) {
        for folder in [&self.disk, &self.run] {
            // What is mounted in a mount goes with it.
            while let Some(point) = rootfs::list_mounts_below(folder)
                .ok()
                .and_then(|found| found.into_iter().min())
            {
                if rootfs::unmount(&point).is_err() {
                    break;
                }
            }
        }
    }

    fn remove_cgroups(&self) {
        let tops = entries(Path::new(CGROUPS));
        for top in tops
            .iter()
            .map(PathBuf::as_path)
            .chain([Path::new(CGROUPS)])
        {
            remove_cgroup(&top.join(&self.name));
        }
        if self.hugetlb {
            self.remove_hugetlb();
            let _ = fs::remove_dir(Path::new(CGROUPS).join("hugetlb"));
        }
    }

    /// What crun left in the controller that only mount namespaces of the runs had: it stays in the kernel otherwise, with
    /// no mount that shows it.
    fn remove_hugetlb(&self) {
        let script = "mount -t cgroup -o hugetlb cgroup \"$1\" && \
                      find \"$1/$2\" -depth -type d -exec rmdir {} +";
        let place = Path::new(CGROUPS).join("hugetlb");
        let _ = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .args([place.as_os_str(), self.name.as_ref()])
            .stderr(Stdio::null())
            .status();
    }

    /// Bridges, and the rules and chains that plugins made for pods and could not take away.
    fn remove_networks(&self) {
        for link in entries(Path::new("/sys/class/net")) {
            let link = link
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if link.starts_with(&self.name) {
                quietly("ip", &["link", "delete", &link]);
            }
        }
        let Ok(saved) = Command::new("iptables").args(["-t", "nat", "-S"]).output() else {
            return;
        };
        let saved = String::from_utf8_lossy(&saved.stdout).into_owned();
        let mut chains = BTreeSet::new();
        for line in saved.lines().filter(|line| line.contains(&self.name)) {
            let words = line.split_whitespace();
            chains.extend(words.filter(|word| word.starts_with("CNI-")));
            // iptables writes its rules as a shell reads them.
            if let Some(rule) = line.strip_prefix("-A POSTROUTING ") {
                quietly(
                    "sh",
                    &["-c", &format!("iptables -t nat -D POSTROUTING {rule}")],
                );
            }
        }
        for chain in chains {
            quietly("iptables", &["-t", "nat", "-F", chain]);
            quietly("iptables", &["-t", "nat", "-X", chain]);
        }
    }

    /// What lies outside our folders: sockets that nobody listens on, and libcni's cache.
    fn remove_strays(&self) {
        for socket in entries(Path::new(SHIM_SOCKETS)).difference(&self.sockets) {
            if UnixStream::connect(socket).is_err() {
                let _ = fs::remove_file(socket);
            }
        }
        for result in entries(Path::new("/var/lib/cni/results")) {
            let name = result
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.starts_with(&self.name) {
                let _ = fs::remove_file(result);
            }
        }
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        self.kill_all();
        self.unmount_all();
        self.remove_cgroups();
        self.remove_networks();
        self.remove_strays();
    }
}

/// All processes.
pub(crate) fn pids() -> impl Iterator<Item = Pid> {
    let names = entries(Path::new("/proc")).into_iter();
    names.filter_map(|path| Some(Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)))
}

fn entries(dir: &Path) -> BTreeSet<PathBuf> {
    let found = fs::read_dir(dir).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

fn remove_cgroup(dir: &Path) {
    for below in entries(dir).iter().filter(|path| path.is_dir()) {
        remove_cgroup(below);
    }
    let _ = fs::remove_dir(dir);
}

fn quietly(program: &str, args: &[&str]) {
    let _ = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

//! Two directories, a cgroup and bridges of one name, all removed at the end.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use criscope_testkit::leaks;
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::error::{IoContext, Result};

/// The directory of containerd's shim sockets, which is not configurable.
const SHIM_SOCKETS: &str = "/run/containerd/s";
const CGROUPS: &str = "/sys/fs/cgroup";

/// Dropping it kills and removes everything that carries its name.
pub(crate) struct Ground {
    /// Unique to this run; 11 characters, because bridges are named after it.
    pub(crate) name: String,
    /// On a disk, for images and writable layers.
    pub(crate) disk: PathBuf,
    /// In memory, for sockets and namespaces.
    pub(crate) run: PathBuf,
    sockets: BTreeSet<PathBuf>,
    hugetlb: bool,
    _folders: [TempDir; 2],
}

impl Ground {
    /// Creates the directories.
    ///
    /// # Errors
    /// If they cannot be created.
    pub(crate) fn new() -> Result<Self> {
        let name = format!("crb{:08x}", std::process::id());
        let folder = |above: &str| {
            let mut builder = tempfile::Builder::new();
            let made = builder.prefix(&name).rand_bytes(0).tempdir_in(above);
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

    /// Creates a mount point for the controller `hugetlb`. Returns whether crun can be used: on cgroups of version 1 it
    /// requires this controller, which can be mounted in a new mount namespace.
    pub(crate) fn hugetlb(&mut self) -> bool {
        let point = Path::new(CGROUPS).join("hugetlb");
        if !point.is_dir() {
            self.hugetlb = fs::create_dir(&point).is_ok();
        }
        point.is_dir()
    }

    /// Removes the cgroups of crun in the hugetlb controller, which only mount namespaces of the runs have: they would
    /// stay in the kernel, without a visible mount.
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

    /// Removes bridges, and the rules and chains that plugins have left behind.
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
            // iptables prints its rules in the syntax of a shell.
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

    /// Removes files outside the directories: unused sockets, and libcni's cache.
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
        leaks::end(|| leaks::processes(&self.name));
        leaks::unmount(&leaks::mounts(&self.name));
        leaks::remove_cgroups(&self.name);
        self.remove_hugetlb();
        if self.hugetlb {
            let _ = fs::remove_dir(Path::new(CGROUPS).join("hugetlb"));
        }
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

fn quietly(program: &str, args: &[&str]) {
    let _ = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

//! The processes of a container, from `/proc`.

use std::fs;
use std::path::Path;

use criscope_linux::cgroup::{self, Cgroup, processes};

/// Maximum number of processes whose files are read: each costs a directory and a link per open file.
const MAX_COUNTED_PROCESSES: usize = 1024;
/// Maximum number of open files that are read: one process may have a million.
const MOST_FILES: u64 = 50_000;

/// The resources of a container's processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Processes {
    /// The number.
    pub processes: u64,
    /// The open files; `None` if they cannot be seen on the node.
    pub files: Option<Files>,
    /// The soft limit on open files of the first process; `None` if unlimited.
    pub max_open_files: Option<u64>,
}

/// Open files of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Files {
    /// Open file descriptors, of the first 1024 processes; about 50,000 at most.
    pub file_descriptors: u64,
    /// File descriptors among these that are sockets.
    pub sockets: u64,
}

impl Processes {
    /// Processes with only their number known, in a virtual machine or under gVisor's kernel.
    pub fn hidden(processes: u64) -> Self {
        Self {
            processes,
            ..Self::default()
        }
    }
}

/// Reads the processes of a cgroup and its descendants, ignoring the ones that exit during the read. Blocks for about a
/// microsecond per open file.
///
/// # Errors
/// If the list of processes cannot be read.
pub fn look(cgroup: &Cgroup) -> Result<Processes, cgroup::Error> {
    let pids = processes(cgroup)?;
    let mut files = Files::default();
    'processes: for pid in pids.iter().take(MAX_COUNTED_PROCESSES) {
        let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fd")) else {
            continue;
        };
        for entry in entries.flatten() {
            files.file_descriptors += 1;
            if files.file_descriptors >= MOST_FILES {
                break 'processes;
            }
            let target = fs::read_link(entry.path());
            if target.is_ok_and(|target| is_socket(&target)) {
                files.sockets += 1;
            }
        }
    }
    Ok(Processes {
        processes: pids.len() as u64,
        files: Some(files),
        max_open_files: pids.first().and_then(|pid| max_open_files(*pid)),
    })
}

fn is_socket(target: &Path) -> bool {
    target.to_string_lossy().starts_with("socket:[")
}

/// `Max open files            1024                 4096                 files`
fn max_open_files(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

//! The processes of this node, as `/proc` shows them.

use std::fs;

use crate::install::{self, FilesystemRoot};

/// The files of the node. Everything below is read through it, so that tests can simulate a node.
#[derive(Debug, Default)]
pub(super) struct NodeFiles(pub(super) FilesystemRoot);

impl NodeFiles {
    /// The content of a file in `/proc/PID`.
    pub(super) fn proc(&self, pid: i32, file: &str) -> Option<String> {
        let bytes = self.0.read(format!("/proc/{pid}/{file}")).ok()??;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The comm of a process, at most 15 bytes.
    pub(super) fn comm(&self, pid: i32) -> Option<String> {
        Some(self.proc(pid, "comm")?.trim_end().to_owned())
    }

    /// A process as `kubelet (pid 812)`.
    pub(super) fn describe(&self, pid: i32) -> String {
        match self.comm(pid) {
            Some(comm) => format!("{comm} (pid {pid})"),
            None => format!("pid {pid}"),
        }
    }

    /// The arguments of a process, with `argv[0]`.
    pub(super) fn arguments(&self, pid: i32) -> Vec<String> {
        install::arguments(&self.0, pid)
    }

    /// All process ids, ascending.
    pub(super) fn pids(&self) -> Vec<i32> {
        let Ok(entries) = fs::read_dir(self.0.path("/proc")) else {
            return Vec::new();
        };
        let mut pids: Vec<i32> = entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        pids
    }
}

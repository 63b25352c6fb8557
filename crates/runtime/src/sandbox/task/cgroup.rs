//! The cgroup of a sandbox container, and limits that end a sandbox.
//!
//! gVisor and Kata run a whole pod in few processes, in the cgroup of the pod or of its sandbox container. When these reach the limit of
//! memory or of processes, the sandbox ends, and neither the shim of containerd nor the exit code says why.

use std::fs;
use std::time::Duration;

use criscope_linux::cgroup::Cgroup;

use super::super::teardown::blocking;
use crate::Runtime;
use crate::error::Error;
use crate::oci::spec::cgroup_path;
use crate::store::SandboxRecord;

/// A limit that the cgroup of a sandbox has reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SandboxLimit {
    /// The kernel killed a process for lack of memory.
    Memory,
    /// The kernel refused to create a process or thread.
    Processes,
}

/// How long the cgroup of a sandbox container that was deleted may stay busy before it is left alone.
const EMPTYING: Duration = Duration::from_secs(1);

/// Where kills are counted: of the cgroup itself with version 2, in which a kill in a container is counted for the pod too, and with
/// version 1.
const KILLS: [&str; 2] = ["memory.events.local", "memory.oom_control"];

impl Runtime {
    /// The limit that the sandbox of a shim of containerd has reached, by the counters of its cgroups. Kills come first:
    /// a process that could not be created need not have ended the sandbox.
    pub(crate) fn sandbox_limit(&self, record: &SandboxRecord) -> Option<SandboxLimit> {
        let driver = self.live().settings.node.cgroup_driver;
        let hierarchies = self.hierarchies.as_ref()?;
        let parent = record.cgroup_parent();
        let own = self.sandbox_cgroup(record);
        // Without a parent it is the root, which has no limit.
        let pod = (!parent.is_empty()).then(|| hierarchies.pod_cgroup(parent, driver).ok());
        let cgroups: Vec<_> = own.into_iter().chain(pod.flatten()).collect();
        reached(&cgroups)
    }

    /// The cgroup of the sandbox container.
    pub(crate) fn sandbox_cgroup(&self, record: &SandboxRecord) -> Option<Cgroup> {
        let driver = self.live().settings.node.cgroup_driver;
        let path = cgroup_path(record.cgroup_parent(), &record.id, driver).ok()?;
        self.hierarchies
            .as_ref()?
            .container_cgroup(&path, driver)
            .ok()
    }

    /// Removes the cgroup of a sandbox container if its shim of containerd, which is gone, left it, and kills its contents: gVisor's leaves
    /// that of one which it could not create, and the `delete` of runwasi's ends no process. A failure is logged; it does not keep the pod from
    /// being removed.
    pub(super) async fn remove_sandbox_cgroup(&self, record: &SandboxRecord) {
        let Some(cgroup) = self.sandbox_cgroup(record) else {
            return;
        };
        let removing = blocking(move || {
            let removed = cgroup.remove(EMPTYING);
            removed.map_err(|error| Error::Internal(error.to_string()))
        });
        if let Err(error) = removing.await {
            tracing::warn!(target: "criscope::runtime::sandbox::task::cgroup", event = "runtime.cgroup", criscope.sandbox.id = %record.id, error.message = %error, "the cgroup of a sandbox container could not be removed");
        }
    }
}

impl Runtime {
    /// Removes the cgroup of a sandbox container that was deleted, if it is left and empty.
    pub(super) async fn remove_empty_sandbox_cgroup(&self, record: &SandboxRecord) {
        if let Some(cgroup) = self.sandbox_cgroup(record) {
            let removing = blocking(move || {
                // Kata's shim may still be in it, and removes it itself.
                let _busy = cgroup.remove_empty(Duration::ZERO);
                Ok(())
            });
            let _removed = removing.await;
        }
    }
}

fn reached(cgroups: &[Cgroup]) -> Option<SandboxLimit> {
    if has_counted(cgroups, "memory", &KILLS, "oom_kill") {
        Some(SandboxLimit::Memory)
    } else if has_counted(cgroups, "pids", &["pids.events"], "max") {
        Some(SandboxLimit::Processes)
    } else {
        None
    }
}

/// Returns whether a counter in one of these files of the cgroups is not 0.
fn has_counted(cgroups: &[Cgroup], controller: &str, files: &[&str], key: &str) -> bool {
    let dirs = cgroups.iter().filter_map(|one| one.dir(controller));
    let paths = dirs.flat_map(|dir| files.iter().map(|file| dir.join(file)));
    paths
        .filter_map(|path| fs::read_to_string(path).ok())
        .any(|text| count(&text, key) > 0)
}

/// A number of a file with lines `key number`; 0 without it.
fn count(text: &str, key: &str) -> u64 {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    let found = pairs.find(|(name, _)| *name == key);
    found.and_then(|(_, n)| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cgroup of version 2 with these files.
    fn cgroup(files: &[(&str, &str)]) -> (tempfile::TempDir, Cgroup) {
        let dir = tempfile::tempdir().expect("made");
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("written");
        }
        let cgroup = Cgroup::unified(dir.path(), dir.path());
        (dir, cgroup)
    }

    #[test]
    fn a_kill_for_lack_of_memory_comes_before_a_fork_that_failed() {
        let memory = |kills| format!("low 0\noom 3\noom_kill {kills}\noom_group_kill 0\n");
        let (one, none) = (memory(1), memory(0));
        for (files, expected) in [
            (vec![], None),
            (
                vec![("memory.events.local", &*none), ("pids.events", "max 0\n")],
                None,
            ),
            (
                vec![("pids.events", "max 7\n")],
                Some(SandboxLimit::Processes),
            ),
            (
                vec![("memory.events.local", &*one), ("pids.events", "max 7\n")],
                Some(SandboxLimit::Memory),
            ),
            // A kill in a cgroup below.
            (
                vec![("memory.events.local", &*none), ("memory.events", &*one)],
                None,
            ),
            (
                vec![(
                    "memory.oom_control",
                    "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
                )],
                Some(SandboxLimit::Memory),
            ),
        ] {
            let (_dir, cgroup) = cgroup(&files);
            let (_empty, other) = self::cgroup(&[]);
            assert_eq!(reached(&[other, cgroup]), expected, "{files:?}");
        }
    }
}

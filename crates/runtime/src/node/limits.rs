//! Limits supported by the node: swap, and the lowest OOM score.

use std::fs;
use std::path::Path;

use criscope_linux::cgroup::Hierarchies;

use super::NodeError;
use super::files::Files;
use crate::oci::spec::CgroupVersion;

/// Returns whether the kernel accounts swap per cgroup (`swapaccount=`).
pub(super) fn swap_accounting(all: &Hierarchies, files: &Files) -> bool {
    match all.version() {
        CgroupVersion::V1 => all
            .at("".as_ref())
            .ok()
            .and_then(|root| {
                root.dir("memory")
                    .map(|dir| dir.join("memory.memsw.limit_in_bytes").exists())
            })
            .unwrap_or(false),
        // The root cgroup has no such file. With swap accounting, any child with the memory controller has one.
        CgroupVersion::V2 => {
            let own = all.pid_cgroup(std::process::id());
            let own = own
                .ok()
                .and_then(|own| own.dir("memory").and_then(has_swap_limit));
            own.unwrap_or_else(|| {
                let entries = all.iter().filter_map(|one| fs::read_dir(&one.point).ok());
                entries
                    .flatten()
                    .flatten()
                    .find_map(|entry| has_swap_limit(&entry.path()))
                    // The controller is not in use yet, as on a node without systemd. The kernel then creates the files
                    // if it was built with swap.
                    .unwrap_or_else(|| all.has("memory") && files.exists("proc/swaps"))
            })
        }
    }
}

/// Returns whether a cgroup has a limit of swap; `None` if it does not have the memory controller.
fn has_swap_limit(cgroup: &Path) -> Option<bool> {
    (cgroup.join("memory.max").exists()).then(|| cgroup.join("memory.swap.max").exists())
}

/// The daemon's own `oom_score_adj`, if it is the lower bound for containers.
pub(super) fn oom_score_adj_floor(
    files: &Files,
    restricted: bool,
) -> Result<Option<i32>, NodeError> {
    const PATH: &str = "proc/self/oom_score_adj";
    if !restricted {
        return Ok(None);
    }
    let text = files.need(PATH)?;
    let value = text.parse().map_err(|_| NodeError::File {
        path: PATH,
        reason: format!("{text:?} is no number"),
    })?;
    Ok(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_v2_swap_accounting_is_read_from_a_child_cgroup() {
        for swap in [true, false] {
            let dir = tempfile::tempdir().expect("dir");
            let slice = dir.path().join("system.slice");
            fs::create_dir_all(&slice).expect("dir");
            fs::write(slice.join("memory.max"), "max\n").expect("write");
            if swap {
                fs::write(slice.join("memory.swap.max"), "max\n").expect("write");
            }
            let line = format!(
                "30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n",
                dir.path().display()
            );
            let all = Hierarchies::parse(line.as_bytes()).expect("mounted");
            assert_eq!(swap_accounting(&all, &Files::new(dir.path())), swap);
        }
    }

    #[test]
    fn in_v2_without_a_child_cgroup_swap_follows_the_kernel() {
        for (controllers, swaps, expected) in [
            ("cpu memory\n", true, true),
            ("cpu memory\n", false, false),
            ("cpu\n", true, false),
        ] {
            let dir = tempfile::tempdir().expect("dir");
            fs::write(dir.path().join("cgroup.controllers"), controllers).expect("write");
            fs::create_dir_all(dir.path().join("proc")).expect("dir");
            if swaps {
                fs::write(dir.path().join("proc/swaps"), "Filename\n").expect("write");
            }
            let line = format!(
                "30 23 0:26 / {} rw - cgroup2 cgroup2 rw\n",
                dir.path().display()
            );
            let all = Hierarchies::parse(line.as_bytes()).expect("mounted");
            assert_eq!(swap_accounting(&all, &Files::new(dir.path())), expected);
        }
    }

    #[test]
    fn in_v1_swap_accounting_is_read_from_the_root() {
        let dir = tempfile::tempdir().expect("dir");
        let line = format!(
            "30 23 0:26 / {} rw - cgroup cgroup rw,memory\n",
            dir.path().display()
        );
        let all = Hierarchies::parse(line.as_bytes()).expect("mounted");
        let files = Files::new(dir.path());
        assert!(!swap_accounting(&all, &files));
        fs::write(dir.path().join("memory.memsw.limit_in_bytes"), "1\n").expect("write");
        assert!(swap_accounting(&all, &files));
    }
}

//! Frozen cgroups: the freezer of cgroup v1 (kernel, `cgroup-v1/freezer-subsystem`), or `cgroup.freeze` of v2. A frozen
//! process does nothing, and in v1 even SIGKILL waits until it is thawed.

use std::fs;
use std::path::Path;

/// Returns whether a process with this `/proc/PID/cgroup` is frozen, itself or with a parent. `root` is `/sys/fs/cgroup`.
pub(super) fn is_frozen(cgroups: &str, root: &Path) -> bool {
    cgroups.lines().any(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
            return false;
        };
        let path = path.trim_start_matches('/');
        // A path outside our own cgroup namespace.
        if path.split('/').any(|part| part == "..") {
            return false;
        }
        match controllers {
            "" => [root.to_owned(), root.join("unified")].iter().any(|root| {
                let events = fs::read_to_string(root.join(path).join("cgroup.events"));
                events.is_ok_and(|events| events.lines().any(|line| line == "frozen 1"))
            }),
            _ if controllers.split(',').any(|name| name == "freezer") => {
                let file = root.join("freezer").join(path).join("freezer.state");
                let state = fs::read_to_string(file).unwrap_or_default();
                matches!(state.trim_end(), "FROZEN" | "FREEZING")
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        let root = tempfile::tempdir().expect("dir");
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().expect("parent")).expect("dir");
            fs::write(file, text).expect("write");
        };
        write("freezer/a/freezer.state", "FROZEN\n");
        write("freezer/b/freezer.state", "THAWED\n");
        write("freezer/c/freezer.state", "FREEZING\n");
        write("unified/d/cgroup.events", "populated 1\nfrozen 1\n");
        write("e/cgroup.events", "populated 1\nfrozen 0\n");
        let frozen = |text: &str| is_frozen(text, root.path());
        assert!(frozen("8:pids:/x\n5:cpu,freezer:/a\n"));
        assert!(frozen("5:freezer:/c") && !frozen("5:freezer:/b"));
        assert!(frozen("0::/d") && !frozen("0::/e"));
        for nothing in ["", "0::/none", "5:freezer:/../a", "x", "5:freezer"] {
            assert!(!frozen(nothing), "{nothing}");
        }
    }
}

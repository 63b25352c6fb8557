//! Migration of processes between cgroups, and the RCU grace period that the first of them waits for.

use std::fs;

use super::{Error, Hierarchies};

impl Hierarchies {
    /// Makes the next migration of any process between cgroups fast. Blocks for some milliseconds, or returns at once if a
    /// process was migrated shortly before.
    ///
    /// A migration takes `cgroup_threadgroup_rwsem` for writing, a lock that favours its readers, the forks and exits of all
    /// processes. The first writer waits for an RCU grace period; writers in the next tens of milliseconds do not
    /// (`kernel/rcu/sync.c`). An OCI runtime migrates each process that it starts, some milliseconds after its own
    /// start: the grace period can pass in the meantime.
    ///
    /// Migrates the calling process to the cgroup that it is already in, which has no other effect.
    ///
    /// # Errors
    /// [`Error::NotMounted`], [`Error::Invalid`] if its cgroup is outside the mounts, or a failed system call.
    pub fn prepare_migration(&self) -> Result<(), Error> {
        let own = self.pid_cgroup(std::process::id())?;
        // One lock for all hierarchies.
        let dir = own.dirs().next().ok_or_else(|| own.not_found())?;
        let file = dir.join("cgroup.procs");
        fs::write(&file, "0").map_err(|error| Error::io("move a process to", &file, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_calling_process_stays_where_it_is() {
        let all = Hierarchies::detect().expect("mounted");
        let pid = std::process::id();
        let before = all.pid_cgroup(pid).expect("a cgroup");
        all.prepare_migration().expect("prepared");
        assert_eq!(all.pid_cgroup(pid).expect("a cgroup"), before);
    }

    #[test]
    fn a_failure_names_the_file() {
        let mounts = "1 0 0:1 / /nowhere rw - cgroup2 cgroup2 rw\n2 0 0:2 / /nowhere rw - cgroup cgroup rw,cpu\n";
        let all = Hierarchies::parse(mounts.as_bytes()).expect("mounts");
        let error = all.prepare_migration().expect_err("not there").to_string();
        assert!(error.starts_with("/nowhere/"), "{error}");
        assert!(
            error.contains("cgroup.procs: cannot move a process to"),
            "{error}"
        );
    }
}

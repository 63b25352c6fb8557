//! Has the kernel prepare moves of processes between cgroups while the programs that move them are still starting
//! ([why](../../docs/adr/0075-the-grace-period-of-a-cgroup-migration-passes-early.md)).

use std::sync::Arc;

use criscope_linux::cgroup::Hierarchies;

use super::Runtime;

impl Runtime {
    /// Called as early as possible in a call that moves a process to another cgroup. Returns at once; a failure only means that
    /// the move takes longer.
    pub(in crate::runtime) fn prepare_cgroup_migration(self: &Arc<Self>) {
        let runtime = Arc::clone(self);
        tokio::task::spawn_blocking(move || {
            let hierarchies = runtime.hierarchies.as_ref();
            if let Some(Err(error)) = hierarchies.map(Hierarchies::prepare_migration) {
                tracing::debug!(event = "runtime.cgroup", error.message = %error, "the migration of a process to another cgroup was not prepared");
            }
        });
    }
}

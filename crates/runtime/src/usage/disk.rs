//! Disk use of containers and pods.
//!
//! The kubelet adds up the writable layers and logs of a pod's containers, and the pod's volumes, and evicts the pod if that exceeds
//! its limits on ephemeral storage. So the writable layer of a container includes the volumes of its image. The files of the pod, such
//! as `/etc/hostname`, are included once: in the layer of one container, which the sum and the limit of the pod then contain.

use std::collections::HashSet;
use std::sync::Arc;

use criscope_linux::rootfs::Rootfs;

use crate::Runtime;
use crate::sandbox::files;
use crate::stats::Measured;
use crate::store::{Container, ContainerRecord, ContainerState, Sandbox};

/// The containers whose writable layers include the files of their pods: one for each pod.
pub(super) struct PodFileHolders(HashSet<String>);

impl PodFileHolders {
    /// Chooses among the containers of pods, all of each.
    pub(super) fn choose<'a>(pods: impl IntoIterator<Item = &'a [Arc<Container>]>) -> Self {
        let chosen = pods.into_iter().filter_map(|containers| {
            let records = containers.iter().map(|container| container.record());
            holder(records)
        });
        Self(chosen.collect())
    }

    fn contains(&self, id: &str) -> bool {
        self.0.contains(id)
    }
}

/// The id of the container whose writable layer includes the files of the pod: one that has statistics, and if possible one that runs
/// and can write them; then the oldest. They count even if no container can write them any more.
fn holder(records: impl Iterator<Item = Arc<ContainerRecord>>) -> Option<String> {
    let with_statistics = records.filter(|record| has_statistics(record));
    let chosen = with_statistics.min_by(|one, other| {
        let by_rank = rank(one).cmp(&rank(other));
        by_rank.then_with(|| one.id.cmp(&other.id))
    });
    Some(chosen?.id.clone())
}

/// The order in which containers are preferred as the holder.
fn rank(record: &ContainerRecord) -> (bool, bool, i64) {
    let runs = record.state == ContainerState::Running;
    (!runs, is_read_only(record), record.created_at)
}

/// Returns whether a container has statistics: an exited one has none.
pub(super) fn has_statistics(record: &ContainerRecord) -> bool {
    let state = record.state;
    !matches!(state, ContainerState::Exited | ContainerState::Making)
}

/// Returns whether the files of the pod are mounted read-only, as the root file system.
fn is_read_only(record: &ContainerRecord) -> bool {
    let context = record.config.security_context();
    context.is_some_and(|context| context.readonly_rootfs)
}

impl Runtime {
    /// Starts measuring what a container writes.
    pub(crate) fn measure_container(&self, container: &Container) {
        let written = Rootfs::new(container.dir()).written_dirs();
        self.disks.watch(container.id.as_str(), written);
    }

    /// Starts measuring the files of a pod that its containers write.
    pub(crate) fn measure_pod_files(&self, sandbox: &Sandbox) {
        let written = files::paths(sandbox.dir());
        self.disks.watch(sandbox.id.as_str(), written);
    }

    /// The last measurement of a container, with the files of its pod if it holds them; `None` before the first one.
    pub(super) fn measured(
        &self,
        record: &ContainerRecord,
        holders: &PodFileHolders,
    ) -> Option<Measured> {
        let own = self.disks.get(&record.id)?;
        let pod = self.disks.get(&record.sandbox);
        let Some(pod) = pod.filter(|_| holders.contains(&record.id)) else {
            return Some(own);
        };
        Some(Measured {
            at: own.at,
            size: own.size.plus(pod.size),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use criscope_cri::v1;

    fn container(id: &str, state: ContainerState, created_at: i64) -> ContainerRecord {
        ContainerRecord {
            id: id.to_owned(),
            state,
            created_at,
            ..ContainerRecord::default()
        }
    }

    fn read_only(mut record: ContainerRecord) -> ContainerRecord {
        let linux = record.config.linux.get_or_insert_default();
        linux.security_context = Some(v1::LinuxContainerSecurityContext {
            readonly_rootfs: true,
            ..Default::default()
        });
        record
    }

    #[test]
    fn one_container_of_a_pod_holds_its_files() {
        use ContainerState::{Created, Exited, Running};
        let holder = |records: &[ContainerRecord]| {
            let records = records.iter().cloned().map(Arc::new);
            super::holder(records).unwrap_or_default()
        };
        assert_eq!(holder(&[]), "");
        let init = container("init", Exited, 1);
        assert_eq!(holder(std::slice::from_ref(&init)), "");
        let made = container("made", Created, 2);
        assert_eq!(holder(&[init.clone(), made.clone()]), "made");
        // The only one that runs, although it cannot write them: the init container may have.
        let reads = read_only(container("reads", Running, 3));
        assert_eq!(
            holder(&[init.clone(), made.clone(), reads.clone()]),
            "reads"
        );
        let (old, new) = (container("old", Running, 4), container("new", Running, 5));
        assert_eq!(holder(&[new, reads, old, made, init]), "old");
        let (a, b) = (container("a", Running, 6), container("b", Running, 6));
        assert_eq!(holder(&[b, a]), "a");
    }
}

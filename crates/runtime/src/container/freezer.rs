//! Thaws containers that end. A process in a frozen cgroup handles no signal, with cgroup version 1 not even SIGKILL, and the exit of a
//! PID namespace waits for all of its processes. So the cgroups in the container, which nested containers freeze, and the pod's cgroup
//! are thawed too, and again if they are frozen anew while the container ends.

use std::path::PathBuf;
use std::time::Duration;

use criscope_linux::cgroup::{self, Cgroup};
use futures_util::future::BoxFuture;
use tokio::time::timeout;

use crate::Runtime;
use crate::error::{Error, shown};
use crate::sandbox::teardown::blocking;
use crate::store::{Container, ContainerRecord, SandboxRecord};
use criscope_cri::call::steps::RuntimeStep;

/// The pause before a container that ends is thawed again, doubled each time, and the longest.
const THAW_AGAIN: Duration = Duration::from_millis(100);
const LONGEST_THAW_AGAIN: Duration = Duration::from_secs(1);

/// The cgroups in which the processes of a container can be frozen.
#[derive(Clone, Debug)]
pub(crate) struct Freezers {
    /// The cgroup of the container. Some shims of containerd run all processes of the pod in the cgroup of its sandbox container.
    pub(crate) containers: Vec<Cgroup>,
    /// The cgroup of its pod, if it has one of its own.
    pub(crate) pod: Option<Cgroup>,
}

impl Freezers {
    /// The frozen directories to thaw for the end of the container. Other containers of the pod stay frozen by their own cgroups.
    fn frozen(&self) -> Vec<PathBuf> {
        let pod = self.pod.iter().flat_map(Cgroup::frozen_itself);
        let containers = self.containers.iter().flat_map(Cgroup::frozen_tree);
        pod.chain(containers).collect()
    }
}

impl Runtime {
    /// The cgroups of a container; `None` if the node has none.
    pub(crate) fn freezers_of(&self, record: &ContainerRecord) -> Option<Freezers> {
        let container = self.cgroup_of(record)?;
        let Ok(sandbox) = self.store.sandboxes.get(&record.sandbox) else {
            return Some(Freezers {
                containers: vec![container],
                pod: None,
            });
        };
        let mut freezers = self.freezers_of_pod(&sandbox.record());
        freezers.containers.push(container);
        Some(freezers)
    }

    /// The cgroups of a pod without those of its containers.
    pub(crate) fn freezers_of_pod(&self, record: &SandboxRecord) -> Freezers {
        let driver = self.live().settings.node.cgroup_driver;
        let hierarchies = self.hierarchies.as_ref();
        let pod = hierarchies.and_then(|all| all.pod_cgroup(record.cgroup_parent(), driver).ok());
        let sandbox = record
            .has_containerd_shim()
            .then(|| self.sandbox_cgroup(record));
        Freezers {
            containers: sandbox.flatten().into_iter().collect(),
            pod,
        }
    }

    /// Thaws a container, its nested cgroups and its pod.
    pub(crate) async fn thaw(&self, container: &Container) {
        if let Some(freezers) = self.freezers_of(&container.record()) {
            self.thaw_all(&container.id, &freezers).await;
        }
    }

    /// Waits for work that ends the processes of a container, which is thawed before and meanwhile. The work is boxed, because it is
    /// the innermost of many futures, and each would grow by its size.
    pub(crate) async fn thawing<T>(&self, container: &Container, work: BoxFuture<'_, T>) -> T {
        let freezers = self.freezers_of(&container.record());
        self.thawing_in(&container.id, freezers, work).await
    }

    /// Like [`Self::thawing`], for a container by its cgroups.
    pub(crate) async fn thawing_in<T>(
        &self,
        id: &str,
        freezers: Option<Freezers>,
        mut work: BoxFuture<'_, T>,
    ) -> T {
        let Some(freezers) = freezers else {
            return work.await;
        };
        let mut pause = THAW_AGAIN;
        loop {
            self.thaw_all(id, &freezers).await;
            match timeout(pause, &mut work).await {
                Ok(done) => return done,
                Err(_) => pause = LONGEST_THAW_AGAIN.min(2 * pause),
            }
        }
    }

    /// Thaws the cgroup of a container alone; returns whether it was frozen.
    pub(crate) async fn thaw_itself(&self, container: &Container) -> bool {
        let Some(cgroup) = self.cgroup_of(&container.record()) else {
            return false;
        };
        let frozen = blocking(move || Ok(cgroup.frozen_itself())).await;
        self.thaw_dirs(&container.id, frozen.unwrap_or_default())
            .await
    }

    async fn thaw_all(&self, id: &str, freezers: &Freezers) {
        let freezers = freezers.clone();
        let frozen = blocking(move || Ok(freezers.frozen())).await;
        self.thaw_dirs(id, frozen.unwrap_or_default()).await;
    }

    /// Thaws these directories; returns whether there are any. A failure is logged: a frozen process does not end, which the caller
    /// reports.
    async fn thaw_dirs(&self, id: &str, frozen: Vec<PathBuf>) -> bool {
        let Some(first) = frozen.first().cloned() else {
            return false;
        };
        let work = blocking(move || {
            let mut thawed = Ok(());
            for dir in frozen {
                thawed = thawed.and(cgroup::thaw(&dir));
            }
            thawed.map_err(|error| Error::Internal(error.to_string()))
        });
        match self.steps.step(RuntimeStep::Thaw, None, work).await {
            Ok(()) => {
                tracing::info!(target: "criscope::runtime::container::freezer", event = "runtime.thaw", container.id = %id, file.path = %first.display(), "a frozen container was thawed");
            }
            Err(error) => {
                tracing::warn!(target: "criscope::runtime::container::freezer", event = "runtime.thaw", container.id = %id, file.path = %first.display(), error.message = %shown(&error), "a frozen container could not be thawed");
            }
        }
        true
    }

    /// The frozen cgroup that keeps a container from running: its own, or one above it.
    pub(crate) async fn frozen_by(&self, container: &Container) -> Option<PathBuf> {
        let cgroup = self.cgroup_of(&container.record())?;
        let looked = blocking(move || Ok(cgroup.frozen_by())).await;
        looked.ok().flatten()
    }
}

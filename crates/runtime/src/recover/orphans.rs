//! Removes our objects that have no record.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criscope_cni::Pod;
use criscope_linux::cgroup::{Cgroup, Hierarchies};
use criscope_linux::namespace::{self, Kind};

use super::Known;
use super::pod::forced;
use crate::container::Freezers;
use crate::error::{Error, Result};
use crate::oci::OciRuntime;
use crate::oci::spec::CgroupDriver;
use crate::sandbox::teardown::blocking;
use crate::shim_client::{self, Shim};
use crate::store::disk;
use crate::{Runtime, container, id};

/// How long killed processes may take to exit.
const DYING: Duration = Duration::from_secs(10);

/// Ids without a record.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    pub(super) pods: BTreeSet<String>,
    pub(super) containers: BTreeSet<String>,
}

impl Runtime {
    /// Finds the objects below our directories that have no record. A name that is not an id of ours belongs to others: OCI
    /// runtimes keep other files next to their containers.
    pub(super) async fn orphans(&self, known: &Known) -> Orphans {
        let mut orphans = Orphans::default();
        self.tidy_cni_cache(known).await;
        let paths = &self.settings.paths;
        for dir in [paths.sandboxes(), paths.pods(), paths.namespaces()] {
            orphans.pods.extend(self.names(dir).await);
        }
        orphans.pods.extend(self.attached().await);
        orphans
            .containers
            .extend(self.names(paths.containers()).await);
        for oci in self.own_oci_runtimes() {
            orphans.containers.extend(self.names(oci.state_dir()).await);
        }
        orphans
            .pods
            .retain(|id| id::is_id(id) && !known.pods.contains(id));
        orphans
            .containers
            .retain(|id| id::is_id(id) && !known.containers.contains(id));
        // Sandbox containers have the ids of their pods.
        orphans.containers.retain(|id| !known.pods.contains(id));
        orphans
    }

    async fn names(&self, dir: PathBuf) -> Vec<String> {
        let own = dir.clone();
        let found = blocking(move || disk::list(&own)).await;
        let found = found.map_err(|error| self.problem("directory", &dir, &error));
        let found = found.unwrap_or_default().into_iter();
        found.map(|(name, _)| name).collect()
    }

    /// Moves damaged files of our pods aside in the cache of CNI. Other runtimes may share it.
    async fn tidy_cni_cache(&self, known: &Known) {
        let live = self.live();
        let pods = known.pods.clone();
        // Without a default handler nothing is known of the cache.
        if let Ok(handler) = live.handlers.get("") {
            handler.cni.tidy_cache(move |id| pods.contains(id)).await;
        }
    }

    /// Pods with a CNI attachment whose network namespace is below our directories.
    async fn attached(&self) -> Vec<String> {
        let live = self.live();
        let Ok(handler) = live.handlers.get("") else {
            return Vec::new();
        };
        let ours = self.settings.paths.namespaces();
        let attached = handler.cni.attached_below(&ours).await;
        let cache = &self.settings.live.config.cni.cache_dir;
        let reported = attached.map_err(|error| self.problem("network", cache, &error));
        reported.unwrap_or_default()
    }

    /// The OCI runtimes of the configuration and of all pods whose state directory is below ours: no other program uses those.
    fn own_oci_runtimes(&self) -> Vec<OciRuntime> {
        let live = self.live();
        let handlers = live.handlers.list().into_iter();
        let now = handlers.map(|(_, handler)| handler.oci.clone());
        let pods = self.store.sandboxes.all().into_iter();
        let then = pods.map(|pod| self.handler_of_pod(&pod.record()).oci.clone());
        let mut roots = BTreeSet::new();
        now.chain(then)
            .filter(|oci| oci.root.starts_with(self.settings.paths.state()))
            .filter(|oci| roots.insert(oci.root.clone()))
            .collect()
    }

    /// Kills and removes a container without a record.
    pub(super) async fn clear_container(&self, id: &str) {
        let dir = self.settings.paths.container(id);
        tracing::info!(target: "criscope::runtime::recover::orphans", event = "runtime.orphan", container.id = %id, "removing a container without a record");
        for oci in self.own_oci_runtimes() {
            let state = oci.state_dir().join(id);
            if !blocking(move || Ok(state.exists())).await.unwrap_or(true) {
                continue;
            }
            let deleting = async {
                match oci.shim {
                    Some(_) => self.clear_task(&oci, id).await,
                    None => oci.delete(id, true).await.map_err(Into::into),
                }
            };
            let freezers = self.freezers_of_orphan(id).await;
            if let Err(error) = self.thawing_in(id, freezers, Box::pin(deleting)).await {
                self.problem("container", &dir, &error);
            }
        }
        let copy = self.settings.paths.copy(id);
        let (own, driver) = (dir.clone(), self.live().settings.node.cgroup_driver);
        let name = id.to_owned();
        let done = blocking(move || {
            let cgroup = remove_cgroup(&own, &name, driver);
            container::remove_dir(&own, &copy)?;
            cgroup
        });
        if let Err(error) = done.await {
            self.problem("container", &dir, &error);
        }
    }

    /// Removes a pod without a record: its shim with the containers, its network, its namespaces, its files.
    pub(super) async fn clear_pod(&self, id: &str) {
        tracing::info!(target: "criscope::runtime::recover::orphans", event = "runtime.orphan", criscope.sandbox.id = %id, "removing a pod without a record");
        if let Err(error) = self.try_clear_pod(id).await {
            self.problem("pod sandbox", &self.settings.paths.sandbox(id), &error);
        }
    }

    async fn try_clear_pod(&self, id: &str) -> Result<()> {
        self.let_end(id).await?;
        // A shim that does not respond is killed below; its containers are orphans with their own ids.
        if let Ok(shim) = Shim::connect(&self.settings.paths.pod(id)).await
            && let Ok(state) = shim.state().await
        {
            // The sandbox container, if there is one, was created first.
            for process in state.processes.into_iter().rev() {
                if process.target.exec.is_empty() {
                    self.delete_orphan(&shim, &process.target.container).await?;
                }
            }
        }
        self.end_shim(id).await?;
        shim_client::end_containerd_shim(id, &self.settings.paths.sandbox(id)).await?;
        // The directory is removed after the address is released, so that the next start retries a failure.
        self.detach_orphan(id).await?;
        self.pins.remove(id).await?;
        self.remove_files(id).await
    }

    /// Kills and deletes a container without a record by its shim, even if it is frozen.
    pub(super) async fn delete_orphan(
        &self,
        shim: &Shim,
        id: &str,
    ) -> std::result::Result<(), shim_client::Error> {
        let freezers = self.freezers_of_orphan(id).await;
        let deleting = shim.delete(forced(id));
        self.thawing_in(id, freezers, Box::pin(deleting)).await
    }

    /// The cgroups that the bundle of a container without a record names; `None` without a bundle.
    async fn freezers_of_orphan(&self, id: &str) -> Option<Freezers> {
        let (dir, driver) = (
            self.bundle_of(id).await,
            self.live().settings.node.cgroup_driver,
        );
        let id = id.to_owned();
        let read = blocking(move || cgroup_of_bundle(&dir, &id, driver)).await;
        let container = read.ok().flatten()?;
        Some(Freezers {
            pod: container.parent(),
            containers: vec![container],
        })
    }

    async fn clear_task(&self, oci: &OciRuntime, id: &str) -> Result<()> {
        let bundle = self.bundle_of(id).await;
        shim_client::end_containerd_shim(id, &bundle).await?;
        Ok(oci.delete_abandoned(id, &bundle).await?)
    }

    /// The bundle of a container without a record: its own directory, or the directory of the sandbox whose container it is.
    async fn bundle_of(&self, id: &str) -> PathBuf {
        let (own, sandbox) = (
            self.settings.paths.container(id),
            self.settings.paths.sandbox(id),
        );
        let found = blocking(move || Ok(if own.exists() { own } else { sandbox }));
        found
            .await
            .unwrap_or_else(|_| self.settings.paths.container(id))
    }

    async fn detach_orphan(&self, id: &str) -> Result<()> {
        let (pins, own, dir) = (
            self.pins.clone(),
            id.to_owned(),
            self.settings.paths.sandbox(id),
        );
        let looked = blocking(move || {
            let pinned = pins.state(&own, Kind::Net)? == namespace::State::Pinned;
            Ok((pinned, dir.exists()))
        });
        // A pod with a directory may have an address, even if its record was lost in a power failure.
        let (pinned, made) = looked.await?;
        if !pinned && !made && !self.attached().await.iter().any(|attached| attached == id) {
            return Ok(());
        }
        let pod = Pod {
            id: id.to_owned(),
            netns: pinned.then(|| self.pins.path(id, Kind::Net)),
            ..Pod::default()
        };
        Ok(self.live().handlers.get("")?.cni.del(&pod).await?)
    }
}

/// Removes the cgroup named by the bundle of a container, if its path ends with the container's id.
fn remove_cgroup(dir: &Path, id: &str, driver: CgroupDriver) -> Result<()> {
    match cgroup_of_bundle(dir, id, driver)? {
        Some(cgroup) if cgroup.exists() => {
            let removed = cgroup.remove(DYING);
            removed.map_err(|error| Error::Internal(error.to_string()))
        }
        _ => Ok(()),
    }
}

/// The cgroup named by the bundle of a container; `None` without a bundle, or if its path does not end with the container's id.
fn cgroup_of_bundle(dir: &Path, id: &str, driver: CgroupDriver) -> Result<Option<Cgroup>> {
    let Ok(text) = std::fs::read(dir.join(container::SPEC)) else {
        return Ok(None);
    };
    let spec: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
    let path = spec.pointer("/linux/cgroupsPath");
    let path = path.and_then(|path| path.as_str());
    let Some(path) = path.filter(|path| path.ends_with(id)) else {
        return Ok(None);
    };
    let cgroup = Hierarchies::detect().and_then(|all| all.container_cgroup(path.as_ref(), driver));
    cgroup
        .map(Some)
        .map_err(|error| Error::Internal(error.to_string()))
}

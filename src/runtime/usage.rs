//! ContainerStats, PodSandboxStats, their lists, and pod metrics.

use std::sync::Arc;

use criscope_linux::cgroup::Cgroup;
use criscope_linux::cgroup::usage::{self as cgroup_usage, Detail, Usage};
use criscope_linux::link::{self, Counters};
use criscope_linux::namespace::{Kind, run_in_each};

use super::Runtime;
use super::error::{Error, Result, What};
use super::oci::spec::cgroup_path;
use super::sandbox::teardown::blocking;
use super::stats::message::{self, Layer, Pod};
use super::stats::metrics::{self, Filesystem, Identity};
use super::stats::{filter, network_usage, now, processes};
use super::store::{
    Container, ContainerRecord, ContainerState, Sandbox, SandboxRecord, SandboxState,
};
use crate::cri::v1;

impl Runtime {
    /// Returns the statistics of a container that has not exited.
    ///
    /// # Errors
    /// If the container does not exist or has exited.
    pub async fn container_stats(self: &Arc<Self>, id: &str) -> Result<v1::ContainerStats> {
        let container = self.store.containers.get(id)?;
        let runtime = Arc::clone(self);
        let found = blocking(move || Ok(runtime.stats_of(&container))).await?;
        let (stats, _) = found.ok_or_else(|| Error::not_found(What::Container, id))?;
        Ok(stats)
    }

    /// Returns the statistics of the matching containers, without those that are removed concurrently.
    ///
    /// # Errors
    /// None of its own.
    pub async fn list_container_stats(
        self: &Arc<Self>,
        filter: Option<&v1::ContainerStatsFilter>,
    ) -> Result<Vec<v1::ContainerStats>> {
        let mut containers = self.store.containers.all();
        containers.retain(|container| {
            let record = container.record();
            let labels = &record.config.labels;
            filter::wants_container(filter, &record.id, &record.sandbox, labels)
        });
        let runtime = Arc::clone(self);
        blocking(move || {
            let all = containers.iter().filter_map(|c| runtime.stats_of(c));
            Ok(all.map(|(stats, _)| stats).collect())
        })
        .await
    }

    /// Returns the statistics of a pod and its containers.
    ///
    /// # Errors
    /// If the pod does not exist.
    pub async fn pod_sandbox_stats(self: &Arc<Self>, id: &str) -> Result<v1::PodSandboxStats> {
        let sandbox = self.store.sandboxes.get(id)?;
        let mut stats = self.stats_of_pods(vec![sandbox]).await?;
        stats
            .pop()
            .ok_or_else(|| Error::not_found(What::Sandbox, id))
    }

    /// Returns the statistics of the ready pods that match the filter.
    ///
    /// # Errors
    /// None of its own.
    pub async fn list_pod_sandbox_stats(
        self: &Arc<Self>,
        filter: Option<&v1::PodSandboxStatsFilter>,
    ) -> Result<Vec<v1::PodSandboxStats>> {
        let mut wanted = self.ready_sandboxes();
        wanted.retain(|sandbox| {
            let record = sandbox.record();
            filter::wants_pod(filter, &record.id, &record.config.labels)
        });
        self.stats_of_pods(wanted).await
    }

    /// The descriptors of pod metrics.
    pub fn metric_descriptors(&self) -> Vec<v1::MetricDescriptor> {
        metrics::descriptors()
    }

    /// The metrics of all ready pods.
    ///
    /// # Errors
    /// None of its own.
    pub async fn pod_sandbox_metrics(self: &Arc<Self>) -> Result<Vec<v1::PodSandboxMetrics>> {
        let sandboxes = self.ready_sandboxes();
        let counters = self.counters_of(&sandboxes).await;
        let runtime = Arc::clone(self);
        blocking(move || {
            let mut containers = runtime.store.containers_by_sandbox();
            let mut of = |sandbox: &Sandbox| containers.remove(&sandbox.id).unwrap_or_default();
            let all = sandboxes.iter().zip(&counters);
            Ok(all
                .map(|(sandbox, counters)| runtime.metrics_of(sandbox, &of(sandbox), counters))
                .collect())
        })
        .await
    }

    fn ready_sandboxes(&self) -> Vec<Arc<Sandbox>> {
        let mut all = self.store.sandboxes.all();
        all.retain(|sandbox| sandbox.record().state == SandboxState::Ready);
        all
    }

    /// The statistics of a container, and the number of its processes; `None` if it has exited.
    fn stats_of(&self, container: &Container) -> Option<(v1::ContainerStats, Option<u64>)> {
        let record = container.record();
        if matches!(
            record.state,
            ContainerState::Exited | ContainerState::Making
        ) {
            return None;
        }
        let attributes = v1::ContainerAttributes {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
        };
        let usage = self.usage_of(&record);
        let rate = usage
            .as_ref()
            .and_then(|usage| self.rate(&record.id, usage));
        let layer = Layer {
            mountpoint: self.writable_root(),
            measured: self.disks.get(&record.id),
        };
        let pids = usage.as_ref().and_then(|usage| usage.pids);
        let processes = pids.filter(|_| record.state == ContainerState::Running);
        let stats = message::container_stats(attributes, usage.as_ref(), rate, layer);
        Some((stats, processes.map(|pids| pids.current)))
    }

    /// The usage of a container's cgroup; `None` if it does not exist, or accounts for nothing.
    pub(super) fn usage_of(&self, record: &ContainerRecord) -> Option<Usage> {
        self.read_usage(record, &self.cgroup_of(record)?, Detail::Statistics)
    }

    /// Some shims of containerd (gVisor's) make a cgroup for each container, and leave it empty: the processes of the pod are
    /// accounted in that of the pod. Zeros would be taken for an idle container, by autoscalers and for evictions.
    fn read_usage(
        &self,
        record: &ContainerRecord,
        cgroup: &Cgroup,
        detail: Detail,
    ) -> Option<Usage> {
        let usage = cgroup_usage::read(cgroup, detail).ok()?;
        let is_empty = record.state == ContainerState::Running
            && usage.pids.as_ref().is_some_and(|pids| pids.current == 0);
        let is_elsewhere = || {
            let sandbox = self.store.sandboxes.get(&record.sandbox);
            sandbox.is_ok_and(|sandbox| sandbox.record().has_containerd_shim())
        };
        (!(is_empty && is_elsewhere())).then_some(usage)
    }

    /// The cgroup of a container, whether or not it exists.
    pub(super) fn cgroup_of(&self, record: &ContainerRecord) -> Option<Cgroup> {
        let driver = self.settings.node.cgroup_driver;
        let path = match &record.cgroup_path {
            Some(path) => path.clone(),
            None => {
                let sandbox = self.store.sandboxes.get(&record.sandbox).ok()?;
                cgroup_path(sandbox.record().cgroup_parent(), &record.id, driver).ok()?
            }
        };
        self.hierarchies.as_ref()?.of_container(&path, driver).ok()
    }

    fn rate(&self, id: &str, usage: &Usage) -> Option<u64> {
        self.rates.observe(id, usage.at, usage.cpu.as_ref()?.usage)
    }

    async fn stats_of_pods(
        self: &Arc<Self>,
        sandboxes: Vec<Arc<Sandbox>>,
    ) -> Result<Vec<v1::PodSandboxStats>> {
        let counters = self.counters_of(&sandboxes).await;
        let runtime = Arc::clone(self);
        blocking(move || {
            let mut containers = runtime.store.containers_by_sandbox();
            let mut of = |sandbox: &Sandbox| containers.remove(&sandbox.id).unwrap_or_default();
            let all = sandboxes.iter().zip(&counters);
            Ok(all
                .map(|(sandbox, counters)| runtime.stats_of_pod(sandbox, &of(sandbox), counters))
                .collect())
        })
        .await
    }

    fn stats_of_pod(
        &self,
        sandbox: &Sandbox,
        containers: &[Arc<Container>],
        counters: &[Counters],
    ) -> v1::PodSandboxStats {
        let record = sandbox.record();
        let usage = self.usage_of_pod(&record);
        let rate = usage
            .as_ref()
            .and_then(|usage| self.rate(&record.id, usage));
        let containers = containers.iter().filter_map(|c| self.stats_of(c));
        let (containers, processes): (Vec<_>, Vec<_>) = containers.unzip();
        let counted: Vec<_> = processes.into_iter().flatten().collect();
        let are_known = !counted.is_empty() || !record.has_containerd_shim();
        message::pod_stats(Pod {
            attributes: v1::PodSandboxAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            },
            processes: are_known.then(|| counted.iter().sum()),
            containers,
            usage,
            rate,
            network: (!record.host_network()).then(|| network_usage(counters, now())),
        })
    }

    /// The usage of the pod's cgroup: the cgroup parent of its config.
    fn usage_of_pod(&self, record: &SandboxRecord) -> Option<Usage> {
        let driver = self.settings.node.cgroup_driver;
        let hierarchies = self.hierarchies.as_ref()?;
        let pod = hierarchies.of_pod(record.cgroup_parent(), driver).ok()?;
        cgroup_usage::read(&pod, Detail::Statistics).ok()
    }

    /// The counters of each pod's interfaces; none with host network or while the pod is being removed.
    async fn counters_of(&self, sandboxes: &[Arc<Sandbox>]) -> Vec<Vec<Counters>> {
        let open = |sandbox: &Arc<Sandbox>| {
            let (pins, id) = (self.pins.clone(), sandbox.id.clone());
            move || pins.open(&id, Kind::Net)
        };
        let opens = sandboxes.iter().map(open).collect();
        let read = run_in_each(opens, Kind::Net, link::counters).await;
        let mut all = read.unwrap_or_default().into_iter();
        let mut next = || all.next()?.ok()?.ok();
        sandboxes
            .iter()
            .map(|_| next().unwrap_or_default())
            .collect()
    }

    fn metrics_of(
        &self,
        sandbox: &Sandbox,
        containers: &[Arc<Container>],
        counters: &[Counters],
    ) -> v1::PodSandboxMetrics {
        let pod = sandbox.record();
        let metadata = pod.config.metadata.clone().unwrap_or_default();
        let identity = Identity {
            pod: &metadata.name,
            namespace: &metadata.namespace,
            container: "",
            id: &pod.id,
            image: "",
        };
        let metrics = containers
            .iter()
            .filter_map(|container| self.metrics_of_container(&container.record(), identity));
        metrics::pod_metrics(identity, counters, metrics.collect())
    }

    fn metrics_of_container(
        &self,
        record: &ContainerRecord,
        pod: Identity<'_>,
    ) -> Option<v1::ContainerMetrics> {
        if record.state != ContainerState::Running {
            return None;
        }
        let cgroup = self.cgroup_of(record)?;
        let usage = self.read_usage(record, &cgroup, Detail::All)?;
        let metadata = record.config.metadata.as_ref()?;
        let measured = self.disks.get(&record.id);
        let root = self.settings.paths.container(&record.id);
        Some(metrics::container_metrics(&metrics::Container {
            identity: Identity {
                container: &metadata.name,
                id: &record.id,
                image: &record.image_name,
                ..pod
            },
            usage: &usage,
            started_at: record.started_at,
            processes: processes::look(&cgroup).ok(),
            filesystem: measured.and_then(|measured| Filesystem::of(&root, measured.size).ok()),
        }))
    }

    /// Drops the measurements of a removed object.
    pub(super) fn forget_usage(&self, id: &str) {
        self.rates.forget(id);
        self.disks.forget(id);
    }
}

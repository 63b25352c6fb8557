//! ContainerStats, PodSandboxStats and their lists.

mod disk;
mod metrics;
mod reports;
mod troubles;

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
use super::stats::{filter, network_usage, now, reported};
use super::store::{
    Container, ContainerRecord, ContainerState, Sandbox, SandboxRecord, SandboxState,
};
use criscope_cri::v1;

use self::disk::{PodFileHolders, has_statistics};
use self::reports::Report;
pub(super) use self::reports::Reports;
pub(super) use self::troubles::Troubles;

/// The measurements of a container that has not exited.
struct Measured {
    stats: v1::ContainerStats,
    usage: Option<Usage>,
    is_running: bool,
}

impl Measured {
    /// The number of its processes, if it runs and the number is known.
    fn processes(&self) -> Option<u64> {
        let pids = self.usage.as_ref()?.pids?;
        self.is_running.then_some(pids.current)
    }
}

/// Measures a pod.
type Measure<T> = fn(&Runtime, &Sandbox, &[Arc<Container>], &[Counters], &Reports) -> T;

/// The usage of a container.
struct Reading {
    usage: Usage,
    /// True if its processes are in its cgroup, and can be looked at.
    is_in_cgroup: bool,
}

impl Runtime {
    /// Returns the statistics of a container that has not exited.
    ///
    /// # Errors
    /// If the container does not exist or has exited.
    pub async fn container_stats(self: &Arc<Self>, id: &str) -> Result<v1::ContainerStats> {
        let container = self.store.containers.get(id)?;
        let reports = self.reports_of(std::slice::from_ref(&container)).await;
        let pod = self.store.containers_of(&container.record().sandbox);
        let holders = PodFileHolders::choose([&pod[..]]);
        let runtime = Arc::clone(self);
        let found = blocking(move || Ok(runtime.stats_of(&container, &reports, &holders))).await?;
        let measured = found.ok_or_else(|| Error::not_found(What::Container, id))?;
        Ok(measured.stats)
    }

    /// Returns the statistics of the matching containers, without the ones that are removed concurrently.
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
        let reports = self.reports_of(&containers).await;
        let pods = self.store.containers_by_sandbox();
        let holders = PodFileHolders::choose(pods.values().map(Vec::as_slice));
        let runtime = Arc::clone(self);
        blocking(move || {
            let all = containers.iter();
            let all = all.filter_map(|container| runtime.stats_of(container, &reports, &holders));
            Ok(all.map(|measured| measured.stats).collect())
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

    fn ready_sandboxes(&self) -> Vec<Arc<Sandbox>> {
        let mut all = self.store.sandboxes.all();
        all.retain(|sandbox| sandbox.record().state == SandboxState::Ready);
        all
    }

    /// The statistics of a container; `None` if it has exited.
    fn stats_of(
        &self,
        container: &Container,
        reports: &Reports,
        holders: &PodFileHolders,
    ) -> Option<Measured> {
        let record = container.record();
        if !has_statistics(&record) {
            return None;
        }
        let attributes = v1::ContainerAttributes {
            id: record.id.clone(),
            metadata: record.config.metadata.clone(),
            labels: record.config.labels.clone(),
            annotations: record.config.annotations.clone(),
        };
        let usage = self.usage_of(&record, reports);
        let rate = usage
            .as_ref()
            .and_then(|usage| self.rate(&record.id, usage));
        let layer = Layer {
            mountpoint: self.writable_root(),
            measured: self.measured(&record, holders),
        };
        Some(Measured {
            stats: message::container_stats(attributes, usage.as_ref(), rate, layer),
            usage,
            is_running: record.state == ContainerState::Running,
        })
    }

    /// The usage of a container, as its shim of containerd reports it or its cgroup says; `None` if it is not known.
    pub(super) fn usage_of(&self, record: &ContainerRecord, reports: &Reports) -> Option<Usage> {
        let cgroup = self.cgroup_of(record);
        let reading = self.read_usage(record, cgroup.as_ref(), Detail::Statistics, reports);
        Some(reading?.usage)
    }

    fn read_usage(
        &self,
        record: &ContainerRecord,
        cgroup: Option<&Cgroup>,
        detail: Detail,
        reports: &Reports,
    ) -> Option<Reading> {
        let report = match reports.get(&record.id) {
            Some(Report::Missing) => return None,
            Some(Report::Usage(usage)) => Some(usage),
            None => None,
        };
        let cgroup = cgroup.and_then(|cgroup| self.usage_of_cgroup(record, cgroup, detail));
        let is_in_cgroup = cgroup.is_some();
        let usage = match report {
            Some(report) => reported::complete(Usage::clone(report), cgroup, &record.resources),
            None => cgroup?,
        };
        Some(Reading {
            usage,
            is_in_cgroup,
        })
    }

    /// The usage of a container's cgroup; `None` if it does not exist, or accounts for nothing.
    ///
    /// Some shims of containerd (gVisor's) make a cgroup for each container, and leave it empty: the processes of the pod are
    /// accounted in the pod's. Zeros would be taken for an idle container, by autoscalers and for evictions.
    fn usage_of_cgroup(
        &self,
        record: &ContainerRecord,
        cgroup: &Cgroup,
        detail: Detail,
    ) -> Option<Usage> {
        let usage = cgroup_usage::read(cgroup, detail).ok()?;
        let is_empty = record.state == ContainerState::Running
            && usage.pids.as_ref().is_some_and(|pids| pids.current == 0);
        if is_empty {
            let sandbox = self.store.sandboxes.get(&record.sandbox);
            if sandbox.is_ok_and(|sandbox| sandbox.record().has_containerd_shim()) {
                return None;
            }
        }
        Some(usage)
    }

    /// The cgroup of a container, whether or not it exists.
    pub(super) fn cgroup_of(&self, record: &ContainerRecord) -> Option<Cgroup> {
        let driver = self.live().settings.node.cgroup_driver;
        let path = match &record.cgroup_path {
            Some(path) => path.clone(),
            None => {
                let sandbox = self.store.sandboxes.get(&record.sandbox).ok()?;
                cgroup_path(sandbox.record().cgroup_parent(), &record.id, driver).ok()?
            }
        };
        self.hierarchies
            .as_ref()?
            .container_cgroup(&path, driver)
            .ok()
    }

    fn rate(&self, id: &str, usage: &Usage) -> Option<u64> {
        self.rates.observe(id, usage.at, usage.cpu.as_ref()?.usage)
    }

    async fn stats_of_pods(
        self: &Arc<Self>,
        sandboxes: Vec<Arc<Sandbox>>,
    ) -> Result<Vec<v1::PodSandboxStats>> {
        self.measure_pods(sandboxes, Self::stats_of_pod).await
    }

    /// Measures these pods, each with its containers, the counters of its interfaces, and what the shims of containerd report.
    async fn measure_pods<T: Send + 'static>(
        self: &Arc<Self>,
        sandboxes: Vec<Arc<Sandbox>>,
        measure: Measure<T>,
    ) -> Result<Vec<T>> {
        let (counters, reports) = tokio::join!(
            self.counters_of(&sandboxes),
            self.reports_of_pods(&sandboxes)
        );
        let runtime = Arc::clone(self);
        blocking(move || {
            let mut by_sandbox = runtime.store.containers_by_sandbox();
            let all = sandboxes.iter().zip(&counters);
            Ok(all
                .map(|(sandbox, counters)| {
                    let containers = by_sandbox.remove(&sandbox.id).unwrap_or_default();
                    measure(&runtime, sandbox, &containers, counters, &reports)
                })
                .collect())
        })
        .await
    }

    fn stats_of_pod(
        &self,
        sandbox: &Sandbox,
        containers: &[Arc<Container>],
        counters: &[Counters],
        reports: &Reports,
    ) -> v1::PodSandboxStats {
        let record = sandbox.record();
        let holders = PodFileHolders::choose([containers]);
        let containers = containers.iter();
        let containers =
            containers.filter_map(|container| self.stats_of(container, reports, &holders));
        let containers: Vec<_> = containers.collect();
        let usage = self.usage_of_pod(&record, &containers);
        let rate = usage
            .as_ref()
            .and_then(|usage| self.rate(&record.id, usage));
        let counted: Vec<_> = containers.iter().filter_map(Measured::processes).collect();
        let are_known = !counted.is_empty() || !record.has_containerd_shim();
        message::pod_stats(Pod {
            attributes: v1::PodSandboxAttributes {
                id: record.id.clone(),
                metadata: record.config.metadata.clone(),
                labels: record.config.labels.clone(),
                annotations: record.config.annotations.clone(),
            },
            processes: are_known.then(|| counted.iter().sum()),
            containers: containers.into_iter().map(|one| one.stats).collect(),
            usage,
            rate,
            network: (!record.host_network()).then(|| network_usage(counters, now())),
        })
    }

    /// The usage of the pod's cgroup, the cgroup parent of its config; the sum of that of its containers if a shim of containerd
    /// leaves it empty.
    fn usage_of_pod(&self, record: &SandboxRecord, containers: &[Measured]) -> Option<Usage> {
        let driver = self.live().settings.node.cgroup_driver;
        let hierarchies = self.hierarchies.as_ref();
        let pod = hierarchies.and_then(|all| all.pod_cgroup(record.cgroup_parent(), driver).ok());
        let usage = pod.and_then(|pod| cgroup_usage::read(&pod, Detail::Statistics).ok());
        let pids = usage.as_ref().map(|usage| usage.pids.as_ref());
        let is_empty = pids.is_none_or(|pids| pids.is_some_and(|pids| pids.current == 0));
        if !(is_empty && record.has_containerd_shim()) {
            return usage;
        }
        let running = containers.iter().filter(|container| container.is_running);
        let usages: Vec<_> = running.map(|one| one.usage.as_ref()).collect();
        reported::sum(&usages)
    }

    /// The counters of each pod's interfaces; none with host network or while the pod is being removed.
    async fn counters_of(&self, sandboxes: &[Arc<Sandbox>]) -> Vec<Vec<Counters>> {
        let opens = sandboxes.iter().map(|sandbox| {
            let (pins, id) = (self.pins.clone(), sandbox.id.clone());
            move || pins.open(&id, Kind::Net)
        });
        let read = run_in_each(opens.collect(), Kind::Net, link::counters).await;
        let mut all = read.unwrap_or_default().into_iter();
        sandboxes
            .iter()
            .map(|_| all.next()?.ok()?.ok())
            .map(Option::unwrap_or_default)
            .collect()
    }

    /// Drops the measurements of a removed object.
    pub(super) fn forget_usage(&self, id: &str) {
        self.rates.forget(id);
        self.disks.forget(id);
        self.stats_troubles.ended(id);
    }
}

//! ListMetricDescriptors and ListPodSandboxMetrics.

use std::sync::Arc;

use criscope_linux::cgroup::usage::Detail;
use criscope_linux::link::Counters;

use super::Reports;
use super::disk::PodFileHolders;
use crate::Runtime;
use crate::error::Result;
use crate::stats::metrics::{self, Filesystem, Identity};
use crate::stats::processes::{self, Processes};
use crate::store::{Container, ContainerRecord, ContainerState, Sandbox};
use criscope_cri::v1;

impl Runtime {
    /// The descriptors of pod metrics.
    pub fn metric_descriptors(&self) -> Vec<v1::MetricDescriptor> {
        metrics::descriptors()
    }

    /// The metrics of all ready pods.
    ///
    /// # Errors
    /// None of its own.
    pub async fn pod_sandbox_metrics(self: &Arc<Self>) -> Result<Vec<v1::PodSandboxMetrics>> {
        self.measure_pods(self.ready_sandboxes(), Self::metrics_of)
            .await
    }

    fn metrics_of(
        &self,
        sandbox: &Sandbox,
        containers: &[Arc<Container>],
        counters: &[Counters],
        reports: &Reports,
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
        let holders = PodFileHolders::choose([containers]);
        let metrics = containers.iter().filter_map(|one| {
            self.metrics_of_container(&one.record(), identity, reports, &holders)
        });
        metrics::pod_metrics(identity, counters, metrics.collect())
    }

    fn metrics_of_container(
        &self,
        record: &ContainerRecord,
        pod: Identity<'_>,
        reports: &Reports,
        holders: &PodFileHolders,
    ) -> Option<v1::ContainerMetrics> {
        if record.state != ContainerState::Running {
            return None;
        }
        let cgroup = self.cgroup_of(record);
        let reading = self.read_usage(record, cgroup.as_ref(), Detail::All, reports)?;
        let visible = cgroup.filter(|_| reading.is_in_cgroup);
        let metadata = record.config.metadata.as_ref()?;
        let measured = self.measured(record, holders);
        let root = self.settings.paths.container(&record.id);
        Some(metrics::container_metrics(&metrics::Container {
            identity: Identity {
                container: &metadata.name,
                id: &record.id,
                image: &record.image_name,
                ..pod
            },
            usage: &reading.usage,
            started_at: record.started_at,
            processes: match visible {
                Some(cgroup) => processes::look(&cgroup).ok(),
                None => reading
                    .usage
                    .pids
                    .map(|pids| Processes::hidden(pids.current)),
            },
            filesystem: measured
                .and_then(|measured| Filesystem::measure(&root, measured.size).ok()),
        }))
    }
}

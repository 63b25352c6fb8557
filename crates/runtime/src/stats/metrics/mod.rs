//! The metrics of `ListPodSandboxMetrics`: those of cAdvisor, provided by the runtime (KEP-2371).
//!
//! Values are integers, because the CRI has no other type: seconds are truncated, as in containerd and CRI-O. Pressure metrics
//! are absent with cgroup v1.

mod container;
mod table;

use criscope_linux::link::Counters;

use criscope_cri::v1;

pub use self::container::{Container, Filesystem, container_metrics};
use self::table::{ALL, BASE, Kind};

/// The labels that identify a container or pod.
#[derive(Debug, Clone, Copy, Default)]
pub struct Identity<'a> {
    /// Name of the pod.
    pub pod: &'a str,
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the container; empty for the pod itself.
    pub container: &'a str,
    /// Id of the container or of the sandbox.
    pub id: &'a str,
    /// The requested image; empty for the pod itself.
    pub image: &'a str,
}

/// Names, help texts and label keys of all metrics.
#[must_use]
pub fn descriptors() -> Vec<v1::MetricDescriptor> {
    let all = ALL.iter().map(|kind| v1::MetricDescriptor {
        name: kind.name.to_owned(),
        help: kind.help.to_owned(),
        label_keys: BASE
            .iter()
            .chain(kind.labels)
            .map(|key| (*key).to_owned())
            .collect(),
    });
    all.collect()
}

/// The metrics of a pod: those of its network (none with host network) and of its containers.
#[must_use]
pub fn pod_metrics(
    identity: Identity<'_>,
    network: &[Counters],
    containers: Vec<v1::ContainerMetrics>,
) -> v1::PodSandboxMetrics {
    let mut to = Writer::new(identity, super::now());
    for one in network.iter().filter(|one| one.name != "lo") {
        let labels = [one.name.as_str()];
        for (kind, value) in [
            (&table::RX_BYTES, one.rx_bytes),
            (&table::RX_PACKETS, one.rx_packets),
            (&table::RX_DROPPED, one.rx_dropped),
            (&table::RX_ERRORS, one.rx_errors),
            (&table::TX_BYTES, one.tx_bytes),
            (&table::TX_PACKETS, one.tx_packets),
            (&table::TX_DROPPED, one.tx_dropped),
            (&table::TX_ERRORS, one.tx_errors),
        ] {
            to.put_with(kind, &labels, value);
        }
    }
    v1::PodSandboxMetrics {
        pod_sandbox_id: identity.id.to_owned(),
        metrics: to.metrics,
        container_metrics: containers,
    }
}

/// Writes metrics with common labels and timestamp.
struct Writer {
    base: Vec<String>,
    at: i64,
    metrics: Vec<v1::Metric>,
}

impl Writer {
    fn new(identity: Identity<'_>, at: i64) -> Self {
        let base = [
            identity.pod,
            identity.namespace,
            identity.container,
            identity.id,
            identity.image,
        ];
        Self {
            base: base.map(str::to_owned).to_vec(),
            at,
            metrics: Vec::new(),
        }
    }

    fn put(&mut self, kind: &Kind, value: u64) {
        self.put_with(kind, &[], value);
    }

    fn put_with(&mut self, kind: &Kind, labels: &[&str], value: u64) {
        debug_assert_eq!(kind.labels.len(), labels.len(), "{}", kind.name);
        let mut label_values = self.base.clone();
        label_values.extend(labels.iter().map(|label| (*label).to_owned()));
        self.metrics.push(v1::Metric {
            name: kind.name.to_owned(),
            timestamp: self.at,
            metric_type: kind.of as i32,
            label_values,
            value: Some(v1::UInt64Value { value }),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::processes::Processes;
    use std::collections::{HashMap, HashSet};

    /// The metrics that critest 1.37 requires with a value from every runtime, without the ones that it lists as optional.
    const WANTED: &str = "cpu_cfs_periods_total cpu_cfs_throttled_periods_total cpu_cfs_throttled_seconds_total \
        cpu_system_seconds_total cpu_usage_seconds_total cpu_user_seconds_total file_descriptors fs_inodes_free \
        fs_inodes_total fs_limit_bytes fs_usage_bytes last_seen memory_cache memory_failcnt memory_failures_total \
        memory_kernel_usage memory_mapped_file memory_max_usage_bytes memory_rss memory_swap memory_usage_bytes \
        memory_working_set_bytes network_receive_bytes_total network_receive_errors_total \
        network_receive_packets_dropped_total network_receive_packets_total network_transmit_bytes_total \
        network_transmit_errors_total network_transmit_packets_dropped_total network_transmit_packets_total \
        oom_events_total processes sockets spec_cpu_period spec_cpu_shares spec_memory_limit_bytes \
        spec_memory_swap_limit_bytes start_time_seconds threads threads_max";

    #[test]
    fn names_are_unique_and_have_help() {
        let all = descriptors();
        let names: HashSet<_> = all.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names.len(), all.len(), "a name is not unique");
        assert!(
            all.iter()
                .all(|one| !one.help.is_empty() && one.label_keys.len() >= 5)
        );
    }

    #[test]
    fn a_pod_has_the_metrics_that_critest_requires() {
        use criscope_linux::cgroup::usage::{Cpu, Io, Memory, Pids, Usage};
        // The minimum that cgroup v1 provides.
        let usage = Usage {
            cpu: Some(Cpu::default()),
            memory: Some(Memory::default()),
            io: Some(Io::default()),
            pids: Some(Pids::default()),
            ..Usage::default()
        };
        let identity = Identity {
            id: "c",
            ..Identity::default()
        };
        let container = container_metrics(&Container {
            identity,
            usage: &usage,
            started_at: 0,
            processes: Some(Processes {
                files: Some(Default::default()),
                ..Processes::default()
            }),
            filesystem: Some(Filesystem::default()),
        });
        let eth0 = Counters {
            name: "eth0".to_owned(),
            rx_bytes: 5,
            ..Counters::default()
        };
        let lo = Counters {
            name: "lo".to_owned(),
            ..Counters::default()
        };
        let pod = pod_metrics(identity, &[lo, eth0], vec![container]);
        assert_eq!(pod.metrics.len(), 8, "lo is omitted");
        let labels: HashMap<_, _> = descriptors()
            .into_iter()
            .map(|one| (one.name, one.label_keys.len()))
            .collect();
        let containers = pod.container_metrics.iter().flat_map(|one| &one.metrics);
        let mut found = HashSet::new();
        for metric in pod.metrics.iter().chain(containers) {
            assert_eq!(
                labels.get(&metric.name),
                Some(&metric.label_values.len()),
                "{}",
                metric.name
            );
            found.insert(metric.name.as_str());
        }
        for name in WANTED.split_whitespace() {
            assert!(
                found.contains(format!("container_{name}").as_str()),
                "{name}"
            );
        }
        // Every descriptor without a value is one that critest does not require.
        let optional = [
            "_pressure_",
            "_hugetlb_",
            "_blkio_",
            "_fs_reads",
            "_fs_writes",
            "_cpu_quota",
            "_ulimits_",
        ];
        for name in labels.keys().filter(|name| !found.contains(name.as_str())) {
            assert!(
                optional.iter().any(|part| name.contains(part)),
                "{name} has no value"
            );
        }
    }
}

//! Builds the CRI statistics of containers and pods.

use std::path::Path;

use criscope_linux::cgroup::usage::{Cpu, Memory, Pressure, Stalled, Usage};

use super::watch::Measured;
use criscope_cri::v1;

/// The writable layer of a container: the file system it is on, and its size when it was last measured.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// The kubelet looks up the file system of this path among those of `ImageFsInfo`.
    pub mountpoint: &'a Path,
    /// `None` before the first measurement.
    pub measured: Option<Measured>,
}

/// The measurements of a pod.
pub struct Pod {
    /// The attributes.
    pub attributes: v1::PodSandboxAttributes,
    /// The usage of its cgroup; `None` if it has none or it is gone.
    pub usage: Option<Usage>,
    /// The CPU time per second.
    pub rate: Option<u64>,
    /// The network; `None` with host network.
    pub network: Option<v1::NetworkUsage>,
    /// The containers.
    pub containers: Vec<v1::ContainerStats>,
    /// All their processes.
    pub processes: Option<u64>,
}

impl std::fmt::Debug for Pod {
    /// Omits everything: CRI messages are never printed.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pod")
            .field("id", &self.attributes.id)
            .field("usage", &self.usage)
            .finish_non_exhaustive()
    }
}

/// The statistics of a container. One whose cgroup is gone (`None`) has only its layer, as expected of an exited one.
#[must_use]
pub fn container_stats(
    attributes: v1::ContainerAttributes,
    usage: Option<&Usage>,
    rate: Option<u64>,
    layer: Layer<'_>,
) -> v1::ContainerStats {
    let at = usage.map_or(0, |usage| usage.at);
    let memory = usage.and_then(|usage| usage.memory.as_ref());
    v1::ContainerStats {
        attributes: Some(attributes),
        cpu: usage.and_then(|usage| Some(cpu(usage.cpu.as_ref()?, rate, at))),
        memory: memory.map(|one| self::memory(one, at)),
        writable_layer: Some(self::layer(layer)),
        swap: memory.and_then(|memory| swap(memory, at)),
        io: usage.and_then(|usage| io(usage, at)),
    }
}

/// The statistics of a pod.
#[must_use]
pub fn pod_stats(pod: Pod) -> v1::PodSandboxStats {
    let usage = pod.usage.as_ref();
    let at = usage.map_or_else(super::now, |usage| usage.at);
    let linux = v1::LinuxPodSandboxStats {
        cpu: usage.and_then(|usage| Some(cpu(usage.cpu.as_ref()?, pod.rate, at))),
        memory: usage.and_then(|usage| Some(memory(usage.memory.as_ref()?, at))),
        network: pod.network,
        process: pod.processes.map(|count| v1::ProcessUsage {
            timestamp: at,
            process_count: value(count),
        }),
        io: usage.and_then(|usage| io(usage, at)),
        containers: pod.containers,
    };
    v1::PodSandboxStats {
        attributes: Some(pod.attributes),
        linux: Some(linux),
        windows: None,
    }
}

/// Wraps a number in the CRI's message type.
fn value(value: u64) -> Option<v1::UInt64Value> {
    Some(v1::UInt64Value { value })
}

fn cpu(cpu: &Cpu, rate: Option<u64>, at: i64) -> v1::CpuUsage {
    v1::CpuUsage {
        timestamp: at,
        usage_core_nano_seconds: value(cpu.usage),
        usage_nano_cores: rate.and_then(value),
        psi: cpu.pressure.map(pressure),
    }
}

/// `available_bytes` is set only if there is a limit: 0 would mean that no memory is available.
fn memory(memory: &Memory, at: i64) -> v1::MemoryUsage {
    let left = memory
        .limit
        .map(|limit| limit.saturating_sub(memory.working_set));
    v1::MemoryUsage {
        timestamp: at,
        working_set_bytes: value(memory.working_set),
        available_bytes: left.and_then(value),
        usage_bytes: value(memory.usage),
        rss_bytes: value(memory.rss),
        page_faults: value(memory.page_faults),
        major_page_faults: value(memory.major_page_faults),
        psi: memory.pressure.map(pressure),
    }
}

fn swap(memory: &Memory, at: i64) -> Option<v1::SwapUsage> {
    let used = memory.swap?;
    let left = memory.swap_limit.map(|limit| limit.saturating_sub(used));
    Some(v1::SwapUsage {
        timestamp: at,
        swap_available_bytes: left.and_then(value),
        swap_usage_bytes: value(used),
    })
}

/// The CRI has no I/O statistics other than pressure.
fn io(usage: &Usage, at: i64) -> Option<v1::IoUsage> {
    let psi = usage.io.as_ref()?.pressure.map(pressure)?;
    Some(v1::IoUsage {
        timestamp: at,
        psi: Some(psi),
    })
}

fn layer(layer: Layer<'_>) -> v1::FilesystemUsage {
    let size = layer.measured.map(|measured| measured.size);
    v1::FilesystemUsage {
        timestamp: layer
            .measured
            .map_or_else(super::now, |measured| measured.at),
        fs_id: Some(v1::FilesystemIdentifier {
            mountpoint: layer.mountpoint.display().to_string(),
        }),
        // critest and the kubelet always expect a number; the timestamp is the measurement's.
        used_bytes: value(size.map_or(0, |size| size.bytes)),
        inodes_used: value(size.map_or(0, |size| size.inodes)),
    }
}

fn pressure(pressure: Pressure) -> v1::PsiStats {
    v1::PsiStats {
        full: pressure.full.map(psi_data),
        some: Some(psi_data(pressure.some)),
    }
}

fn psi_data(stalled: Stalled) -> v1::PsiData {
    v1::PsiData {
        total: stalled.total,
        avg10: stalled.avg10,
        avg60: stalled.avg60,
        avg300: stalled.avg300,
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::Size;
    use super::*;
    use criscope_linux::cgroup::usage::Io;

    fn usage() -> Usage {
        let stalled = |total| Stalled {
            avg10: 1.0,
            total,
            ..Stalled::default()
        };
        let pressure = Some(Pressure {
            some: stalled(7),
            full: None,
        });
        Usage {
            at: 42,
            cpu: Some(Cpu {
                usage: 100,
                pressure,
                ..Cpu::default()
            }),
            memory: Some(Memory {
                usage: 500,
                working_set: 400,
                limit: Some(1000),
                swap: Some(10),
                swap_limit: Some(30),
                ..Memory::default()
            }),
            io: Some(Io {
                devices: Vec::new(),
                pressure,
            }),
            ..Usage::default()
        }
    }

    fn layer(measured: Option<Measured>) -> Layer<'static> {
        Layer {
            mountpoint: Path::new("/var/lib/criscope"),
            measured,
        }
    }

    fn number(value: Option<v1::UInt64Value>) -> Option<u64> {
        value.map(|value| value.value)
    }

    #[test]
    fn a_running_container_has_all_statistics() {
        let measured = Measured {
            at: 41,
            size: Size {
                bytes: 4096,
                inodes: 2,
            },
        };
        let attributes = v1::ContainerAttributes::default();
        let stats = container_stats(attributes, Some(&usage()), Some(9), layer(Some(measured)));
        let cpu = stats.cpu.expect("cpu");
        assert_eq!(cpu.timestamp, 42);
        assert_eq!(number(cpu.usage_core_nano_seconds), Some(100));
        assert_eq!(number(cpu.usage_nano_cores), Some(9));
        let psi = cpu.psi.expect("kept");
        assert_eq!(psi.some.map(|some| some.total), Some(7));
        assert!(psi.full.is_none());
        let memory = stats.memory.expect("memory");
        assert_eq!(number(memory.available_bytes), Some(600));
        let swap = stats.swap.expect("accounted");
        assert_eq!(
            (
                number(swap.swap_usage_bytes),
                number(swap.swap_available_bytes)
            ),
            (Some(10), Some(20))
        );
        assert!(stats.io.is_some());
        let layer = stats.writable_layer.expect("always");
        assert_eq!(
            (
                layer.timestamp,
                number(layer.used_bytes),
                number(layer.inodes_used)
            ),
            (41, Some(4096), Some(2))
        );
        assert_eq!(layer.fs_id.expect("named").mountpoint, "/var/lib/criscope");
    }

    #[test]
    fn unknown_values_are_omitted() {
        let mut usage = usage();
        if let Some(memory) = &mut usage.memory {
            memory.limit = None;
            memory.swap = None;
        }
        usage.io = None;
        let attributes = v1::ContainerAttributes::default;
        let stats = container_stats(attributes(), Some(&usage), None, layer(None));
        assert!(stats.cpu.expect("cpu").usage_nano_cores.is_none());
        assert!(stats.memory.expect("memory").available_bytes.is_none());
        assert!(stats.swap.is_none() && stats.io.is_none());
        // An exited container.
        let stats = container_stats(attributes(), None, None, layer(None));
        assert!(stats.cpu.is_none() && stats.memory.is_none() && stats.writable_layer.is_some());
    }

    #[test]
    fn a_pod_includes_its_containers() {
        let pod = Pod {
            attributes: v1::PodSandboxAttributes::default(),
            usage: Some(usage()),
            rate: Some(5),
            network: None,
            containers: vec![v1::ContainerStats::default()],
            processes: Some(3),
        };
        let linux = pod_stats(pod).linux.expect("linux");
        assert_eq!(linux.containers.len(), 1);
        assert_eq!(number(linux.process.expect("told").process_count), Some(3));
        assert_eq!(number(linux.cpu.expect("cpu").usage_nano_cores), Some(5));
        assert!(linux.memory.is_some() && linux.io.is_some() && linux.network.is_none());
    }
}

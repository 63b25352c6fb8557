//! The metrics of `ListMetricDescriptors`, with cAdvisor's names and units, so that dashboards and alerts for the kubelet's
//! `/metrics/cadvisor` keep working.

use criscope_cri::v1::MetricType;

/// The labels of every metric, in order; metrics of the pod itself have empty `container` and `image`.
pub(super) const BASE: [&str; 5] = ["pod", "namespace", "container", "id", "image"];

/// One metric.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    /// The labels after [`BASE`].
    pub(super) labels: &'static [&'static str],
    pub(super) of: MetricType,
}

const NONE: &[&str] = &[];
const DEVICE: &[&str] = &["device"];
const INTERFACE: &[&str] = &["interface"];
const PAGE_SIZE: &[&str] = &["pagesize"];

macro_rules! kinds {
    ($($id:ident: $of:ident $name:literal, $labels:expr, $help:literal;)+) => {
        $(pub(super) const $id: Kind = Kind { name: $name, help: $help, labels: $labels, of: MetricType::$of };)+
        /// All metrics.
        pub(super) const ALL: &[Kind] = &[$($id),+];
    };
}

kinds! {
    CPU_USAGE: Counter "container_cpu_usage_seconds_total", NONE, "CPU time used, in whole seconds.";
    CPU_USER: Counter "container_cpu_user_seconds_total", NONE, "CPU time used in user mode, in whole seconds.";
    CPU_SYSTEM: Counter "container_cpu_system_seconds_total", NONE, "CPU time used in the kernel, in whole seconds.";
    CPU_PERIODS: Counter "container_cpu_cfs_periods_total", NONE, "Periods in which the CPU quota was enforced.";
    CPU_THROTTLED_PERIODS: Counter "container_cpu_cfs_throttled_periods_total", NONE, "Periods in which the container was throttled.";
    CPU_THROTTLED: Counter "container_cpu_cfs_throttled_seconds_total", NONE, "How long the container was throttled, in whole seconds.";
    MEMORY_USAGE: Gauge "container_memory_usage_bytes", NONE, "Memory in use, page cache included.";
    MEMORY_WORKING_SET: Gauge "container_memory_working_set_bytes", NONE, "Memory in use without inactive page cache.";
    MEMORY_MAX_USAGE: Gauge "container_memory_max_usage_bytes", NONE, "The most memory that was in use; 0 where the kernel does not keep it.";
    MEMORY_RSS: Gauge "container_memory_rss", NONE, "Anonymous memory, in bytes.";
    MEMORY_CACHE: Gauge "container_memory_cache", NONE, "Page cache, in bytes.";
    MEMORY_MAPPED_FILE: Gauge "container_memory_mapped_file", NONE, "Mapped files, in bytes.";
    MEMORY_KERNEL: Gauge "container_memory_kernel_usage", NONE, "Kernel memory of the container, in bytes.";
    MEMORY_SWAP: Gauge "container_memory_swap", NONE, "Swap in use, in bytes.";
    MEMORY_FAILCNT: Counter "container_memory_failcnt", NONE, "How often memory use ran against the limit.";
    MEMORY_ACTIVE_FILE: Gauge "container_memory_total_active_file_bytes", NONE, "Active page cache.";
    MEMORY_INACTIVE_FILE: Gauge "container_memory_total_inactive_file_bytes", NONE, "Inactive page cache.";
    MEMORY_FAILURES: Counter "container_memory_failures_total", &["failure_type", "scope"], "Page faults, and those that read from a disk.";
    OOM_EVENTS: Counter "container_oom_events_total", NONE, "Processes killed for want of memory.";
    HUGE_PAGES: Gauge "container_hugetlb_usage_bytes", PAGE_SIZE, "Huge pages in use, in bytes.";
    HUGE_PAGES_MAX: Gauge "container_hugetlb_max_usage_bytes", PAGE_SIZE, "The most huge pages that were in use, in bytes.";
    CPU_WAITING: Counter "container_pressure_cpu_waiting_seconds_total", NONE, "Time in which some tasks waited for a CPU, in whole seconds.";
    CPU_STALLED: Counter "container_pressure_cpu_stalled_seconds_total", NONE, "Time in which all tasks waited for a CPU, in whole seconds.";
    MEMORY_WAITING: Counter "container_pressure_memory_waiting_seconds_total", NONE, "Time in which some tasks waited for memory, in whole seconds.";
    MEMORY_STALLED: Counter "container_pressure_memory_stalled_seconds_total", NONE, "Time in which all tasks waited for memory, in whole seconds.";
    IO_WAITING: Counter "container_pressure_io_waiting_seconds_total", NONE, "Time in which some tasks waited for a disk, in whole seconds.";
    IO_STALLED: Counter "container_pressure_io_stalled_seconds_total", NONE, "Time in which all tasks waited for a disk, in whole seconds.";
    FS_USAGE: Gauge "container_fs_usage_bytes", DEVICE, "Bytes of the writable layer, when it was measured last.";
    FS_LIMIT: Gauge "container_fs_limit_bytes", DEVICE, "Size of the file system the writable layer is on.";
    FS_INODES: Gauge "container_fs_inodes_total", DEVICE, "Inodes of the file system the writable layer is on.";
    FS_INODES_FREE: Gauge "container_fs_inodes_free", DEVICE, "Inodes of it that are free.";
    FS_READ_BYTES: Counter "container_fs_reads_bytes_total", DEVICE, "Bytes read from a block device.";
    FS_WRITTEN_BYTES: Counter "container_fs_writes_bytes_total", DEVICE, "Bytes written to a block device.";
    FS_READS: Counter "container_fs_reads_total", DEVICE, "Reads from a block device.";
    FS_WRITES: Counter "container_fs_writes_total", DEVICE, "Writes to a block device.";
    BLKIO: Counter "container_blkio_device_usage_total", &["device", "major", "minor", "operation"], "Bytes read from and written to a block device, by operation.";
    RX_BYTES: Counter "container_network_receive_bytes_total", INTERFACE, "Bytes received.";
    RX_PACKETS: Counter "container_network_receive_packets_total", INTERFACE, "Packets received.";
    RX_DROPPED: Counter "container_network_receive_packets_dropped_total", INTERFACE, "Packets dropped on receipt.";
    RX_ERRORS: Counter "container_network_receive_errors_total", INTERFACE, "Errors on receipt.";
    TX_BYTES: Counter "container_network_transmit_bytes_total", INTERFACE, "Bytes sent.";
    TX_PACKETS: Counter "container_network_transmit_packets_total", INTERFACE, "Packets sent.";
    TX_DROPPED: Counter "container_network_transmit_packets_dropped_total", INTERFACE, "Packets dropped on sending.";
    TX_ERRORS: Counter "container_network_transmit_errors_total", INTERFACE, "Errors on sending.";
    PROCESSES: Gauge "container_processes", NONE, "Processes of the container.";
    THREADS: Gauge "container_threads", NONE, "Threads of the container.";
    THREADS_MAX: Gauge "container_threads_max", NONE, "The most threads it may have; 0 is no limit.";
    FILE_DESCRIPTORS: Gauge "container_file_descriptors", NONE, "Open file descriptors of its processes.";
    SOCKETS: Gauge "container_sockets", NONE, "Those of them that are sockets.";
    ULIMITS: Gauge "container_ulimits_soft", &["ulimit"], "Soft limits of its first process.";
    LAST_SEEN: Gauge "container_last_seen", NONE, "When the container was looked at, in seconds since 1970.";
    START_TIME: Gauge "container_start_time_seconds", NONE, "When the container was started, in seconds since 1970.";
    SPEC_PERIOD: Gauge "container_spec_cpu_period", NONE, "Its CPU period in microseconds.";
    SPEC_QUOTA: Gauge "container_spec_cpu_quota", NONE, "Its CPU quota per period in microseconds.";
    SPEC_SHARES: Gauge "container_spec_cpu_shares", NONE, "Its CPU shares.";
    SPEC_MEMORY: Gauge "container_spec_memory_limit_bytes", NONE, "Its memory limit; 0 is no limit.";
    SPEC_RESERVATION: Gauge "container_spec_memory_reservation_limit_bytes", NONE, "Its memory reservation; 0 is none.";
    SPEC_SWAP: Gauge "container_spec_memory_swap_limit_bytes", NONE, "The most swap it may use; 0 is no limit or no swap.";
}

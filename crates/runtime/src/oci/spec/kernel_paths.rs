//! Paths of the kernel's file systems that a container cannot see, or cannot write.

use std::path::Path;

use super::build::Request;
use super::host::Host;

/// Counts the interrupts of each CPU.
const INTERRUPTS: &str = "/proc/interrupts";

/// Hidden by default, as by the kubelet.
const MASKED: [&str; 12] = [
    "/proc/acpi",
    "/proc/asound",
    INTERRUPTS,
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Read-only by default, as by the kubelet.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The CPUs that the kernel can have, such as `0-3,8`.
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";
/// Upper bound of their number: the kernel's (`NR_CPUS`).
const MAX_CPUS: usize = 8192;

/// The lists of a specification.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct KernelPaths {
    pub(super) masked: Vec<String>,
    pub(super) read_only: Vec<String>,
}

/// Returns the lists of the request. A list that is empty is replaced by the default one, unless the pod has a user namespace.
///
/// On the wire a list that was not sent and an empty one are the same. The kubelet always sends the defaults, and empty lists
/// only for `procMount: Unmasked`, which Kubernetes allows only with `hostUsers: false` since 1.30. Other callers forget them.
/// A privileged container has none in any case.
pub(super) fn kernel_paths(request: &Request<'_>) -> KernelPaths {
    let context = request.context();
    if context.privileged {
        return KernelPaths::default();
    }
    let mut paths = KernelPaths {
        masked: context.masked_paths.clone(),
        read_only: context.readonly_paths.clone(),
    };
    let can_be_unmasked = request.sandbox.user.is_some();
    if paths.masked.is_empty() && can_be_unmasked {
        return paths;
    }
    if paths.masked.is_empty() {
        paths.masked = MASKED.map(str::to_owned).to_vec();
    }
    // Lists of kubelets before 1.33 lack what tells of the work of other containers.
    let mut telling = thermal_throttle_paths(request.host);
    telling.push(INTERRUPTS.to_owned());
    telling.retain(|path| !paths.masked.contains(path));
    paths.masked.extend(telling);
    if can_be_unmasked {
        return paths;
    }
    if paths.read_only.is_empty() {
        paths.read_only = READ_ONLY.map(str::to_owned).to_vec();
    }
    paths
}

/// The counters of each CPU that tell of the work of other containers (GHSA-6fw5-f8r9-fgfm), as `/proc/interrupts` does.
fn thermal_throttle_paths(host: &dyn Host) -> Vec<String> {
    let possible = host.read(Path::new(POSSIBLE_CPUS)).unwrap_or_default();
    let paths = parse_cpus(&possible)
        .into_iter()
        .map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}/thermal_throttle"));
    paths
        .filter(|path| matches!(host.resolve(Path::new(path)), Ok(Some(_))))
        .collect()
}

/// Parses a list of CPUs. Invalid parts are skipped.
fn parse_cpus(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let last: usize = last.parse().ok()?;
        Some(first.parse().ok()?..=last.min(MAX_CPUS))
    });
    ranges.flatten().take(MAX_CPUS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus_are_parsed() {
        assert_eq!(parse_cpus("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse_cpus("0"), [0]);
        assert_eq!(parse_cpus("3-1,x,,2-"), [0; 0]);
        assert!(parse_cpus("0-18446744073709551615").len() <= MAX_CPUS);
    }
}

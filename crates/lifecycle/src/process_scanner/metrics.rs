//! Metrics of the process scanner.

use std::time::Duration;

use super::WorkKind;
use criscope_cri::names;
use criscope_telemetry::family::{Counters, Gauges, Histograms};
use criscope_telemetry::metric::{LOOK_BUCKETS, Metric, Unit, label, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

metrics! {
    SAMPLER_ENABLED = Metric::gauge("sampler_enabled", Unit::Flag, &[],
        "Whether processes are scanned while calls take long; 0 if that is turned off or not possible.");
    SAMPLER_SCANS = Metric::counter("sampler_scans_total", &[],
        "Scans of the processes of the node.");
    SAMPLER_SCAN = Metric::histogram("sampler_scan_seconds", Unit::Seconds, &[], LOOK_BUCKETS,
        "CPU time of one scan; scans are made less often the longer they take.");
    SAMPLER_OBSERVATIONS = Metric::counter("sampler_observations_total", &[label::<ProcessWork>("work")],
        "CNI plugins, OCI runtimes and other programs that were seen at work for a call, and processes that held one up (`blocked`).");
}

criscope_cri::listed! {
    /// A kind of work that processes do.
    struct ProcessWork in &names!(PROCESS_WORK, WorkKind::name);
}

const PROCESS_WORK: [WorkKind; 4] = [
    WorkKind::Blocked,
    WorkKind::Cni,
    WorkKind::Oci,
    WorkKind::Helper,
];

/// Metrics of the process scanner.
#[derive(Debug)]
pub struct ScanMetrics {
    enabled: Gauges,
    scans: Counters,
    time: Histograms,
    observations: Counters<ProcessWork>,
}

impl ScanMetrics {
    /// Registers the metrics. All of them have a series from the start.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            enabled: registry.gauges(&SAMPLER_ENABLED)?.with_all_series(),
            scans: registry.counters(&SAMPLER_SCANS)?.with_all_series(),
            time: registry.histograms(&SAMPLER_SCAN)?.with_all_series(),
            observations: registry.counters(&SAMPLER_OBSERVATIONS)?.with_all_series(),
        })
    }

    /// Sets whether processes are scanned.
    pub fn enabled(&self, enabled: bool) {
        self.enabled.set((), i64::from(enabled));
    }

    /// Counts a scan and its CPU time.
    pub fn scanned(&self, cost: Duration) {
        self.scans.inc(());
        self.time.observe((), cost.as_secs_f64());
    }

    /// Counts a process that works for a call, or holds one up.
    pub fn seen(&self, work: WorkKind) {
        if let Some(place) = PROCESS_WORK.iter().position(|kind| *kind == work) {
            self.observations.inc(ProcessWork(place));
        }
    }
}

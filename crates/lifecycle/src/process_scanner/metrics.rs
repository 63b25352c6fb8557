//! Metrics of the process scanner.

use std::time::Duration;

use super::WorkKind;
use criscope_telemetry::family::{Counters, Gauges, Histograms};
use criscope_telemetry::metric::{LOOK_BUCKETS, Metric, Unit, fixed, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

/// The kinds of work of processes.
const WORK_LABELS: [&str; 4] = ["blocked", "cni", "oci", "helper"];

metrics! {
    SAMPLER_ENABLED = Metric::gauge("sampler_enabled", Unit::Flag, &[],
        "Whether processes are scanned while calls take long; 0 if that is turned off or not possible.");
    SAMPLER_SCANS = Metric::counter("sampler_scans_total", &[],
        "Scans of the processes of the node.");
    SAMPLER_SCAN = Metric::histogram("sampler_scan_seconds", Unit::Seconds, &[], LOOK_BUCKETS,
        "CPU time of one scan; scans are made less often the longer they take.");
    SAMPLER_OBSERVATIONS = Metric::counter("sampler_observations_total", &[fixed("work", &WORK_LABELS)],
        "CNI plugins, OCI runtimes and other programs that were seen at work for a call, and processes that held one up (`blocked`).");
}

/// Metrics of the process scanner.
#[derive(Debug)]
pub struct ScanMetrics {
    enabled: Gauges<0>,
    scans: Counters<0>,
    time: Histograms<0>,
    observations: Counters<1>,
}

impl ScanMetrics {
    /// Registers the metrics. All of them have a series from the start.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let scans = Self {
            enabled: registry.gauges(&SAMPLER_ENABLED)?,
            scans: registry.counters(&SAMPLER_SCANS)?,
            time: registry.histograms(&SAMPLER_SCAN)?,
            observations: registry.counters(&SAMPLER_OBSERVATIONS)?,
        };
        scans.enabled(false);
        let _ = (scans.scans.at([]), scans.time.at([]));
        for work in 0..WORK_LABELS.len() {
            let _ = scans.observations.at([work]);
        }
        Ok(scans)
    }

    /// Sets whether processes are scanned.
    pub fn enabled(&self, enabled: bool) {
        if let Some(gauge) = self.enabled.at([]) {
            gauge.set(i64::from(enabled));
        }
    }

    /// Counts a scan and its CPU time.
    pub fn scanned(&self, cost: Duration) {
        if let (Some(scans), Some(time)) = (self.scans.at([]), self.time.at([])) {
            scans.inc();
            time.observe(cost.as_secs_f64());
        }
    }

    /// Counts a process that works for a call, or holds one up.
    pub fn seen(&self, work: WorkKind) {
        let at = WORK_LABELS.iter().position(|name| *name == work.name());
        if let Some(observations) = at.and_then(|at| self.observations.at([at])) {
            observations.inc();
        }
    }
}

//! Metrics of the process scanner.

use std::time::Duration;

use crate::telemetry::family::{Counters, Gauges, Histograms};
use crate::telemetry::metric::{LOOK_BUCKETS, Metric, Unit, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    SAMPLER_ENABLED = Metric::gauge("sampler_enabled", Unit::Flag, &[],
        "Whether processes are scanned while calls take long; 0 if that is turned off or not possible.");
    SAMPLER_SCANS = Metric::counter("sampler_scans_total", &[],
        "Scans of the processes of the node.");
    SAMPLER_SCAN = Metric::histogram("sampler_scan_seconds", Unit::Seconds, &[], LOOK_BUCKETS,
        "CPU time of one scan; scans are made less often the longer they take.");
    SAMPLER_OBSERVATIONS = Metric::counter("sampler_observations_total", &[fixed("work", &["cni", "oci"])],
        "CNI plugins and OCI runtimes that were seen at work for a call.");
}

/// For the process scanner.
#[derive(Debug)]
pub struct ScanMetrics {
    enabled: Gauges<0>,
    scans: Counters<0>,
    time: Histograms<0>,
    observations: Counters<1>,
}

impl ScanMetrics {
    /// Registers the metrics. All of them are there from the start.
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
        let _ = (scans.observations.at([0]), scans.observations.at([1]));
        Ok(scans)
    }

    /// Whether processes are scanned.
    pub fn enabled(&self, enabled: bool) {
        if let Some(gauge) = self.enabled.at([]) {
            gauge.set(i64::from(enabled));
        }
    }

    /// A scan was made and took this much CPU time.
    pub fn scanned(&self, cost: Duration) {
        if let (Some(scans), Some(time)) = (self.scans.at([]), self.time.at([])) {
            scans.inc();
            time.observe(cost.as_secs_f64());
        }
    }

    /// A CNI plugin, or else an OCI runtime, was seen at work for a call.
    pub fn seen(&self, is_oci: bool) {
        if let Some(observations) = self.observations.at([usize::from(is_oci)]) {
            observations.inc();
        }
    }
}

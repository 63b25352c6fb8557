//! Counters and histograms of the built-in runtime.

use std::time::Duration;

use criscope_image::{Verdict, Verifier};

use super::rate_limits::RateLimits;
use super::{
    CONTAINERD_METHODS, CONTAINERD_RESULTS, NRI_METHODS, NRI_RESULTS, OTHER_PLUGINS, PLUGIN_VERBS,
    PLUGINS, RUNTIME_CNI_PLUGIN, RUNTIME_CONTAINERD_REQUESTS, RUNTIME_EVENTS_DROPPED,
    RUNTIME_IMAGE_PULL_BYTES, RUNTIME_IMAGE_PULLS, RUNTIME_IMAGE_PULLS_IN_PROGRESS,
    RUNTIME_IMAGE_VERIFICATIONS, RUNTIME_LAYERS_INCOMPLETE, RUNTIME_NRI_CLOSED,
    RUNTIME_NRI_PLUGINS, RUNTIME_NRI_REQUESTS, RUNTIME_PHASE, RUNTIME_SHIM_MESSAGES_UNREADABLE,
    RUNTIME_SHIM_STATISTICS_FAILED, RUNTIME_SHIMS_LOST,
};
use criscope_nri::CloseReason;

use crate::call::steps::{RuntimeStep, StepOutcome};
use crate::telemetry::family::{Counters, Gauges, Histograms};
use crate::telemetry::registry::{Registry, RegistryError};

/// Counts operations and failures of the built-in runtime.
#[derive(Debug)]
pub struct RuntimeWork {
    phases: Histograms<2>,
    plugins: Histograms<3>,
    pulls: Counters<1>,
    pulling: Gauges<0>,
    pulled_bytes: Counters<0>,
    verifications: Counters<2>,
    events_dropped: Counters<0>,
    shims_lost: Counters<1>,
    layers_incomplete: Counters<1>,
    shim_messages_unreadable: Counters<1>,
    shim_statistics_failed: Counters<1>,
    nri_plugins: Gauges<0>,
    nri_requests: Counters<2>,
    nri_closed: Counters<1>,
    containerd_requests: Counters<2>,
    rate_limits: RateLimits,
}

/// How a shim was lost before its pod was stopped, in the order of the metric's label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShimEnd {
    /// The shim exited unexpectedly.
    Died,
    /// The shim did not respond, and was killed.
    Killed,
}

/// Why the shim of containerd of a container did not report its statistics, in the order of the metric's label values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatsFailure {
    /// The shim did not answer in time.
    Timeout,
    /// The request failed.
    Error,
    /// The answer is not understood.
    Malformed,
}

impl RuntimeWork {
    /// Registers the metrics. Those without an operation label have a series from the start.
    ///
    /// # Errors
    /// If they are already registered.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let work = Self {
            phases: registry.histograms(&RUNTIME_PHASE)?,
            plugins: registry.histograms(&RUNTIME_CNI_PLUGIN)?,
            pulls: registry.counters(&RUNTIME_IMAGE_PULLS)?,
            pulling: registry.gauges(&RUNTIME_IMAGE_PULLS_IN_PROGRESS)?,
            pulled_bytes: registry.counters(&RUNTIME_IMAGE_PULL_BYTES)?,
            verifications: registry.counters(&RUNTIME_IMAGE_VERIFICATIONS)?,
            events_dropped: registry.counters(&RUNTIME_EVENTS_DROPPED)?,
            shims_lost: registry.counters(&RUNTIME_SHIMS_LOST)?,
            layers_incomplete: registry.counters(&RUNTIME_LAYERS_INCOMPLETE)?,
            shim_messages_unreadable: registry.counters(&RUNTIME_SHIM_MESSAGES_UNREADABLE)?,
            shim_statistics_failed: registry.counters(&RUNTIME_SHIM_STATISTICS_FAILED)?,
            nri_plugins: registry.gauges(&RUNTIME_NRI_PLUGINS)?,
            nri_requests: registry.counters(&RUNTIME_NRI_REQUESTS)?,
            nri_closed: registry.counters(&RUNTIME_NRI_CLOSED)?,
            containerd_requests: registry.counters(&RUNTIME_CONTAINERD_REQUESTS)?,
            rate_limits: RateLimits::new(registry)?,
        };
        for how in 0..2 {
            let _ = work.shims_lost.at([how]);
        }
        for reason in 0..3 {
            let _ = work.layers_incomplete.at([reason]);
        }
        for what in 0..5 {
            let _ = work.shim_messages_unreadable.at([what]);
        }
        for reason in 0..3 {
            let _ = work.shim_statistics_failed.at([reason]);
        }
        for reason in 0..CloseReason::LABELS.len() {
            let _ = work.nri_closed.at([reason]);
        }
        let _ = work.nri_plugins.at([]);
        for verifier in 0..2 {
            for result in 0..3 {
                let _ = work.verifications.at([verifier, result]);
            }
        }
        let _ = work.pulling.at([]);
        work.pulled(0);
        work.events_dropped(0);
        for outcome in StepOutcome::ALL {
            let _ = work.pulls.at([outcome as usize]);
        }
        Ok(work)
    }

    /// The limits of requests that registries tell.
    pub fn rate_limits(&self) -> &RateLimits {
        &self.rate_limits
    }

    /// Records a shim that was lost before its pod was stopped.
    pub fn shim_lost(&self, how: ShimEnd) {
        if let Some(lost) = self.shims_lost.at([how as usize]) {
            lost.inc();
        }
    }

    /// Records the result of a verification of an image.
    pub fn image_verified(&self, by: Verifier, verdict: Verdict) {
        if let Some(verifications) = self.verifications.at([by as usize, verdict as usize]) {
            verifications.inc();
        }
    }

    /// Records that a writable layer was counted incompletely; `reason` is an index into the label values.
    pub fn layer_incomplete(&self, reason: usize) {
        if let Some(incomplete) = self.layers_incomplete.at([reason]) {
            incomplete.inc();
        }
    }

    /// Records an undecodable message between the daemon and a shim; `what` is an index into the label values.
    pub fn shim_message_unreadable(&self, what: usize) {
        if let Some(unreadable) = self.shim_messages_unreadable.at([what]) {
            unreadable.inc();
        }
    }

    /// Records that a shim of containerd did not report the statistics of a container.
    pub fn shim_statistics_failed(&self, why: StatsFailure) {
        if let Some(failed) = self.shim_statistics_failed.at([why as usize]) {
            failed.inc();
        }
    }

    /// Records a completed step.
    pub fn ended(&self, phase: RuntimeStep, outcome: StepOutcome, took: Duration) {
        let at = [phase as usize, outcome as usize];
        self.phases.observe(at, took.as_secs_f64(), None);
    }

    /// Records a completed call of a CNI plugin of this type; `verb` is one of the plugins' steps.
    pub fn plugin_ended(
        &self,
        plugin: &str,
        verb: RuntimeStep,
        outcome: StepOutcome,
        took: Duration,
    ) {
        let verbs = PLUGIN_VERBS;
        let Some(verb) = verbs.iter().position(|name| *name == verb.name()) else {
            return;
        };
        let plugin = PLUGINS.iter().position(|name| *name == plugin);
        let plugin = plugin.or_else(|| PLUGINS.iter().position(|name| *name == OTHER_PLUGINS));
        let at = [plugin.unwrap_or_default(), verb, outcome as usize];
        self.plugins.observe(at, took.as_secs_f64(), None);
    }

    /// Records the start of a pull.
    pub fn pull_begins(&self) {
        if let Some(pulling) = self.pulling.at([]) {
            pulling.inc();
        }
    }

    /// Records the end of a pull.
    pub fn pull_ended(&self, outcome: StepOutcome) {
        if let (Some(pulling), Some(pulls)) =
            (self.pulling.at([]), self.pulls.at([outcome as usize]))
        {
            pulling.dec();
            pulls.inc();
        }
    }

    /// Records bytes of a layer received from a registry.
    pub fn pulled(&self, bytes: u64) {
        if let Some(pulled) = self.pulled_bytes.at([]) {
            pulled.inc_by(bytes);
        }
    }

    /// Records the number of NRI plugins.
    pub fn nri_plugins(&self, plugins: usize) {
        if let Some(gauge) = self.nri_plugins.at([]) {
            gauge.set(plugins as i64);
        }
    }

    /// Records the end of a request to an NRI plugin.
    pub fn nri_request(&self, method: &str, result: &str) {
        let at = index(NRI_METHODS, method).zip(index(NRI_RESULTS, result));
        if let Some(requests) = at.and_then(|(m, r)| self.nri_requests.at([m, r])) {
            requests.inc();
        }
    }

    /// Records a request of containerd's own API.
    pub fn containerd_request(&self, method: &str, result: &str) {
        let at = index(CONTAINERD_METHODS, method).zip(index(CONTAINERD_RESULTS, result));
        if let Some(requests) = at.and_then(|(m, r)| self.containerd_requests.at([m, r])) {
            requests.inc();
        }
    }

    /// Records a closed connection of an NRI plugin; `reason` is an index into the label values.
    pub fn nri_closed(&self, reason: usize) {
        if let Some(closed) = self.nri_closed.at([reason]) {
            closed.inc();
        }
    }

    /// Records events dropped because a listener was too slow.
    pub fn events_dropped(&self, n: u64) {
        if let Some(dropped) = self.events_dropped.at([]) {
            dropped.inc_by(n);
        }
    }
}

/// The index of a label value.
fn index(values: &[&str], value: &str) -> Option<usize> {
    values.iter().position(|one| *one == value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_plugins_are_counted_as_other() {
        let registry = Registry::new(prometheus::Registry::new(), []);
        let work = RuntimeWork::new(&registry).expect("registers");
        let took = Duration::from_millis(30);
        for plugin in ["bridge", "our-own", "another"] {
            work.plugin_ended(plugin, RuntimeStep::CniAdd, StepOutcome::Ok, took);
        }
        work.plugin_ended("bridge", RuntimeStep::Spec, StepOutcome::Ok, took);
        work.ended(RuntimeStep::OciCreate, StepOutcome::Error, took);
        work.pull_begins();
        work.pull_ended(StepOutcome::Cancelled);
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        let plugin = "criscope_runtime_cni_plugin_duration_seconds_count";
        for line in [
            &format!("{plugin}{{outcome=\"ok\",plugin=\"bridge\",verb=\"cni_add\"}} 1"),
            &format!("{plugin}{{outcome=\"ok\",plugin=\"other\",verb=\"cni_add\"}} 2"),
            "criscope_runtime_phase_duration_seconds_count{outcome=\"error\",phase=\"oci_create\"} 1",
            "criscope_runtime_image_pulls_total{outcome=\"cancelled\"} 1",
            "criscope_runtime_image_pulls_in_progress 0",
            "criscope_runtime_events_dropped_total 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        assert_eq!(text.matches(plugin).count(), 2, "{text}");
    }
}

//! Counters and histograms of the built-in runtime.

use std::time::Duration;

use criscope_image::{Verdict, Verifier};
use criscope_nri::CloseReason;

use super::rate_limits::RateLimits;
use super::{
    ContainerdMethod, ContainerdResult, NriClose, NriMethod, NriResult, OTHER_PLUGINS,
    PLUGIN_VERBS, Plugin, PluginVerb, RUNTIME_CNI_PLUGIN, RUNTIME_CONTAINERD_REQUESTS,
    RUNTIME_EVENTS_DROPPED, RUNTIME_IMAGE_PULL_BYTES, RUNTIME_IMAGE_PULLS,
    RUNTIME_IMAGE_PULLS_IN_PROGRESS, RUNTIME_IMAGE_VERIFICATIONS, RUNTIME_LAYERS_INCOMPLETE,
    RUNTIME_NRI_CLOSED, RUNTIME_NRI_PLUGINS, RUNTIME_NRI_REQUESTS, RUNTIME_PHASE,
    RUNTIME_SHIM_MESSAGES_UNREADABLE, RUNTIME_SHIM_STATISTICS_FAILED, RUNTIME_SHIMS_LOST,
    VerifiedBy, VerifyResult,
};
use crate::shim_client::Unreadable;
use crate::stats::disk::Missing;
use criscope_cri::Named;
use criscope_cri::call::steps::{RuntimeStep, StepOutcome};
use criscope_telemetry::family::{Counters, Gauges, Histograms};
use criscope_telemetry::registry::{Registry, RegistryError};

/// Counts operations and failures of the built-in runtime.
#[derive(Debug)]
pub struct RuntimeWork {
    phases: Histograms<(RuntimeStep, StepOutcome)>,
    plugins: Histograms<(Plugin, PluginVerb, StepOutcome)>,
    pulls: Counters<StepOutcome>,
    pub(crate) pulling: Gauges,
    pub(crate) pulled_bytes: Counters,
    verifications: Counters<(VerifiedBy, VerifyResult)>,
    pub(crate) events_dropped: Counters,
    pub(crate) shims_lost: Counters<ShimEnd>,
    pub(crate) layers_incomplete: Counters<Missing>,
    pub(crate) shim_messages_unreadable: Counters<Unreadable>,
    pub(crate) shim_statistics_failed: Counters<StatsFailure>,
    pub(crate) nri_plugins: Gauges,
    nri_requests: Counters<(NriMethod, NriResult)>,
    nri_closed: Counters<NriClose>,
    pub(crate) containerd_requests: Counters<(ContainerdMethod, ContainerdResult)>,
    rate_limits: RateLimits,
}

criscope_cri::named! {
    /// How a shim was lost before its pod was stopped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ShimEnd {
        /// The shim exited unexpectedly.
        Died = "died",
        /// The shim did not respond, and was killed.
        Killed = "killed",
    }
}

criscope_cri::named! {
    /// Why the shim of containerd of a container did not report its statistics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum StatsFailure {
        /// The shim did not answer in time.
        Timeout = "timeout",
        /// The request failed.
        Error = "error",
        /// The answer is not understood.
        Malformed = "malformed",
    }
}

impl RuntimeWork {
    /// Registers the metrics. Those without an operation label have a series from the start.
    ///
    /// # Errors
    /// If they are already registered.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            phases: registry.histograms(&RUNTIME_PHASE)?,
            plugins: registry.histograms(&RUNTIME_CNI_PLUGIN)?,
            pulls: registry.counters(&RUNTIME_IMAGE_PULLS)?.with_all_series(),
            pulling: registry
                .gauges(&RUNTIME_IMAGE_PULLS_IN_PROGRESS)?
                .with_all_series(),
            pulled_bytes: registry
                .counters(&RUNTIME_IMAGE_PULL_BYTES)?
                .with_all_series(),
            verifications: registry
                .counters(&RUNTIME_IMAGE_VERIFICATIONS)?
                .with_all_series(),
            events_dropped: registry
                .counters(&RUNTIME_EVENTS_DROPPED)?
                .with_all_series(),
            shims_lost: registry.counters(&RUNTIME_SHIMS_LOST)?.with_all_series(),
            layers_incomplete: registry
                .counters(&RUNTIME_LAYERS_INCOMPLETE)?
                .with_all_series(),
            shim_messages_unreadable: registry
                .counters(&RUNTIME_SHIM_MESSAGES_UNREADABLE)?
                .with_all_series(),
            shim_statistics_failed: registry
                .counters(&RUNTIME_SHIM_STATISTICS_FAILED)?
                .with_all_series(),
            nri_plugins: registry.gauges(&RUNTIME_NRI_PLUGINS)?.with_all_series(),
            nri_requests: registry.counters(&RUNTIME_NRI_REQUESTS)?,
            nri_closed: registry.counters(&RUNTIME_NRI_CLOSED)?.with_all_series(),
            containerd_requests: registry.counters(&RUNTIME_CONTAINERD_REQUESTS)?,
            rate_limits: RateLimits::new(registry)?,
        })
    }

    /// The limits of requests that registries tell.
    pub fn rate_limits(&self) -> &RateLimits {
        &self.rate_limits
    }

    /// Records the result of a verification of an image.
    pub fn image_verified(&self, by: Verifier, verdict: Verdict) {
        let labels = (VerifiedBy(by as usize), VerifyResult(verdict as usize));
        self.verifications.inc(labels);
    }

    /// Records a completed step.
    pub fn ended(&self, phase: RuntimeStep, outcome: StepOutcome, took: Duration) {
        self.phases.observe((phase, outcome), took.as_secs_f64());
    }

    /// Records a completed call of a CNI plugin of this type; `verb` is one of the plugins' steps.
    pub fn plugin_ended(
        &self,
        plugin: &str,
        verb: RuntimeStep,
        outcome: StepOutcome,
        took: Duration,
    ) {
        let verb = PLUGIN_VERBS.iter().position(|step| *step == verb);
        let plugin = index::<Plugin>(plugin).or_else(|| index::<Plugin>(OTHER_PLUGINS));
        if let (Some(plugin), Some(verb)) = (plugin, verb) {
            let labels = (Plugin(plugin), PluginVerb(verb), outcome);
            self.plugins.observe(labels, took.as_secs_f64());
        }
    }

    /// Records the end of a pull.
    pub fn pull_ended(&self, outcome: StepOutcome) {
        self.pulling.add((), -1);
        self.pulls.inc(outcome);
    }

    /// Records the end of a request to an NRI plugin.
    pub fn nri_request(&self, method: &str, result: &str) {
        let labels = index::<NriMethod>(method).zip(index::<NriResult>(result));
        if let Some((method, result)) = labels {
            self.nri_requests
                .inc((NriMethod(method), NriResult(result)));
        }
    }

    /// Records a closed connection of an NRI plugin.
    pub fn nri_closed(&self, reason: &CloseReason) {
        self.nri_closed.inc(NriClose(reason.index()));
    }
}

/// The position of a name.
fn index<T: Named>(name: &str) -> Option<usize> {
    T::NAMES.iter().position(|one| *one == name)
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
        work.pulling.add((), 1);
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

//! Observation of plugins: a step for each request, metrics, log lines.

use std::path::Path;

use criscope_nri::{CloseReason, PluginCallFuture, PluginInfo, PluginObserver};

use crate::error::shown;
use crate::steps::{StepRecorder, traceparent};
use criscope_cri::call::steps::RuntimeStep;

/// The observer of all plugins.
#[derive(Debug)]
pub(super) struct Plugins {
    steps: StepRecorder,
}

impl Plugins {
    pub(super) fn new(steps: StepRecorder) -> Self {
        Self { steps }
    }
}

impl PluginObserver for Plugins {
    fn request<'a>(
        &'a self,
        plugin: &'a str,
        method: &'static str,
        run: PluginCallFuture<'a>,
    ) -> PluginCallFuture<'a> {
        Box::pin(async move {
            let answer = self.steps.step(RuntimeStep::Nri, Some(plugin), run).await;
            if let Some(metrics) = self.steps.metrics() {
                let result = answer.as_ref().err().map_or("ok", |error| error.label());
                metrics.nri_request(method, result);
            }
            if let Err(error) = &answer {
                tracing::warn!(target: "criscope::runtime::nri::observe", event = "runtime.nri", nri.plugin = plugin, nri.method = method, error.message = %shown(error), "a request to an NRI plugin failed");
            }
            answer
        })
    }

    fn metadata(&self) -> Vec<(String, String)> {
        let trace = traceparent().map(|trace| ("traceparent".to_owned(), trace));
        trace.into_iter().collect()
    }

    fn connected(&self, plugin: &PluginInfo) {
        tracing::info!(target: "criscope::runtime::nri::observe", event = "runtime.nri", nri.plugin = %plugin.name, nri.version = %plugin.nri_version, process.pid = plugin.pid, nri.installed = plugin.pre_installed, "an NRI plugin is registered and synchronized");
    }

    fn closed(&self, plugin: &PluginInfo, reason: &CloseReason) {
        if let Some(metrics) = self.steps.metrics() {
            metrics.nri_closed(reason);
        }
        let what = "the connection of an NRI plugin was closed";
        if *reason == CloseReason::Shutdown {
            tracing::info!(target: "criscope::runtime::nri::observe", event = "runtime.nri", nri.plugin = %plugin.name, process.pid = plugin.pid, nri.installed = plugin.pre_installed, reason = %shown(reason), "{what}");
        } else {
            tracing::warn!(target: "criscope::runtime::nri::observe", event = "runtime.nri", nri.plugin = %plugin.name, process.pid = plugin.pid, nri.installed = plugin.pre_installed, reason = %shown(reason), "{what}");
        }
    }

    // The path is the operator's and no secret.
    fn unusable(&self, path: &Path, why: &str) {
        tracing::warn!(target: "criscope::runtime::nri::observe", event = "runtime.nri", file.path = %path.display(), error.message = %shown(&why), "an installed NRI plugin cannot be used");
    }

    fn problem(&self, what: &str) {
        tracing::warn!(target: "criscope::runtime::nri::observe", event = "runtime.nri", error.message = %shown(&what), "what an NRI plugin asked for was not done");
    }

    fn count(&self, plugins: usize) {
        if let Some(metrics) = self.steps.metrics() {
            metrics.nri_plugins.set((), plugins as i64);
        }
    }
}

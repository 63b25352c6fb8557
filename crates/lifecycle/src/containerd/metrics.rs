//! Metrics of containerd's events.

use criscope_telemetry::family::Counters;
use criscope_telemetry::metric::{Metric, fixed, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

const EVENT_LABELS: [&str; 6] = ["start", "exit", "oom", "exec_exit", "unknown", "unreadable"];
const SUBSCRIPTION_LABELS: [&str; 2] = ["begun", "ended"];

metrics! {
    CONTAINERD_EVENTS = Metric::counter("containerd_events_total", &[fixed("event", &EVENT_LABELS)],
        "Events of containerd: starts, exits and OOM kills of containers and sandboxes, ends of commands executed in them (not used), events of a task whose pod is not known, and events that cannot be read.");
    CONTAINERD_SUBSCRIPTIONS = Metric::counter("containerd_subscriptions_total", &[fixed("what", &SUBSCRIPTION_LABELS)],
        "Subscriptions to the events of containerd: begun, and ended, as when it restarts or refuses them. One that cannot connect has ended without a begin.");
}

/// The result for an event, a value of the metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum EventResult {
    Start,
    Exit,
    Oom,
    ExecExit,
    Unknown,
    Unreadable,
}

/// Metrics of containerd's events.
#[derive(Debug)]
pub struct EventMetrics {
    events: Counters<1>,
    subscriptions: Counters<1>,
}

impl EventMetrics {
    /// Registers the metrics. All of them have a series from the start.
    ///
    /// # Errors
    /// If a metric is registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let metrics = Self {
            events: registry.counters(&CONTAINERD_EVENTS)?,
            subscriptions: registry.counters(&CONTAINERD_SUBSCRIPTIONS)?,
        };
        for event in 0..EVENT_LABELS.len() {
            metrics.events.at([event]);
        }
        for what in 0..SUBSCRIPTION_LABELS.len() {
            metrics.subscriptions.at([what]);
        }
        Ok(metrics)
    }

    /// Counts an event.
    pub(super) fn seen(&self, result: EventResult) {
        if let Some(events) = self.events.at([result as usize]) {
            events.inc();
        }
    }

    /// Counts a subscription that has begun.
    pub(super) fn begun(&self) {
        if let Some(begun) = self.subscriptions.at([0]) {
            begun.inc();
        }
    }

    /// Counts a subscription that has ended, or could not begin.
    pub(super) fn ended(&self) {
        if let Some(ended) = self.subscriptions.at([1]) {
            ended.inc();
        }
    }
}

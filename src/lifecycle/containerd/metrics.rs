//! Metrics of containerd's events.

use crate::telemetry::family::Counters;
use crate::telemetry::metric::{Metric, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

const EVENTS: [&str; 6] = ["start", "exit", "oom", "exec_exit", "unknown", "unreadable"];
const SUBSCRIPTIONS: [&str; 2] = ["begun", "ended"];

metrics! {
    CONTAINERD_EVENTS = Metric::counter("containerd_events_total", &[fixed("event", &EVENTS)],
        "Events of containerd: starts, exits and OOM kills of containers and sandboxes, ends of commands executed in them (not used), events of a task whose pod is not known, and events that cannot be read.");
    CONTAINERD_SUBSCRIPTIONS = Metric::counter("containerd_subscriptions_total", &[fixed("what", &SUBSCRIPTIONS)],
        "Subscriptions to the events of containerd: begun, and ended, as when it restarts or refuses them. One that cannot connect has ended without a begin.");
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Seen {
    Start,
    Exit,
    Oom,
    ExecExit,
    Unknown,
    Unreadable,
}

/// For the subscription.
#[derive(Debug)]
pub struct EventMetrics {
    events: Counters<1>,
    subscriptions: Counters<1>,
}

impl EventMetrics {
    /// Registers the metrics. All of them are there from the start.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let metrics = Self {
            events: registry.counters(&CONTAINERD_EVENTS)?,
            subscriptions: registry.counters(&CONTAINERD_SUBSCRIPTIONS)?,
        };
        for event in 0..EVENTS.len() {
            metrics.events.at([event]);
        }
        for what in 0..SUBSCRIPTIONS.len() {
            metrics.subscriptions.at([what]);
        }
        Ok(metrics)
    }

    /// An event has come.
    pub(super) fn seen(&self, seen: Seen) {
        if let Some(events) = self.events.at([seen as usize]) {
            events.inc();
        }
    }

    /// A subscription has begun.
    pub(super) fn begun(&self) {
        if let Some(begun) = self.subscriptions.at([0]) {
            begun.inc();
        }
    }

    /// A subscription has ended, or could not begin.
    pub(super) fn ended(&self) {
        if let Some(ended) = self.subscriptions.at([1]) {
            ended.inc();
        }
    }
}

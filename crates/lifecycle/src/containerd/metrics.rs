//! Metrics of containerd's events.

use criscope_telemetry::family::Counters;
use criscope_telemetry::metric::{Metric, label, metrics};
use criscope_telemetry::registry::{Registry, RegistryError};

metrics! {
    CONTAINERD_EVENTS = Metric::counter("containerd_events_total", &[label::<EventResult>("event")],
        "Events of containerd: starts, exits and OOM kills of containers and sandboxes, ends of commands executed in them (not used), events of a task whose pod is not known, and events that cannot be read.");
    CONTAINERD_SUBSCRIPTIONS = Metric::counter("containerd_subscriptions_total", &[label::<SubscriptionChange>("what")],
        "Subscriptions to the events of containerd: begun, and ended, as when it restarts or refuses them. One that cannot connect has ended without a begin.");
}

criscope_cri::named! {
    /// The result for an event.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum EventResult {
        Start = "start",
        Exit = "exit",
        Oom = "oom",
        ExecExit = "exec_exit",
        Unknown = "unknown",
        Unreadable = "unreadable",
    }
}

criscope_cri::named! {
    /// What happened to a subscription.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum SubscriptionChange {
        Begun = "begun",
        /// It ended, or could not begin.
        Ended = "ended",
    }
}

/// Metrics of containerd's events.
#[derive(Debug)]
pub struct EventMetrics {
    pub(super) events: Counters<EventResult>,
    pub(super) subscriptions: Counters<SubscriptionChange>,
}

impl EventMetrics {
    /// Registers the metrics. All of them have a series from the start.
    ///
    /// # Errors
    /// If a metric is registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            events: registry.counters(&CONTAINERD_EVENTS)?.with_all_series(),
            subscriptions: registry
                .counters(&CONTAINERD_SUBSCRIPTIONS)?
                .with_all_series(),
        })
    }
}

//! Metrics that parts outside the request path keep up to date: each part gets its own small handle at start.

mod runtime;

use std::time::Duration;

pub use self::runtime::{RuntimeWork, ShimEnd};
use super::catalogue;
use super::family::{Counters, Gauges, Histograms};
use super::registry::{BackendLabels, Registry, RegistryError};
use crate::call::Client;

/// For the listener: connections of callers.
#[derive(Debug)]
pub struct Connections {
    open: Gauges<0>,
    total: Counters<1>,
}

impl Connections {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            open: registry.gauges(&catalogue::CONNECTIONS_OPEN)?,
            total: registry.counters(&catalogue::CONNECTIONS_TOTAL)?,
        })
    }

    /// A connection was accepted.
    pub fn opened(&self, client: Client) {
        if let Some(total) = self.total.at([client as usize]) {
            total.inc();
        }
        if let Some(open) = self.open.at([]) {
            open.inc();
        }
    }

    /// A connection that was counted by [`Connections::opened`] is gone.
    pub fn closed(&self) {
        if let Some(open) = self.open.at([]) {
            open.dec();
        }
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.open
            .at([])
            .map_or(0, |open| open.get().try_into().unwrap_or(0))
    }
}

/// For the backends: whether they are there.
#[derive(Debug)]
pub struct Backends {
    up: Gauges<1>,
    reconnects: Counters<1>,
    labels: BackendLabels,
}

impl Backends {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            up: registry.gauges(&catalogue::BACKEND_UP)?,
            reconnects: registry.counters(&catalogue::BACKEND_RECONNECTS)?,
            labels: registry.backends().clone(),
        })
    }

    /// Whether the backend of this name is connected and answers. Say so at start, so that its absence is seen.
    pub fn set_up(&self, backend: &str, up: bool) {
        if let Some(gauge) = self.up.at([self.labels.index(backend)]) {
            gauge.set(i64::from(up));
        }
    }

    /// A connection after the first was made.
    pub fn reconnected(&self, backend: &str) {
        if let Some(counter) = self.reconnects.at([self.labels.index(backend)]) {
            counter.inc();
        }
    }
}

/// What the identity index remembers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Remembered {
    /// Sandboxes.
    Sandbox,
    /// Containers.
    Container,
}

/// For the identity index.
#[derive(Debug)]
pub struct Identity {
    entries: Gauges<1>,
    lookups: Counters<1>,
}

impl Identity {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            entries: registry.gauges(&catalogue::IDENTITY_ENTRIES)?,
            lookups: registry.counters(&catalogue::IDENTITY_LOOKUPS)?,
        })
    }

    /// How many objects of a kind are remembered now.
    pub fn set_entries(&self, kind: Remembered, n: usize) {
        if let Some(entries) = self.entries.at([kind as usize]) {
            entries.set(i64::try_from(n).unwrap_or(i64::MAX));
        }
    }

    /// An id was looked up.
    pub fn looked_up(&self, hit: bool) {
        if let Some(lookups) = self.lookups.at([usize::from(!hit)]) {
            lookups.inc();
        }
    }
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
            enabled: registry.gauges(&catalogue::SAMPLER_ENABLED)?,
            scans: registry.counters(&catalogue::SAMPLER_SCANS)?,
            time: registry.histograms(&catalogue::SAMPLER_SCAN)?,
            observations: registry.counters(&catalogue::SAMPLER_OBSERVATIONS)?,
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

/// What became of a span of the runtime that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Received {
    /// It is part of a call.
    Attributed,
    /// It is part of no call that is known.
    Unknown,
    /// There was no room for it, or it could not be read.
    Dropped,
}

/// For the receiver of the runtime's spans.
#[derive(Debug)]
pub struct Receiving {
    spans: Counters<1>,
    passed_on: Counters<0>,
}

impl Receiving {
    /// Registers the metrics. All of them are there from the start.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let receiving = Self {
            spans: registry.counters(&catalogue::RECEIVER_SPANS)?,
            passed_on: registry.counters(&catalogue::RECEIVER_PASSED_ON)?,
        };
        for result in [Received::Attributed, Received::Unknown, Received::Dropped] {
            receiving.received(result, 0);
        }
        receiving.passed_on(0);
        Ok(receiving)
    }

    /// So many spans were received.
    pub fn received(&self, result: Received, n: usize) {
        if let Some(spans) = self.spans.at([result as usize]) {
            spans.inc_by(n as u64);
        }
    }

    /// The collector took so many.
    pub fn passed_on(&self, n: usize) {
        if let Some(passed_on) = self.passed_on.at([]) {
            passed_on.inc_by(n as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(registry: &Registry) -> String {
        String::from_utf8(registry.encode().expect("encodes")).expect("utf-8")
    }

    #[test]
    fn handles_write_the_series_they_mean() {
        let registry = Registry::new(prometheus::Registry::new(), ["main".to_owned()]);
        let connections = Connections::new(&registry).expect("connections");
        let backends = Backends::new(&registry).expect("backends");
        let identity = Identity::new(&registry).expect("identity");
        connections.opened(Client::Kubelet);
        connections.opened(Client::Crictl);
        connections.closed();
        backends.set_up("main", true);
        backends.reconnected("main");
        identity.set_entries(Remembered::Container, 5);
        identity.looked_up(true);
        identity.looked_up(false);
        let text = text(&registry);
        for line in [
            "criscope_connections_open 1",
            "criscope_connections_total{client=\"crictl\"} 1",
            "criscope_connections_total{client=\"kubelet\"} 1",
            "criscope_backend_up{backend=\"main\"} 1",
            "criscope_backend_reconnects_total{backend=\"main\"} 1",
            "criscope_identity_entries{kind=\"container\"} 5",
            "criscope_identity_lookups_total{result=\"hit\"} 1",
            "criscope_identity_lookups_total{result=\"miss\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}

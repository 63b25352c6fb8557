//! Metrics of the connections of callers.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::call::Client;
use crate::telemetry::family::{Counters, Gauges};
use crate::telemetry::metric::{CLIENT, Metric, Unit, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    CONNECTIONS_OPEN = Metric::gauge("connections_open", Unit::Count, &[],
        "Connections of callers that are open.");
    CONNECTIONS_TOTAL = Metric::counter("connections_total", &[CLIENT],
        "Connections of callers that were accepted.");
}

/// Counts connections of callers.
#[derive(Debug)]
pub struct ConnectionMetrics {
    open: Gauges,
    total: Counters<Client>,
    kubelets: AtomicU64,
}

impl ConnectionMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            open: registry.gauges(&CONNECTIONS_OPEN)?,
            total: registry.counters(&CONNECTIONS_TOTAL)?,
            kubelets: AtomicU64::default(),
        })
    }

    /// Counts an accepted connection.
    pub fn opened(&self, client: Client) {
        if client == Client::Kubelet {
            self.kubelets.fetch_add(1, Ordering::Relaxed);
        }
        self.total.inc(client);
        self.open.add((), 1);
    }

    /// Counts the end of a connection that [`ConnectionMetrics::opened`] counted.
    pub fn closed(&self, client: Client) {
        if client == Client::Kubelet {
            self.kubelets.fetch_sub(1, Ordering::Relaxed);
        }
        self.open.add((), -1);
    }

    /// Connections of kubelets open now.
    pub fn kubelets(&self) -> u64 {
        self.kubelets.load(Ordering::Relaxed)
    }

    /// Connections open now.
    pub fn open(&self) -> u64 {
        let open = self.open.used(()).map_or(0, |open| open.get());
        open.try_into().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_counted_by_client() {
        let registry = Registry::new(prometheus::Registry::new(), []);
        let connections = ConnectionMetrics::new(&registry).expect("once");
        connections.opened(Client::Kubelet);
        connections.opened(Client::Crictl);
        assert_eq!(connections.kubelets(), 1);
        connections.closed(Client::Crictl);
        assert_eq!((connections.open(), connections.kubelets()), (1, 1));
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        for line in [
            "criscope_connections_open 1",
            "criscope_connections_total{client=\"crictl\"} 1",
            "criscope_connections_total{client=\"kubelet\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}

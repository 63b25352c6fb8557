//! Sessions as metrics.

use crate::telemetry::catalogue;
use crate::telemetry::family::{Counters, Gauges, Histograms};
use crate::telemetry::registry::{Registry, RegistryError};
use cri_streaming::{
    Direction, Observer, SessionBegin, SessionEnd, SessionKind, TokenOutcome, Transport,
};

/// Counts sessions. One of the observers of a server.
#[derive(Debug)]
pub struct SessionMetrics {
    open: Gauges<2>,
    ended: Counters<3>,
    duration: Histograms<1>,
    bytes: Counters<2>,
    connections: Counters<0>,
    tokens: Counters<1>,
}

impl SessionMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn register(registry: &Registry) -> Result<Self, RegistryError> {
        let metrics = Self {
            open: registry.gauges(&catalogue::STREAM_SESSIONS)?,
            ended: registry.counters(&catalogue::STREAM_SESSIONS_ENDED)?,
            duration: registry.histograms(&catalogue::STREAM_SESSION_DURATION)?,
            bytes: registry.counters(&catalogue::STREAM_BYTES)?,
            connections: registry.counters(&catalogue::STREAM_CONNECTIONS)?,
            tokens: registry.counters(&catalogue::STREAM_TOKENS)?,
        };
        // Small families exist from the start, so that the first event counts as an increase.
        for outcome in 0..TokenOutcome::ALL.len() {
            metrics.tokens.at([outcome]);
        }
        metrics.connections.at([]);
        for kind in 0..SessionKind::ALL.len() {
            for transport in 0..Transport::ALL.len() {
                metrics.open.at([kind, transport]);
            }
        }
        Ok(metrics)
    }
}

impl Observer for SessionMetrics {
    fn token(&self, outcome: TokenOutcome, n: u64) {
        if let Some(tokens) = self.tokens.at([outcome as usize]) {
            tokens.inc_by(n);
        }
    }

    fn began(&self, begin: &SessionBegin<'_>) {
        let (kind, transport) = (begin.kind as usize, begin.transport as usize);
        if let Some(open) = self.open.at([kind, transport]) {
            open.inc();
        }
    }

    fn bytes(&self, kind: SessionKind, direction: Direction, n: u64) {
        if let Some(bytes) = self.bytes.at([kind as usize, direction as usize]) {
            bytes.inc_by(n);
        }
    }

    fn ended(&self, end: &SessionEnd<'_>) {
        let (kind, transport) = (end.kind as usize, end.transport as usize);
        if let Some(open) = self.open.at([kind, transport]) {
            open.dec();
        }
        if let Some(ended) = self.ended.at([kind, transport, end.outcome as usize]) {
            ended.inc();
        }
        if let Some(connections) = self.connections.at([]) {
            connections.inc_by(end.connections);
        }
        self.duration
            .observe([kind], end.duration.as_secs_f64(), None);
    }
}

/// Gives every metric of this module a series.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    use cri_streaming::Outcome;
    let metrics = SessionMetrics::register(registry).expect("once");
    for kind in SessionKind::ALL.iter().copied() {
        metrics.bytes(kind, Direction::In, 1);
        metrics.bytes(kind, Direction::Out, 1);
        for transport in Transport::ALL.iter().copied() {
            for outcome in Outcome::ALL.iter().copied() {
                metrics.began(&SessionBegin {
                    number: 1,
                    kind,
                    id: "id",
                    transport,
                    protocol: "v4.channel.k8s.io",
                    command: &[],
                    extensions: &http::Extensions::new(),
                    carried: &std::sync::Arc::default(),
                });
                metrics.ended(&SessionEnd {
                    number: 1,
                    kind,
                    id: "id",
                    transport,
                    protocol: "v4.channel.k8s.io",
                    duration: std::time::Duration::from_secs(1),
                    bytes_in: 1,
                    bytes_out: 1,
                    outcome,
                    exit_code: None,
                    connections: 1,
                    command: &[],
                    extensions: &http::Extensions::new(),
                    proxied: None,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::catalogue::{Metric, Values};
    use cri_streaming::Outcome;

    fn names(metric: &Metric, label: usize) -> Vec<&'static str> {
        match metric.labels[label].values {
            Values::Fixed(names) => names.to_vec(),
            _ => panic!("{} has no fixed values", metric.name),
        }
    }

    #[test]
    fn the_catalogue_lists_the_values_in_our_order() {
        let kinds: Vec<_> = SessionKind::ALL.iter().map(|k| k.name()).collect();
        let transports: Vec<_> = Transport::ALL.iter().map(|t| t.name()).collect();
        let outcomes: Vec<_> = Outcome::ALL.iter().map(|o| o.name()).collect();
        let directions: Vec<_> = Direction::ALL.iter().map(|d| d.name()).collect();
        let tokens: Vec<_> = TokenOutcome::ALL.iter().map(|t| t.name()).collect();
        let ended = &catalogue::STREAM_SESSIONS_ENDED;
        assert_eq!(names(ended, 0), kinds);
        assert_eq!(names(ended, 1), transports);
        assert_eq!(names(ended, 2), outcomes);
        assert_eq!(names(&catalogue::STREAM_SESSIONS, 0), kinds);
        assert_eq!(names(&catalogue::STREAM_SESSIONS, 1), transports);
        assert_eq!(names(&catalogue::STREAM_SESSION_DURATION, 0), kinds);
        assert_eq!(names(&catalogue::STREAM_BYTES, 0), kinds);
        assert_eq!(names(&catalogue::STREAM_BYTES, 1), directions);
        assert_eq!(names(&catalogue::STREAM_TOKENS, 0), tokens);
    }
}

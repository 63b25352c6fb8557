//! Sessions as metrics.

use crate::telemetry::family::{Counters, Gauges, Histograms};
use crate::telemetry::metric::{Label, Metric, MetricKind, Unit, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};
use cri_streaming::{
    Direction, SessionBegin, SessionEnd, SessionKind, SessionObserver, TokenOutcome, Transport,
};

/// The kind of a session, in the order of `SessionKind`.
const STREAM_KIND: Label = fixed("kind", &["exec", "attach", "portforward"]);
/// The transport of a session.
const STREAM_TRANSPORT: Label = fixed("transport", &["spdy", "websocket", "tls"]);
/// The outcome of a session.
const STREAM_OUTCOME: Label = fixed(
    "outcome",
    &[
        "done",
        "client_gone",
        "failed",
        "no_streams",
        "protocol",
        "idle",
        "shutdown",
    ],
);
/// Sessions of exec, attach and port-forward: from a probe to a working day.
const SESSION_BUCKETS: &[f64] = &[0.05, 0.25, 1.0, 5.0, 30.0, 300.0, 1800.0, 7200.0, 28800.0];

metrics! {
    STREAM_SESSIONS = Metric::gauge("stream_sessions", Unit::Count, &[STREAM_KIND, STREAM_TRANSPORT],
        "Sessions of exec, attach and port-forward that are open.");
    STREAM_SESSIONS_ENDED = Metric::counter("stream_sessions_ended_total", &[STREAM_KIND, STREAM_TRANSPORT, STREAM_OUTCOME],
        "Ended sessions by outcome: the command or container ended or the client closed the session, the client disconnected earlier, the target could not be run or reached, the client opened no streams or violated the protocol, the session was idle for too long, criscope was stopped.");
    STREAM_SESSION_DURATION = Metric::histogram("stream_session_duration_seconds", Unit::Seconds, &[STREAM_KIND], SESSION_BUCKETS,
        "Time from the request for a session to its end.");
    STREAM_BYTES = Metric::new(MetricKind::Counter, "stream_bytes_total", Unit::Bytes, &[STREAM_KIND, fixed("direction", &["in", "out"])],
        "Bytes that sessions carried to containers and pods (in) and from them (out), without protocol overhead; with it, TLS included, if an upstream serves the session.");
    STREAM_CONNECTIONS = Metric::counter("stream_connections_total", &[],
        "Connections into pods that ended port-forward sessions requested; not counted if an upstream serves the session.");
    STREAM_TOKENS = Metric::counter("stream_tokens_total", &[fixed("result", &["issued", "used", "expired", "refused", "full"])],
        "Tokens in the URLs of sessions: issued, used, expired, refused because unknown, and not issued because too many are open (full).");
}

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
    /// If a metric is registered already.
    pub fn register(registry: &Registry) -> Result<Self, RegistryError> {
        let metrics = Self {
            open: registry.gauges(&STREAM_SESSIONS)?,
            ended: registry.counters(&STREAM_SESSIONS_ENDED)?,
            duration: registry.histograms(&STREAM_SESSION_DURATION)?,
            bytes: registry.counters(&STREAM_BYTES)?,
            connections: registry.counters(&STREAM_CONNECTIONS)?,
            tokens: registry.counters(&STREAM_TOKENS)?,
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

impl SessionObserver for SessionMetrics {
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

/// Creates a series of every metric of this module.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    use cri_streaming::SessionOutcome;
    let metrics = SessionMetrics::register(registry).expect("once");
    for kind in SessionKind::ALL.iter().copied() {
        metrics.bytes(kind, Direction::In, 1);
        metrics.bytes(kind, Direction::Out, 1);
        for transport in Transport::ALL.iter().copied() {
            for outcome in SessionOutcome::ALL.iter().copied() {
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
    use crate::telemetry::metric::{Metric, Values};
    use cri_streaming::SessionOutcome;

    fn names(metric: &Metric, label: usize) -> Vec<&'static str> {
        match metric.labels[label].values {
            Values::Fixed(names) => names.to_vec(),
            _ => panic!("{} has no fixed values", metric.name),
        }
    }

    #[test]
    fn label_values_are_in_the_order_of_the_enums() {
        let kinds: Vec<_> = SessionKind::ALL.iter().map(|k| k.name()).collect();
        let transports: Vec<_> = Transport::ALL.iter().map(|t| t.name()).collect();
        let outcomes: Vec<_> = SessionOutcome::ALL.iter().map(|o| o.name()).collect();
        let directions: Vec<_> = Direction::ALL.iter().map(|d| d.name()).collect();
        let tokens: Vec<_> = TokenOutcome::ALL.iter().map(|t| t.name()).collect();
        let ended = &STREAM_SESSIONS_ENDED;
        assert_eq!(names(ended, 0), kinds);
        assert_eq!(names(ended, 1), transports);
        assert_eq!(names(ended, 2), outcomes);
        assert_eq!(names(&STREAM_SESSIONS, 0), kinds);
        assert_eq!(names(&STREAM_SESSIONS, 1), transports);
        assert_eq!(names(&STREAM_SESSION_DURATION, 0), kinds);
        assert_eq!(names(&STREAM_BYTES, 0), kinds);
        assert_eq!(names(&STREAM_BYTES, 1), directions);
        assert_eq!(names(&STREAM_TOKENS, 0), tokens);
    }
}

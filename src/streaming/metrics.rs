//! Sessions as metrics.

use crate::cri::{Named, names};
use crate::telemetry::family::{Counters, Gauges, Histograms};
use crate::telemetry::metric::{Label, Metric, MetricKind, Unit, label, metrics};
use crate::telemetry::registry::{Registry, RegistryError};
use cri_streaming::{
    Direction, SessionBegin, SessionEnd, SessionKind, SessionObserver, SessionOutcome,
    TokenOutcome, Transport,
};

/// Declares labels with the values of enums that do not know metrics.
macro_rules! labels {
    ($($label:ident: $value:ident = $name:literal;)+) => {$(
        #[doc = concat!("The label `", $name, "`.")]
        #[derive(Clone, Copy, Debug)]
        struct $label($value);

        impl $label {
            const LABEL: Label = label::<Self>($name);
        }

        impl Named for $label {
            const NAMES: &'static [&'static str] = &names!($value::ALL, $value::name);

            fn index(self) -> usize {
                self.0 as usize
            }
        }
    )+};
}

labels! {
    Kind: SessionKind = "kind";
    Via: Transport = "transport";
    Ended: SessionOutcome = "outcome";
    Way: Direction = "direction";
    Token: TokenOutcome = "result";
}

/// Sessions of exec, attach and port-forward: from a probe to a working day.
const SESSION_BUCKETS: &[f64] = &[0.05, 0.25, 1.0, 5.0, 30.0, 300.0, 1800.0, 7200.0, 28800.0];

metrics! {
    STREAM_SESSIONS = Metric::gauge("stream_sessions", Unit::Count, &[Kind::LABEL, Via::LABEL],
        "Sessions of exec, attach and port-forward that are open.");
    STREAM_SESSIONS_ENDED = Metric::counter("stream_sessions_ended_total", &[Kind::LABEL, Via::LABEL, Ended::LABEL],
        "Ended sessions by outcome: the command or container ended or the client closed the session, the client disconnected earlier, the target could not be run or reached, the client opened no streams or violated the protocol, the session was idle for too long, criscope was stopped.");
    STREAM_SESSION_DURATION = Metric::histogram("stream_session_duration_seconds", Unit::Seconds, &[Kind::LABEL], SESSION_BUCKETS,
        "Time from the request for a session to its end.");
    STREAM_BYTES = Metric::new(MetricKind::Counter, "stream_bytes_total", Unit::Bytes, &[Kind::LABEL, Way::LABEL],
        "Bytes that sessions carried to containers and pods (in) and from them (out), without protocol overhead; with it, TLS included, if an upstream serves the session.");
    STREAM_CONNECTIONS = Metric::counter("stream_connections_total", &[],
        "Connections into pods that ended port-forward sessions requested; not counted if an upstream serves the session.");
    STREAM_TOKENS = Metric::counter("stream_tokens_total", &[Token::LABEL],
        "Tokens in the URLs of sessions: issued, used, expired, refused because unknown, and not issued because too many are open (full).");
}

/// Counts sessions. One of the observers of a server.
#[derive(Debug)]
pub struct SessionMetrics {
    open: Gauges<(Kind, Via)>,
    ended: Counters<(Kind, Via, Ended)>,
    duration: Histograms<Kind>,
    bytes: Counters<(Kind, Way)>,
    connections: Counters,
    tokens: Counters<Token>,
}

impl SessionMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If a metric is registered already.
    pub fn register(registry: &Registry) -> Result<Self, RegistryError> {
        // Small families exist from the start, so that the first event counts as an increase.
        Ok(Self {
            open: registry.gauges(&STREAM_SESSIONS)?.with_all_series(),
            ended: registry.counters(&STREAM_SESSIONS_ENDED)?,
            duration: registry.histograms(&STREAM_SESSION_DURATION)?,
            bytes: registry.counters(&STREAM_BYTES)?,
            connections: registry.counters(&STREAM_CONNECTIONS)?.with_all_series(),
            tokens: registry.counters(&STREAM_TOKENS)?.with_all_series(),
        })
    }
}

impl SessionObserver for SessionMetrics {
    fn token(&self, outcome: TokenOutcome, n: u64) {
        self.tokens.inc_by(Token(outcome), n);
    }

    fn began(&self, begin: &SessionBegin<'_>) {
        self.open.add((Kind(begin.kind), Via(begin.transport)), 1);
    }

    fn bytes(&self, kind: SessionKind, direction: Direction, n: u64) {
        self.bytes.inc_by((Kind(kind), Way(direction)), n);
    }

    fn ended(&self, begin: &SessionBegin<'_>, end: &SessionEnd) {
        let (kind, via) = (Kind(begin.kind), Via(begin.transport));
        self.open.add((kind, via), -1);
        self.ended.inc((kind, via, Ended(end.outcome)));
        self.connections.inc_by((), end.connections);
        self.duration.observe(kind, end.duration.as_secs_f64());
    }
}

/// Creates a series of every metric of this module.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    let metrics = SessionMetrics::register(registry).expect("once");
    for kind in SessionKind::ALL.iter().copied() {
        metrics.bytes(kind, Direction::In, 1);
        metrics.bytes(kind, Direction::Out, 1);
        for transport in Transport::ALL.iter().copied() {
            for outcome in SessionOutcome::ALL.iter().copied() {
                let begin = SessionBegin {
                    number: 1,
                    kind,
                    id: "id",
                    transport,
                    protocol: "v4.channel.k8s.io",
                    command: &[],
                    extensions: &http::Extensions::new(),
                    carried: &std::sync::Arc::default(),
                };
                metrics.began(&begin);
                let end = SessionEnd {
                    duration: std::time::Duration::from_secs(1),
                    bytes_in: 1,
                    bytes_out: 1,
                    outcome,
                    exit_code: None,
                    connections: 1,
                    proxied: None,
                };
                metrics.ended(&begin, &end);
            }
        }
    }
}

//! Observation of sessions: their start, traffic and end, never their content.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::Extensions;

/// Declares an enum of label values, with their names.
macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$value_doc])* $value,)*
        }

        impl $name {
            /// All values.
            pub const ALL: &[Self] = &[$(Self::$value,)*];

            /// The name in metrics and logs.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }
    };
}

named! {
    /// The kind of a session.
    SessionKind {
        /// A command in a container.
        Exec = "exec",
        /// The standard streams of a container.
        Attach = "attach",
        /// TCP connections into a pod.
        PortForward = "portforward",
    }
}

named! {
    /// The transport of a session.
    Transport {
        /// SPDY/3.1.
        Spdy = "spdy",
        /// WebSocket, including SPDY tunnelled in it.
        WebSocket = "websocket",
        /// Either of them, inside TLS that is not terminated here, so that the transport is unknown.
        Tls = "tls",
    }
}

named! {
    /// Direction of traffic.
    Direction {
        /// From the client to the container or pod.
        In = "in",
        /// From the container or pod to the client.
        Out = "out",
    }
}

named! {
    /// The outcome of a token.
    TokenOutcome {
        /// Issued.
        Issued = "issued",
        /// Used for a session.
        Used = "used",
        /// Expired, whether or not it was presented.
        Expired = "expired",
        /// Presented but not valid: never issued, used before, or of another kind of session.
        Refused = "refused",
        /// Not issued, because too many are valid.
        Full = "full",
    }
}

named! {
    /// How a session ended.
    SessionOutcome {
        /// The command or container ended, or the client finished port-forwarding.
        Done = "done",
        /// The client disconnected earlier. The command may still be running.
        ClientGone = "client_gone",
        /// The command could not be run, or the container could not be reached.
        Failed = "failed",
        /// The client did not open its streams in time.
        NoStreams = "no_streams",
        /// The client violated the protocol, or did not complete the upgrade.
        Protocol = "protocol",
        /// The idle timeout expired.
        Idle = "idle",
        /// The process was stopped.
        Shutdown = "shutdown",
    }
}

/// What is known of a session from its start. `Debug` does not show the command.
#[derive(Clone, Copy)]
pub struct SessionBegin<'a> {
    /// Number of the session, unique in this process.
    pub number: u64,
    /// The kind of the session.
    pub kind: SessionKind,
    /// Id of the container, or of the sandbox for port-forward.
    pub id: &'a str,
    /// The transport.
    pub transport: Transport,
    /// The negotiated protocol, or why it is unknown.
    pub protocol: &'static str,
    /// The command and its arguments, which may contain secrets.
    pub command: &'a [String],
    /// The extensions that were passed to [`SessionServer::issue`](crate::SessionServer::issue).
    pub extensions: &'a Extensions,
    /// Live counters of the session.
    pub carried: &'a Arc<TrafficCounters>,
}

/// Live counters of a session. Reading them does not block the session.
#[derive(Debug, Default)]
pub struct TrafficCounters {
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    over: AtomicBool,
}

impl TrafficCounters {
    /// Bytes to and from the container or pod, counted as in [`SessionEnd`]; `None` once the session has ended.
    pub fn so_far(&self) -> Option<(u64, u64)> {
        let is_over = self.over.load(Ordering::Relaxed);
        (!is_over).then(|| self.bytes())
    }

    pub(super) fn bytes(&self) -> (u64, u64) {
        (
            self.bytes_in.load(Ordering::Relaxed),
            self.bytes_out.load(Ordering::Relaxed),
        )
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// The end of a session.
#[derive(Clone, Copy, Debug)]
pub struct SessionEnd {
    /// Duration, from the first byte of the request.
    pub duration: Duration,
    /// Bytes from the client to the container or pod, without protocol overhead; including it for a proxied session.
    pub bytes_in: u64,
    /// Bytes to the client, counted in the same way.
    pub bytes_out: u64,
    /// How it ended.
    pub outcome: SessionOutcome,
    /// The exit code of the command, if it was run and its end was observed.
    pub exit_code: Option<i32>,
    /// Forwarded connections.
    pub connections: u64,
    /// Details of a session that was proxied to an upstream.
    pub proxied: Option<ProxiedSession>,
}

/// Details of a session that was proxied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxiedSession {
    /// Time from dialling the upstream to its response, if that can be parsed.
    pub upgrade: Option<Duration>,
    /// Which side closed first.
    pub first: FirstToClose,
}

/// Which side of a proxied session closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstToClose {
    /// The client.
    Client,
    /// The upstream.
    Upstream,
    /// Both were found closed at the same time, so the order is unknown.
    Both,
}

impl SessionBegin<'_> {
    /// The program of the command, without its path and arguments.
    pub fn program(&self) -> Option<&str> {
        let path = self.command.first()?;
        let mut parts = path.rsplit('/');
        Some(parts.find(|part| !part.is_empty()).unwrap_or(path))
    }
}

impl fmt::Debug for SessionBegin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionBegin")
            .field("number", &self.number)
            .field("kind", &self.kind)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ProxiedSession {
    /// The side as a label value.
    pub fn first_to_close(self) -> &'static str {
        match self.first {
            FirstToClose::Client => "client",
            FirstToClose::Upstream => "upstream",
            FirstToClose::Both => "both",
        }
    }
}

/// Receives the events of sessions. Called in the data path of the sessions, so it must not block.
pub trait SessionObserver: Send + Sync + 'static {
    /// Called when `n` tokens had this outcome.
    fn token(&self, _outcome: TokenOutcome, _n: u64) {}

    /// Called when a session starts. Each start is followed by one [`SessionObserver::ended`] with the same number.
    fn began(&self, _begin: &SessionBegin<'_>) {}

    /// Called when a session has transferred `n` more bytes.
    fn bytes(&self, _kind: SessionKind, _direction: Direction, _n: u64) {}

    /// Called when a session has ended.
    fn ended(&self, _begin: &SessionBegin<'_>, _end: &SessionEnd) {}
}

/// All observers.
#[derive(Clone)]
pub struct SessionObservers(pub Arc<[Arc<dyn SessionObserver>]>);

impl std::fmt::Debug for SessionObservers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observers").finish_non_exhaustive()
    }
}

impl SessionObservers {
    /// Calls `notify` with each observer.
    pub fn each(&self, mut notify: impl FnMut(&dyn SessionObserver)) {
        for observer in self.0.iter() {
            notify(observer.as_ref());
        }
    }
}

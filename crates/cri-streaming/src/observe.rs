//! What can be seen of sessions: that they are there, what they carry, and how they end. Never their content.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use http::Extensions;

/// An enum of label values, with their names.
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
    /// What a session is.
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
    /// What carries a session.
    Transport {
        /// SPDY/3.1.
        Spdy = "spdy",
        /// WebSocket, also if there is SPDY inside.
        WebSocket = "websocket",
        /// One of them under TLS that ends elsewhere, so that it cannot be told which.
        Tls = "tls",
    }
}

named! {
    /// Where bytes go.
    Direction {
        /// From the client to the container or pod.
        In = "in",
        /// From the container or pod to the client.
        Out = "out",
    }
}

named! {
    /// What became of a token.
    TokenOutcome {
        /// Given out.
        Issued = "issued",
        /// Used for a session.
        Used = "used",
        /// Too old, whether it was asked for or not.
        Expired = "expired",
        /// PendingSession for and not there: never given out, used before, or of another kind of session.
        Refused = "refused",
        /// Not given out, because too many are.
        Full = "full",
    }
}

named! {
    /// How a session ended.
    Outcome {
        /// The command or container ended, or the client was done with forwarding.
        Done = "done",
        /// The client went away before that. What was run may still run.
        ClientGone = "client_gone",
        /// The command could not be run, or the container not be reached.
        Failed = "failed",
        /// The client did not open its streams in time.
        NoStreams = "no_streams",
        /// The client broke the protocol, or did not complete the upgrade.
        Protocol = "protocol",
        /// Nothing was sent either way for too long.
        Idle = "idle",
        /// This process was told to stop.
        Shutdown = "shutdown",
    }
}

/// A session that begins. It has no `Debug` that shows the command.
pub struct SessionBegin<'a> {
    /// Its number, which its end has too. No other session of this process has it.
    pub number: u64,
    /// What it is.
    pub kind: SessionKind,
    /// Id of its container, or sandbox for port-forward.
    pub id: &'a str,
    /// What carries it.
    pub transport: Transport,
    /// The protocol that was agreed on, or why it is not known.
    pub protocol: &'static str,
    /// The command and its arguments, which may hold secrets.
    pub command: &'a [String],
    /// What was passed to [`Server::issue`](crate::Server::issue).
    pub extensions: &'a Extensions,
    /// What it will carry, for those who want to look while it is open.
    pub carried: &'a Arc<TrafficCounters>,
}

/// What a session has carried so far, and whether it is over. To look at it costs the session nothing.
#[derive(Debug, Default)]
pub struct TrafficCounters {
    pub(super) bytes_in: AtomicU64,
    pub(super) bytes_out: AtomicU64,
    over: AtomicBool,
}

impl TrafficCounters {
    /// Bytes to the container or pod, and from it, as [`SessionEnd`] counts them; `None` once the session is over.
    pub fn so_far(&self) -> Option<(u64, u64)> {
        let is_over = self.over.load(Ordering::Relaxed);
        (!is_over).then(|| self.bytes())
    }

    pub(super) fn bytes(&self) -> (u64, u64) {
        let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
        (read(&self.bytes_in), read(&self.bytes_out))
    }

    pub(super) fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// A session that has ended. It has no `Debug` that shows the command.
pub struct SessionEnd<'a> {
    /// Its number, which its begin had too.
    pub number: u64,
    /// What it was.
    pub kind: SessionKind,
    /// Id of its container, or sandbox for port-forward.
    pub id: &'a str,
    /// What carried it.
    pub transport: Transport,
    /// The protocol that was agreed on.
    pub protocol: &'static str,
    /// How long it lasted, from the first byte of the request.
    pub duration: Duration,
    /// Bytes from the client to the container or pod, without what the protocols add; with it if it is proxied.
    pub bytes_in: u64,
    /// Bytes to the client, likewise.
    pub bytes_out: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// What the command returned, if it was run and seen to end.
    pub exit_code: Option<i32>,
    /// Connections that were forwarded.
    pub connections: u64,
    /// The command and its arguments, which may hold secrets.
    pub command: &'a [String],
    /// What was passed to [`Server::issue`](crate::Server::issue).
    pub extensions: &'a Extensions,
    /// What is known of it if it was served by an upstream.
    pub proxied: Option<Proxied>,
}

/// What is known only of a session that was led through this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proxied {
    /// Time from dialling the upstream to its answer, where that can be read.
    pub upgrade: Option<Duration>,
    /// Who closed first.
    pub first: FirstToClose,
}

/// Which end of a relayed session closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FirstToClose {
    /// The client.
    Client,
    /// The upstream.
    Upstream,
    /// Both had closed by the time that either was seen to: their order is not known.
    Both,
}

/// The program of a command, without its path and arguments.
fn program(command: &[String]) -> Option<&str> {
    let path = command.first()?;
    let mut parts = path.rsplit('/');
    Some(parts.find(|part| !part.is_empty()).unwrap_or(path))
}

impl SessionBegin<'_> {
    /// The program of the command, without its path and arguments.
    pub fn program(&self) -> Option<&str> {
        program(self.command)
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

impl SessionEnd<'_> {
    /// The program of the command, without its path and arguments.
    pub fn program(&self) -> Option<&str> {
        program(self.command)
    }
}

impl fmt::Debug for SessionEnd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEnd")
            .field("number", &self.number)
            .field("kind", &self.kind)
            .field("id", &self.id)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl Proxied {
    /// Who closed first, in one word.
    pub fn first_to_close(self) -> &'static str {
        match self.first {
            FirstToClose::Client => "client",
            FirstToClose::Upstream => "upstream",
            FirstToClose::Both => "both",
        }
    }
}

/// Somebody who wants to know. Called on the path of the sessions, so it must not block.
pub trait Observer: Send + Sync + 'static {
    /// `n` tokens came to this.
    fn token(&self, _outcome: TokenOutcome, _n: u64) {}

    /// A session begins. Each is followed by one [`Observer::ended`] of the same number.
    fn began(&self, _begin: &SessionBegin<'_>) {}

    /// A session carried `n` more bytes.
    fn bytes(&self, _kind: SessionKind, _direction: Direction, _n: u64) {}

    /// A session has ended.
    fn ended(&self, _end: &SessionEnd<'_>) {}
}

/// All who want to know.
#[derive(Clone)]
pub struct Observers(pub Arc<[Arc<dyn Observer>]>);

impl std::fmt::Debug for Observers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observers").finish_non_exhaustive()
    }
}

impl Observers {
    /// Calls `tell` with each of them.
    pub fn each(&self, mut tell: impl FnMut(&dyn Observer)) {
        for observer in self.0.iter() {
            tell(observer.as_ref());
        }
    }
}

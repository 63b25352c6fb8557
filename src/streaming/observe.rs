//! What can be seen of sessions: that they are there, what they carry, and how they end. Never their content.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::cri::Call;

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
    Kind {
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
        /// Asked for and not there: never given out, used before, or of another kind of session.
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

/// A session that has ended. It has no `Debug` that shows the command.
pub struct SessionEnd<'a> {
    /// What it was.
    pub kind: Kind,
    /// Id of its container, or sandbox for port-forward.
    pub id: &'a str,
    /// What carried it.
    pub transport: Transport,
    /// The protocol that was agreed on.
    pub protocol: &'static str,
    /// How long it lasted, from the first byte of the request.
    pub duration: Duration,
    /// Bytes from the client to the container or pod, without what the protocols add; with it if it is relayed.
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
    /// The call that asked for it.
    pub call: Option<&'a Call>,
    /// What is known of it if it was served by an upstream.
    pub relayed: Option<Relayed>,
}

/// What is known only of a session that was led through this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Time from dialling the upstream to its answer.
    pub upgrade: Duration,
    /// Whether it was the client that closed first.
    pub client_first: bool,
}

impl SessionEnd<'_> {
    /// The program of the command, without its path and arguments.
    pub fn program(&self) -> Option<&str> {
        let path = self.command.first()?;
        let mut parts = path.rsplit('/');
        Some(parts.find(|part| !part.is_empty()).unwrap_or(path))
    }
}

impl fmt::Debug for SessionEnd<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionEnd")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .field("outcome", &self.outcome)
            .finish_non_exhaustive()
    }
}

impl Relayed {
    /// Who closed first, in one word.
    pub(super) fn first_to_close(self) -> &'static str {
        match self.client_first {
            true => "client",
            false => "upstream",
        }
    }
}

/// Somebody who wants to know. Called on the path of the sessions, so it must not block.
pub trait Observer: Send + Sync + 'static {
    /// `n` tokens came to this.
    fn token(&self, _outcome: TokenOutcome, _n: u64) {}

    /// A session begins. Each is followed by one [`Observer::ended`].
    fn began(&self, _kind: Kind, _transport: Transport) {}

    /// A session carried `n` more bytes.
    fn bytes(&self, _kind: Kind, _direction: Direction, _n: u64) {}

    /// A session has ended.
    fn ended(&self, _end: &SessionEnd<'_>) {}
}

/// All who want to know.
#[derive(Clone)]
pub(super) struct Observers(pub(super) Arc<[Arc<dyn Observer>]>);

impl Observers {
    pub(super) fn each(&self, mut tell: impl FnMut(&dyn Observer)) {
        for observer in self.0.iter() {
            tell(observer.as_ref());
        }
    }
}

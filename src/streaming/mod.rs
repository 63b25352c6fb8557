//! Exec, attach and port-forward: what a kubelet or crictl does with the URL that those calls of the CRI return.
//!
//! ```text
//!   CRI calls ---> server: a token, a URL                       observe: metrics, audit log
//!                        |                                          ^ tokens, bytes, ends
//!   client  ---> listener: HTTP/1.1 head, token, upgrade            |
//!                        |
//!                       run: one session, idle and stop  --------- session
//!                        |
//!        remote (exec, attach)            forward (port-forward)
//!         spdy      websocket          spdy    tunnel    websocket
//!            \          |                |        |         /
//!             `---- carrier: spdy ------ ' <------'  websocket, channels
//!                        |
//!                     target: what runs commands and connects to ports
//! ```
//!
//! That is the server, for the built-in runtime. The sessions of an upstream are not served here: `relay` leads them
//! through this program, and observes them alike.
//!
//! # Rules
//!
//! - The token is the credential: 128 random bits, for one use, for a minute, for one kind of session. All that a session
//!   may do was said in the call; nothing is taken from its URL.
//! - A session ends in one of the ways of [`Outcome`], and every [`Observer`] hears of it once. None ever sees content.
//! - Each session holds at most a few MiB, whatever a client sends or does not read; there are at most
//!   `streaming.max_sessions`.
//! - What was written is sent, however slowly the client reads, then the ends of the streams, then the result. The client
//!   is given time to hang up, because a connection that is closed too early takes with it what it still carries.
//! - A client that goes ends its session, also while nobody takes its input (`heartbeat`), not the command: the command
//!   sees the end of its input and broken outputs, and [`Streams::gone`] fires, but whether it is then killed is for the
//!   [`Target`] to decide.
//!
//! # Protocols
//!
//! Remote command versions 1 to 5 over SPDY and, as far as there are names for them, over WebSocket; port-forward over
//! SPDY, over SPDY inside WebSocket, and over the channels of WebSocket. The first one of the client's list that is known
//! is taken. Version 1 is served like 2, which its clients understand: it differs by two bugs of its first server.

mod audit;
mod carrier;
mod channels;
mod context;
mod error;
mod forward;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod heartbeat;
mod listener;
pub(crate) mod metrics;
mod observe;
mod pipe;
pub(crate) mod relay;
mod remote;
mod request;
mod run;
mod server;
mod session;
pub mod settings;
pub mod spdy;
mod target;
mod tls;
mod token;
mod trace;
mod upgrade;
pub mod websocket;

pub use self::audit::AuditLog;
pub use self::error::{BindError, Invalid, UrlError};
#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::listener::Listener;
pub use self::metrics::SessionMetrics;
pub use self::observe::{
    Carried, Direction, Kind, Observer, Outcome, Relayed, SessionBegin, SessionEnd, TokenOutcome,
    Transport,
};
#[cfg(any(test, fuzzing))]
pub use self::relay::fuzz as fuzz_relay;
pub use self::relay::{Relay, RelayListener, RelayMetrics};
pub use self::server::Server;
pub use self::target::{Attach, Exec, Input, Output, Size, Streams, Target, TargetError};
pub use self::trace::SessionSpans;

//! Kubernetes `exec`, `attach` and `port-forward` sessions over SPDY/3.1 and WebSocket: the server whose URLs a CRI runtime
//! returns, and the client of a kubelet.
//!
//! ```text
//!   CRI call ----> SessionServer: one token, one URL        SessionObserver: metrics, audit log, traces
//!                    |                                          ^ tokens, bytes, ends of sessions
//!   client  ----> HttpServer: HTTP/1.1 head, token, upgrade     |
//!                    |
//!                   run: one session, idle timeout, stop  --- session
//!                    |
//!       remotecommand (exec, attach)      portforward
//!         spdy      websocket          spdy    tunnel    websocket
//!            \          |                |        |         /
//!             `--- carrier: spdy ------ ' <------'  websocket, channels
//!                       |
//!                    StreamingRuntime: runs commands and connects to ports
//! ```
//!
//! # Guarantees
//!
//! - The token is the credential: 128 random bits, valid once, for a minute, for one kind of session. Everything a session
//!   may do is part of the CRI call; nothing is taken from its URL.
//! - A session ends with exactly one [`SessionOutcome`], which every [`SessionObserver`] receives once. Observers never see content.
//! - A session holds at most a few MiB for any client, even one that does not read, and there are at most
//!   [`ServerConfig::max_sessions`].
//! - Everything that the command has written is sent, however slowly the client reads, then the ends of the streams, then
//!   the status. The client then has time to close, because closing the connection first may discard data in flight.
//! - A client that disconnects ends its session, even while its input is not being read (`heartbeat`), but not the command:
//!   the command sees the end of its input and broken outputs, and [`SessionStreams::gone`] fires. Whether it is then killed is up
//!   to the [`StreamingRuntime`].
//!
//! # Protocols
//!
//! Versions 1 to 5 of the [remote command protocol] over SPDY, and those with a WebSocket name over WebSocket; port-forward
//! over SPDY, over SPDY tunnelled through WebSocket, and over WebSocket channels. The first supported protocol of the
//! client's list is chosen. Version 1 is served as version 2, which its clients understand: they differ only by bugs of the
//! first server.
//!
//! [remote command protocol]: https://pkg.go.dev/k8s.io/apimachinery/pkg/util/remotecommand

mod channels;
pub mod client;
mod context;
mod error;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod heartbeat;
mod http_server;
mod observe;
mod pipe;
mod portforward;
mod remotecommand;
mod request;
mod run;
mod runtime;
mod server;
mod session;
pub mod socket;
pub mod spdy;
mod spdy_session;
mod state;
mod token;
mod upgrade;
pub mod websocket;

pub use self::error::UrlError;
#[cfg(any(test, fuzzing))]
pub use self::fuzz::fuzz;
pub use self::http_server::{HEAD_TIMEOUT, HttpServer};
pub use self::observe::{
    Direction, FirstToClose, ProxiedSession, SessionBegin, SessionEnd, SessionKind,
    SessionObserver, SessionObservers, SessionOutcome, TokenOutcome, TrafficCounters, Transport,
};
pub use self::request::{InvalidRequest, SessionRequest, SessionTarget, StreamOptions};
pub use self::runtime::{
    AttachRequest, ExecRequest, InputStream, OutputStream, RuntimeError, SessionStreams,
    StreamingRuntime, TerminalSize,
};
pub use self::server::SessionServer;
pub use self::session::{ObservedSession, SessionInfo, SessionMeter, SessionResult};
pub use self::state::ServerConfig;
pub use self::token::SessionTokens;
pub use self::upgrade::protocol_name;

/// The examples of the README compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! The settings of a server, and the state that it shares with its sessions.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::observe::SessionObservers;
use super::request::PendingSession;
use super::runtime::StreamingRuntime;
use super::token::SessionTokens;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Scheme, host and port of the issued URLs, without a trailing slash.
    pub base_url: String,
    /// Idle timeout: sessions end after this long without a byte in either direction.
    pub idle_timeout: Duration,
    /// How long a SPDY client may take to open its streams.
    pub creation_timeout: Duration,
    /// Maximum number of concurrent sessions.
    pub max_sessions: usize,
}

/// State shared by the server and its sessions.
pub(super) struct ServerState {
    pub(super) config: ServerConfig,
    pub(super) runtime: Arc<dyn StreamingRuntime>,
    pub(super) observers: SessionObservers,
    pub(super) tokens: SessionTokens<PendingSession>,
    /// Permits for sessions.
    pub(super) permits: Arc<Semaphore>,
}

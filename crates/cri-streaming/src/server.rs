//! The server as seen by the CRI: takes a request and returns a URL.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::error::UrlError;
use super::http_server::HttpServer;
use super::observe::SessionObservers;
use super::request::{PendingSession, SessionRequest};
use super::runtime::StreamingRuntime;
use super::state::{ServerConfig, ServerState};
use super::token::SessionTokens;

/// Lifetime of a token. The kubelet uses it immediately.
const TOKEN_LIFETIME: Duration = Duration::from_secs(60);
/// Maximum number of tokens that are valid at the same time.
const MAX_TOKENS: usize = 1000;

/// Issues URLs for sessions and serves them. Cheap to clone.
#[derive(Clone)]
pub struct SessionServer(Arc<ServerState>);

impl std::fmt::Debug for SessionServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("config", &self.0.config)
            .finish_non_exhaustive()
    }
}

impl SessionServer {
    /// Creates a server. It serves the connections that are passed to [`HttpServer::serve_connection`].
    pub fn new(
        config: ServerConfig,
        runtime: Arc<dyn StreamingRuntime>,
        observers: SessionObservers,
    ) -> Self {
        Self(Arc::new(ServerState {
            permits: Arc::new(Semaphore::new(config.max_sessions)),
            config,
            runtime,
            tokens: SessionTokens::new(
                MAX_TOKENS,
                TOKEN_LIFETIME,
                |pending| pending.request.kind(),
                observers.clone(),
            ),
            observers,
        }))
    }

    /// Returns a URL for a session, valid once and for a minute. `extensions` are passed to the observers of the
    /// session, for example the call that requested it.
    ///
    /// # Errors
    /// If too many URLs were issued and not used.
    pub fn issue(
        &self,
        request: SessionRequest,
        extensions: Extensions,
    ) -> Result<String, UrlError> {
        let path = self.0.tokens.issue(PendingSession {
            request,
            extensions,
        })?;
        Ok(format!("{}{path}", self.0.config.base_url))
    }

    /// Removes expired tokens. Otherwise they are removed when the next URL is issued.
    pub fn sweep(&self) {
        self.0.tokens.sweep();
    }

    /// Returns the server for connections. Sessions run as tasks of `tasks` and end when `stop` is cancelled.
    pub fn http(&self, stop: CancellationToken, tasks: TaskTracker) -> HttpServer {
        HttpServer::new(Arc::clone(&self.0), stop, tasks)
    }
}

//! The server as the calls of the CRI see it: they hand in what is to be run, and get a URL.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::error::{BindError, UrlError};
use super::listener::Listener;
use super::observe::{Observer, Observers};
use super::request::{Asked, Request};
use super::settings::Streaming;
use super::target::Target;
use super::tls;
use super::token::{NoToken, Tokens};
use crate::call::Call;
use crate::cri::v1;

/// How long a token may be used. The kubelet uses it at once.
const TOKEN_LIFETIME: Duration = Duration::from_secs(60);
/// Tokens that may wait to be used.
const MAX_TOKENS: usize = 1000;

/// Gives out URLs for sessions. Cheap to clone.
#[derive(Clone)]
pub struct Server(Arc<Shared>);

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("base_url", &self.0.base_url)
            .finish_non_exhaustive()
    }
}

/// What the server and its sessions share.
pub(super) struct Shared {
    pub(super) target: Arc<dyn Target>,
    pub(super) observers: Observers,
    pub(super) tokens: Tokens<Asked>,
    base_url: String,
    pub(super) idle_timeout: Duration,
    pub(super) creation_timeout: Duration,
    pub(super) max_sessions: usize,
    /// Places for sessions.
    pub(super) places: Arc<Semaphore>,
}

impl Server {
    /// Listens. Nothing is served until [`Listener::serve`].
    ///
    /// # Errors
    /// If the address is taken, or the files of TLS are not right.
    pub async fn bind(
        settings: &Streaming,
        target: Arc<dyn Target>,
        observers: Vec<Arc<dyn Observer>>,
    ) -> Result<(Self, Listener), BindError> {
        let tls = match &settings.tls() {
            Some(files) => Some(read_tls(files.cert.clone(), files.key.clone()).await?),
            None => None,
        };
        let failed = |source| BindError::Listen {
            address: settings.listen,
            source,
        };
        let tcp = TcpListener::bind(settings.listen).await.map_err(failed)?;
        let address = tcp.local_addr().map_err(failed)?;
        let base_url = match &settings.base_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => url_of(address, tls.is_some()),
        };
        let observers = Observers(observers.into());
        let kind = |asked: &Asked| asked.request.kind();
        let shared = Arc::new(Shared {
            target,
            tokens: Tokens::new(MAX_TOKENS, TOKEN_LIFETIME, kind, observers.clone()),
            observers,
            base_url,
            idle_timeout: settings.idle_timeout,
            creation_timeout: settings.creation_timeout,
            max_sessions: settings.max_sessions,
            places: Arc::new(Semaphore::new(settings.max_sessions)),
        });
        let listener = Listener::new(tcp, address, tls, Arc::clone(&shared));
        Ok((Self(shared), listener))
    }

    /// A URL for running a command, asked for by this call. It can be used once, within a minute.
    ///
    /// # Errors
    /// If the request makes no sense, or too many were made.
    pub fn exec(
        &self,
        request: v1::ExecRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String, UrlError> {
        self.0.issue(Request::exec(request)?, call)
    }

    /// A URL for connecting to a container.
    ///
    /// # Errors
    /// As [`Server::exec`].
    pub fn attach(
        &self,
        request: v1::AttachRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String, UrlError> {
        self.0.issue(Request::attach(request)?, call)
    }

    /// A URL for connecting to ports of a pod.
    ///
    /// # Errors
    /// As [`Server::exec`].
    pub fn port_forward(
        &self,
        request: v1::PortForwardRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String, UrlError> {
        self.0.issue(Request::port_forward(request)?, call)
    }
}

/// Reads the files of TLS, which may take a while.
async fn read_tls(
    cert: std::path::PathBuf,
    key: std::path::PathBuf,
) -> Result<TlsAcceptor, BindError> {
    let reading = tokio::task::spawn_blocking(move || tls::acceptor(&cert, &key));
    match reading.await {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Where a client on this node finds the address. A server on all addresses is found on loopback.
fn url_of(address: SocketAddr, tls: bool) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

impl Shared {
    fn issue(&self, request: Request, call: Option<Arc<Call>>) -> Result<String, UrlError> {
        match self.tokens.issue(Asked { request, call }) {
            Ok(path) => Ok(format!("{}{path}", self.base_url)),
            Err(NoToken::Full) => Err(UrlError::Full),
            Err(NoToken::Random) => Err(UrlError::Random),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_leads_to_where_the_server_is() {
        let url = |address: &str, tls| url_of(address.parse().expect("an address"), tls);
        assert_eq!(url("127.0.0.1:80", false), "http://127.0.0.1:80");
        assert_eq!(url("[::1]:443", true), "https://[::1]:443");
        assert_eq!(url("0.0.0.0:1", false), "http://127.0.0.1:1");
        assert_eq!(url("[::]:1", false), "http://[::1]:1");
    }
}

//! The server's interface for CRI calls: request in, URL out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use cri_streaming::{
    AttachRequest, ExecRequest, InvalidRequest, ServerConfig, SessionObserver, SessionObservers,
    SessionRequest, StreamOptions, StreamingRuntime, UrlError,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::error::StreamingBindError;
use super::listener::StreamingListener;
use super::settings::{StreamingSettings, StreamingTls};
use super::{extensions, tls};
use crate::call::Call;
use crate::cri::v1;
use crate::tls::TlsCertificate;

/// Issues URLs for sessions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StreamingServer(cri_streaming::SessionServer);

impl StreamingServer {
    /// Listens. Nothing is served until [`StreamingListener::serve`].
    ///
    /// # Errors
    /// If the address is taken, or the TLS files are invalid.
    pub async fn bind(
        settings: &StreamingSettings,
        target: Arc<dyn StreamingRuntime>,
        observers: Vec<Arc<dyn SessionObserver>>,
    ) -> Result<(Self, StreamingListener), StreamingBindError> {
        let tls = match settings.tls() {
            Some(files) => Some(read_tls(files).await?),
            None => None,
        };
        let bound = TcpListener::bind(settings.listen).await;
        let bound = bound.and_then(|tcp| tcp.local_addr().map(|address| (tcp, address)));
        let (tcp, address) = bound.map_err(|source| StreamingBindError::Listen {
            address: settings.listen,
            source,
        })?;
        let base_url = match &settings.base_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => url_of(address, tls.is_some()),
        };
        let config = ServerConfig {
            base_url,
            idle_timeout: settings.idle_timeout,
            creation_timeout: settings.creation_timeout,
            max_sessions: settings.max_sessions,
        };
        let server =
            cri_streaming::SessionServer::new(config, target, SessionObservers(observers.into()));
        let listener = StreamingListener {
            tcp,
            address,
            tls,
            server: server.clone(),
            max_sessions: settings.max_sessions,
        };
        Ok((Self(server), listener))
    }

    /// Returns a URL for running a command. It is valid once, within a minute.
    ///
    /// # Errors
    /// If the request is invalid, or too many URLs were issued and not used.
    pub fn exec(
        &self,
        request: v1::ExecRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String, UrlError> {
        let wanted = StreamOptions {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        };
        let exec = ExecRequest {
            container: request.container_id,
            argv: request.cmd,
            tty: request.tty,
        };
        self.issue(SessionRequest::exec(exec, wanted), call)
    }

    /// Returns a URL for attaching to a container.
    ///
    /// # Errors
    /// If the request is invalid, or too many URLs were issued and not used.
    pub fn attach(
        &self,
        request: v1::AttachRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String, UrlError> {
        let wanted = StreamOptions {
            stdin: request.stdin,
            stdout: request.stdout,
            stderr: request.stderr,
            tty: request.tty,
        };
        let attach = AttachRequest {
            container: request.container_id,
            tty: request.tty,
        };
        self.issue(SessionRequest::attach(attach, wanted), call)
    }

    /// Returns a URL for connections to ports of a pod.
    ///
    /// # Errors
    /// If the request is invalid, or too many URLs were issued and not used.
    pub fn port_forward(
        &self,
        request: v1::PortForwardRequest,
        call: Option<Arc<Call>>,
    ) -> Result<String, UrlError> {
        let forward = SessionRequest::port_forward(request.pod_sandbox_id, &request.port);
        self.issue(forward, call)
    }

    fn issue(
        &self,
        request: Result<SessionRequest, InvalidRequest>,
        call: Option<Arc<Call>>,
    ) -> Result<String, UrlError> {
        self.0.issue(request?, extensions(call))
    }
}

/// Reads the TLS files, which may take a while.
async fn read_tls(
    files: StreamingTls,
) -> Result<(TlsAcceptor, Arc<TlsCertificate>), StreamingBindError> {
    let reading = tokio::task::spawn_blocking(move || tls::open(&files));
    let pair = match reading.await {
        Ok(result) => result?,
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    };
    Ok((tls::acceptor(Arc::clone(&pair))?, pair))
}

/// The URL for a client on this node. A wildcard address becomes loopback.
fn url_of(address: SocketAddr, tls: bool) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let scheme = if tls { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_have_a_reachable_address() {
        let url = |address: &str, tls| url_of(address.parse().expect("an address"), tls);
        assert_eq!(url("127.0.0.1:80", false), "http://127.0.0.1:80");
        assert_eq!(url("[::1]:443", true), "https://[::1]:443");
        assert_eq!(url("0.0.0.0:1", false), "http://127.0.0.1:1");
        assert_eq!(url("[::]:1", false), "http://[::1]:1");
    }
}

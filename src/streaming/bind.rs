//! Binding: the address, the certificate, and the server of sessions behind them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use cri_streaming::{
    ServerConfig, SessionObserver, SessionObservers, SessionServer, StreamingRuntime,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::error::StreamingBindError;
use super::listener::StreamingListener;
use super::settings::{StreamingSettings, StreamingTls};
use super::tls;
use crate::tls::TlsCertificate;

impl StreamingListener {
    /// Listens. Nothing is served until [`Self::serve`].
    ///
    /// # Errors
    /// If the address is taken, or the TLS files are invalid.
    pub async fn bind(
        settings: &StreamingSettings,
        target: Arc<dyn StreamingRuntime>,
        observers: Vec<Arc<dyn SessionObserver>>,
    ) -> Result<Self, StreamingBindError> {
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
        Ok(Self {
            tcp,
            address,
            tls,
            server: SessionServer::new(config, target, SessionObservers(observers.into())),
            max_sessions: settings.max_sessions,
        })
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

//! A streaming server behind criscope.

use std::net::SocketAddr;

use criscope::streaming::settings::StreamingTls;
use prost::Message as _;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::prelude::*;

/// Must not appear in any log line.
pub(super) const SECRET: &str = "kwyjibozq";

/// The container of the pod `shop/web`.
pub(super) const CONTAINER: &str = "c0ffee";

/// A response to an upgrade, with extra headers.
pub(super) const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nX-odd:   kept \r\nConnection: Upgrade\r\n\
     X-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n";

/// A streaming server that records requests.
pub(super) struct Upstream {
    scheme: &'static str,
    address: SocketAddr,
    /// The request heads.
    pub(super) heads: Arc<Mutex<Vec<String>>>,
    /// The number of connections, with or without a request.
    pub(super) connections: Arc<AtomicUsize>,
    serving: JoinHandle<()>,
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl Upstream {
    /// Responds with these bytes, then echoes its input.
    pub(super) async fn that_says(answer: &'static str) -> Self {
        Self::with(None, answer).await
    }

    /// Like `that_says`, with TLS.
    pub(super) async fn that_says_with_tls(answer: &'static str, files: &StreamingTls) -> Self {
        Self::with(Some(acceptor(files)), answer).await
    }

    async fn with(tls: Option<TlsAcceptor>, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("address");
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let connections = Arc::<AtomicUsize>::default();
        let (kept, counted) = (Arc::clone(&heads), Arc::clone(&connections));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let serving = tokio::spawn(async move {
            loop {
                let (tcp, _) = listener.accept().await.expect("accepted");
                counted.fetch_add(1, Ordering::Relaxed);
                let (tls, kept) = (tls.clone(), Arc::clone(&kept));
                tokio::spawn(async move {
                    match tls {
                        None => echo(tcp, answer, kept).await,
                        Some(tls) => {
                            // A client that does not trust it disconnects.
                            if let Ok(tls) = tls.accept(tcp).await {
                                echo(tls, answer, kept).await;
                            }
                        }
                    }
                });
            }
        });
        Self {
            scheme,
            address,
            heads,
            connections,
            serving,
        }
    }

    pub(super) fn url(&self) -> String {
        format!("{}://{}/exec/T0ken?x=%20y", self.scheme, self.address)
    }
}

fn acceptor(files: &StreamingTls) -> TlsAcceptor {
    let certs = CertificateDer::pem_file_iter(&files.cert).expect("PEM");
    let certs = certs.map(|cert| cert.expect("a certificate")).collect();
    let key = PrivateKeyDer::from_pem_file(&files.key).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .expect("a pair");
    TlsAcceptor::from(Arc::new(config))
}

async fn echo<T>(mut tcp: T, answer: &str, heads: Arc<Mutex<Vec<String>>>)
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = tcp.read_u8().await else {
            return;
        };
        head.push(byte);
    }
    lock(&heads).push(String::from_utf8(head).expect("text"));
    // The client may have disconnected.
    let _ = tcp.write_all(answer.as_bytes()).await;
    let _ = tcp.flush().await;
    let (mut read, mut write) = tokio::io::split(tcp);
    let _ = tokio::io::copy(&mut read, &mut write).await;
    let _ = write.shutdown().await;
}

/// criscope in front of a runtime that returns this URL, between two unknown fields.
pub(super) async fn before(config: &str, url: &str) -> (Fake, Proxy) {
    let fake = Fake::new();
    fake.node().add_pod("web", "5a4db0", CONTAINER);
    fake.always(script::ok(&[message(&answer(url))]));
    let proxy = configured(&fake, config).await;
    proxy
        .wait_scrape("the index", |s| {
            s.metric("criscope_identity_entries").sum() == 2.0
        })
        .await;
    (fake, proxy)
}

pub(super) fn answer(url: &str) -> Vec<u8> {
    let url = v1::ExecResponse { url: url.into() }.encode_to_vec();
    [&[0x10, 0x81, 0x00][..], &url, &[0x1a, 2, b'h', b'i']].concat()
}

pub(super) fn exec() -> Bytes {
    exec_in(CONTAINER)
}

fn exec_in(container: &str) -> Bytes {
    encode(&requests::exec(
        container,
        vec!["/bin/sh".into(), SECRET.into()],
        "io",
    ))
}

/// Requests a session; returns its URL.
pub(super) async fn url_of(proxy: &Proxy) -> String {
    url_in(proxy, CONTAINER).await
}

/// Requests a session in this container; returns its URL.
pub(super) async fn url_in(proxy: &Proxy, container: &str) -> String {
    let client = proxy.client().await;
    let got = client.call(Call::runtime("Exec", exec_in(container))).await;
    assert_eq!(got.code(), 0, "{}", got.text());
    let answer = v1::ExecResponse::decode(&got.data[5..]).expect("a message");
    answer.url
}

pub(super) fn head(path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: node:10250\r\nX-Stream-Protocol-Version: v5.channel.k8s.io\r\nuser-agent:  odd \r\n\
         X-Stream-Protocol-Version: v4.channel.k8s.io\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"
    )
}

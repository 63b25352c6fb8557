//! Sessions of an upstream with TLS, proxied by criscope, which cannot decrypt them.

use std::net::SocketAddr;

use criscope::streaming::settings::StreamingTls;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::client::TlsStream;

use super::http::{closed_port, connect, parts};
use super::tls::{certificate, connect_with_tls};
use super::upstream::{CONTAINER, SWITCHING, Upstream, answer, before, head, url_of};
use crate::prelude::*;

struct Fixture {
    files: StreamingTls,
    upstream: Upstream,
    _dir: TempDir,
}

impl Fixture {
    async fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let files = certificate(dir.path());
        let upstream = Upstream::that_says_with_tls(SWITCHING, &files).await;
        Self {
            files,
            upstream,
            _dir: dir,
        }
    }

    fn connections(&self) -> usize {
        self.upstream.connections.load(Ordering::Relaxed)
    }
}

fn port(url: &str) -> u16 {
    let address: SocketAddr = parts(url).0.parse().expect("an address");
    address.port()
}

/// Starts a session.
async fn begin(url: &str, cert: &Path) -> TlsStream<TcpStream> {
    let mut tls = connect_with_tls(url, cert).await;
    let head = head(parts(url).1);
    tls.write_all(head.as_bytes()).await.expect("sent");
    let mut came = vec![0; SWITCHING.len()];
    soon("the answer", tls.read_exact(&mut came))
        .await
        .expect("whole");
    assert_eq!(came, SWITCHING.as_bytes());
    tls
}

async fn sessions(proxy: &Proxy) -> f64 {
    let scrape = proxy.scrape().await;
    let open = scrape.metric("criscope_stream_sessions");
    open.with("transport", "tls").sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_under_tls_is_observed_from_outside() {
    let fixture = Fixture::new().await;
    let (_fake, proxy) = before("", &fixture.upstream.url()).await;
    let ours = url_of(&proxy).await;
    let theirs = fixture.upstream.url();
    assert_ne!(port(&ours), port(&theirs));
    assert_eq!(
        ours.replace(&format!(":{}/", port(&ours)), ""),
        theirs.replace(&format!(":{}/", port(&theirs)), ""),
        "only the port is changed"
    );

    // A successful end-to-end handshake proves that no byte was changed in between.
    let mut tls = begin(&ours, &fixture.files.cert).await;
    assert_eq!(sessions(&proxy).await, 1.0);
    let sent = "\u{0}bytes, and more".repeat(10_000);
    let (mut read, mut write) = tokio::io::split(&mut tls);
    let write = async {
        write.write_all(sent.as_bytes()).await.expect("sent");
        write.flush().await.expect("sent");
    };
    let mut came = vec![0; sent.len()];
    let (_, read) = tokio::join!(write, soon("all of it", read.read_exact(&mut came)));
    read.expect("a complete echo");
    assert!(came == sent.as_bytes(), "what came back differs");
    assert_eq!(*lock(&fixture.upstream.heads), [head("/exec/T0ken?x=%20y")]);
    // Without close_notify: the upstream would close on it, possibly before it sees the end of this connection.
    drop(tls);

    let line = proxy.wait_event("stream.session").await;
    for (field, value) in [
        ("stream.kind", "exec"),
        ("container.id", CONTAINER),
        ("stream.transport", "tls"),
        ("stream.protocol", "encrypted"),
        ("process.executable.name", "sh"),
        ("k8s.pod.name", "web"),
        ("first_to_close", "client"),
        ("stream.outcome", "client_gone"),
    ] {
        assert_eq!(line[field], value, "{field}: {line}");
    }
    for field in ["stream.bytes.in", "stream.bytes.out"] {
        let bytes = line[field].as_u64().expect("a number");
        assert!(bytes > sent.len() as u64, "{field}: {line}");
    }
    assert!(line["process.exit.code"].is_null() && line["upgrade_ms"].is_null());
    assert_eq!(sessions(&proxy).await, 0.0);
    let scrape = proxy.scrape().await;
    let led = scrape.metric("criscope_stream_urls_total");
    assert_eq!(led.with("result", "proxied").sum(), 1.0);
    let (_, page) = proxy.get("/debug/pods/shop/web").await;
    assert!(page.contains("exec sh"), "{page}");
    let log = proxy.stop().await.join("\n");
    assert!(!log.contains("T0ken"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_speak_tls_do_not_reach_the_upstream() {
    let fixture = Fixture::new().await;
    let (_fake, proxy) = before("", &fixture.upstream.url()).await;
    let url = url_of(&proxy).await;
    for request in [&head(parts(&url).1)[..], "\u{0}", ""] {
        let mut tcp = connect(&url).await;
        tcp.write_all(request.as_bytes()).await.expect("sent");
        tcp.shutdown().await.expect("ended");
        let mut came = Vec::new();
        // Reset or closed.
        let _ = soon("the end", tcp.read_to_end(&mut came)).await;
        assert!(came.is_empty(), "{came:?}");
    }
    assert_eq!(fixture.connections(), 0);

    // Neither that, nor a client that does not trust the certificate, affects other sessions.
    let stranger = tempfile::tempdir().expect("a directory");
    let stranger = certificate(stranger.path());
    let tcp = connect(&url).await;
    let name = rustls::pki_types::ServerName::try_from("127.0.0.1").expect("a name");
    let distrust = super::tls::connector(&stranger.cert, &[]).connect(name, tcp);
    soon("a refusal", distrust).await.expect_err("not trusted");
    let tls = begin(&url, &fixture.files.cert).await;
    assert_eq!(fixture.connections(), 2);
    drop(tls);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_absent_upstream_creates_no_session() {
    let (_held, address) = closed_port();
    let (_fake, proxy) = before("", &format!("https://{address}/exec/T0ken")).await;
    let url = url_of(&proxy).await;
    let mut tcp = connect(&url).await;
    tcp.write_all(&[22, 3, 1]).await.expect("sent");
    let mut came = Vec::new();
    let _ = soon("the end", tcp.read_to_end(&mut came)).await;
    assert!(came.is_empty(), "{came:?}");
    proxy.wait_event("stream.refused").await;
    let scrape = proxy.scrape().await;
    let answers = scrape.metric("criscope_stream_upstream_answers_total");
    assert_eq!(answers.with("status", "none").sum(), 1.0);
    let ended = scrape.metric("criscope_stream_sessions_ended_total");
    assert_eq!(ended.sum(), 0.0);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upstream_that_closes_immediately_is_a_failure() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .expect("bound");
    let address = listener.local_addr().expect("an address");
    let (_fake, proxy) = before("", &format!("https://{address}/exec/T0ken")).await;
    let mut tcp = connect(&url_of(&proxy).await).await;
    tcp.write_all(&[22, 3, 1]).await.expect("sent");
    let (mut upstream, _) = soon("a connection", listener.accept())
        .await
        .expect("accepted");
    let mut hello = [0; 3];
    upstream.read_exact(&mut hello).await.expect("all of it");
    assert_eq!(hello, [22, 3, 1]);
    drop(upstream);
    let _ = soon("the end", tcp.read_u8())
        .await
        .expect_err("nothing comes");
    drop(tcp);
    let line = proxy.wait_event("stream.session").await;
    assert_eq!(line["stream.outcome"], "failed", "{line}");
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_under_tls_end_with_the_program() {
    let fixture = Fixture::new().await;
    let (fake, proxy) = before("", &fixture.upstream.url()).await;
    let mut tls = begin(&url_of(&proxy).await, &fixture.files.cert).await;
    // An unused session does not delay it, nor does one over IPv6.
    url_of(&proxy).await;
    let six = format!("https://[::1]:{}/exec/T0ken", port(&fixture.upstream.url()));
    fake.always(script::ok(&[message(&answer(&six))]));
    let six = url_of(&proxy).await;
    assert!(six.starts_with("https://[::1]:"), "{six}");
    proxy.signal(Signal::SIGTERM);
    let _ = soon("the end", tls.read_u8())
        .await
        .expect_err("nothing more");
    let (status, log) = proxy.ended().await;
    assert!(status.success(), "{status}");
    let end = log.iter().find(|line| line.contains("stream.session"));
    assert!(end.is_some_and(|line| line.contains("shutdown")), "{log:?}");
    TcpStream::connect(parts(&six).0)
        .await
        .expect_err("nothing listens");
}

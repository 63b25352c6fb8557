//! TLS, with a certificate made by openssl.

use criscope::streaming::settings::StreamingTls;
use criscope::streaming::{StreamingBindError, StreamingListener};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http::{ask, connect, parts, websocket_head};
use super::server::{Fixture, settings};
use super::target::Fake;
use super::websocket::WebSocket;
use crate::prelude::*;

/// Creates a certificate for 127.0.0.1, and its key.
pub(crate) fn certificate(dir: &Path) -> StreamingTls {
    let files = StreamingTls {
        cert: dir.join("cert.pem"),
        key: dir.join("key.pem"),
    };
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
        ])
        .args(["-nodes", "-days", "2", "-subj", "/CN=streaming"])
        .args(["-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&files.key)
        .arg("-out")
        .arg(&files.cert)
        .output()
        .expect("openssl");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    files
}

/// A client that trusts this certificate, and offers these protocols.
pub(super) fn connector(cert: &Path, protocols: &[&str]) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for cert in CertificateDer::pem_file_iter(cert).expect("PEM") {
        roots.add(cert.expect("a certificate")).expect("added");
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|p| p.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config))
}

/// Connects to a server with this certificate.
pub(crate) async fn connect_with_tls(url: &str, cert: &Path) -> TlsStream<TcpStream> {
    connect_for(url, cert, &["http/1.1"]).await
}

async fn connect_for(url: &str, cert: &Path, protocols: &[&str]) -> TlsStream<TcpStream> {
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    let tcp = connect(url).await;
    connector(cert, protocols)
        .connect(name, tcp)
        .await
        .expect("TLS")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_over_tls() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = certificate(dir.path());
    let mut settings = settings();
    settings.tls_cert = Some(files.cert.clone());
    settings.tls_key = Some(files.key.clone());
    let fixture = Fixture::with(settings).await;
    let url = fixture.exec(&["say", "secretly"], "o");
    assert!(url.starts_with("https://127.0.0.1:"), "{url}");
    // It prefers HTTP/2.
    let mut tls = connect_for(&url, &files.cert, &["h2", "http/1.1"]).await;
    assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = ask(
        &mut tls,
        &websocket_head(parts(&url).1, "v5.channel.k8s.io"),
    )
    .await;
    assert_eq!(answer.status, 101);
    let socket = WebSocket::new(tls);
    assert_eq!(socket.closed().await, 1000);
    let look = |state: &super::websocket::State| Some(state.channels[1].clone());
    assert_eq!(socket.wait("output", look).await, b"out:secretly");
    drop(socket);
    // Without TLS there is no response.
    let url = fixture.exec(&["say", "secretly"], "o");
    let mut plain = connect(&url).await;
    let head = websocket_head(parts(&url).1, "v5.channel.k8s.io");
    tokio::io::AsyncWriteExt::write_all(&mut plain, head.as_bytes())
        .await
        .expect("sent");
    let mut answer = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut plain, &mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    drop(plain);
    fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_certificate_is_shown_and_open_sessions_go_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let files = certificate(dir.path());
    let old = dir.path().join("old.pem");
    fs::copy(&files.cert, &old).expect("copied");
    let mut settings = settings();
    settings.tls_cert = Some(files.cert.clone());
    settings.tls_key = Some(files.key.clone());
    let fixture = Fixture::with(settings).await;
    let url = fixture.exec(&["cat"], "io");
    let mut tls = connect_with_tls(&url, &old).await;
    let head = websocket_head(parts(&url).1, "v5.channel.k8s.io");
    assert_eq!(ask(&mut tls, &head).await.status, 101);
    let mut open = WebSocket::new(tls);

    let next_dir = tempfile::tempdir().expect("a directory");
    let next = certificate(next_dir.path());
    fs::rename(&next.cert, &files.cert).expect("renamed");
    fs::rename(&next.key, &files.key).expect("renamed");
    // The new certificate is trusted, and soon the old one fails.
    until_true("the renewed certificate", async || {
        let name = ServerName::try_from("127.0.0.1").expect("a name");
        let connector = connector(&files.cert, &["http/1.1"]);
        let tls = connector.connect(name, connect(&url).await).await;
        tls.is_ok()
    })
    .await;
    open.send(0, b"still here").await;
    let look = |state: &super::websocket::State| {
        Some(state.channels[1].clone()).filter(|output| output == b"still here")
    };
    open.wait("the echo", look).await;
    open.close().await;
    drop(open);
    fixture.stop().await;
}

#[tokio::test]
async fn invalid_files_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let right = certificate(dir.path());
    let other_dir = tempfile::tempdir().expect("a directory");
    let other = certificate(other_dir.path());
    let bad = dir.path().join("bad.pem");
    fs::write(&bad, "no PEM").expect("written");
    for (cert, key, named) in [
        (&right.cert, &bad, &bad),
        (&bad, &right.key, &bad),
        (
            &dir.path().join("gone.pem"),
            &right.key,
            &dir.path().join("gone.pem"),
        ),
        (&right.cert, &other.key, &right.cert),
    ] {
        let mut settings = settings();
        settings.tls_cert = Some(cert.clone());
        settings.tls_key = Some(key.clone());
        let bound = StreamingListener::bind(&settings, Arc::new(Fake::default()), vec![]).await;
        let error = bound.expect_err("refused");
        assert!(matches!(error, StreamingBindError::Pair(_)));
        let text = error.to_string();
        assert!(text.starts_with(&named.display().to_string()), "{text}");
    }
}

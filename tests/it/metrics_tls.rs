//! Metrics and health for other machines: who is served, and what.

use std::io;

use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;

use crate::harness::pki::{Authority, Pair, Validity};
use crate::prelude::*;

const TOKEN: &str = "Bearer token-of-today";

/// A criscope with `metrics.listen`, its authority, and the directory of its web configuration file.
struct Node {
    authority: Authority,
    dir: TempDir,
    port: u16,
    // Dropped before the runtime behind it.
    proxy: Proxy,
    _fake: Fake,
}

impl Node {
    async fn new(web_config: Option<&str>) -> Self {
        let (authority, dir) = (Authority::new(), tempfile::tempdir().expect("a directory"));
        let server = authority.server("node");
        for (from, to) in [(&server.cert, "node.crt"), (&server.key, "node.key")] {
            fs::copy(from, dir.path().join(to)).expect("copied");
        }
        fs::copy(authority.ca(), dir.path().join("ca.crt")).expect("copied");
        fs::write(
            dir.path().join("tokens"),
            "token-of-yesterday\ntoken-of-today\n",
        )
        .expect("written");
        let file = dir.path().join("web.yaml");
        if let Some(text) = web_config {
            fs::write(&file, text).expect("written");
        }
        let port = free_port();
        let config = format!(
            "[metrics]\nlisten = \"127.0.0.1:{port}\"\nweb_config = \"{}\"\n",
            file.display()
        );
        let fake = Fake::new();
        let proxy = configured(&fake, &config).await;
        Self {
            authority,
            dir,
            port,
            proxy,
            _fake: fake,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The status and body of a request, or why there is none.
    async fn get(
        &self,
        path: &str,
        pair: Option<&Pair>,
        authorization: &str,
    ) -> io::Result<(u16, String)> {
        let config = Arc::new(client(&self.authority.ca(), pair));
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        let mut stream = TlsConnector::from(config).connect(name, stream).await?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: node.example\r\nauthorization: {authorization}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        let status = answer.split(' ').nth(1).and_then(|it| it.parse().ok());
        Ok((status.expect("a status"), answer))
    }
}

fn client(ca: &Path, pair: Option<&Pair>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_file(ca).expect("PEM");
    roots.add(ca).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let chain = CertificateDer::from_pem_file(&pair.cert).expect("PEM");
            let key = PrivateKeyDer::from_pem_file(&pair.key).expect("PEM");
            let config = builder.with_client_auth_cert(vec![chain], key);
            config.expect("a pair")
        }
    }
}

fn web_config(names: &str) -> String {
    format!(
        "tls_server_config:\n  cert_file: node.crt\n  key_file: node.key\n  client_ca_file: ca.crt\n  \
         client_auth_type: RequireAndVerifyClientCert\n  client_allowed_sans: [{names}]\n\
         authorization:\n  credentials_file: tokens\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn only_those_who_show_everything_are_served() {
    let node = Node::new(Some(&web_config("localhost, 192.0.2.1"))).await;
    let scraper = node.authority.client("scraper", Validity::Now);
    let (status, text) = node
        .get("/metrics", Some(&scraper), TOKEN)
        .await
        .expect("served");
    assert!(
        status == 200 && text.contains("criscope_backend_up"),
        "{text}"
    );
    let health = node.get("/readyz", Some(&scraper), TOKEN).await;
    assert_eq!(health.expect("served").0, 200);

    // Pages name pods.
    for path in ["/", "/debug/pods", "/debug/config", "/debug/log-level"] {
        let (status, _) = node.get(path, Some(&scraper), TOKEN).await.expect("served");
        assert_eq!(status, 404, "{path}");
    }
    for wrong in ["", "Bearer token", "Basic YTpi"] {
        for path in ["/metrics", "/livez", "/debug/pods"] {
            let (status, text) = node.get(path, Some(&scraper), wrong).await.expect("served");
            assert_eq!(status, 401, "{path}");
            assert!(text.contains("www-authenticate: Bearer") && !text.contains("criscope_"));
        }
    }
    let others = Authority::new();
    let other = others.client("scraper", Validity::Now);
    let expired = node.authority.client("expired", Validity::Over);
    for pair in [None, Some(&other), Some(&expired)] {
        let refused = node.get("/metrics", pair, TOKEN).await;
        refused.expect_err("a handshake that fails");
    }

    // A change counts for the next connection.
    fs::write(node.file("tokens"), "token-of-tomorrow\n").expect("written");
    let (status, _) = node
        .get("/metrics", Some(&scraper), TOKEN)
        .await
        .expect("served");
    assert_eq!(status, 401);
    fs::write(node.file("web.yaml"), web_config("other.example")).expect("written");
    let next = "Bearer token-of-tomorrow";
    let (status, text) = node
        .get("/metrics", Some(&scraper), next)
        .await
        .expect("served");
    assert!(status == 403 && text.contains("allowed names"), "{text}");
    node.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_usable_file_no_client_is_served() {
    let node = Node::new(None).await;
    let scraper = node.authority.client("scraper", Validity::Now);
    node.get("/metrics", Some(&scraper), TOKEN)
        .await
        .expect_err("no file");
    let line = node.proxy.wait_event("metrics.config").await;
    let message = line["error.message"].as_str().unwrap_or_default();
    assert!(message.contains("web.yaml: No such file"), "{message}");

    fs::write(node.file("web.yaml"), web_config("localhost")).expect("written");
    let (status, _) = node
        .get("/metrics", Some(&scraper), TOKEN)
        .await
        .expect("served");
    assert_eq!(status, 200);
    fs::write(node.file("web.yaml"), "tls_server_config: {}\n").expect("written");
    node.get("/metrics", Some(&scraper), TOKEN)
        .await
        .expect_err("a broken file");
    node.proxy.stop().await;
}

/// The value of a metric of the certificate of this endpoint.
fn value(text: &str, metric: &str) -> String {
    let series = format!("criscope_tls_certificate_{metric}{{endpoint=\"metrics\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&series));
    line.unwrap_or_else(|| panic!("no {series}: {text}"))
        .to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn half_of_a_renewal_serves_the_certificate_before() {
    let node = Node::new(Some(&web_config("localhost"))).await;
    let scraper = node.authority.client("scraper", Validity::Now);
    let get = async || {
        let (status, text) = node
            .get("/metrics", Some(&scraper), TOKEN)
            .await
            .expect("served");
        assert_eq!(status, 200);
        text
    };
    let text = get().await;
    assert_eq!(value(&text, "last_reload_successful"), "1");
    let end = value(&text, "not_after_timestamp_seconds");
    assert!(end.parse::<f64>().expect("a number") > 1e9, "{end}");

    let next = node.authority.server("next");
    fs::copy(&next.cert, node.file("node.crt")).expect("copied");
    assert_eq!(value(&get().await, "last_reload_successful"), "0");
    let line = node.proxy.wait_event("tls.rejected").await;
    let message = line["error.message"].as_str().unwrap_or_default();
    assert!(message.contains("node.crt: "), "{message}");
    fs::copy(&next.key, node.file("node.key")).expect("copied");
    assert_eq!(value(&get().await, "last_reload_successful"), "1");
    node.proxy.wait_event("tls.reloaded").await;

    // Without TLS there is no certificate.
    fs::write(node.file("web.yaml"), "{}\n").expect("written");
    node.get("/metrics", Some(&scraper), TOKEN)
        .await
        .expect_err("no TLS");
    let (_, text) = node.proxy.get("/metrics").await;
    assert!(!text.contains("not_after_timestamp_seconds{"), "{text}");
    node.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_prometheus_scrapes_it() {
    let node = Node::new(Some(&web_config("localhost"))).await;
    let scraper = node.authority.client("scraper", Validity::Now);
    let keys = format!(
        "scheme: https\nauthorization: {{credentials: token-of-today}}\n\
         tls_config: {{ca_file: {}, cert_file: {}, key_file: {}}}\n",
        node.authority.ca().display(),
        scraper.cert.display(),
        scraper.key.display(),
    );
    let nodes = [("a", node.port)];
    let interval = Duration::from_millis(500);
    let prometheus = Prometheus::scraping(interval, &nodes, "groups: []\n", &keys).await;
    until("a scrape", async || {
        let up = prometheus.query("up{job=\"criscope\"} == 1").await.ok()?;
        (!up.is_empty()).then_some(())
    })
    .await;
    node.proxy.stop().await;
}

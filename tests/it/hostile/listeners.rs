//! Any user of the node may connect to the ports on loopback. None can take descriptors, connections or the audit log
//! away from others.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt as _;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::Siege;
use crate::harness::raise_descriptor_limit;
use crate::prelude::*;

/// The number of open files of the program.
fn descriptors(proxy: &Proxy) -> usize {
    let dir = format!("/proc/{}/fd", proxy.pid());
    fs::read_dir(dir).expect("it runs").count()
}

async fn connect(port: u16) -> TcpStream {
    let connected = TcpStream::connect(("127.0.0.1", port));
    soon("a connection", connected).await.expect("accepted")
}

/// Sends a request; returns the response up to the end of the connection.
async fn answer(mut stream: TcpStream, request: &[u8]) -> String {
    // It may be refused before it is completely sent.
    let _ = stream.write_all(request).await;
    let mut answer = Vec::new();
    let _ = soon("the end", stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_idle_connections_to_the_admin_port_harm_no_other() {
    let siege = Siege::new().await;
    let port = siege.proxy.admin_port();
    let before = descriptors(&siege.proxy);
    siege
        .during(async {
            let mut idle = Vec::new();
            for n in 0..2000 {
                let mut stream = connect(port).await;
                // Silent, or with an endless header.
                if n % 2 == 0 {
                    let _ = stream.write_all(b"GET / HTTP/1.1\r\nhost: lo").await;
                }
                idle.push(stream);
                if n % 500 == 499 {
                    let now = descriptors(&siege.proxy);
                    assert!(now <= before + 80, "{before} descriptors, then {now}");
                    // Real requests are served.
                    siege.proxy.scrape().await;
                }
            }
            idle
        })
        .await;
    let text = siege.proxy.get("/metrics").await.1;
    assert!(text.contains("criscope_build_info"));
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_ends_is_not_waited_for() {
    let (_fake, proxy) = proxied().await;
    let mut slow = connect(proxy.admin_port()).await;
    slow.write_all(b"GET /metrics HTTP/1.1\r\n")
        .await
        .expect("sent");
    let mut rest = Vec::new();
    // The connection ends, with or without a response.
    let _ = soon("the end of the connection", slow.read_to_end(&mut rest)).await;

    let huge = format!(
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n",
        "y".repeat(1 << 20)
    );
    let refused = answer(connect(proxy.admin_port()).await, huge.as_bytes()).await;
    let refused_well = refused.starts_with("HTTP/1.1 431 ") || refused.is_empty();
    assert!(refused_well, "{refused}");
    assert_eq!(proxy.get("/livez").await.0, 200);
}

#[tokio::test]
async fn a_page_elsewhere_cannot_read_the_pages_here() {
    let fake = Fake::new();
    let config = "[admin]\nallowed_hosts = [\"metrics.example.com\", \".nodes.example.com\"]\n";
    let proxy = configured(&fake, config).await;
    let port = proxy.admin_port();
    let status = |host: String, path: &'static str| async move {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let answer = answer(connect(port).await, request.as_bytes()).await;
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    for path in ["/", "/metrics", "/debug/pods", "/livez", "/nothing"] {
        for host in ["evil.example".to_owned(), format!("evil.example:{port}")] {
            assert_eq!(status(host.clone(), path).await, "421", "{host} {path}");
        }
    }
    let node = nix::unistd::gethostname().expect("a name");
    let node = node.to_str().expect("text").to_owned();
    for host in [
        format!("127.0.0.1:{port}"),
        format!("localhost:{port}"),
        format!("[::1]:{port}"),
        "10.0.0.7:9478".to_owned(),
        node,
        "metrics.example.com".to_owned(),
        "a.nodes.example.com:1".to_owned(),
    ] {
        assert_eq!(status(host.clone(), "/metrics").await, "200", "{host}");
    }
}

#[tokio::test]
async fn nothing_can_be_changed_over_tcp() {
    let (_fake, proxy) = proxied().await;
    for level in ["off", "debug", "criscope=off"] {
        let (status, text) = proxy.http("PUT", "/debug/log-level", level).await;
        assert_eq!(status, 405, "{text}");
        assert!(text.contains("admin.socket"), "{text}");
    }
    for method in ["POST", "DELETE", "PATCH"] {
        let (status, _) = proxy.http(method, "/debug/log-level", "off").await;
        assert_eq!(status, 405, "{method}");
    }
    assert_eq!(proxy.get("/debug/log-level").await.1, "info");
    assert_eq!(
        proxy
            .client()
            .await
            .call(Call::plain("StopContainer"))
            .await
            .code(),
        0
    );
    proxy
        .wait_line("the call", |line| is_call(line, "StopContainer"))
        .await;
}

/// Tries to change the level as a non-root user; returns the response, or the error if it cannot connect.
fn as_nobody(socket: &Path) -> String {
    as_user(
        65_534,
        socket,
        "PUT /debug/log-level HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\noff",
    )
}

/// Sends a request as a user, with a group of the same number; returns the response, or the error if it cannot connect.
fn as_user(id: u32, socket: &Path, request: &str) -> String {
    // perl-base is part of every Debian.
    const TRY: &str = r#"
        use IO::Socket::UNIX;
        my $s = IO::Socket::UNIX->new(Peer => $ARGV[0]) or do { print "refused: $!"; exit };
        print $s $ARGV[1];
        print while <$s>;
    "#;
    let output = Command::new("perl")
        .args(["-e", TRY])
        .arg(socket)
        .arg(request)
        .uid(id)
        .gid(id)
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .expect("perl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_admin_socket_is_for_root() {
    assert!(nix::unistd::geteuid().is_root(), "needs root");
    let (_fake, proxy) = proxied().await;
    let socket = proxy.admin_socket();
    let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode(&socket), 0o600);
    let dir = socket.parent().expect("a directory");
    fs::set_permissions(dir, PermissionsExt::from_mode(0o755)).expect("opened");
    assert_eq!(as_nobody(&socket), "refused: Permission denied");
    // Even if the mode of the socket was relaxed: peer credentials decide.
    fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).expect("opened");
    let answer = as_nobody(&socket);
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert_eq!(proxy.get("/debug/log-level").await.1, "info");

    assert_eq!(
        proxy.by_socket("PUT", "/debug/log-level", "loud").await.0,
        400
    );
    proxy.set_log_level("warn").await;
    assert_eq!(proxy.get("/debug/log-level").await.1, "warn");
    for path in ["/", "/metrics", "/livez", "/debug/pods", "/debug/flight"] {
        assert_eq!(proxy.by_socket("GET", path, "").await.0, 200, "{path}");
    }
    let (status, _) = proxy
        .by_socket("PUT", "/debug/log-level", &"x".repeat(1 << 20))
        .await;
    assert!([413, 0].contains(&status), "{status}");
    proxy.stop().await;
    assert!(!socket.exists(), "removed at the end");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_socket_of_agents_is_for_its_group_and_shows_only_what_agents_show() {
    assert!(nix::unistd::geteuid().is_root(), "needs root");
    let fake = Fake::new();
    let dir = tempfile::tempdir().expect("a directory");
    fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o755)).expect("opened");
    let socket = dir.path().join("agent/criscope.sock");
    let config = format!("[admin]\ndebug = false\nagent_socket = {socket:?}\n");
    let proxy = configured(&fake, &config).await;
    let agent = |method: &str, path: &str| {
        let request =
            format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\noff");
        let answer = as_user(65_532, &socket, &request);
        answer.split(' ').nth(1).expect("a status").to_owned()
    };
    for path in ["/", "/metrics", "/livez", "/readyz", "/debug/pods"] {
        assert_eq!(agent("GET", path), "200", "{path}");
    }
    for path in [
        "/debug/config",
        "/debug/flight",
        "/debug/capture",
        "/debug/faults",
    ] {
        assert_eq!(agent("GET", path), "404", "{path}");
        assert_eq!(agent("POST", path), "404", "{path}");
    }
    assert_eq!(agent("PUT", "/debug/log-level"), "404");
    assert_eq!(agent("DELETE", "/debug/pods"), "405");
    assert_eq!(as_nobody(&socket), "refused: Permission denied");
    // The directory of the group hides it from others; the mode of the socket alone refuses them, too.
    let directory = socket.parent().expect("a directory");
    fs::set_permissions(directory, PermissionsExt::from_mode(0o755)).expect("opened");
    assert_eq!(as_nobody(&socket), "refused: Permission denied");
    assert_eq!(
        proxy.by_socket("GET", "/debug/log-level", "").await.1,
        "info"
    );
    proxy.stop().await;
    assert!(!socket.exists(), "removed at the end");
}

#[tokio::test]
async fn the_audit_trail_cannot_be_turned_off() {
    let (_fake, proxy, client) = proxied_client().await;
    for (n, level) in [
        "off",
        "criscope=off",
        "info,criscope::rpc=off,criscope::audit=off",
    ]
    .into_iter()
    .enumerate()
    {
        proxy.set_log_level(level).await;
        let change = proxy
            .wait_line("the change", |line| {
                line["event"] == "log.level" && line["after"] == level
            })
            .await;
        assert_eq!(change["uid"], nix::unistd::geteuid().as_raw());
        assert_eq!(change["pid"], std::process::id());
        assert_eq!(client.call(Call::plain("StopContainer")).await.code(), 0);
        until_true("the call is written down", async || {
            let ended = |line: &Value| line["event"] == "rpc.end" && is_call(line, "StopContainer");
            let lines = proxy.events();
            lines.iter().filter(|line| ended(line)).count() == n + 1
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_do_not_lock_the_runtime_out_of_the_receiver() {
    raise_descriptor_limit();
    let fake = Fake::new();
    let port = free_port();
    let config = format!("[receiver]\nlisten = \"127.0.0.1:{port}\"\n");
    let proxy = configured(&fake, &config).await;
    let before = descriptors(&proxy);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(connect(port).await);
    }
    let exporter = connect(port).await;
    let (sender, connection) = soon("a handshake", h2::client::handshake(exporter))
        .await
        .expect("HTTP/2");
    let connection = tokio::spawn(connection);
    let request = http::Request::post("http://localhost/nothing.of/this").body(());
    let mut sender = sender.ready().await.expect("ready");
    let (response, _) = sender
        .send_request(request.expect("a request"), true)
        .expect("sent");
    let response = soon("an answer", response).await.expect("an answer");
    assert_eq!(response.status(), 200);
    assert!(response.headers().contains_key("grpc-status"));
    assert!(descriptors(&proxy) <= before + 20);
    connection.abort();
    drop(silent);
}

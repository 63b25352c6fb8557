//! `criscope-agent` as a program: events, metrics, readiness.

use std::io::Read as _;
use std::net::{SocketAddr, TcpListener};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::api::Api;
use crate::api::proxy::connect;
use crate::daemon::Daemon;
use crate::support::{Program, start, until};

pub(crate) const AGENT: &str = env!("CARGO_BIN_EXE_criscope-agent");

/// An address that no program listens on.
pub(crate) fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").expect("bound");
    free.local_addr().expect("bound")
}

/// An agent on `node`, when it listens.
pub(crate) async fn agent(
    api: &Api,
    daemon: &Daemon,
    node: &str,
    more: &[&str],
) -> (Program, SocketAddr) {
    let address = free_address();
    let (listen, of) = (
        format!("--listen={address}"),
        format!("--daemon={}", daemon.address),
    );
    let node = format!("--node={node}");
    let mut args = vec!["serve", &*node, &*listen, &*of];
    args.extend(more);
    let program = start(AGENT, &args, &api.kubeconfig("agent"));
    until("the agent", async || TcpStream::connect(address).await.ok()).await;
    (program, address)
}

/// Status and body of a page of an agent.
pub(crate) async fn get(
    address: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> (StatusCode, String) {
    let response = get_bytes(address, path, headers).await;
    let text = String::from_utf8_lossy(response.body()).into_owned();
    (response.status(), text)
}

async fn get_bytes(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> Response<Bytes> {
    let stream = TcpStream::connect(address).await.expect("connected");
    let stream = connect(stream).await.expect("TLS");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("HTTP");
    tokio::spawn(connection);
    let request = headers
        .iter()
        .fold(Request::get(path), |it, (name, value)| {
            it.header(*name, *value)
        });
    let request = request
        .header("host", "agent")
        .body(Empty::<Bytes>::new())
        .expect("a request");
    let response = sender.send_request(request).await.expect("an answer");
    let (head, body) = response.into_parts();
    let body = body.collect().await.expect("a body").to_bytes();
    Response::from_parts(head, body)
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_compressed_for_those_who_accept_it() {
    let (api, daemon) = (Api::start().await, Daemon::start().await);
    let page: String = (0..1000)
        .map(|n| format!("criscope_rpc_duration_seconds_bucket{{le=\"{n}\"}} {n}\n"))
        .collect();
    daemon.set("/metrics", 200, &page);
    let (_agent, address) = agent(&api, &daemon, "node-1", &["--events=false"]).await;
    let token = ("authorization", "Bearer prometheus");
    let plain = get_bytes(address, "/metrics", &[token]).await;
    assert_eq!(plain.headers().get("content-encoding"), None);
    assert_eq!(plain.body(), page.as_bytes());
    let accepts = ("accept-encoding", "gzip");
    let small = get_bytes(address, "/metrics", &[token, accepts]).await;
    assert_eq!(small.headers()["content-encoding"], "gzip");
    assert!(
        small.body().len() < page.len() / 5,
        "{} bytes",
        small.body().len()
    );
    let mut text = String::new();
    let mut decoder = flate2::read::GzDecoder::new(&small.body()[..]);
    decoder.read_to_string(&mut text).expect("gzip");
    assert_eq!(text, page);
}

fn now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    u64::try_from(now.as_micros()).expect("before 586524")
}

/// A page of episodes: each a name, a state, and how long it took in seconds.
fn episodes(list: &[(&str, &str, u64)]) -> String {
    let now = now();
    let episode = |(name, state, took): &(&str, &str, u64)| {
        json!({
            "kind": "start", "namespace": "shop", "name": name, "uid": format!("uid-{name}"), "attempt": 0,
            "trace_id": "", "state": state, "began_unix_us": now - (took + 1) * 1_000_000,
            "duration_ms": took * 1000, "phases": [], "retries": 0, "failures": 3, "pulled": false,
            "headline": "network 9.5 s of 9.8 s in the CNI plugin calico-ipam", "cause": "slow_network",
        })
    };
    let episodes: Vec<_> = list.iter().map(episode).collect();
    json!({"now_unix_us": now, "episodes": episodes, "forgotten": 0}).to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_and_failing_pods_get_one_event_each_also_across_restarts() {
    let (api, daemon) = (Api::start().await, Daemon::start().await);
    let page = episodes(&[
        ("slow", "ok", 9),
        ("quick", "ok", 2),
        ("broken", "failing", 30),
        ("new", "open", 60),
    ]);
    daemon.set("/debug/pods", 200, &page);
    let first = agent(&api, &daemon, "node-1", &[]).await;
    until("two events", async || {
        (api.state.events.lock().ok()?.len() == 2).then_some(())
    })
    .await;
    drop(first);
    let posts = api.count("POST /apis/events.k8s.io");
    let _second = agent(&api, &daemon, "node-1", &[]).await;
    until("a second try", async || {
        (api.count("POST /apis/events.k8s.io") == posts + 2).then_some(())
    })
    .await;
    assert_eq!(
        api.count("POST /apis/events.k8s.io/v1/namespaces/shop/events 409"),
        2
    );
    let events = api.state.events.lock().expect("events");
    let mut said: Vec<_> = events
        .values()
        .map(|it| serde_json::to_value(it).expect("JSON"))
        .collect();
    said.sort_by_key(|it| it["reason"].to_string());
    assert_eq!(said.len(), 2, "{said:?}");
    let pick = |it: &Value| {
        ["reason", "type", "note"].map(|key| it[key].as_str().unwrap_or_default().to_owned())
    };
    let note = "network 9.5 s of 9.8 s in the CNI plugin calico-ipam";
    assert_eq!(pick(&said[0]), ["SlowStart", "Normal", note]);
    assert_eq!(pick(&said[1]), ["StartFailing", "Warning", note]);
    assert_eq!(said[0]["regarding"]["uid"], "uid-slow");
    assert_eq!(said[0]["series"], Value::Null);
    assert_eq!(said[1]["series"]["count"], 3);
    assert_eq!(said[0]["reportingInstance"], "node-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_can_be_switched_off() {
    let (api, daemon) = (Api::start().await, Daemon::start().await);
    daemon.set("/debug/pods", 200, &episodes(&[("slow", "ok", 9)]));
    let (_agent, address) = agent(&api, &daemon, "node-1", &["--events=false"]).await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    assert_eq!(get(address, "/livez", &[]).await.0, StatusCode::OK);
    assert_eq!(api.count(""), 0, "the API server is not even asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_stories_are_for_those_whom_the_api_server_allows_them() {
    let (api, daemon) = (Api::start().await, Daemon::start().await);
    let (_agent, address) = agent(&api, &daemon, "node-1", &["--events=false"]).await;
    let status =
        async |path: &str, headers: &[(&str, &str)]| get(address, path, headers).await.0.as_u16();
    let bearer = |token: &str| format!("Bearer {token}");
    let (prometheus, bob) = (bearer("prometheus"), bearer("bob"));
    let (ok, body) = get(address, "/metrics", &[("authorization", &prometheus)]).await;
    assert_eq!((ok, &*body), (StatusCode::OK, "criscope_up 1\n"));
    assert_eq!(status("/metrics", &[]).await, 401);
    assert_eq!(
        status("/metrics", &[("authorization", "Basic Ym9iOmJvYg==")]).await,
        401
    );
    assert_eq!(
        status("/metrics", &[("authorization", &bearer("stolen"))]).await,
        401
    );
    assert_eq!(status("/metrics", &[("authorization", &bob)]).await, 403);
    let stories = "/criscope/debug/pods?format=json";
    assert_eq!(
        status(stories, &[("authorization", &prometheus)]).await,
        403
    );
    // A token of the API server is none for agents.
    assert_eq!(
        status(stories, &[("x-criscope-token", "prometheus")]).await,
        401
    );
    assert_eq!(
        status(
            "/criscope/debug/config?format=json",
            &[("authorization", &prometheus)]
        )
        .await,
        404
    );
    assert_eq!(status("/debug/pods", &[]).await, 404);
    // Decisions are remembered.
    let reviews = api.count("POST /apis/authentication");
    for _ in 0..10 {
        assert_eq!(
            status("/metrics", &[("authorization", &prometheus)]).await,
            200
        );
        assert_eq!(status("/metrics", &[("authorization", &bob)]).await, 403);
    }
    assert_eq!(api.count("POST /apis/authentication"), reviews);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_agent_is_ready_as_long_as_the_daemon_is() {
    let (api, daemon) = (Api::start().await, Daemon::on_a_port().await);
    let (_agent, address) = agent(&api, &daemon, "node-1", &["--events=false"]).await;
    assert_eq!(get(address, "/readyz", &[]).await.0, StatusCode::OK);
    daemon.set(
        "/readyz",
        503,
        "runtime main does not answer: secret details\n",
    );
    let (status, body) = get(address, "/readyz", &[]).await;
    assert_eq!((status.as_u16(), &*body), (503, "criscope is not ready\n"));
    assert_eq!(get(address, "/livez", &[]).await.0, StatusCode::OK);
}

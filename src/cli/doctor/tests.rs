//! The doctor against sockets in every state, and a fake runtime.

use std::os::unix::net::UnixListener as StdListener;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::*;
use crate::cri::v1::{RuntimeCondition, RuntimeStatus, StatusResponse, VersionResponse};
use crate::testing::until_stale;

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

fn stale(path: &Path) {
    drop(StdListener::bind(path).expect("bound"));
    until_stale(path);
}

async fn upstream(path: &Path) -> Vec<(FindingLevel, String)> {
    let findings = upstream::check("up", path, true, &NodeFiles::default()).await;
    findings
        .into_iter()
        .map(|finding| (finding.level, finding.text))
        .collect()
}

/// The same for a runtime that answers. On a busy machine the doctor may time out: then it is repeated.
async fn answering(path: &Path) -> Vec<(FindingLevel, String)> {
    for _ in 0..40 {
        let found = upstream(path).await;
        if !found.iter().any(|(_, text)| text.starts_with("no answer")) {
            return found;
        }
    }
    panic!("no answer");
}

async fn listen(path: &Path) -> Vec<(FindingLevel, String)> {
    let (findings, _) = listen::check("server.listen", path, &NodeFiles::default()).await;
    findings
        .into_iter()
        .map(|finding| (finding.level, finding.text))
        .collect()
}

fn own() -> String {
    NodeFiles::default().describe(std::process::id().try_into().expect("fits"))
}

#[tokio::test]
async fn the_listen_path_in_every_state() {
    let dir = directory();
    let path = dir.path().join("a.sock");
    let shown = path.display();
    let writable = (
        FindingLevel::Ok,
        format!("{} is writable", dir.path().display()),
    );

    let free = (FindingLevel::Ok, format!("{shown} is free"));
    assert_eq!(listen(&path).await, [writable.clone(), free]);

    stale(&path);
    let left = (
        FindingLevel::Warn,
        format!("{shown} is stale: no process listens on it"),
    );
    assert_eq!(listen(&path).await, [writable.clone(), left]);

    std::fs::remove_file(&path).expect("removed");
    let listener = StdListener::bind(&path).expect("bound");
    let taken = (
        FindingLevel::Fail,
        format!("{} already listens on {shown}", own()),
    );
    assert_eq!(listen(&path).await, [writable.clone(), taken]);
    let key = "runtime.containerd_socket";
    let (findings, _) = listen::check(key, &path, &NodeFiles::default()).await;
    let hint = format!("stop it, or set {key} to another path");
    assert_eq!(findings[1].hint, Some(hint));
    drop(listener);

    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, "").expect("written");
    let file = (
        FindingLevel::Fail,
        format!("{shown} exists and is not a socket"),
    );
    assert_eq!(listen(&path).await, [writable, file]);

    // As `serve` does: it creates missing directories.
    let nowhere = dir.path().join("no/where/a.sock");
    let made = format!(
        "{} does not exist yet; serve creates it",
        dir.path().join("no/where").display()
    );
    assert_eq!(listen(&nowhere).await[0], (FindingLevel::Ok, made));
    let below_a_file = listen(&path.join("a.sock")).await;
    assert_eq!(
        below_a_file[0],
        (FindingLevel::Fail, format!("{shown} is not a directory"))
    );
}

#[tokio::test]
async fn an_upstream_that_is_not_there() {
    let dir = directory();
    let path = dir.path().join("a.sock");
    let shown = path.display();
    assert_eq!(
        upstream(&path).await,
        [(FindingLevel::Fail, format!("{shown} does not exist"))]
    );
    stale(&path);
    assert_eq!(
        upstream(&path).await,
        [(
            FindingLevel::Fail,
            format!("{shown} is stale: no process listens on it")
        )]
    );
    assert_eq!(
        upstream(dir.path()).await,
        [(
            FindingLevel::Fail,
            format!("{} is not a socket", dir.path().display())
        )]
    );
}

#[tokio::test]
async fn an_upstream_that_speaks_something_else() {
    let dir = directory();
    let path = dir.path().join("a.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            });
        }
    });
    let found = answering(&path).await;
    let levels: Vec<_> = found.iter().map(|(level, _)| *level).collect();
    assert_eq!(levels, [FindingLevel::Ok, FindingLevel::Fail], "{found:?}");
    assert!(
        found[1].1.starts_with("does not speak gRPC over HTTP/2: "),
        "{found:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_upstream_that_never_answers() {
    let dir = directory();
    let path = dir.path().join("a.sock");
    // The backlog takes the connections; none is ever accepted.
    let _listener = StdListener::bind(&path).expect("bound");
    assert_eq!(
        upstream(&path).await,
        [
            (
                FindingLevel::Ok,
                format!("{} accepts connections: {}", path.display(), own())
            ),
            (FindingLevel::Fail, "no answer within 3 s".to_owned()),
        ]
    );
}

/// Responses by path: a message, or `None` for Unimplemented.
type FakeResponses = Arc<dyn Fn(&str) -> Option<Vec<u8>> + Send + Sync>;

fn runtime(path: &Path, answers: FakeResponses) {
    let listener = UnixListener::bind(path).expect("bound");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answers = answers.clone();
            let service = service_fn(move |request: http::Request<Incoming>| {
                let answer = answers(request.uri().path());
                async move { Ok::<_, std::convert::Infallible>(respond(answer)) }
            });
            let serve = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(serve.serve_connection(TokioIo::new(stream), service));
        }
    });
}

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, std::convert::Infallible>;

fn respond(answer: Option<Vec<u8>>) -> Response<Body> {
    let mut trailers = HeaderMap::new();
    let code = if answer.is_some() { "0" } else { "12" };
    trailers.insert("grpc-status", HeaderValue::from_static(code));
    let message = answer.map(|message| {
        let length = u32::try_from(message.len()).expect("fits");
        let mut frame = vec![0];
        frame.extend(length.to_be_bytes());
        frame.extend(message);
        Frame::data(Bytes::from(frame))
    });
    let frames = message.into_iter().chain([Frame::trailers(trailers)]);
    let body = StreamBody::new(futures_util::stream::iter(frames.map(Ok)));
    Response::builder()
        .header("content-type", "application/grpc")
        .body(body.boxed_unsync())
        .expect("a response")
}

fn condition(kind: &str, status: bool) -> RuntimeCondition {
    RuntimeCondition {
        r#type: kind.to_owned(),
        status,
        reason: "Because".to_owned(),
        message: "it\u{1b}[31m is so".to_owned(),
    }
}

fn answers(package: &'static str, ready: bool, network: bool) -> FakeResponses {
    Arc::new(move |path| {
        let method = path.strip_prefix(&format!("/{package}.RuntimeService/"))?;
        match method {
            "Version" => Some(
                VersionResponse {
                    version: "0.1.0".to_owned(),
                    runtime_name: "fakerd".to_owned(),
                    runtime_version: "7".to_owned(),
                    runtime_api_version: "v1".to_owned(),
                }
                .encode_to_vec(),
            ),
            "Status" => Some(
                StatusResponse {
                    status: Some(RuntimeStatus {
                        conditions: vec![
                            condition("RuntimeReady", ready),
                            condition("NetworkReady", network),
                        ],
                    }),
                    ..StatusResponse::default()
                }
                .encode_to_vec(),
            ),
            _ => None,
        }
    })
}

#[tokio::test]
async fn a_runtime_in_every_state() {
    let dir = directory();
    let ok = |text: &str| (FindingLevel::Ok, text.to_owned());
    let lacks = upstream::lacks_runtime_config("up", true);
    let lacks = (lacks.level, lacks.text);
    let cases = [
        (
            answers("runtime.v1", true, true),
            vec![
                ok("fakerd 7 speaks runtime.v1"),
                ok("RuntimeReady"),
                ok("NetworkReady"),
                lacks.clone(),
            ],
        ),
        (
            answers("runtime.v1alpha2", false, false),
            vec![
                (
                    FindingLevel::Warn,
                    "fakerd 7 speaks runtime.v1alpha2".to_owned(),
                ),
                (
                    FindingLevel::Fail,
                    "not RuntimeReady: Because it\u{1b}[31m is so".to_owned(),
                ),
                (
                    FindingLevel::Warn,
                    "not NetworkReady: Because it\u{1b}[31m is so".to_owned(),
                ),
                lacks,
            ],
        ),
        (
            answers("runtime.v9", true, true),
            vec![(FindingLevel::Fail, "speaks gRPC, but has no CRI".to_owned())],
        ),
    ];
    for (i, (answers, expected)) in cases.into_iter().enumerate() {
        let path = dir.path().join(format!("{i}.sock"));
        runtime(&path, answers);
        let found = answering(&path).await;
        assert_eq!(found[0].0, FindingLevel::Ok);
        assert_eq!(found[1..], expected);
    }
}

#[tokio::test]
async fn the_whole_examination_fails_without_a_runtime_and_not_with_one() {
    let dir = directory();
    let path = dir.path().join("c.sock");
    let args = ConfigSourceArgs {
        listen: Some(dir.path().join("a.sock").display().to_string()),
        upstream: Some(path.display().to_string()),
        admin: Some("127.0.0.1:0".to_owned()),
        config: None,
    };
    let node = NodeFiles::default();
    let mut report = DoctorReport::new(Some(OutputFormat::Json));
    examine(&mut report, &args, &node).await.expect("examined");
    assert_eq!(report.count(FindingLevel::Fail), 1, "{:?}", report.findings);

    runtime(&path, answers("runtime.v1", true, true));
    let mut report = DoctorReport::new(Some(OutputFormat::Json));
    examine(&mut report, &args, &node).await.expect("examined");
    assert_eq!(report.count(FindingLevel::Fail), 0, "{:?}", report.findings);
    let mut topics: Vec<_> = report.findings.iter().map(|f| f.topic.as_str()).collect();
    topics.dedup();
    assert_eq!(
        topics,
        [
            "config", "listen", "upstream", "admin", "limits", "kubelet", "clients"
        ]
    );
}

#[test]
fn the_usual_file_is_used_only_when_nothing_is_said() {
    let dir = directory();
    let usual = dir.path().join("criscope.toml");
    let nothing = ConfigSourceArgs::default();
    let (config, finding) = configuration(&nothing, &usual).expect("no file yet");
    assert!(config.runtime.is_some());
    assert_eq!(
        finding.text,
        "from flags and defaults: the built-in runtime"
    );

    let text = "[backends.c]\nkind = \"upstream\"\nendpoint = \"/run/c.sock\"\n";
    std::fs::write(&usual, text).expect("written");
    let (config, finding) = configuration(&nothing, &usual).expect("found");
    assert_eq!(config.routing.default, "c");
    assert_eq!(finding.text, usual.display().to_string());

    let flag = ConfigSourceArgs {
        upstream: Some("/run/d.sock".to_owned()),
        ..ConfigSourceArgs::default()
    };
    let (config, _) = configuration(&flag, &usual).expect("flags are enough");
    assert_eq!(config.routing.default, "upstream");

    std::fs::write(&usual, "a = 1\nb = 2\n").expect("written");
    let findings = configuration(&nothing, &usual).expect_err("wrong");
    assert_eq!(findings.len(), 2, "{findings:?}");
}

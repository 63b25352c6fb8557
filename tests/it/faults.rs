//! Runtimes that are absent, broken or dying: callers get the right code and reason immediately, and criscope recovers
//! with the runtime.

use std::sync::atomic::AtomicBool;

use h2::Reason;

use crate::harness::client::{Broken, Got};
use crate::harness::fake::Mode;
use crate::prelude::*;

const UNAVAILABLE: i32 = 14;

fn assert_unavailable(got: &Got, reason: &str) {
    assert_eq!(got.code(), UNAVAILABLE, "{got:?}");
    assert_eq!(got.broken, None);
    assert!(
        got.text().contains(reason),
        "{:?} in {:?}",
        reason,
        got.text()
    );
}

async fn assert_good(client: &Client) {
    let got = client.call(Call::plain("ListContainers")).await;
    assert_eq!((got.code(), &got.broken), (0, &None), "{got:?}");
}

#[tokio::test]
async fn a_runtime_that_starts_later() {
    let fake = Fake::absent();
    let proxy = Start::before(crate::CRISCOPE, &fake).serving().await;
    let client = proxy.client().await;
    for path in [
        "/runtime.v1.RuntimeService/Version",
        "/runtime.v1alpha2.RuntimeService/Version",
        "/runtime.v1.RuntimeService/GetContainerEvents",
        "/runtime.v1.RuntimeService/NotKnown",
        "/grpc.health.v1.Health/Check",
    ] {
        let got = client.call(Call::new(path, message(b""))).await;
        assert_unavailable(&got, "No such file or directory");
        assert!(
            got.text().contains(&fake.path().display().to_string()),
            "{}",
            got.text()
        );
        assert!(got.head_only);
    }
    let (status, text) = proxy.get("/readyz").await;
    assert_eq!(status, 503);
    assert!(text.contains("No such file"), "{text}");
    assert_eq!(proxy.get("/livez").await.0, 200);

    fake.start();
    assert_good(&client).await;
    proxy.wait_ready().await;
    proxy.wait_balanced(6).await;
}

#[tokio::test]
async fn a_runtime_that_left_a_stale_socket() {
    let fake = Fake::absent();
    drop(std::os::unix::net::UnixListener::bind(fake.path()).expect("bind"));
    // A child that another test has just forked may hold it open for a moment.
    until("a socket without a listener", || async {
        let error = std::os::unix::net::UnixStream::connect(fake.path()).err()?;
        (error.kind() == std::io::ErrorKind::ConnectionRefused).then_some(())
    })
    .await;
    let proxy = Start::before(crate::CRISCOPE, &fake).serving().await;
    let client = proxy.client().await;
    let got = client.call(Call::plain("Status")).await;
    assert_unavailable(&got, "Connection refused");
    fs::remove_file(fake.path()).expect("remove");
    fake.start();
    assert_good(&client).await;
    proxy.wait_balanced(2).await;
}

#[tokio::test]
async fn a_runtime_that_accepts_and_is_silent() {
    let fake = Fake::new();
    fake.set_mode(Mode::Silent);
    let proxy = Start::before(crate::CRISCOPE, &fake).serving().await;
    let client = proxy.client().await;
    let got = client
        .call(Call::plain("Status").with("grpc-timeout", "200m"))
        .await;
    assert_eq!(got.code(), 4, "{got:?}");
    assert_eq!(proxy.get("/readyz").await.0, 503);

    fake.stop();
    fake.set_mode(Mode::Grpc);
    fake.start();
    assert_good(&client).await;
    proxy.wait_ready().await;
    proxy.wait_balanced(2).await;
}

#[tokio::test]
async fn a_runtime_that_does_not_speak_grpc() {
    let garbage: Bytes = (0..5000u32)
        .map(|i| (i * 7 % 251) as u8)
        .collect::<Vec<_>>()
        .into();
    let modes = [
        Mode::Says(Bytes::from_static(
            b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n",
        )),
        Mode::Says(garbage),
        Mode::Says(Bytes::from_static(b"SSH-2.0-OpenSSH_9.9\r\n")),
    ];
    let fake = Fake::new();
    fake.set_mode(Mode::Closes);
    let proxy = Start::before(crate::CRISCOPE, &fake).serving().await;
    let client = proxy.client().await;
    let got = client.call(Call::plain("Status")).await;
    assert_unavailable(&got, "backend upstream at unix://");
    for mode in modes {
        fake.set_mode(mode.clone());
        for _ in 0..3 {
            let got = client.call(Call::plain("Status")).await;
            assert_unavailable(&got, "not a gRPC server");
        }
    }
    fake.set_mode(Mode::Grpc);
    assert_good(&client).await;
    proxy.wait_ready().await;
    proxy.wait_balanced(11).await;
}

#[tokio::test]
async fn a_runtime_that_dies_during_a_call() {
    let whole = message(&[5; 1000]);
    let half = whole.slice(..500);
    let before = "connection lost during the call";
    let during = "connection lost during the answer";
    let cases: [(&str, Vec<Step>, &[u8]); 4] = [
        (before, vec![], b""),
        (during, vec![script::head()], b""),
        (
            during,
            vec![script::head(), Step::Data(half.clone())],
            &half,
        ),
        (
            during,
            vec![script::head(), Step::Data(whole.clone())],
            &whole,
        ),
    ];
    let (fake, proxy, client) = proxied_client().await;
    let mut entered = 0;
    for method in [
        "ListContainers",
        "RunPodSandbox",
        "GetContainerEvents",
        "NotKnown",
    ] {
        for (reason, steps, data) in &cases {
            let steps = [vec![Step::Read], steps.clone(), vec![Step::Close]].concat();
            fake.always(steps);
            let got = client.call(Call::plain(method)).await;
            assert_unavailable(&got, reason);
            assert_eq!(got.data, *data, "{method}: received data is passed on");
            fake.always(script::empty());
            assert_good(&client).await;
            entered += 2;
        }
    }
    let scrape = proxy.wait_balanced(entered).await;
    let unavailable = scrape
        .metric("criscope_rpc_total")
        .with("code", "UNAVAILABLE");
    assert_eq!(unavailable.sum(), 16.0);
}

#[tokio::test]
async fn goaway_loses_no_call() {
    let (fake, proxy) = proxied().await;
    let client = Arc::new(proxy.client().await);
    // Each call closes its connection with GOAWAY while other calls are in flight on it.
    fake.always([vec![Step::GoAway], script::empty()].concat());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let client = Arc::clone(&client);
        calls.spawn(async move { client.call(Call::plain("ContainerStatus")).await });
    }
    for got in calls.join_all().await {
        assert_eq!((got.code(), &got.broken), (0, &None), "{got:?}");
    }
    for reason in [
        Reason::NO_ERROR,
        Reason::INTERNAL_ERROR,
        Reason::ENHANCE_YOUR_CALM,
    ] {
        fake.always(vec![Step::Read, Step::Abort(reason)]);
        let got = client.call(Call::plain("StopContainer")).await;
        assert_unavailable(&got, "connection lost during the call");
        fake.always(script::empty());
        assert_good(&client).await;
    }
    proxy.wait_balanced(66).await;
}

#[tokio::test]
async fn resets_are_passed_on_with_their_reason() {
    let (fake, proxy) = proxied().await;
    let (direct, through) = (Client::connect(fake.path()).await, proxy.client().await);
    let mut entered = 0;
    for number in 0..=13 {
        let reason = Reason::from(number);
        for begun in [false, true] {
            let mut steps = vec![Step::Read];
            if begun {
                steps.extend([script::head(), Step::Data(message(b"abc"))]);
            }
            steps.push(Step::Reset(reason));
            fake.always(steps);
            for method in ["ListImages", "ExecSync", "GetContainerEvents", "NotKnown"] {
                let direct = direct.call(Call::plain(method)).await;
                let got = through.call(Call::plain(method)).await;
                assert_eq!(got.broken, direct.broken, "{reason:?} {begun} {method}");
                assert_eq!(got.broken, Some(Broken::Reset(reason)), "{method}");
                entered += 1;
            }
        }
    }
    fake.always(script::empty());
    assert_good(&through).await;
    proxy.wait_balanced(entered + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_restarts_under_load() {
    let (fake, proxy) = proxied().await;
    let over = Arc::new(AtomicBool::new(false));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (client, over) = (proxy.client().await, Arc::clone(&over));
        callers.spawn(async move {
            let mut codes = Vec::new();
            while !over.load(Ordering::SeqCst) {
                let got = client.call(Call::plain("ContainerStatus")).await;
                assert_eq!(got.broken, None);
                codes.push(got.code());
            }
            // On the same connection to criscope.
            assert_good(&client).await;
            codes.push(0);
            codes
        });
    }
    for round in 1..=4 {
        fake.wait_count(round * 100).await;
        fake.stop();
        until_true("a failed call", async || {
            let scrape = proxy.scrape().await;
            let failed = scrape
                .metric("criscope_rpc_total")
                .with("code", "UNAVAILABLE");
            failed.sum() >= (round * 5) as f64
        })
        .await;
        fake.start();
    }
    proxy.wait_ready().await;
    over.store(true, Ordering::SeqCst);
    let codes: Vec<i32> = callers.join_all().await.concat();
    assert!(
        codes.iter().all(|c| [0, UNAVAILABLE].contains(c)),
        "{codes:?}"
    );
    let scrape = proxy.wait_balanced(codes.len()).await;
    assert!(scrape.metric("criscope_backend_reconnects_total").sum() >= 1.0);
    let down = proxy
        .events()
        .iter()
        .filter(|e| e["event"] == "backend.down")
        .count();
    assert!(down >= 1);
}

#[tokio::test]
async fn unimplemented_comes_only_from_the_runtime() {
    let fake = Fake::new();
    fake.always(script::error(12, "unknown method CheckpointContainer"));
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    let got = client.call(Call::plain("CheckpointContainer")).await;
    assert_eq!(
        (got.code(), &*got.text()),
        (12, "unknown method CheckpointContainer")
    );
    let scrape = proxy.wait_balanced(1).await;
    let said = scrape
        .metric("criscope_rpc_total")
        .with("code", "UNIMPLEMENTED");
    assert_eq!(said.sum(), 1.0);
}

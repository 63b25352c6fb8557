//! Hostile callers that follow the rules of HTTP/2.

use h2::Reason;
use tokio::io::AsyncReadExt as _;
use tokio::net::UnixStream;

use super::Siege;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_of_large_answers_harm_no_other() {
    let siege = Siege::new().await;
    let large = script::ok(&[message(&vec![7; 8 << 20])]);
    siege.fake.on(move |head| match head.uri.path() {
        p if p.ends_with("ListContainers") => large.clone(),
        _ => script::empty(),
    });
    let path = siege.proxy.socket();
    siege
        .during(async {
            let mut held = Vec::new();
            for _ in 0..50 {
                let client = Client::with_window(&path, 65_535).await;
                let mut call = client.start(Call::plain("ListContainers")).await;
                let (_, body) = call.head().await;
                held.push((client, call, body));
            }
            held
        })
        .await;
    // Each may hold one window of data, not a whole response.
    let scrape = siege.proxy.scrape().await;
    let resident = scrape.metric("process_resident_memory_bytes").sum();
    assert!(resident < 200e6, "{resident} bytes");
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_reset_streams_harm_no_other() {
    let siege = Siege::hanging("StopContainer").await;
    let path = siege.proxy.socket();
    siege
        .during(async {
            for _ in 0..10 {
                let client = Client::connect(&path).await;
                for n in 0..500 {
                    let method = if n % 2 == 0 {
                        "StopContainer"
                    } else {
                        "Nothing"
                    };
                    let call = client.begin(&Call::plain(method)).await;
                    // The connection may have been closed because of it.
                    call.reset(Reason::CANCEL);
                }
            }
        })
        .await;
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_never_finished_harm_no_other() {
    let siege = Siege::new().await;
    let path = siege.proxy.socket();
    siege
        .during(async {
            let mut held = Vec::new();
            for _ in 0..20 {
                let client = Client::connect(&path).await;
                for n in 0..50 {
                    let mut call = client.begin(&Call::plain("CreateContainer")).await;
                    if n % 2 == 0 {
                        call.send(Bytes::from_static(b"\0\0\x10\0\0half"), false);
                    }
                    held.push((None, call));
                }
                let last = client.begin(&Call::plain("CreateContainer")).await;
                held.push((Some(client), last));
            }
            until_true("all have entered", async || {
                let scrape = siege.proxy.scrape().await;
                let waiting = scrape
                    .metric("criscope_rpc_in_flight")
                    .with("method", "CreateContainer");
                waiting.sum() == 1020.0
            })
            .await;
            held
        })
        .await;
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_on_one_connection_harm_no_other() {
    let siege = Siege::new().await;
    let path = siege.proxy.socket();
    siege
        .during(async {
            let client = Client::connect(&path).await;
            let mut calls = Vec::new();
            for _ in 0..2000 {
                calls.push(client.start(Call::plain("ContainerStatus")).await);
            }
            for call in calls {
                let got = call.finish().await;
                assert_eq!((got.code(), &got.broken), (0, &None), "{got:?}");
            }
        })
        .await;
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_beyond_the_limit_of_a_connection_wait_or_are_refused() {
    let siege = Siege::hanging("StopContainer").await;
    let path = siege.proxy.socket();
    siege
        .during(async {
            let socket = UnixStream::connect(&path).await.expect("connected");
            let builder = h2::client::Builder::new();
            let (sender, mut connection) = builder
                .handshake::<_, Bytes>(socket)
                .await
                .expect("a handshake");
            let mut ping = connection.ping_pong().expect("once");
            let connection = tokio::spawn(connection);
            // The PING response follows the SETTINGS.
            ping.ping(h2::Ping::opaque()).await.expect("answered");
            let most = sender.current_max_send_streams();
            assert!((100..=1000).contains(&most), "{most} streams at a time");
            connection.abort();

            // Streams beyond the limit of a caller that ignores it are refused.
            let mut bytes = super::bytes::session(&[]);
            let request = super::bytes::request("/runtime.v1.RuntimeService/StopContainer");
            let beyond = most + 50;
            for n in 0..beyond {
                let stream = u32::try_from(2 * n + 1).expect("small");
                bytes.extend(super::bytes::frame(1, 4, stream, &request));
            }
            let mut socket = super::bytes::send(&path, &bytes).await;
            let mut refused = 0;
            let mut head = [0; 9];
            while refused < 50 {
                let read = soon("more frames", socket.read_exact(&mut head)).await;
                read.expect("the connection goes on");
                let len = u32::from_be_bytes([0, head[0], head[1], head[2]]);
                let mut payload = vec![0; len as usize];
                socket.read_exact(&mut payload).await.expect("whole");
                if head[3] == 3 {
                    // REFUSED_STREAM.
                    assert_eq!(payload, [0, 0, 0, 7]);
                    refused += 1;
                }
            }
            let entered = siege
                .proxy
                .wait_scrape("the calls within the limit", |scrape| {
                    let calls = scrape.metric("criscope_rpc_in_flight");
                    calls.with("method", "StopContainer").sum() == most as f64
                });
            entered.await;
            socket
        })
        .await;
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_make_room_and_those_with_calls_do_not() {
    let siege = Siege::hanging("GetContainerEvents").await;
    let path = siege.proxy.socket();
    let watcher = Client::connect(&path).await;
    let watch = watcher.begin(&Call::plain("GetContainerEvents")).await;
    let watches = |scrape: &Scrape| {
        let calls = scrape.metric("criscope_rpc_in_flight");
        calls.with("method", "GetContainerEvents").sum()
    };
    let has_entered = |scrape: &Scrape| watches(scrape) == 1.0;
    siege.proxy.wait_scrape("the watch", has_entered).await;
    siege
        .during(async {
            let mut idle = Vec::new();
            for n in 0..1500 {
                let greeting = if n % 2 == 0 {
                    Vec::new()
                } else {
                    super::bytes::session(&[])
                };
                idle.push(super::bytes::send(&path, &greeting).await);
            }
            // New connections are served.
            let client = Client::connect(&path).await;
            assert_eq!(client.call(Call::plain("Version")).await.code(), 0);
            let scrape = siege.proxy.scrape().await;
            let open = scrape.metric("criscope_connections_open").sum();
            assert!(open <= 1024.0, "{open}");
            idle
        })
        .await;
    assert_eq!(
        watches(&siege.proxy.scrape().await),
        1.0,
        "it is still open"
    );
    watch.reset(Reason::CANCEL);
    drop(watcher);
    siege.over().await;
}

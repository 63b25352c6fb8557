//! Callers that speak HTTP/2 well and mean ill.

use bytes::Bytes;
use h2::Reason;

use super::Siege;
use crate::harness::client::{Call, Client};
use crate::harness::script::{self, Step};
use crate::harness::{message, until};

#[tokio::test(flavor = "multi_thread")]
async fn slow_readers_of_large_answers_harm_nobody() {
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
    // Each may hold a window's worth, not an answer's.
    let scrape = siege.proxy.scrape().await;
    let resident = scrape.metric("process_resident_memory_bytes").sum();
    assert!(resident < 200e6, "{resident} bytes");
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_reset_streams_harm_nobody() {
    let siege = Siege::new().await;
    siege.fake.on(|head| match head.uri.path() {
        p if p.ends_with("StopContainer") => vec![Step::Read, Step::Hang],
        _ => script::empty(),
    });
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
                    // Its connection may have been ended for it.
                    call.reset(Reason::CANCEL);
                }
            }
        })
        .await;
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_never_finished_harm_nobody() {
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
            until("all have entered", || async {
                let scrape = siege.proxy.scrape().await;
                let waiting = scrape
                    .metric("criscope_rpc_in_flight")
                    .with("method", "CreateContainer");
                (waiting.sum() == 1020.0).then_some(())
            })
            .await;
            held
        })
        .await;
    siege.over().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn many_calls_at_once_on_one_connection_harm_nobody() {
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

//! Cancelled calls and expired deadlines: they reach the runtime, and each call ends once.

use h2::Reason;

use crate::harness::client::{Broken, read, read_some};
use crate::harness::fake::RequestEnd;
use crate::prelude::*;

/// A runtime that reads the request and never responds.
fn hang() -> Vec<Step> {
    vec![Step::Read, Step::Hang]
}

/// The number of calls of a method with this outcome.
fn ended(scrape: &Scrape, method: &str, outcome: &str) -> f64 {
    let counts = scrape.metric("criscope_rpc_duration_seconds_count");
    counts.with("method", method).with("outcome", outcome).sum()
}

#[tokio::test]
async fn a_callers_reset_reaches_the_runtime() {
    let fake = Fake::new();
    fake.always(hang());
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;

    let call = client.start(Call::plain("StopContainer")).await;
    fake.wait_count(1).await;
    call.reset(Reason::CANCEL);
    let seen = fake.wait("reset", |seen| seen.reset.is_some()).await;
    assert_eq!(seen.reset, Some(Reason::CANCEL));

    let scrape = proxy.wait_balanced(1).await;
    assert_eq!(ended(&scrape, "StopContainer", "cancelled"), 1.0);
    let line = proxy.wait_event("rpc.cancelled").await;
    assert_eq!(
        line["rpc.method"],
        "runtime.v1.RuntimeService/StopContainer"
    );
    let lines = proxy.stop().await;
    let told = lines.iter().filter(|l| l.contains("rpc.cancelled"));
    assert_eq!(told.count(), 1);
}

#[tokio::test]
async fn a_caller_may_cancel_before_its_request_is_complete() {
    let (_fake, proxy, client) = proxied_client().await;
    let mut call = client.begin(&Call::plain("CreateContainer")).await;
    call.send(message(&[7; 100]).slice(..50), false);
    // The bytes must arrive before the reset overtakes them.
    until_true("the call enters", async || {
        let scrape = proxy.scrape().await;
        scrape.metric("criscope_rpc_in_flight").sum() == 1.0
    })
    .await;
    call.reset(Reason::CANCEL);
    let scrape = proxy.wait_balanced(1).await;
    assert_eq!(ended(&scrape, "CreateContainer", "ok"), 0.0);
    assert_eq!(ended(&scrape, "CreateContainer", "cancelled"), 1.0);
}

#[tokio::test]
async fn a_stream_dropped_midway_is_reset_at_the_runtime() {
    let fake = Fake::new();
    let event = message(&[3; 500]);
    fake.always(vec![
        Step::Read,
        script::head(),
        Step::Data(event.clone()),
        Step::Hang,
    ]);
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    for (n, method) in ["GetContainerEvents", "ListContainers", "ExecSync"]
        .into_iter()
        .enumerate()
    {
        let mut call = client.start(Call::plain(method)).await;
        let (mut got, body) = call.head().await;
        let mut body = body.expect("a body");
        read_some(&mut got, &mut body, event.len()).await;
        assert_eq!(got.data, event);
        drop(body);
        call.reset(Reason::CANCEL);
        until_true("resets at the runtime", async || {
            let resets = fake
                .seen()
                .iter()
                .filter(|s| s.reset == Some(Reason::CANCEL))
                .count();
            resets == n + 1
        })
        .await;
        let scrape = proxy.wait_balanced(n + 1).await;
        assert_eq!(ended(&scrape, method, "cancelled"), 1.0);
    }
}

#[tokio::test]
async fn the_callers_deadline_is_passed_on_and_has_its_own_outcome() {
    let fake = Fake::new();
    fake.always(hang());
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    let call = client
        .start(Call::plain("ExecSync").with("grpc-timeout", "2000m"))
        .await;
    let seen = fake.wait("the call", |_| true).await;
    assert_eq!(seen.headers["grpc-timeout"], "2000m", "as it was sent");
    // A gRPC caller resets the call at its deadline.
    tokio::time::sleep(Duration::from_secs(2)).await;
    call.reset(Reason::CANCEL);
    let scrape = proxy.wait_balanced(1).await;
    assert_eq!(ended(&scrape, "ExecSync", "deadline"), 1.0);
    let by_code = scrape
        .metric("criscope_rpc_total")
        .with("code", "DEADLINE_EXCEEDED");
    assert_eq!(by_code.sum(), 1.0);
}

#[tokio::test]
async fn a_call_that_neither_side_ends_ends_by_itself() {
    let fake = Fake::new();
    fake.always(hang());
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    let call = Call::plain("StartContainer").with("grpc-timeout", "2S");
    let got = client.call(call).await;
    assert_eq!(got.code(), 4, "{got:?}");
    assert!(got.text().contains("before the deadline"), "{}", got.text());
    assert!(got.head_only);
    let seen = fake.wait("reset", |seen| seen.reset.is_some()).await;
    assert_eq!(
        seen.reset,
        Some(Reason::CANCEL),
        "the runtime sees the reset"
    );

    // A request that is never completed.
    let mut call = client
        .begin(&Call::plain("StartContainer").with("grpc-timeout", "2S"))
        .await;
    call.send(message(&[1; 10]).slice(..9), false);
    let got = call.finish().await;
    assert_eq!(got.code(), 4, "{got:?}");

    let scrape = proxy.wait_balanced(2).await;
    assert_eq!(ended(&scrape, "StartContainer", "deadline"), 2.0);
}

#[tokio::test]
async fn an_answer_that_stops_half_way_ends_at_the_deadline() {
    let fake = Fake::new();
    fake.always(vec![
        Step::Read,
        script::head(),
        Step::Data(message(b"x").slice(..3)),
        Step::Hang,
    ]);
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    let call = Call::plain("ContainerStatus").with("grpc-timeout", "2S");
    let got = client.call(call).await;
    assert_eq!(got.code(), 4, "{got:?}");
    assert_eq!(got.data.len(), 3);
    fake.wait("reset", |seen| seen.reset == Some(Reason::CANCEL))
        .await;
    let scrape = proxy.wait_balanced(1).await;
    assert_eq!(ended(&scrape, "ContainerStatus", "deadline"), 1.0);
}

#[tokio::test]
async fn a_connection_that_dies_ends_all_its_calls() {
    let fake = Fake::new();
    fake.always(hang());
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    fake.wait_settled().await;
    let client = proxy.client().await;
    let mut calls = Vec::new();
    for method in [
        "StopContainer",
        "GetContainerEvents",
        "PullImage",
        "Nothing",
    ] {
        for _ in 0..5 {
            calls.push(client.start(Call::plain(method)).await);
        }
    }
    fake.wait_count(20).await;
    drop(client);
    let scrape = proxy.wait_balanced(20).await;
    let cancelled = scrape
        .metric("criscope_rpc_total")
        .with("code", "CANCELLED");
    assert_eq!(cancelled.sum(), 20.0);
    until_true("20 ends at the runtime", async || {
        let ended = fake.seen().iter().filter(|s| s.done).count();
        ended == 20
    })
    .await;
    until_true("its connections are closed", async || {
        fake.connections() == 1
    })
    .await;
}

#[tokio::test]
async fn a_response_may_arrive_before_the_request_is_complete() {
    let fake = Fake::new();
    fake.on(|_| {
        let mut steps = script::error(5, "no such thing");
        steps.remove(0);
        steps
    });
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    // An unknown call may be bidirectional: its request is streamed through.
    let mut call = client.begin(&Call::new("/x.Y/Talk", message(b""))).await;
    call.send(message(b"first"), false);
    let (mut got, body) = call.head().await;
    read(&mut got, body.expect("a body")).await;
    assert_eq!(got.code(), 5);
    assert!(
        matches!(got.broken, None | Some(Broken::Reset(Reason::NO_ERROR))),
        "{got:?}"
    );
    proxy.wait_balanced(1).await;
    drop(call);
    fake.wait("the end of the request", |seen| {
        seen.end != RequestEnd::Open
    })
    .await;
}

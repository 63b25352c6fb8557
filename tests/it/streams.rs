//! Large responses and long streams: passed on as they arrive, and a stalled reader stalls only itself.

use crate::harness::client::{read, read_some};
use crate::harness::fake::Seen;
use crate::prelude::*;

const MIB: usize = 1 << 20;

/// Data in which misplaced bytes are detectable.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 251 + i) as u8).collect()
}

fn calls_of<'a>(seen: &'a [Seen], method: &'a str) -> impl Iterator<Item = &'a Seen> {
    seen.iter().filter(move |s| s.uri.path().ends_with(method))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_response_arrives_while_it_is_still_being_sent() {
    let (fake, proxy, client) = proxied_client().await;
    for (size, method) in [(10 * MIB, "ListContainers"), (20 * MIB, "ExecSync")] {
        let gate = CancellationToken::new();
        let whole = message(&pattern(size));
        fake.always(vec![
            Step::Read,
            script::head(),
            Step::Data(whole.slice(..MIB)),
            Step::Wait(gate.clone()),
            Step::Data(whole.slice(MIB..)),
            Step::Trailers(script::status(0, "")),
        ]);
        let mut call = client.start(Call::plain(method)).await;
        let (mut got, body) = call.head().await;
        let mut body = body.expect("a body");
        read_some(&mut got, &mut body, MIB).await;
        assert_eq!(got.data.len(), MIB, "all data sent, and no more");
        gate.cancel();
        read(&mut got, body).await;
        assert_eq!((got.code(), &got.broken), (0, &None));
        assert!(got.data == whole, "{method}: changed in transit");
    }
    proxy.wait_balanced(2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_stops_reading_stalls_no_other() {
    let fake = Fake::new();
    let large = message(&pattern(16 * MIB));
    let answer = script::ok(std::slice::from_ref(&large));
    fake.on(move |head| match head.uri.path() {
        p if p.ends_with("GetContainerEvents") || p.ends_with("ListContainers") => answer.clone(),
        _ => script::empty(),
    });
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = Client::with_window(&proxy.socket(), 65_535).await;
    let mut stalled = Vec::new();
    for method in [
        "GetContainerEvents",
        "GetContainerEvents",
        "ListContainers",
        "ListContainers",
    ] {
        let mut call = client.start(Call::plain(method)).await;
        let (got, body) = call.head().await;
        stalled.push((call, got, body.expect("a body")));
    }
    for _ in 0..50 {
        let got = client.call(Call::plain("ContainerStatus")).await;
        assert_eq!((got.code(), &got.broken), (0, &None));
    }
    // Backpressure reaches the runtime, so nothing is buffered in between.
    let seen = fake.seen();
    for seen in calls_of(&seen, "GetContainerEvents").chain(calls_of(&seen, "ListContainers")) {
        assert!(
            seen.sent < 4 * MIB,
            "{} bytes were taken from the runtime",
            seen.sent
        );
    }
    // They can continue where they stopped.
    for (_call, mut got, body) in stalled {
        read(&mut got, body).await;
        assert_eq!(got.code(), 0);
        assert!(got.data == large);
    }
    proxy.wait_balanced(54).await;
}

#[tokio::test]
async fn events_arrive_one_by_one_for_as_long_as_the_caller_listens() {
    let fake = Fake::new();
    let gates: Vec<_> = (0..5).map(|_| CancellationToken::new()).collect();
    let events: Vec<Bytes> = (0..5u8).map(|i| message(&[i; 40])).collect();
    let mut steps = vec![Step::Read, script::head()];
    for (gate, event) in gates.iter().zip(&events) {
        steps.extend([Step::Wait(gate.clone()), Step::Data(event.clone())]);
    }
    steps.push(Step::Trailers(script::status(0, "")));
    fake.always(steps);
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let client = proxy.client().await;
    let mut call = client.start(Call::plain("GetContainerEvents")).await;
    let (mut got, body) = call.head().await;
    let mut body = body.expect("a body");
    for (n, gate) in gates.iter().enumerate() {
        gate.cancel();
        read_some(&mut got, &mut body, 45 * (n + 1)).await;
        assert_eq!(got.data, events[..=n].concat());
    }
    read(&mut got, body).await;
    assert_eq!(got.code(), 0);
    proxy.wait_balanced(1).await;
}

#[tokio::test]
async fn a_watch_has_its_own_connection_and_closes_it() {
    let fake = Fake::new();
    fake.always(vec![Step::Read, script::head(), Step::Hang]);
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    fake.wait_settled().await;
    let client = proxy.client().await;
    let mut watches = Vec::new();
    for n in 1..=3 {
        let mut call = client.start(Call::plain("GetContainerEvents")).await;
        call.head().await;
        watches.push(call);
        assert_eq!(fake.connections(), 1 + n);
    }
    for watch in watches {
        watch.reset(h2::Reason::CANCEL);
    }
    until_true("the connections of the watches are closed", async || {
        fake.connections() == 1
    })
    .await;
    proxy.wait_balanced(3).await;
}

//! Invariant 3: whatever the collector does, calls go through, and every span is accounted for.

use super::{proxy, start};
use crate::prelude::*;

/// Calls per round; each makes two spans.
const CALLS: usize = 150;
const SPANS: f64 = 2.0 * CALLS as f64;

async fn call_all(proxy: &Proxy) {
    let client = proxy.client().await;
    for _ in 0..CALLS {
        let got = client.call(Call::plain("StopContainer")).await;
        assert_eq!(got.code(), 0, "{got:?}");
    }
}

fn spans(scrape: &Scrape, decision: &str) -> f64 {
    let all = scrape.metric("criscope_telemetry_spans_total");
    all.with("decision", decision).sum()
}

fn dropped(scrape: &Scrape, reason: &str) -> f64 {
    let all = scrape.metric("criscope_telemetry_dropped_total");
    all.with("signal", "span").with("reason", reason).sum()
}

/// Waits until so many spans are accounted for, and checks that both metrics tell the same.
async fn settled(proxy: &Proxy, made: f64) -> Scrape {
    let lost_by_reason = |scrape: &Scrape| {
        let reasons = ["export_failed", "queue_full", "shutdown"];
        reasons.iter().map(|why| dropped(scrape, why)).sum::<f64>()
    };
    let scrape = proxy
        .wait_scrape("the account of every span", |scrape| {
            let lost = spans(scrape, "failed") + spans(scrape, "dropped");
            scrape.metric("criscope_telemetry_spans_total").sum() >= made
                && lost_by_reason(scrape) >= lost
        })
        .await;
    assert_eq!(scrape.metric("criscope_telemetry_spans_total").sum(), made);
    assert_eq!(spans(&scrape, "failed"), dropped(&scrape, "export_failed"));
    let never_sent = dropped(&scrape, "queue_full") + dropped(&scrape, "shutdown");
    assert_eq!(spans(&scrape, "dropped"), never_sent);
    let calls = scrape.metric("criscope_rpc_total").with("code", "OK").sum();
    assert_eq!(2.0 * calls, made, "every call went through");
    scrape
}

#[tokio::test(flavor = "multi_thread")]
async fn a_good_collector_gets_every_span() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let proxy = proxy(&fake, &collector, "").await;
    call_all(&proxy).await;
    let scrape = settled(&proxy, SPANS).await;
    assert_eq!(spans(&scrape, "exported"), SPANS);
    assert_eq!(collector.spans().len() as f64, SPANS);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_refuses_costs_spans_only() {
    let fake = Fake::new();
    let collector = Collector::new(Manner::Refuses).await;
    let proxy = proxy(&fake, &collector, "").await;
    call_all(&proxy).await;
    let scrape = settled(&proxy, SPANS).await;
    assert_eq!(spans(&scrape, "failed"), SPANS);
    proxy.wait_event("telemetry.dropped").await;
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_not_there_costs_spans_only() {
    let fake = Fake::new();
    let collector = Collector::absent(Manner::Takes);
    let proxy = proxy(&fake, &collector, "").await;
    call_all(&proxy).await;
    let scrape = settled(&proxy, SPANS).await;
    assert_eq!(spans(&scrape, "failed"), SPANS);
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_hangs_costs_spans_only() {
    let fake = Fake::new();
    let collector = Collector::new(Manner::Hangs).await;
    let proxy = proxy(&fake, &collector, "timeout = \"100ms\"\n").await;
    call_all(&proxy).await;
    let scrape = settled(&proxy, SPANS).await;
    assert_eq!(spans(&scrape, "failed"), SPANS);
    proxy.stop().await;
}

/// The queue is bounded, and what does not fit is counted at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_costs_spans_only() {
    const ROOM: f64 = 20.0;
    let fake = Fake::new();
    let collector = Collector::new(Manner::Hangs).await;
    let proxy = start(&fake, &collector, "timeout = \"300s\"\n")
        .env("OTEL_BSP_MAX_QUEUE_SIZE", "20")
        .env("OTEL_BSP_EXPORT_TIMEOUT", "300000")
        .ready()
        .await;
    call_all(&proxy).await;
    proxy.wait_balanced(CALLS).await;
    let scrape = proxy
        .wait_scrape("the account of what does not fit", |scrape| {
            dropped(scrape, "queue_full").min(spans(scrape, "dropped")) >= SPANS - ROOM
        })
        .await;
    assert_eq!(dropped(&scrape, "queue_full"), SPANS - ROOM);
    assert_eq!(spans(&scrape, "dropped"), SPANS - ROOM);
    assert_eq!(spans(&scrape, "exported") + spans(&scrape, "failed"), 0.0);
    // Nor does it hold up the end of the program for long.
    proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_comes_back_gets_spans_again() {
    let fake = Fake::new();
    let collector = Collector::new(Manner::Takes).await;
    let proxy = proxy(&fake, &collector, "").await;
    call_all(&proxy).await;
    settled(&proxy, SPANS).await;

    collector.stop();
    call_all(&proxy).await;
    let scrape = settled(&proxy, 2.0 * SPANS).await;
    assert_eq!(spans(&scrape, "failed"), SPANS);

    collector.start().await;
    call_all(&proxy).await;
    let scrape = settled(&proxy, 3.0 * SPANS).await;
    let exported = spans(&scrape, "exported");
    assert!(exported > SPANS, "spans flow again: {exported}");
    assert_eq!(collector.spans().len() as f64, exported);
    proxy.stop().await;
}

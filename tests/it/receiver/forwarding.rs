//! Spans on their way to the collector: unchanged, counted when they are lost, and never in a loop.

use std::net::SocketAddr;

use prost::Message as _;

use super::{EXPORT, client, gzip, otlp, post, received, receiving, request, span, told};
use crate::harness::collector::Wire;
use crate::harness::pki::Authority;
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_attributed_and_forwarded_unchanged() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let all = receiving(&fake, &otlp(&collector)).await;
    let (trace, client_span) = told(&all.proxy, &fake).await;
    let ours = collector.wait_spans(2).await.len();
    // Children first, as exporters send them, and one unrelated span.
    let first = request(vec![
        span(&trace, 2, &[1; 8], "cni.setup_pod_network"),
        span(&[9; 16], 8, &[], "gc"),
    ]);
    let second = request(vec![span(
        &trace,
        1,
        &client_span,
        "runtime.v1.RuntimeService/RunPodSandbox",
    )]);
    let mut exporter = client(all.address).await;
    for request in [&first, &second] {
        let mut request = tonic::Request::new(request.clone());
        request
            .metadata_mut()
            .insert("x-token", "for-the-collector".parse().expect("value"));
        exporter.export(request).await.expect("taken");
    }
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "attributed"), 2.0);
    assert_eq!(received(&scrape, "unknown"), 1.0);
    assert_eq!(received(&scrape, "dropped"), 0.0);
    collector.wait_spans(ours + 3).await;
    let passed = collector
        .requests()
        .split_off(collector.requests().len() - 2);
    assert_eq!(passed, [first, second]);
    let passed_on = "criscope_receiver_passed_on_total";
    all.proxy
        .wait_scrape("the account", |s| s.metric(passed_on).sum() == 3.0)
        .await;
    let log = all.proxy.stop().await.join("\n");
    assert!(
        !log.contains("hunter2") && !log.contains("for-the-collector"),
        "{log}"
    );
}

/// Over HTTP the message is the same, without the frame of gRPC.
#[tokio::test(flavor = "multi_thread")]
async fn spans_are_forwarded_over_http_with_tls() {
    let authority = Authority::new();
    let pair = authority.server("collector");
    let collector = Collector::tls(Wire::Http, &pair, None).await;
    let otlp = format!(
        "{}protocol = \"http/protobuf\"\ntls_ca = \"{}\"\n",
        otlp(&collector),
        authority.ca().display()
    );
    let fake = Fake::new();
    let all = receiving(&fake, &otlp).await;
    let sent = request(vec![span(&[9; 16], 8, &[], "gc")]);
    let body = sent.encode_to_vec();
    let packed = message_with(1, &gzip(&body));
    assert_eq!(post(all.address, EXPORT, None, message(&body)).await, 0);
    assert_eq!(post(all.address, EXPORT, Some("gzip"), packed).await, 0);
    collector.wait_spans(2).await;
    assert_eq!(collector.requests(), [sent.clone(), sent]);
    let seen = collector.seen();
    let encodings = seen.iter().map(|s| s.headers.get("content-encoding"));
    let encodings: Vec<_> = encodings.map(|e| e.and_then(|e| e.to_str().ok())).collect();
    assert_eq!(encodings, [None, Some("gzip")]);
    for head in &seen {
        assert_eq!(head.path, "/v1/traces");
        assert_eq!(head.headers["content-type"], "application/x-protobuf");
        assert!(!head.headers.contains_key("te"));
    }
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_collector_trace_context_is_still_propagated() {
    let fake = Fake::new();
    let all = receiving(&fake, "").await;
    let (trace, client_span) = told(&all.proxy, &fake).await;
    let mut exporter = client(all.address).await;
    exporter
        .export(request(vec![span(&trace, 1, &client_span, "x")]))
        .await
        .expect("taken");
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "attributed"), 1.0);
    assert_eq!(
        scrape.metric("criscope_receiver_passed_on_total").sum(),
        0.0
    );
    assert_eq!(scrape.metric("criscope_telemetry_spans_total").sum(), 0.0);
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_refused_by_the_collector_are_counted() {
    for manner in [Manner::Refuses, Manner::Hangs] {
        let collector = Collector::new(manner).await;
        let fake = Fake::new();
        let timeout = "timeout = \"200ms\"\n";
        let all = receiving(&fake, &(otlp(&collector) + timeout)).await;
        let mut exporter = client(all.address).await;
        for _ in 0..3 {
            let spans = vec![span(&[9; 16], 8, &[], "gc"); 5];
            exporter.export(request(spans)).await.expect("taken");
        }
        let lost = "criscope_telemetry_dropped_total";
        let scrape = all
            .proxy
            .wait_scrape("every span to be counted", |scrape| {
                scrape.metric(lost).with("signal", "passed_span").sum() == 15.0
            })
            .await;
        assert_eq!(received(&scrape, "unknown"), 15.0);
        assert_eq!(
            scrape.metric("criscope_receiver_passed_on_total").sum(),
            0.0
        );
        all.proxy.stop().await;
    }
}

/// Invariant 3: a flood of spans takes bounded memory, and calls succeed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_flood_is_cut_and_counted() {
    let collector = Collector::new(Manner::Hangs).await;
    let fake = Fake::new();
    let all = receiving(&fake, &(otlp(&collector) + "timeout = \"300s\"\n")).await;
    let mut exporter = client(all.address).await;
    let mut big = span(&[9; 16], 8, &[], "gc");
    big.trace_state = "x".repeat(1 << 20);
    for _ in 0..12 {
        exporter
            .export(request(vec![big.clone()]))
            .await
            .expect("taken");
    }
    let lost = |scrape: &Scrape| {
        let all = scrape.metric("criscope_telemetry_dropped_total");
        all.with("signal", "passed_span")
            .with("reason", "queue_full")
            .sum()
    };
    until_true("lost spans", async || {
        lost(&all.proxy.scrape().await) >= 4.0
    })
    .await;
    let caller = all.proxy.client().await;
    assert_eq!(caller.call(Call::plain("Status")).await.code(), 0);
    all.proxy.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_are_not_forwarded_in_a_loop() {
    let fake = Fake::new();
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let config = format!(
        "[telemetry.otlp]\nendpoint = \"http://{address}\"\n[receiver]\nlisten = \"{address}\"\n"
    );
    let proxy = Start::before(crate::CRISCOPE, &fake)
        .config(&config)
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .ready()
        .await;
    proxy.wait_event("receiver.loop").await;
    let all = |scrape: &Scrape| scrape.metric("criscope_receiver_spans_total").sum();
    // It receives its own spans. If it forwarded them, the spans of one call would come before those of the next.
    for _ in 0..5 {
        let before = all(&proxy.scrape().await);
        told(&proxy, &fake).await;
        proxy
            .wait_scrape("its own spans", |scrape| all(scrape) > before)
            .await;
    }
    let passed = proxy.scrape().await;
    let passed = passed.metric("criscope_receiver_passed_on_total").sum();
    assert_eq!(passed, 0.0);
    proxy.stop().await;
}

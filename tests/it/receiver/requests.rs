//! Export requests that are compressed, damaged, too large, or for a service that is not there.

use prost::Message as _;

use super::{EXPORT, gzip, otlp, post, received, receiving, request, span, told};
use crate::prelude::*;

#[tokio::test(flavor = "multi_thread")]
async fn compressed_and_broken_requests() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let all = receiving(&fake, &otlp(&collector)).await;
    let (trace, client_span) = told(&all.proxy, &fake).await;
    let good = request(vec![span(&trace, 1, &client_span, "x")]).encode_to_vec();
    let address = all.address;
    let packed = message_with(1, &gzip(&good));
    assert_eq!(post(address, EXPORT, Some("gzip"), packed).await, 0);
    let bomb = gzip(&vec![0; 64 << 20]);
    let huge = message(&vec![0; 5 << 20]);
    let broken = [
        (EXPORT, None, message(b"\xff\xff\xff"), 3),
        (EXPORT, None, Bytes::from_static(b"\0\0"), 3),
        (EXPORT, None, Bytes::from_static(b"\0\0\0\0\x09abc"), 3),
        (EXPORT, Some("gzip"), message_with(1, b"no gzip"), 3),
        (EXPORT, Some("zstd"), message_with(1, b"x"), 12),
        (EXPORT, Some("gzip"), message_with(1, &bomb), 8),
        (EXPORT, None, huge, 8),
        (
            "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
            None,
            message(b""),
            12,
        ),
    ];
    for (path, encoding, body, want) in broken {
        assert_eq!(
            post(address, path, encoding, body).await,
            want,
            "{path} {encoding:?}"
        );
    }
    let scrape = all.proxy.scrape().await;
    assert_eq!(received(&scrape, "attributed"), 1.0);
    let caller = all.proxy.client().await;
    assert_eq!(caller.call(Call::plain("Status")).await.code(), 0);
    all.proxy.stop().await;
}

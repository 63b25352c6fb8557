//! Our spans and the caller's trace, and the context that the backend receives (W3C Trace Context).

use super::{FAST, hex, pair, proxy};
use crate::harness::fake::Seen;
use crate::prelude::*;

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";

fn header(seen: &Seen, name: &str) -> Vec<String> {
    let all = seen.headers.get_all(name).iter();
    all.map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
        .collect()
}

/// Calls with the caller's headers and gives what reached the backend.
async fn pass(proxy: &Proxy, fake: &Fake, method: &str, pairs: &[(&str, &str)]) -> Seen {
    let mut call = Call::plain(method);
    for (name, value) in &headers(pairs) {
        call.headers.append(name, value.clone());
    }
    assert_eq!(proxy.client().await.call(call).await.code(), 0);
    fake.take(|_| true).remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sampled_trace_goes_on_through_us() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let proxy = proxy(&fake, &collector, "").await;
    let parent = format!("00-{TRACE}-{SPAN}-01");
    let sent = [
        ("traceparent", &*parent),
        ("tracestate", "a=1"),
        ("tracestate", "b=2"),
        ("baggage", "k=v;p,l=w"),
    ];
    // A poll, which would not be sampled by itself.
    let seen = pass(&proxy, &fake, "ListContainers", &sent).await;
    let spans = collector.wait_spans(2).await;
    let (server, client) = pair(&spans, "ListContainers");
    for span in [server, client] {
        assert_eq!(hex(&span.trace_id), TRACE);
        assert_eq!(span.trace_state, "a=1,b=2");
    }
    assert_eq!(hex(&server.parent_span_id), SPAN);
    assert_eq!(client.parent_span_id, server.span_id);
    let ours = format!("00-{TRACE}-{}-01", hex(&client.span_id));
    assert_eq!(header(&seen, "traceparent"), [ours]);
    assert_eq!(header(&seen, "tracestate"), ["a=1", "b=2"]);
    assert_eq!(header(&seen, "baggage"), ["k=v;p,l=w"]);
    proxy.stop().await;
}

/// A kubelet with tracing but no sampling rate sends flags 00 with every call: polls stay out, changes are seen.
#[tokio::test(flavor = "multi_thread")]
async fn an_unsampled_trace_is_joined_by_changes_only() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let proxy = proxy(&fake, &collector, FAST).await;
    let parent = format!("00-{TRACE}-{SPAN}-00");
    let sent = [("traceparent", &*parent), ("tracestate", "a=1")];
    let poll = pass(&proxy, &fake, "ListContainers", &sent).await;
    let told = header(&poll, "traceparent").remove(0);
    assert!(
        told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00"),
        "{told}"
    );
    assert!(
        !told.contains(SPAN),
        "the parent of the backend's span is ours"
    );
    assert_eq!(header(&poll, "tracestate"), ["a=1"]);

    let change = pass(&proxy, &fake, "StopContainer", &sent).await;
    proxy.stop().await;
    let spans = collector.spans();
    assert_eq!(spans.len(), 2, "the poll is not exported");
    let (server, client) = pair(&spans, "StopContainer");
    assert_eq!(hex(&server.trace_id), TRACE);
    assert_eq!(hex(&server.parent_span_id), SPAN);
    let ours = format!("00-{TRACE}-{}-01", hex(&client.span_id));
    assert_eq!(header(&change, "traceparent"), [ours]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_trace_begins_one() {
    let collector = Collector::new(Manner::Takes).await;
    let fake = Fake::new();
    let proxy = proxy(&fake, &collector, "").await;
    for broken in [
        "",
        "rubbish",
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
    ] {
        let sent = match broken {
            "" => vec![],
            broken => vec![("traceparent", broken), ("tracestate", "a=1")],
        };
        let seen = pass(&proxy, &fake, "StopContainer", &sent).await;
        let told = header(&seen, "traceparent").remove(0);
        assert!(told.starts_with("00-") && told.ends_with("-01"), "{told}");
        assert_eq!(
            header(&seen, "tracestate"),
            [""; 0],
            "it belonged to nothing"
        );
    }
    proxy.stop().await;
    let spans = collector.spans();
    let mut traces: Vec<_> = spans.iter().map(|s| hex(&s.trace_id)).collect();
    traces.sort();
    traces.dedup();
    assert_eq!((spans.len(), traces.len()), (6, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_traces_off_nothing_is_touched() {
    let (fake, proxy) = proxied().await;
    let parent = format!("00-{TRACE}-{SPAN}-01");
    for parent in [&*parent, "rubbish", "ff-1-2-3"] {
        let sent = [
            ("traceparent", parent),
            ("tracestate", "a=1"),
            ("tracestate", "what?"),
            ("baggage", "k=v"),
        ];
        let seen = pass(&proxy, &fake, "StopContainer", &sent).await;
        assert_eq!(header(&seen, "traceparent"), [parent]);
        assert_eq!(header(&seen, "tracestate"), ["a=1", "what?"]);
        assert_eq!(header(&seen, "baggage"), ["k=v"]);
    }
    let seen = pass(&proxy, &fake, "StopContainer", &[]).await;
    assert_eq!(header(&seen, "traceparent"), [""; 0]);
    proxy.stop().await;
}

//! The admin endpoint: pages, health and the log level.

use crate::prelude::*;

fn run_pod(name: &str) -> Call {
    let mut config = pods::config(name);
    config.hostname = "not-to-be-shown".into();
    config.metadata.get_or_insert_default().uid = "uid-1".into();
    pods::run_with(config, "")
}

#[tokio::test]
async fn calls_in_flight_are_shown() {
    let fake = Fake::new();
    fake.always(vec![Step::Read, Step::Hang]);
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let (_, text) = proxy.get("/debug/calls?format=json").await;
    assert_eq!(text, "[]");
    assert!(
        proxy
            .get("/debug/calls")
            .await
            .1
            .contains("No call is in flight")
    );

    let client = proxy.client().await;
    let markup = "<script>alert('\"&')</script>";
    let call = client
        .start(run_pod(markup).with("grpc-timeout", "60S"))
        .await;
    fake.wait_count(1).await;

    let (status, text) = proxy.get("/debug/calls?format=json").await;
    assert_eq!(status, 200);
    let rows: Vec<Value> = serde_json::from_str(&text).expect("json");
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(row["method"], "RunPodSandbox");
    assert_eq!(row["phase"], "waiting");
    assert_eq!(row["backend"], "upstream");
    assert_eq!(
        (&row["namespace"], &row["pod"], &row["pod_uid"]),
        (&"shop".into(), &markup.into(), &"uid-1".into())
    );
    assert_eq!(row["client_pid"], std::process::id());
    let left = ["deadline_ms", "duration_ms"].map(|key| row[key].as_f64().expect("a time"));
    let left = left[0] - left[1];
    assert!((1.0..=60_000.0).contains(&left), "{left}");

    let (status, html) = proxy.get("/debug/calls").await;
    assert_eq!(status, 200);
    assert!(
        html.contains("&lt;script&gt;alert('&quot;&amp;')&lt;/script&gt;"),
        "{html}"
    );
    assert_eq!(
        html.matches("<script").count(),
        1,
        "only our own script: {html}"
    );
    assert!(!html.contains("not-to-be-shown") && !text.contains("not-to-be-shown"));

    let (_, verbose) = proxy.get("/readyz?verbose").await;
    assert!(
        verbose.contains("1 calls in flight, the oldest is RunPodSandbox"),
        "{verbose}"
    );
    let scrape = proxy.scrape().await;
    let in_flight = scrape
        .metric("criscope_rpc_in_flight")
        .with("method", "RunPodSandbox");
    assert_eq!(in_flight.sum(), 1.0);
    let oldest = scrape.metric("criscope_rpc_oldest_in_flight_seconds");
    assert!(oldest.with("method", "RunPodSandbox").sum() > 0.0);

    call.reset(h2::Reason::CANCEL);
    proxy.wait_balanced(1).await;
    let oldest = "criscope_rpc_oldest_in_flight_seconds";
    proxy
        .wait_scrape("the end of the call", |scrape| {
            scrape.metric(oldest).is_empty()
        })
        .await;
    assert_eq!(proxy.get("/debug/calls?format=json").await.1, "[]");
}

#[tokio::test]
async fn readiness_reports_the_runtime() {
    let fake = Fake::new();
    fake.node().conditions = vec![v1::RuntimeCondition {
        r#type: "NetworkReady".into(),
        status: false,
        reason: "NoCni".into(),
        message: String::new(),
    }];
    let proxy = Proxy::before(crate::CRISCOPE, &fake).await;
    let text = until("the Status of the runtime", || async {
        let (status, text) = proxy.get("/readyz?verbose").await;
        assert_eq!(status, 200, "a runtime without network still serves calls");
        text.contains("last good Status").then_some(text)
    })
    .await;
    assert!(text.contains("[+] backend upstream: fake v9 up"), "{text}");
    assert!(text.contains("[-] NetworkReady: NoCni"), "{text}");
    assert!(text.contains("[+] no call in flight"), "{text}");
    assert_eq!(proxy.get("/readyz").await, (200, "ok\n".to_owned()));
    assert_eq!(proxy.get("/livez").await, (200, "ok\n".to_owned()));
    assert_eq!(proxy.get("/").await.0, 200);
    let (status, text) = proxy.get("/nothing").await;
    assert_eq!(status, 404);
    assert!(text.contains("page not found"), "{text}");
    assert_eq!(proxy.http("POST", "/metrics", "").await.0, 405);

    fake.stop();
    let text = until("the backend to be down", || async {
        let (status, text) = proxy.get("/readyz").await;
        (status == 503).then_some(text)
    })
    .await;
    assert!(text.contains("[-] backend upstream: down"), "{text}");
    assert_eq!(proxy.get("/livez").await.0, 200);
    fake.start();
    proxy.wait_ready().await;
    let (_, text) = proxy.get("/readyz?verbose").await;
    assert!(text.contains("reconnected 1 times"), "{text}");
}

#[tokio::test]
async fn the_log_level_can_be_changed_but_not_to_an_invalid_one() {
    let fake = Fake::new();
    // Slow polls are logged at info too.
    let config = "[telemetry.sampling]\nslow = \"60s\"\n";
    let proxy = configured(&fake, config).await;
    let client = proxy.client().await;
    assert_eq!(
        proxy.get("/debug/log-level").await,
        (200, "info".to_owned())
    );
    assert_eq!(client.call(Call::plain("PodSandboxStatus")).await.code(), 0);
    let good = "info,criscope::rpc=debug";
    proxy.set_log_level(&format!("{good}\n")).await;
    assert_eq!(proxy.get("/debug/log-level").await.1, good);
    assert_eq!(client.call(Call::plain("ContainerStatus")).await.code(), 0);
    proxy
        .wait_line("a poll", |l| is_call(l, "ContainerStatus"))
        .await;
    for bad in ["loud", "info,criscope::rpc=loud", "", "=", "\u{7}"] {
        let (status, text) = proxy.by_socket("PUT", "/debug/log-level", bad).await;
        assert_eq!(status, 400, "{bad:?}: {text}");
        assert_eq!(proxy.get("/debug/log-level").await.1, good, "{bad:?}");
    }
    // Refused, or the connection was closed before the request was complete.
    let (status, _) = proxy
        .by_socket("PUT", "/debug/log-level", &"x".repeat(3 << 20))
        .await;
    assert!([413, 0].contains(&status), "{status}");
    assert_eq!(proxy.get("/debug/log-level").await.1, good);
    let log = proxy.stop().await.join("\n");
    assert!(
        !log.contains("PodSandboxStatus"),
        "polls are not logged at info: {log}"
    );
}

#[tokio::test]
async fn debug_pages_can_be_disabled() {
    let fake = Fake::new();
    let config = "[admin]\ndebug = false\n";
    let proxy = configured(&fake, config).await;
    assert_eq!(proxy.get("/debug/calls").await.0, 404);
    assert_eq!(proxy.http("PUT", "/debug/log-level", "off").await.0, 404);
    assert_eq!(proxy.get("/metrics").await.0, 200);
    assert_eq!(proxy.by_socket("GET", "/debug/calls", "").await.0, 200);
}

#[tokio::test]
async fn caller_input_never_becomes_a_label() {
    let (_fake, proxy, client) = proxied_client().await;
    for n in 0..200 {
        let call = Call::new(&format!("/strange.Service{n}/Method{n}"), message(b""));
        assert_eq!(client.call(call).await.code(), 0);
    }
    let scrape = proxy.wait_balanced(200).await;
    let other = scrape.metric("criscope_rpc_total").with("method", "_OTHER");
    assert_eq!(other.sum(), 200.0);
    let (_, text) = proxy.get("/metrics").await;
    assert!(!text.contains("strange"), "{text}");
}

//! Faults that root injects with `criscope fault`: off unless enabled, over the socket only, and always visible.

use crate::harness::pods::{self, Kubelet, Manners};
use crate::prelude::*;

const UNAVAILABLE: i32 = 14;

async fn enabled(fake: &Fake) -> Proxy {
    let start = Start::before(crate::CRISCOPE, fake);
    start.config("[faults]\nenabled = true\n").ready().await
}

/// `criscope fault ...` over the socket.
async fn fault(proxy: &Proxy, args: &[&str]) -> Output {
    let mut command = Command::new(crate::CRISCOPE);
    let socket = format!("unix://{}", proxy.admin_socket().display());
    command
        .arg("fault")
        .args(args)
        .env("CRISCOPE_ADMIN", socket);
    command.stdin(Stdio::null());
    let run = tokio::task::spawn_blocking(move || command.output());
    run.await.expect("joined").expect("run")
}

async fn done(proxy: &Proxy, args: &[&str]) -> String {
    let output = fault(proxy, args).await;
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

async fn headline(proxy: &Proxy, pod: &str) -> String {
    let (_, text) = proxy
        .get(&format!("/debug/pods/shop/{pod}?format=json"))
        .await;
    let story: Value = serde_json::from_str(&text).unwrap_or_default();
    story["headline"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_hits_only_the_selected_calls_and_is_visible_everywhere() {
    let fake = Fake::new();
    Manners::of(&fake);
    let proxy = enabled(&fake).await;
    assert_eq!(done(&proxy, &["list"]).await, "No faults are injected.\n");
    let fail = [
        "add",
        "--method",
        "RunPodSandbox",
        "--namespace",
        "shop",
        "--pod",
        "web",
        "--fail",
        "UNAVAILABLE",
        "--for",
        "10m",
    ];
    let added = done(&proxy, &fail).await;
    assert!(
        added.starts_with("1  RunPodSandbox of shop/web fails with UNAVAILABLE; 0 calls"),
        "{added}"
    );

    let client = proxy.client().await;
    let got = client.call(pods::run("web")).await;
    assert_eq!(got.code(), UNAVAILABLE);
    assert!(
        got.text().starts_with("injected fault: "),
        "{:?}",
        got.text()
    );
    assert_eq!(client.call(pods::run("other")).await.code(), 0);
    let text = until("its headline", || async {
        let text = headline(&proxy, "web").await;
        (!text.is_empty()).then_some(text)
    });
    let text = text.await;
    assert!(
        text.starts_with("cannot create the sandbox: injected fault: "),
        "{text}"
    );
    let line = proxy.wait_event("fault.injected").await;
    assert_eq!(
        (&line["kind"], &line["k8s.pod.name"]),
        (&"fail".into(), &"web".into())
    );
    assert_eq!(proxy.wait_event("fault.added").await["uid"], 0);
    let is_end = |line: &Value| line["event"] == "rpc.end" && line["criscope.fault"] == "fail";
    proxy.wait_line("the line of the call", is_end).await;
    let (_, page) = proxy.get("/").await;
    assert!(
        page.contains("Injected fault: RunPodSandbox of shop/web fails"),
        "{page}"
    );
    let scrape = proxy.scrape().await;
    let injected = scrape.metric("criscope_faults_injected_total");
    assert_eq!(
        injected
            .with("method", "RunPodSandbox")
            .with("kind", "fail")
            .sum(),
        1.0
    );
    assert_eq!(scrape.metric("criscope_faults_active").sum(), 1.0);

    let cleared = done(&proxy, &["clear", "1"]).await;
    assert!(cleared.contains("; 1 call,"), "{cleared}");
    assert_eq!(client.call(pods::run("web")).await.code(), 0);
    proxy.wait_event("fault.ended").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_held_call_continues_when_its_fault_ends() {
    let fake = Fake::new();
    Manners::of(&fake);
    let proxy = enabled(&fake).await;
    let hang = ["add", "--method", "RunPodSandbox", "--hang", "--for", "1h"];
    done(&proxy, &hang).await;
    let client = proxy.client().await;
    let call = client.start(pods::run("web")).await;
    until_true("the call to be held", async || {
        let text = headline(&proxy, "web").await;
        text.contains("now in an injected hang")
    })
    .await;
    let (_, calls) = proxy.get("/debug/calls?format=json").await;
    assert!(
        calls.contains("\"routing\""),
        "no backend was called: {calls}"
    );
    let asked = |path: &str| {
        fake.seen()
            .iter()
            .any(|seen| seen.uri.path().ends_with(path))
    };
    assert!(!asked("/RunPodSandbox"));
    done(&proxy, &["clear"]).await;
    assert_eq!(call.finish().await.code(), 0);
    assert!(asked("/RunPodSandbox"));
    // The time counts neither as the runtime's nor as criscope's own.
    let scrape = proxy.scrape().await;
    let own = scrape.metric("criscope_proxy_overhead_seconds_sum").sum();
    assert!(own < 0.5, "{own}");

    done(
        &proxy,
        &[
            "add",
            "--method",
            "StopPodSandbox",
            "--delay",
            "300ms",
            "--for",
            "5m",
        ],
    )
    .await;
    let begin = Instant::now();
    let kubelet = Kubelet::before(&proxy).await;
    kubelet.plain("StopPodSandbox").await;
    assert!(begin.elapsed() >= Duration::from_millis(300));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_root_may_inject_faults_and_only_if_enabled() {
    let fake = Fake::new();
    let off = Proxy::before(crate::CRISCOPE, &fake).await;
    let add = [
        "add", "--method", "Version", "--fail", "INTERNAL", "--for", "1s",
    ];
    let output = fault(&off, &add).await;
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("set faults.enabled = true"), "{text}");
    assert!(
        off.scrape()
            .await
            .metric("criscope_faults_active")
            .is_empty()
    );

    let on = enabled(&fake).await;
    for method in ["POST", "DELETE", "PUT"] {
        let (status, _) = on.http(method, "/debug/faults", "{}").await;
        assert_eq!(status, 405, "{method} over TCP");
    }
    assert_eq!(on.get("/debug/faults").await, (200, "[]".to_owned()));
    let endless = r#"{"method":"Version","effect":"hang"}"#;
    for body in [endless, "{}", "nonsense"] {
        let (status, _) = on.by_socket("POST", "/debug/faults", body).await;
        assert!((400..500).contains(&status), "{status}");
    }
    let long = ["add", "--method", "Version", "--hang", "--for", "2h"];
    let output = fault(&on, &long).await;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("a fault lasts between"), "{text}");
    let code = on.client().await.call(Call::plain("Version")).await.code();
    assert_eq!(code, 0);
}

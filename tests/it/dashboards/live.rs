//! Runs every query of the dashboards against a real Prometheus that has scraped a criscope with a varied workload.

use std::time::SystemTime;

use criscope::cri::status::Code;

use super::panels::{Query, all};
use crate::harness::client::Open;
use crate::harness::collector::Manner as Collects;
use crate::harness::pods::{Kubelet, Manner, Manners, oom_killed};
use crate::prelude::*;
use crate::rules::file::{INTERVAL, scaled};

/// How long the workload runs before the queries: a few times the window of a rate.
const WORK: Duration = Duration::from_secs(20);

/// Queries that may be empty here, with the reason.
const MAY_BE_EMPTY: &[(&str, &str)] = &[
    (
        "criscope_sampler_",
        "processes are scanned, and plugins observed, only behind a real runtime",
    ),
    ("criscope_runtime_", "only the built-in runtime has these"),
    ("criscope_stream_", "no session is opened here"),
    ("criscope:stream_", "no session is opened here"),
    (
        "criscope_image_fs_",
        "the runtime's filesystem is not queried here",
    ),
    (
        "criscope:image_fs_",
        "the runtime's filesystem is not queried here",
    ),
    (
        "phase=\"network\"",
        "the time in plugins is known only where plugins are observed",
    ),
];

/// A criscope that ends pod starts soon after their last call, and exports spans.
async fn criscope(fake: &Fake, collector: &Collector) -> Proxy {
    let config = format!(
        "[story]\nquiet = \"500ms\"\n[telemetry.otlp]\nendpoint = \"{}\"\ntimeout = \"100ms\"\n",
        collector.endpoint()
    );
    Start::new(crate::CRISCOPE)
        .config(&config)
        .upstream(fake.path())
        .env("OTEL_BSP_SCHEDULE_DELAY", "50")
        .ready()
        .await
}

/// Repeats everything that happens on a node.
async fn work(kubelet: &Kubelet, manners: &Manners, proxy: &Proxy, until: Instant) {
    let mut round = 0;
    while Instant::now() < until {
        round += 1;
        for poll in ["ListPodSandbox", "ListContainers", "Status"] {
            kubelet.plain(poll).await;
        }
        let name = |kind: &str| format!("{kind}-{round}");
        if let Some((pod, first)) = kubelet.start(&name("good"), false).await {
            kubelet.start(&name("pulled"), true).await;
            manners.set("ContainerStatus", Manner::Says(oom_killed()));
            kubelet.ask(&first).await;
            manners.reset("ContainerStatus");
            kubelet.container(&pod, 1).await;
            // The pod runs for a time, which the dashboards are to show.
            tokio::time::sleep(Duration::from_millis(600)).await;
            kubelet.stop(&pod).await;
        }
        fail(kubelet, manners, &name("bad")).await;
        leave(kubelet, manners).await;
        // A caller that connects and disconnects.
        drop(proxy.client().await);
    }
}

/// Pod starts that fail in each way and are given up, and failing calls.
async fn fail(kubelet: &Kubelet, manners: &Manners, name: &str) {
    manners.set("CreateContainer", Manner::Fails(Code::Internal));
    manners.set("PullImage", Manner::Fails(Code::Unknown));
    if let Some(pod) = kubelet.sandbox(name).await {
        kubelet.pull(&pod).await;
        kubelet.container(&pod, 0).await;
        kubelet.stop(&pod).await;
    }
    manners.reset("CreateContainer");
    manners.reset("PullImage");
    let unknown = requests::stop("unknown", 0);
    kubelet.call("StopContainer", &unknown).await;
}

/// A call that its caller cancels, and one that reaches its deadline.
async fn leave(kubelet: &Kubelet, manners: &Manners) {
    manners.set("ExecSync", Manner::Hangs);
    let call = kubelet.client().start(Call::plain("ExecSync")).await;
    // The call is to have taken some time when it is cancelled.
    tokio::time::sleep(Duration::from_millis(20)).await;
    call.reset(h2::Reason::CANCEL);
    let late = Call::plain("ExecSync").with("grpc-timeout", "20m");
    kubelet.client().call(late).await;
    manners.reset("ExecSync");
}

/// In flight during the queries: a start that does not end, a pull that hangs, and a call that uses up its deadline.
async fn hold(fake: &Fake, kubelet: &Kubelet, manners: &Manners) -> Vec<Open> {
    manners.set("CreateContainer", Manner::Fails(Code::Internal));
    let open = kubelet.sandbox("never-up").await.expect("a sandbox");
    kubelet.container(&open, 0).await;
    manners.reset("CreateContainer");
    manners.set("UpdateRuntimeConfig", Manner::Hangs);
    manners.set("PullImage", Manner::Hangs);
    let pulls = || {
        fake.seen()
            .iter()
            .filter(|s| s.uri.path().ends_with("/PullImage"))
            .count()
    };
    let before = pulls();
    let pull = kubelet
        .client()
        .start(Call::image("PullImage", message(b"")))
        .await;
    until_true("a pull", async || pulls() > before).await;
    manners.reset("PullImage");
    let stuck = Call::plain("UpdateRuntimeConfig").with("grpc-timeout", "10S");
    vec![pull, kubelet.client().start(stuck).await]
}

/// Returns whether a result contains a number.
fn has_number(data: &Value) -> bool {
    let series = data["result"].as_array().into_iter().flatten();
    let mut samples = series.flat_map(|series| {
        let values = series["values"].as_array().cloned().unwrap_or_default();
        values.into_iter().chain([series["value"].clone()])
    });
    samples.any(|sample| sample[1].as_str().is_some_and(|text| text != "NaN"))
}

fn seconds(time: SystemTime) -> String {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .expect("after 1970");
    since.as_secs_f64().to_string()
}

/// Sends a query as Grafana does, and returns whether it has a number.
pub(super) async fn ask(prometheus: &Prometheus, query: &Query) -> Result<bool, String> {
    let expr = query.substituted();
    let now = SystemTime::now();
    let data = match query.instant {
        true => prometheus.api("query", &[("query", &expr)]).await?,
        false => {
            let range = [
                ("query", expr.as_str()),
                ("start", &seconds(now - WORK - PATIENCE)),
                ("end", &seconds(now)),
                ("step", "1"),
            ];
            prometheus.api("query_range", &range).await?
        }
    };
    Ok(has_number(&data))
}

#[tokio::test(flavor = "multi_thread")]
async fn every_query_has_a_result() {
    let fake = Fake::new();
    let manners = Manners::of(&fake);
    // An absent collector: spans are lost, which a panel shows.
    let collector = Collector::absent(Collects::Takes);
    let proxy = criscope(&fake, &collector).await;
    let nodes = [("node-1", proxy.admin_port()), ("gone", free_port())];
    let prometheus = Prometheus::start(INTERVAL, &nodes, &scaled()).await;

    let kubelet = Kubelet::before(&proxy).await;
    let watch = kubelet
        .client()
        .start(Call::plain("GetContainerEvents"))
        .await;
    let end = Instant::now() + WORK;
    work(&kubelet, &manners, &proxy, end).await;
    let held = hold(&fake, &kubelet, &manners).await;

    // The workload continues during the queries.
    let questions = async {
        let mut open: Vec<(String, Query)> = Vec::new();
        for dashboard in all() {
            let file = dashboard.file.clone();
            open.extend(dashboard.queries().into_iter().map(|q| (file.clone(), q)));
        }
        let exempt = |q: &Query| MAY_BE_EMPTY.iter().any(|(part, _)| q.expr.contains(part));
        let end = Instant::now() + PATIENCE;
        loop {
            let mut still = Vec::new();
            for (file, query) in open {
                match ask(&prometheus, &query).await {
                    Ok(true) => {}
                    Ok(false) => still.push((file, query)),
                    Err(error) => panic!("{file}: {}: {}: {error}", query.place, query.expr),
                }
            }
            open = still;
            if open.iter().all(|(_, query)| exempt(query)) || Instant::now() > end {
                break;
            }
            // Prometheus tells no event of a scrape.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        open.retain(|(_, query)| !exempt(query));
        open
    };
    let stop = CancellationToken::new();
    let (unanswered, _) = tokio::join!(
        async {
            let unanswered = questions.await;
            stop.cancel();
            unanswered
        },
        stop.run_until_cancelled(work(
            &kubelet,
            &manners,
            &proxy,
            // Longer than the queries take.
            Instant::now() + 2 * PATIENCE
        ))
    );
    let lines: BTreeSet<_> = unanswered
        .iter()
        .map(|(file, q)| format!("{file}: {}: {}", q.place, q.substituted()))
        .collect();
    assert!(
        lines.is_empty(),
        "no result for\n{}",
        lines.into_iter().collect::<Vec<_>>().join("\n")
    );
    drop((watch, held));
    until_true("the end of every call", async || {
        proxy.scrape().await.metric("criscope_rpc_in_flight").sum() == 0.0
    })
    .await;
    proxy.stop().await;
}

//! A real Prometheus, and promtool, on criscope's metrics.

mod exemplars;

use std::io::Write;

use criscope::catalogue::CATALOGUE;
use criscope::cri::Method;
use criscope::cri::status::{CODES, Code};
use criscope::telemetry::metric::{MetricKind, Values};

use crate::prelude::*;

/// The designed maximum of series per node.
const BUDGET: usize = 2000;

/// A Prometheus that scrapes this port of loopback every second.
async fn scraping(port: u16) -> Prometheus {
    Prometheus::start(Duration::from_secs(1), &[("node", port)], "").await
}

/// Waits until the sum of a query has this value.
async fn wait_sum(prometheus: &Prometheus, query: &str, wanted: f64) {
    until(query, || async {
        let samples = prometheus.query(query).await.ok()?;
        let sum: f64 = samples.iter().map(|(value, _)| value).sum();
        (!samples.is_empty() && sum == wanted).then_some(())
    })
    .await;
}

/// Calls every method once per code; the runtime responds with that code.
async fn call_all(fake: &Fake, proxy: &Proxy, methods: &[Method], codes: &[Code]) -> usize {
    let client = proxy.client().await;
    for code in codes {
        match *code as i32 {
            0 => fake.always(script::empty()),
            code => fake.always(script::error(code, "no")),
        }
        for method in methods {
            let path = match method {
                Method::Other => "/no.such/Call".to_owned(),
                method => format!("/{}", method.full_name()),
            };
            let got = client.call(Call::new(&path, message(b""))).await;
            assert_eq!(got.code(), *code as i32, "{method}");
        }
    }
    codes.len() * methods.len()
}

/// The number of series in a scrape, in total and by metric.
fn series(text: &str) -> (usize, BTreeMap<&str, usize>) {
    let mut by_name = BTreeMap::new();
    for line in text
        .lines()
        .filter(|l| !l.is_empty() && !l.starts_with('#'))
    {
        let name = line.split(['{', ' ']).next().unwrap_or_default();
        *by_name.entry(name).or_insert(0) += 1;
    }
    (by_name.values().sum(), by_name)
}

/// The maximum number of series with one backend, from the types of the labels.
fn bound() -> usize {
    let metrics = CATALOGUE.iter().map(|metric| {
        let values = metric.labels.iter().map(|label| match label.values {
            Values::Fixed(values) => values.len(),
            Values::Backends | Values::Handlers => 2,
            Values::One(_) => 1,
        });
        let lines = match metric.kind {
            // Bounds, `+Inf`, sum and count.
            MetricKind::Histogram => metric.buckets.len() + 3,
            _ => 1,
        };
        lines * values.product::<usize>()
    });
    metrics.sum()
}

fn check_with_promtool(text: &str) {
    let mut child = Command::new(program("promtool", "prometheus"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("start promtool");
    let mut stdin = child.stdin.take().expect("piped");
    stdin.write_all(text.as_bytes()).expect("write");
    drop(stdin);
    let output = child.wait_with_output().expect("wait");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.is_empty(), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn prometheus_scrapes_criscope() {
    let (_fake, proxy) = proxied().await;
    let prometheus = scraping(proxy.admin_port()).await;
    wait_sum(&prometheus, "up{job=\"criscope\"}", 1.0).await;
    wait_sum(
        &prometheus,
        "criscope_backend_up{backend=\"upstream\"}",
        1.0,
    )
    .await;

    let client = proxy.client().await;
    for _ in 0..7 {
        client.call(Call::plain("ListContainers")).await;
    }
    proxy.wait_balanced(7).await;
    let query = "criscope_rpc_total{method=\"ListContainers\",code=\"OK\",client=\"kubelet\"}";
    wait_sum(&prometheus, query, 7.0).await;
    let query = "criscope_rpc_duration_seconds_bucket{method=\"ListContainers\",outcome=\"ok\",le=\"+Inf\"}";
    wait_sum(&prometheus, query, 7.0).await;
    let quantile =
        "histogram_quantile(0.99, sum by (le) (criscope_rpc_duration_seconds_bucket)) < 10";
    let (_, labels) = until(quantile, || async {
        prometheus.query(quantile).await.ok()?.pop()
    })
    .await;
    assert_eq!(labels, json!({}));

    // Scrapes succeed, without duplicate or out-of-order samples.
    let refused = "prometheus_target_scrapes_sample_duplicate_timestamp_total";
    assert_eq!(prometheus.query(refused).await, Ok(vec![]));
    assert!(prometheus.data().exists());
    proxy.stop().await;
}

/// The methods that kubelet 1.36, crictl and critest call.
const USUAL: [Method; 28] = [
    Method::Version,
    Method::RunPodSandbox,
    Method::StopPodSandbox,
    Method::RemovePodSandbox,
    Method::PodSandboxStatus,
    Method::ListPodSandbox,
    Method::CreateContainer,
    Method::StartContainer,
    Method::StopContainer,
    Method::RemoveContainer,
    Method::ListContainers,
    Method::ContainerStatus,
    Method::UpdateContainerResources,
    Method::ReopenContainerLog,
    Method::ExecSync,
    Method::Exec,
    Method::Attach,
    Method::PortForward,
    Method::ContainerStats,
    Method::ListContainerStats,
    Method::Status,
    Method::UpdateRuntimeConfig,
    Method::RuntimeConfig,
    Method::ListImages,
    Method::ImageStatus,
    Method::PullImage,
    Method::RemoveImage,
    Method::ImageFsInfo,
];

/// Those of them that fail on a healthy node.
const FAILING: [Method; 12] = [
    Method::RunPodSandbox,
    Method::PodSandboxStatus,
    Method::CreateContainer,
    Method::StartContainer,
    Method::StopContainer,
    Method::RemoveContainer,
    Method::ContainerStatus,
    Method::ExecSync,
    Method::ContainerStats,
    Method::PullImage,
    Method::ImageStatus,
    Method::UpdateContainerResources,
];

#[tokio::test(flavor = "multi_thread")]
async fn the_series_of_a_node_stay_within_the_budget() {
    let (fake, proxy) = proxied().await;
    let failures = [Code::Unknown, Code::NotFound, Code::InvalidArgument];
    let mut calls = call_all(&fake, &proxy, &USUAL, &[Code::Ok]).await;
    calls += call_all(&fake, &proxy, &FAILING, &failures).await;
    proxy.wait_balanced(calls).await;
    let (_, text) = proxy.get("/metrics").await;
    check_with_promtool(&text);
    let (count, by_name) = series(&text);
    assert!(count < BUDGET, "{count} series: {by_name:#?}");
    proxy.stop().await;
}

/// Every method with every code, which no real node has: the number of series is bounded, and further calls add none.
#[tokio::test(flavor = "multi_thread")]
async fn series_have_an_upper_bound() {
    let (fake, proxy) = proxied().await;
    let (_, text) = proxy.get("/metrics").await;
    check_with_promtool(&text);

    let calls = call_all(&fake, &proxy, &Method::ALL, &CODES).await;
    proxy.wait_balanced(calls).await;
    let (_, text) = proxy.get("/metrics").await;
    check_with_promtool(&text);
    let (count, by_name) = series(&text);
    assert!(count <= bound(), "{count} of {}: {by_name:#?}", bound());

    let more = call_all(&fake, &proxy, &Method::ALL, &CODES).await;
    proxy.wait_balanced(calls + more).await;
    let (_, again) = proxy.get("/metrics").await;
    assert_eq!(series(&again).1, by_name);
    proxy.stop().await;
}

//! criscope in front of a real containerd, with pods, and while containerd is killed. Needs root and the Debian
//! packages containerd, runc, containernetworking-plugins and busybox-static.

mod asked;
mod blocked;
mod earlier;
mod events;
mod explained;
mod load;
pub(crate) mod pod;
mod pulls;
mod replayed;
mod retries;
mod runtime_config;
mod sessions;
mod slow;

use self::load::Load;
use crate::prelude::*;

pub(crate) async fn before(containerd: &Containerd) -> Proxy {
    let start = Start::new(crate::CRISCOPE).upstream(&containerd.socket());
    let log = "[telemetry.log]\nlevel = \"debug\"\n";
    start.config(log).ready().await
}

/// A containerd with criscope in front of it, and a kubelet.
pub(crate) struct Node {
    pub(crate) containerd: Containerd,
    pub(crate) proxy: Proxy,
    pub(crate) kubelet: Kubelet,
}

impl Node {
    pub(crate) async fn new() -> Self {
        Self::with(Containerd::new().await).await
    }

    pub(crate) async fn with(containerd: Containerd) -> Self {
        let proxy = before(&containerd).await;
        Self::behind(proxy, containerd).await
    }

    /// With a criscope that has settings of its own.
    async fn behind(proxy: Proxy, containerd: Containerd) -> Self {
        let kubelet = Kubelet::before(&proxy.socket(), &containerd).await;
        kubelet.imported().await;
        Self {
            containerd,
            proxy,
            kubelet,
        }
    }

    /// The configuration of the pod `shop/NAME`.
    fn shop_pod(&self, name: &str) -> v1::PodSandboxConfig {
        let mut config = self.kubelet.pod_config(name);
        let metadata = config.metadata.get_or_insert_default();
        metadata.namespace = "shop".to_owned();
        config
    }

    /// Stops criscope and asserts that nothing is left on the machine.
    pub(crate) async fn end(self) {
        self.proxy.stop().await;
        end(self.containerd);
    }
}

/// Drops it and asserts that nothing is left on the machine.
pub(crate) fn end(containerd: Containerd) {
    let name = containerd.name().to_owned();
    drop(containerd);
    assert_eq!(leaks::find(&name), [""; 0]);
}

fn metric(scrape: &Scrape, name: &str) -> f64 {
    scrape.metric(name).sum()
}

/// Every call ends with an outcome that caller and metrics agree on, and criscope reconnects automatically.
#[tokio::test(flavor = "multi_thread")]
async fn containerd_is_killed_and_restarted_under_load() {
    let mut containerd = Containerd::new().await;
    let proxy = before(&containerd).await;
    let load = Load::on(&proxy.socket());
    load.wait_good(200).await;
    let reconnects = |s: &Scrape| metric(s, "criscope_backend_reconnects_total");
    for _ in 0..3 {
        let before = reconnects(&proxy.scrape().await);
        containerd.kill();
        load.wait_failed(20).await;
        proxy
            .wait_scrape("a backend that is down", |s| {
                metric(s, "criscope_backend_up") == 0.0
            })
            .await;
        assert_eq!(proxy.get("/readyz").await.0, 503);
        containerd.start().await;
        let up = |s: &Scrape| {
            // More than one if containerd was not ready yet.
            metric(s, "criscope_backend_up") == 1.0 && reconnects(s) > before
        };
        proxy.wait_scrape("a backend that is up", up).await;
        load.wait_good(200).await;
    }
    let counts = load.finish().await;
    let calls = counts.values().sum();
    let scrape = proxy.wait_balanced(calls).await;
    for (code, n) in &counts {
        let code = code.expect("no connection to criscope breaks");
        let told = scrape.metric("criscope_rpc_total").with("code", code).sum();
        assert_eq!(told, *n as f64, "{code}");
        assert!(
            ["OK", "UNAVAILABLE", "UNKNOWN"].contains(&code),
            "{code}: {n}"
        );
    }
    assert!(counts[&Some("UNAVAILABLE")] >= 60, "{counts:?}");
    proxy.stop().await;
    end(containerd);
}

/// A killed criscope leaves no connection to containerd, and the next one takes over its socket.
#[tokio::test(flavor = "multi_thread")]
async fn criscope_is_killed_and_replaced_under_load() {
    let containerd = Containerd::new().await;
    until_true("no connections", async || containerd.connections() == 0).await;
    let dir = tempfile::tempdir().expect("dir");
    let socket = dir.path().join("criscope.sock");
    let start = || {
        Start::new(crate::CRISCOPE)
            .upstream(&containerd.socket())
            .listen(&socket)
    };
    for _ in 0..3 {
        let proxy = start().ready().await;
        let load = Load::on(&socket);
        load.wait_good(100).await;
        load.wait_each().await;
        until_true("at least one connection per caller", async || {
            containerd.connections() >= 8
        })
        .await;
        proxy.signal(Signal::SIGKILL);
        load.wait_failed(8).await;
        let counts = load.finish().await;
        assert_eq!(
            counts[&None], 8,
            "each caller sees the connection break: {counts:?}"
        );
        until_true("no connections", async || containerd.connections() == 0).await;
        assert!(socket.exists(), "a stale socket is left");
    }
    let proxy = start().ready().await;
    let load = Load::on(&socket);
    load.wait_good(100).await;
    let counts = load.finish().await;
    assert_eq!(counts.keys().collect::<Vec<_>>(), [&Some("OK")]);
    proxy.stop().await;
    until_true("no connections", async || containerd.connections() == 0).await;
    end(containerd);
}

//! Alert drills: each fault is made, and the alert for it fires in a real Prometheus that keeps the shipped rules, whose
//! minutes take two seconds. Before the fault, it does not.
//!
//! Each node is a criscope of its own, with its own runtime and its own drills; all run at the same time and are read by
//! one Prometheus.

mod calls;
mod gone;
mod itself;
mod pods;

use crate::harness::collector::Manner as Collects;
use crate::harness::pods::{Kubelet, Manners};
use crate::prelude::*;
use crate::rules::file::INTERVAL;
use crate::rules::file::{alerts, scaled};

/// How long a node does well before the first fault: longer than most alerts wait.
const WELL: Duration = Duration::from_secs(8);

/// Alerts without a drill, which have unit tests only, and why.
const NOT_DRILLED: [(&str, &str); 8] = [
    (
        "CriscopeCertificateExpiring",
        "its limit is a date, which is not scaled",
    ),
    (
        "CriscopeBypassed",
        "it takes systemd, as in tests/v2/bypass.sh",
    ),
    (
        "CriscopeRolloutStuck",
        "it takes a cluster, as in tests/by-hand/rollout.sh",
    ),
    ("CriscopeImageDiskFull", "it takes a disk that is full"),
    ("CriscopeKubeletGone", "it takes a program of that name"),
    (
        "CriscopeSandboxesDying",
        "it takes a containerd, whose shim is killed",
    ),
    ("CriscopeShimsLost", "it takes the built-in runtime"),
    ("CriscopeRecoveryProblems", "it takes the built-in runtime"),
];

/// A node and who looks at it.
struct Node<'a> {
    name: &'static str,
    prometheus: &'a Prometheus,
}

/// What has fired: name, and the window of those that have one.
type Fired = Vec<(String, Option<String>)>;

impl Node<'_> {
    fn firing(&self, alert: &str, more: &str) -> String {
        format!(
            "ALERTS{{alertname=\"{alert}\", alertstate=\"firing\", cluster=\"{}\"{more}}}",
            self.name
        )
    }

    /// Nothing fires before anything is done.
    async fn is_well(&self) {
        self.is_well_while(stays).await;
    }

    /// Nothing fires while the node does this, which is what it does when it is well.
    async fn is_well_while(&self, work: impl AsyncFn()) {
        self.prometheus
            .wait(&format!("up{{instance=\"{}\"}} == 1", self.name))
            .await;
        let end = Instant::now() + WELL;
        while Instant::now() < end {
            work().await;
        }
        // A busy machine makes calls late, which is no fault of this node.
        let query = format!(
            "ALERTS{{alertstate=\"firing\", cluster=\"{}\", slo!~\"overhead|polls\"}}",
            self.name
        );
        let firing = self.prometheus.query(&query).await.expect("an answer");
        assert!(firing.is_empty(), "{}: {firing:?}", self.name);
    }

    /// Goes on with the fault until the alert fires, with these labels too.
    async fn fires_with<F>(&self, alert: &str, more: &str, fault: impl AsyncFn() -> F) {
        let query = self.firing(alert, more);
        let end = Instant::now() + PATIENCE;
        let fires = async {
            while !self.prometheus.has(&query).await {
                assert!(Instant::now() < end, "{}: {query} has no result", self.name);
                // Prometheus tells no event of an evaluation.
                pace(300).await;
            }
        };
        tokio::select! {
            () = fires => {}
            () = async { loop { fault().await; } } => {}
        }
    }

    async fn fires<F>(&self, alert: &str, fault: impl AsyncFn() -> F) -> (String, Option<String>) {
        self.fires_with(alert, "", fault).await;
        (alert.to_owned(), None)
    }
}

/// Waits so many milliseconds: alerts are about what happens over time, at the pace of a node.
async fn pace(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

/// A fault that needs no more doing.
async fn stays() {
    pace(1000).await;
}

/// A node whose runtime has manners.
struct Ordinary {
    fake: Fake,
    manners: Manners,
    proxy: Proxy,
}

impl Ordinary {
    async fn new(config: &str) -> Self {
        let fake = Fake::new();
        let manners = Manners::of(&fake);
        let start = Start::new(crate::CRISCOPE)
            .config(config)
            .upstream(fake.path());
        let proxy = start.env("OTEL_BSP_SCHEDULE_DELAY", "50").ready().await;
        Self {
            fake,
            manners,
            proxy,
        }
    }

    async fn kubelet(&self) -> Kubelet {
        Kubelet::before(&self.proxy).await
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_alert_fires_on_its_fault_and_not_before() {
    let story = "[story]\nquiet = \"500ms\"\n";
    let collector = Collector::new(Collects::Takes).await;
    let spans = format!(
        "[telemetry.otlp]\nendpoint = \"{}\"\ntimeout = \"100ms\"\n",
        collector.endpoint()
    );
    let slow = Ordinary::new("").await;
    let failing = Ordinary::new("").await;
    let pods = Ordinary::new(&format!("{story}[faults]\nenabled = true\n")).await;
    let itself = Ordinary::new(&spans).await;
    let orphan = Ordinary::new("").await;
    let mortal = gone::Mortal::new(free_port()).await;

    let ports = [
        ("slow", slow.proxy.admin_port()),
        ("failing", failing.proxy.admin_port()),
        ("pods", pods.proxy.admin_port()),
        ("itself", itself.proxy.admin_port()),
        ("orphan", orphan.proxy.admin_port()),
        ("mortal", mortal.port()),
    ];
    let prometheus = Prometheus::start(INTERVAL, &ports, &scaled()).await;
    let node = |name| Node {
        name,
        prometheus: &prometheus,
    };
    let drills: [std::pin::Pin<Box<dyn Future<Output = Fired>>>; 6] = [
        Box::pin(calls::slow(node("slow"), &slow)),
        Box::pin(calls::failing(node("failing"), &failing)),
        Box::pin(pods::drill(node("pods"), &pods)),
        Box::pin(itself::drill(node("itself"), &itself, &collector)),
        Box::pin(gone::runtime(node("orphan"), &orphan)),
        Box::pin(gone::proxy(node("mortal"), mortal)),
    ];
    let fired = futures_util::future::join_all(drills).await;

    let fired: BTreeSet<_> = fired.into_iter().flatten().collect();
    let shipped = alerts().into_iter().map(|rule| {
        let window = rule.labels.get("window").cloned();
        (rule.alert.expect("a name"), window)
    });
    let not_drilled = NOT_DRILLED.map(|(name, _)| name);
    let shipped = shipped.filter(|(name, _)| !not_drilled.contains(&&**name));
    assert_eq!(
        fired,
        shipped.collect(),
        "drilled (left) and shipped (right)"
    );
    for node in [slow, failing, pods, itself, orphan] {
        node.proxy.stop().await;
        drop(node.fake);
    }
}

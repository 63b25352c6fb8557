//! Background jobs of the built-in runtime at a collector.

use criscope::telemetry::BackgroundJob;

use crate::harness::collector::{Collector, Manner, attribute};
use crate::harness::daemon::Daemon;
use crate::harness::kubelet::{Kubelet, idle};

#[tokio::test(flavor = "multi_thread")]
async fn a_recovery_is_a_span() {
    let mut daemon = Daemon::new(crate::CRISCOPE).await;
    let kubelet = Kubelet::of(&daemon).await;
    let pod = kubelet.plain_pod("recovered").await;
    kubelet.launch(&pod, idle("main")).await;
    daemon.kill();

    let collector = Collector::new(Manner::Takes).await;
    let endpoint = collector.endpoint();
    daemon.configure(&format!("[telemetry.otlp]\nendpoint = {endpoint:?}\n"));
    daemon.env("OTEL_BSP_SCHEDULE_DELAY", "50");
    daemon.start().await;
    let recovery = collector.wait_job(BackgroundJob::RuntimeRecovery).await;
    let counts = [
        ("criscope.sandboxes", "1"),
        ("criscope.containers", "1"),
        ("criscope.orphans", "0"),
        ("criscope.problems", "0"),
    ];
    for (key, count) in counts {
        let found = attribute(&recovery.attributes, key);
        assert_eq!(found.as_deref(), Some(count), "{key}");
    }
    collector.wait_job(BackgroundJob::NetworkCollect).await;
    collector.wait_job(BackgroundJob::ImageCollect).await;

    Kubelet::of(&daemon).await.end(&pod).await;
    daemon.assert_clean();
}

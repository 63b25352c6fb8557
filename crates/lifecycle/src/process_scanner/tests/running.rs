//! The scanner's task: when it scans, and when it gives up.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::call;
use crate::process_scanner::metrics::ScanMetrics;
use crate::process_scanner::{Observations, ScannerTask};
use criscope_cri::Method;
use criscope_telemetry::Registry;

fn sampler(root: &Path) -> (ScannerTask, Registry) {
    let settings = crate::settings::SamplerSettings {
        enabled: true,
        after: Duration::from_millis(500),
        period: Duration::from_millis(100),
    };
    let registry = Registry::new(prometheus::Registry::new(), []);
    let metrics = ScanMetrics::new(&registry).expect("once");
    let calls = Arc::new(|| vec![call(1, Method::StopContainer, "cart", [None; 2])]);
    let (upstreams, observations) = (Arc::new(Vec::new), Arc::new(Observations::default()));
    let mut sampler = ScannerTask::new(
        settings,
        calls,
        upstreams,
        observations,
        metrics,
        Arc::default(),
    );
    sampler.root = root.to_owned();
    (sampler, registry)
}

fn text(registry: &Registry) -> String {
    String::from_utf8(registry.encode().expect("encodes")).expect("utf-8")
}

#[tokio::test]
async fn where_nothing_may_be_seen_it_turns_itself_off() {
    let empty = tempfile::tempdir().expect("dir");
    let (sampler, registry) = sampler(empty.path());
    sampler.run().await;
    let text = text(&registry);
    assert!(text.contains("criscope_sampler_enabled 0\n"), "{text}");
    assert!(text.contains("criscope_sampler_scans_total 0\n"), "{text}");
}

#[test]
fn it_takes_no_more_than_its_share() {
    let (sampler, _) = sampler(Path::new("/proc"));
    let ms = Duration::from_millis;
    let pause = |ages: &[u64], cost| {
        let ages: Vec<_> = ages.iter().map(|age| ms(*age)).collect();
        sampler.pause(&ages, ms(cost))
    };
    assert_eq!(pause(&[700], 1), ms(100), "as it is set");
    assert_eq!(pause(&[700], 20), ms(380), "a twentieth of a core");
    assert_eq!(pause(&[30_000], 1), ms(300), "exact to a hundredth");
    assert_eq!(pause(&[600_000], 1), ms(500), "another call is soon slow");
    assert_eq!(pause(&[600_000, 900], 1), ms(100), "the youngest counts");
    assert_eq!(pause(&[600_000, 10], 1), ms(500), "that one is not slow");
    assert_eq!(pause(&[], 1), ms(500), "only pulls are slow");
}

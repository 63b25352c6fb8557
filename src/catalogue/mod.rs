//! The catalogue of metrics, collected from the declarations of their owners. `docs/METRICS.md` is generated from it, and
//! dashboards and alert rules are checked against it.

mod reference;

use std::sync::LazyLock;

pub use self::reference::reference_markdown;
use crate::lifecycle::{self, otlp_receiver, process_scanner};
use crate::proxy::instrument::signals;
use crate::proxy::{backend, faults, listener, pod_index, sessions};
use crate::telemetry::metric::Metric;
use crate::telemetry::{drops, process};
use crate::{runtime, streaming, tls};

/// Every metric.
pub static CATALOGUE: LazyLock<Vec<&'static Metric>> = LazyLock::new(|| {
    let declared = [
        signals::metrics::METRICS,
        backend::metrics::METRICS,
        lifecycle::metrics::METRICS,
        lifecycle::pod_gauges::METRICS,
        lifecycle::containerd::metrics::METRICS,
        lifecycle::node::metrics::METRICS,
        lifecycle::node::rollout::METRICS,
        listener::metrics::METRICS,
        pod_index::metrics::METRICS,
        faults::metrics::METRICS,
        streaming::metrics::METRICS,
        sessions::metrics::METRICS,
        process_scanner::metrics::METRICS,
        otlp_receiver::metrics::METRICS,
        runtime::metrics::METRICS,
        tls::metrics::METRICS,
        drops::METRICS,
        process::METRICS,
    ];
    declared.concat()
});

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::telemetry::metric::{MetricKind, Unit};

    #[test]
    fn entries_are_well_formed() {
        let mut names = HashSet::new();
        for metric in CATALOGUE.iter() {
            let name = metric.full_name();
            assert!(names.insert(name.clone()), "{name} is declared twice");
            assert_eq!(
                metric.kind == MetricKind::Counter,
                name.ends_with("_total"),
                "{name}"
            );
            assert_eq!(
                metric.kind == MetricKind::Histogram,
                !metric.buckets.is_empty(),
                "{name}"
            );
            assert!(metric.buckets.is_sorted(), "{name}");
            assert!(
                !metric.exemplars || metric.kind == MetricKind::Histogram,
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
            // OpenMetrics reads the unit from the name of the family.
            let family = name.strip_suffix("_total").unwrap_or(&name);
            for unit in [Unit::Seconds, Unit::Bytes] {
                let suffix = format!("_{}", unit.name());
                assert_eq!(metric.unit == unit, family.ends_with(&suffix), "{name}");
            }
            for label in metric.labels {
                assert!(
                    !["pod", "namespace", "container", "image", "id", "uid"].contains(&label.name),
                    "{name} has a label without a bound"
                );
            }
        }
    }

    /// OpenMetrics names a counter's family without `_total`, so that name must be free.
    #[test]
    fn counter_families_do_not_collide_in_openmetrics() {
        let names: HashSet<_> = CATALOGUE.iter().map(|m| m.full_name()).collect();
        for name in &names {
            if let Some(family) = name.strip_suffix("_total") {
                assert!(!names.contains(family), "{name}");
            }
        }
    }
}

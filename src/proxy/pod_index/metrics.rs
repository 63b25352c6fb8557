//! Metrics of the index of pods.

use std::sync::Arc;

use super::PodIndex;
use crate::telemetry::metric::{Metric, Unit, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    IDENTITY_ENTRIES = Metric::gauge("identity_entries", Unit::Count, &[fixed("kind", &["sandbox", "container"])],
        "Sandboxes and containers whose pod is known.");
    IDENTITY_LOOKUPS = Metric::counter("identity_lookups_total", &[fixed("result", &["hit", "miss"])],
        "Look-ups of the pod behind an id.");
}

/// Registers the metrics, which are computed at scrape time.
///
/// # Errors
/// If they are registered already.
pub(crate) fn register(registry: &Registry, index: &Arc<PodIndex>) -> Result<(), RegistryError> {
    let entries = Arc::clone(index);
    registry.computed(&IDENTITY_ENTRIES, move |out| {
        let (sandboxes, containers) = entries.len();
        out.put(&["sandbox"], sandboxes as f64);
        out.put(&["container"], containers as f64);
    })?;
    let lookups = Arc::clone(index);
    registry.computed(&IDENTITY_LOOKUPS, move |out| {
        let (hits, misses) = lookups.lookups();
        out.put(&["hit"], hits as f64);
        out.put(&["miss"], misses as f64);
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::subject::{PodIdentity, Subject};
    use crate::proxy::pod_index::SandboxEntry;

    #[test]
    fn a_scrape_shows_entries_and_look_ups() {
        let registry = Registry::new(prometheus::Registry::new(), []);
        let index = Arc::new(PodIndex::new(10, 10));
        register(&registry, &index).expect("once");
        let pod = PodIdentity {
            namespace: "shop".into(),
            name: "web-0".into(),
            uid: "5f3c".into(),
            attempt: 0,
        };
        let entry = SandboxEntry {
            pod: Arc::new(pod),
            backend: "main".into(),
        };
        index.insert_sandbox("known".into(), entry);
        for id in ["known", "known", "unknown"] {
            index.complete(&mut Subject {
                sandbox_id: Some(id.into()),
                ..Subject::default()
            });
        }
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        for line in [
            "criscope_identity_entries{kind=\"sandbox\"} 1",
            "criscope_identity_entries{kind=\"container\"} 0",
            "criscope_identity_lookups_total{result=\"hit\"} 2",
            "criscope_identity_lookups_total{result=\"miss\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}

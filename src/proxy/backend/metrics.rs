//! Metrics of the connections to backends.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Backend;
use super::health::HealthCondition;
use super::retries::kept::{KeptCallEnd, KeptCalls};
use crate::telemetry::metric::{BACKEND, Metric, Unit, fixed, label, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

/// Label values: the conditions of the CRI and of containerd, and one for all others.
static CONDITION_NAMES: [&str; 4] = [
    "RuntimeReady",
    "NetworkReady",
    "ContainerdHasNoDeprecationWarnings",
    OTHER_CONDITIONS,
];
const OTHER_CONDITIONS: &str = "other";

metrics! {
    BACKEND_CONDITION = Metric::gauge("backend_condition", Unit::Flag, &[BACKEND, fixed("condition", &CONDITION_NAMES)],
        "1 if a condition of the backend's Status holds, such as NetworkReady; absent while the backend is down.");
    BACKEND_UP = Metric::gauge("backend_up", Unit::Flag, &[BACKEND],
        "1 if the backend is connected and answers.");
    BACKEND_RECONNECTS = Metric::counter("backend_reconnects_total", &[BACKEND],
        "Connections made to the backend after the first.");
    KEPT_CALLS = Metric::gauge("kept_calls", Unit::Count, &[BACKEND],
        "Calls that go on after the kubelet's deadline and wait for its retry; absent unless join_retries.");
    KEPT_CALLS_ENDED = Metric::counter("kept_calls_ended_total", &[BACKEND, label::<KeptCallEnd>("end")],
        "Calls that went on after the kubelet's deadline, by how that ended: joined by the retry, or ended without one; absent unless join_retries.");
}

/// Registers the metrics, which are computed at scrape time.
///
/// # Errors
/// If they are registered already.
pub(crate) fn register(
    registry: &Registry,
    backends: &[Arc<Backend>],
) -> Result<(), RegistryError> {
    let all = backends.to_vec();
    registry.computed(&BACKEND_UP, move |out| {
        for backend in &all {
            out.put(
                &[backend.name()],
                f64::from(u8::from(backend.health().is_up())),
            );
        }
    })?;
    let all = backends.to_vec();
    registry.computed(&BACKEND_CONDITION, move |out| {
        for backend in all.iter().filter(|backend| backend.health().is_up()) {
            for (name, holds) in conditions(&backend.health().state().conditions) {
                out.put(&[backend.name(), name], f64::from(u8::from(holds)));
            }
        }
    })?;
    let all = backends.to_vec();
    registry.computed(&BACKEND_RECONNECTS, move |out| {
        for backend in &all {
            out.put(&[backend.name()], backend.health().reconnects() as f64);
        }
    })?;
    register_kept_calls(registry, backends)
}

fn register_kept_calls(
    registry: &Registry,
    backends: &[Arc<Backend>],
) -> Result<(), RegistryError> {
    let joining = backends
        .iter()
        .filter(|backend| backend.kept_calls().is_some());
    let joining: Vec<_> = joining.cloned().collect();
    let backends = joining.clone();
    registry.computed(&KEPT_CALLS, move |out| {
        for backend in &backends {
            let kept = backend.kept_calls().map_or(0, KeptCalls::len);
            out.put(&[backend.name()], kept as f64);
        }
    })?;
    registry.computed(&KEPT_CALLS_ENDED, move |out| {
        for backend in &joining {
            for end in KeptCallEnd::ALL {
                let ended = backend.kept_calls().map_or(0, |kept| kept.ended(end));
                out.put(&[backend.name(), end.name()], ended as f64);
            }
        }
    })
}

/// Maps conditions to label values. A value that several conditions share holds if all of them do.
fn conditions(all: &[HealthCondition]) -> BTreeMap<&'static str, bool> {
    let mut named = BTreeMap::new();
    for condition in all {
        let name = CONDITION_NAMES.iter().find(|name| **name == condition.kind);
        let holds = named
            .entry(*name.unwrap_or(&OTHER_CONDITIONS))
            .or_insert(true);
        *holds &= condition.status;
    }
    named
}

/// Creates a series of every metric of this module.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry, name: &str) {
    use crate::cri::subject::{RuntimeCondition, Unseen};

    let backend = Backend::remote(name, "/run/containerd/containerd.sock".into());
    let backend = Arc::new(backend.joining_retries(true));
    backend.health().update(|state| state.up = true);
    let conditions = CONDITION_NAMES.map(|kind| RuntimeCondition {
        kind: kind.into(),
        status: true,
        reason: "".into(),
        message: Unseen::new(""),
    });
    backend.saw_conditions(&conditions);
    register(registry, &[backend]).expect("once");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::subject::{RuntimeCondition, Unseen};

    #[test]
    fn a_scrape_shows_the_health_of_each_backend() {
        let registry = Registry::new(prometheus::Registry::new(), []);
        let backend = |name| Arc::new(Backend::remote(name, "/nowhere".into()));
        let (main, spare) = (backend("main"), backend("spare"));
        register(&registry, &[Arc::clone(&main), Arc::clone(&spare)]).expect("once");
        main.health().update(|state| state.up = true);
        main.health().reconnected();
        let condition = |kind: &str, status| RuntimeCondition {
            kind: kind.into(),
            status,
            reason: "".into(),
            message: Unseen::new(""),
        };
        let conditions = [
            condition("NetworkReady", false),
            condition("Strange", true),
            condition("Stranger", false),
        ];
        main.saw_conditions(&conditions);
        spare.saw_conditions(&conditions);
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        for line in [
            "criscope_backend_up{backend=\"main\"} 1",
            "criscope_backend_up{backend=\"spare\"} 0",
            "criscope_backend_condition{backend=\"main\",condition=\"NetworkReady\"} 0",
            "criscope_backend_condition{backend=\"main\",condition=\"other\"} 0",
            "criscope_backend_reconnects_total{backend=\"main\"} 1",
            "criscope_backend_reconnects_total{backend=\"spare\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        let spare = "criscope_backend_condition{backend=\"spare\"";
        assert!(!text.contains(spare), "no conditions while down:\n{text}");
    }
}

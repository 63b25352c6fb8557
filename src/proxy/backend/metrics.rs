//! Metrics of the connections to backends.

use std::sync::Arc;

use super::Backend;
use crate::telemetry::metric::{BACKEND, Metric, Unit, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    BACKEND_UP = Metric::gauge("backend_up", Unit::Flag, &[BACKEND],
        "Whether the backend is connected and answers.");
    BACKEND_RECONNECTS = Metric::counter("backend_reconnects_total", &[BACKEND],
        "Connections made to the backend after the first.");
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
    registry.computed(&BACKEND_RECONNECTS, move |out| {
        for backend in &all {
            out.put(&[backend.name()], backend.health().reconnects() as f64);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_shows_the_health_of_each_backend() {
        let registry = Registry::new(prometheus::Registry::new(), []);
        let backend = |name| Arc::new(Backend::remote(name, "/nowhere".into()));
        let (main, spare) = (backend("main"), backend("spare"));
        register(&registry, &[Arc::clone(&main), spare]).expect("once");
        main.health().update(|state| state.up = true);
        main.health().reconnected();
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        for line in [
            "criscope_backend_up{backend=\"main\"} 1",
            "criscope_backend_up{backend=\"spare\"} 0",
            "criscope_backend_reconnects_total{backend=\"main\"} 1",
            "criscope_backend_reconnects_total{backend=\"spare\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
    }
}

//! Metrics of injected faults.

use crate::call::FaultKind;
use crate::cri::Method;
use crate::telemetry::family::{Counters, Gauges};
use crate::telemetry::metric::{Metric, Unit, label, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

metrics! {
    FAULTS_INJECTED = Metric::counter("faults_injected_total", &[label::<Method>("method"), label::<FaultKind>("kind")],
        "Calls with a fault that criscope fault injected on purpose.");
    FAULTS_ACTIVE = Metric::gauge("faults_active", Unit::Count, &[],
        "Faults that are being injected now; absent unless faults.enabled.");
}

/// Counts injected faults.
#[derive(Debug)]
pub(super) struct InjectedFaultMetrics {
    injected: Counters<(Method, FaultKind)>,
    active: Gauges,
}

impl InjectedFaultMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub(super) fn new(registry: &Registry) -> Result<Self, RegistryError> {
        Ok(Self {
            injected: registry.counters(&FAULTS_INJECTED)?,
            active: registry.gauges(&FAULTS_ACTIVE)?.with_all_series(),
        })
    }

    /// A fault was injected.
    pub(super) fn injected(&self, method: Method, kind: FaultKind) {
        self.injected.inc((method, kind));
    }

    /// Sets the number of active faults.
    pub(super) fn active(&self, faults: usize) {
        self.active
            .set((), i64::try_from(faults).unwrap_or(i64::MAX));
    }
}

/// One of each, for the test of the catalogue.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    let metrics = InjectedFaultMetrics::new(registry).expect("once");
    for method in Method::ALL {
        for kind in FaultKind::ALL {
            metrics.injected(method, kind);
        }
    }
}

//! Metrics of injected faults.

use crate::call::FaultKind;
use crate::cri::Method;
use crate::telemetry::family::{Counters, Gauges};
use crate::telemetry::metric::{Metric, Unit, fixed, metrics, names};
use crate::telemetry::registry::{Registry, RegistryError};

static METHOD_NAMES: [&str; Method::COUNT] = names!(Method::ALL, Method::name);
static KIND_NAMES: [&str; FaultKind::ALL.len()] = names!(FaultKind::ALL, FaultKind::name);

metrics! {
    FAULTS_INJECTED = Metric::counter("faults_injected_total", &[fixed("method", &METHOD_NAMES), fixed("kind", &KIND_NAMES)],
        "Calls with a fault that criscope fault injected on purpose.");
    FAULTS_ACTIVE = Metric::gauge("faults_active", Unit::Count, &[],
        "Faults that are being injected now; absent unless faults.enabled.");
}

/// Counts injected faults.
#[derive(Debug)]
pub(super) struct InjectedFaultMetrics {
    injected: Counters<2>,
    active: Gauges<0>,
}

impl InjectedFaultMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub(super) fn new(registry: &Registry) -> Result<Self, RegistryError> {
        let metrics = Self {
            injected: registry.counters(&FAULTS_INJECTED)?,
            active: registry.gauges(&FAULTS_ACTIVE)?,
        };
        metrics.active(0);
        Ok(metrics)
    }

    /// A fault was injected.
    pub(super) fn injected(&self, method: Method, kind: FaultKind) {
        if let Some(injected) = self.injected.at([method.index(), kind as usize]) {
            injected.inc();
        }
    }

    /// Sets the number of active faults.
    pub(super) fn active(&self, faults: usize) {
        if let Some(active) = self.active.at([]) {
            active.set(i64::try_from(faults).unwrap_or(i64::MAX));
        }
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

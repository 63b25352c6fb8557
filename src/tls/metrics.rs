//! When certificates expire, and whether their files can be used.

use std::sync::{Arc, Mutex, PoisonError};

use super::Pair;
use crate::telemetry::metric::{Label, Metric, Unit, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

/// The server that shows the certificate, or the export that shows it to a collector.
const ENDPOINT: Label = fixed("endpoint", &["streaming", "metrics", "otlp"]);

metrics! {
    CERTIFICATE_NOT_AFTER = Metric::gauge("tls_certificate_not_after_timestamp_seconds", Unit::Seconds, &[ENDPOINT],
        "When the certificate that is served, or shown to the collector (`otlp`), expires, or an intermediate one if that is earlier, in seconds since 1970-01-01 UTC; only with TLS. That of `metrics.listen` appears with the first connection.");
    CERTIFICATE_FRESH = Metric::gauge("tls_certificate_last_reload_successful", Unit::Flag, &[ENDPOINT],
        "1 if the files of the certificate and its key could be used when they were last read; 0 if a server still has the pair before, or exports fail (`otlp`).");
}

/// The pairs that are served. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Certificates(Arc<Mutex<Vec<Arc<Pair>>>>);

impl Certificates {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If they are registered already.
    pub fn register(registry: &Registry) -> Result<Self, RegistryError> {
        let all = Self::default();
        let pairs = all.clone();
        registry.computed(&CERTIFICATE_NOT_AFTER, move |out| {
            for pair in pairs.list() {
                if let Some(end) = pair.not_after() {
                    out.put(&[pair.endpoint], end as f64);
                }
            }
        })?;
        let pairs = all.clone();
        registry.computed(&CERTIFICATE_FRESH, move |out| {
            for pair in pairs.list() {
                out.put(&[pair.endpoint], f64::from(u8::from(pair.is_fresh())));
            }
        })?;
        Ok(all)
    }

    /// Measures this pair instead of an earlier one of the same endpoint.
    pub fn measure(&self, pair: Arc<Pair>) {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.retain(|other| other.endpoint != pair.endpoint);
        pairs.push(pair);
    }

    /// Measures none of this endpoint: it has no TLS any more.
    pub fn forget(&self, endpoint: &str) {
        let mut pairs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pairs.retain(|other| other.endpoint != endpoint);
    }

    fn list(&self) -> Vec<Arc<Pair>> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Creates a series of every metric of this module.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    let authority = criscope_testkit::pki::Authority::new();
    let pair = authority.server("populated");
    let certificates = Certificates::register(registry).expect("once");
    for endpoint in ["streaming", "metrics", "otlp"] {
        let pair = Pair::open(endpoint, &pair.cert, &pair.key).expect("a pair");
        certificates.measure(Arc::new(pair));
    }
}

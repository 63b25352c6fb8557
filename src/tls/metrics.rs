//! Metrics of certificates: their expiry, and whether their files can be used.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::TlsCertificate;
use super::clients::ClientCertificates;
use crate::telemetry::metric::{Label, Metric, Unit, fixed, metrics};
use crate::telemetry::registry::{Registry, RegistryError};

/// The server that shows the certificate, or the export that shows it to a collector, or pulls that show it to registries.
const ENDPOINT: Label = fixed("endpoint", &["streaming", "metrics", "otlp", "registry"]);

metrics! {
    CERTIFICATE_NOT_AFTER = Metric::gauge("tls_certificate_not_after_timestamp_seconds", Unit::Seconds, &[ENDPOINT],
        "When the certificate that is served, or shown to the collector (`otlp`) or to registries (`registry`: the earliest of all in `runtime.images.certs_dirs`), expires, or an intermediate one if that is earlier, in seconds since 1970-01-01 UTC; only with TLS. That of `metrics.listen` appears with the first connection.");
    CERTIFICATE_FRESH = Metric::gauge("tls_certificate_last_reload_successful", Unit::Flag, &[ENDPOINT],
        "1 if the files of the certificate and its key could be used when they were last read; 0 if a server still has the pair before, or exports fail (`otlp`), or pulls from a registry (`registry`).");
}

/// The certificates that are measured. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics(Arc<Mutex<MeasuredCertificates>>);

#[derive(Debug, Default)]
struct MeasuredCertificates {
    pairs: Vec<Arc<TlsCertificate>>,
    clients: Vec<Arc<ClientCertificates>>,
}

impl CertificateMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If a metric is registered already.
    pub fn register(registry: &Registry) -> Result<Self, RegistryError> {
        let all = Self::default();
        let in_use = all.clone();
        registry.computed(&CERTIFICATE_NOT_AFTER, move |out| {
            in_use.for_each(&mut |endpoint, pairs| {
                let ends = pairs.iter().filter_map(|pair| pair.not_after());
                if let Some(end) = ends.min() {
                    out.put(&[endpoint], end as f64);
                }
            });
        })?;
        let in_use = all.clone();
        registry.computed(&CERTIFICATE_FRESH, move |out| {
            in_use.for_each(&mut |endpoint, pairs| {
                let is_fresh = pairs.iter().all(|pair| pair.is_fresh());
                out.put(&[endpoint], f64::from(u8::from(is_fresh)));
            });
        })?;
        Ok(all)
    }

    /// Measures this certificate instead of an earlier one of the same endpoint.
    pub fn measure(&self, pair: Arc<TlsCertificate>) {
        let pairs = &mut self.in_use().pairs;
        pairs.retain(|other| other.endpoint != pair.endpoint);
        pairs.push(pair);
    }

    /// Measures these clients together: the earliest end counts, and the worst file.
    pub fn measure_clients(&self, clients: Arc<ClientCertificates>) {
        self.in_use().clients.push(clients);
    }

    /// Stops measuring an endpoint that has no TLS any more.
    pub fn forget(&self, endpoint: &str) {
        let pairs = &mut self.in_use().pairs;
        pairs.retain(|other| other.endpoint != endpoint);
    }

    /// Calls `f` once for each endpoint that has a certificate.
    fn for_each(&self, f: &mut dyn FnMut(&str, &[Arc<TlsCertificate>])) {
        let (pairs, clients) = {
            let in_use = self.in_use();
            (in_use.pairs.clone(), in_use.clients.clone())
        };
        for pair in pairs {
            f(pair.endpoint, &[Arc::clone(&pair)]);
        }
        for clients in clients {
            let pairs = clients.pairs();
            if let Some(first) = pairs.first() {
                f(first.endpoint, &pairs);
            }
        }
    }

    fn in_use(&self) -> MutexGuard<'_, MeasuredCertificates> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a series of every metric of this module.
#[cfg(test)]
pub(crate) fn populate(registry: &Registry) {
    let authority = criscope_testkit::pki::Authority::new();
    let pair = authority.server("populated");
    let certificates = CertificateMetrics::register(registry).expect("once");
    for endpoint in ["streaming", "metrics", "otlp"] {
        let pair = TlsCertificate::open(endpoint, &pair.cert, &pair.key).expect("a pair");
        certificates.measure(Arc::new(pair));
    }
    let clients = ClientCertificates::new("registry");
    clients.refresh(&[(pair.cert, pair.key)]);
    certificates.measure_clients(Arc::new(clients));
}

//! The metrics of one process, registered from declarations ([`super::metric`]) only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use criscope_cri::NamedSet;
use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, TEXT_FORMAT,
    TextEncoder,
};

use super::computed::{ComputedMetric, ComputedSeries};
use super::exemplars::HistogramExemplars;
use super::family::{Counters, Family, Gauges, Histograms, LabelNames, MetricVector};
use super::labels::{BackendLabels, HandlerLabels};
use super::metric::{Metric, MetricKind, Values};
use super::openmetrics::{self, ExemplarsByName};

/// Errors of registering metrics. All are bugs, found at start.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The type of the metric differs from the requested one.
    #[error("metric {metric}: is a {is}, not a {wanted}", is = is.name(), wanted = wanted.name())]
    Kind {
        /// The declared name.
        metric: &'static str,
        /// The type of the metric.
        is: MetricKind,
        /// The requested type.
        wanted: MetricKind,
    },
    /// The metric has labels of other types.
    #[error("metric {metric}: labels do not fit")]
    Labels {
        /// The declared name.
        metric: &'static str,
    },
    /// The library rejects it, usually because it is registered twice.
    #[error("metric {metric}: {source}")]
    Register {
        /// The declared name.
        metric: &'static str,
        /// The cause.
        source: prometheus::Error,
    },
}

/// A registry of metrics. Cheap to clone; clones share the metrics.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: prometheus::Registry,
    backends: BackendLabels,
    exemplars: Arc<Mutex<ExemplarsByName>>,
    handlers: HandlerLabels,
}

impl Registry {
    /// Wraps a registry of the library, which must be empty and have no prefix; `backends` are the names in the
    /// configuration.
    pub fn new(inner: prometheus::Registry, backends: impl IntoIterator<Item = String>) -> Self {
        Self {
            inner,
            backends: BackendLabels::new(backends),
            exemplars: Arc::default(),
            handlers: HandlerLabels::new([]),
        }
    }

    /// Sets the runtime handlers named in the configuration.
    #[must_use]
    pub fn with_handlers<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            handlers: HandlerLabels::new(names),
            ..self
        }
    }

    /// The values of the label `runtime_handler`.
    pub fn handlers(&self) -> &HandlerLabels {
        &self.handlers
    }

    /// The values of the label `backend`.
    pub fn backends(&self) -> &BackendLabels {
        &self.backends
    }

    /// Registers counters with these labels.
    ///
    /// # Errors
    /// If the metric has another type or other labels, or is registered already.
    pub fn counters<L: NamedSet>(
        &self,
        metric: &'static Metric,
    ) -> Result<Counters<L>, RegistryError> {
        let opts = Opts::new(metric.full_name(), metric.help);
        self.family(metric, MetricKind::Counter, |labels| {
            IntCounterVec::new(opts, labels)
        })
    }

    /// Registers gauges with these labels.
    ///
    /// # Errors
    /// If the metric has another type or other labels, or is registered already.
    pub fn gauges<L: NamedSet>(&self, metric: &'static Metric) -> Result<Gauges<L>, RegistryError> {
        let opts = Opts::new(metric.full_name(), metric.help);
        self.family(metric, MetricKind::Gauge, |labels| {
            IntGaugeVec::new(opts, labels)
        })
    }

    /// Registers histograms with these labels.
    ///
    /// # Errors
    /// If the metric has another type or other labels, or is registered already.
    pub fn histograms<L: NamedSet>(
        &self,
        metric: &'static Metric,
    ) -> Result<Histograms<L>, RegistryError> {
        let opts =
            HistogramOpts::new(metric.full_name(), metric.help).buckets(metric.buckets.to_vec());
        let mut family = self.family(metric, MetricKind::Histogram, |labels| {
            HistogramVec::new(opts, labels)
        })?;
        if metric.exemplars {
            let names = metric.labels.iter().map(|label| label.name);
            let labels = names.zip(self.values(metric));
            let exemplars = Arc::new(HistogramExemplars::new(labels, metric.buckets));
            family.keep_exemplars(Arc::clone(&exemplars));
            self.exemplars().insert(metric.full_name(), exemplars);
        }
        Ok(family)
    }

    pub(super) fn exemplars(&self) -> MutexGuard<'_, ExemplarsByName> {
        self.exemplars
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn family<V: MetricVector, L: NamedSet>(
        &self,
        metric: &'static Metric,
        wanted: MetricKind,
        make: impl FnOnce(&[&str]) -> prometheus::Result<V>,
    ) -> Result<Family<V, L>, RegistryError> {
        if metric.kind != wanted {
            return Err(RegistryError::Kind {
                metric: metric.name,
                is: metric.kind,
                wanted,
            });
        }
        let labels = metric.labels.iter();
        if !labels
            .map(|label| label.values.names())
            .eq(L::NAME_LISTS.iter().copied())
        {
            return Err(RegistryError::Labels {
                metric: metric.name,
            });
        }
        let names: Vec<_> = metric.labels.iter().map(|l| l.name).collect();
        let vector = make(&names).map_err(|source| RegistryError::Register {
            metric: metric.name,
            source,
        })?;
        self.register(metric, Box::new(vector.clone()))?;
        Ok(Family::new(vector, self.values(metric)))
    }

    /// The values of each label; none for a label with one value at a time.
    fn values(&self, metric: &Metric) -> LabelNames {
        let labels = metric.labels.iter().map(|label| match label.values {
            Values::Fixed(names) => names.iter().map(|n| Box::from(*n)).collect(),
            Values::Backends => self.backends.names().into(),
            Values::Handlers => self.handlers.names().into(),
            Values::One(_) => Box::default(),
        });
        labels.collect()
    }

    /// Registers a counter or gauge whose values `read` computes at scrape time. It must not block for long.
    ///
    /// # Errors
    /// If the metric is a histogram or is registered already.
    pub fn computed(
        &self,
        metric: &'static Metric,
        read: impl Fn(&mut ComputedSeries) + Send + Sync + 'static,
    ) -> Result<(), RegistryError> {
        if metric.kind == MetricKind::Histogram {
            return Err(RegistryError::Kind {
                metric: metric.name,
                is: metric.kind,
                wanted: MetricKind::Gauge,
            });
        }
        let computed = ComputedMetric::new(metric, Box::new(read)).map_err(|source| {
            RegistryError::Register {
                metric: metric.name,
                source,
            }
        })?;
        self.register(metric, Box::new(computed))
    }

    fn register(
        &self,
        metric: &'static Metric,
        collector: Box<dyn Collector>,
    ) -> Result<(), RegistryError> {
        self.inner
            .register(collector)
            .map_err(|source| RegistryError::Register {
                metric: metric.name,
                source,
            })
    }

    /// Collects the metrics, sorted by name.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.inner.gather()
    }

    /// Encodes the metrics in the Prometheus text format 0.0.4; serve it as [`Registry::CONTENT_TYPE`].
    ///
    /// # Errors
    /// If the library cannot encode a family, which would be a bug.
    pub fn encode(&self) -> Result<Vec<u8>, prometheus::Error> {
        let mut text = Vec::with_capacity(64 << 10);
        TextEncoder::new().encode(&self.gather(), &mut text)?;
        Ok(text)
    }

    /// Encodes the metrics in the OpenMetrics text format 1.0.0, with exemplars; serve it as
    /// [`openmetrics::CONTENT_TYPE`].
    pub fn encode_openmetrics(&self) -> String {
        let families = self.gather();
        openmetrics::encode(&families, &self.exemplars())
    }

    /// `Content-Type` of [`Registry::encode`].
    pub const CONTENT_TYPE: &'static str = TEXT_FORMAT;
}

/// Counts the series of a scrape, including each line of a histogram.
pub fn series(families: &[MetricFamily]) -> usize {
    let lines = families.iter().map(|family| {
        let series = family.get_metric().iter();
        let lines = series.map(|metric| match family.get_field_type() {
            // The buckets, `+Inf`, the sum and the count.
            MetricType::HISTOGRAM => metric.get_histogram().get_bucket().len() + 3,
            _ => 1,
        });
        lines.sum::<usize>()
    });
    lines.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labels::BackendLabel;
    use crate::metric::{BACKEND, CLIENT, Unit, label, metrics};
    use criscope_cri::Method;
    use criscope_cri::call::Client;
    use criscope_cri::status::Code;

    type CallLabels = (Method, Code, Client);

    metrics! {
        CALLS = Metric::counter("calls_total", &[label::<Method>("method"), label::<Code>("code"), CLIENT], "Calls.");
        UP = Metric::gauge("up", Unit::Flag, &[BACKEND], "Whether the backend answers.");
    }

    fn registry() -> Registry {
        Registry::new(
            prometheus::Registry::new(),
            ["main".to_owned(), "other".to_owned()],
        )
    }

    #[test]
    fn mismatched_declarations_are_rejected() {
        let registry = registry();
        assert!(matches!(
            registry.gauges::<CallLabels>(&CALLS),
            Err(RegistryError::Kind { .. })
        ));
        assert!(matches!(
            registry.counters::<(Method, Client, Code)>(&CALLS),
            Err(RegistryError::Labels { .. })
        ));
        assert!(matches!(
            registry.gauges::<(Client, Client)>(&crate::process::BUILD_INFO),
            Err(RegistryError::Labels { .. })
        ));
        assert!(registry.counters::<CallLabels>(&CALLS).is_ok());
        assert!(matches!(
            registry.counters::<CallLabels>(&CALLS),
            Err(RegistryError::Register { .. })
        ));
    }

    #[test]
    fn a_series_appears_when_it_is_first_used() {
        let registry = registry();
        let up = registry.gauges::<BackendLabel>(&UP).expect("gauges");
        assert_eq!(series(&registry.gather()), 0);
        up.set(registry.backends().value("other"), 1);
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        assert!(
            text.ends_with("criscope_up{backend=\"other\"} 1\n"),
            "{text}"
        );
        assert_eq!(series(&registry.gather()), 1);
    }

    #[test]
    fn computed_values_are_read_at_scrape_time() {
        let registry = registry();
        let value = Arc::new(std::sync::atomic::AtomicU64::new(3));
        let reader = Arc::clone(&value);
        registry
            .computed(&crate::process::START_TIME, move |out| {
                out.put(
                    &[],
                    reader.load(std::sync::atomic::Ordering::Relaxed) as f64,
                );
            })
            .expect("computed");
        let read = || registry.gather()[0].get_metric()[0].get_gauge().get_value();
        assert_eq!(read(), 3.0);
        value.store(4, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(read(), 4.0);
    }
}

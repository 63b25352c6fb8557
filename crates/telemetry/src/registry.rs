//! The metrics of one process, registered from declarations ([`super::metric`]) only.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prometheus::core::Collector;
use prometheus::proto::{MetricFamily, MetricType};
use prometheus::{
    Encoder, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, TEXT_FORMAT,
    TextEncoder,
};

use super::computed::{ComputedMetric, ComputedSeries};
use super::exemplars::HistogramExemplars;
use super::family::{Counters, Gauges, Histograms, IndexedFamily};
use super::metric::{
    DEFAULT_HANDLER, Metric, MetricKind, OTHER_HANDLERS, SEVERAL_BACKENDS, Values,
};
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
    /// The metric has another number of labels, or one without a fixed list of values.
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

/// The values of the label `backend`.
#[derive(Clone, Debug)]
pub struct BackendLabels(Arc<[Box<str>]>);

impl BackendLabels {
    fn new(names: impl IntoIterator<Item = String>) -> Self {
        let several = [SEVERAL_BACKENDS.to_owned()];
        Self(
            names
                .into_iter()
                .chain(several)
                .map(String::into_boxed_str)
                .collect(),
        )
    }

    /// Returns the position of a backend's name. Any other name counts as several backends.
    pub fn index(&self, name: &str) -> usize {
        let several = self.0.len() - 1;
        self.0[..several]
            .iter()
            .position(|n| **n == *name)
            .unwrap_or(several)
    }
}

/// The values of the label `runtime_handler`.
fn handlers<'a>(names: impl IntoIterator<Item = &'a str>) -> Arc<[Box<str>]> {
    let mut values: Vec<Box<str>> = vec![DEFAULT_HANDLER.into()];
    for name in names {
        if name != OTHER_HANDLERS && !values.contains(&Box::from(name)) {
            values.push(name.into());
        }
    }
    values.push(OTHER_HANDLERS.into());
    values.into()
}

/// A registry of metrics. Cheap to clone; clones share the metrics.
#[derive(Clone, Debug)]
pub struct Registry {
    inner: prometheus::Registry,
    backends: BackendLabels,
    exemplars: Arc<Mutex<ExemplarsByName>>,
    handlers: Arc<[Box<str>]>,
}

impl Registry {
    /// Wraps a registry of the library, which must be empty and have no prefix; `backends` are the names in the
    /// configuration.
    pub fn new(inner: prometheus::Registry, backends: impl IntoIterator<Item = String>) -> Self {
        Self {
            inner,
            backends: BackendLabels::new(backends),
            exemplars: Arc::default(),
            handlers: handlers([]),
        }
    }

    /// Sets the runtime handlers named in the configuration.
    #[must_use]
    pub fn with_handlers<'a>(self, names: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            handlers: handlers(names),
            ..self
        }
    }

    /// Returns the position of a runtime handler among the values of its label; `None` is an unknown one.
    pub fn handler(&self, name: Option<&str>) -> usize {
        let other = self.handlers.len() - 1;
        match name {
            Some("") => 0,
            // The first and last values are reserved.
            Some(name) => (1..other)
                .find(|i| *self.handlers[*i] == *name)
                .unwrap_or(other),
            None => other,
        }
    }

    /// The values of the label `backend`.
    pub fn backends(&self) -> &BackendLabels {
        &self.backends
    }

    /// Registers counters with `N` labels.
    ///
    /// # Errors
    /// If the metric has another type or other labels, or is registered already.
    pub fn counters<const N: usize>(
        &self,
        metric: &'static Metric,
    ) -> Result<Counters<N>, RegistryError> {
        let opts = Opts::new(metric.full_name(), metric.help);
        self.family(metric, MetricKind::Counter, |labels| {
            IntCounterVec::new(opts, labels)
        })
    }

    /// Registers gauges with `N` labels.
    ///
    /// # Errors
    /// If the metric has another type or other labels, or is registered already.
    pub fn gauges<const N: usize>(
        &self,
        metric: &'static Metric,
    ) -> Result<Gauges<N>, RegistryError> {
        let opts = Opts::new(metric.full_name(), metric.help);
        self.family(metric, MetricKind::Gauge, |labels| {
            IntGaugeVec::new(opts, labels)
        })
    }

    /// Registers histograms with `N` labels.
    ///
    /// # Errors
    /// If the metric has another type or other labels, or is registered already.
    pub fn histograms<const N: usize>(
        &self,
        metric: &'static Metric,
    ) -> Result<Histograms<N>, RegistryError> {
        let opts =
            HistogramOpts::new(metric.full_name(), metric.help).buckets(metric.buckets.to_vec());
        let mut family = self.family(metric, MetricKind::Histogram, |labels| {
            HistogramVec::new(opts, labels)
        })?;
        if metric.exemplars {
            let labels = metric
                .labels
                .iter()
                .filter_map(|l| Some((l.name, self.values(l.values)?)));
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

    fn family<V, const N: usize>(
        &self,
        metric: &'static Metric,
        wanted: MetricKind,
        make: impl FnOnce(&[&str]) -> prometheus::Result<V>,
    ) -> Result<IndexedFamily<V, N>, RegistryError>
    where
        V: super::family::MetricVector,
    {
        if metric.kind != wanted {
            return Err(RegistryError::Kind {
                metric: metric.name,
                is: metric.kind,
                wanted,
            });
        }
        let misfit = RegistryError::Labels {
            metric: metric.name,
        };
        let values: Option<Vec<_>> = metric
            .labels
            .iter()
            .map(|l| self.values(l.values))
            .collect();
        let Some(values) = values.and_then(|v| <[Box<[Box<str>]>; N]>::try_from(v).ok()) else {
            return Err(misfit);
        };
        let names: Vec<_> = metric.labels.iter().map(|l| l.name).collect();
        let vector = make(&names).map_err(|source| RegistryError::Register {
            metric: metric.name,
            source,
        })?;
        self.register(metric, Box::new(vector.clone()))?;
        Ok(IndexedFamily::new(vector, values))
    }

    fn values(&self, values: Values) -> Option<Box<[Box<str>]>> {
        match values {
            Values::Fixed(names) => Some(names.iter().map(|n| Box::from(*n)).collect()),
            Values::Backends => Some(self.backends.0.iter().cloned().collect()),
            Values::Handlers => Some(self.handlers.iter().cloned().collect()),
            Values::One(_) => None,
        }
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
    use crate::metric::{BACKEND, CLIENT, Unit, fixed, metrics};

    metrics! {
        CALLS = Metric::counter("calls_total", &[fixed("method", &["Version"]), fixed("code", &["OK"]), CLIENT], "Calls.");
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
            registry.gauges::<3>(&CALLS),
            Err(RegistryError::Kind { .. })
        ));
        assert!(matches!(
            registry.counters::<2>(&CALLS),
            Err(RegistryError::Labels { .. })
        ));
        assert!(matches!(
            registry.gauges::<2>(&crate::process::BUILD_INFO),
            Err(RegistryError::Labels { .. })
        ));
        assert!(registry.counters::<3>(&CALLS).is_ok());
        assert!(matches!(
            registry.counters::<3>(&CALLS),
            Err(RegistryError::Register { .. })
        ));
    }

    #[test]
    fn a_series_appears_when_it_is_first_used() {
        let registry = registry();
        let up = registry.gauges::<1>(&UP).expect("gauges");
        assert_eq!(series(&registry.gather()), 0);
        up.at([registry.backends().index("other")])
            .expect("in range")
            .set(1);
        let text = String::from_utf8(registry.encode().expect("encodes")).expect("utf-8");
        assert!(
            text.ends_with("criscope_up{backend=\"other\"} 1\n"),
            "{text}"
        );
        assert_eq!(series(&registry.gather()), 1);
    }

    #[test]
    fn unknown_names_count_as_several_backends() {
        let registry = registry();
        assert_eq!(registry.backends().index("main"), 0);
        for name in ["main+other", "", "evil\n", SEVERAL_BACKENDS] {
            assert_eq!(registry.backends().index(name), 2, "{name}");
        }
    }

    #[test]
    fn handlers_without_a_rule_share_a_label_value() {
        let registry = registry().with_handlers(["kata", "gvisor", "kata", "default", "other"]);
        assert_eq!(registry.handler(Some("")), 0);
        assert_eq!(registry.handler(Some("kata")), 1);
        assert_eq!(registry.handler(Some("gvisor")), 2);
        for other in [None, Some("runc"), Some("other"), Some("default")] {
            assert_eq!(registry.handler(other), 3, "{other:?}");
        }
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

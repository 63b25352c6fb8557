//! Metrics with labels whose series are found by index: the library's lock and hash are paid once per series.

use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use criscope_cri::NamedSet;
use opentelemetry::trace::TraceId;
use prometheus::core::{Collector, Metric, MetricVec, MetricVecBuilder};
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

use super::exemplars::HistogramExemplars;

/// Counters with these labels.
pub type Counters<L = ()> = Family<IntCounterVec, L>;
/// Gauges with these labels.
pub type Gauges<L = ()> = Family<IntGaugeVec, L>;
/// Histograms with these labels.
pub type Histograms<L = ()> = Family<HistogramVec, L>;

/// A metric vector of the `prometheus` crate.
pub trait MetricVector: Collector + Clone + 'static {
    /// One series.
    type Series;

    /// Returns the series with these label values, created on first use.
    fn series(&self, values: &[&str]) -> Option<Self::Series>;
}

impl<B: MetricVecBuilder + 'static> MetricVector for MetricVec<B> {
    type Series = B::M;

    fn series(&self, values: &[&str]) -> Option<B::M> {
        self.get_metric_with_label_values(values).ok()
    }
}

/// The names of all values of each label.
pub(super) type LabelNames = Box<[Box<[Box<str>]>]>;

/// The series of a metric, one for each combination of label values. The first use of a series makes it appear in scrapes; every
/// later one is two loads.
pub struct Family<V: MetricVector, L> {
    vector: V,
    values: LabelNames,
    slots: Box<[OnceLock<V::Series>]>,
    exemplars: Option<Arc<HistogramExemplars>>,
    labels: PhantomData<fn(L)>,
}

impl<V: MetricVector, L> std::fmt::Debug for Family<V, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family")
            .field("slots", &self.slots.len())
            .finish()
    }
}

impl<V: MetricVector, L: NamedSet> Family<V, L> {
    pub(super) fn new(vector: V, values: LabelNames) -> Self {
        let slots = values.iter().map(|v| v.len()).product();
        Self {
            vector,
            values,
            slots: std::iter::repeat_with(OnceLock::new).take(slots).collect(),
            exemplars: None,
            labels: PhantomData,
        }
    }

    /// Returns the number of a series.
    fn number(&self, labels: L) -> usize {
        let indices = labels.indices();
        let digits = self.values.iter().zip(indices.as_ref());
        digits.fold(0, |number, (values, i)| number * values.len() + i)
    }

    /// Returns the series if it is in use.
    pub fn used(&self, labels: L) -> Option<&V::Series> {
        self.slots.get(self.number(labels))?.get()
    }

    /// Makes all series appear in scrapes, so that the first event counts as an increase.
    #[must_use]
    pub fn with_all_series(self) -> Self {
        for number in 0..self.slots.len() {
            self.at(number);
        }
        self
    }

    fn at(&self, number: usize) -> Option<&V::Series> {
        let slot = self.slots.get(number)?;
        if let Some(series) = slot.get() {
            return Some(series);
        }
        let mut rest = number;
        let mut names: Vec<&str> = Vec::new();
        for values in self.values.iter().rev() {
            names.push(&values[rest % values.len()]);
            rest /= values.len();
        }
        names.reverse();
        let series = self.vector.series(&names)?;
        Some(slot.get_or_init(|| series))
    }
}

impl<L: NamedSet> Counters<L> {
    /// Adds 1.
    pub fn inc(&self, labels: L) {
        self.inc_by(labels, 1);
    }

    /// Adds a number, which may be 0 to make the series appear.
    pub fn inc_by(&self, labels: L, n: u64) {
        if let Some(series) = self.at(self.number(labels)) {
            series.inc_by(n);
        }
    }
}

impl<L: NamedSet> Gauges<L> {
    /// Adds to the value.
    pub fn add(&self, labels: L, change: i64) {
        if let Some(series) = self.at(self.number(labels)) {
            series.add(change);
        }
    }

    /// Sets the value.
    pub fn set(&self, labels: L, value: i64) {
        if let Some(series) = self.at(self.number(labels)) {
            series.set(value);
        }
    }
}

/// Cumulative counts of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HistogramCounts {
    /// Observations up to each declared bound, lower buckets included.
    pub up_to: Vec<u64>,
    /// Total number of observations.
    pub count: u64,
}

impl<L: NamedSet> Histograms<L> {
    /// Reads a series that is in use. Slow: not for the request path.
    pub fn counts(&self, labels: L) -> Option<HistogramCounts> {
        let sample = self.used(labels)?.metric();
        let histogram = sample.get_histogram();
        let buckets = histogram.get_bucket().iter();
        Some(HistogramCounts {
            up_to: buckets.map(|b| b.cumulative_count()).collect(),
            count: histogram.get_sample_count(),
        })
    }

    /// Records exemplars of later observations.
    pub(super) fn keep_exemplars(&mut self, exemplars: Arc<HistogramExemplars>) {
        self.exemplars = Some(exemplars);
    }

    /// Records an observation.
    pub fn observe(&self, labels: L, value: f64) {
        self.observe_traced(labels, value, None);
    }

    /// Records an observation. `trace` is its trace if that is exported; it becomes the exemplar of the bucket, if the metric
    /// has exemplars.
    pub fn observe_traced(&self, labels: L, value: f64, trace: Option<TraceId>) {
        let number = self.number(labels);
        let Some(series) = self.at(number) else {
            return;
        };
        series.observe(value);
        if let (Some(exemplars), Some(trace)) = (&self.exemplars, trace) {
            exemplars.note(number, value, trace);
        }
    }
}

#[cfg(test)]
mod tests {
    use criscope_cri::Named as _;
    use criscope_cri::call::{Client, Ending};
    use prometheus::{HistogramOpts, Opts};

    use super::*;

    fn values() -> LabelNames {
        let names = [Client::NAMES, Ending::NAMES];
        let names = names.map(|names| names.iter().map(|name| Box::from(*name)).collect());
        names.into()
    }

    #[test]
    fn each_combination_of_labels_is_a_series() {
        let vector = IntCounterVec::new(Opts::new("x_total", "x"), &["a", "b"]).expect("vector");
        let family = Counters::new(vector.clone(), values());
        for (a, client) in Client::ALL.into_iter().enumerate() {
            for (b, ending) in Ending::ALL.into_iter().enumerate() {
                assert!(family.used((client, ending)).is_none());
                family.inc_by((client, ending), (10 * a + b) as u64);
                assert!(family.used((client, ending)).is_some());
            }
        }
        assert_eq!(vector.with_label_values(&["other", "error"]).get(), 21);
        assert_eq!(vector.with_label_values(&["crictl", "ok"]).get(), 10);
    }

    #[test]
    fn all_series_can_be_there_from_the_start() {
        let vector = IntCounterVec::new(Opts::new("x_total", "x"), &["a", "b"]).expect("vector");
        let family = Counters::new(vector.clone(), values()).with_all_series();
        assert_eq!(vector.collect()[0].get_metric().len(), 12);
        family.inc((Client::Kubelet, Ending::Deadline));
        assert_eq!(vector.with_label_values(&["kubelet", "deadline"]).get(), 1);
    }

    #[test]
    fn a_family_without_labels_has_one_series() {
        let vector = IntGaugeVec::new(Opts::new("x", "x"), &[]).expect("vector");
        let family: Gauges = Gauges::new(vector, Box::default());
        family.set((), 7);
        assert_eq!(family.used(()).expect("a series").get(), 7);
    }

    #[test]
    fn only_series_in_use_are_read() {
        let opts = HistogramOpts::new("x", "x").buckets(vec![1.0, 2.0]);
        let vector = HistogramVec::new(opts, &["a", "b"]).expect("vector");
        let family = Histograms::new(vector, values());
        for value in [0.5, 1.5, 1.5, 9.0] {
            family.observe((Client::Other, Ending::Ok), value);
        }
        let observed = HistogramCounts {
            up_to: vec![1, 3],
            count: 4,
        };
        assert_eq!(family.counts((Client::Other, Ending::Ok)), Some(observed));
        assert_eq!(family.counts((Client::Kubelet, Ending::Ok)), None);
    }
}

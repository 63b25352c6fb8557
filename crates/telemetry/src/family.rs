//! Metrics with labels whose series are found by index: the library's lock and hash are paid once per series.

use std::sync::{Arc, OnceLock};

use opentelemetry::trace::TraceId;
use prometheus::core::{Collector, Metric, MetricVec, MetricVecBuilder};
use prometheus::{HistogramVec, IntCounterVec, IntGaugeVec};

use super::exemplars::HistogramExemplars;

/// Counters with `N` labels.
pub type Counters<const N: usize> = IndexedFamily<IntCounterVec, N>;
/// Gauges with `N` labels.
pub type Gauges<const N: usize> = IndexedFamily<IntGaugeVec, N>;
/// Histograms with `N` labels.
pub type Histograms<const N: usize> = IndexedFamily<HistogramVec, N>;

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

/// A metric with `N` labels, each with a fixed list of values.
pub struct IndexedFamily<V: MetricVector, const N: usize> {
    vector: V,
    values: [Box<[Box<str>]>; N],
    slots: Box<[OnceLock<V::Series>]>,
    exemplars: Option<Arc<HistogramExemplars>>,
}

impl<V: MetricVector, const N: usize> std::fmt::Debug for IndexedFamily<V, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family")
            .field("slots", &self.slots.len())
            .finish()
    }
}

impl<V: MetricVector, const N: usize> IndexedFamily<V, N> {
    pub(super) fn new(vector: V, values: [Box<[Box<str>]>; N]) -> Self {
        let slots = values.iter().map(|v| v.len()).product();
        Self {
            vector,
            values,
            slots: std::iter::repeat_with(OnceLock::new).take(slots).collect(),
            exemplars: None,
        }
    }

    /// Returns the index of the series at these positions; `None` if one is out of range.
    fn number(&self, index: [usize; N]) -> Option<usize> {
        let mut number = 0;
        for (values, i) in self.values.iter().zip(index) {
            if i >= values.len() {
                return None;
            }
            number = number * values.len() + i;
        }
        Some(number)
    }

    /// Returns the series at these positions if it is in use.
    pub fn used(&self, index: [usize; N]) -> Option<&V::Series> {
        self.slots.get(self.number(index)?)?.get()
    }

    /// Returns the series at these positions in the lists of label values. The first use makes it appear in scrapes;
    /// every later one is two loads. `None` if a position is out of range.
    pub fn at(&self, index: [usize; N]) -> Option<&V::Series> {
        let slot = self.slots.get(self.number(index)?)?;
        if let Some(series) = slot.get() {
            return Some(series);
        }
        let mut labels = [""; N];
        for ((label, values), i) in labels.iter_mut().zip(&self.values).zip(index) {
            *label = &values[i];
        }
        let series = self.vector.series(&labels)?;
        Some(slot.get_or_init(|| series))
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

impl<const N: usize> Histograms<N> {
    /// Reads every series in use, with the positions of its label values. Slow: not for the request path.
    pub fn read(&self, mut f: impl FnMut([usize; N], HistogramCounts)) {
        for (slot, series) in self.slots.iter().enumerate() {
            let Some(series) = series.get() else { continue };
            let (mut index, mut rest) = ([0; N], slot);
            for (place, values) in index.iter_mut().zip(&self.values).rev() {
                *place = rest % values.len();
                rest /= values.len();
            }
            let sample = series.metric();
            let histogram = sample.get_histogram();
            let buckets = histogram.get_bucket().iter();
            let observed = HistogramCounts {
                up_to: buckets.map(|b| b.cumulative_count()).collect(),
                count: histogram.get_sample_count(),
            };
            f(index, observed);
        }
    }

    /// Records exemplars of later observations.
    pub(super) fn keep_exemplars(&mut self, exemplars: Arc<HistogramExemplars>) {
        self.exemplars = Some(exemplars);
    }

    /// Records an observation in the series at these positions. `trace` is its trace if that is exported; it becomes
    /// the exemplar of the bucket, if the metric has exemplars.
    pub fn observe(&self, index: [usize; N], value: f64, trace: Option<TraceId>) {
        let Some(series) = self.at(index) else { return };
        series.observe(value);
        if let (Some(exemplars), Some(trace), Some(number)) =
            (&self.exemplars, trace, self.number(index))
        {
            exemplars.note(number, value, trace);
        }
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, Opts};

    use super::*;

    fn list(values: &[&str]) -> Box<[Box<str>]> {
        values.iter().map(|v| Box::from(*v)).collect()
    }

    #[test]
    fn each_combination_of_labels_is_a_series() {
        let vector = IntCounterVec::new(Opts::new("x_total", "x"), &["a", "b"]).expect("vector");
        let family =
            IndexedFamily::new(vector.clone(), [list(&["1", "2", "3"]), list(&["x", "y"])]);
        for a in 0..3 {
            for b in 0..2 {
                family
                    .at([a, b])
                    .expect("in range")
                    .inc_by((10 * a + b) as u64);
            }
        }
        assert_eq!(vector.with_label_values(&["3", "y"]).get(), 21);
        assert_eq!(vector.with_label_values(&["2", "x"]).get(), 10);
        assert!(family.at([3, 0]).is_none());
        assert!(family.used([0, 0]).is_some() && family.used([0, 2]).is_none());
        assert!(family.at([0, 2]).is_none());
    }

    #[test]
    fn a_family_without_labels_has_one_series() {
        let vector = IntGaugeVec::new(Opts::new("x", "x"), &[]).expect("vector");
        let family: IndexedFamily<_, 0> = IndexedFamily::new(vector, []);
        family.at([]).expect("a series").set(7);
        assert_eq!(family.at([]).expect("a series").get(), 7);
    }

    #[test]
    fn only_series_in_use_are_read() {
        let opts = HistogramOpts::new("x", "x").buckets(vec![1.0, 2.0]);
        let vector = HistogramVec::new(opts, &["a", "b"]).expect("vector");
        let family = IndexedFamily::new(vector, [list(&["1", "2", "3"]), list(&["x", "y"])]);
        for value in [0.5, 1.5, 1.5, 9.0] {
            family.at([2, 0]).expect("in range").observe(value);
        }
        let mut read = Vec::new();
        family.read(|index, observed| read.push((index, observed)));
        let observed = HistogramCounts {
            up_to: vec![1, 3],
            count: 4,
        };
        assert_eq!(read, [([2, 0], observed)]);
    }
}

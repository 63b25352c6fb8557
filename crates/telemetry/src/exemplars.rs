//! Exemplars: per histogram bucket, the last call whose trace is exported, so that a slow bucket links to a trace.
//!
//! Only exported calls are recorded. A writer skips a slot that another writer or a scrape has locked. Slots of a series are
//! allocated with its first exemplar.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use opentelemetry::trace::TraceId;
use prometheus::proto;

/// One observation and its trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The trace.
    pub trace_id: TraceId,
    /// The observed value.
    pub value: f64,
    /// Time of the observation.
    pub at: SystemTime,
}

/// The name of a label and its values.
type LabelWithValues = (&'static str, Box<[Box<str>]>);

/// One slot per bucket of a series, `+Inf` last.
type BucketExemplars = Box<[Mutex<Option<Exemplar>>]>;

/// The exemplars of a histogram.
#[derive(Debug)]
pub struct HistogramExemplars {
    /// Names and values of the labels, in the order of the declaration.
    labels: Box<[LabelWithValues]>,
    bounds: &'static [f64],
    series: Box<[OnceLock<BucketExemplars>]>,
}

impl HistogramExemplars {
    pub(super) fn new(
        labels: impl IntoIterator<Item = LabelWithValues>,
        bounds: &'static [f64],
    ) -> Self {
        let labels: Box<[_]> = labels.into_iter().collect();
        let series = labels.iter().map(|(_, values)| values.len()).product();
        Self {
            labels,
            bounds,
            series: std::iter::repeat_with(OnceLock::new).take(series).collect(),
        }
    }

    /// Records an observation in the series with this index (see [`super::family`]).
    pub(super) fn note(&self, series: usize, value: f64, trace_id: TraceId) {
        let Some(series) = self.series.get(series) else {
            return;
        };
        let buckets = series.get_or_init(|| {
            self.bounds
                .iter()
                .map(|_| None)
                .chain([None])
                .map(Mutex::new)
                .collect()
        });
        // Bounds are inclusive.
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(Ok(mut slot)) = buckets.get(bucket).map(Mutex::try_lock) {
            *slot = Some(Exemplar {
                trace_id,
                value,
                at: SystemTime::now(),
            });
        }
    }

    /// Returns the exemplars of a scraped series, one slot per bucket, `+Inf` last. Empty if it has none.
    pub(super) fn for_series(&self, metric: &proto::Metric) -> Vec<Option<Exemplar>> {
        let series = self.number(metric).and_then(|n| self.series.get(n)?.get());
        let slots = series.into_iter().flatten();
        slots
            .map(|slot| *slot.lock().unwrap_or_else(PoisonError::into_inner))
            .collect()
    }

    fn number(&self, metric: &proto::Metric) -> Option<usize> {
        self.labels.iter().try_fold(0, |number, (name, values)| {
            let pair = metric
                .get_label()
                .iter()
                .find(|pair| pair.name() == *name)?;
            let position = values.iter().position(|value| **value == *pair.value())?;
            Some(number * values.len() + position)
        })
    }
}

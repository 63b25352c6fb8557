//! Exemplars: for each bucket of a histogram the last call whose trace is exported, so that a slow bucket leads to a
//! trace that is in it.
//!
//! They are written only for calls that are exported, and never waited for: whoever comes while another one writes or a
//! scrape reads goes on without. A series has room for them from its first one on.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::SystemTime;

use opentelemetry::trace::TraceId;
use prometheus::proto;

/// One observation and its trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The trace.
    pub trace_id: TraceId,
    /// What was observed.
    pub value: f64,
    /// When.
    pub at: SystemTime,
}

/// The name of a label and its values.
type Label = (&'static str, Box<[Box<str>]>);

/// The buckets of a series, that without a bound last.
type Buckets = Box<[Mutex<Option<Exemplar>>]>;

/// The exemplars of a histogram.
#[derive(Debug)]
pub struct Exemplars {
    /// Names and values of the labels, in the order of the declaration.
    labels: Box<[Label]>,
    bounds: &'static [f64],
    series: Box<[OnceLock<Buckets>]>,
}

impl Exemplars {
    pub(super) fn new(labels: impl IntoIterator<Item = Label>, bounds: &'static [f64]) -> Self {
        let labels: Box<[_]> = labels.into_iter().collect();
        let series = labels.iter().map(|(_, values)| values.len()).product();
        Self {
            labels,
            bounds,
            series: std::iter::repeat_with(OnceLock::new).take(series).collect(),
        }
    }

    /// Notes an observation in the series with this number, as [`super::family`] counts them.
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
        // A bucket holds what is not larger than its bound.
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(Ok(mut slot)) = buckets.get(bucket).map(Mutex::try_lock) {
            *slot = Some(Exemplar {
                trace_id,
                value,
                at: SystemTime::now(),
            });
        }
    }

    /// The exemplars of a series as it is scraped, a slot per bucket, that without a bound last. Empty if it has none.
    pub(super) fn of(&self, metric: &proto::Metric) -> Vec<Option<Exemplar>> {
        let series = self.number(metric).and_then(|n| self.series.get(n)?.get());
        let read = |slot: &Mutex<_>| *slot.lock().unwrap_or_else(PoisonError::into_inner);
        series.map_or_else(Vec::new, |buckets| buckets.iter().map(read).collect())
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

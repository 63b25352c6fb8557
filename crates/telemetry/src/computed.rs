//! Metrics whose values are computed at scrape time.

use std::fmt;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{self, LabelPair, MetricFamily, MetricType};

use super::metric::{Metric, MetricKind};

/// Collects the series of a computed metric during a scrape.
#[derive(Debug)]
pub struct ComputedSeries {
    metric: &'static Metric,
    samples: Vec<proto::Metric>,
}

impl ComputedSeries {
    /// Adds a series with these label values, in declaration order. Ignored if their number is wrong.
    pub fn put(&mut self, labels: &[&str], value: f64) {
        if labels.len() != self.metric.labels.len() {
            debug_assert!(false, "{}: labels do not fit", self.metric.name);
            return;
        }
        let mut pairs: Vec<_> = self
            .metric
            .labels
            .iter()
            .zip(labels)
            .map(|(l, v)| {
                let mut pair = LabelPair::default();
                pair.set_name(l.name.to_owned());
                pair.set_value((*v).to_owned());
                pair
            })
            .collect();
        pairs.sort_by(|a, b| a.name().cmp(b.name()));
        let mut sample = proto::Metric::from_label(pairs);
        if self.metric.kind == MetricKind::Counter {
            let mut counter = proto::Counter::default();
            counter.set_value(value);
            sample.set_counter(counter);
        } else {
            let mut gauge = proto::Gauge::default();
            gauge.set_value(value);
            sample.set_gauge(gauge);
        }
        self.samples.push(sample);
    }
}

type ReadSeries = Box<dyn Fn(&mut ComputedSeries) + Send + Sync>;

/// A computed counter or gauge.
pub(super) struct ComputedMetric {
    metric: &'static Metric,
    desc: Desc,
    read: ReadSeries,
}

impl ComputedMetric {
    pub(super) fn new(metric: &'static Metric, read: ReadSeries) -> prometheus::Result<Self> {
        let labels = metric.labels.iter().map(|l| l.name.to_owned()).collect();
        let name = metric.full_name();
        let desc = Desc::new(name, metric.help.to_owned(), labels, Default::default())?;
        Ok(Self { metric, desc, read })
    }
}

impl fmt::Debug for ComputedMetric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Computed").field(&self.metric.name).finish()
    }
}

impl Collector for ComputedMetric {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut readings = ComputedSeries {
            metric: self.metric,
            samples: Vec::new(),
        };
        (self.read)(&mut readings);
        let mut family = MetricFamily::default();
        family.set_name(self.metric.full_name());
        family.set_help(self.metric.help.to_owned());
        family.set_field_type(match self.metric.kind {
            MetricKind::Counter => MetricType::COUNTER,
            MetricKind::Gauge | MetricKind::Histogram => MetricType::GAUGE,
        });
        family.set_metric(readings.samples);
        vec![family]
    }
}

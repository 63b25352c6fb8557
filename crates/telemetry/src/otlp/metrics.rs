//! Pushes the metrics to the collector at an interval: the metrics of a scrape, under the same names, with cumulative values
//! (OpenTelemetry, "Prometheus and OpenMetrics Compatibility"). A failed push loses one sample, not the counts.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Exemplar, Gauge, Histogram, HistogramDataPoint, Metric,
    NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, exemplar, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prometheus::proto::{self, MetricFamily, MetricType};
use tokio::time::{MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::collector::Collector;
use super::delivery::{ExportDelivery, encoded, report_lost, scope};
use super::records::{nanos, text};
use crate::drops::{DropReason, Drops};
use crate::exemplars;
use crate::openmetrics::{self, ExemplarsByName};
use crate::registry::Registry;

/// The task that pushes the metrics.
#[derive(Debug)]
pub(super) struct MetricsPush {
    pub(super) registry: Arc<Registry>,
    pub(super) collector: Collector,
    pub(super) resource: Resource,
    pub(super) schema_url: String,
    pub(super) every: Duration,
    pub(super) drops: Arc<Drops>,
}

impl MetricsPush {
    /// Pushes until `stop`, and then once more.
    pub(super) async fn run(self, stop: CancellationToken) {
        let began = SystemTime::now();
        let mut delivery = ExportDelivery::new("metric", Arc::new(self.collector.clone()));
        let mut ticks = interval_at(tokio::time::Instant::now() + self.every, self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_last = tokio::select! {
                _ = ticks.tick() => false,
                () = stop.cancelled() => true,
            };
            self.push(&mut delivery, began).await;
            if is_last {
                return;
            }
        }
    }

    async fn push(&self, delivery: &mut ExportDelivery, began: SystemTime) {
        let registry = Arc::clone(&self.registry);
        // Gathering takes milliseconds, which would delay the other tasks of the side thread.
        let gathering =
            tokio::task::spawn_blocking(move || (registry.gather(), registry.exemplars().clone()));
        let Ok((families, exemplars)) = gathering.await else {
            return;
        };
        let reading = MetricsReading {
            exemplars: &exemplars,
            began: nanos(began),
            now: nanos(SystemTime::now()),
        };
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(self.resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope("criscope")),
                    metrics: families
                        .iter()
                        .map(|family| reading.metric(family))
                        .collect(),
                    schema_url: self.schema_url.clone(),
                }],
                schema_url: self.schema_url.clone(),
            }],
        };
        let export = encoded(&request, self.collector.is_gzip);
        if let Err(error) = delivery.send(&export).await {
            self.drops.add(DropReason::MetricsExportFailed, 1);
            report_lost("metric", (1, "metrics"), &error);
        }
    }
}

/// One reading of all metrics. Times are nanoseconds since 1970.
struct MetricsReading<'a> {
    exemplars: &'a ExemplarsByName,
    began: u64,
    now: u64,
}

impl MetricsReading<'_> {
    fn metric(&self, family: &MetricFamily) -> Metric {
        let cumulative = AggregationTemporality::Cumulative.into();
        let data = match family.get_field_type() {
            MetricType::COUNTER => metric::Data::Sum(Sum {
                data_points: self.numbers(family, |metric| metric.get_counter().get_value()),
                aggregation_temporality: cumulative,
                is_monotonic: true,
            }),
            MetricType::HISTOGRAM => metric::Data::Histogram(Histogram {
                data_points: self.histograms(family),
                aggregation_temporality: cumulative,
            }),
            // Metrics of other types do not occur.
            _ => metric::Data::Gauge(Gauge {
                data_points: self.numbers(family, |metric| metric.get_gauge().get_value()),
            }),
        };
        Metric {
            name: family.name().to_owned(),
            description: family.help().to_owned(),
            unit: unit(family.name()).to_owned(),
            metadata: Vec::new(),
            data: Some(data),
        }
    }

    fn numbers(
        &self,
        family: &MetricFamily,
        value: fn(&proto::Metric) -> f64,
    ) -> Vec<NumberDataPoint> {
        let series = family.get_metric().iter();
        series
            .map(|metric| self.number(metric, value(metric)))
            .collect()
    }

    fn number(&self, metric: &proto::Metric, value: f64) -> NumberDataPoint {
        NumberDataPoint {
            attributes: labels(metric),
            start_time_unix_nano: self.began,
            time_unix_nano: self.now,
            value: Some(number_data_point::Value::AsDouble(value)),
            ..NumberDataPoint::default()
        }
    }

    fn histograms(&self, family: &MetricFamily) -> Vec<HistogramDataPoint> {
        let exemplars = self.exemplars.get(family.name());
        let all = family.get_metric().iter();
        all.map(|metric| {
            let histogram = metric.get_histogram();
            let buckets = histogram.get_bucket().iter();
            let bounds = buckets.clone().map(proto::Bucket::upper_bound);
            // A bucket of Prometheus includes the counts of lower buckets, and the bucket without a bound is left out.
            let count = histogram.get_sample_count();
            let up_to = buckets.map(proto::Bucket::cumulative_count).chain([count]);
            let bucket_counts = up_to.scan(0, |below, up_to| {
                let own = up_to.saturating_sub(*below);
                *below = up_to;
                Some(own)
            });
            let seen = exemplars.map_or_else(Vec::new, |all| all.for_series(metric));
            HistogramDataPoint {
                attributes: labels(metric),
                start_time_unix_nano: self.began,
                time_unix_nano: self.now,
                count,
                sum: Some(histogram.get_sample_sum()),
                bucket_counts: bucket_counts.collect(),
                explicit_bounds: bounds.collect(),
                exemplars: seen.into_iter().flatten().map(exemplar).collect(),
                ..HistogramDataPoint::default()
            }
        })
        .collect()
    }
}

fn exemplar(own: exemplars::Exemplar) -> Exemplar {
    Exemplar {
        time_unix_nano: nanos(own.at),
        trace_id: own.trace_id.to_bytes().to_vec(),
        value: Some(exemplar::Value::AsDouble(own.value)),
        ..Exemplar::default()
    }
}

fn labels(metric: &proto::Metric) -> Vec<KeyValue> {
    let labels = metric.get_label().iter();
    labels
        .map(|label| text(label.name(), label.value()))
        .collect()
}

/// The unit, in the notation of UCUM; empty if there is none.
fn unit(name: &str) -> &'static str {
    match openmetrics::unit(name.strip_suffix("_total").unwrap_or(name)) {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

    use super::*;

    #[test]
    fn a_reading_has_what_a_scrape_shows() {
        let registry = prometheus::Registry::new();
        let opts = Opts::new("criscope_sent_bytes_total", "Bytes sent.");
        let counter = IntCounterVec::new(opts, &["method"]).expect("a counter");
        let opts = HistogramOpts::new("criscope_call_seconds", "Calls.").buckets(vec![1.0, 2.0]);
        let histogram = HistogramVec::new(opts, &[]).expect("a histogram");
        registry.register(Box::new(counter.clone())).expect("new");
        registry.register(Box::new(histogram.clone())).expect("new");
        counter.with_label_values(&["Status"]).inc_by(7);
        for value in [0.5, 1.0, 1.5, 9.0] {
            histogram.with_label_values::<&str>(&[]).observe(value);
        }
        let reading = MetricsReading {
            exemplars: &ExemplarsByName::new(),
            began: 1,
            now: 2,
        };
        let families = registry.gather();
        let metrics: Vec<_> = families
            .iter()
            .map(|family| reading.metric(family))
            .collect();
        let of = |name: &str| {
            metrics
                .iter()
                .find(|metric| metric.name == name)
                .expect("there")
        };
        let bytes = of("criscope_sent_bytes_total");
        assert_eq!((&*bytes.unit, &*bytes.description), ("By", "Bytes sent."));
        let Some(metric::Data::Sum(sum)) = &bytes.data else {
            panic!("{bytes:?}");
        };
        assert!(sum.is_monotonic);
        assert_eq!(sum.aggregation_temporality, 2, "cumulative");
        let [point] = &sum.data_points[..] else {
            panic!("{sum:?}");
        };
        assert_eq!(point.value, Some(number_data_point::Value::AsDouble(7.0)));
        assert_eq!(point.attributes, [text("method", "Status")]);
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
        let calls = of("criscope_call_seconds");
        assert_eq!(calls.unit, "s");
        let Some(metric::Data::Histogram(histogram)) = &calls.data else {
            panic!("{calls:?}");
        };
        let point = &histogram.data_points[0];
        assert_eq!((point.count, point.sum), (4, Some(12.0)));
        assert_eq!(point.bucket_counts, [2, 1, 1]);
        assert_eq!(point.explicit_bounds, [1.0, 2.0]);
    }
}

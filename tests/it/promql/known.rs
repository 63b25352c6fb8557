//! The series that can be queried.

use criscope::catalogue::CATALOGUE;
use criscope::telemetry::metric::{self, MetricKind};

use crate::prelude::*;
use crate::rules::file::Rule;

/// The possible values of a label.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// Any value: names from the configuration, or per process.
    Any,
    /// One of these.
    Fixed(Vec<String>),
    /// Bounds of buckets.
    Bounds(Vec<f64>),
}

/// Labels and their values.
pub(crate) type Labels = BTreeMap<String, Values>;

/// The series of one metric.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) counter: bool,
    pub(super) labels: Labels,
}

/// All series that can be queried.
#[derive(Debug)]
pub(crate) struct Known(BTreeMap<String, Series>);

/// Labels that Prometheus and its configuration add to every series. `cluster` is for setups with several clusters.
const TARGET: [&str; 3] = ["cluster", "instance", "job"];

fn target_labels() -> Labels {
    TARGET
        .iter()
        .map(|name| ((*name).to_owned(), Values::Any))
        .collect()
}

fn labels_of(metric: &metric::Metric) -> Labels {
    let mut labels = target_labels();
    for label in metric.labels {
        let values = match label.values {
            metric::Values::Fixed(values) => {
                Values::Fixed(values.iter().map(|v| (*v).to_owned()).collect())
            }
            _ => Values::Any,
        };
        labels.insert(label.name.to_owned(), values);
    }
    labels
}

/// The spellings of a bound, in the text format and in OpenMetrics.
pub(super) fn spellings(bound: f64) -> Vec<String> {
    let text = bound.to_string();
    match text.contains('.') {
        true => vec![text],
        false => vec![format!("{text}.0"), text],
    }
}

impl Known {
    /// The metrics of the catalogue, and those that Prometheus itself records for targets and alerts.
    pub(crate) fn catalogue() -> Self {
        let mut known = Self(BTreeMap::new());
        for metric in CATALOGUE.iter() {
            let name = metric.full_name();
            let labels = labels_of(metric);
            if metric.kind != MetricKind::Histogram {
                known.add(name, metric.kind == MetricKind::Counter, labels);
                continue;
            }
            for suffix in ["sum", "count"] {
                known.add(format!("{name}_{suffix}"), true, labels.clone());
            }
            let mut labels = labels;
            labels.insert("le".into(), Values::Bounds(metric.buckets.to_vec()));
            known.add(format!("{name}_bucket"), true, labels);
        }
        known.add("up".into(), false, target_labels());
        let mut alert = target_labels();
        for name in ["alertname", "alertstate", "severity", "slo", "window"] {
            alert.insert(name.into(), Values::Any);
        }
        known.add("ALERTS".into(), false, alert);
        known
    }

    /// The catalogue and the recorded series; also returns the problems of the rules' expressions.
    pub(crate) fn with_rules(rules: &[Rule]) -> (Self, Vec<String>) {
        let mut known = Self::catalogue();
        let mut problems = Vec::new();
        for rule in rules {
            let name = rule.record.as_ref().or(rule.alert.as_ref());
            let name = name.expect("a name");
            // A sum of counters of one process: they reset together, so the sum is a counter too.
            // A series with the name of another runtime has no colon, and is what its expression is.
            let total = rule.record.is_some()
                && (name.ends_with(":total")
                    || !name.contains(':') && known.check(&rule.expr).is_err());
            let checked = match total {
                true => known.check_total(&rule.expr),
                false => known.check(&rule.expr),
            };
            let mut labels = match checked {
                Ok(labels) => labels,
                Err(problem) => {
                    problems.push(format!("{name} {:?}: {problem}", rule.labels));
                    continue;
                }
            };
            for (label, value) in &rule.labels {
                labels.insert(label.clone(), Values::Fixed(vec![value.clone()]));
            }
            if rule.record.is_some() {
                known.add(name.clone(), total, labels);
            }
        }
        (known, problems)
    }

    pub(super) fn series(&self, name: &str) -> Option<&Series> {
        self.0.get(name)
    }

    fn add(&mut self, name: String, counter: bool, labels: Labels) {
        let series = self.0.entry(name).or_insert_with(|| Series {
            counter,
            labels: labels.clone(),
        });
        // Rules that record the same metric with different labels.
        for (label, values) in labels {
            match (series.labels.get_mut(&label), values) {
                (Some(Values::Fixed(old)), Values::Fixed(new)) => old.extend(new),
                (Some(_), _) => {}
                (None, values) => {
                    series.labels.insert(label, values);
                }
            }
        }
    }
}

//! What can be asked for.

use std::collections::BTreeMap;

use criscope::catalogue::CATALOGUE;
use criscope::telemetry::metric::{self, Kind};

use crate::rules::file::Rule;

/// The values that a label can have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// Names of the configuration, or what one process has.
    Any,
    /// One of these.
    Fixed(Vec<String>),
    /// Bounds of buckets.
    Bounds(Vec<f64>),
}

/// Labels and their values.
pub(crate) type Labels = BTreeMap<String, Values>;

/// The series of one name.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) counter: bool,
    pub(super) labels: Labels,
}

/// Everything that can be asked for.
#[derive(Debug)]
pub(crate) struct Known(BTreeMap<String, Series>);

/// What Prometheus and its configuration add to every series. `cluster` is for those who have several.
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

/// How a bound is spelled: in the text format and in OpenMetrics.
pub(super) fn spellings(bound: f64) -> Vec<String> {
    let text = bound.to_string();
    match text.contains('.') {
        true => vec![text],
        false => vec![format!("{text}.0"), text],
    }
}

impl Known {
    /// The metrics of the catalogue, and what Prometheus itself says of a target and of its alerts.
    pub(crate) fn catalogue() -> Self {
        let mut known = Self(BTreeMap::new());
        for metric in CATALOGUE.iter() {
            let name = metric.full_name();
            let labels = labels_of(metric);
            if metric.kind != Kind::Histogram {
                known.add(name, metric.kind == Kind::Counter, labels);
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

    /// The same, and what the rules record; with the problems of their expressions.
    pub(crate) fn with_rules(rules: &[Rule]) -> (Self, Vec<String>) {
        let mut known = Self::catalogue();
        let mut problems = Vec::new();
        for rule in rules {
            let name = rule.record.as_ref().or(rule.alert.as_ref());
            let name = name.expect("a name");
            // A sum of counters of one process: they start anew together, so the sum is a counter too.
            let total = rule.record.is_some() && name.ends_with(":total");
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
        // Rules that record the same under different labels.
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

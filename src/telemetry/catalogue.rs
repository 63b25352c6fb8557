//! The catalogue: every metric this program can show, in one table.
//!
//! [`super::Registry`] makes metrics from these entries only, `docs/METRICS.md` is generated from them, and dashboards
//! and alert rules are checked against them. Label values are Rust enums or names from the configuration, so the
//! number of series is bounded by types (see [`Values`]).

mod reference;
mod table;

pub use self::reference::reference_markdown;
pub use self::table::*;

/// What every metric name begins with, the conventional `process_*` apart.
pub const PREFIX: &str = "criscope_";

/// The `backend` of calls that went to several backends.
pub const SEVERAL_BACKENDS: &str = "_ALL";

/// The `runtime_handler` of pods that ask for none.
pub const DEFAULT_HANDLER: &str = "default";

/// The `runtime_handler` of pods that ask for one that no routing rule names, or whose handler is not known.
pub const OTHER_HANDLERS: &str = "other";

/// Kind of a metric, as the Prometheus text format names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows; resets when the process starts.
    Counter,
    /// A value of now.
    Gauge,
    /// Counts of observations per bucket.
    Histogram,
}

impl Kind {
    /// The word of the `# TYPE` line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// Unit of a metric's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Things counted.
    Count,
    /// Seconds; for a `*_start_time_seconds`, since 1970-01-01 UTC.
    Seconds,
    /// Bytes.
    Bytes,
    /// No meaning: the labels are the message and the value is 1, or the value is 0 or 1.
    Flag,
}

impl Unit {
    /// The word in the reference.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Seconds => "seconds",
            Self::Bytes => "bytes",
            Self::Flag => "flag",
        }
    }
}

/// The values a label can have.
#[derive(Clone, Copy, Debug)]
pub enum Values {
    /// One of these.
    Fixed(&'static [&'static str]),
    /// The backends of the configuration, and [`SEVERAL_BACKENDS`].
    Backends,
    /// The runtime handlers that the routing rules name, [`DEFAULT_HANDLER`] and [`OTHER_HANDLERS`].
    Handlers,
    /// One value at a time, for as long as the process or its configuration lives.
    One(&'static str),
}

/// A label of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// Its name.
    pub name: &'static str,
    /// Its values: the bound of the number of series.
    pub values: Values,
}

/// One entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name without [`PREFIX`].
    pub name: &'static str,
    /// Whether [`PREFIX`] comes before it.
    pub prefixed: bool,
    /// Kind.
    pub kind: Kind,
    /// Unit of the value.
    pub unit: Unit,
    /// Labels, in the order in which values are given.
    pub labels: &'static [Label],
    /// Upper bounds of a histogram's buckets, without `+Inf`; empty for other kinds.
    pub buckets: &'static [f64],
    /// Whether its buckets have exemplars: traces of what is in them.
    pub exemplars: bool,
    /// What it says, one sentence.
    pub help: &'static str,
}

impl Metric {
    const fn counter(name: &'static str, labels: &'static [Label], help: &'static str) -> Self {
        Self::new(Kind::Counter, name, Unit::Count, labels, help)
    }

    const fn gauge(
        name: &'static str,
        unit: Unit,
        labels: &'static [Label],
        help: &'static str,
    ) -> Self {
        Self::new(Kind::Gauge, name, unit, labels, help)
    }

    const fn histogram(
        name: &'static str,
        unit: Unit,
        labels: &'static [Label],
        buckets: &'static [f64],
        help: &'static str,
    ) -> Self {
        let mut metric = Self::new(Kind::Histogram, name, unit, labels, help);
        metric.buckets = buckets;
        metric
    }

    const fn with_exemplars(mut self) -> Self {
        self.exemplars = true;
        self
    }

    const fn process(kind: Kind, name: &'static str, unit: Unit, help: &'static str) -> Self {
        let mut metric = Self::new(kind, name, unit, &[], help);
        metric.prefixed = false;
        metric
    }

    const fn new(
        kind: Kind,
        name: &'static str,
        unit: Unit,
        labels: &'static [Label],
        help: &'static str,
    ) -> Self {
        Self {
            name,
            prefixed: true,
            kind,
            unit,
            labels,
            buckets: &[],
            exemplars: false,
            help,
        }
    }

    /// The name as it is scraped.
    pub fn full_name(&self) -> String {
        let prefix = if self.prefixed { PREFIX } else { "" };
        format!("{prefix}{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn entries_are_well_formed() {
        let mut names = HashSet::new();
        for metric in CATALOGUE {
            let name = metric.full_name();
            assert!(names.insert(name.clone()), "{name} stands there twice");
            assert_eq!(
                metric.kind == Kind::Counter,
                name.ends_with("_total"),
                "{name}"
            );
            assert_eq!(
                metric.kind == Kind::Histogram,
                !metric.buckets.is_empty(),
                "{name}"
            );
            assert!(metric.buckets.is_sorted(), "{name}");
            assert!(
                !metric.exemplars || metric.kind == Kind::Histogram,
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
            match metric.unit {
                Unit::Seconds => assert!(name.contains("_seconds"), "{name}"),
                Unit::Bytes => assert!(name.contains("_bytes"), "{name}"),
                Unit::Count | Unit::Flag => {}
            }
            for label in metric.labels {
                assert!(
                    !["pod", "namespace", "container", "image", "id", "uid"].contains(&label.name),
                    "{name} has a label without a bound"
                );
            }
        }
    }

    /// OpenMetrics names a counter's family without `_total`, so that name must be free.
    #[test]
    fn counter_families_do_not_collide_in_openmetrics() {
        let names: HashSet<_> = CATALOGUE.iter().map(|m| m.full_name()).collect();
        for name in &names {
            if let Some(family) = name.strip_suffix("_total") {
                assert!(!names.contains(family), "{name}");
            }
        }
    }
}

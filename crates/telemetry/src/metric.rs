//! Declarations of metrics. A module declares its metrics with `metrics!` next to the code that counts them; the
//! catalogue collects the declarations.
//!
//! [`super::Registry`] registers declared metrics only. Label values are Rust enums or names from the configuration, so the
//! number of series is bounded by types (see [`Named`]).

use criscope_cri::Named;
use criscope_cri::call::Client;

use super::labels::{BackendLabel, HandlerLabel};

/// Declares the metrics of a module, and `METRICS`, the list of them.
#[macro_export]
macro_rules! metrics {
    ($($id:ident = $metric:expr;)*) => {
        $(
            #[doc = concat!("`", stringify!($id), "`: see `docs/METRICS.md`.")]
            #[allow(unreachable_pub)]
            pub static $id: $crate::metric::Metric = $metric;
        )*

        /// The metrics declared here.
        #[allow(dead_code, unreachable_pub)]
        pub static METRICS: &[&$crate::metric::Metric] = &[$(&$id,)*];
    };
}
pub use crate::metrics;

/// A label with the values of a type.
pub const fn label<V: Named>(name: &'static str) -> Label {
    fixed(name, V::NAMES)
}

/// A label with these values.
pub const fn fixed(name: &'static str, values: &'static [&'static str]) -> Label {
    Label {
        name,
        values: Values::Fixed(values),
    }
}

/// A label with one value at a time.
pub const fn one(name: &'static str, description: &'static str) -> Label {
    Label {
        name,
        values: Values::One(description),
    }
}

/// The label `client`.
pub const CLIENT: Label = label::<Client>("client");
/// The label `backend`.
pub const BACKEND: Label = Label {
    name: "backend",
    values: Values::Backends,
};
/// The label `runtime_handler`.
pub const RUNTIME_HANDLER: Label = Label {
    name: "runtime_handler",
    values: Values::Handlers,
};

/// Calls: from half a millisecond to the ten minutes of a slow image pull; the kubelet's own deadlines (2 and 4
/// minutes) are bounds.
pub const CALL_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 240.0, 600.0,
];
/// Process scans, on small and very large nodes, and responses of peers on loopback.
pub const LOOK_BUCKETS: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1];

/// Prefix of every metric name except the conventional `process_*`.
pub const PREFIX: &str = "criscope_";

/// Value of `backend` for calls that went to several backends.
pub const SEVERAL_BACKENDS: &str = "_ALL";

/// Value of `runtime_handler` for pods without one.
pub const DEFAULT_HANDLER: &str = "default";

/// Value of `runtime_handler` for pods whose handler is unknown, or named by no routing rule.
pub const OTHER_HANDLERS: &str = "other";

criscope_cri::named! {
    /// Kind of a metric, as the Prometheus text format names it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MetricKind {
        /// Only grows; resets when the process starts.
        Counter = "counter",
        /// A current value.
        Gauge = "gauge",
        /// Counts of observations per bucket.
        Histogram = "histogram",
    }
}

criscope_cri::named! {
    /// Unit of a metric's value.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Unit {
        /// A number of things.
        Count = "count",
        /// Seconds; for a `*_start_time_seconds`, since 1970-01-01 UTC.
        Seconds = "seconds",
        /// Bytes.
        Bytes = "bytes",
        /// No unit: an info metric with the value 1, or a flag of 0 or 1.
        Flag = "flag",
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
    /// One value at a time, for the lifetime of the process or of its configuration.
    One(&'static str),
}

impl Values {
    /// The values that no configuration changes.
    pub(super) const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Fixed(names) => names,
            Self::Backends => BackendLabel::NAMES,
            Self::Handlers => HandlerLabel::NAMES,
            Self::One(_) => &[],
        }
    }
}

/// A label of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// The name of the label.
    pub name: &'static str,
    /// The values of the label, which bound the number of series.
    pub values: Values,
}

/// The declaration of a metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name without [`PREFIX`].
    pub name: &'static str,
    /// Set if the full name has [`PREFIX`].
    pub prefixed: bool,
    /// Kind.
    pub kind: MetricKind,
    /// Unit of the value.
    pub unit: Unit,
    /// Labels, in the order in which values are given.
    pub labels: &'static [Label],
    /// Upper bounds of a histogram's buckets, without `+Inf`; empty for other kinds.
    pub buckets: &'static [f64],
    /// Set if the buckets have exemplars.
    pub exemplars: bool,
    /// Help text, one sentence.
    pub help: &'static str,
}

impl Metric {
    /// A counter: of things, without a unit.
    pub const fn counter(name: &'static str, labels: &'static [Label], help: &'static str) -> Self {
        Self::new(MetricKind::Counter, name, Unit::Count, labels, help)
    }

    /// A gauge.
    pub const fn gauge(
        name: &'static str,
        unit: Unit,
        labels: &'static [Label],
        help: &'static str,
    ) -> Self {
        Self::new(MetricKind::Gauge, name, unit, labels, help)
    }

    /// A histogram with these upper bounds of its buckets, in ascending order.
    pub const fn histogram(
        name: &'static str,
        unit: Unit,
        labels: &'static [Label],
        buckets: &'static [f64],
        help: &'static str,
    ) -> Self {
        let mut metric = Self::new(MetricKind::Histogram, name, unit, labels, help);
        metric.buckets = buckets;
        metric
    }

    /// The same, with links from buckets to traces.
    pub const fn with_exemplars(mut self) -> Self {
        self.exemplars = true;
        self
    }

    /// A conventional metric of the process, without [`PREFIX`] and labels.
    pub const fn process(
        kind: MetricKind,
        name: &'static str,
        unit: Unit,
        help: &'static str,
    ) -> Self {
        let mut metric = Self::new(kind, name, unit, &[], help);
        metric.prefixed = false;
        metric
    }

    /// A metric of any kind; see [`Metric::counter`] and the others.
    pub const fn new(
        kind: MetricKind,
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

    /// Returns the name as scraped.
    pub fn full_name(&self) -> String {
        let prefix = if self.prefixed { PREFIX } else { "" };
        format!("{prefix}{}", self.name)
    }
}

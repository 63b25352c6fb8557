//! The catalogue: every metric this program can show, in one table.
//!
//! [`super::Registry`] makes metrics from these entries only, `docs/METRICS.md` is generated from them, and dashboards
//! and alert rules are checked against them. Label values are Rust enums or names from the configuration, so the
//! number of series is bounded by types (see [`Values`]).

mod reference;

use crate::cri::call::{Client, RouteReason};
use crate::cri::method::Method;
use crate::cri::outcome::{CODES, Ending, code_name};

pub use self::reference::reference_markdown;

/// What every metric name begins with, the conventional `process_*` apart.
pub const PREFIX: &str = "criscope_";

/// The `backend` of calls that went to several backends.
pub const SEVERAL_BACKENDS: &str = "_ALL";

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
            help,
        }
    }

    /// The name as it is scraped.
    pub fn full_name(&self) -> String {
        let prefix = if self.prefixed { PREFIX } else { "" };
        format!("{prefix}{}", self.name)
    }
}

/// The names of all values of an enum, in the order of its `ALL`.
macro_rules! names {
    ($all:expr, $name:expr) => {{
        let mut names = [""; $all.len()];
        let mut i = 0;
        while i < names.len() {
            names[i] = $name($all[i]);
            i += 1;
        }
        names
    }};
}

static METHOD_NAMES: [&str; Method::COUNT] = names!(Method::ALL, Method::name);
static ENDING_NAMES: [&str; Ending::ALL.len()] = names!(Ending::ALL, Ending::name);
static CLIENT_NAMES: [&str; Client::ALL.len()] = names!(Client::ALL, Client::name);
static REASON_NAMES: [&str; RouteReason::ALL.len()] = names!(RouteReason::ALL, RouteReason::name);
static CODE_NAMES: [&str; CODES.len()] = names!(CODES, code_name);

const fn fixed(name: &'static str, values: &'static [&'static str]) -> Label {
    Label {
        name,
        values: Values::Fixed(values),
    }
}

const METHOD: Label = fixed("method", &METHOD_NAMES);
const OUTCOME: Label = fixed("outcome", &ENDING_NAMES);
const CODE: Label = fixed("code", &CODE_NAMES);
const CLIENT: Label = fixed("client", &CLIENT_NAMES);
const REASON: Label = fixed("reason", &REASON_NAMES);
const BACKEND: Label = Label {
    name: "backend",
    values: Values::Backends,
};

const fn one(name: &'static str, what: &'static str) -> Label {
    Label {
        name,
        values: Values::One(what),
    }
}

/// Calls: from half a millisecond to the ten minutes of a slow image pull; the kubelet's own deadlines (2 and 4
/// minutes) are bounds.
const CALL_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0, 120.0, 240.0, 600.0,
];
/// The same calls as the backend answers them: every second bound, since these series are the most numerous and the
/// budget of a node is 2,000.
const BACKEND_BUCKETS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.25, 1.0, 5.0, 30.0, 120.0, 600.0,
];
/// Our own share of a call.
const OVERHEAD_BUCKETS: &[f64] = &[
    0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1,
];
/// Up to the kubelet's limit of a message, 16 MiB; finer before it, so that an alert can tell near from far.
const SIZE_BUCKETS: &[f64] = &[
    4096.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 8388608.0, 12582912.0, 16777216.0,
];

macro_rules! catalogue {
    ($($id:ident = $metric:expr;)*) => {
        $(#[doc = concat!("`", stringify!($id), "`: see [`CATALOGUE`].")] pub static $id: Metric = $metric;)*

        /// Every metric.
        pub static CATALOGUE: &[&Metric] = &[$(&$id,)*];
    };
}

catalogue! {
    RPC_DURATION = Metric::histogram("rpc_duration_seconds", Unit::Seconds, &[METHOD, OUTCOME], CALL_BUCKETS,
        "Time from the request headers to the one end of the call.");
    RPC_TOTAL = Metric::counter("rpc_total", &[METHOD, CODE, CLIENT],
        "Calls that ended, by the status the caller saw and the kind of caller.");
    RPC_IN_FLIGHT = Metric::gauge("rpc_in_flight", Unit::Count, &[METHOD],
        "Calls that have entered and not yet ended.");
    RPC_OLDEST_IN_FLIGHT = Metric::gauge("rpc_oldest_in_flight_seconds", Unit::Seconds, &[METHOD],
        "Age of the oldest call in flight; absent when there is none.");
    RPC_STUCK = Metric::counter("rpc_stuck_total", &[METHOD],
        "Calls that passed half of their deadline, or 60 seconds if they have none.");
    RPC_RESPONSE_BYTES = Metric::histogram("rpc_response_bytes", Unit::Bytes, &[METHOD], SIZE_BUCKETS,
        "Size of complete answers to List and Stream calls, gRPC frame headers included; the kubelet refuses more than 16 MiB.");

    BACKEND_RPC_DURATION = Metric::histogram("backend_rpc_duration_seconds", Unit::Seconds, &[BACKEND, METHOD, OUTCOME], BACKEND_BUCKETS,
        "Time from handing the request to the backend to the end of its answer.");
    PROXY_OVERHEAD = Metric::histogram("proxy_overhead_seconds", Unit::Seconds, &[], OVERHEAD_BUCKETS,
        "Time of a call not spent in the backend; unary calls that ended ok.");
    BACKEND_UP = Metric::gauge("backend_up", Unit::Flag, &[BACKEND],
        "Whether the backend is connected and answers.");
    BACKEND_RECONNECTS = Metric::counter("backend_reconnects_total", &[BACKEND],
        "Connections made to the backend after the first.");
    ROUTE_DECISIONS = Metric::counter("route_decisions_total", &[BACKEND, REASON],
        "Calls by the backend they went to and why.");

    CONNECTIONS_OPEN = Metric::gauge("connections_open", Unit::Count, &[],
        "Connections of callers that are open.");
    CONNECTIONS_TOTAL = Metric::counter("connections_total", &[CLIENT],
        "Connections of callers that were accepted.");
    IDENTITY_ENTRIES = Metric::gauge("identity_entries", Unit::Count, &[fixed("kind", &["sandbox", "container"])],
        "Sandboxes and containers whose pod is known.");
    IDENTITY_LOOKUPS = Metric::counter("identity_lookups_total", &[fixed("result", &["hit", "miss"])],
        "Look-ups of the pod behind an id.");

    TELEMETRY_SPANS = Metric::counter("telemetry_spans_total", &[fixed("decision", &["exported", "failed", "dropped"])],
        "Finished spans by what became of them: taken by the collector, refused or unreachable, never sent.");
    TELEMETRY_DROPPED = Metric::counter("telemetry_dropped_total",
        &[fixed("signal", &["span", "log", "story"]), fixed("reason", &["queue_full", "export_failed", "shutdown", "rate_limited"])],
        "Spans and log lines that were lost, and why.");
    BUILD_INFO = Metric::gauge("build_info", Unit::Flag,
        &[one("version", "version of the program"), one("commit", "commit it was built from, or `unknown`")],
        "The program that runs; always 1.");
    CONFIG_HASH_INFO = Metric::gauge("config_hash_info", Unit::Flag, &[one("hash", "hash of the configuration in force")],
        "The configuration in force; always 1.");
    START_TIME = Metric::gauge("start_time_seconds", Unit::Seconds, &[],
        "When this program was ready to set up its telemetry.");
    TOKIO_WORKERS = Metric::gauge("tokio_workers", Unit::Count, &[],
        "Worker threads of the async runtimes.");
    TOKIO_ALIVE_TASKS = Metric::gauge("tokio_alive_tasks", Unit::Count, &[],
        "Tasks alive in the async runtimes.");
    TOKIO_GLOBAL_QUEUE_DEPTH = Metric::gauge("tokio_global_queue_depth", Unit::Count, &[],
        "Tasks that wait in the global queues of the async runtimes.");

    PROCESS_CPU = Metric::process(Kind::Counter, "process_cpu_seconds_total", Unit::Seconds,
        "User and system CPU time used.");
    PROCESS_RESIDENT_MEMORY = Metric::process(Kind::Gauge, "process_resident_memory_bytes", Unit::Bytes,
        "Resident memory.");
    PROCESS_VIRTUAL_MEMORY = Metric::process(Kind::Gauge, "process_virtual_memory_bytes", Unit::Bytes,
        "Virtual memory.");
    PROCESS_OPEN_FDS = Metric::process(Kind::Gauge, "process_open_fds", Unit::Count,
        "Open file descriptors.");
    PROCESS_MAX_FDS = Metric::process(Kind::Gauge, "process_max_fds", Unit::Count,
        "Soft limit of open file descriptors.");
    PROCESS_THREADS = Metric::process(Kind::Gauge, "process_threads", Unit::Count,
        "Threads of the process.");
    PROCESS_START_TIME = Metric::process(Kind::Gauge, "process_start_time_seconds", Unit::Seconds,
        "When the kernel started the process.");
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

//! What criscope may cost, and whether it kept to it.

use std::fmt;

use serde::Serialize;

use crate::compare::{Latency, Shape, Throughput};
use crate::memory::Memory;
use crate::paths::Kind;
use crate::report::{Results, Telemetry};

/// Memory that may be added by the many calls: the allocator's pages never come out the same twice.
const GROWTH: f64 = 1e6;

/// Fewer calls show little more than how memory is first put to use.
const CALLS_TO_JUDGE_GROWTH: u64 = 1_000_000;

/// A limit, and what was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Budget {
    what: String,
    measured: f64,
    limit: Limit,
    aim: Option<f64>,
    unit: &'static str,
    /// Digits after the point.
    #[serde(skip)]
    places: usize,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Limit {
    AtMost(f64),
    AtLeast(f64),
}

impl Budget {
    /// Whether the limit was kept.
    pub(crate) fn met(&self) -> bool {
        self.within(match self.limit {
            Limit::AtMost(limit) | Limit::AtLeast(limit) => limit,
        })
    }

    fn within(&self, limit: f64) -> bool {
        match self.limit {
            Limit::AtMost(_) => self.measured <= limit,
            Limit::AtLeast(_) => self.measured >= limit,
        }
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.aim {
            _ if !self.met() => "MISSED",
            Some(aim) if self.within(aim) => "ok, aim met",
            _ => "ok",
        };
        let (word, limit) = match self.limit {
            Limit::AtMost(limit) => ("at most", limit),
            Limit::AtLeast(limit) => ("at least", limit),
        };
        let (what, unit, places) = (&self.what, self.unit, self.places);
        write!(f, "{verdict}: {what} {:.places$}{unit}", self.measured)?;
        write!(f, " ({word} {limit:.places$}{unit}")?;
        match self.aim {
            Some(aim) => write!(f, ", aim {aim:.places$}{unit})"),
            None => f.write_str(")"),
        }
    }
}

/// Every budget that the results allow to judge; none without criscope.
pub(crate) fn judge(results: &Results) -> Vec<Budget> {
    let latency = results.latency.first().into_iter().flat_map(of_latency);
    let throughput = results.throughput.iter().filter_map(of_throughput);
    let memory = results.memory.iter().flat_map(of_memory);
    let telemetry = results.telemetry.iter().flat_map(of_telemetry);
    latency
        .chain(throughput)
        .chain(memory)
        .chain(telemetry)
        .collect()
}

fn of_latency(latency: &Latency) -> Vec<Budget> {
    let added = |path| {
        let row = latency.rows.iter().find(|row| row.path == path)?;
        Some(row.added.median)
    };
    let (Some(criscope), Some(nginx), Some(socat)) = (
        added(Kind::Criscope),
        added(Kind::Nginx),
        added(Kind::Socat),
    ) else {
        return Vec::new();
    };
    vec![
        Budget {
            what: "added p50 of a call, of what nginx adds,".to_owned(),
            measured: criscope / nginx,
            limit: Limit::AtMost(1.0),
            aim: None,
            unit: "x",
            places: 2,
        },
        Budget {
            what: "added p50 of a call, of what socat adds,".to_owned(),
            measured: criscope / socat,
            limit: Limit::AtMost(1.8),
            aim: Some(1.5),
            unit: "x",
            places: 2,
        },
    ]
}

/// 16 callers on one connection, as a kubelet is one, keep half of the direct throughput and more than with nginx. Sixteen
/// connections cost every path one more wake-up per call; there the better of the two other paths is the limit.
fn of_throughput(throughput: &Throughput) -> Option<Budget> {
    let share = |path| {
        let row = throughput.rows.iter().find(|row| row.path == path)?;
        Some(row.share.median * 100.0)
    };
    let measured = share(Kind::Criscope)?;
    let (limit, aim) = match throughput.shape {
        Shape::Streams => (share(Kind::Nginx)?.max(50.0), Some(60.0)),
        Shape::Connections => (share(Kind::Socat)?.max(share(Kind::Nginx)?), Some(60.0)),
    };
    Some(Budget {
        what: format!("throughput of {}, of direct,", throughput.shape.name()),
        measured,
        limit: Limit::AtLeast(limit),
        aim,
        unit: " %",
        places: 1,
    })
}

fn of_memory(memory: &Memory) -> Vec<Budget> {
    let megabytes = |what: &str, measured: f64, limit: f64| Budget {
        what: what.to_owned(),
        measured: measured / 1e6,
        limit: Limit::AtMost(limit / 1e6),
        aim: None,
        unit: " MB",
        places: 1,
    };
    let peak = memory.list_peak.max(memory.slow_list_peak);
    let mut budgets = vec![
        megabytes("idle memory", memory.idle as f64, 15e6),
        megabytes("peak while a list of 10 MB passes", peak as f64, 30e6),
    ];
    if memory.calls() >= CALLS_TO_JUDGE_GROWTH {
        let growth = memory.growth() as f64;
        budgets.push(megabytes("growth over the many calls", growth, GROWTH));
    }
    budgets
}

/// The rest is worth nothing if it was measured with the telemetry off.
fn of_telemetry(telemetry: &Telemetry) -> Vec<Budget> {
    let some = |what: &str, measured: f64| Budget {
        what: what.to_owned(),
        measured,
        limit: Limit::AtLeast(1.0),
        aim: None,
        unit: "",
        places: 0,
    };
    vec![
        some("spans exported", telemetry.spans as f64),
        some("series in a scrape", telemetry.series as f64),
    ]
}

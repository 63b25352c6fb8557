//! Budgets of criscope in front of a runtime.

use criscope_testkit::bench::budget::{Budget, Limit};

use crate::compare::{Latency, Shape, THOUSAND, Throughput};
use crate::memory::Memory;
use crate::paths::Kind;
use crate::results::{Results, Telemetry};

/// Allowed growth of memory over the many calls, because the allocator's pages vary.
const GROWTH: f64 = 1e6;

/// With fewer calls, growth is mostly the first use of memory.
const CALLS_TO_JUDGE_GROWTH: u64 = 1_000_000;

/// All budgets that can be checked with these results; none without criscope.
pub(crate) fn judge(results: &Results) -> Vec<Budget> {
    let latency = results.latency.first().into_iter().flat_map(of_latency);
    let thousand = results.latency.iter().filter_map(of_thousand);
    let throughput = results.throughput.iter().filter_map(of_throughput);
    let memory = results.memory.iter().flat_map(of_memory);
    let telemetry = results.telemetry.iter().flat_map(of_telemetry);
    latency
        .chain(thousand)
        .chain(throughput)
        .chain(memory)
        .chain(telemetry)
        .collect()
}

/// The time that a path adds, in microseconds.
fn added(latency: &Latency, path: Kind) -> Option<f64> {
    let row = latency.rows.iter().find(|row| row.path == path)?;
    Some(row.added.median)
}

fn of_thousand(latency: &Latency) -> Option<Budget> {
    if latency.method != THOUSAND {
        return None;
    }
    let ratio = added(latency, Kind::Criscope)? / added(latency, Kind::Nginx)?;
    let what = format!("added p50 of a {THOUSAND}, of what nginx adds");
    Some(Budget::new(what, ratio, Limit::AtMost(1.0), "x"))
}

fn of_latency(latency: &Latency) -> Vec<Budget> {
    let (Some(criscope), Some(nginx), Some(socat)) = (
        added(latency, Kind::Criscope),
        added(latency, Kind::Nginx),
        added(latency, Kind::Socat),
    ) else {
        return Vec::new();
    };
    let of = |other: &str| format!("added p50 of a call, of what {other} adds");
    let (nginx, socat) = (criscope / nginx, criscope / socat);
    vec![
        Budget::new(of("nginx"), nginx, Limit::AtMost(1.0), "x"),
        Budget::new(of("socat"), socat, Limit::AtMost(2.5), "x").aim(Some(1.8)),
    ]
}

/// 16 callers on one connection, like a kubelet, keep half of the direct throughput and more than with nginx. With sixteen
/// connections every path has one more wake-up per call; there the limit is nine tenths of the better of the two other paths.
fn of_throughput(throughput: &Throughput) -> Option<Budget> {
    let share = |path| {
        let row = throughput.rows.iter().find(|row| row.path == path)?;
        Some(row.share.median * 100.0)
    };
    let measured = share(Kind::Criscope)?;
    let (limit, aim) = match throughput.shape {
        Shape::Streams => (share(Kind::Nginx)?.max(50.0), Some(60.0)),
        Shape::Connections => {
            let better = share(Kind::Socat)?.max(share(Kind::Nginx)?);
            (better * 0.9, Some(60.0))
        }
    };
    let what = format!("throughput of {}, of direct", throughput.shape.name());
    let budget = Budget::new(what, measured, Limit::AtLeast(limit), " %");
    Some(budget.aim(aim).digits(1))
}

fn of_memory(memory: &Memory) -> Vec<Budget> {
    let megabytes = |what: &str, measured: f64, limit: f64| {
        Budget::new(what, measured / 1e6, Limit::AtMost(limit / 1e6), " MB").digits(1)
    };
    let peak = memory.list_peak.max(memory.slow_list_peak);
    let mut budgets = vec![
        megabytes("idle memory", memory.idle.rss as f64, 16e6).aim(Some(13.0)),
        megabytes("idle memory, anonymous", memory.idle.anonymous as f64, 3e6),
        megabytes("peak while a list of 10 MB passes", peak as f64, 25e6),
    ];
    if memory.calls() >= CALLS_TO_JUDGE_GROWTH {
        let growth = memory.growth() as f64;
        budgets.push(megabytes("growth over the many calls", growth, GROWTH));
    }
    budgets
}

/// The other results are only valid if telemetry was on.
fn of_telemetry(telemetry: &Telemetry) -> Vec<Budget> {
    let some =
        |what: &str, measured: f64| Budget::new(what, measured, Limit::AtLeast(1.0), "").digits(0);
    vec![
        some("spans exported", telemetry.spans as f64),
        some("series in a scrape", telemetry.series as f64),
    ]
}

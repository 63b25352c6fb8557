//! The results as tables.

use criscope_testkit::bench::report::{Report, table};

use crate::budget::judge;
use crate::results::Results;
use crate::sessions::{Kind, LENGTH, Sessions};
use crate::sides::{CONTAINERD, RUNC};

/// The lines around the report in the documentation.
const MARKERS: [&str; 2] = [
    "<!-- results of the runtime: written by the benchmark -->\n",
    "<!-- end of the results of the runtime -->\n",
];

/// The whole report.
pub(crate) fn report(results: &Results) -> Report<'_, Results> {
    Report {
        results,
        budgets: judge(results),
        parts: vec![calls(results), many(results), sessions(results)],
        facts: &results.facts,
        markers: MARKERS,
    }
}

/// One pod after the other.
fn calls(results: &Results) -> String {
    if results.rows.is_empty() {
        return String::new();
    }
    let mut head = vec!["ms, median (quartiles)".to_owned(), "bare calls".to_owned()];
    for cell in results.rows.iter().take(1).flat_map(|row| &row.sides) {
        head.push(cell.side.to_owned());
        head.push("added".to_owned());
    }
    let rows = results.rows.iter().map(|row| {
        let mut cells = vec![
            row.group.name().to_owned(),
            format!("{:.1}", row.floor.median),
        ];
        for cell in &row.sides {
            cells.push(format!("{:.1}", cell.whole.median));
            cells.push(cell.added.quartiles(1));
        }
        cells
    });
    table(&[head].into_iter().chain(rows).collect::<Vec<_>>())
}

/// Many pods.
fn many(results: &Results) -> String {
    let Some(pods) = results.held.first().map(|held| held.pods) else {
        return String::new();
    };
    let head = [
        "",
        "ten at a time, s",
        "bare calls = 1",
        "memory of a pod, MB",
    ];
    let rows = results.crowds.iter().map(|crowd| {
        let held = results.held.iter().find(|held| held.side == crowd.side);
        let memory = held.map(|held| {
            let all = [held.with - held.before.min(held.with), held.beside];
            let [daemon, beside] = all.map(|bytes| bytes as f64 / 1e6 / pods as f64);
            format!(
                "{:.2} (daemon {daemon:.2}, beside it {beside:.2})",
                held.per_pod() / 1e6
            )
        });
        vec![
            crowd.side.to_owned(),
            format!("{:.1}", crowd.seconds.median),
            format!("{:.2}", crowd.factor.median),
            memory.unwrap_or_else(none),
        ]
    });
    let head = [head.map(str::to_owned).into()];
    table(&head.into_iter().chain(rows).collect::<Vec<_>>())
}

/// Throughput of sessions.
fn sessions(results: &Results) -> String {
    let Sessions { rates, peaks } = &results.sessions;
    if peaks.is_empty() {
        return String::new();
    }
    let mut head = vec![format!(
        "{} MB, MB/s, median (quartiles)",
        LENGTH / 1_000_000
    )];
    for peak in peaks {
        head.push(peak.side.to_owned());
    }
    head.push(format!("of {CONTAINERD}'s"));
    let mut rows = vec![head];
    for kind in Kind::ALL {
        let found = |side| {
            rates
                .iter()
                .find(|rate| (rate.kind, rate.side) == (kind, side))
        };
        let mut cells = vec![kind.name().to_owned()];
        for peak in peaks {
            let rate = found(peak.side).map(|rate| rate.rate.quartiles(0));
            cells.push(rate.unwrap_or_else(none));
        }
        let of = found(RUNC).and_then(|rate| rate.of);
        cells.push(of.map_or_else(none, |of| of.quartiles(2)));
        rows.push(cells);
    }
    let mut cells = vec!["peak memory of the daemon, MB (before)".to_owned()];
    for peak in peaks {
        let [most, before] = [peak.peak, peak.before].map(|bytes| bytes as f64 / 1e6);
        cells.push(format!("{most:.1} ({before:.1})"));
    }
    cells.push(none());
    rows.push(cells);
    table(&rows)
}

/// A cell without a value.
fn none() -> String {
    "-".to_owned()
}

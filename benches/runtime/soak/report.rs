//! The results as a table.

use criscope_testkit::bench::report::{Report, table};

use super::samples::Reading;
use super::{Results, budget};

/// The lines around the report in the documentation.
const MARKERS: [&str; 2] = [
    "<!-- results of a soak: written by the benchmark -->\n",
    "<!-- end of the results of a soak -->\n",
];
/// Minutes of the rows, besides the last one.
const ROWS: [usize; 9] = [1, 5, 10, 15, 20, 30, 40, 50, 60];

/// The whole report.
pub(crate) fn report(results: &Results) -> Report<'_, Results> {
    Report {
        results,
        budgets: budget::judge(results),
        parts: vec![readings(results), done(results)],
        facts: &results.facts,
        markers: MARKERS,
    }
}

fn readings(results: &Results) -> String {
    let mut head = vec!["MB / anonymous / threads / descriptors".to_owned()];
    head.extend(results.sides.iter().map(|side| side.name.to_owned()));
    let row = |name: String, of: &dyn Fn(&super::Side) -> Option<Reading>| {
        let cells = results.sides.iter().map(|side| match of(side) {
            Some(Reading {
                memory,
                threads,
                descriptors,
            }) => format!(
                "{:.1} / {:.1} / {threads} / {descriptors}",
                memory.total as f64 / 1e6,
                memory.anonymous as f64 / 1e6
            ),
            None => "-".to_owned(),
        });
        [name].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let mut rows = vec![head, row("before".to_owned(), &|side| Some(side.before))];
    let minutes = results.sides.first().map_or(0, |side| side.minutes.len());
    for minute in ROWS.into_iter().filter(|&minute| minute <= minutes) {
        rows.push(row(format!("minute {minute}"), &|side| {
            side.minutes.get(minute - 1).copied()
        }));
    }
    rows.push(row("after".to_owned(), &|side| Some(side.after)));
    table(&rows)
}

fn done(results: &Results) -> String {
    let counts = results.counts;
    let peaks = results.sides.iter();
    let peaks = peaks.map(|side| format!("{} {:.1} MB", side.name, side.peak as f64 / 1e6));
    format!(
        "{} pods, {} sessions, {} pulls. Peak of the resident memory: {}.\n",
        counts.pods,
        counts.sessions,
        counts.pulls,
        peaks.collect::<Vec<_>>().join(", ")
    )
}

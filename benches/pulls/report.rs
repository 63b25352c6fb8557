//! The results as tables.

use criscope_testkit::bench::report::{Report, table};

use crate::budget::judge;
use crate::daemons::CRISCOPE;
use crate::rounds::{Cell, Results};
use crate::stats::Spread;

/// The lines around the report in the documentation.
const MARKERS: [&str; 2] = [
    "<!-- results of pulls: written by the benchmark -->\n",
    "<!-- end of the results of pulls -->\n",
];

/// The whole report.
pub(crate) fn report(results: &Results) -> Report<'_, Results> {
    Report {
        results,
        budgets: judge(results),
        parts: vec![seconds(results), memory(results)],
        facts: &results.facts,
        markers: MARKERS,
    }
}

fn seconds(results: &Results) -> String {
    let mut head = vec!["s, median (quartiles)".to_owned()];
    let sides = results.rows.iter().take(1).flat_map(|row| &row.sides);
    for cell in sides {
        head.push(cell.side.to_owned());
        if cell.side != CRISCOPE {
            head.push("criscope's part".to_owned());
        }
    }
    let mut rows = vec![head];
    for row in &results.rows {
        let slow = if row.is_slow { ", slow registry" } else { "" };
        let mut cells = vec![format!("{}{slow}", row.image)];
        for cell in &row.sides {
            cells.push(Spread::of(cell.seconds.iter().copied()).quartiles(2));
            if cell.side != CRISCOPE {
                let ratio = row.ratio(CRISCOPE, cell.side);
                cells.push(ratio.map_or_else(none, |ratio| format!("{ratio:.2}")));
            }
        }
        rows.push(cells);
    }
    rows.extend(again(results));
    table(&rows)
}

/// All pulls of images that were there, in milliseconds.
fn again(results: &Results) -> Option<Vec<String>> {
    let first = results.rows.first()?;
    let mut cells = vec!["again, the image is there, ms".to_owned()];
    for (at, side) in first.sides.iter().enumerate() {
        let of_side = |cells: &Vec<Cell>| cells[at].again.clone();
        let all = results.rows.iter().flat_map(|row| of_side(&row.sides));
        let all: Vec<f64> = all.map(|seconds| seconds * 1e3).collect();
        cells.push(if all.is_empty() {
            none()
        } else {
            Spread::of(all).quartiles(1)
        });
        if side.side != CRISCOPE {
            cells.push(none());
        }
    }
    Some(cells)
}

fn memory(results: &Results) -> String {
    let head = ["MB", "before", "after", "after, anonymous", "peak"]
        .map(str::to_owned)
        .to_vec();
    let rows = results.memory.iter().map(|it| {
        let sizes = [it.before.total, it.after.total, it.after.anonymous, it.peak];
        let sizes = sizes.map(|bytes| format!("{:.1}", bytes as f64 / 1e6));
        [it.side.to_owned()].into_iter().chain(sizes).collect()
    });
    table(&[head].into_iter().chain(rows).collect::<Vec<_>>())
}

/// A cell without a value.
fn none() -> String {
    "-".to_owned()
}

//! The results as tables, as JSON, and in the documentation.

use std::path::Path;

use serde::Serialize;

use crate::budget::{Budget, judge};
use crate::crowd::Crowd;
use crate::error::Result;
use crate::held::Held;
use crate::place;
use crate::rounds::Row;
use crate::sessions::{Kind, LENGTH, Sessions};
use crate::stats::Spread;

/// What the report stands between in the documentation.
const MARKERS: [&str; 2] = [
    "<!-- results of the runtime: written by the benchmark -->\n",
    "<!-- end of the results of the runtime -->\n",
];

/// The names of the sides.
pub(crate) const CONTAINERD: &str = "containerd, runc";
/// As above.
pub(crate) const RUNC: &str = "criscope, runc";
/// As above.
pub(crate) const CRUN: &str = "criscope, crun";

/// Everything that was measured.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) rows: Vec<Row>,
    pub(crate) crowds: Vec<Crowd>,
    pub(crate) held: Vec<Held>,
    pub(crate) sessions: Sessions,
}

impl Results {
    /// The whole report in Markdown that is also fit for a terminal.
    pub(crate) fn markdown(&self) -> String {
        let verdicts = judge(self);
        let verdicts = verdicts.iter().map(|budget| format!("- {budget}\n"));
        let facts = self.facts.iter();
        let facts = facts.map(|(name, value)| format!("- {name}: {value}\n"));
        let parts = [
            self.calls(),
            self.many(),
            self.sessions(),
            verdicts.collect(),
            facts.collect(),
        ];
        let parts = parts.iter().filter(|part| !part.is_empty());
        parts.map(String::as_str).collect::<Vec<_>>().join("\n")
    }

    /// Whether every budget was kept.
    pub(crate) fn within_budget(&self) -> bool {
        judge(self).iter().all(Budget::met)
    }

    /// Writes everything to `file`.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write_json(&self, file: &Path) -> Result<()> {
        place::write_json(file, self, &judge(self))
    }

    /// Puts the report between the markers in `file`.
    ///
    /// # Errors
    /// When the file or its markers are not there, or it cannot be written.
    pub(crate) fn write_docs(&self, file: &Path) -> Result<()> {
        place::write_between(MARKERS, &self.markdown(), file)
    }

    /// One pod after the other.
    fn calls(&self) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let mut head = vec!["ms, median (quartiles)".to_owned(), "bare calls".to_owned()];
        for cell in self.rows.iter().take(1).flat_map(|row| &row.sides) {
            head.push(cell.side.to_owned());
            head.push("added".to_owned());
        }
        let rows = self.rows.iter().map(|row| {
            let mut cells = vec![row.group.name().to_owned(), median(&row.floor)];
            for cell in &row.sides {
                cells.push(median(&cell.whole));
                cells.push(quartiles(&cell.added));
            }
            cells
        });
        table(&[head].into_iter().chain(rows).collect::<Vec<_>>())
    }

    /// Many pods.
    fn many(&self) -> String {
        let Some(pods) = self.held.first().map(|held| held.pods) else {
            return String::new();
        };
        let head = [
            "",
            "ten at a time, s",
            "bare calls = 1",
            "memory of a pod, MB",
        ];
        let rows = self.crowds.iter().map(|crowd| {
            let held = self.held.iter().find(|held| held.side == crowd.side);
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

    /// What passes through sessions.
    fn sessions(&self) -> String {
        let Sessions { rates, peaks } = &self.sessions;
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
                let rate = found(peak.side).map(|rate| whole_quartiles(&rate.rate));
                cells.push(rate.unwrap_or_else(none));
            }
            let of = found(RUNC).and_then(|rate| rate.of);
            cells.push(of.map_or_else(none, |of| {
                let Spread { low, median, high } = of;
                format!("{median:.2} ({low:.2} to {high:.2})")
            }));
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
}

/// In a cell that says nothing.
fn none() -> String {
    "-".to_owned()
}

fn whole_quartiles(spread: &Spread) -> String {
    let Spread { low, median, high } = spread;
    format!("{median:.0} ({low:.0} to {high:.0})")
}

fn median(spread: &Spread) -> String {
    format!("{:.1}", spread.median)
}

fn quartiles(spread: &Spread) -> String {
    let Spread { low, median, high } = spread;
    format!("{median:.1} ({low:.1} to {high:.1})")
}

/// Markdown, with columns of even width.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max();
    let widths: Vec<usize> = (0..columns).filter_map(width).collect();
    let mut text = String::new();
    for (number, row) in rows.iter().enumerate() {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            text.push_str(&match column {
                0 => format!("| {cell:width$} "),
                _ => format!("| {cell:>width$} "),
            });
        }
        text.push_str("|\n");
        if number == 0 {
            for (column, &width) in widths.iter().enumerate() {
                text.push_str(&match column {
                    0 => format!("|{}", "-".repeat(width + 2)),
                    _ => format!("|{}:", "-".repeat(width + 1)),
                });
            }
            text.push_str("|\n");
        }
    }
    text
}

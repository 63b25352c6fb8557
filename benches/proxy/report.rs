//! The results as a table of paths, as JSON, and in the documentation.

use std::path::Path;

use serde::Serialize;

use crate::budget::{Budget, judge};
use crate::compare::{Latency, ListRow, Throughput};
use crate::error::Result;
use crate::facts::Facts;
use crate::memory::Memory;
use crate::paths::Kind;
use crate::place;

/// What the report stands between in the documentation.
const MARKERS: [&str; 2] = [
    "<!-- results: written by the benchmark -->\n",
    "<!-- end of results -->\n",
];

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Results {
    pub(crate) facts: Facts,
    pub(crate) latency: Vec<Latency>,
    pub(crate) throughput: Vec<Throughput>,
    pub(crate) long_list: Vec<ListRow>,
    /// Of criscope.
    pub(crate) memory: Option<Memory>,
    /// Of criscope: how many spans its collector got, and how many series a scrape had, so that "everything on" is
    /// known to be true.
    pub(crate) telemetry: Option<Telemetry>,
}

/// Signs of life of criscope's telemetry.
#[derive(Debug, Serialize)]
pub(crate) struct Telemetry {
    pub(crate) spans: u64,
    pub(crate) series: usize,
}

impl Results {
    /// The whole report in Markdown that is also fit for a terminal.
    pub(crate) fn markdown(&self) -> String {
        let verdicts = judge(self)
            .iter()
            .map(|budget| format!("- {budget}\n"))
            .collect();
        let parts = [
            self.table(),
            verdicts,
            self.memory_line(),
            self.facts.markdown(),
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

    fn table(&self) -> String {
        let paths: Vec<Kind> = self
            .latency
            .first()
            .map(|latency| latency.rows.iter().map(|row| row.path).collect())
            .unwrap_or_default();
        let mut table = Table::new(&paths);
        for latency in &self.latency {
            table.latency(latency);
        }
        for throughput in &self.throughput {
            table.throughput(throughput);
        }
        table.long_list(&self.long_list);
        table.render()
    }

    fn memory_line(&self) -> String {
        let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
        self.memory.as_ref().map_or_else(String::new, |memory| {
            format!(
                "Memory of criscope: idle {}; while a list of 10 MB passes {}, to a slow reader {}; started in front of \
                 that list {}; after each tenth of the many calls {}.\n",
                mb(memory.idle),
                mb(memory.list_peak),
                mb(memory.slow_list_peak),
                mb(memory.start_peak),
                memory
                    .during_calls
                    .iter()
                    .map(|sample| mb(sample.rss))
                    .collect::<Vec<_>>()
                    .join(", "),
            )
        })
    }
}

/// Rows of text under a column for each path.
struct Table {
    paths: Vec<Kind>,
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(paths: &[Kind]) -> Self {
        let head = ["".to_owned()].into_iter();
        let head = head.chain(paths.iter().map(|path| path.name().to_owned()));
        Self {
            paths: paths.to_vec(),
            rows: vec![head.collect()],
        }
    }

    /// A row of what `cell` gives for each path.
    fn row(&mut self, name: String, cell: impl Fn(Kind) -> Option<String>) {
        let cells = self
            .paths
            .iter()
            .map(|&path| cell(path).unwrap_or_else(|| "-".to_owned()));
        self.rows.push([name].into_iter().chain(cells).collect());
    }

    fn latency(&mut self, latency: &Latency) {
        let method = latency.method;
        let find = |path| latency.rows.iter().find(|row| row.path == path);
        let added = |path| find(path).map(|row| row.added.median);
        self.row(format!("{method}, p50 / p90 / p99 in us"), |path| {
            let row = find(path)?;
            Some(format!("{:.0} / {:.0} / {:.0}", row.p50, row.p90, row.p99))
        });
        self.row(format!("{method}, added p50 in us (quartiles)"), |path| {
            let added = find(path)?.added;
            let (low, median, high) = (added.low, added.median, added.high);
            (path != Kind::Direct).then(|| format!("{median:.0} ({low:.0} to {high:.0})"))
        });
        for base in [Kind::Socat, Kind::Nginx] {
            self.row(
                format!("{method}, added p50, {} = 1", base.name()),
                |path| {
                    let ratio = added(path)? / added(base)?;
                    (path != Kind::Direct).then(|| format!("{ratio:.2}"))
                },
            );
        }
    }

    fn throughput(&mut self, throughput: &Throughput) {
        let find = |path| throughput.rows.iter().find(|row| row.path == path);
        let shape = throughput.shape.name();
        self.row(format!("{shape}, calls/s"), |path| {
            Some(format!("{:.0}", find(path)?.calls_per_second))
        });
        self.row(format!("{shape}, of direct (quartiles)"), |path| {
            let share = find(path)?.share;
            let percent = [share.median, share.low, share.high].map(|share| share * 100.0);
            let [median, low, high] = percent;
            (path != Kind::Direct).then(|| format!("{median:.0} % ({low:.0} to {high:.0})"))
        });
    }

    fn long_list(&mut self, rows: &[ListRow]) {
        let find = |path| rows.iter().find(|row| row.path == path);
        self.row("list of 10 MB, ms".to_owned(), |path| {
            Some(format!("{:.1}", find(path)?.milliseconds))
        });
        self.row("list of 10 MB, direct = 1".to_owned(), |path| {
            Some(format!("{:.2}", find(path)?.factor.median))
        });
    }

    /// Markdown, with columns of even width.
    fn render(&self) -> String {
        let widths: Vec<usize> = (0..=self.paths.len())
            .map(|column| self.rows.iter().map(|row| row[column].len()).max())
            .map(Option::unwrap_or_default)
            .collect();
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                let cell = match column {
                    0 => format!("| {cell:width$} "),
                    _ => format!("| {cell:>width$} "),
                };
                text.push_str(&cell);
            }
            text.push_str("|\n");
            if number == 0 {
                for (column, &width) in widths.iter().enumerate() {
                    let (dashes, end) = if column == 0 {
                        (width + 2, "")
                    } else {
                        (width + 1, ":")
                    };
                    text.push_str(&format!("|{}{end}", "-".repeat(dashes)));
                }
                text.push_str("|\n");
            }
        }
        text
    }
}

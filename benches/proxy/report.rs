//! The results as a table of paths.

use criscope_testkit::bench::report::{Report, table as table_of};

use crate::budget::judge;
use crate::compare::{Latency, ListRow, Throughput};
use crate::paths::Kind;
use crate::results::Results;

/// The lines around the report in the documentation.
const MARKERS: [&str; 2] = [
    "<!-- results: written by the benchmark -->\n",
    "<!-- end of results -->\n",
];

/// The whole report.
pub(crate) fn report(results: &Results) -> Report<'_, Results> {
    Report {
        results,
        budgets: judge(results),
        parts: vec![tables(results), memory_line(results)],
        facts: &results.facts.0,
        markers: MARKERS,
    }
}

fn tables(results: &Results) -> String {
    let paths: Vec<Kind> = results
        .latency
        .first()
        .map(|latency| latency.rows.iter().map(|row| row.path).collect())
        .unwrap_or_default();
    let mut table = Table::new(&paths);
    for latency in &results.latency {
        table.latency(latency);
    }
    for throughput in &results.throughput {
        table.throughput(throughput);
    }
    table.long_list(&results.long_list);
    table_of(&table.rows)
}

fn memory_line(results: &Results) -> String {
    let mb = |bytes: u64| format!("{:.1} MB", bytes as f64 / 1e6);
    results.memory.as_ref().map_or_else(String::new, |memory| {
        format!(
            "Memory of criscope: idle {}, {} of it anonymous; while a list of 10 MB passes {}, to a slow reader {}; started in front of \
             that list {}; after each tenth of the many calls {}.\n",
            mb(memory.idle.rss),
            mb(memory.idle.anonymous),
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

    /// A row with the result of `cell` for each path.
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
            (path != Kind::Direct).then(|| added.quartiles(0))
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
}

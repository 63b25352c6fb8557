//! The results as tables.

use criscope_testkit::bench::report::table;

use super::{Idle, Report, Results, budget};
use crate::cri::Poll;
use crate::crowd::BARE;

/// The lines around the report in the documentation.
const MARKERS: [&str; 2] = [
    "<!-- results of a full node: written by the benchmark -->\n",
    "<!-- end of the results of a full node -->\n",
];

/// The whole report.
pub(crate) fn report(results: &Results) -> Report<'_, Results> {
    Report {
        results,
        budgets: budget::judge(results),
        parts: vec![lists(results), rest(results)],
        facts: &results.facts,
        markers: MARKERS,
    }
}

fn lists(results: &Results) -> String {
    let mut head = vec!["ms, median (quartiles)".to_owned()];
    let sides = results.sides.iter();
    head.extend(sides.clone().flat_map(|side| {
        let of = |lists: &super::Lists| format!("{}, {} pods", side.name, lists.pods);
        side.lists.iter().map(of)
    }));
    let rows = Poll::LISTS.into_iter().enumerate().map(|(at, poll)| {
        let mut row = vec![poll.name()];
        let all = sides.clone().flat_map(|side| &side.lists);
        row.extend(all.map(|lists| lists.took[at].quartiles(1)));
        row
    });
    table(&[head].into_iter().chain(rows).collect::<Vec<_>>())
}

fn rest(results: &Results) -> String {
    let plan = results.plan;
    let head = vec![
        String::new(),
        format!("starts/s, {} pods", plan.few),
        format!("starts/s, {} pods", plan.many),
        format!("restart with {} pods, s", plan.many),
        format!("memory with {} pods, MB", plan.many),
        format!("{} idle pods, ms of processor time a minute", plan.usual),
    ];
    let time = |idle: Idle| {
        format!(
            "{:.0} (daemon {:.0})",
            idle.daemon + idle.beside,
            idle.daemon
        )
    };
    let none = || "-".to_owned();
    let rate = |rate: f64| format!("{rate:.1}");
    let [few, many] = results.bare.map(rate);
    let mut rows = vec![
        head,
        vec![
            format!("{BARE}, whole lives"),
            few,
            many,
            none(),
            none(),
            none(),
        ],
    ];
    for side in &results.sides {
        let [few, many] = side.starts.map(rate);
        rows.push(vec![
            side.name.to_owned(),
            few,
            many,
            format!("{:.2}", side.restart),
            format!("{:.1}", side.memory as f64 / 1e6),
            time(side.idle),
        ]);
        if let Some(proxy) = side.proxy {
            let name = format!("criscope in front of {}", side.name);
            let of = time(proxy);
            rows.push(vec![name, none(), none(), none(), none(), of]);
        }
    }
    table(&rows)
}

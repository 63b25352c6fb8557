//! Budgets of a soak.

use criscope_testkit::bench::budget::{Budget, Limit};

use super::samples::Reading;
use super::{Results, Side};
use crate::sides::PROXY;

/// The minutes after which nothing grows, and those that are compared.
const WARM: usize = 10;

/// All budgets that can be checked with these results.
pub(super) fn judge(results: &Results) -> Vec<Budget> {
    results.sides.iter().flat_map(of).collect()
}

fn of(side: &Side) -> Vec<Budget> {
    let name = side.name;
    let after = side.after.memory;
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let most = |what: &str, measured: f64, limit: f64, unit| {
        let what = format!("{name}: {what}");
        Budget::new(what, measured, Limit::AtMost(limit), unit).digits(1)
    };
    // Layers are unpacked by the runtime only.
    let peak = if name == PROXY { 30.0 } else { 80.0 };
    let mut all = vec![
        most("memory after it", megabytes(after.total), 20.0, " MB"),
        most(
            "anonymous memory after it",
            megabytes(after.anonymous),
            10.0,
            " MB",
        )
        .aim(Some(8.0)),
        most("peak memory", megabytes(side.peak), peak, " MB"),
    ];
    if let Some([early, late]) = warm(&side.minutes) {
        let growth = |of: fn(&Reading) -> usize| of(&late) as f64 - of(&early) as f64;
        let memory = megabytes(late.memory.total) - megabytes(early.memory.total);
        all.extend([
            most("growth of memory", memory, 1.0, " MB"),
            most("growth of threads", growth(|it| it.threads), 2.0, ""),
            most(
                "growth of descriptors",
                growth(|it| it.descriptors),
                2.0,
                "",
            ),
        ]);
    }
    all
}

/// The ten minutes after the first ten, and the last ten.
fn warm(minutes: &[Reading]) -> Option<[Reading; 2]> {
    let (_, rest) = minutes.split_at_checked(WARM)?;
    let (early, late) = (rest.first_chunk::<WARM>()?, rest.last_chunk::<WARM>()?);
    (rest.len() >= 2 * WARM).then(|| [Reading::median(early), Reading::median(late)])
}

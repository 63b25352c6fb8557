//! Budgets of pulls.

use criscope_testkit::bench::budget::{Budget, Limit};

use crate::daemons::{CRISCOPE, OTHER};
use crate::floors::{CURL_TAR, CURL_TAR_HASHED};
use crate::rounds::Results;

/// All budgets that can be checked with these results.
pub(crate) fn judge(results: &Results) -> Vec<Budget> {
    let mut all = Vec::new();
    for row in &results.rows {
        let what = |of: &str| {
            let slow = if row.is_slow { ", slow registry" } else { "" };
            format!("{}{slow}, of {of}", row.image)
        };
        let peers = results.memory.iter().map(|memory| memory.side);
        let ratios = peers
            .filter(|side| ![CRISCOPE, OTHER].contains(side))
            .filter_map(|side| row.ratio(CRISCOPE, side));
        if let Some(most) = ratios.max_by(f64::total_cmp) {
            let what = what("the faster runtime's");
            all.push(Budget::new(what, most, Limit::AtMost(1.0), "x"));
        }
        for (floor, name) in [
            (CURL_TAR, "curl and tar"),
            (CURL_TAR_HASHED, "curl and tar with digests"),
        ] {
            if let Some(ratio) = row.ratio(CRISCOPE, floor) {
                all.push(Budget::new(what(name), ratio, Limit::AtMost(1.2), "x"));
            }
        }
    }
    let ours = results.memory.iter().find(|it| it.side == CRISCOPE);
    if let Some(ours) = ours {
        let most = |what: &str, bytes: u64, limit| {
            let megabytes = bytes as f64 / 1e6;
            Budget::new(what, megabytes, Limit::AtMost(limit), " MB").digits(1)
        };
        let after = ours.after;
        all.extend([
            most("memory after all pulls", after.total, 20.0),
            most("anonymous memory after all pulls", after.anonymous, 8.0),
            most("peak memory", ours.peak, 80.0),
        ]);
    }
    all
}

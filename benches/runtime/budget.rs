//! Budgets of the built-in runtime.

use criscope_testkit::bench::budget::{Budget, Limit};

use crate::results::Results;
use crate::rounds::{Group, Row};
use crate::sessions::Kind;
use crate::sides::{CONTAINERD, CRUN, RUNC};

/// All budgets that can be checked with these results.
pub(crate) fn judge(results: &Results) -> Vec<Budget> {
    let mut all = Vec::new();
    let mut add = |what: String, measured: Option<f64>, limit: Limit, unit| {
        all.extend(measured.map(|measured| Budget::new(what, measured, limit, unit)));
    };
    let added = |row: &Row| {
        let of = |name| Some(row.side(name).ok()?.added.median);
        Some(of(RUNC)? / of(CONTAINERD)?)
    };
    let whole = |row: &Row, name| {
        let of = |name| Some(row.side(name).ok()?.whole.median);
        Some(of(name)? / of(CONTAINERD)?)
    };
    for row in results.rows.iter().filter(|row| row.group != Group::Remove) {
        let what = format!("{}, added, of what containerd adds", row.group.name());
        add(what, added(row), Limit::AtMost(0.25), "x");
    }
    for row in &results.rows {
        let name = row.group.name();
        match row.group {
            Group::Run => {
                let what = format!("{name} as a whole, of containerd's");
                add(what, whole(row, RUNC), Limit::AtMost(0.4), "x");
            }
            Group::Start => {
                let what = format!("{name} with crun, of containerd's with runc");
                add(what, whole(row, CRUN), Limit::AtMost(0.4), "x");
            }
            Group::Exec | Group::Remove | Group::End => {}
        }
    }
    let crowd = |name| results.crowds.iter().find(|crowd| crowd.side == name);
    let factor = crowd(RUNC).map(|crowd| crowd.factor.median);
    let what = "pods ten at a time, of what the bare calls take".to_owned();
    add(what, factor, Limit::AtMost(1.3), "x");
    let rate = crowd(RUNC)
        .zip(crowd(CONTAINERD))
        .map(|(ours, theirs)| theirs.seconds.median / ours.seconds.median);
    let what = "rate of pods ten at a time, of containerd's".to_owned();
    add(what, rate, Limit::AtLeast(1.8), "x");
    let held = results.held.iter().find(|held| held.side == RUNC);
    let per_pod = held.map(|held| held.per_pod() / 1e6);
    add(
        "memory of a pod".to_owned(),
        per_pod,
        Limit::AtMost(0.5),
        " MB",
    );
    let sessions = &results.sessions;
    for rate in sessions.rates.iter().filter(|rate| rate.side == RUNC) {
        // There is no comparison for WebSocket.
        if rate.kind != Kind::ExecWebSocket {
            let what = format!("rate of {}, of containerd's", rate.kind.name());
            let of = rate.of.map(|of| of.median);
            add(what, of, Limit::AtLeast(0.9), "x");
        }
    }
    let ours = sessions.peaks.iter().find(|peak| peak.side == RUNC);
    let added = ours.map(|peak| peak.peak.saturating_sub(peak.before) as f64 / 1e6);
    let what = "memory that sessions add to the daemon, at their peak".to_owned();
    add(what, added, Limit::AtMost(10.0), " MB");
    all
}

//! Budgets of a full node.

use criscope_testkit::bench::budget::{Budget, Limit};

use super::Results;
use crate::cri::Poll;
use crate::sides::{CONTAINERD, RUNC};

/// All budgets that can be checked with these results.
pub(super) fn judge(results: &Results) -> Vec<Budget> {
    let side = |name| results.sides.iter().find(|side| side.name == name);
    let Some(ours) = side(RUNC) else {
        return Vec::new();
    };
    let theirs = side(CONTAINERD);
    let [usual, many] = &ours.lists;
    let mut all = Vec::new();
    for (at, poll) in Poll::LISTS.into_iter().enumerate() {
        let name = poll.name();
        if let Some(theirs) = theirs {
            let ratio = many.took[at].median / theirs.lists[1].took[at].median;
            let what = format!("{name} of {} pods, of containerd's", many.pods);
            // Both answer the others from memory, and gRPC and the client take their part.
            let most = if poll.reads_cgroups() { 1.0 / 3.0 } else { 1.0 };
            all.push(Budget::new(what, ratio, Limit::AtMost(most), "x"));
        }
        let of_one = |lists: &super::Lists| lists.took[at].median / lists.pods as f64;
        let what = format!(
            "{name}, time of a pod with {}, of that with {}",
            many.pods, usual.pods
        );
        let ratio = of_one(many) / of_one(usual);
        all.push(Budget::new(what, ratio, Limit::AtMost(1.3), "x"));
    }
    let left = |[few, full]: [f64; 2]| full / few;
    let what = format!(
        "share of the starts in a second that is left with {} pods, of that of the bare calls",
        many.pods
    );
    let share = left(ours.starts) / left(results.bare);
    all.push(Budget::new(what, share, Limit::AtLeast(0.8), "x"));
    let what = format!("restart with {} pods", many.pods);
    all.push(Budget::new(what, ours.restart, Limit::AtMost(2.0), " s"));
    if let Some(theirs) = theirs {
        let whole = |idle: super::Idle| idle.daemon + idle.beside;
        let what = format!(
            "processor time with {} idle pods, of containerd's",
            usual.pods
        );
        let ratio = whole(ours.idle) / whole(theirs.idle);
        all.push(Budget::new(what, ratio, Limit::AtMost(0.5), "x"));
        if let Some(proxy) = theirs.proxy {
            let what = "processor time of a proxy in front of containerd, of containerd's";
            let ratio = whole(proxy) / whole(theirs.idle);
            all.push(Budget::new(what, ratio, Limit::AtMost(0.25), "x"));
        }
    }
    all
}

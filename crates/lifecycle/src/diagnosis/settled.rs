//! Loops that are over: a container that ended or was killed again and again, and runs for long now.

use std::time::Duration;

/// The kubelet's first back-off of a container (`initialCrashLoopBackOff` in `pkg/kubelet/kubelet.go`, 1.36).
const FIRST_BACK_OFF: Duration = Duration::from_secs(10);
/// The kubelet's longest back-off of a container (`MaxContainerBackOff` in `pkg/kubelet/apis/config`, 1.36).
const LONGEST_BACK_OFF: Duration = Duration::from_secs(5 * 60);
/// The kubelet begins its back-off anew this long after the last end (twice the longest back-off, `hasExpired` in
/// `client-go/util/flowcontrol/backoff.go`).
pub(super) const BACK_OFF_FORGOTTEN_AFTER: Duration =
    Duration::from_secs(2 * LONGEST_BACK_OFF.as_secs());

/// Returns whether a run that goes on has ended the loop before it: it has lasted longer than the longest run of the loop, with a
/// quarter for chance, and longer than the kubelet's first back-off. A loop whose runs are short is then in back-off for longer than it
/// is up, and a container that is up for longer than ever before is not told as crashing.
pub(super) fn has_settled(run: Duration, longest: Duration) -> bool {
    let longer = longest + longest / 4;
    run >= FIRST_BACK_OFF.max(longer).min(BACK_OFF_FORGOTTEN_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_run_has_to_outlast_the_runs_before_and_the_first_back_off() {
        for (longest, needed) in [
            (2, 10),
            (8, 10),
            (12, 15),
            // A run of the same length may be the next of the loop.
            (40, 50),
            (400, 500),
            // Then the kubelet itself has forgotten the loop.
            (560, 600),
        ] {
            let longest = seconds(longest);
            let just = seconds(needed) - Duration::from_millis(1);
            assert!(!has_settled(just, longest), "{needed}");
            assert!(has_settled(seconds(needed), longest), "{needed}");
        }
    }
}

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

/// Returns whether a run that goes on has ended the loop before it: it has lasted longer than twice the longest run of the loop, and
/// longer than the back-off after its end would be. `wait`: the back-off before this run.
pub(super) fn has_settled(run: Duration, longest: Duration, wait: Duration) -> bool {
    let next_back_off = (2 * wait).clamp(FIRST_BACK_OFF, LONGEST_BACK_OFF);
    run >= next_back_off.max(2 * longest).min(BACK_OFF_FORGOTTEN_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_run_has_to_outlast_the_runs_and_the_back_off() {
        for (longest, wait, needed) in [
            // The first restart comes at once, the second after 10 s.
            (2, 1, 10),
            (2, 10, 20),
            (2, 20, 40),
            (2, 160, 300),
            (2, 300, 300),
            // A run of the same length may be the next of the loop.
            (40, 20, 80),
            (290, 300, 580),
            // Then the kubelet itself has forgotten the loop.
            (400, 300, 600),
        ] {
            let [longest, wait] = [seconds(longest), seconds(wait)];
            let just = seconds(needed) - Duration::from_millis(1);
            assert!(!has_settled(just, longest, wait), "{needed}");
            assert!(has_settled(seconds(needed), longest, wait), "{needed}");
        }
    }
}

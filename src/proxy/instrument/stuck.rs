//! Reports calls that use up their deadline, before the caller gives up: in the log, the metrics and the pages, and at the
//! end in a dump of the flight recorder.
//!
//! A call is reported when it has used 50, 90 and 100 % of its caller's deadline. The kubelet allows two minutes for most
//! calls and four for RunPodSandbox, so the first report precedes the kubelet's PLEG, which declares the node unready after
//! three. A call without a deadline is measured against the limit [`allowed`] for its method, and reported again at each
//! doubling of that, for as long as it lasts. Watches stay open for as long as their caller likes and are never reported.
//!
//! | without a deadline | counts as stuck at | because |
//! |---|---|---|
//! | polls; Exec, Attach and PortForward, which only return a URL | 10 s | the kubelet polls every second and waits for the response |
//! | mutating calls | 60 s | |
//! | ExecSync | 2 min | a lifecycle hook may be slow |
//! | PullImage, checkpoints, RestorePod | 5 min | gigabytes are moved; the kubelet sets no deadline for a pull |
//!
//! The request path is not involved. The calls in flight are checked every [`FIRST_CHECK_AFTER`], and in between when a known one
//! is due. A report is late only for a call that is due before its first check, when a share of its deadline is shorter
//! than the period.

use std::sync::Arc;
use std::time::Duration;

use super::signals::{CallSignals, StuckCallReport};
use super::{CallObserver, InFlightCalls};
use crate::call::Call;
use crate::cri::Method;
use crate::cri::method::Class;

/// How long a call may be in flight before it is first checked.
pub const FIRST_CHECK_AFTER: Duration = Duration::from_millis(200);

/// The caller's clock starts before ours, by the latency of the request. A call that is checked at its deadline has mostly
/// ended, so a deadline counts as used up this much early, or by a twentieth.
const DEADLINE_LEAD: Duration = Duration::from_millis(20);

/// The first shares that are reported, in percent.
const DEADLINE_SHARES_PERCENT: [u32; 3] = [50, 90, 100];

/// How long a call of this method may take without a deadline; `None` for no limit. See the table in the module
/// documentation.
pub const fn allowed(method: Method) -> Option<Duration> {
    let seconds = match (method, method.class()) {
        (_, Class::Watch) => return None,
        (_, Class::Poll) | (Method::Exec | Method::Attach | Method::PortForward, _) => 10,
        (Method::ExecSync, _) => 120,
        (Method::PullImage | Method::RestorePod, _) => 300,
        (method, _) if method.checkpoints() => 300,
        (_, Class::Mutating) => 60,
    };
    Some(Duration::from_secs(seconds))
}

/// Checks the calls in flight.
#[derive(Clone, Debug)]
pub struct StuckCallWatch {
    /// The calls.
    pub in_flight: Arc<InFlightCalls>,
    /// Log and metrics.
    pub signals: Arc<CallSignals>,
    /// Knows the runtime's activity, and receives calls with used-up deadlines.
    pub observer: Arc<dyn CallObserver>,
}

impl StuckCallWatch {
    /// Checks until dropped.
    pub async fn run(self) {
        loop {
            let next = self.look();
            tokio::time::sleep(next).await;
        }
    }

    /// Reports the calls that are due, and returns the pause until the next check.
    fn look(&self) -> Duration {
        let mut next = FIRST_CHECK_AFTER;
        for call in self.in_flight.calls() {
            let age = call.age();
            if let Some(percent) = newly_reached(&call, age) {
                self.report(&call, percent);
            }
            if let Some(due) = next_due(&call) {
                next = next.min(due.saturating_sub(age));
            }
        }
        // Always yields to other tasks.
        next.max(Duration::from_millis(1))
    }

    fn report(&self, call: &Call, percent: u32) {
        let before = call.share_used();
        if !call.reaches(percent) {
            return;
        }
        let stuck = StuckCallReport {
            percent,
            is_first: before == 0,
            activity: self.observer.activity(call),
        };
        self.signals.stuck(call, &stuck);
        if percent >= 100 {
            self.observer.overdue(call);
        }
    }
}

/// The level after this one.
fn level_after(call: &Call, reported: u32) -> Option<u32> {
    let first = DEADLINE_SHARES_PERCENT
        .into_iter()
        .find(|level| *level > reported);
    match call.deadline {
        // A call past its deadline has ended soon after.
        Some(_) => first,
        None => first.or_else(|| reported.checked_mul(2)),
    }
}

/// The age at which a call is due for a level.
fn due(call: &Call, percent: u32) -> Option<Duration> {
    let whole = match call.deadline {
        Some(deadline) => deadline.saturating_sub(DEADLINE_LEAD.min(deadline / 20)),
        None => allowed(call.method)?,
    };
    match percent {
        100 => Some(whole),
        _ => call
            .deadline
            .unwrap_or(whole)
            .checked_mul(percent)
            .map(|d| d / 100),
    }
}

/// The age at which the next report is due.
fn next_due(call: &Call) -> Option<Duration> {
    if call.method.class() == Class::Watch {
        return None;
    }
    due(call, level_after(call, call.share_used())?)
}

/// The highest level that the call has reached and that was not yet reported.
fn newly_reached(call: &Call, age: Duration) -> Option<u32> {
    if age < next_due(call)? {
        return None;
    }
    let mut level = level_after(call, call.share_used())?;
    while let Some(higher) = level_after(call, level)
        && due(call, higher).is_some_and(|due| age >= due)
    {
        level = higher;
    }
    Some(level)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn call(method: Method, deadline: Option<Duration>) -> Call {
        let mut call = Call::example(method);
        call.deadline = deadline;
        call
    }

    /// The ages and levels of the reports, if the call is first checked at this age.
    fn reports(call: &Call, first_look: Duration, until: Duration) -> Vec<(Duration, u32)> {
        let mut reports = Vec::new();
        let mut age = first_look;
        while age <= until {
            if let Some(level) = newly_reached(call, age) {
                assert!(call.reaches(level), "reported once");
                reports.push((age, level));
            }
            let due = next_due(call).map_or(FIRST_CHECK_AFTER, |due| due.saturating_sub(age));
            age += due.clamp(Duration::from_millis(1), FIRST_CHECK_AFTER);
        }
        reports
    }

    #[test]
    fn a_short_deadline_is_reported_in_time() {
        for first in (0..200).step_by(7).map(Duration::from_millis) {
            let call = call(Method::StopContainer, Some(2 * SECOND));
            let millis = Duration::from_millis;
            let wanted = [(SECOND, 50), (millis(1800), 90), (millis(1980), 100)];
            assert_eq!(reports(&call, first, 5 * SECOND), wanted, "{first:?}");
            assert_eq!(call.share_used(), 100);
        }
    }

    #[test]
    fn an_overdue_call_is_reported_once() {
        let call = call(Method::StopContainer, Some(Duration::from_millis(100)));
        let first = Duration::from_millis(97);
        assert_eq!(reports(&call, first, SECOND), [(first, 100)]);
    }

    #[test]
    fn without_a_deadline_each_doubling_is_reported() {
        let secs = Duration::from_secs;
        let pull = call(Method::PullImage, None);
        let made = reports(&pull, Duration::ZERO, secs(2000));
        let wanted = [(150, 50), (270, 90), (300, 100), (600, 200), (1200, 400)];
        assert_eq!(made, wanted.map(|(at, level)| (secs(at), level)));
        // A month makes twenty reports; of several that are due, only the last is made.
        let poll = call(Method::ListContainers, None);
        assert_eq!(newly_reached(&poll, secs(30 * 86_400)), Some(100 << 17));
        poll.reaches(u32::MAX / 2 + 1);
        assert_eq!(next_due(&poll), None);
    }

    #[test]
    fn watches_are_never_stuck() {
        for deadline in [None, Some(Duration::ZERO)] {
            let watch = call(Method::GetContainerEvents, deadline);
            assert_eq!(reports(&watch, SECOND, 2 * SECOND), []);
        }
    }

    /// PLEG gives up after three minutes; the calls it waits for are reported well before.
    #[test]
    fn stuck_calls_are_reported_before_the_kubelet_gives_up() {
        for method in Method::ALL {
            let Some(allowed) = allowed(method) else {
                assert_eq!(method.class(), Class::Watch);
                continue;
            };
            assert!(allowed / 2 < 180 * SECOND, "{method}");
            if method.class() == Class::Poll {
                assert_eq!(allowed, 10 * SECOND, "{method}");
            }
        }
        let sandbox = call(Method::RunPodSandbox, Some(240 * SECOND));
        assert_eq!(next_due(&sandbox), Some(120 * SECOND));
    }
}

//! Faults that were injected on purpose: no headline leaves them out.

use super::cause::{Cause, Failure, How, InFlight, Progress, What};
use crate::lifecycle::episode_store::Episode;
use crate::lifecycle::process_scanner::WorkKind;

/// Adds to a cause that calls were held or failed on purpose, unless it says so itself.
pub(super) fn with<'a>(cause: Cause<'a>, episode: &'a Episode) -> Cause<'a> {
    let calls = || episode.calls.iter().filter(|call| call.fault.is_some());
    match calls().max_by_key(|call| call.fault.map(|fault| fault.held_ms())) {
        Some(call) if !says(&cause) => Cause::Injected {
            cause: Box::new(cause),
            call,
            more: calls().count() - 1,
        },
        _ => cause,
    }
}

/// Returns whether the sentence names the injected fault.
fn says(cause: &Cause<'_>) -> bool {
    let is_one = |work: &Progress<'_>| match work {
        Progress::Now(worker) | Progress::SoFar(worker) => worker.kind == WorkKind::Injected,
        Progress::Unseen { .. } => false,
    };
    match cause {
        Cause::InFlight(InFlight { work, .. }) => is_one(work),
        Cause::Failing(failure) | Cause::Recovered { failure, .. } => {
            let Failure { how, work, .. } = failure;
            let with_work = matches!(how, How::Late { .. } | How::Cancelled { .. });
            matches!(how, How::Injected) || with_work && is_one(work)
        }
        Cause::Slow(slow) => match &slow.what {
            What::Calls { worker, .. } => worker
                .as_ref()
                .is_some_and(|worker| worker.kind == WorkKind::Injected),
            _ => false,
        },
        Cause::Exited { then, .. } => says(then),
        Cause::Beside { cause, .. } => says(cause),
        _ => false,
    }
}

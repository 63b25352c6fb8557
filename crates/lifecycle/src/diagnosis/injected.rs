//! Faults that were injected on purpose: no headline leaves them out.

use super::cause::{CallInFlight, Cause, FailureKind, SlowDetail};
use super::remarks::{Diagnosis, Remark};
use crate::episode_store::Episode;
use crate::process_scanner::WorkKind;

/// Adds that calls were held or failed on purpose, unless a sentence says so already.
pub(super) fn add_fault<'a>(diagnosis: &mut Diagnosis<'a>, episode: &'a Episode) {
    let faults = episode.calls.iter();
    let faults = faults.filter_map(|call| Some((call.fault?, call)));
    let count = faults.clone().count();
    let longest = faults.max_by_key(|(fault, _)| fault.held_ms());
    if let Some((fault, call)) = longest.filter(|_| !diagnosis.causes().any(names_fault)) {
        diagnosis.remarks.push(Remark::InjectedFault {
            fault,
            call,
            more: count - 1,
        });
    }
}

/// Returns whether the sentence names the injected fault.
fn names_fault(cause: &Cause<'_>) -> bool {
    let worker = match cause {
        Cause::CallInFlight(CallInFlight { work, .. }) => work.worker(),
        Cause::CallFails(failure) | Cause::Recovered(failure) => match failure.kind {
            FailureKind::Injected => return true,
            FailureKind::DeadlinePassed { .. }
            | FailureKind::NetworkHung { .. }
            | FailureKind::CallerCancelled { .. } => failure.work.worker(),
            _ => None,
        },
        Cause::SlowPhase(slow) => match &slow.detail {
            SlowDetail::Calls(calls) => calls.worker.as_ref(),
            _ => None,
        },
        _ => None,
    };
    worker.is_some_and(|worker| worker.kind == WorkKind::Injected)
}

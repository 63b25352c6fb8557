//! Faults that were injected on purpose: no headline leaves them out.

use super::cause::{CallFailure, CallInFlight, Cause, FailureKind, SlowDetail, WorkProgress};
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

fn is_injected(work: &WorkProgress<'_>) -> bool {
    match work {
        WorkProgress::Current(worker) | WorkProgress::SoFar(worker) => {
            worker.kind == WorkKind::Injected
        }
        WorkProgress::Unseen { .. } => false,
    }
}

/// Returns whether the sentence names the injected fault.
fn names_fault(cause: &Cause<'_>) -> bool {
    match cause {
        Cause::CallInFlight(CallInFlight { work, .. }) => is_injected(work),
        Cause::CallFails(failure) | Cause::Recovered { failure, .. } => {
            let CallFailure { kind, work, .. } = failure;
            let with_work = matches!(
                kind,
                FailureKind::DeadlinePassed { .. } | FailureKind::CallerCancelled { .. }
            );
            matches!(kind, FailureKind::Injected) || with_work && is_injected(work)
        }
        Cause::SlowPhase(slow) => match &slow.detail {
            SlowDetail::Calls { worker, .. } => worker
                .as_ref()
                .is_some_and(|worker| worker.kind == WorkKind::Injected),
            _ => false,
        },
        _ => false,
    }
}

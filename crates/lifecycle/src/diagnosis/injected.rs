//! Faults that were injected on purpose: no headline leaves them out.

use super::cause::{CallFailure, CallInFlight, Cause, FailureKind, SlowDetail, WorkProgress};
use crate::episode_store::Episode;
use crate::process_scanner::WorkKind;

/// Adds to a cause that calls were held or failed on purpose, unless its sentence says so already.
pub(super) fn with_injected_fault<'a>(cause: Cause<'a>, episode: &'a Episode) -> Cause<'a> {
    let calls = episode.calls.iter().filter(|call| call.fault.is_some());
    let count = calls.clone().count();
    match calls.max_by_key(|call| call.fault.map(|fault| fault.held_ms())) {
        Some(call) if !names_fault(&cause) => Cause::WithInjectedFault {
            cause: Box::new(cause),
            call,
            more: count - 1,
        },
        _ => cause,
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
        Cause::ContainerExited { then, .. } => names_fault(then),
        Cause::WithNodeConditions { cause, .. } => names_fault(cause),
        _ => false,
    }
}

//! The text of the error behind a diagnosis, as the program that failed wrote it. People search the web for it, so it keeps its words; the
//! headline explains them.

use super::cause::{Cause, SlowDetail};
use super::failure;
use super::kubelet::KubeletCause;
use super::remarks::Diagnosis;
use super::syncs::{FailingSync, WorkBeforeCalls, WorkInGap};
use crate::episode_call::EpisodeCall;
use crate::kubelet::syncs::PodSync;
use crate::node::{NodeFact, NodeFactKind, NodePrograms};
use crate::view::RawMessage;
use criscope_cri::call::{Ending, Source};
use criscope_cri::error_chain;
use criscope_cri::status::code_name;

/// Longest text, in bytes. A longer one loses its middle.
const MAX_RAW_MESSAGE_BYTES: usize = 512;

/// The name of the kubelet as the source of a text.
const KUBELET: &str = "kubelet";

/// The name of criscope as the source of a text.
const CRISCOPE: &str = "criscope";

impl Diagnosis<'_> {
    /// The text of the error that the leading cause is about; `None` if no program wrote one.
    pub(crate) fn raw_message(&self, programs: &NodePrograms) -> Option<RawMessage> {
        match &self.cause {
            Cause::CallFails(failure)
            | Cause::Recovered(failure)
            | Cause::DeletedWithoutSandbox { failure, .. } => call_message(failure.last, programs),
            Cause::BrokenOff(broken_off) => call_message(broken_off.call, programs),
            Cause::ImageMissing { image, .. } => {
                // No record of the call is kept, and with it no backend.
                let text = image.error.as_deref()?;
                Some(message(programs.runtime(None), text))
            }
            Cause::WaitsForNode { fact, .. }
            | Cause::BackendWasAway(fact)
            | Cause::NodeTrouble(fact)
            | Cause::NodeInGap { fact, .. }
            | Cause::NodeInCall { fact, .. } => condition_message(fact.fact, programs),
            Cause::Kubelet(KubeletCause::FailingSync(fails)) => sync_message(fails.sync),
            Cause::Kubelet(KubeletCause::BeforeFirstCall {
                work: WorkBeforeCalls::Failed { sync, .. },
                ..
            }) => sync_message(sync),
            Cause::SlowPhase(slow) => match &slow.detail {
                SlowDetail::Outside {
                    work: Some(WorkInGap::Between(Some(sync))),
                    ..
                } => sync_message(sync),
                _ => None,
            },
            _ => None,
        }
    }
}

impl FailingSync<'_> {
    /// The kubelet's error.
    pub(crate) fn raw_message(&self) -> Option<RawMessage> {
        sync_message(self.sync)
    }
}

fn message(from: &str, text: &str) -> RawMessage {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    RawMessage {
        from: from.to_owned(),
        text: error_chain::shortened(&text, MAX_RAW_MESSAGE_BYTES).into_owned(),
    }
}

/// The status of a failed call: code and text.
fn call_message(call: &EpisodeCall, programs: &NodePrograms) -> Option<RawMessage> {
    // criscope made up the end of a call that was lost.
    let outcome = call.outcome().filter(|_| !call.is_lost)?;
    let text = failure::error_message(call);
    if text.is_empty() && outcome.ending != Ending::Error {
        return None;
    }
    let from = match outcome.source {
        _ if failure::is_injected(call) => CRISCOPE,
        Source::Proxy => CRISCOPE,
        _ => programs.runtime(call.route.as_ref().map(|route| &*route.backend)),
    };
    let text = format!("{} {text}", code_name(outcome.code));
    Some(message(from, &text))
}

/// Why a condition of a runtime is false. Why a runtime does not answer is found out by criscope, in words of its own.
fn condition_message(fact: &NodeFact, programs: &NodePrograms) -> Option<RawMessage> {
    let NodeFactKind::NotReady { backend, condition } = &fact.kind else {
        return None;
    };
    let text = format!("{condition} {}", fact.reason);
    let is_told = !fact.reason.is_empty();
    is_told.then(|| message(programs.runtime(Some(backend)), &text))
}

/// The error of a sync of the kubelet.
fn sync_message(sync: &PodSync) -> Option<RawMessage> {
    let text = sync.error.as_ref()?.to_string();
    Some(message(KUBELET, &text))
}

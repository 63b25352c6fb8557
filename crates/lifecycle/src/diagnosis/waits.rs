//! Reasons why the kubelet may wait between the calls of a start. The calls rule out some of them.

use std::time::Duration;

use super::reasons::{
    ClosedList, StepBeforeCreate, StepBeforePull, StepBeforeSandbox, StepBeforeSync,
};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::kubelet::images::MissingImage;
use crate::node::NodeFactKind;
use crate::usual::NodeContext;
use criscope_cri::Method;
use criscope_cri::annotations::ConfigSource;
use criscope_cri::call::CallFacts;

/// The kubelet has repeated a sync that failed by then: it waits 10 to 15 s (`backOffPeriod` and its jitter), and looks for the image again.
const FAILED_SYNC_REPEATED_WITHIN: Duration = Duration::from_secs(20);

/// What may have held the kubelet up before RunPodSandbox.
#[derive(Clone, Debug)]
pub(crate) struct StepsBeforeCalls {
    pub(super) sandbox: Vec<StepBeforeSandbox>,
    pub(super) sync: Vec<StepBeforeSync>,
}

/// What may have held the kubelet up before the first call of this episode.
pub(super) fn steps_before_calls(episode: &Episode) -> StepsBeforeCalls {
    let sandbox = StepBeforeSandbox::ALL.iter().copied();
    let sync = StepBeforeSync::ALL.iter().copied();
    StepsBeforeCalls {
        sandbox: sandbox
            .filter(|step| is_before_sandbox(*step, episode))
            .collect(),
        sync: sync.filter(|step| is_before_sync(*step, episode)).collect(),
    }
}

/// Steps of one sync that held the kubelet up for long. The others fail at once, and end the sync.
pub(super) fn slow_steps_before_sandbox(episode: &Episode) -> Vec<StepBeforeSandbox> {
    use StepBeforeSandbox::{Network, RuntimeClass, SandboxConfig};
    let mut steps = steps_before_calls(episode).sandbox;
    steps.retain(|step| !matches!(step, Network | RuntimeClass | SandboxConfig));
    steps
}

fn is_before_sandbox(step: StepBeforeSandbox, episode: &Episode) -> bool {
    match step {
        StepBeforeSandbox::Network => episode.node.iter().any(|fact| {
            matches!(&fact.kind, NodeFactKind::NotReady { condition, .. } if condition == "NetworkReady")
        }),
        // Empty for the default handler, which needs no RuntimeClass.
        StepBeforeSandbox::RuntimeClass => episode.handler.as_deref() != Some(""),
        StepBeforeSandbox::MirrorPod => may_be_static(episode),
        _ => true,
    }
}

fn is_before_sync(step: StepBeforeSync, episode: &Episode) -> bool {
    match step {
        StepBeforeSync::UnhealthyRuntime => episode.node.iter().any(|fact| {
            matches!(
                fact.kind,
                NodeFactKind::BackendDown { .. }
                    | NodeFactKind::BackendHangs { .. }
                    | NodeFactKind::NotReady { .. }
            )
        }),
        StepBeforeSync::StaticPredecessor => may_be_static(episode),
        StepBeforeSync::Admission | StepBeforeSync::Queue => true,
    }
}

/// Returns whether the pod may be a static pod: its source is not the API server.
fn may_be_static(episode: &Episode) -> bool {
    let sources = episode.calls.iter().filter_map(|call| match call.facts {
        CallFacts::Seen { source, .. } => Some(source),
        _ => None,
    });
    sources
        .into_iter()
        .next()
        .is_none_or(|source| source != ConfigSource::Api)
}

/// What the kubelet may wait for after this call, the last of a start without a container.
pub(super) fn steps_after(call: &EpisodeCall, node: &NodeContext<'_>) -> Vec<StepBeforeCreate> {
    use StepBeforeCreate::{Credentials, ImageName, Pinning, PullLimit, PullQueue, PullRecord};
    let steps = StepBeforeCreate::ALL.iter().copied();
    steps
        .filter(|step| match (call.method, step) {
            (Method::CreateContainer, step) => *step == Pinning,
            (Method::PullImage, ImageName | Credentials | PullQueue | PullLimit | PullRecord) => {
                false
            }
            (_, PullQueue) => node.is_pulling(),
            _ => true,
        })
        .collect()
}

/// What held the kubelet up between this call and the creation of a container.
pub(super) fn steps_before_create(after: &EpisodeCall) -> Option<Vec<StepBeforeCreate>> {
    let mut steps = match after.method {
        Method::PullImage | Method::RunPodSandbox => steps_after_image(),
        _ => return None,
    };
    steps
        .retain(|step| after.method != Method::PullImage || *step != StepBeforeCreate::Credentials);
    Some(steps)
}

/// What the kubelet may lack once it has found the image of a container: only the credentials for it are asked for after that.
pub(super) fn steps_after_image() -> Vec<StepBeforeCreate> {
    use StepBeforeCreate::{ImageName, PullLimit, PullQueue, PullRecord};
    let steps = StepBeforeCreate::ALL.iter().copied();
    steps
        .filter(|step| !matches!(step, ImageName | PullLimit | PullQueue | PullRecord))
        .collect()
}

/// Why an image that the kubelet looked for in vain may not be pulled. `since`: the time since the last lookup.
pub(super) fn steps_before_pull(
    image: &MissingImage,
    since: Duration,
    node: &NodeContext<'_>,
) -> Vec<StepBeforePull> {
    let is_repeated = image.times > 1;
    let is_held_up = !is_repeated && since >= FAILED_SYNC_REPEATED_WITHIN;
    let steps = StepBeforePull::ALL.iter().copied();
    steps
        .filter(|step| match step {
            StepBeforePull::Queue => node.is_pulling() && !is_repeated,
            StepBeforePull::Credentials => true,
            StepBeforePull::Never | StepBeforePull::Limit | StepBeforePull::Record => !is_held_up,
        })
        .collect()
}

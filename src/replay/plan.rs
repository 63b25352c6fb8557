//! Which calls are played, when, and what each waits for.

use std::collections::HashMap;
use std::time::Duration;

use super::wire::{self, InvalidProtobuf};
use crate::call::{Ending, Sealed};
use crate::cri::Method;
use crate::cri::method::Class;
use crate::lifecycle::capture::requests::RecordedCall;

/// Why a call is not played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SkipReason {
    /// The method.
    Method,
    /// The call names an object that is older than the recording.
    Unknown,
    /// The call names an object that the target did not make.
    NotMade,
    /// The call's request cannot be read.
    Damaged,
    /// The replay was interrupted.
    Interrupted,
}

impl SkipReason {
    pub(super) const fn text(self) -> &'static str {
        match self {
            Self::Method => "of methods that are not replayed",
            Self::Unknown => "about objects older than the recording",
            Self::NotMade => "about objects that the target did not make",
            Self::Damaged => "whose recorded request is damaged",
            Self::Interrupted => "not reached before the interruption",
        }
    }
}

/// A call of the recording.
#[derive(Debug)]
pub(super) struct RecordedStep {
    pub(super) call: RecordedCall,
    /// When it began, from the first call.
    pub(super) at: Duration,
    /// Earlier steps that must have ended.
    pub(super) waits_for: Vec<usize>,
    pub(super) skipped: Option<SkipReason>,
}

impl RecordedStep {
    /// Returns whether its result can be compared: neither its caller nor an injected fault ended it while it was recorded.
    pub(super) fn is_comparable(&self) -> bool {
        self.call.ending != Ending::Cancelled && !self.call.injected
    }
}

/// Fields of a request with ids of sandboxes and containers; empty ones name nothing.
pub(super) const fn id_paths(method: Method) -> &'static [&'static [u64]] {
    match method {
        // The sandbox, and the container whose process namespace a debug container joins.
        Method::CreateContainer => &[&[1], &[2, 15, 2, 3, 4]],
        Method::ListPodSandbox
        | Method::StreamPodSandboxes
        | Method::ListPodSandboxStats
        | Method::StreamPodSandboxStats => &[&[1, 1]],
        Method::ListContainers | Method::StreamContainers => &[&[1, 1], &[1, 3]],
        Method::ListContainerStats | Method::StreamContainerStats => &[&[1, 1], &[1, 2]],
        _ if method.first_id().is_some() => &[&[1]],
        _ => &[],
    }
}

/// Watches never end; the others would change what the target holds besides the recorded pods, or files elsewhere.
const fn is_left_out(method: Method) -> bool {
    matches!(
        method,
        Method::GetContainerEvents
            | Method::RemoveImage
            | Method::UpdateRuntimeConfig
            | Method::CheckpointContainer
            | Method::CheckpointPod
            | Method::RestorePod
            | Method::Other
    )
}

/// Returns whether it takes away what earlier calls of its pod are about, which must have ended on a slower target too.
const fn ends_something(method: Method) -> bool {
    matches!(
        method,
        Method::StopContainer
            | Method::RemoveContainer
            | Method::StopPodSandbox
            | Method::RemovePodSandbox
    )
}

/// Returns whether all later calls of its pod wait for it.
fn is_waited_for(method: Method) -> bool {
    let is_session = matches!(
        method,
        Method::ExecSync
            | Method::Exec
            | Method::Attach
            | Method::PortForward
            | Method::ReopenContainerLog
    );
    method.class() == Class::Mutating && !is_session
}

fn ids(call: &RecordedCall) -> Result<Vec<String>, InvalidProtobuf> {
    let message = Sealed::bytes(&call.request);
    let paths = id_paths(call.method).iter();
    let found = paths.map(|path| wire::texts(message, path));
    Ok(found.collect::<Result<Vec<_>, _>>()?.concat())
}

/// An earlier call of a pod.
struct EarlierCall {
    step: usize,
    end: u64,
    is_waited_for: bool,
}

/// Makes the plan of calls that are sorted by their beginning.
pub(super) fn plan(calls: Vec<RecordedCall>) -> Vec<RecordedStep> {
    let first = calls.first().map_or(0, |call| call.began);
    let mut makers = HashMap::new();
    for (i, call) in calls.iter().enumerate() {
        if let Some(made) = &call.made {
            makers.entry(made.to_string()).or_insert(i);
        }
    }
    let mut of_pod: HashMap<String, Vec<EarlierCall>> = HashMap::new();
    let mut steps = Vec::with_capacity(calls.len());
    for (i, call) in calls.into_iter().enumerate() {
        let mut waits_for = Vec::new();
        let mut skipped = is_left_out(call.method).then_some(SkipReason::Method);
        match ids(&call) {
            Err(InvalidProtobuf) => skipped = skipped.or(Some(SkipReason::Damaged)),
            Ok(ids) => {
                for id in ids {
                    match makers.get(&id) {
                        Some(maker) if *maker < i => waits_for.push(*maker),
                        _ => skipped = skipped.or(Some(SkipReason::Unknown)),
                    }
                }
            }
        }
        if let Some(pod) = call.pod.as_deref()
            && skipped.is_none()
        {
            let before = of_pod.entry(pod.uid.to_string()).or_default();
            // The caller knew the result of every call that had ended before this one began.
            let ended = before.iter().filter(|earlier| earlier.end <= call.began);
            let all = ends_something(call.method);
            waits_for.extend(
                ended
                    .filter(|earlier| all || earlier.is_waited_for)
                    .map(|earlier| earlier.step),
            );
            before.push(EarlierCall {
                step: i,
                end: call.end(),
                is_waited_for: is_waited_for(call.method),
            });
        }
        waits_for.sort_unstable();
        waits_for.dedup();
        let at = Duration::from_micros(call.began.saturating_sub(first));
        steps.push(RecordedStep {
            call,
            at,
            waits_for,
            skipped,
        });
    }
    steps
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message;

    use super::*;
    use crate::cri::subject::PodIdentity;
    use crate::cri::v1;

    fn call(method: Method, began: u64, elapsed: u64, request: &impl Message) -> RecordedCall {
        let pod = PodIdentity {
            namespace: "shop".into(),
            name: "web".into(),
            uid: "u".into(),
            attempt: 0,
        };
        RecordedCall {
            seq: began,
            method,
            began,
            elapsed,
            deadline: None,
            ending: Ending::Ok,
            code: 0,
            injected: false,
            pod: Some(Arc::new(pod)),
            made: None,
            request: Sealed::new(request.encode_to_vec().into()),
        }
    }

    fn stop(id: &str, began: u64) -> RecordedCall {
        let request = v1::StopPodSandboxRequest {
            pod_sandbox_id: id.into(),
        };
        call(Method::StopPodSandbox, began, 5, &request)
    }

    #[test]
    fn a_call_waits_for_what_its_caller_knew() {
        let mut run = call(
            Method::RunPodSandbox,
            100,
            50,
            &v1::RunPodSandboxRequest::default(),
        );
        run.made = Some("a".into());
        let pull = call(
            Method::PullImage,
            160,
            100,
            &v1::PullImageRequest::default(),
        );
        let events = call(
            Method::GetContainerEvents,
            161,
            9,
            &v1::GetEventsRequest::default(),
        );
        let list = |id: &str, began| {
            let filter = v1::PodSandboxFilter {
                id: id.into(),
                ..Default::default()
            };
            let request = v1::ListPodSandboxRequest {
                filter: Some(filter),
            };
            call(Method::ListPodSandbox, began, 1, &request)
        };
        let mut broken = list("a", 240);
        broken.request = Sealed::new(vec![0x0a].into());
        let calls = vec![
            run,
            pull,
            events,
            stop("a", 200),
            stop("a", 300),
            stop("older", 301),
            list("", 302),
            list("older", 303),
            broken,
        ];
        let steps = plan(calls);
        let waits: Vec<_> = steps.iter().map(|step| &*step.waits_for).collect();
        assert_eq!(waits[..5], [&[][..], &[0], &[], &[0], &[0, 1, 3]]);
        let skipped: Vec<_> = steps.iter().map(|step| step.skipped).collect();
        assert_eq!(skipped[2], Some(SkipReason::Method));
        assert_eq!(skipped[3..5], [None, None]);
        assert_eq!(skipped[5], Some(SkipReason::Unknown));
        assert_eq!(skipped[6], None, "an empty filter names nothing");
        assert_eq!(skipped[7], Some(SkipReason::Unknown));
        assert_eq!(skipped[8], Some(SkipReason::Damaged));
        assert_eq!(steps[3].at, Duration::from_micros(100));
    }

    #[test]
    fn a_container_is_not_stopped_under_a_call_that_had_ended() {
        let exec = |began, elapsed| {
            let request = v1::ExecSyncRequest::default();
            call(Method::ExecSync, began, elapsed, &request)
        };
        let status = call(
            Method::ContainerStatus,
            110,
            1,
            &v1::ContainerStatusRequest::default(),
        );
        let stop = |began| {
            let request = v1::StopContainerRequest::default();
            call(Method::StopContainer, began, 5, &request)
        };
        // The second probe hung when the kubelet stopped the container.
        let steps = plan(vec![exec(100, 5), status, exec(120, 900), stop(200)]);
        let waits: Vec<_> = steps.iter().map(|step| &*step.waits_for).collect();
        assert_eq!(waits, [&[][..], &[], &[], &[0, 1]]);
    }

    #[test]
    fn ids_are_where_the_protocol_has_them() {
        let pool = prost_reflect::DescriptorPool::decode(crate::cri::DESCRIPTOR).expect("pool");
        let rpcs = pool
            .services()
            .flat_map(|s| s.methods().collect::<Vec<_>>());
        for rpc in rpcs {
            let path = format!("/{}", rpc.full_name().replacen("Service.", "Service/", 1));
            let (method, _) = Method::from_path(&path).expect(&path);
            for path in id_paths(method) {
                let mut kind = prost_reflect::Kind::Message(rpc.input());
                let mut name = String::new();
                for number in *path {
                    let message = kind.as_message().expect("a message").clone();
                    let number = u32::try_from(*number).expect("small");
                    let field = message.get_field(number).expect("a field");
                    name = field.name().to_owned();
                    kind = field.kind();
                }
                let is_id = ["id", "target_id", "pod_sandbox_id", "container_id"];
                assert!(is_id.contains(&&*name), "{method} {path:?}: {name}");
            }
        }
    }
}

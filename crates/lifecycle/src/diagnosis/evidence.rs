//! What the request for a container says about its failures and its slowness.

use std::time::Duration;

use super::cause::{CallInFlight, Cause, EpisodeOutcome, SlowDetail};
use super::failure::error_message;
use super::fault::FaultClass;
use super::history;
use super::kill_reason::KillReason;
use super::kubelet::KubeletCause;
use super::reasons::UnseenKill;
use super::remarks::{Diagnosis, Remark};
use crate::episode_call::EpisodeCall;
use crate::episode_store::Episode;
use crate::kubelet::execs::{ExecResult, program};
use crate::kubelet::probes::FailedProbe;
use crate::timeline::EpisodePhase;
use crate::view::ProbeView;
use criscope_cri::Method;
use criscope_cri::container_request::{ContainerRequest, MountedVolume};

/// With a lower limit a runtime may not be able to start a container: runc needs some megabytes, more for a large configuration.
const MEMORY_TO_START: u64 = 32 << 20;
/// With a limit up to a tenth of a CPU, work of 50 ms takes half a second. A program or a probe is slow for that alone.
const LOW_CPU_LIMIT_MILLIS: u32 = 100;

/// What the request says about the reason of a failed call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RequestEvidence<'a> {
    /// A volume hides programs or libraries of the image.
    HidingVolume(&'a MountedVolume),
    /// The program comes from a volume.
    HoldingVolume(&'a MountedVolume),
    /// The memory limit is low.
    MemoryLimit(u64),
    /// The container lacks rights.
    Rights(&'a ContainerRequest),
    /// The root file system is read-only.
    ReadOnlyRoot,
    /// The path is in a read-only volume.
    ReadOnlyVolume(&'a MountedVolume),
    /// The image was pulled this long before, and is gone.
    PulledBefore(Duration),
}

impl RequestEvidence<'_> {
    /// Returns whether the pod's author decides it.
    pub(super) fn is_of_author(&self) -> bool {
        !matches!(self, Self::PulledBefore(_))
    }
}

/// The evidence in the request for the container of a failed call.
pub(super) fn failure_evidence<'a>(
    episode: &'a Episode,
    call: &'a EpisodeCall,
    fault: Option<FaultClass>,
) -> Option<RequestEvidence<'a>> {
    if fault == Some(FaultClass::ImageGone) {
        return pulled_before(episode, call);
    }
    let mut newest_first = episode.calls.iter().rev();
    let created = newest_first.find(|other| {
        other.method == Method::CreateContainer
            && call.container.is_some()
            && other.container == call.container
    })?;
    let request = created.facts.container_request()?;
    let text = error_message(call);
    let limit = request.memory_limit();
    match fault? {
        FaultClass::CommandMissing
        | FaultClass::CommandPath
        | FaultClass::CommandOrInterpreterMissing => missing_program(request, program(text)),
        FaultClass::CommandDenied => {
            holding_volume(request, text).or_else(|| lacks_rights(request))
        }
        FaultClass::CommandFormat => holding_volume(request, text),
        FaultClass::WorkingDir if text.contains("permission denied") => lacks_rights(request),
        FaultClass::PermissionDenied => lacks_rights(request),
        FaultClass::MemoryLimit => limit.map(RequestEvidence::MemoryLimit),
        FaultClass::InitDied => limit
            .filter(|limit| *limit < MEMORY_TO_START)
            .map(RequestEvidence::MemoryLimit),
        FaultClass::ReadOnly => {
            let mut volumes = request.mounts.iter().filter(|mount| mount.read_only);
            let volume = volumes.find(|mount| text.contains(&format!("{}/", mount.path)));
            let root = request
                .read_only_root
                .then_some(RequestEvidence::ReadOnlyRoot);
            volume.map(RequestEvidence::ReadOnlyVolume).or(root)
        }
        _ => None,
    }
}

/// The pull of an image that is gone.
fn pulled_before<'a>(episode: &'a Episode, call: &EpisodeCall) -> Option<RequestEvidence<'a>> {
    let pulls = episode.calls.iter().filter(|other| {
        other.method == Method::PullImage && other.is_good() && other.began < call.began
    });
    let last = pulls.max_by_key(|pull| pull.began)?;
    let before = call.began_at().since(last.ended_at());
    Some(RequestEvidence::PulledBefore(before))
}

fn lacks_rights(request: &ContainerRequest) -> Option<RequestEvidence<'_>> {
    request
        .restricts()
        .then_some(RequestEvidence::Rights(request))
}

/// The volume that the program of an error text comes from: a file over it, or a directory.
fn holding_volume<'a>(request: &'a ContainerRequest, text: &str) -> Option<RequestEvidence<'a>> {
    let program = program(text)?;
    let held = request.file_at(program).or(request.volume_over(program));
    held.map(RequestEvidence::HoldingVolume)
}

/// Why a program is missing: it comes from a volume that was made for it, or a volume hides it, or its interpreter.
fn missing_program<'a>(
    request: &'a ContainerRequest,
    program: Option<&str>,
) -> Option<RequestEvidence<'a>> {
    if let Some(file) = program.and_then(|program| request.file_at(program)) {
        return Some(RequestEvidence::HoldingVolume(file));
    }
    let path = program.filter(|program| program.starts_with('/'));
    let over = path.and_then(|path| request.volume_over(path));
    let volume = over.or_else(|| request.hiding_volume())?;
    Some(if over.is_some() && volume.kind.has_files_of_author() {
        RequestEvidence::HoldingVolume(volume)
    } else {
        RequestEvidence::HidingVolume(volume)
    })
}

/// The newest request for a container with this name.
fn request_for<'a>(pod: &[&'a Episode], name: &str) -> Option<(&'a str, &'a ContainerRequest)> {
    let creates = history::calls(pod).filter(|call| call.container_name() == Some(name));
    let creates = creates.filter(|call| call.facts.container_request().is_some());
    let newest = creates.max_by_key(|call| call.began)?;
    Some((newest.container_name()?, newest.facts.container_request()?))
}

/// Adds what the request says about the work of a container: a volume that may hide the command of a probe, and the CPU limit if the
/// work is slow and the limit low. Then the node is not to blame.
pub(super) fn add_request_facts<'a>(diagnosis: &mut Diagnosis<'a>, pod: &[&'a Episode]) {
    if let Cause::ProbeFails(probe) = &diagnosis.cause
        && could_not_run(probe)
        && let Some((_, request)) = request_for(pod, &probe.container)
        && let Some(mount) = request.hiding_volume()
    {
        diagnosis.remarks.insert(0, Remark::HiddenBy(mount));
    }
    let mut remarks = diagnosis.remarks.iter();
    if remarks.any(|remark| matches!(remark, Remark::CpuLimit { .. } | Remark::PodCpuLimit { .. }))
    {
        return;
    }
    let limit = diagnosis.causes().find_map(|cause| {
        if let Some(sandbox) = working_sandbox(cause) {
            let millis = pod_cpu_limit(sandbox, pod)?;
            return Some(Remark::PodCpuLimit { millis });
        }
        let (container, request) = request_for(pod, working_container(cause)?)?;
        let millis = request.cpu_limit()?;
        (millis <= LOW_CPU_LIMIT_MILLIS).then_some(Remark::CpuLimit { container, millis })
    });
    let Some(limit) = limit else { return };
    if let Cause::SlowPhase(slow) = &mut diagnosis.cause {
        // Other pods have other limits.
        slow.usual = None;
    }
    diagnosis
        .remarks
        .retain(|remark| !matches!(remark, Remark::ShortOf(_)));
    diagnosis.remarks.insert(0, limit);
}

/// The call that makes a sandbox and takes the time that a cause is about, in programs on this node.
fn working_sandbox<'b>(cause: &Cause<'b>) -> Option<&'b EpisodeCall> {
    let call = match cause {
        Cause::CallInFlight(CallInFlight { call, .. }) | Cause::UnusualCall { call, .. } => call,
        Cause::CallFails(failure) if failure.kind.is_timeout() => failure.last,
        Cause::SlowPhase(slow) => match &slow.detail {
            SlowDetail::Calls(calls) => calls.longest?,
            _ => return None,
        },
        _ => return None,
    };
    call.method.makes_sandbox().then_some(call)
}

/// The CPU limit of a pod, if it is low. The kubelet limits the cgroup of a pod, in which the runtime's programs for its sandbox run too, if
/// each of its containers has a limit (`ResourceConfigForPod` in `pkg/kubelet/cm/helpers_linux.go`).
fn pod_cpu_limit(sandbox: &EpisodeCall, pod: &[&Episode]) -> Option<u32> {
    let requests = history::calls(pod)
        .filter_map(|call| call.facts.container_request())
        .collect::<Vec<_>>();
    let known: u32 = requests
        .iter()
        .filter_map(|request| request.cpu_limit())
        .sum();
    let millis = sandbox.facts.pod_cpu_millis().unwrap_or(known);
    let is_limited = requests.iter().all(|request| request.cpu_limit().is_some());
    (is_limited && (1..=LOW_CPU_LIMIT_MILLIS).contains(&millis)).then_some(millis)
}

/// The container whose own work takes the time that a cause is about.
fn working_container<'b>(cause: &'b Cause<'_>) -> Option<&'b str> {
    match cause {
        Cause::CallInFlight(CallInFlight { call, .. }) | Cause::UnusualCall { call, .. } => {
            runs_in(call)
        }
        Cause::CallFails(failure) if failure.kind.is_timeout() => runs_in(failure.last),
        Cause::SlowPhase(slow) => match (&slow.detail, slow.phase) {
            (SlowDetail::Init { longest, .. }, _) => longest.map(|(name, _)| name),
            (SlowDetail::Stop { container, .. }, _) => *container,
            (SlowDetail::Calls(calls), phase) if phase != EpisodePhase::ContainerRemove => {
                calls.longest.and_then(runs_in)
            }
            _ => None,
        },
        Cause::AwaitsContainer { awaited, .. } => Some(awaited.last),
        Cause::ProbeFails(probe) => is_slow_to_answer(probe).then_some(&*probe.container),
        Cause::ProbeHangs(probe) => Some(&probe.container),
        Cause::ProbeLate(probe) => Some(&probe.container),
        Cause::NotSlow(quick) => match &quick.end {
            EpisodeOutcome::OneContainerUp { container, .. } => Some(container),
            _ => None,
        },
        Cause::Kubelet(cause) => match cause {
            KubeletCause::HookInFlight { hook, .. } | KubeletCause::PostStart { hook, .. } => {
                Some(hook.container)
            }
            KubeletCause::ContainerStopped { stop, .. } => Some(stop.container),
            KubeletCause::ContainerKilled { reason, stop, .. } => {
                is_slowness(*reason).then_some(stop.container)
            }
            KubeletCause::KillLoop(kills) => is_slowness(kills.reason).then_some(kills.container),
            _ => None,
        },
        _ => None,
    }
}

/// Returns whether a probe fails because it times out, or has failed since the container began, which may not be ready yet.
fn is_slow_to_answer(probe: &ProbeView) -> bool {
    let has_never_succeeded = probe.runs == u64::from(probe.failed_in_a_row);
    let has_timed_out = probe.last_result == ExecResult::TimedOut.to_string();
    has_timed_out || has_never_succeeded && !could_not_run(probe)
}

fn could_not_run(probe: &ProbeView) -> bool {
    let error = ExecResult::Error.to_string();
    probe.last_result.starts_with(&error)
}

/// The container of a call that runs programs within its limits.
fn runs_in(call: &EpisodeCall) -> Option<&str> {
    let runs = matches!(
        call.method,
        Method::CreateContainer | Method::StartContainer | Method::StopContainer | Method::ExecSync
    );
    call.container_name().filter(|_| runs)
}

/// Returns whether a container may be killed because it answers, or is ready, too late.
fn is_slowness(reason: KillReason) -> bool {
    let is_late =
        |probe: FailedProbe| probe.result == ExecResult::TimedOut || probe.never_succeeded;
    match reason {
        KillReason::Probe(probe) => is_late(probe),
        KillReason::OneOf { probe, unseen } => {
            probe.is_some_and(is_late) || unseen.contains(&Some(UnseenKill::Probe))
        }
        _ => false,
    }
}

//! The kinds of sentences: the variants of the enums that the words distinguish.

use crate::diagnosis::before::Predecessor;
use crate::diagnosis::broken_off::RetryState;
use crate::diagnosis::cause::{Cause, EpisodeOutcome, FailureKind, SlowDetail, WorkProgress};
use crate::diagnosis::kill_reason::KillReason;
use crate::diagnosis::kubelet::{HookKind, KubeletCause};
use crate::diagnosis::next_step::NextStep;
use crate::diagnosis::node::EpisodeWait;
use crate::diagnosis::remarks::Remark;
use crate::diagnosis::syncs::{WorkBeforeCalls, WorkInGap};
use crate::node::NodeFactKind;

/// A variant of an enum that words distinguish: the enum's place in [`PARTS`], and the variant's place in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    part: usize,
    variant: usize,
}

impl Kind {
    pub(super) fn name(&self) -> &'static str {
        PARTS[self.part].1[self.variant]
    }

    /// All kinds, without remarks that are causes with kinds of their own, and a fact that explains no delay and is in no first line.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let parts = PARTS.iter().enumerate();
        let all = parts.flat_map(|(part, (_, variants))| {
            (0..variants.len()).map(move |variant| Self { part, variant })
        });
        all.filter(|kind| !matches!(kind.name(), "Also" | "SecondFault" | "ImageFsFull"))
    }
}

/// An enum whose variants are kinds of sentences.
trait HasKinds {
    fn kind(&self) -> Kind;
}

/// Lists the variants of enums. The matches are exhaustive, so that none can be forgotten.
macro_rules! kinds {
    ($($part:ident $type:ty: $($variant:ident)+;)+) => {
        /// The position of each enum.
        #[derive(Clone, Copy)]
        enum Part {$($part),+}

        /// The enums and their variants.
        pub(super) const PARTS: &[(&str, &[&str])] =
            &[$((stringify!($part), &[$(stringify!($variant)),+])),+];

        $(impl HasKinds for $type {
            fn kind(&self) -> Kind {
                let name = match self {$(Self::$variant { .. } => stringify!($variant)),+};
                let part = Part::$part as usize;
                let variant = PARTS[part].1.iter().position(|known| *known == name);
                Kind { part, variant: variant.unwrap_or_default() }
            }
        })+
    };
}

kinds! {
    Cause Cause<'_>: CallInFlight CallFails DeletedWithoutSandbox Recovered BrokenOff NoFurtherCall ContainerNotCreated ImageMissing WaitsForPull WaitsForNode
        BackendWasAway NodeInGap NodeInCall AwaitsContainer NeverStarted NoContainerStarted InitRetried ProbeLate CrashLoop OtherExits NodeTrouble SlowCall ContainerExited ContainersStopped ProbeFails
        ProbeHangs OomKills SandboxDied PodStopped EndedWithNode StartedAgain Kubelet SlowPhase UnusualCall NotSlow;
    KubeletCause KubeletCause<'_>: BeforeFirstCall BeforeStop FailingSync PullQueue HookInFlight PostStart ContainerStopped ContainerKilled
        KillLoop;
    FailureKind FailureKind: DeadlinePassed NetworkHung RuntimeGaveUp NameReserved CallerCancelled Injected Network PauseImage Error;
    WorkProgress WorkProgress<'_>: Current SoFar Unseen;
    SlowDetail SlowDetail<'_>: Network Pull Outside Init Stop Calls Checkpoint;
    EpisodeOutcome EpisodeOutcome<'_>: Containers OneContainerUp ImagePulled ContainerStopped PodStopped Incomplete;
    KillReason KillReason: Probe PostStart ImageChanged Resized RestartRule OneOf;
    HookKind HookKind: PostStart PreStop Unknown;
    WorkBeforeCalls WorkBeforeCalls<'_>: Unknown Node Failed InSync Before;
    WorkInGap WorkInGap<'_>: Inside Between;
    EpisodeWait EpisodeWait<'_>: EndOfCall Retry NextCall;
    RetryState RetryState: Impossible Awaited InProgress Succeeded;
    NodeFactKind NodeFactKind: BackendDown BackendHangs NotReady NoKubelet KubeletSilent CriscopeDown CriscopeBypassed NodeRestarted CriscopeStalled ImageFsFull;
    Predecessor Predecessor<'_>: ContainerRun Sandbox;
    Remark Remark<'_>: Also SecondFault StartTook StopTook DownForImage Intervened Checkpointed OnlyEphemeral PodStopped FailedBefore UpAgain Outcome ContainersEnded Ended HiddenBy AnsweredDriver CpuLimit PodCpuLimit BeganUnseen BeganWithKubelet
        ShortOf RetryJoined InjectedFault;
    NextStep NextStep: ReadLogs DescribePod FindWait GetObject ReadKubeletLog CheckKubelet CheckRuntime ReadRuntimeLog
        ReadCriscopeLog ReadKernelLog ReadSystemdLog RaiseMemory RaiseCpu FindMemoryUser FindCpuUser FindDiskUser FreeDisk
        RunProbe RunPostStartHook CheckHook HandleSigterm CheckCommand MakeExecutable CheckArchitecture CheckUser
        RunAsOtherUser CheckWorkingDir CheckHidingVolume CheckHoldingVolume SetVolumeMode AllowExec CheckSecurityContext MountWritable
        CheckLimits CheckSysctls CheckSelinux LoadAppArmorProfile CheckMount CheckDevice AddPullSecret RaisePullLimit ListTags
        InspectImage CheckImageAccess CorrectImageName BuildForPlatform PushImageAgain CopyImageElsewhere SignImage
        ProvideImageKey RemoveBrokenImage PullByHand PullInParallel CheckPauseImage TryRegistry ResolveHost CheckCertificate
        AllowPlainHttp CheckProxy CheckPluginAgent RestartPluginAgent InstallPlugin FreeAddresses CheckNetworkConfig
        CheckInterface CheckDhcp CheckApi FindHostPort AddHandler CheckCgroupDriver InstallProgram CheckOciHook
        CheckPolicyFile StartService RemountFilesystem RaiseUnitLimit RaiseTasks RaiseInotify RaiseKeys FindBlockedProcesses
        ClearFaults;
}

/// The kind of a remark.
pub(super) fn remark_kind(remark: &Remark<'_>) -> Kind {
    remark.kind()
}

/// The kind of a next step.
pub(super) fn step_kind(step: &NextStep) -> Kind {
    step.kind()
}

/// The kinds of a cause, its own first.
pub(super) fn kinds_of(cause: &Cause<'_>) -> Vec<Kind> {
    let mut kinds = vec![cause.kind()];
    match cause {
        Cause::CallInFlight(call) => {
            kinds.push(call.work.kind());
            kinds.extend(call.kill_reason.iter().map(HasKinds::kind));
        }
        Cause::CallFails(failure)
        | Cause::Recovered(failure)
        | Cause::DeletedWithoutSandbox { failure, .. } => kinds.push(failure.kind.kind()),
        Cause::WaitsForNode { fact, waits } => {
            kinds.extend([fact.fact.kind.kind(), waits.kind()]);
        }
        Cause::BackendWasAway(fact)
        | Cause::NodeTrouble(fact)
        | Cause::NodeInGap { fact, .. }
        | Cause::NodeInCall { fact, .. } => kinds.push(fact.fact.kind.kind()),
        Cause::BrokenOff(call) => kinds.extend([call.fact.fact.kind.kind(), call.retry.kind()]),
        Cause::StartedAgain(predecessor) => {
            kinds.push(predecessor.kind());
            match predecessor {
                Predecessor::ContainerRun(run) => {
                    kinds.extend(run.kill_reason.iter().map(HasKinds::kind));
                }
                Predecessor::Sandbox(replaced) => {
                    kinds.extend(replaced.downtime.iter().map(|fact| fact.kind.kind()));
                }
            }
        }
        Cause::ContainersStopped(stopped) => {
            kinds.extend(stopped.reason.iter().map(HasKinds::kind));
        }
        Cause::PodStopped(stop) => kinds.extend(stop.reason.iter().map(HasKinds::kind)),
        Cause::SlowPhase(slow) => {
            kinds.push(slow.detail.kind());
            if let SlowDetail::Outside {
                work: Some(work), ..
            } = &slow.detail
            {
                kinds.push(work.kind());
            }
        }
        Cause::NotSlow(outcome) => kinds.push(outcome.end.kind()),
        Cause::Kubelet(cause) => kinds.extend(kinds_of_kubelet(cause)),
        Cause::NoFurtherCall { .. }
        | Cause::ContainerNotCreated { .. }
        | Cause::ImageMissing { .. }
        | Cause::WaitsForPull { .. }
        | Cause::AwaitsContainer { .. }
        | Cause::NeverStarted { .. }
        | Cause::NoContainerStarted { .. }
        | Cause::InitRetried(_)
        | Cause::ProbeLate(_)
        | Cause::CrashLoop(_)
        | Cause::OtherExits { .. }
        | Cause::SlowCall(_)
        | Cause::ContainerExited(_)
        | Cause::ProbeFails(_)
        | Cause::ProbeHangs(_)
        | Cause::OomKills { .. }
        | Cause::SandboxDied { .. }
        | Cause::EndedWithNode { .. }
        | Cause::UnusualCall { .. } => {}
    }
    kinds
}

fn kinds_of_kubelet(cause: &KubeletCause<'_>) -> Vec<Kind> {
    let mut kinds = vec![cause.kind()];
    match cause {
        KubeletCause::BeforeFirstCall { work, .. } => kinds.push(work.kind()),
        KubeletCause::HookInFlight { hook, .. } | KubeletCause::PostStart { hook, .. } => {
            kinds.push(hook.kind.kind());
        }
        KubeletCause::ContainerKilled { reason, .. } => kinds.push(reason.kind()),
        KubeletCause::KillLoop(series) => kinds.push(series.reason.kind()),
        KubeletCause::BeforeStop { .. }
        | KubeletCause::FailingSync(_)
        | KubeletCause::PullQueue { .. }
        | KubeletCause::ContainerStopped { .. } => {}
    }
    kinds
}

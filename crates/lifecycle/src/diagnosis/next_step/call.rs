//! Steps about calls that fail or do not end.

use std::time::Duration;

use super::context::{command_word, says};
use super::images::try_registry;
use super::{NextStep, StepContext};
use crate::containerd::pulls::AWAITED_MANIFEST;
use crate::diagnosis::cause::{CallFailure, CallInFlight, FailureKind, WorkProgress};
use crate::diagnosis::evidence::RequestEvidence;
use crate::diagnosis::fault::FaultClass;
use crate::diagnosis::kills;
use crate::diagnosis::work::LongestWorker;
use crate::episode_call::EpisodeCall;
use crate::process_scanner::WorkKind;
use criscope_cri::Method;

/// A call that takes less may well end by itself.
const CALL_HANGS_AFTER: Duration = Duration::from_secs(10);

impl StepContext<'_> {
    pub(super) fn about_call_in_flight(&self, flight: &CallInFlight<'_>) -> Option<NextStep> {
        let call = flight.call;
        if call.fault.is_some() {
            return Some(NextStep::ClearFaults);
        }
        if let Some(reason) = flight.kill_reason
            && !kills::is_overdue(call)
        {
            return self.about_kill(call.container_name()?, reason);
        }
        if call.took() < CALL_HANGS_AFTER {
            return None;
        }
        match call.method {
            // It has its grace period.
            Method::StopContainer if !kills::is_overdue(call) => None,
            Method::StopContainer => Some(NextStep::FindBlockedProcesses),
            _ => self.about_work(call, flight.work.worker()?),
        }
    }

    /// The work that a call waits for.
    fn about_work(&self, call: &EpisodeCall, worker: &LongestWorker<'_>) -> Option<NextStep> {
        match worker.kind {
            WorkKind::Injected => Some(NextStep::ClearFaults),
            WorkKind::Blocked => Some(NextStep::FindBlockedProcesses),
            WorkKind::Cni => Some(self.check_plugin(call, Some(worker.name))),
            WorkKind::Layers if worker.name == AWAITED_MANIFEST => try_registry(call),
            // A pull that makes progress ends by itself.
            WorkKind::Layers => None,
            WorkKind::Oci | WorkKind::Helper | WorkKind::Runtime if worker.own => None,
            WorkKind::Oci | WorkKind::Helper => Some(NextStep::FindBlockedProcesses),
            WorkKind::Runtime => Some(self.runtime_log(call)),
        }
    }

    pub(super) fn about_failure(&self, failure: &CallFailure<'_>) -> Option<NextStep> {
        let call = failure.last;
        match &failure.kind {
            FailureKind::Injected => Some(NextStep::ClearFaults),
            FailureKind::DeadlinePassed { .. } => self.about_timeout(call, &failure.work),
            FailureKind::NetworkHung { plugin, .. } => {
                Some(self.check_plugin(call, plugin.as_deref()))
            }
            FailureKind::RuntimeGaveUp { .. } => self.about_timeout(call, &failure.work),
            FailureKind::NameReserved { .. } => Some(self.runtime_log(call)),
            // A person did, or a kubelet that changed its mind.
            FailureKind::CallerCancelled { .. } => None,
            FailureKind::Network { plugin, fault } => {
                self.about_network(call, plugin.as_deref(), *fault)
            }
            FailureKind::PauseImage { fault } => Some(self.about_pause_image(call, *fault)),
            FailureKind::Error { fault } => match fault {
                Some(fault) => self.about_fault(call, *fault, failure.evidence.as_ref()),
                None => self.about_unknown_error(call),
            },
        }
    }

    /// A call whose time ran out.
    fn about_timeout(&self, call: &EpisodeCall, work: &WorkProgress<'_>) -> Option<NextStep> {
        let of_work = work
            .worker()
            .and_then(|worker| self.about_work(call, worker));
        of_work.or_else(|| match call.method {
            Method::PullImage => try_registry(call),
            Method::StopContainer => Some(NextStep::FindBlockedProcesses),
            _ => Some(self.runtime_log(call)),
        })
    }

    /// An error whose text proves nothing.
    fn about_unknown_error(&self, call: &EpisodeCall) -> Option<NextStep> {
        match call.method {
            Method::PullImage => try_registry(call),
            _ => Some(self.runtime_log(call)),
        }
    }

    /// A class of faults that an error text proves.
    pub(super) fn about_fault(
        &self,
        call: &EpisodeCall,
        fault: FaultClass,
        evidence: Option<&RequestEvidence<'_>>,
    ) -> Option<NextStep> {
        let container = call.container_name().and_then(command_word);
        let of_request = evidence.zip(container.as_deref());
        let of_request =
            of_request.and_then(|(evidence, container)| about_evidence(evidence, fault, container));
        if of_request.is_some() {
            return of_request;
        }
        if call.method == Method::PullImage
            && let Some(step) = self.about_image(call, fault)
        {
            return Some(step);
        }
        self.about_fault_of_container(call, fault, container)
            .or_else(|| self.about_fault_of_node(call, fault))
    }

    fn about_fault_of_container(
        &self,
        call: &EpisodeCall,
        fault: FaultClass,
        container: Option<String>,
    ) -> Option<NextStep> {
        let container = container?;
        let image = self.image(call.container_name()?);
        Some(match fault {
            FaultClass::MemoryLimit => {
                return self.about_memory(call.container_name()?, None);
            }
            FaultClass::CommandPath
            | FaultClass::CommandMissing
            | FaultClass::CommandOrInterpreterMissing => {
                NextStep::CheckCommand { container, image }
            }
            FaultClass::CommandDenied => NextStep::MakeExecutable { container },
            FaultClass::CommandFormat => NextStep::CheckArchitecture { container, image },
            FaultClass::User => NextStep::CheckUser { container, image },
            FaultClass::WorkingDir => NextStep::CheckWorkingDir { container },
            FaultClass::AppArmorGone | FaultClass::AppArmor => NextStep::LoadAppArmorProfile,
            FaultClass::Selinux => NextStep::CheckSelinux { container },
            FaultClass::CgroupLimit => NextStep::CheckLimits { container },
            FaultClass::Device => NextStep::CheckDevice,
            FaultClass::Mount | FaultClass::MountType => NextStep::CheckMount { container },
            FaultClass::SignatureOfContainer => NextStep::SignImage { image: image? },
            FaultClass::ImageGone => NextStep::PullByHand { image: image? },
            FaultClass::StoreBroken => NextStep::RemoveBrokenImage { image: image? },
            _ => return None,
        })
    }

    fn about_fault_of_node(&self, call: &EpisodeCall, fault: FaultClass) -> Option<NextStep> {
        let unit = self.runtime_unit(call);
        Some(match fault {
            FaultClass::RuntimeLost | FaultClass::RuntimeAway => NextStep::CheckRuntime { unit },
            FaultClass::NoSpace | FaultClass::NoInodes => NextStep::FreeDisk,
            FaultClass::SignaturePolicy | FaultClass::NodeHooks => NextStep::CheckPolicyFile,
            FaultClass::KernelLimit if says(call, "inotify") => NextStep::RaiseInotify,
            FaultClass::TooManyFiles if says(call, "inotify") => NextStep::RaiseInotify,
            FaultClass::TooManyFiles | FaultClass::Rlimit => NextStep::RaiseUnitLimit { unit },
            FaultClass::TooManyProcesses => NextStep::RaiseTasks { unit },
            FaultClass::KeyQuota => NextStep::RaiseKeys,
            FaultClass::Systemd => NextStep::ReadSystemdLog,
            FaultClass::ReadOnly | FaultClass::DiskError => NextStep::ReadKernelLog {
                pattern: "error|read-only",
            },
            FaultClass::BrokenMount => NextStep::RemountFilesystem,
            FaultClass::NoMemory => NextStep::FindMemoryUser,
            FaultClass::LocalService => NextStep::StartService,
            FaultClass::HostPort => NextStep::FindHostPort,
            FaultClass::Handler => NextStep::AddHandler {
                handler: command_word(call.handler.as_deref()?)?,
                runtime: self.runtime(call),
            },
            FaultClass::ProgramMissing
            | FaultClass::HelperOfContainer
            | FaultClass::Helper
            | FaultClass::ProgramBroken => NextStep::InstallProgram,
            FaultClass::Hook => NextStep::CheckOciHook,
            FaultClass::CgroupDriver | FaultClass::Cgroup => NextStep::CheckCgroupDriver {
                runtime: self.runtime(call),
            },
            FaultClass::Sysctl => NextStep::CheckSysctls,
            FaultClass::AppArmorFails => NextStep::ReadKernelLog {
                pattern: "apparmor",
            },
            FaultClass::Busy => NextStep::FindBlockedProcesses,
            FaultClass::Nri
            | FaultClass::OciRuntime
            | FaultClass::InitDied
            | FaultClass::ShimGone
            | FaultClass::PermissionDenied => NextStep::ReadRuntimeLog { unit },
            // The limits of the kernel that the text names have no common place, a quota belongs to the administrator who set it, and the kubelet
            // makes a new sandbox by itself.
            _ => return None,
        })
    }
}

/// What the request for a container shows.
fn about_evidence(
    evidence: &RequestEvidence<'_>,
    fault: FaultClass,
    container: &str,
) -> Option<NextStep> {
    let container = container.to_owned();
    Some(match evidence {
        RequestEvidence::HidingVolume(volume) => NextStep::CheckHidingVolume {
            container,
            path: command_word(&volume.path)?,
        },
        RequestEvidence::HoldingVolume(volume)
            if matches!(
                fault,
                FaultClass::CommandDenied | FaultClass::CommandMissing
            ) =>
        {
            let path = command_word(&volume.path)?;
            if volume.no_exec {
                NextStep::AllowExec { path }
            } else {
                NextStep::SetVolumeMode { path }
            }
        }
        RequestEvidence::HoldingVolume(volume) => NextStep::CheckHoldingVolume {
            container,
            path: command_word(&volume.path)?,
        },
        RequestEvidence::MemoryLimit(limit) => NextStep::RaiseMemory {
            container,
            limit: Some(*limit),
        },
        RequestEvidence::Rights(_) => NextStep::CheckSecurityContext { container },
        RequestEvidence::ReadOnlyRoot | RequestEvidence::ReadOnlyVolume(_) => {
            NextStep::MountWritable { container }
        }
        // The class of the fault has the step.
        RequestEvidence::PulledBefore(_) => return None,
    })
}

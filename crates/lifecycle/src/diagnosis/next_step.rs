//! What to do about a cause: the one step that an experienced colleague would take first, with the names filled in. `words::next_step`
//! makes the texts. A cause without a step that is surely right has none.

mod call;
mod containers;
mod context;
mod images;
mod kubelet;
mod network;
mod node;
mod rules;

pub(crate) use self::context::{PodPath, StepContext, command_word};

/// What a person does next. Names are quoted where a shell needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// Reads the output of a container. `previous`: of the run before the current one.
    ReadLogs {
        pod: PodPath,
        container: String,
        previous: bool,
    },
    /// Reads the events of the pod.
    DescribePod(PodPath),
    /// Finds out what the kubelet waits for before its first call. `pod`: if the name of the pod with this uid is known.
    FindWait {
        pod: Option<PodPath>,
        unit: String,
        uid: String,
    },
    /// Checks that a Secret or ConfigMap exists.
    GetObject {
        kind: &'static str,
        namespace: String,
        name: String,
    },

    ReadKubeletLog {
        unit: String,
    },
    CheckKubelet {
        unit: String,
    },
    CheckRuntime {
        unit: String,
    },
    ReadRuntimeLog {
        unit: String,
    },
    ReadCriscopeLog {
        unit: String,
    },
    ReadKernelLog {
        pattern: &'static str,
    },
    ReadSystemdLog,

    /// `limit`: the limit in bytes.
    RaiseMemory {
        container: String,
        limit: Option<u64>,
    },
    RaiseCpu {
        container: String,
        millis: u32,
    },
    FindMemoryUser,
    FindCpuUser,
    FindDiskUser,
    FreeDisk,

    /// Runs the probe in the container at this path.
    RunProbe {
        path: String,
    },
    RunPostStartHook {
        path: String,
    },
    /// Finds out what a hook waits for.
    CheckHook {
        container: String,
        hook: &'static str,
    },
    HandleSigterm {
        container: String,
    },

    CheckCommand {
        container: String,
        image: Option<String>,
    },
    MakeExecutable {
        container: String,
    },
    CheckArchitecture {
        container: String,
        image: Option<String>,
    },
    CheckUser {
        container: String,
        image: Option<String>,
    },
    RunAsOtherUser {
        container: String,
    },
    CheckWorkingDir {
        container: String,
    },
    /// A volume hides files of the image.
    CheckHidingVolume {
        container: String,
        path: String,
    },
    /// A volume lacks a file.
    CheckHoldingVolume {
        container: String,
        path: String,
    },
    SetVolumeMode {
        path: String,
    },
    /// The path is in a volume.
    AllowExec {
        path: String,
    },
    CheckSecurityContext {
        container: String,
    },
    MountWritable {
        container: String,
    },
    CheckLimits {
        container: String,
    },
    CheckSysctls,
    CheckSelinux {
        container: String,
    },
    LoadAppArmorProfile,
    CheckMount {
        container: String,
    },
    CheckDevice,

    AddPullSecret {
        host: String,
    },
    RaisePullLimit {
        host: String,
    },
    ListTags {
        repository: String,
    },
    InspectImage {
        image: String,
    },
    CheckImageAccess {
        image: String,
    },
    CorrectImageName {
        image: String,
    },
    BuildForPlatform {
        image: String,
    },
    PushImageAgain {
        image: String,
    },
    CopyImageElsewhere {
        image: String,
    },
    SignImage {
        image: String,
    },
    ProvideImageKey {
        image: String,
    },
    RemoveBrokenImage {
        image: String,
    },
    PullByHand {
        image: String,
    },
    PullInParallel,
    CheckPauseImage {
        runtime: String,
    },
    TryRegistry {
        url: String,
    },
    ResolveHost {
        host: String,
    },
    CheckCertificate {
        url: String,
    },
    AllowPlainHttp {
        host: String,
        runtime: String,
    },
    CheckProxy {
        unit: String,
    },

    CheckPluginAgent {
        agent: &'static str,
    },
    RestartPluginAgent {
        agent: &'static str,
    },
    InstallPlugin {
        plugin: String,
    },
    /// `range`: the addresses, as the plugin writes them.
    FreeAddresses {
        range: Option<String>,
    },
    CheckNetworkConfig,
    CheckInterface,
    CheckDhcp,
    CheckApi {
        host: String,
    },
    FindHostPort,

    AddHandler {
        handler: String,
        runtime: String,
    },
    CheckCgroupDriver {
        runtime: String,
    },
    InstallProgram,
    CheckOciHook,
    CheckPolicyFile,
    StartService,
    RemountFilesystem,
    RaiseUnitLimit {
        unit: String,
    },
    RaiseTasks {
        unit: String,
    },
    RaiseInotify,
    RaiseKeys,
    FindBlockedProcesses,
    ClearFaults,
}

impl NextStep {
    /// Returns whether the step needs the pod itself, not only its template.
    fn needs_pod(&self) -> bool {
        matches!(
            self,
            Self::ReadLogs { .. }
                | Self::DescribePod(_)
                | Self::RunProbe { .. }
                | Self::RunPostStartHook { .. }
                | Self::CheckHook { .. }
        )
    }
}

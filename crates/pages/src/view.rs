//! Views of stories: the JSON of `/debug/pods`, read back by `criscope pods` and `criscope explain`. Holds identity, times
//! and outcomes only.
//!
//! Times of day are microseconds since 1970-01-01 UTC; durations and offsets are milliseconds, with fractions.

use criscope_cri::units::times::UnixMicros;

pub mod call;
pub mod gaps;
mod listed;
mod loops;
mod pod_state;
mod pods;
mod pulls;
mod raw_message;
mod sessions;
mod tries;
mod verdict;

use serde::{Deserialize, Serialize};

pub use self::call::CallView;
pub use self::gaps::{BACK_OFF_PHASE, GapKind, WaitGap, WaterfallAxis};
pub use self::gaps::{WorkSpan, back_off_ms};
pub use self::listed::{ListedContainerView, ListedPodView};
pub use self::loops::crash_loops;
pub use self::pod_state::{PodReason, PodState};
pub use self::pods::{PodList, PodSummary, sort_pods};
pub use self::pulls::{ImagePullList, ImagePullView, LayerProgress, PullProgressView};
pub use self::raw_message::RawMessage;
pub use self::sessions::{OpenSessionView, SessionView};
pub use self::tries::{RepeatedTries, WaterfallItem, details, waterfall_items};
pub use self::verdict::{
    CauseGroup, NodeTrouble, NodeVerdict, PodTrouble, VerdictLevel, VerdictPart,
};

/// `/debug/pods?format=json`: recent episodes of all pods, the newest first, without their calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecentEpisodes {
    /// The time of this response.
    pub now_unix_us: UnixMicros,
    /// The episodes.
    pub episodes: Vec<EpisodeView>,
    /// Episodes evicted since the start of the process.
    pub forgotten: u64,
}

/// `/debug/pods/NAMESPACE/NAME?format=json`: the story of the pods of this name, the oldest episode first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodStory {
    /// The time of this response.
    pub now_unix_us: UnixMicros,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Why the pod was slow, or is not up, in one sentence: the headline of the episode that matters most now.
    pub headline: String,
    /// The kind of cause that the headline is about, as [`EpisodeView::cause`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The text of the error behind the cause, as the program that failed wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_message: Option<RawMessage>,
    /// What to do about it. Commands are in backticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The episodes, with their calls. A pod that was recreated under the same name has another uid.
    pub episodes: Vec<EpisodeView>,
    /// Sessions of exec, attach and port-forward: the ended ones, the oldest first, then the open ones likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<SessionView>,
    /// The exec probes of its containers that this process has seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeView>,
    /// The pod in the runtime's list, if that is what the headline is about: no call has named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listed: Option<ListedPodView>,
}

/// State of an episode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpisodeState {
    /// Calls may follow, and every failure was resolved.
    #[default]
    Open,
    /// Calls may follow, and a failure is unresolved: the kubelet tries again.
    Failing,
    /// Completed.
    Ok,
    /// The episode timed out, or ended with an error.
    Failed,
    /// The caller broke the episode off before it was complete, and nothing had failed: mostly the pod was deleted.
    Cancelled,
}

impl EpisodeState {
    /// The name in JSON, logs, spans and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Failing => "failing",
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    /// Returns whether it is not over.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Open | Self::Failing)
    }
}

/// A start, a restart or a stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EpisodeView {
    /// `start`, `restart` or `stop`.
    pub kind: String,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Pod uid.
    pub uid: String,
    /// Sandbox attempt; for a restart the container's restart count.
    pub attempt: u32,
    /// The container of a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// True if that container is known to be an ephemeral container, which was added to the running pod.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ephemeral: bool,
    /// The sandbox id, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Runtime handler; empty for the default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handler: String,
    /// Trace id, in hex. The trace exists if traces are exported.
    pub trace_id: String,
    /// The state.
    pub state: EpisodeState,
    /// The time at which its first call was received.
    pub began_unix_us: UnixMicros,
    /// From the begin to the end of its last call; up to now if a call is in flight, or if the episode is open and not complete.
    pub duration_ms: f64,
    /// Time from the moment at which the kubelet saw the pod to its first call; only for the pod's first sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_cri_ms: Option<f64>,
    /// The explanation of its time or failure, in one sentence.
    pub headline: String,
    /// The kind of cause that the headline is about: `image_pull_failed`, `slow_network`, `crash_loop`. Names are stable.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The text of the error behind the cause, as the program that failed wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_message: Option<RawMessage>,
    /// What to do about it. Commands are in backticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// The state that this cause means for its pod, if it decides one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause_state: Option<PodState>,
    /// Whose fault that cause is: `pod` for the pod's author, `node`, `cluster` or `registry`. Absent if nothing is the matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// The sentence on the crash loop or kill loop of one of its containers. Absent once the pod is stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_loop: Option<String>,
    /// What to do about that loop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_loop_next: Option<String>,
    /// The time at which its pod was found to be deleted without a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_unix_us: Option<UnixMicros>,
    /// Parts of the duration, which add up to the whole.
    pub phases: Vec<PhaseDuration>,
    /// The part of the phase `outside_cri` in which the kubelet waited before a retry.
    #[serde(default, skip_serializing_if = "is_zero_ms")]
    pub back_off_ms: f64,
    /// Calls repeated after a failure.
    pub retries: u32,
    /// Calls that failed.
    pub failures: u32,
    /// True if an image was pulled, successfully.
    pub pulled: bool,
    /// The calls in the order in which they were received; omitted in lists of episodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallView>,
    /// Calls that were dropped because there were too many.
    #[serde(default)]
    pub calls_forgotten: u32,
    /// The init containers that calls waited for; omitted in lists of episodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<InitContainerWaitView>,
    /// Exits of its containers that the kubelet or the runtime reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<ExitView>,
    /// OOM kills in its containers that the runtime reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub oom_kills: Vec<OomKillsView>,
    /// For a start: the end of its sandbox, if no call stopped it and the runtime reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_death: Option<SandboxDeathView>,
    /// The kubelet's own spans of its time; omitted in lists of episodes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kubelet: Vec<PodSyncView>,
}

/// A span of the kubelet's work on a pod, or several that failed in the same way one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodSyncView {
    /// `syncPod`, `syncTerminatingPod` or `syncTerminatedPod`.
    pub name: String,
    /// Time from the begin of the episode to the begin of the last span; negative if the span began before.
    pub offset_ms: f64,
    /// Duration of the last span.
    pub duration_ms: f64,
    /// Number of spans.
    pub tries: u32,
    /// The error, if they failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// An exec probe of a container, whose command the kubelet runs by ExecSync. Other probes make no CRI calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeView {
    /// Container name.
    pub container: String,
    /// Its restart count.
    pub attempt: u32,
    /// The timeout of the probe, in seconds.
    pub timeout_s: u32,
    /// Number of runs.
    pub runs: u64,
    /// Number of failed runs.
    pub failed: u64,
    /// Number of failed runs since the last success.
    pub failed_in_a_row: u32,
    /// Number of failed runs before the first success; 0 if there was none yet.
    #[serde(default)]
    pub failed_at_first: u32,
    /// End of the first successful run, if all runs before are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_success_unix_us: Option<UnixMicros>,
    /// The last run that took much longer than the timeout, because the runtime hung.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_hung: Option<HungProbeView>,
    /// `exit code N`, `timed out` or `could not be run`.
    pub last_result: String,
    /// End of the last run.
    pub last_unix_us: UnixMicros,
    /// Duration of the last run.
    pub last_ms: f64,
}

/// A run of a probe in which the runtime hung.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HungProbeView {
    /// Its begin.
    pub began_unix_us: UnixMicros,
    /// Its end.
    pub ended_unix_us: UnixMicros,
}

/// A container that had to exit before a call was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct InitContainerWaitView {
    /// Index of the call in the episode.
    pub before: usize,
    /// Begin of the wait, from the begin of the episode.
    pub offset_ms: f64,
    /// Length of the wait.
    pub duration_ms: f64,
    /// Container name.
    pub container: String,
}

/// A part of an episode's duration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseDuration {
    /// `sandbox`, `restore`, `network`, `image_pull`, `container_create`, `container_start`, `init_container`, `hook`, `checkpoint`,
    /// `container_stop`, `sandbox_stop`, `container_remove`, `sandbox_remove` or `outside_cri`.
    pub phase: String,
    /// Its length.
    pub ms: f64,
}

/// A piece of work that the runtime did for a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CallDetail {
    /// `cni` (a CNI plugin), `oci` (the OCI runtime), `helper` (another program that the runtime started), `blocked` (a
    /// process of the runtime that cannot go on), or `runtime` (a span or a step of the runtime itself).
    pub what: String,
    /// Name of the plugin, of the program, or of the span.
    pub name: String,
    /// The command of a CNI plugin: `ADD` or `DEL`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The activity: the program that it started (`iptables`), the command (`create`), or the operation that holds it up (`blocked in
    /// umount of /a/b (nfs)`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// Time from the begin of the episode.
    pub offset_ms: f64,
    /// Observed duration: to a period of the sampler for processes, else exact.
    pub duration_ms: f64,
    /// The kind of observation: `process` or `span` in another runtime, `runtime` for a step of the built-in one.
    pub source: String,
}

/// The exit of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExitView {
    /// Container name.
    pub container: String,
    /// Its restart count.
    pub attempt: u32,
    /// Exit code.
    pub code: i32,
    /// `completed`, `error`, `oom_killed`, `evicted`, `unknown` or `other`.
    pub reason: String,
    /// Duration of the run.
    pub ran_ms: f64,
    /// End of the run.
    pub at_unix_us: UnixMicros,
    /// True if a stop was requested during the run; then the code shows no fault.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ordered: bool,
    /// Who evicted it and why, if the runtime says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evicted: Option<String>,
    /// The signal that ended it, 0 if it exited by itself. Absent if only the code is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// An exit reason as people read it: `completed`, `OOMKilled`.
pub fn exit_reason_in_words(reason: &str) -> String {
    match reason {
        "oom_killed" => "OOMKilled".to_owned(),
        _ => reason.replace('_', " "),
    }
}

/// The OOM kills in a run of a container, which may have run on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OomKillsView {
    /// Container name.
    pub container: String,
    /// Its restart count.
    pub attempt: u32,
    /// Killed processes, if the runtime counts them; else the number of kills that its events can tell apart.
    pub kills: u32,
    /// The first kill.
    pub first_unix_us: UnixMicros,
    /// The last kill.
    pub last_unix_us: UnixMicros,
}

/// The end of a sandbox that no call has stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SandboxDeathView {
    /// The end of the sandbox.
    pub at_unix_us: UnixMicros,
    /// Exit code of its first process, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// True if its shim ended too.
    pub with_shim: bool,
}

fn is_zero_ms(ms: &f64) -> bool {
    *ms == 0.0
}

/// The 404 response for a pod without episodes and sessions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UnknownPod {
    /// The error, in one sentence.
    pub error: String,
    /// The requested namespace.
    pub namespace: String,
    /// The requested pod name.
    pub name: String,
    /// Number of known pods.
    pub known: usize,
    /// Pods with similar names, as `NAMESPACE/NAME`, the most similar first.
    pub near: Vec<String>,
    /// Possible reasons, and the state of the node: one sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Number of further pods with similar names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub more: Option<usize>,
}

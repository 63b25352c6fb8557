//! Stories as they are shown: the JSON of `/debug/pods`, read back by `criscope pods` and `criscope explain`. Holds
//! identity, times and outcomes only.
//!
//! Times of day are microseconds since 1970-01-01 UTC; durations and offsets are milliseconds, with fractions.

pub mod call;
mod loops;
mod sessions;

use serde::{Deserialize, Serialize};

pub use self::call::Call;
pub(crate) use self::loops::crash_loops;
pub use self::sessions::{OpenSession, Session};

/// `/debug/pods?format=json`: recent episodes of all pods, the newest first, without their calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recent {
    /// The time of this answer, in microseconds since 1970.
    pub now_unix_us: u64,
    /// The episodes.
    pub episodes: Vec<Episode>,
    /// Episodes that were forgotten to make room, since the start of the process.
    pub forgotten: u64,
}

/// `/debug/pods/NAMESPACE/NAME?format=json`: all that is remembered of the pods of this name, the oldest episode first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodStory {
    /// The time of this answer, in microseconds since 1970.
    pub now_unix_us: u64,
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Why it was slow, or is not up, in one sentence: that of the episode that matters most now.
    pub headline: String,
    /// The episodes, with their calls. Pods that were made anew under the same name have another uid.
    pub episodes: Vec<Episode>,
    /// Sessions of exec, attach and port-forward: those that have ended, the oldest first, then likewise those that are open.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<Session>,
}

/// How an episode stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Calls may still come; nothing has failed, or what failed is being tried again.
    #[default]
    Open,
    /// It reached its end.
    Ok,
    /// It was given up, or ended with an error.
    Failed,
}

/// A start, a restart or a stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Episode {
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
    /// The sandbox id, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<String>,
    /// Runtime handler; empty for the default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub handler: String,
    /// Trace id, in hex. The trace exists if traces are exported.
    pub trace_id: String,
    /// How it stands.
    pub state: State,
    /// When its first call entered, in microseconds since 1970.
    pub began_unix_us: u64,
    /// From there to the end of its last call; up to now if a call is in flight.
    pub duration_ms: f64,
    /// Where the time went and what went wrong, in one sentence.
    pub headline: String,
    /// A container that it started keeps ending, though nobody asks it to: the sentence on that. Absent once the pod is
    /// stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crash_loop: Option<String>,
    /// Parts of the duration; they add up to it.
    pub phases: Vec<Phase>,
    /// Calls made again after they had failed.
    pub retries: u32,
    /// Calls that failed.
    pub failures: u32,
    /// Whether an image was pulled.
    pub pulled: bool,
    /// Its calls in the order in which they entered; in lists of episodes left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<Call>,
    /// Calls that are no longer remembered, because there were too many.
    #[serde(default)]
    pub calls_forgotten: u32,
    /// The init containers that calls waited for; in lists of episodes left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<Wait>,
    /// What became of its containers afterwards, as far as the kubelet asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exits: Vec<Exit>,
}

/// A container that had to do its work before a call was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Wait {
    /// The place of the call among those of the episode.
    pub before: usize,
    /// When the call before it had ended and it ran, from the begin of the episode.
    pub offset_ms: f64,
    /// How long nothing else went on.
    pub duration_ms: f64,
    /// The container.
    pub container: String,
}

/// A part of an episode's duration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// `sandbox`, `network`, `image_pull`, `container_create`, `container_start`, `init_container`, `container_stop`,
    /// `sandbox_stop`, `container_remove`, `sandbox_remove` or `outside_cri`.
    pub phase: String,
    /// How long.
    pub ms: f64,
}

/// A piece of work that the runtime did for a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Detail {
    /// `cni` (a CNI plugin), `oci` (the OCI runtime), or `runtime` (a span or a step of the runtime itself).
    pub what: String,
    /// Name of the plugin, of the OCI runtime, or of the span.
    pub name: String,
    /// What it was doing: the program it had started (`iptables`), or the command (`create`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
    /// From the begin of the episode.
    pub offset_ms: f64,
    /// How long it was seen; to a period of the sampler for processes, exact for the others.
    pub duration_ms: f64,
    /// `process` or `span`, as it was seen of another runtime; `runtime` if the built-in one told it.
    pub source: String,
}

/// The end of a container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// The container.
    pub container: String,
    /// Its restart count.
    pub attempt: u32,
    /// Exit code.
    pub code: i32,
    /// `completed`, `error`, `oom_killed` or `other`.
    pub reason: String,
    /// How long it had run.
    pub ran_ms: f64,
    /// When it ended, in microseconds since 1970.
    pub at_unix_us: u64,
}

/// `/debug/images/pulls?format=json`: images that are being pulled, the longest first, and pulls that have ended, the
/// newest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pulls {
    /// The time of this answer, in microseconds since 1970.
    pub now_unix_us: u64,
    /// Under way.
    pub in_flight: Vec<Pull>,
    /// Exit, as far as the recorder remembers.
    pub recent: Vec<Call>,
}

/// The pull of an image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pull {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// How far the built-in runtime is with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

impl From<Call> for Pull {
    fn from(call: Call) -> Self {
        let progress = None;
        Self { call, progress }
    }
}

/// How far a pull of the built-in runtime is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The image, spelt out.
    pub image: String,
    /// Bytes of layers that are here.
    pub bytes: u64,
    /// Bytes of all layers; 0 until they are known.
    pub of_bytes: u64,
    /// How long nothing has come.
    pub idle_ms: f64,
    /// Its layers, from the bottom up.
    pub layers: Vec<Layer>,
}

/// A layer that is being pulled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layer {
    /// The digest of its unpacked content.
    pub digest: String,
    /// `waiting`, `fetching`, `unpacking`, `done` or `failed`.
    pub phase: String,
    /// Bytes that are here.
    pub bytes: u64,
    /// Bytes of all of it.
    pub of_bytes: u64,
    /// Bytes it has unpacked to.
    pub unpacked_bytes: u64,
}

/// The answer with status 404 for a pod of which nothing is remembered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Unknown {
    /// What is wrong, in one sentence.
    pub error: String,
    /// The namespace that was looked for.
    pub namespace: String,
    /// The pod name that was looked for.
    pub name: String,
    /// Pods that are remembered.
    pub known: usize,
    /// Those whose names are near, as `NAMESPACE/NAME`, the nearest first.
    pub near: Vec<String>,
}

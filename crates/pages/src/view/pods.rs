//! Pods in lists: one entry per pod, with its state now. Episodes of a crash loop, retries and restarts are one entry.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::pod_state::{PodReason, PodState};
use super::verdict::NodeVerdict;
use super::{EpisodeState, EpisodeView, RawMessage};
use criscope_cri::units::duration;
use criscope_cri::units::times::{UnixMicros, millis};

/// Starts, restarts and stops from this duration on need an explanation even without a failed call.
const QUICK_EPISODE_MS: f64 = 2_000.0;

/// An open start without a failure counts as waiting this long after its last call; before, it may be complete.
/// Longer than `story.quiet` is by default, which ends a start whose containers run.
const WAITING_AFTER_MS: f64 = 15_000.0;

/// `/debug/pods?format=json&by=pod`: the pods in memory, failing pods first, deleted pods last.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodList {
    /// The time of this response.
    pub now_unix_us: UnixMicros,
    /// The pods that the request asked for.
    pub pods: Vec<PodSummary>,
    /// The verdict over the node and all its pods in memory, also if the request asked for some of them.
    #[serde(default)]
    pub verdict: NodeVerdict,
    /// Number of pods in memory.
    pub known: usize,
    /// Episodes evicted since the start of the process.
    pub forgotten: u64,
}

/// A pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PodSummary {
    /// Kubernetes namespace.
    pub namespace: String,
    /// Pod name.
    pub name: String,
    /// Pod uid.
    pub uid: String,
    /// Its node, in lists of several nodes, which `kubectl criscope` makes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// The state now.
    pub state: PodState,
    /// Why it was slow, or is not up, in one sentence: the first line of `criscope explain`.
    pub reason: String,
    /// The kind of cause that the reason is about, as [`EpisodeView::cause`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cause: String,
    /// The text of the error behind the reason, as the program that failed wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_message: Option<RawMessage>,
    /// What to do about it. Commands are in backticks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// True if the reason is about a failure or a slow step.
    pub notable: bool,
    /// The time at which its first call in memory was received.
    pub began_unix_us: UnixMicros,
    /// Begin of its current state.
    pub since_unix_us: UnixMicros,
    /// Duration of its last start, restart or stop; up to now while that fails or waits; of a crash loop since its begin.
    pub duration_ms: f64,
    /// Container restarts, as the kubelet counts them: the highest counts that were seen.
    pub restarts: u32,
    /// Processes of its containers that the kernel killed for lack of memory, in its episodes in memory.
    #[serde(default)]
    pub oom_kills: u32,
    /// Number of its sandboxes that ended without a call that stopped them, in its episodes in memory.
    #[serde(default)]
    pub sandbox_deaths: u32,
    /// Failed calls of the episodes that make up its state.
    pub failures: u32,
    /// Number of its episodes in memory.
    pub episodes: usize,
    /// The episode that its state is about, without calls.
    pub episode: EpisodeView,
}

impl PodSummary {
    /// The pod of these episodes, with the sentence on what matters most now; `None` without any.
    pub fn from_episodes(
        mut episodes: Vec<EpisodeView>,
        reason: impl Into<PodReason>,
        now: UnixMicros,
    ) -> Option<Self> {
        let PodReason {
            text: reason,
            cause,
            raw_message,
            next,
            state: of_cause,
        } = reason.into();
        episodes.sort_by_key(|episode| Reverse(episode.began_unix_us));
        let newest = episodes.first()?;
        let (of_calls, shown) = state(&episodes);
        let state = of_calls.with_cause(of_cause);
        // All of a crash loop is one state.
        let since = episodes
            .iter()
            .filter(|other| other.crash_loop.is_some() && other.crash_loop == shown.crash_loop)
            .map(|other| other.began_unix_us)
            .chain([shown.began_unix_us])
            .min();
        let since = since.unwrap_or_default();
        let since = match state {
            PodState::Gone => shown.deleted_unix_us.unwrap_or(since),
            _ => since,
        };
        let duration_ms = match state {
            PodState::CrashLoop => millis(now.since(since)),
            _ => shown.lasting_ms(now),
        };
        let kills = episodes.iter().flat_map(|episode| &episode.oom_kills);
        let deaths = episodes
            .iter()
            .filter(|episode| episode.sandbox_death.is_some());
        let current = current(&episodes);
        let failures = current.iter().map(|episode| episode.failures).sum();
        Some(Self {
            namespace: newest.namespace.clone(),
            name: newest.name.clone(),
            uid: newest.uid.clone(),
            node: None,
            state,
            notable: !(matches!(state, PodState::Ok | PodState::Completed | PodState::Gone)
                || is_stopped_pod(state, shown))
                || failures > 0
                || shown.duration_ms >= QUICK_EPISODE_MS
                || !reason_is_of(&episodes, shown, &reason),
            reason,
            cause,
            raw_message,
            next,
            began_unix_us: episodes.iter().map(|episode| episode.began_unix_us).min()?,
            since_unix_us: since,
            duration_ms,
            restarts: restarts(&episodes),
            oom_kills: kills.map(|kills| kills.kills).fold(0, u32::saturating_add),
            sandbox_deaths: deaths.count().try_into().unwrap_or(u32::MAX),
            failures,
            episodes: episodes.len(),
            episode: shown.clone(),
        })
    }

    /// `NAMESPACE/NAME`
    pub fn path(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The place of its group in lists. A pod that was stopped as a whole is out of the way, as one that is gone.
    fn rank(&self) -> u8 {
        if is_stopped_pod(self.state, &self.episode) {
            return PodState::Gone.rank();
        }
        self.state.rank()
    }

    /// The duration in words; a dash if it is unknown.
    pub fn took(&self) -> String {
        if self.episodes == 0 && self.duration_ms == 0.0 {
            return "-".to_owned();
        }
        duration(self.duration_ms)
    }

    /// The time from which the age of its entry counts. For a pod that is gone it is the time of its stop.
    pub fn aged_from(&self) -> UnixMicros {
        match self.state {
            PodState::Gone => self.since_unix_us,
            _ => self.began_unix_us,
        }
    }
}

/// Returns whether a reason is about this episode, or about no slow episode.
fn reason_is_of(episodes: &[EpisodeView], shown: &EpisodeView, reason: &str) -> bool {
    shown.says(reason)
        || !episodes
            .iter()
            .any(|episode| episode.says(reason) && episode.duration_ms >= QUICK_EPISODE_MS)
}

/// Sorts a list: failing pods first, then pods that start or stop, stopped and deleted pods last. Within each group the newest comes first, or the
/// slowest.
pub fn sort_pods(pods: &mut [PodSummary], slowest: bool) {
    pods.sort_by(|a, b| {
        let newer = b.since_unix_us.cmp(&a.since_unix_us);
        let slower = b.duration_ms.total_cmp(&a.duration_ms);
        let order = if slowest { slower.then(newer) } else { newer };
        a.rank().cmp(&b.rank()).then(order)
    });
}

/// The episodes that make up the state of a pod now, the newest first: the newest stop, if nothing came after it; else the newest start
/// and the newest restart of each container since the sandbox was stopped.
fn current(episodes: &[EpisodeView]) -> Vec<&EpisodeView> {
    let mut current: Vec<&EpisodeView> = Vec::new();
    let newest = episodes
        .iter()
        .find(|episode| episode.kind != "stop" && episode.sandbox_id.is_some());
    for episode in episodes {
        if is_end_of_pod(episode) {
            if newest.is_some_and(|newest| is_of_earlier_sandbox(episode, newest)) {
                continue;
            }
            // A stop that was followed by a start is over.
            if current.is_empty() {
                current.push(episode);
            }
            break;
        }
        let is_known = current
            .iter()
            .any(|other| other.kind == episode.kind && other.container == episode.container);
        if episode.kind != "stop" && !is_known {
            current.push(episode);
        }
    }
    if current.is_empty() {
        current.extend(episodes.first());
    }
    current
}

/// Returns whether an episode is the stop of a pod, or a stop that is open or failed.
fn is_end_of_pod(episode: &EpisodeView) -> bool {
    let is_ok = episode.state == EpisodeState::Ok;
    episode.kind == "stop" && (stops_sandbox(episode) || !is_ok)
}

/// Returns whether a stop that began after a start or restart is the stop of the replaced sandbox.
fn is_of_earlier_sandbox(stop: &EpisodeView, newest: &EpisodeView) -> bool {
    stop.began_unix_us > newest.began_unix_us
        && stop.sandbox_id.is_some()
        && stop.sandbox_id != newest.sandbox_id
}

/// The state of a pod, and the episode that it is about. `episodes` is not empty, the newest first.
fn state(episodes: &[EpisodeView]) -> (PodState, &EpisodeView) {
    let current = current(episodes);
    let newest = current.first().copied().unwrap_or(&episodes[0]);
    let states = current.iter().enumerate().map(|(n, episode)| {
        let state = match episode.state_of_calls() {
            // A failed start or restart counts until a newer one succeeded.
            PodState::Failed if n > 0 && newest.state == EpisodeState::Ok => PodState::Ok,
            // A container that was added to the running pod is none of its own.
            _ if episode.ephemeral => PodState::Ok,
            state => state,
        };
        (state, *episode)
    });
    // The newest of several equal states counts.
    let worst = states.min_by_key(|(state, _)| (!state.is_trouble(), *state));
    worst.unwrap_or((PodState::Ok, newest))
}

impl EpisodeView {
    /// The duration; up to `now_unix_us` while the episode fails or waits.
    pub fn lasting_ms(&self, now_unix_us: UnixMicros) -> f64 {
        let so_far = millis(now_unix_us.since(self.began_unix_us));
        match self.state_of_calls() {
            PodState::Failing => so_far,
            PodState::Starting | PodState::Stopping
                if so_far - self.duration_ms > WAITING_AFTER_MS =>
            {
                so_far
            }
            _ => self.duration_ms,
        }
    }

    /// The state of a pod with this episode alone.
    pub fn pod_state(&self) -> PodState {
        self.state_of_calls().with_cause(self.cause_state)
    }

    /// The state that the calls show.
    fn state_of_calls(&self) -> PodState {
        let is_stop = self.kind == "stop";
        match self.state {
            EpisodeState::Failing => PodState::Failing,
            EpisodeState::Open if is_stop => PodState::Stopping,
            _ if self.crash_loop.is_some() => PodState::CrashLoop,
            EpisodeState::Open => PodState::Starting,
            EpisodeState::Failed if self.deleted_unix_us.is_some() => PodState::Gone,
            EpisodeState::Failed => PodState::Failed,
            EpisodeState::Ok
                if is_stop && (removes_sandbox(self) || self.deleted_unix_us.is_some()) =>
            {
                PodState::Gone
            }
            EpisodeState::Ok if is_stop && stops_sandbox(self) => PodState::Stopped,
            EpisodeState::Ok => PodState::Ok,
            EpisodeState::Cancelled => PodState::Gone,
        }
    }
}

/// Returns whether a pod of this state was stopped as a whole, as its newest episode shows.
pub(super) fn is_stopped_pod(state: PodState, newest: &EpisodeView) -> bool {
    state == PodState::Stopped && newest.kind == "stop" && stops_sandbox(newest)
}

/// Returns whether a stop removed the sandbox. A pod that only ended keeps it until the pod is deleted.
fn removes_sandbox(episode: &EpisodeView) -> bool {
    let mut phases = episode.phases.iter();
    phases.any(|phase| phase.phase == "sandbox_remove")
}

/// Returns whether a stop stopped the pod, not only a container.
fn stops_sandbox(episode: &EpisodeView) -> bool {
    let mut phases = episode.phases.iter();
    phases.any(|phase| matches!(&*phase.phase, "sandbox_stop" | "sandbox_remove"))
}

/// The sum over containers of the highest restart count seen.
fn restarts(episodes: &[EpisodeView]) -> u32 {
    let mut seen = HashMap::<&str, u32>::new();
    let restarts = episodes.iter().filter(|episode| episode.kind == "restart");
    let restarts = restarts.filter_map(|restart| {
        let container = restart.container.as_deref()?;
        Some((container, restart.attempt))
    });
    let exits = episodes.iter().flat_map(|episode| &episode.exits);
    let exits = exits.map(|exit| (&*exit.container, exit.attempt));
    for (container, attempt) in restarts.chain(exits) {
        let most = seen.entry(container).or_default();
        *most = attempt.max(*most);
    }
    seen.into_values().fold(0, u32::saturating_add)
}

#[cfg(test)]
mod tests;

//! One log line per closed episode, target `criscope::lifecycle`. Unknown fields, and phases that did not occur, are
//! omitted.

use super::episode_store::Episode;
use super::view::{self, State};
use crate::call::episode::Kind;

/// Writes one line at a level known at run time.
macro_rules! line {
    ($level:ident, $event:expr, $episode:ident) => {
        tracing::event!(
            target: "criscope::lifecycle",
            tracing::Level::$level,
            event = $event,
            trace_id = $episode.trace_id,
            pod.namespace = $episode.namespace,
            pod.name = $episode.name,
            pod.uid = $episode.uid,
            sandbox.id = $episode.sandbox_id.as_deref(),
            container.name = $episode.container.as_deref(),
            attempt = $episode.attempt,
            handler = (!$episode.handler.is_empty()).then_some(&*$episode.handler),
            outcome = outcome($episode.state),
            duration_ms = $episode.duration_ms,
            sandbox_ms = phase($episode, "sandbox"),
            network_ms = phase($episode, "network"),
            image_pull_ms = phase($episode, "image_pull"),
            container_create_ms = phase($episode, "container_create"),
            container_start_ms = phase($episode, "container_start"),
            init_container_ms = phase($episode, "init_container"),
            container_stop_ms = phase($episode, "container_stop"),
            sandbox_stop_ms = phase($episode, "sandbox_stop"),
            container_remove_ms = phase($episode, "container_remove"),
            sandbox_remove_ms = phase($episode, "sandbox_remove"),
            outside_cri_ms = phase($episode, "outside_cri"),
            pulled = $episode.pulled,
            calls = $episode.calls.len() as u64 + u64::from($episode.calls_forgotten),
            retries = $episode.retries,
            failures = $episode.failures,
            crash_loop = $episode.crash_loop.as_deref(),
            "{}",
            $episode.headline
        )
    };
}

/// The line of a closed episode.
pub(super) fn write(of: &Episode, episode: &view::Episode) {
    let event = match of.kind {
        Kind::Start => "pod.start.summary",
        Kind::Restart => "pod.restart.summary",
        // Only containers were stopped, not the pod; each call has its own line.
        Kind::Stop if of.is_tentative() => return,
        Kind::Stop => "pod.stop.summary",
    };
    match episode.state {
        State::Failed => line!(WARN, event, episode),
        State::Ok | State::Open if episode.crash_loop.is_some() => line!(WARN, event, episode),
        State::Ok | State::Open => line!(INFO, event, episode),
    }
}

fn outcome(state: State) -> &'static str {
    match state {
        State::Open => "open",
        State::Ok => "ok",
        State::Failed => "failed",
    }
}

fn phase(episode: &view::Episode, name: &str) -> Option<f64> {
    let mut phases = episode.phases.iter();
    phases.find(|p| p.phase == name).map(|p| p.ms)
}

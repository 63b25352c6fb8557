//! One line of the log per episode that is over, and a few while it keeps failing, target `criscope::lifecycle`. Fields are
//! named like the attributes of the span of the episode. Unknown fields, and phases that did not occur, are left out.

use super::episode_store::Episode;
use super::view::{self, EpisodeState};
use criscope_cri::call::episode::Kind;

/// Writes one line at a level known at run time.
macro_rules! line {
    ($level:ident, $event:expr, $episode:ident) => {
        tracing::event!(
            target: "criscope::lifecycle",
            tracing::Level::$level,
            event = $event,
            trace_id = $episode.trace_id,
            k8s.namespace.name = $episode.namespace,
            k8s.pod.name = $episode.name,
            k8s.pod.uid = $episode.uid,
            criscope.sandbox.id = $episode.sandbox_id.as_deref(),
            k8s.container.name = $episode.container.as_deref(),
            criscope.sandbox.attempt = $episode.container.is_none().then_some($episode.attempt),
            k8s.container.restart_count = $episode.container.is_some().then_some($episode.attempt),
            criscope.runtime_handler = (!$episode.handler.is_empty()).then_some(&*$episode.handler),
            criscope.outcome = $episode.state.name(),
            duration_ms = $episode.duration_ms,
            before_cri_ms = $episode.before_cri_ms,
            sandbox_ms = phase($episode, "sandbox"),
            restore_ms = phase($episode, "restore"),
            network_ms = phase($episode, "network"),
            image_pull_ms = phase($episode, "image_pull"),
            container_create_ms = phase($episode, "container_create"),
            container_start_ms = phase($episode, "container_start"),
            init_container_ms = phase($episode, "init_container"),
            hook_ms = phase($episode, "hook"),
            checkpoint_ms = phase($episode, "checkpoint"),
            container_stop_ms = phase($episode, "container_stop"),
            sandbox_stop_ms = phase($episode, "sandbox_stop"),
            container_remove_ms = phase($episode, "container_remove"),
            sandbox_remove_ms = phase($episode, "sandbox_remove"),
            outside_cri_ms = phase($episode, "outside_cri"),
            criscope.image.pulled = $episode.pulled,
            calls = $episode.calls.len() as u64 + u64::from($episode.calls_forgotten),
            criscope.retries = $episode.retries,
            failures = $episode.failures,
            crash_loop = $episode.crash_loop.as_deref(),
            raw_message = $episode.raw_message.as_ref().map(tracing::field::display),
            next = $episode.next.as_deref(),
            "{}",
            $episode.headline
        )
    };
}

/// The line of an episode that keeps failing.
pub(super) fn write_failing(of: &Episode, episode: &view::EpisodeView) {
    let event = match of.kind {
        Kind::Start => "pod.start.failing",
        Kind::Restart => "pod.restart.failing",
        Kind::Stop => "pod.stop.failing",
    };
    line!(WARN, event, episode);
}

/// The line of a closed episode.
pub(super) fn write(of: &Episode, episode: &view::EpisodeView) {
    let event = match of.kind {
        Kind::Start => "pod.start.summary",
        Kind::Restart => "pod.restart.summary",
        // Only containers were stopped, not the pod; each call has its own line.
        Kind::Stop if of.is_tentative() => return,
        Kind::Stop => "pod.stop.summary",
    };
    let is_bad = episode.state == EpisodeState::Failed || episode.crash_loop.is_some();
    if is_bad || of.is_long() {
        line!(WARN, event, episode)
    } else {
        line!(INFO, event, episode)
    }
}

fn phase(episode: &view::EpisodeView, name: &str) -> Option<f64> {
    let mut phases = episode.phases.iter();
    phases.find(|p| p.phase == name).map(|p| p.ms)
}

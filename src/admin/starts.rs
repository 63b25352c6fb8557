//! Pods as one waterfall: a row each, all on a common scale.

use maud::{Markup, html};

use super::links;
use super::waterfall::{self, WaterfallScale};
use crate::lifecycle::view::{EpisodeView, PodState, PodSummary};
use crate::units;
use crate::units::times::UnixMicros;

/// The rows under a legend and an axis.
pub(super) fn rows(pods: &[&PodSummary], now: UnixMicros) -> Markup {
    let scale = WaterfallScale::fitting(pods.iter().map(|pod| pod.episode.duration_ms));
    html! {
        (legend(pods))
        ol.starts {
            li.head aria-hidden="true" {
                span { "Pod" } span.took { "Took" } span { "State" } span.track-cell { (scale.axis()) }
            }
            @for pod in pods { (row(pod, scale, now)) }
        }
    }
}

/// All phases of a start, and others that occur.
fn legend(pods: &[&PodSummary]) -> Markup {
    let mut phases = waterfall::START_PHASES.to_vec();
    for phase in pods.iter().flat_map(|pod| &pod.episode.phases) {
        if !phases.contains(&phase.phase.as_str()) && phases.len() < 12 {
            phases.push(&phase.phase);
        }
    }
    waterfall::legend(phases)
}

fn row(pod: &PodSummary, scale: WaterfallScale, now: UnixMicros) -> Markup {
    let class = match pod.state {
        PodState::Failing | PodState::Failed => Some("failed"),
        PodState::CrashLoop => Some("loops"),
        PodState::Gone => Some("gone"),
        _ => None,
    };
    let since = pod.aged_from();
    html! {
        li class=[class] {
            span.pod { (links::pod(&pod.namespace, &pod.name)) (what(&pod.episode)) }
            span.took { (units::duration(pod.duration_ms)) }
            span.state { (state(pod.state)) }
            span.track-cell { (waterfall::stacked(&pod.episode, scale)) }
            span.why {
                @if pod.state == PodState::CrashLoop { span.warn { (pod.reason) } } @else { (pod.reason) }
                @if pod.restarts > 0 { " · " span.nw { (pod.restarts) @if pod.restarts == 1 { " restart" } @else { " restarts" } } }
                " " time.nw datetime=(units::rfc3339(since)) {
                    "· " @if pod.state == PodState::Gone { "gone " } (units::since(now.since(since)))
                }
            }
        }
    }
}

/// The subject of the row, unless it is the first start or the stop of the pod.
fn what(episode: &EpisodeView) -> Markup {
    html! {
        @match (episode.kind.as_str(), &episode.container, episode.attempt) {
            ("start", _, 1..) => { " " span.sub { "sandbox attempt " (episode.attempt) } },
            ("restart", Some(container), _) => { " " span.sub { (container) } },
            _ => {},
        }
    }
}

/// A state as a sign, a word and a colour.
pub(super) fn state(state: PodState) -> Markup {
    let word = state.word();
    html! {
        @match state {
            PodState::Failing | PodState::Failed => span.bad { "✗ " (word) },
            PodState::CrashLoop => span.warn { "↻ " (word) },
            PodState::Starting | PodState::Stopping => span.open { "… " (word) },
            PodState::Ok => span.good { "✓ " (word) },
            PodState::Gone => span.muted { "– " (word) },
        }
    }
}

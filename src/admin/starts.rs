//! Pods as one waterfall: a row each, all on a common scale.

use maud::{Markup, html};

use super::commands::with_code;
use super::links;
use super::verdict;
use super::waterfall::{self, WaterfallScale};
use crate::lifecycle::view::{EpisodeView, PodState, PodSummary, VerdictLevel};
use crate::units;
use crate::units::times::UnixMicros;

/// The rows under a legend and an axis.
pub(super) fn rows(pods: &[&PodSummary], now: UnixMicros) -> Markup {
    let scale = WaterfallScale::fitting(pods.iter().map(|pod| waterfall::work_ms(&pod.episode)));
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

/// The phases that occur, in their order of time.
fn legend(pods: &[&PodSummary]) -> Markup {
    let phases = pods.iter().flat_map(|pod| pod.episode.shown_phases());
    waterfall::legend(phases.map(|phase| phase.phase))
}

fn row(pod: &PodSummary, scale: WaterfallScale, now: UnixMicros) -> Markup {
    let class = match pod.level() {
        VerdictLevel::Bad => Some("failed"),
        VerdictLevel::Warning => Some("warned"),
        _ if pod.state == PodState::Gone => Some("gone"),
        _ => None,
    };
    let since = pod.aged_from();
    html! {
        li class=[class] {
            span.pod { (links::pod(&pod.namespace, &pod.name)) (what(&pod.episode)) }
            span.took { (pod.took()) }
            span.state { (state(pod.state)) }
            span.track-cell { (waterfall::stacked(&pod.episode, scale)) }
            span.why {
                span class=[class_of_reason(pod.level())] title=[&pod.next] { (pod.reason) }
                @if pod.restarts > 0 { " · " span.nw { (pod.restarts) @if pod.restarts == 1 { " restart" } @else { " restarts" } } }
                " " time.nw datetime=(units::rfc3339(since)) {
                    "· " @if pod.state == PodState::Gone { "gone " } (units::since(now.since(since)))
                }
                @if let Some(next) = pod.next.as_ref().filter(|_| pod.state.is_trouble()) {
                    span.step { strong { "next: " } (with_code(next)) }
                }
            }
        }
    }
}

/// A sentence has the colour of its severity; good news has none.
fn class_of_reason(level: VerdictLevel) -> Option<&'static str> {
    matches!(level, VerdictLevel::Bad | VerdictLevel::Warning).then(|| verdict::class(level))
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
            PodState::Stopped => span.warn { "■ " (word) },
            PodState::Starting | PodState::Stopping => span.open { "… " (word) },
            PodState::Ok => span.good { "✓ " (word) },
            PodState::Completed | PodState::Gone => span.muted { "– " (word) },
        }
    }
}

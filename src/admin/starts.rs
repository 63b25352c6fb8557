//! Episodes of several pods as one waterfall: one row each, all on a common scale.

use maud::{Markup, html};

use super::links;
use super::waterfall::{self, Scale};
use crate::lifecycle::view::{Episode, State, crash_loops};
use crate::units;

/// The rows under a legend and an axis.
pub(super) fn rows(episodes: &[&Episode], now: u64) -> Markup {
    let scale = Scale::fitting(episodes.iter().map(|episode| episode.duration_ms));
    let loops = crash_loops(episodes.iter().copied());
    html! {
        (legend(episodes))
        ol.starts {
            li.head aria-hidden="true" {
                span { "Pod" } span.took { "Took" } span { "State" } span.track-cell { (scale.axis()) }
            }
            @for (episode, crash_loop) in episodes.iter().zip(loops) { (row(episode, crash_loop, scale, now)) }
        }
    }
}

/// All phases of a start, and others that occur.
fn legend(episodes: &[&Episode]) -> Markup {
    let mut phases = waterfall::OF_STARTS.to_vec();
    for phase in episodes.iter().flat_map(|episode| &episode.phases) {
        if !phases.contains(&phase.phase.as_str()) && phases.len() < 12 {
            phases.push(&phase.phase);
        }
    }
    waterfall::legend(phases)
}

fn row(episode: &Episode, crash_loop: Option<&str>, scale: Scale, now: u64) -> Markup {
    let class = match episode.state {
        State::Failed => Some("failed"),
        _ if episode.is_undone() => Some("loops"),
        State::Ok | State::Open => None,
    };
    html! {
        li class=[class] {
            span.pod { (links::pod(&episode.namespace, &episode.name)) (what(episode)) }
            span.took { (units::duration(episode.duration_ms)) }
            span.state { (state(episode)) }
            span.track-cell { (waterfall::stacked(episode, scale)) }
            span.why {
                @if let Some(text) = crash_loop { span.warn { (text) } "; " }
                (episode.headline) " "
                time.nw datetime=(units::rfc3339(episode.began_unix_us)) {
                    "· " (units::since(now, episode.began_unix_us))
                }
            }
        }
    }
}

/// The kind of an episode other than a first start.
fn what(episode: &Episode) -> Markup {
    html! {
        @match (episode.kind.as_str(), &episode.container, episode.attempt) {
            ("start", _, 0) => {},
            ("start", _, attempt) => { " " span.sub { "sandbox " (attempt + 1) } },
            ("restart", Some(container), attempt) => { " " span.sub { (container) ", restart " (attempt) } },
            (kind, ..) => { " " span.sub { (kind) } },
        }
    }
}

/// The state of an episode as a sign, a word and a colour.
pub(super) fn state(episode: &Episode) -> Markup {
    html! {
        @match episode.state {
            _ if episode.is_undone() => span.warn { "↻ crash loop" },
            State::Ok => span.good { "✓ ok" },
            State::Failed => span.bad { "✗ failed" },
            State::Open => span.open { "… open" },
        }
    }
}

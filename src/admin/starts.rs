//! Episodes of several pods as one waterfall: one row each, all on a common scale.

use std::fmt::Write as _;

use super::links;
use super::page::Escaped;
use super::waterfall::{self, Scale};
use crate::lifecycle::view::{Episode, State, crash_loops};
use crate::units;

/// The rows under a legend and an axis.
pub(super) fn rows(episodes: &[&Episode], now: u64) -> String {
    let scale = Scale::fitting(episodes.iter().map(|episode| episode.duration_ms));
    let mut html = legend(episodes);
    let _ = write!(
        html,
        "<ol class=\"starts\"><li class=\"head\" aria-hidden=\"true\"><span>Pod</span><span class=\"took\">Took</span>\
         <span>State</span><span class=\"track-cell\">{}</span></li>",
        scale.axis()
    );
    let loops = crash_loops(episodes.iter().copied());
    for (episode, crash_loop) in episodes.iter().zip(loops) {
        row(&mut html, episode, crash_loop, scale, now);
    }
    html.push_str("</ol>");
    html
}

/// What is there to be explained: all phases of a start, and others that occur.
fn legend(episodes: &[&Episode]) -> String {
    let mut phases = waterfall::OF_STARTS.to_vec();
    for phase in episodes.iter().flat_map(|episode| &episode.phases) {
        if !phases.contains(&phase.phase.as_str()) && phases.len() < 12 {
            phases.push(&phase.phase);
        }
    }
    waterfall::legend(phases)
}

fn row(html: &mut String, episode: &Episode, crash_loop: Option<&str>, scale: Scale, now: u64) {
    let class = match episode.state {
        State::Failed => " class=\"failed\"",
        _ if episode.is_undone() => " class=\"loops\"",
        State::Ok | State::Open => "",
    };
    let crash_loop = crash_loop.map_or_else(String::new, |text| {
        format!("<span class=\"warn\">{}</span>; ", Escaped(text))
    });
    let _ = write!(
        html,
        "<li{class}><span class=\"pod\">{}{}</span><span class=\"took\">{}</span><span class=\"state\">{}</span>\
         <span class=\"track-cell\">{}</span><span class=\"why\">{crash_loop}{}{}</span></li>",
        links::pod(&episode.namespace, &episode.name),
        what(episode),
        units::duration(episode.duration_ms),
        state(episode),
        waterfall::stacked(episode, scale),
        Escaped(&episode.headline),
        since(episode, now),
    );
}

/// What kind of episode it is, if it is no first start.
fn what(episode: &Episode) -> String {
    match (episode.kind.as_str(), &episode.container, episode.attempt) {
        ("start", _, 0) => String::new(),
        ("start", _, attempt) => format!(" <span class=\"sub\">sandbox {}</span>", attempt + 1),
        ("restart", Some(container), attempt) => format!(
            " <span class=\"sub\">{}, restart {attempt}</span>",
            Escaped(container)
        ),
        (kind, ..) => format!(" <span class=\"sub\">{}</span>", Escaped(kind)),
    }
}

/// How it stands: a sign, a word and a colour.
pub(super) fn state(episode: &Episode) -> &'static str {
    match episode.state {
        _ if episode.is_undone() => "<span class=\"warn\">↻ crash loop</span>",
        State::Ok => "<span class=\"good\">✓ ok</span>",
        State::Failed => "<span class=\"bad\">✗ failed</span>",
        State::Open => "<span class=\"open\">… open</span>",
    }
}

fn since(episode: &Episode, now: u64) -> String {
    let since = units::since(now, episode.began_unix_us);
    format!(
        " <time class=\"nw\" datetime=\"{}\">· {since}</time>",
        units::rfc3339(episode.began_unix_us)
    )
}

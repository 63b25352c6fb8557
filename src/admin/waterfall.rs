//! Bars: the phases of a start one after the other, and calls at their place in time. They are SVG with lengths in
//! percent, which need neither a script nor an inline style; each has its numbers as text too.

use std::collections::BTreeSet;

use maud::{Markup, html};

use crate::lifecycle::view::{BACK_OFF_PHASE, EpisodeView, PhaseDuration, WaterfallAxis};
use crate::units;

/// Name, CSS class (`style.css`) and label of each phase.
const PHASES: [(&str, &str, &str); 15] = [
    ("sandbox", "sandbox", "create sandbox"),
    ("restore", "sandbox", "restore pod"),
    ("network", "network", "set up network"),
    ("image_pull", "pull", "pull image"),
    ("container_create", "create", "create container"),
    ("container_start", "start", "start container"),
    ("init_container", "init", "run init container"),
    ("hook", "hook", "run hook"),
    ("checkpoint", "frozen", "frozen for a checkpoint"),
    ("container_stop", "cstop", "stop container"),
    ("sandbox_stop", "sstop", "stop sandbox"),
    ("container_remove", "cremove", "remove container"),
    ("sandbox_remove", "sremove", "remove sandbox"),
    ("outside_cri", "outside", "outside CRI"),
    (BACK_OFF_PHASE, "backoff", "kubelet back-off"),
];

/// CSS class and label of a phase.
pub(super) fn look(phase: &str) -> (&'static str, &str) {
    PHASES
        .iter()
        .find(|(name, _, _)| *name == phase)
        .map_or(("other", phase), |(_, class, word)| (class, word))
}

/// The phase whose colour a call has.
pub(super) fn phase_of(method: &str) -> &'static str {
    match method {
        "RunPodSandbox" => "sandbox",
        "RestorePod" => "restore",
        "PullImage" => "image_pull",
        "CreateContainer" => "container_create",
        "StartContainer" => "container_start",
        "ExecSync" => "hook",
        "CheckpointPod" | "CheckpointContainer" => "checkpoint",
        "StopContainer" => "container_stop",
        "StopPodSandbox" => "sandbox_stop",
        "RemoveContainer" => "container_remove",
        "RemovePodSandbox" => "sandbox_remove",
        _ => "other",
    }
}

/// The legend of the textures of these phases, each once: those of a start in their order, then any other.
pub(super) fn legend(phases: impl IntoIterator<Item = String>) -> Markup {
    let shown: BTreeSet<_> = phases.into_iter().collect();
    let known = PHASES.iter().filter(|(name, ..)| shown.contains(*name));
    let known = known.map(|(_, class, word)| (*class, *word));
    let mut others = shown.iter().filter(|name| look(name).0 == "other");
    let has_others = others.next().is_some();
    html! {
        ul.legend aria-label="Legend of the bars" {
            @for (class, word) in known { li { (key(class)) (word) } }
            @if has_others { li { (key("other")) "other" } }
        }
    }
}

/// The texture of a phase in a legend.
pub(super) fn key(class: &str) -> Markup {
    html! {
        svg.key width="18" height="10" aria-hidden="true" { rect class={ "ph " (class) } width="18" height="10" {} }
    }
}

/// The scale that all bars of a list share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WaterfallScale {
    /// Milliseconds at the right end.
    pub(super) end: f64,
}

/// Bars longer than this multiple of the median are cut: otherwise one start of half an hour makes all others dots.
const MAX_MEDIAN_MULTIPLE: f64 = 8.0;

impl WaterfallScale {
    /// A scale that fits these durations, in milliseconds, and ends at a round number.
    pub(super) fn fitting(durations: impl IntoIterator<Item = f64>) -> Self {
        let mut durations: Vec<_> = durations.into_iter().filter(|ms| *ms > 0.0).collect();
        durations.sort_by(f64::total_cmp);
        let longest = durations.last().copied().unwrap_or(1000.0);
        let middle = durations
            .get(durations.len() / 2)
            .copied()
            .unwrap_or(longest);
        // A bar that is only a little longer is not cut.
        let end = match middle * MAX_MEDIAN_MULTIPLE {
            cut if longest > 2.0 * cut => cut,
            _ => longest,
        };
        Self { end: round_up(end) }
    }

    /// A scale that ends exactly here.
    pub(super) fn to(ms: f64) -> Self {
        Self { end: ms.max(0.001) }
    }

    /// A position on it, in percent.
    fn percent(self, ms: f64) -> f64 {
        (ms / self.end * 100.0).clamp(0.0, 100.0)
    }

    /// Numbers at the quarters.
    pub(super) fn axis(self) -> Markup {
        html! {
            div.axis aria-hidden="true" {
                span { "0" }
                @for quarter in 1..=4 { span { (units::duration(self.end * f64::from(quarter) / 4.0)) } }
            }
        }
    }
}

/// Rounds up to one of 1, 2, 4, 6, 8, 10, 20, 40, ..., above a minute in minutes: their quarters are easily read.
fn round_up(ms: f64) -> f64 {
    let mut step = if ms > 60_000.0 { 60_000.0 } else { 1.0 };
    loop {
        let nice = [1.0, 2.0, 4.0, 6.0, 8.0];
        if let Some(nice) = nice.iter().find(|nice| step * **nice >= ms) {
            return step * nice;
        }
        step *= 10.0;
        if step > 1e15 {
            return ms;
        }
    }
}

/// Milliseconds of an episode without those in which the kubelet backs off.
pub(super) fn work_ms(episode: &EpisodeView) -> f64 {
    let phases = episode.shown_phases().into_iter();
    let work = phases.filter(|phase| phase.phase != BACK_OFF_PHASE);
    work.map(|phase| phase.ms).fold(0.0, |a, b| a + b)
}

/// The phases of an episode, one after the other, on a scale. Back-off comes last, and is cut where the scale ends.
pub(super) fn stacked(episode: &EpisodeView, scale: WaterfallScale) -> Markup {
    let phases = episode.shown_phases();
    let total: f64 = phases.iter().map(|phase| phase.ms).sum();
    let cut = total > scale.end * 1.001;
    // In a bar whose work alone is too long the parts keep their proportions.
    let scale = if cut && work_ms(episode) > scale.end {
        WaterfallScale::to(total)
    } else {
        scale
    };
    let starts = phases.iter().scan(0.0, |end, phase| {
        let start = *end;
        *end += phase.ms;
        Some(start)
    });
    html! {
        svg.bar width="100%" height="14" role="img" aria-label=(in_words(&phases, cut)) {
            @for (phase, start) in phases.iter().zip(starts).filter(|(_, start)| *start < scale.end) {
                @let (class, word) = look(&phase.phase);
                @let (from, to) = (scale.percent(start), scale.percent(start + phase.ms));
                (rect(class, (from, to), &format!("{word}: {}", units::duration(phase.ms))))
            }
            @if cut {
                svg x="100%" overflow="visible" { path.cut d="M-16 -1l6 8l-6 8h5l6-8l-6-8z" {} }
            }
        }
    }
}

/// `network 9.50 s, sandbox 330 ms`, longest first.
pub(super) fn in_words(phases: &[PhaseDuration], cut: bool) -> String {
    let mut phases: Vec<_> = phases.iter().filter(|phase| phase.ms > 0.0).collect();
    phases.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    let words: Vec<_> = phases
        .iter()
        .map(|phase| format!("{} {}", look(&phase.phase).1, units::duration(phase.ms)))
        .collect();
    let mut text = words.join(", ");
    if text.is_empty() {
        text.push_str("no time yet");
    }
    if cut {
        text.push_str("; longer than the scale");
    }
    text
}

/// One bar at its place in time, with the class of its phase and of its state.
pub(super) fn placed(
    class: &str,
    (at, ms): (f64, f64),
    axis: &WaterfallAxis,
    words: &str,
) -> Markup {
    several(class, [(at, ms)], axis, words)
}

/// Several bars of one kind on one line. Where the axis is compressed, the line has a band.
pub(super) fn several(
    class: &str,
    bars: impl IntoIterator<Item = (f64, f64)>,
    axis: &WaterfallAxis,
    words: &str,
) -> Markup {
    let lines = if axis.is_compressed() {
        "bar free"
    } else {
        "bar"
    };
    html! {
        svg class=(lines) width="100%" height="12" role="img" aria-label=(words) {
            @for (from, to) in axis.bands() {
                rect.band x=(format_args!("{:.2}%", from * 100.0)) width=(format_args!("{:.2}%", (to - from) * 100.0)) height="100%" {}
            }
            @for (at, ms) in bars {
                (rect(class, (axis.place(at) * 100.0, axis.place(at + ms) * 100.0), words))
            }
        }
    }
}

/// The numbers of an axis: at the quarters if it is linear, else where a part of it begins.
pub(super) fn axis(axis: &WaterfallAxis) -> Markup {
    let marks = axis.marks();
    let last = marks.len().saturating_sub(1);
    html! {
        svg.marks width="100%" height="14" aria-hidden="true" {
            @for (n, ms) in marks.into_iter().enumerate() {
                @let anchor = match n { 0 => "start", n if n == last => "end", _ => "middle" };
                text class=[(n % 2 == 1 && n != last).then_some("opt")] x=(format_args!("{:.2}%", axis.place(ms) * 100.0)) y="11" text-anchor=(anchor) {
                    @if n == 0 { "0" } @else { (units::duration(ms)) }
                }
            }
        }
    }
}

/// The used part of a deadline.
pub(super) fn gauge(percent: u64, words: &str) -> Markup {
    let class = match percent {
        90.. => "high",
        50..90 => "half",
        _ => "low",
    };
    html! {
        svg.gauge width="100%" height="6" role="img" aria-label=(words) {
            rect.track width="100%" height="6" rx="3" {}
            rect class=(class) width={ (percent.min(100)) "%" } height="6" rx="3" {}
        }
    }
}

/// A rectangle between two places in percent.
fn rect(class: &str, (from, to): (f64, f64), title: &str) -> Markup {
    // Next to no time is a thin line, not nothing.
    let (from, width) = (from.min(99.7), (to - from).max(0.3));
    html! {
        rect class={ "ph " (class) } x=(format_args!("{from:.2}%")) width=(format_args!("{width:.2}%")) height="100%" {
            title { (title) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::examples;

    #[test]
    fn scales_end_at_round_numbers_and_one_giant_does_not_hide_the_rest() {
        assert_eq!(WaterfallScale::fitting([14_200.0]).end, 20_000.0);
        assert_eq!(WaterfallScale::fitting([900.0, 1100.0, 1500.0]).end, 2000.0);
        assert_eq!(WaterfallScale::fitting([]).end, 1000.0);
        assert_eq!(WaterfallScale::fitting([130_000.0]).end, 240_000.0);
        let scale = WaterfallScale::fitting([1000.0, 1100.0, 1200.0, 1_800_000.0]);
        assert_eq!(scale.end, 10_000.0);
        assert!(round_up(f64::MAX).is_finite());
    }

    #[test]
    fn the_parts_fill_their_bar() {
        let episode = examples::slow_cni();
        let html = stacked(&episode, WaterfallScale::fitting([episode.duration_ms])).into_string();
        assert!(html.contains("aria-label=\"set up network 9.50 s, pull image 3.20 s,"));
        // 330 ms of 20 s, and the network after it.
        assert!(html.contains("class=\"ph sandbox\" x=\"0.00%\" width=\"1.65%\""));
        assert!(html.contains("class=\"ph network\" x=\"1.65%\" width=\"47.50%\""));
        assert!(!html.contains("class=\"cut\""));
        // Neither a phase that did not occur nor a time without work stretches the scale.
        let failing = EpisodeView {
            back_off_ms: 14_100.0,
            ..examples::failed_image()
        };
        assert_eq!(work_ms(&failing), 2800.0);
        let html = stacked(&failing, WaterfallScale::to(4000.0)).into_string();
        assert!(
            html.contains("class=\"ph pull\" x=\"7.50%\" width=\"45.00%\""),
            "{html}"
        );
        assert!(html.contains("class=\"ph backoff\"") && html.contains("class=\"cut\""));
        let html = stacked(&episode, WaterfallScale::to(1000.0)).into_string();
        assert!(html.contains("class=\"cut\"") && html.contains("longer than the scale"));
    }

    #[test]
    fn foreign_phases_stay_text() {
        let html = stacked(&examples::hostile(), WaterfallScale::to(6.0)).into_string();
        assert!(!html.contains("<script"), "{html}");
        assert!(html.contains("&quot;&gt;&lt;script&gt;"));
    }

    #[test]
    fn every_phase_has_its_paint() {
        for (_, class, _) in PHASES {
            let rule = format!(".{class}{{fill:");
            assert!(super::super::page::STYLE.contains(&rule), "{rule}");
        }
    }
}

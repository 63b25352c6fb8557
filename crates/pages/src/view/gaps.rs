//! Gaps between the calls of an episode, and the axis of its waterfall: it gives the room to work, and little to the time in which the
//! kubelet waits before it tries again.

use criscope_cri::units;

use super::{EpisodeState, EpisodeView, PhaseDuration};

/// Shorter gaps between calls are the kubelet's own work.
pub const MIN_GAP_MS: f64 = 1_000.0;

/// The phase in [`EpisodeView::shown_phases`] that is the part of `outside_cri` in which the kubelet backs off.
pub const BACK_OFF_PHASE: &str = "back_off";

/// The phase without any call.
const OUTSIDE_CRI_PHASE: &str = "outside_cri";

/// Share of a compressed axis for everything before the last try.
const EARLIER_SHARE: f64 = 0.22;

/// Share of a compressed axis for a gap.
const GAP_SHARE: f64 = 0.16;

/// A last try that takes a smaller share of the duration cannot be read on a linear axis.
const MIN_READABLE_SHARE: f64 = 0.25;

/// A call, or the run of an init container, on the time line of an episode. Times are offsets in the episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkSpan {
    /// Its begin.
    pub begin_ms: f64,
    /// Its end.
    pub end_ms: f64,
    /// Set if it failed.
    pub failed: bool,
}

/// Reason for a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapKind {
    /// A call failed, and the kubelet waits before it tries again.
    BackOff,
    /// The kubelet waits for something that is not in the CRI, or works itself.
    OutsideCri,
}

/// A time in which no call runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitGap {
    /// Begin, as an offset in the episode.
    pub begin_ms: f64,
    /// End, as an offset in the episode; now if no call followed.
    pub end_ms: f64,
    /// Reason for the gap.
    pub kind: GapKind,
    /// Set if a call followed.
    pub is_over: bool,
}

impl WaitGap {
    /// Length of the gap.
    pub fn duration_ms(&self) -> f64 {
        self.end_ms - self.begin_ms
    }

    /// The reason in two words: `kubelet waits`, or `outside CRI`.
    pub const fn name(&self) -> &'static str {
        match self.kind {
            GapKind::BackOff => "kubelet waits",
            GapKind::OutsideCri => "outside CRI",
        }
    }

    /// The name and the length: `kubelet waits 1m 18s`.
    pub fn label(&self) -> String {
        let so_far = if self.is_over { "" } else { " so far" };
        let time = units::duration(self.duration_ms());
        format!("{} {time}{so_far}", self.name())
    }

    /// Returns whether the waterfall has a line for the gap.
    fn is_shown(&self, axis: &WaterfallAxis) -> bool {
        self.kind == GapKind::BackOff || axis.is_compressed()
    }
}

/// The gaps between these spans, and the one after them until `end_ms`.
pub fn gaps(mut spans: Vec<WorkSpan>, end_ms: f64) -> Vec<WaitGap> {
    spans.sort_by(|a, b| a.begin_ms.total_cmp(&b.begin_ms));
    let mut gaps = Vec::new();
    let Some(first) = spans.first() else {
        return gaps;
    };
    // The span that ends last so far.
    let mut last = *first;
    for span in spans.into_iter().skip(1) {
        gaps.extend(gap(last, span.begin_ms, true));
        if span.end_ms >= last.end_ms {
            last = span;
        }
    }
    gaps.extend(gap(last, end_ms, false));
    gaps
}

fn gap(before: WorkSpan, end_ms: f64, is_over: bool) -> Option<WaitGap> {
    let kind = if before.failed {
        GapKind::BackOff
    } else {
        GapKind::OutsideCri
    };
    (end_ms - before.end_ms >= MIN_GAP_MS).then_some(WaitGap {
        begin_ms: before.end_ms,
        end_ms,
        kind,
        is_over,
    })
}

/// Time in which the kubelet backs off.
pub fn back_off_ms(spans: Vec<WorkSpan>, end_ms: f64) -> f64 {
    let gaps = gaps(spans, end_ms).into_iter();
    let gaps = gaps.filter(|gap| gap.kind == GapKind::BackOff);
    gaps.map(|gap| gap.duration_ms()).fold(0.0, |a, b| a + b)
}

impl EpisodeView {
    /// The calls and the runs of init containers.
    fn spans(&self) -> Vec<WorkSpan> {
        let calls = self.calls.iter().map(|call| WorkSpan {
            begin_ms: call.offset_ms,
            end_ms: call.offset_ms + call.duration_ms,
            failed: call.is_failed(),
        });
        let waits = self.waits.iter().map(|wait| WorkSpan {
            begin_ms: wait.offset_ms,
            end_ms: wait.offset_ms + wait.duration_ms,
            failed: false,
        });
        calls.chain(waits).collect()
    }

    /// The gaps between its calls that the waterfall has a line for, in order.
    pub(super) fn shown_gaps(&self) -> Vec<WaitGap> {
        let axis = WaterfallAxis::from_episode(self);
        let mut gaps = gaps(self.spans(), self.duration_ms);
        gaps.retain(|gap| gap.is_shown(&axis));
        gaps
    }

    /// The phases, with the time in which the kubelet backs off apart from the rest of the time outside the CRI.
    pub fn shown_phases(&self) -> Vec<PhaseDuration> {
        let mut phases = self.phases.clone();
        let mut outside = phases.iter_mut();
        let Some(outside) = outside.find(|phase| phase.phase == OUTSIDE_CRI_PHASE) else {
            return phases;
        };
        let back_off = self.back_off_ms.min(outside.ms);
        if back_off <= 0.0 {
            return phases;
        }
        outside.ms -= back_off;
        phases.retain(|phase| phase.phase != OUTSIDE_CRI_PHASE || phase.ms > 0.0);
        phases.push(PhaseDuration {
            phase: BACK_OFF_PHASE.to_owned(),
            ms: back_off,
        });
        phases
    }

    /// Returns whether nothing of it failed for good, and it is not being tried again.
    fn is_fine(&self) -> bool {
        self.state == EpisodeState::Ok || self.failures == 0
    }
}

/// Axis of the waterfall of an episode: places for its times. Linear, unless the episode mostly waited: then the last try has most of
/// the axis, everything before it is drawn small, and a gap has a fixed width.
#[derive(Clone, Debug, PartialEq)]
pub struct WaterfallAxis {
    /// Offsets in the episode with their places from 0 to 1; both grow.
    knots: Vec<(f64, f64)>,
    bands: Vec<(f64, f64)>,
}

impl WaterfallAxis {
    /// The axis of an episode with its calls.
    pub fn from_episode(episode: &EpisodeView) -> Self {
        let spans = episode.spans();
        let details = episode.calls.iter().flat_map(|call| &call.details);
        let details = details.map(|detail| detail.offset_ms + detail.duration_ms);
        let syncs = episode.kubelet.iter();
        let syncs = syncs.map(|sync| sync.offset_ms + sync.duration_ms);
        let ends = spans.iter().map(|span| span.end_ms);
        let ends = ends.chain(details).chain(syncs);
        let end_ms = ends.fold(episode.duration_ms.max(0.001), f64::max);
        let gaps = gaps(spans, episode.duration_ms);
        Self::compressed(&gaps, end_ms, episode.is_fine()).unwrap_or(Self {
            knots: vec![(0.0, 0.0), (end_ms, 1.0)],
            bands: Vec::new(),
        })
    }

    fn compressed(gaps: &[WaitGap], end_ms: f64, is_fine: bool) -> Option<Self> {
        let waited = gaps.iter().map(WaitGap::duration_ms);
        let waited = waited.fold(0.0, |a, b| a + b);
        let before = last_gap(gaps);
        let after = gaps.last().filter(|gap| !gap.is_over);
        let last_try = (
            before.map_or(0.0, |gap| gap.end_ms),
            after.map_or(end_ms, |gap| gap.begin_ms),
        );
        let share = (last_try.1 - last_try.0) / end_ms;
        let mostly_waited = waited > end_ms / 2.0;
        let is_hidden = !is_fine && before.is_some() && share < MIN_READABLE_SHARE;
        if !mostly_waited && !is_hidden {
            return None;
        }
        let mut knots = vec![(0.0, 0.0)];
        let mut bands = Vec::new();
        if let Some(gap) = before {
            // A call that failed at once, before the gap, still has its tick.
            knots.push((gap.begin_ms, EARLIER_SHARE));
            knots.push((gap.end_ms, EARLIER_SHARE + GAP_SHARE));
            bands.push((EARLIER_SHARE, EARLIER_SHARE + GAP_SHARE));
        }
        if let Some(gap) = after {
            knots.push((gap.begin_ms, 1.0 - GAP_SHARE));
            bands.push((1.0 - GAP_SHARE, 1.0));
        }
        knots.push((end_ms, 1.0));
        Some(Self { knots, bands })
    }

    /// Returns whether it is not linear.
    pub fn is_compressed(&self) -> bool {
        self.knots.len() > 2
    }

    /// The place of an offset in the episode, from 0 to 1.
    pub fn place(&self, ms: f64) -> f64 {
        let pairs = self.knots.iter().zip(self.knots.iter().skip(1));
        let mut place = 0.0;
        for ((from, start), (to, end)) in pairs {
            if ms <= *from {
                break;
            }
            let share = ((ms - from) / (to - from).max(f64::MIN_POSITIVE)).min(1.0);
            place = start + (end - start) * share;
        }
        place
    }

    /// Begin of the last try, if the axis is compressed and something came before it.
    pub fn last_try_ms(&self) -> Option<f64> {
        let earlier = self
            .knots
            .get(2)
            .filter(|(_, place)| *place == EARLIER_SHARE + GAP_SHARE);
        earlier.map(|(ms, _)| *ms)
    }

    /// The places of the gaps that it compresses.
    pub fn bands(&self) -> impl Iterator<Item = (f64, f64)> {
        self.bands.iter().copied()
    }

    /// Offsets to write on the axis: the quarters if it is linear, else where a part of it begins.
    pub fn marks(&self) -> Vec<f64> {
        if self.is_compressed() {
            return self.knots.iter().map(|(ms, _)| *ms).collect();
        }
        let end = self.end_ms();
        (0..=4_u8).map(|n| end * f64::from(n) / 4.0).collect()
    }

    /// The offset at its end.
    pub fn end_ms(&self) -> f64 {
        self.knots.last().map_or(0.0, |(ms, _)| *ms)
    }
}

/// The gap before the last try: the last back-off, or else the longest gap, with work after it.
fn last_gap(gaps: &[WaitGap]) -> Option<&WaitGap> {
    let inner = gaps.iter().filter(|gap| gap.is_over);
    let back_off = inner.clone().rfind(|gap| gap.kind == GapKind::BackOff);
    back_off.or_else(|| inner.max_by(|a, b| a.duration_ms().total_cmp(&b.duration_ms())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::examples;

    fn span(begin_ms: f64, end_ms: f64, failed: bool) -> WorkSpan {
        WorkSpan {
            begin_ms,
            end_ms,
            failed,
        }
    }

    #[test]
    fn the_kubelet_backs_off_after_a_failure_only() {
        let spans = vec![
            span(0.0, 300.0, false),
            span(5_000.0, 6_000.0, true),
            span(16_000.0, 17_000.0, true),
            // Next to no time between calls is no back-off.
            span(17_100.0, 18_000.0, true),
        ];
        let found = gaps(spans.clone(), 48_000.0);
        let shown: Vec<_> = found.iter().map(WaitGap::label).collect();
        let want = [
            "outside CRI 4.70 s",
            "kubelet waits 10.0 s",
            "kubelet waits 30.0 s so far",
        ];
        assert_eq!(shown, want);
        assert_eq!(back_off_ms(spans, 48_000.0), 40_000.0);
        assert_eq!(gaps(Vec::new(), 9e3), []);
    }

    #[test]
    fn what_runs_beside_a_failure_is_no_gap() {
        let spans = vec![span(0.0, 60_000.0, false), span(1_000.0, 2_000.0, true)];
        assert_eq!(gaps(spans, 60_000.0), []);
    }

    #[test]
    fn the_last_of_many_tries_has_most_of_the_axis() {
        let episode = examples::many_tries();
        let axis = WaterfallAxis::from_episode(&episode);
        let last = episode.calls.last().expect("a call");
        let (begin, end) = (
            axis.place(last.offset_ms),
            axis.place(last.offset_ms + last.duration_ms),
        );
        assert!(axis.is_compressed() && end - begin > 0.4, "{axis:?}");
        let first = &episode.calls[1];
        assert!(axis.place(first.offset_ms) < EARLIER_SHARE);
        assert_eq!((axis.place(0.0), axis.place(axis.end_ms())), (0.0, 1.0));
    }

    #[test]
    fn places_grow_with_time() {
        for episode in examples::all() {
            let axis = WaterfallAxis::from_episode(&episode);
            let end = axis.end_ms();
            let places = (0..=1000_u32).map(|n| axis.place(end * f64::from(n) / 1000.0));
            let places: Vec<_> = places.collect();
            assert!(places.is_sorted(), "{axis:?}");
            assert!(places.iter().all(|place| (0.0..=1.0).contains(place)));
        }
    }

    #[test]
    fn a_start_that_worked_has_a_linear_axis() {
        let cases = [
            examples::slow_cni(),
            examples::slow_init(),
            examples::retries(),
        ];
        for episode in cases {
            let axis = WaterfallAxis::from_episode(&episode);
            assert!(!axis.is_compressed(), "{}: {axis:?}", episode.name);
        }
    }

    #[test]
    fn phases_still_add_up_with_the_back_off_apart() {
        let episode = EpisodeView {
            back_off_ms: 14_100.0,
            ..examples::failed_image()
        };
        let phases = episode.shown_phases();
        let sum = |phases: &[PhaseDuration]| phases.iter().map(|phase| phase.ms).sum::<f64>();
        assert!((sum(&phases) - sum(&episode.phases)).abs() < 1e-6);
        let last = phases.last().expect("one");
        assert_eq!((&*last.phase, last.ms), (BACK_OFF_PHASE, 14_100.0));
    }
}

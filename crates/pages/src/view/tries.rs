//! Calls of an episode as people see them: equal tries in a row are one entry, and the last of them stays in full. The time in which the
//! kubelet waits has entries of its own.

use super::gaps::WaitGap;
use super::{CallDetail, CallView, EpisodeView, InitContainerWaitView, PodSyncView};
use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::units::times::UnixMicros;

/// Fewest equal tries that become one entry.
const MIN_TRIES: usize = 3;

/// Most calls of one try: sandbox, then pull, create and start of some containers.
const MAX_CALLS_PER_TRY: usize = 8;

/// An entry of a waterfall.
#[derive(Clone, Debug, PartialEq)]
pub enum WaterfallItem<'a> {
    /// A container that the next call waited for.
    Wait(&'a InitContainerWaitView),
    /// A call.
    Call(&'a CallView),
    /// Equal tries. The last of them is the next entry.
    Tries(RepeatedTries<'a>),
    /// The kubelet's own work.
    Kubelet(&'a PodSyncView),
    /// A time without a call.
    Gap(WaitGap),
}

/// Tries of the same calls that ended in the same way.
#[derive(Clone, Debug, PartialEq)]
pub struct RepeatedTries<'a> {
    /// All calls of all tries.
    pub calls: &'a [CallView],
    /// Number of tries.
    pub count: usize,
}

impl RepeatedTries<'_> {
    /// The call that failed in each of them.
    pub fn failed(&self) -> Option<&CallView> {
        self.calls.last()
    }

    /// From the begin of the first try to the end of the last, as offsets in the episode.
    pub fn span_ms(&self) -> (f64, f64) {
        let begin = self.calls.first().map_or(0.0, |call| call.offset_ms);
        let ends = self
            .calls
            .iter()
            .map(|call| call.offset_ms + call.duration_ms);
        (begin, ends.fold(begin, f64::max))
    }

    /// Begin of the first and of the last try.
    pub fn begins_unix_us(&self) -> (UnixMicros, UnixMicros) {
        let length = self.calls.len() / self.count.max(1);
        let last = self.calls.len().saturating_sub(length);
        let [first, last] = [0, last].map(|at| {
            self.calls
                .get(at)
                .map_or(UnixMicros::EPOCH, |call| call.began_unix_us)
        });
        (first, last)
    }
}

/// The entries of an episode's waterfall, in order.
pub fn waterfall_items(episode: &EpisodeView) -> Vec<WaterfallItem<'_>> {
    let calls = &episode.calls;
    let mut items = Vec::new();
    let mut at = 0;
    let mut syncs = episode.kubelet.iter().peekable();
    let mut gaps = episode.shown_gaps().into_iter().peekable();
    while let Some(call) = calls.get(at) {
        while let Some(gap) = gaps.next_if(|gap| gap.end_ms <= call.offset_ms) {
            items.push(WaterfallItem::Gap(gap));
        }
        while let Some(sync) = syncs.next_if(|sync| sync.offset_ms <= call.offset_ms) {
            items.push(WaterfallItem::Kubelet(sync));
        }
        if let Some(tries) = tries(calls, at) {
            let length = tries.calls.len() / tries.count;
            at += tries.calls.len() - length;
            items.push(WaterfallItem::Tries(tries));
            let last = calls.iter().skip(at).take(length);
            // Of the gaps between the tries, the last one is told.
            let began = last.clone().next().map_or(0.0, |call| call.offset_ms);
            let between = std::iter::from_fn(|| gaps.next_if(|gap| gap.end_ms <= began));
            items.extend(between.last().map(WaterfallItem::Gap));
            items.extend(last.map(WaterfallItem::Call));
            at += length;
            continue;
        }
        let before = episode.waits.iter().filter(|wait| wait.before == at);
        items.extend(before.map(WaterfallItem::Wait));
        items.push(WaterfallItem::Call(call));
        at += 1;
    }
    items.extend(syncs.map(WaterfallItem::Kubelet));
    items.extend(gaps.map(WaterfallItem::Gap));
    items
}

/// The equal tries that begin with this call, if there are enough; the shortest kind of try that repeats.
fn tries(calls: &[CallView], at: usize) -> Option<RepeatedTries<'_>> {
    let rest = calls.get(at..)?;
    (1..=MAX_CALLS_PER_TRY.min(rest.len() / MIN_TRIES)).find_map(|length| {
        let (first, _) = rest.split_at_checked(length)?;
        // A try ends with the call that failed.
        if !first.last()?.is_failed() {
            return None;
        }
        let equal = rest
            .chunks_exact(length)
            .take_while(|chunk| chunk.iter().zip(first).all(|(a, b)| is_same(a, b)));
        let count = equal.count();
        let calls = rest.get(..length * count)?;
        (count >= MIN_TRIES).then_some(RepeatedTries { calls, count })
    })
}

/// Returns whether two calls asked for the same and ended in the same way.
fn is_same(a: &CallView, b: &CallView) -> bool {
    !a.is_in_flight()
        && (&a.method, &a.container, &a.image) == (&b.method, &b.container, &b.image)
        && (&a.outcome, &a.code) == (&b.outcome, &b.code)
        && a.error.as_deref().map(words) == b.error.as_deref().map(words)
}

/// An error message without ids, numbers and times, which differ from try to try.
fn words(error: &str) -> Vec<&str> {
    let mut words: Vec<_> = error.split(|c: char| !c.is_alphanumeric()).collect();
    words.retain(|word| !word.is_empty() && !word.contains(|c: char| c.is_ascii_digit()));
    words
}

/// Details of a call. Equal details are one entry with their number: it has the begin of the first, and the sum of their durations.
pub fn details(call: &CallView) -> Vec<(CallDetail, usize)> {
    let mut all: Vec<(CallDetail, usize)> = Vec::new();
    for detail in &call.details {
        let mut known = all.iter_mut();
        match known.find(|(other, _)| without_times(other) == without_times(detail)) {
            Some((sum, count)) => {
                sum.offset_ms = sum.offset_ms.min(detail.offset_ms);
                sum.duration_ms += detail.duration_ms;
                *count += 1;
            }
            None => all.push((detail.clone(), 1)),
        }
    }
    all
}

impl CallDetail {
    /// The work in words, for the line of a waterfall: `fetch layer sha256:0a1b`, `CNI plugin calico ADD: iptables`. `count` is the number of
    /// equal details.
    pub fn label(&self, count: usize) -> String {
        let (kind, name) = match &*self.what {
            "cni" => ("CNI plugin ", None),
            "oci" => ("OCI runtime ", None),
            "blocked" => ("", None),
            "injected" => ("injected fault: ", None),
            "helper" => ("run ", None),
            "layers" => ("layers: ", None),
            // Steps of the built-in runtime have plain names; spans of another runtime need the prefix.
            _ if self.source == "runtime" => ("", RuntimeStep::with_verb(&self.name)),
            _ => ("runtime ", None),
        };
        let mut label = kind.to_owned();
        label.push_str(name.as_ref().unwrap_or(&self.name));
        if let Some(command) = &self.command {
            label.extend([" ", command]);
        }
        if let Some(doing) = &self.doing {
            label.extend([": ", doing]);
        }
        if count > 1 {
            label.push_str(&format!(" ({count} times)"));
        }
        label
    }
}

fn without_times(detail: &CallDetail) -> CallDetail {
    CallDetail {
        offset_ms: 0.0,
        duration_ms: 0.0,
        ..detail.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(method: &str, at_s: u32, error: Option<&str>) -> CallView {
        CallView {
            method: method.to_owned(),
            began_unix_us: UnixMicros::new(u64::from(at_s) * 1_000_000),
            offset_ms: f64::from(at_s) * 1e3,
            duration_ms: 900.0,
            outcome: if error.is_some() { "error" } else { "ok" }.to_owned(),
            error: error.map(str::to_owned),
            ..CallView::default()
        }
    }

    /// `3xRunPodSandbox` for tries, the method for a call.
    fn shown(calls: Vec<CallView>) -> Vec<String> {
        let episode = EpisodeView {
            calls,
            ..EpisodeView::default()
        };
        let shown = waterfall_items(&episode)
            .into_iter()
            .filter(|item| !matches!(item, WaterfallItem::Gap(_)))
            .map(|item| match item {
                WaterfallItem::Gap(gap) => gap.label(),
                WaterfallItem::Wait(wait) => wait.container.clone(),
                WaterfallItem::Kubelet(sync) => sync.name.clone(),
                WaterfallItem::Call(call) => call.method.clone(),
                WaterfallItem::Tries(tries) => {
                    format!(
                        "{}x{}",
                        tries.count,
                        tries.failed().map_or("", |call| &call.method)
                    )
                }
            });
        shown.collect()
    }

    #[test]
    fn the_kubelets_work_stands_before_the_call_that_it_precedes() {
        let sync = |offset_ms| PodSyncView {
            name: "syncPod".into(),
            offset_ms,
            ..PodSyncView::default()
        };
        let call = |offset_ms| CallView {
            method: "PullImage".into(),
            offset_ms,
            ..CallView::default()
        };
        let episode = EpisodeView {
            calls: vec![call(0.0), call(10.0)],
            kubelet: vec![sync(-5.0), sync(5.0), sync(20.0)],
            ..EpisodeView::default()
        };
        let shown: Vec<_> = waterfall_items(&episode)
            .iter()
            .map(|item| match item {
                WaterfallItem::Kubelet(sync) => sync.offset_ms,
                WaterfallItem::Call(call) => call.offset_ms,
                _ => f64::NAN,
            })
            .collect();
        assert_eq!(shown, [-5.0, 0.0, 5.0, 10.0, 20.0]);
    }

    #[test]
    fn equal_tries_are_one_entry_and_the_last_stays() {
        let run = |at| {
            call(
                "Run",
                at,
                Some(&format!("sandbox \"ab{at}f\": no such plugin")),
            )
        };
        let calls = vec![run(0), run(10), run(20), run(40), call("Run", 80, None)];
        assert_eq!(shown(calls), ["4xRun", "Run", "Run"]);
        let two = vec![run(0), run(10)];
        assert_eq!(shown(two), ["Run", "Run"]);
        let other = |at| call("Run", at, Some("deadline exceeded"));
        let mixed = vec![run(0), other(10), run(20), other(30)];
        assert_eq!(shown(mixed), ["Run"; 4], "two kinds of failure, twice");
        let mut flying = call("Run", 50, None);
        CallView::IN_FLIGHT.clone_into(&mut flying.outcome);
        let calls = vec![run(0), run(10), run(20), flying];
        assert_eq!(shown(calls), ["3xRun", "Run", "Run"]);
    }

    #[test]
    fn a_try_may_have_several_calls() {
        let tries = (0..5).flat_map(|n| {
            [
                call("Create", n * 10, None),
                call("Start", n * 10 + 1, Some("no such file")),
            ]
        });
        let calls: Vec<_> = [call("Run", 0, None)].into_iter().chain(tries).collect();
        assert_eq!(shown(calls.clone()), ["Run", "5xStart", "Create", "Start"]);
        let episode = EpisodeView {
            calls,
            ..EpisodeView::default()
        };
        let items = waterfall_items(&episode);
        let tries = items.iter().find_map(|item| match item {
            WaterfallItem::Tries(tries) => Some(tries),
            _ => None,
        });
        let tries = tries.expect("tries");
        assert_eq!(
            tries.begins_unix_us(),
            (UnixMicros::EPOCH, UnixMicros::new(40_000_000))
        );
        assert_eq!(tries.span_ms(), (0.0, 41_900.0));
        // What succeeds is no try.
        let fine = (0..5).map(|n| call("Pull", n, None)).collect();
        assert_eq!(shown(fine), ["Pull"; 5]);
    }

    #[test]
    fn the_wait_before_the_last_try_and_the_one_after_it_are_told() {
        let pull = |at| call("Pull", at, Some("not found"));
        let episode = EpisodeView {
            calls: vec![pull(0), pull(10), pull(30), pull(70)],
            state: crate::view::EpisodeState::Failing,
            failures: 4,
            duration_ms: 100_000.0,
            ..EpisodeView::default()
        };
        let shown: Vec<_> = waterfall_items(&episode)
            .iter()
            .map(|item| match item {
                WaterfallItem::Gap(gap) => gap.label(),
                WaterfallItem::Tries(tries) => format!("{} tries", tries.count),
                WaterfallItem::Call(call) => call.method.clone(),
                _ => String::new(),
            })
            .collect();
        let want = [
            "4 tries",
            "kubelet waits 39.1 s",
            "Pull",
            "kubelet waits 29.1 s so far",
        ];
        assert_eq!(shown, want);
    }

    #[test]
    fn equal_details_are_one_entry() {
        let detail = |at: f64| CallDetail {
            what: "cni".to_owned(),
            name: "bridge".to_owned(),
            offset_ms: at,
            duration_ms: 10.0,
            ..CallDetail::default()
        };
        let mut it = call("Run", 0, None);
        it.details = vec![detail(5.0), detail(50.0), detail(20.0)];
        let all = details(&it);
        assert_eq!((all.len(), all[0].1), (1, 3));
        assert_eq!((all[0].0.offset_ms, all[0].0.duration_ms), (5.0, 30.0));
    }
}

//! What is expected in scenarios: `TIME [SUBJECT] => TEXT`.
//!
//! | subject | text |
//! |---|---|
//! | none | the first line on the pod |
//! | `cause` | the name of its cause |
//! | `raw` | the text of the error behind it, and who wrote it; `none` |
//! | `next` | what to do about it; `none` |
//! | `state` | the state of the pod in lists |
//! | `next` | the next step, of a pod that only a list of the runtime has; `none` |
//! | `loops` | the episodes that are marked as in a loop, such as `start, restart app`; `none` |
//! | `exits` | the ends of containers, such as `app#0 143 asked, app#1 1` |
//! | `episodes` | each episode: kind, container, attempt, state and methods, such as `start #0 ok: RunPodSandbox` |
//! | `evidence` | what is known of the newest call in flight: the probe that failed before it, or the pulls that it waited for |
//! | `probes` | the exec probes of the pod |
//! | `without-sandbox`, `missing-images` | the pods whose directory is watched; the images that pods wait for |
//! | `pods-to-read` | the pods whose containers the kubelet's checkpoint shall tell, since the last such line |
//! | `closed` | the numbers of the episodes that were closed since the last such line |
//! | `line N`, `cause N`, `view N`, `phases N`, `counts N`, `waits N`, `pod-start N` | the first line, the cause, the state and duration, the phases, the counts, the waits for init containers, or the time since the kubelet saw the pod of an episode; `line last` of the newest |

use std::time::Duration;

use super::words::Words;
use crate::diagnosis::{Diagnoser, note, note_listed, note_step};
use crate::episode_call::EpisodeCall;
use crate::episode_store::{Episode, EpisodeStore};
use crate::kubelet::hanging_probe::HangingProbe;
use crate::kubelet::probes::FailedProbe;
use crate::kubelet::pulls::{PullInFlight, PullQueue};
use crate::kubelet::start::PodStartTimes;
use crate::listed_pods::sentence::ListedVerdict;
use crate::listed_pods::stories::START_NOT_SEEN;
use crate::tests::script::{ScriptedPod, at};
use crate::view::{EpisodeView, PodSummary, ProbeView};
use criscope_cri::units;
use criscope_cri::units::times::{UnixMicros, millis};

/// Subjects that a restart changes: episodes that this process closed, pods that it has yet to read.
const SUBJECTS_OF_PROCESS: [&str; 2] = ["closed", "pods-to-read"];

/// Returns whether the same has to be said of a subject after a restart.
pub(super) fn is_same_after_restart(subject: &str) -> bool {
    let mut words = subject.split_whitespace();
    !words.any(|word| SUBJECTS_OF_PROCESS.contains(&word))
}

/// What is said of the subject at this time.
pub(super) fn say(
    store: &mut EpisodeStore,
    pod: &ScriptedPod,
    (in_flight, probes_in_flight): (&[EpisodeCall], &[EpisodeCall]),
    words: &mut Words,
) -> Result<String, String> {
    let now = at(words.time()?);
    let subject = words.next().unwrap_or_default();
    store.tick(now, in_flight);
    if subject == "closed" {
        let closed = store.take_closed();
        return Ok(listed(closed.iter().map(u64::to_string)));
    }
    if subject == "pods-to-read" {
        let pods = store.take_pods_to_read();
        return Ok(listed(pods.iter().map(|pod| pod.name.to_string())));
    }
    let mut store = store.clone();
    let mut shown = in_flight.to_vec();
    shown.sort_by_key(|call| call.began);
    for mut call in shown {
        store.observe(&mut call);
        store.apply(call);
    }
    let episodes = store.episodes().filter(|episode| {
        (&episode.pod.namespace, &episode.pod.name) == (&pod.0.namespace, &pod.0.name)
    });
    let episodes: Vec<_> = episodes.collect();
    if episodes.is_empty()
        && let Some(text) = say_of_listed(&store, pod, now, &subject)
    {
        words.end()?;
        return Ok(text);
    }
    let pulls = in_flight.iter().filter_map(PullInFlight::from_call);
    let node = store.node().with_pulls(pulls.collect());
    let probes = store.probes_of(&episodes);
    let hanging = probes_in_flight.iter().filter_map(HangingProbe::from_call);
    let pods = Diagnoser::new(&episodes, node, now)
        .with_probes(probes)
        .with_hanging_probes(hanging.collect());
    let newest = pods.newest_verdict().ok_or("the pod has no episodes");
    episodes
        .iter()
        .for_each(|episode| note(&pods.cause(episode)));
    if let Ok(verdict) = &newest {
        note(&verdict.diagnosis);
        pods.step_of_newest(&verdict.diagnosis)
            .iter()
            .for_each(note_step);
    }
    let text = match &*subject {
        "" => newest?.diagnosis.to_string(),
        "raw" => {
            let message = newest?.diagnosis.raw_message(pods.programs());
            message.map_or("none".to_owned(), |message| message.to_string())
        }
        "next" => {
            let next = pods.next_of_newest(&newest?.diagnosis);
            next.unwrap_or_else(|| "none".to_owned())
        }
        "cause" if words.is_empty() => newest?.diagnosis.name().to_owned(),
        "state" => {
            let views = episodes.iter().map(|episode| episode.summary(&pods));
            let summary = PodSummary::from_episodes(views.collect(), newest?.reason(&pods), now);
            let summary = summary.ok_or("the pod has no episodes")?;
            summary.state.word().to_owned()
        }
        "loops" => {
            let marked = episodes
                .iter()
                .filter(|episode| pods.crash_loop(episode).is_some());
            listed(marked.map(|episode| name(episode)))
        }
        "exits" => {
            let exits = episodes.iter().flat_map(|episode| &episode.exits);
            listed(exits.map(|exit| {
                let asked = if exit.stop_requested { " asked" } else { "" };
                format!("{}#{} {}{asked}", exit.container, exit.attempt, exit.code)
            }))
        }
        "evidence" => {
            let newest = in_flight.last().ok_or("no call is in flight")?;
            let mut newest = newest.clone();
            store.observe(&mut newest);
            evidence(&newest)
        }
        "probes" => {
            let probes = store.probes_of(&episodes);
            listed(probes.iter().map(|probe| {
                let ProbeView {
                    runs,
                    failed,
                    last_result,
                    ..
                } = probe;
                format!(
                    "{} {runs} runs, {failed} failed, {last_result}",
                    probe.container
                )
            }))
        }
        "without-sandbox" => {
            let pods = store.without_sandbox();
            listed(pods.iter().map(|pod| pod.name.to_string()))
        }
        "missing-images" => {
            let images = store.missing_images();
            listed(images.iter().map(|missing| missing.image.to_string()))
        }
        "episodes" => {
            let lines: Vec<_> = episodes.iter().map(|episode| line(episode)).collect();
            lines.join(" | ")
        }
        "line" | "cause" | "view" | "phases" | "counts" | "waits" | "pod-start" => {
            let episode = if words.take("last") {
                episodes.last()
            } else {
                episodes.get(words.number::<usize>()?)
            };
            let episode = *episode.ok_or("there is no such episode")?;
            episode_text(&subject, episode, &episode.view(&pods))
        }
        _ => return Err(format!("unknown subject `{subject}`")),
    };
    words.end()?;
    Ok(text)
}

/// What is said of a pod that no call has named and the runtime lists.
fn say_of_listed(
    store: &EpisodeStore,
    pod: &ScriptedPod,
    now: UnixMicros,
    subject: &str,
) -> Option<String> {
    let listed = store.listed_pods().find(|listed| listed.pod == pod.0)?;
    let verdict = ListedVerdict::new(listed, store, now);
    note_listed(&verdict.headline);
    match subject {
        "" => Some(verdict.headline),
        "cause" => Some(START_NOT_SEEN.to_owned()),
        "state" => Some(verdict.state.word().to_owned()),
        "next" => verdict.next.or_else(|| Some("none".to_owned())),
        _ => None,
    }
}

/// What the store knows of a StopContainer, a hook or a pull when it begins.
fn evidence(call: &EpisodeCall) -> String {
    match (&call.probe, &call.queue) {
        (Some(probe), _) => {
            let FailedProbe {
                result,
                in_a_row,
                never_succeeded: _,
                evidence,
                before,
            } = probe;
            let before = shown(*before);
            format!("{result}, {in_a_row} in a row, {before} before: {evidence:?}")
        }
        (None, Some(queue)) => {
            let PullQueue {
                waited,
                image,
                pod,
                pulls,
            } = &**queue;
            format!(
                "{} for {pulls} pulls, most of it {image} of {pod}",
                shown(*waited)
            )
        }
        (None, None) => "none".to_owned(),
    }
}

/// What is said of an episode.
fn episode_text(subject: &str, episode: &Episode, view: &EpisodeView) -> String {
    match subject {
        "line" => view.headline.clone(),
        "cause" => view.cause.clone(),
        "view" => format!(
            "{} {}",
            view.state.name(),
            units::duration(view.duration_ms)
        ),
        "phases" => {
            let phases = view.phases.iter();
            listed(phases.map(|phase| format!("{} {}", phase.phase, units::duration(phase.ms))))
        }
        "counts" => format!(
            "{} calls, {} failed, {} retries, {} started{}",
            episode.calls.len(),
            episode.failures,
            episode.retries,
            episode.started,
            if episode.pulled { ", pulled" } else { "" }
        ),
        "pod-start" => match (episode.pod_start(), episode.seen_before()) {
            (Some(start), _) => {
                let PodStartTimes {
                    before_cri,
                    total,
                    sli,
                } = start;
                let [before, total, sli] = [before_cri, total, sli].map(shown);
                format!("{before} before the CRI, {total} in all, {sli} by the SLI")
            }
            (None, Some(delay)) => {
                let [before, unwatched] = [delay.before, delay.unwatched].map(shown);
                format!("seen {before} before, {unwatched} of it unwatched")
            }
            (None, None) => "unknown".to_owned(),
        },
        _ => {
            let waits = view.waits.iter();
            listed(
                waits.map(|wait| {
                    format!("{} {}", wait.container, units::duration(wait.duration_ms))
                }),
            )
        }
    }
}

fn shown(duration: Duration) -> String {
    units::duration(millis(duration))
}

/// Kind and container of an episode.
fn name(episode: &Episode) -> String {
    let container = episode.container.as_ref();
    let container = container.map_or(String::new(), |container| format!(" {}", container.name));
    format!("{}{container}", episode.kind.name())
}

fn line(episode: &Episode) -> String {
    let container = episode.container.as_ref().map_or("", |c| &c.name);
    let calls: Vec<_> = episode.calls.iter().map(|c| c.method.name()).collect();
    format!(
        "{} {container}#{} {}: {}",
        episode.kind.name(),
        episode.attempt(),
        episode.state.name(),
        calls.join(" ")
    )
}

fn listed(texts: impl Iterator<Item = String>) -> String {
    let texts: Vec<_> = texts.collect();
    match &texts[..] {
        [] => "none".to_owned(),
        texts => texts.join(", "),
    }
}

/// Returns whether the text is this pattern, in which `*` stands for any text.
pub(super) fn is_like(text: &str, pattern: &str) -> bool {
    let parts: Vec<_> = pattern.split('*').collect();
    let [first, middle @ .., last] = &parts[..] else {
        return text == pattern;
    };
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

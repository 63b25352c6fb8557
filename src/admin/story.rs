//! The story of one pod: the phases of each episode, its calls in time, failures, retries and exits.

use maud::{Markup, html};

use super::commands::with_code;
use super::table::{fact, number, text, wide_flowing};
use super::verdict::{class, level_of_state};
use super::waterfall::{self, WaterfallScale};
use super::{calls, commands, links, listed, sessions, starts};
use crate::lifecycle::view::{
    CallDetail, CallView, EpisodeView, ExitView, GapKind, InitContainerWaitView, PodStory,
    PodSyncView, RawMessage, RepeatedTries, WaitGap, WaterfallAxis, WaterfallItem, crash_loops,
    details, exit_reason_in_words, waterfall_items,
};
use crate::units;
use crate::units::times::UnixMicros;

/// Everything below the heading: the newest episode first.
pub(super) fn html(story: &PodStory, trace_url: Option<&str>) -> Markup {
    let newest_first = story.episodes.iter().enumerate().rev();
    let loops = crash_loops(story.episodes.iter().rev());
    html! {
        @if let Some(next) = &story.next { p.next { strong { "next: " } (with_code(next)) } }
        (commands::for_pod(story))
        (raw_message(story.raw_message.as_ref()))
        @for ((number, shown), crash_loop) in newest_first.zip(loops) {
            (episode(story, number, shown, crash_loop, trace_url))
        }
        (listed::html(story.listed.as_ref(), story.now_unix_us))
        (sessions::pod_sessions(&story.sessions, story.now_unix_us))
    }
}

/// The words of the program that failed, for a search on the web.
fn raw_message(raw: Option<&RawMessage>) -> Markup {
    html! { @if let Some(raw) = raw { p.raw { (raw.from) ": " code { (raw.text) } } } }
}

fn episode(
    story: &PodStory,
    number: usize,
    episode: &EpisodeView,
    crash_loop: Option<&str>,
    trace_url: Option<&str>,
) -> Markup {
    let id = format!("e{number}");
    let began = units::rfc3339(episode.began_unix_us);
    // The page begins with one of these.
    let sentences = [crash_loop, Some(&*episode.headline)];
    html! {
        section.card aria-labelledby=(id) {
            header {
                h2 id=(id) { (title(episode)) " " (starts::state(episode.pod_state())) }
                p {
                    time datetime=(began) { (began) }
                    " (" (units::since(story.now_unix_us.since(episode.began_unix_us))) ")"
                }
            }
            @for text in sentences.into_iter().flatten().filter(|text| *text != story.headline) {
                p.lead.(class(level_of_state(episode.pod_state()))) { (text) }
            }
            @if episode.headline != story.headline {
                @if let Some(next) = &episode.next { p { strong { "next: " } (with_code(next)) } }
                (raw_message(episode.raw_message.as_ref()))
            }
            (facts(episode, story.now_unix_us, trace_url))
            (phases(episode))
            (episode_calls(episode))
            (exits(&episode.exits, story.now_unix_us))
        }
    }
}

fn title(episode: &EpisodeView) -> String {
    match (episode.kind.as_str(), &episode.container) {
        ("start", _) => "Start".to_owned(),
        ("stop", _) => "Stop".to_owned(),
        ("restart", Some(container)) => {
            format!("Restart {} of container {container}", episode.attempt)
        }
        (kind, _) => kind.to_owned(),
    }
}

fn facts(episode: &EpisodeView, now: UnixMicros, trace_url: Option<&str>) -> Markup {
    html! {
        dl.facts {
            (fact("Took", units::duration(episode.lasting_ms(now))))
            @if episode.retries > 0 { (fact("Retries", episode.retries)) }
            @if episode.failures > 0 { (fact("Failed calls", html! { span.bad { (episode.failures) } })) }
            @if episode.kind == "start" && episode.attempt > 0 { (fact("Sandbox attempt", episode.attempt)) }
            @if !episode.handler.is_empty() { (fact("Runtime handler", &episode.handler)) }
            (id_fact("Pod uid", &episode.uid))
            @if let Some(sandbox) = &episode.sandbox_id { (id_fact("Sandbox", calls::short(sandbox))) }
            @match trace_url {
                Some(url) => (fact("Trace", links::trace(url, &episode.trace_id))),
                None => (id_fact("Trace", &episode.trace_id)),
            }
        }
    }
}

fn id_fact(name: &str, id: &str) -> Markup {
    fact(name, html! { small { code { (id) } } })
}

fn phases(episode: &EpisodeView) -> Markup {
    let scale = WaterfallScale::to(shown_ms(episode));
    let phases = episode.shown_phases();
    html! {
        @if !phases.is_empty() {
            h3 { "Where the time went" }
            (waterfall::stacked(episode, scale))
            ul.legend.parts aria-label="Phases" {
                @for phase in &phases {
                    @let (class, word) = waterfall::look(&phase.phase);
                    @let percent = phase.ms / episode.duration_ms.max(0.001) * 100.0;
                    li {
                        (waterfall::key(class)) (word) " " strong { (units::duration(phase.ms)) } " "
                        (format_args!("{percent:.0}")) " %"
                    }
                }
            }
        }
    }
}

/// The part of an episode that its bar shows: back-off that is longer than the work is cut.
fn shown_ms(episode: &EpisodeView) -> f64 {
    let work = waterfall::work_ms(episode);
    episode
        .duration_ms
        .min(work + work.max(1.0) / 2.0)
        .max(work)
}

fn episode_calls(episode: &EpisodeView) -> Markup {
    if episode.calls.is_empty() {
        return html! {};
    }
    let axis = &WaterfallAxis::from_episode(episode);
    html! {
        h3 { "Calls" }
        ol.calls {
            li.head aria-hidden="true" {
                span.what { "Call" } span.n { "At" } span.n { "Took" } span.track-cell { (waterfall::axis(axis)) }
            }
            @for item in waterfall_items(episode) {
                @match item {
                    WaterfallItem::Wait(shown) => (wait(shown, axis)),
                    WaterfallItem::Gap(shown) => (gap(&shown, axis)),
                    WaterfallItem::Kubelet(shown) => (kubelet(shown, axis)),
                    WaterfallItem::Tries(shown) => (tries(&shown, axis)),
                    WaterfallItem::Call(shown) => {
                        (call(shown, axis))
                        @for (shown, count) in details(shown) { (detail(&shown, count, axis)) }
                    },
                }
            }
        }
        @if episode.calls_forgotten > 0 { p.none { (episode.calls_forgotten) " more calls were not kept." } }
    }
}

/// A container that the next call waited for.
fn wait(wait: &InitContainerWaitView, axis: &WaterfallAxis) -> Markup {
    let (class, word) = waterfall::look("init_container");
    let took = units::duration(wait.duration_ms);
    let words = format!("{word} {}, ran for {took}", wait.container);
    html! {
        li {
            span.what { strong { (word) } " " (wait.container) }
            (times(wait.offset_ms, wait.duration_ms, class, axis, &words))
        }
    }
}

/// A time without a call.
fn gap(gap: &WaitGap, axis: &WaterfallAxis) -> Markup {
    let label = gap.label();
    let class = match gap.kind {
        GapKind::BackOff => "backoff",
        GapKind::OutsideCri => "outside",
    };
    html! {
        li.gap {
            span.what { (label) }
            (times(gap.begin_ms, gap.duration_ms(), class, axis, &label))
        }
    }
}

/// The kubelet's own work. Its bar begins with the episode at the earliest.
fn kubelet(sync: &PodSyncView, axis: &WaterfallAxis) -> Markup {
    let at = sync.offset_ms.max(0.0);
    let took = (sync.offset_ms + sync.duration_ms - at).max(0.0);
    let whole = units::duration(sync.duration_ms);
    let words = format!("kubelet {}, took {whole}", sync.name);
    let class = if sync.error.is_some() {
        "other failed"
    } else {
        "outside"
    };
    html! {
        li {
            span.what {
                strong { "kubelet: " (sync.name) }
                @if sync.offset_ms < 0.0 { " began " (units::duration(-sync.offset_ms)) " before" }
                @if sync.error.is_some() { " " span.bad { "✗ " @if sync.tries > 1 { (sync.tries) " tries" } } }
            }
            span.n { (units::duration(at)) }
            span.n { (whole) }
            span.track-cell { (waterfall::placed(class, (at, took), axis, &words)) }
            @if let Some(error) = &sync.error { span.note { (error) } }
        }
    }
}

fn call(call: &CallView, axis: &WaterfallAxis) -> Markup {
    let (class, _) = waterfall::look(waterfall::phase_of(&call.method));
    let mark = match call.outcome.as_str() {
        "ok" => "",
        "in_flight" => " running",
        _ => " failed",
    };
    let about = call.container.as_deref().or(call.image.as_deref());
    let words = format!(
        "{} from {}, took {}",
        call.method,
        units::duration(call.offset_ms),
        units::duration(call.duration_ms)
    );
    html! {
        li {
            span.what {
                strong { (call.method) } " " (about.unwrap_or_default()) " " (outcome(call))
                @if call.retry { " " span.sub { "retry" } }
            }
            (times(call.offset_ms, call.duration_ms, &format!("{class}{mark}"), axis, &words))
            (error(call))
            @for remark in &call.remarks { span.note.remark { (remark) } }
        }
    }
}

/// Equal tries in one row, a bar for each; the last of them follows in full.
fn tries(tries: &RepeatedTries<'_>, axis: &WaterfallAxis) -> Markup {
    let Some(failed) = tries.failed() else {
        return html! {};
    };
    let (begin, end) = tries.span_ms();
    let (first, last) = tries.begins_unix_us();
    let about = failed.container.as_deref().or(failed.image.as_deref());
    let words = format!("{} tries, {} UTC", tries.count, units::from_to(first, last));
    let class = format!(
        "failed {}",
        waterfall::look(waterfall::phase_of(&failed.method)).0
    );
    let bars = tries
        .calls
        .iter()
        .map(|call| (call.offset_ms, call.duration_ms));
    html! {
        li.tries {
            span.what {
                strong { (failed.method) } " " (about.unwrap_or_default()) " " span.bad { "✗ " (words) }
                span.sub { "; the last:" }
            }
            span.n { (units::duration(begin)) }
            span.n { (units::duration(end - begin)) }
            span.track-cell { (waterfall::several(&class, bars, axis, &words)) }
        }
    }
}

fn times(at: f64, took: f64, class: &str, axis: &WaterfallAxis, words: &str) -> Markup {
    html! {
        span.n { (units::duration(at)) }
        span.n { (units::duration(took)) }
        span.track-cell { (waterfall::placed(class, (at, took), axis, words)) }
    }
}

fn outcome(call: &CallView) -> Markup {
    html! {
        @match call.outcome.as_str() {
            "ok" => {},
            "in_flight" => { span.open { "in flight" } " " (call.phase.as_deref().unwrap_or_default()) },
            _ => span.bad { "✗ " (call.code) },
        }
    }
}

fn error(call: &CallView) -> Markup {
    let deadline = call.deadline_ms.filter(|_| call.outcome == "deadline");
    html! {
        @if let Some(error) = &call.error {
            span.note {
                (error)
                @if let Some(ms) = deadline { " (the caller's deadline was " (units::duration(ms)) ")" }
            }
        }
    }
}

fn detail(detail: &CallDetail, count: usize, axis: &WaterfallAxis) -> Markup {
    let class = match detail.what.as_str() {
        "cni" => "network",
        "oci" => "create",
        _ => "other",
    };
    let what = detail.label(count);
    let words = format!("{what}, took {}", units::duration(detail.duration_ms));
    html! {
        li.detail {
            span.what { (what) }
            (times(detail.offset_ms, detail.duration_ms, class, axis, &words))
        }
    }
}

fn colour(exit: &ExitView) -> &'static str {
    match exit.reason.as_str() {
        _ if exit.ordered => "muted",
        "completed" => "good",
        _ => "bad",
    }
}

fn exits(exits: &[ExitView], now: UnixMicros) -> Markup {
    let columns = html! {
        (text("Container")) (number("Restarts")) (text("Reason")) (number("Exit code")) (number("Ran for"))
        (number("Ago"))
    };
    let rows = html! {
        @for exit in exits {
            tr {
                th.name scope="row" { (exit.container) }
                td.n data-label="restarts" { (exit.attempt) }
                td class=(colour(exit)) {
                    (exit_reason_in_words(&exit.reason)) @if exit.ordered { ", as asked" }
                }
                td.n data-label="exit code" { (exit.code) }
                td.n data-label="ran for" { (units::duration(exit.ran_ms)) }
                td.n data-label="ago" { (units::ago(now.since(exit.at_unix_us))) }
            }
        }
    };
    html! {
        @if !exits.is_empty() {
            h3 { "Container exits" }
            (wide_flowing("Container exits that the kubelet asked about", &columns, &rows))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::examples;

    #[test]
    fn a_story_says_where_the_time_went() {
        let html = html(&examples::story(examples::slow_cni()), None).into_string();
        for said in [
            "CNI plugin calico: iptables",
            "<strong>RunPodSandbox</strong>",
            "registry.example.com/shop/web:1.2.3",
            "set up network <strong>9.50 s</strong> 67 %",
            "4bf92f3577b34da6a3ce929d0e0e4736",
        ] {
            assert!(html.contains(said), "{said}: {html}");
        }
    }

    #[test]
    fn warnings_of_the_runtime_are_told() {
        let text = html(&examples::story(examples::slow_pull()), None).into_string();
        let note = "<span class=\"note remark\">the image says that it is for linux/arm64";
        assert!(text.contains(note), "{text}");
    }

    #[test]
    fn failures_retries_and_ends_are_told() {
        let text = html(&examples::story(examples::retries()), None).into_string();
        assert!(text.contains("DEADLINE_EXCEEDED") && text.contains("deadline was 4m 00s"));
        assert_eq!(text.matches("retry</span>").count(), 2);
        let text = html(&examples::story(examples::crash_loop()), None).into_string();
        assert!(text.contains("OOMKilled") && text.contains("data-label=\"exit code\">137</td>"));
        let text = html(&examples::story(examples::in_flight()), None).into_string();
        assert!(text.contains("in flight</span> waiting"));
    }

    #[test]
    fn equal_tries_are_one_row_and_the_last_is_shown_in_full() {
        let text = html(&examples::story(examples::many_tries()), None).into_string();
        assert!(text.contains("✗ 7 tries, 08:59 to 09:07 UTC"), "{text}");
        assert_eq!(text.matches("class=\"note\"").count(), 1, "{text}");
        assert_eq!(text.matches("<strong>PullImage</strong>").count(), 2);
    }

    #[test]
    fn the_time_between_tries_is_told_as_back_off() {
        let text = html(&examples::story(examples::many_tries()), None).into_string();
        assert!(text.contains("kubelet waits 1m 19s"), "{text}");
        assert!(text.contains("class=\"band\"") && text.contains("class=\"ph backoff\""));
        let fine = html(&examples::story(examples::slow_cni()), None).into_string();
        assert!(!fine.contains("class=\"band\"") && !fine.contains("kubelet waits"));
    }

    #[test]
    fn the_next_step_has_its_commands_as_code() {
        let mut story = examples::story(examples::slow_cni());
        story.next = Some("run `kubectl get <pods>`, then wait".to_owned());
        let text = html(&story, None).into_string();
        assert!(
            text.contains("run <code>kubectl get &lt;pods&gt;</code>, then wait"),
            "{text}"
        );
    }

    #[test]
    fn a_trace_is_a_link_if_there_is_a_viewer() {
        let url = Some("https://tempo.example/{trace_id}");
        let story = examples::story(examples::slow_cni());
        let text = html(&story, url).into_string();
        let link = "<a href=\"https://tempo.example/4bf92f3577b34da6a3ce929d0e0e4736\"";
        assert!(text.contains(link), "{text}");
        assert!(!html(&story, None).into_string().contains("https://tempo"));
    }
}

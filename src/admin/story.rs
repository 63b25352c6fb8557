//! The story of one pod: the phases of each episode, its calls in time, failures, retries and exits.

use maud::{Markup, html};

use super::table::{fact, number, text, wide};
use super::waterfall::{self, WaterfallScale};
use super::{calls, links, sessions, starts};
use crate::lifecycle::view::{
    CallDetail, CallView, EpisodeView, ExitView, InitContainerWaitView, PodStory, PodSyncView,
    RepeatedTries, WaterfallItem, crash_loops, details, waterfall_items,
};
use crate::units;
use crate::units::times::UnixMicros;

/// Everything below the heading: the newest episode first.
pub(super) fn html(story: &PodStory, trace_url: Option<&str>) -> Markup {
    let newest_first = story.episodes.iter().enumerate().rev();
    let loops = crash_loops(story.episodes.iter().rev());
    html! {
        p.lead { (story.headline) }
        @for ((number, shown), crash_loop) in newest_first.zip(loops) {
            (episode(story, number, shown, crash_loop, trace_url))
        }
        (sessions::pod_sessions(&story.sessions, story.now_unix_us))
    }
}

fn episode(
    story: &PodStory,
    number: usize,
    episode: &EpisodeView,
    crash_loop: Option<&str>,
    trace_url: Option<&str>,
) -> Markup {
    let scale = WaterfallScale::to(episode.duration_ms);
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
                p.lead { (text) }
            }
            (facts(episode, story.now_unix_us, trace_url))
            (phases(episode, scale))
            (episode_calls(episode, scale))
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

fn phases(episode: &EpisodeView, scale: WaterfallScale) -> Markup {
    html! {
        @if !episode.phases.is_empty() {
            h3 { "Where the time went" }
            (waterfall::stacked(episode, scale))
            ul.legend.parts aria-label="Phases" {
                @for phase in &episode.phases {
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

fn episode_calls(episode: &EpisodeView, scale: WaterfallScale) -> Markup {
    if episode.calls.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Calls" }
        ol.calls {
            li.head aria-hidden="true" {
                span.what { "Call" } span.n { "At" } span.n { "Took" } span.track-cell { (scale.axis()) }
            }
            @for item in waterfall_items(episode) {
                @match item {
                    WaterfallItem::Wait(it) => (wait(it, scale)),
                    WaterfallItem::Kubelet(it) => (kubelet(it, scale)),
                    WaterfallItem::Tries(it) => (tries(&it, scale)),
                    WaterfallItem::Call(it) => {
                        (call(it, scale))
                        @for (it, count) in details(it) { (detail(&it, count, scale)) }
                    },
                }
            }
        }
        @if episode.calls_forgotten > 0 { p.none { (episode.calls_forgotten) " more calls were not kept." } }
    }
}

/// A container that the next call waited for.
fn wait(wait: &InitContainerWaitView, scale: WaterfallScale) -> Markup {
    let (class, word) = waterfall::look("init_container");
    let took = units::duration(wait.duration_ms);
    let words = format!("{word} {}, ran for {took}", wait.container);
    html! {
        li {
            span.what { strong { (word) } " " (wait.container) }
            (times(wait.offset_ms, wait.duration_ms, class, scale, &words))
        }
    }
}

/// The kubelet's own work. Its bar begins with the episode at the earliest.
fn kubelet(sync: &PodSyncView, scale: WaterfallScale) -> Markup {
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
            span.track-cell { (waterfall::placed(class, at, took, scale, &words)) }
            @if let Some(error) = &sync.error { span.note { (error) } }
        }
    }
}

fn call(call: &CallView, scale: WaterfallScale) -> Markup {
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
            (times(call.offset_ms, call.duration_ms, &format!("{class}{mark}"), scale, &words))
            (error(call))
            @for remark in &call.remarks { span.note.remark { (remark) } }
        }
    }
}

/// Equal tries in one row, a bar for each; the last of them follows in full.
fn tries(tries: &RepeatedTries<'_>, scale: WaterfallScale) -> Markup {
    let Some(failed) = tries.failed() else {
        return html! {};
    };
    let (begin, end) = tries.span_ms();
    let (first, last) = tries.begins_unix_us();
    let about = failed.container.as_deref().or(failed.image.as_deref());
    let words = format!("{} tries, {} UTC", tries.count, units::from_to(first, last));
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
            span.track-cell { (waterfall::several("failed other", bars, scale, &words)) }
        }
    }
}

fn times(at: f64, took: f64, class: &str, scale: WaterfallScale, words: &str) -> Markup {
    html! {
        span.n { (units::duration(at)) }
        span.n { (units::duration(took)) }
        span.track-cell { (waterfall::placed(class, at, took, scale, words)) }
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

fn detail(detail: &CallDetail, count: usize, scale: WaterfallScale) -> Markup {
    let (class, kind) = match detail.what.as_str() {
        "cni" => ("network", "CNI plugin "),
        "oci" => ("create", "OCI runtime "),
        "blocked" => ("other", ""),
        "injected" => ("other", "injected fault: "),
        "helper" => ("other", "program "),
        "layers" => ("other", "layers: "),
        // Steps of the built-in runtime are named in plain words; names of spans of another runtime need the prefix.
        _ if detail.source == "runtime" => ("other", ""),
        _ => ("other", "runtime "),
    };
    let doing = detail.doing.as_ref().map(|doing| format!(": {doing}"));
    let command = detail.command.as_ref().map(|command| format!(" {command}"));
    let (command, doing) = (command.unwrap_or_default(), doing.unwrap_or_default());
    let mut what = format!("{kind}{}{command}{doing}", detail.name);
    if count > 1 {
        what += &format!(" × {count}");
    }
    let words = format!("{what}, took {}", units::duration(detail.duration_ms));
    html! {
        li.detail {
            span.what { (what) }
            (times(detail.offset_ms, detail.duration_ms, class, scale, &words))
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
                td.n { (exit.attempt) }
                td class=(colour(exit)) {
                    (exit.reason.replace('_', " ")) @if exit.ordered { ", as asked" }
                }
                td.n { (exit.code) }
                td.n { (units::duration(exit.ran_ms)) }
                td.n { (units::ago(now.since(exit.at_unix_us))) }
            }
        }
    };
    html! {
        @if !exits.is_empty() {
            h3 { "Container exits" }
            (wide("Container exits", "Container exits that the kubelet asked about", &columns, &rows))
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
            "9.50 s of 14.2 s in the CNI plugin calico",
            "CNI plugin calico: iptables",
            "<strong>RunPodSandbox</strong>",
            "registry.example.com/shop/web:1.2.3",
            "network <strong>9.50 s</strong> 67 %",
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
        assert!(text.contains("oom killed") && text.contains("<td class=\"n\">137</td>"));
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
    fn a_trace_is_a_link_if_there_is_a_viewer() {
        let url = Some("https://tempo.example/{trace_id}");
        let story = examples::story(examples::slow_cni());
        let text = html(&story, url).into_string();
        let link = "<a href=\"https://tempo.example/4bf92f3577b34da6a3ce929d0e0e4736\"";
        assert!(text.contains(link), "{text}");
        assert!(!html(&story, None).into_string().contains("https://tempo"));
    }
}

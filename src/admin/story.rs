//! The story of one pod: where the time went, its calls in time, what failed, what was tried again, what ended.

use std::fmt::Write as _;

use super::page::Escaped;
use super::waterfall::{self, Scale};
use super::{sessions, starts};
use crate::lifecycle::view::{Call, Detail, Episode, Exit, PodStory, Wait, crash_loops};
use crate::units;

/// Everything below the heading: the newest episode first.
pub(super) fn html(story: &PodStory) -> String {
    let mut html = format!("<p class=\"lead\">{}</p>", Escaped(&story.headline));
    let newest_first = || story.episodes.iter().enumerate().rev();
    let loops = crash_loops(newest_first().map(|(_, episode)| episode));
    for ((number, episode), crash_loop) in newest_first().zip(loops) {
        write_episode(&mut html, story, number, episode, crash_loop);
    }
    sessions::write(&mut html, &story.sessions, story.now_unix_us);
    html
}

fn write_episode(
    html: &mut String,
    story: &PodStory,
    number: usize,
    episode: &Episode,
    crash_loop: Option<&str>,
) {
    let now = story.now_unix_us;
    let scale = Scale::to(episode.duration_ms);
    let _ = write!(
        html,
        "<section class=\"card\" aria-labelledby=\"e{number}\"><header><h2 id=\"e{number}\">{} {}</h2><p>{}</p></header>",
        title(episode),
        starts::state(episode),
        when(episode, now),
    );
    // The page begins with one of these.
    let told = [crash_loop, Some(&*episode.headline)];
    for text in told.into_iter().flatten() {
        if text != story.headline {
            let _ = write!(html, "<p class=\"lead\">{}</p>", Escaped(text));
        }
    }
    facts(html, episode);
    phases(html, episode, scale);
    calls(html, episode, scale);
    exits(html, &episode.exits, now);
    html.push_str("</section>");
}

fn title(episode: &Episode) -> String {
    match (episode.kind.as_str(), &episode.container) {
        ("start", _) => "Start".to_owned(),
        ("stop", _) => "Stop".to_owned(),
        ("restart", Some(container)) => format!(
            "Restart {} of container {}",
            episode.attempt,
            Escaped(container)
        ),
        (kind, _) => Escaped(kind).to_string(),
    }
}

fn when(episode: &Episode, now: u64) -> String {
    let at = units::rfc3339(episode.began_unix_us);
    let since = units::since(now, episode.began_unix_us);
    format!("<time datetime=\"{at}\">{at}</time> ({since})")
}

fn facts(html: &mut String, episode: &Episode) {
    html.push_str("<dl class=\"facts\">");
    let mut fact = |name: &str, value: String| {
        let _ = write!(html, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    };
    fact("Took", units::duration(episode.duration_ms));
    if episode.retries > 0 {
        fact("Tried again", format!("{} times", episode.retries));
    }
    if episode.failures > 0 {
        fact(
            "Failed calls",
            format!("<span class=\"bad\">{}</span>", episode.failures),
        );
    }
    if episode.kind == "start" && episode.attempt > 0 {
        fact("Sandbox attempt", episode.attempt.to_string());
    }
    if !episode.handler.is_empty() {
        fact("Runtime handler", Escaped(&episode.handler).to_string());
    }
    let mut id = |name: &str, value: &str| {
        fact(
            name,
            format!("<small><code>{}</code></small>", Escaped(value)),
        );
    };
    id("Pod uid", &episode.uid);
    if let Some(sandbox) = &episode.sandbox_id {
        id("Sandbox", &sandbox[..sandbox.floor_char_boundary(13)]);
    }
    id("Trace", &episode.trace_id);
    html.push_str("</dl>");
}

#[allow(clippy::cast_precision_loss)]
fn phases(html: &mut String, episode: &Episode, scale: Scale) {
    if episode.phases.is_empty() {
        return;
    }
    html.push_str("<h3>Where the time went</h3>");
    html.push_str(&waterfall::stacked(episode, scale));
    html.push_str("<ul class=\"legend parts\" aria-label=\"Phases\">");
    for phase in &episode.phases {
        let (class, word) = waterfall::look(&phase.phase);
        let share = phase.ms / episode.duration_ms.max(0.001) * 100.0;
        let _ = write!(
            html,
            "<li><svg class=\"key\" width=\"18\" height=\"10\" aria-hidden=\"true\"><rect class=\"ph {class}\" width=\"18\" \
             height=\"10\"/></svg>{} <strong>{}</strong> {share:.0} %</li>",
            Escaped(word),
            units::duration(phase.ms)
        );
    }
    html.push_str("</ul>");
}

fn calls(html: &mut String, episode: &Episode, scale: Scale) {
    if episode.calls.is_empty() {
        return;
    }
    let _ = write!(
        html,
        "<h3>Calls</h3><ol class=\"calls\"><li class=\"head\" aria-hidden=\"true\"><span class=\"n\">At</span>\
         <span class=\"n\">Took</span><span class=\"track-cell\">{}</span><span class=\"what\">Call</span></li>",
        scale.axis()
    );
    for (n, call) in episode.calls.iter().enumerate() {
        for wait in episode.waits.iter().filter(|wait| wait.before == n) {
            write_wait(html, wait, scale);
        }
        write_call(html, call, scale);
    }
    html.push_str("</ol>");
    if episode.calls_forgotten > 0 {
        let _ = write!(
            html,
            "<p class=\"none\">{} more calls are not remembered.</p>",
            episode.calls_forgotten
        );
    }
}

/// A container that the next call waited for.
fn write_wait(html: &mut String, wait: &Wait, scale: Scale) {
    let (class, word) = waterfall::look("init_container");
    let took = units::duration(wait.duration_ms);
    let words = format!("{word} {}, ran for {took}", wait.container);
    let _ = write!(
        html,
        "<li>{}<span class=\"what\"><strong>{}</strong> {}</span></li>",
        times(wait.offset_ms, wait.duration_ms, class, scale, &words),
        Escaped(word),
        Escaped(&wait.container)
    );
}

fn write_call(html: &mut String, call: &Call, scale: Scale) {
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
    let _ = write!(
        html,
        "<li>{}<span class=\"what\"><strong>{}</strong> {} {}{}</span>{}</li>",
        times(
            call.offset_ms,
            call.duration_ms,
            &format!("{class}{mark}"),
            scale,
            &words
        ),
        Escaped(&call.method),
        Escaped(about.unwrap_or_default()),
        outcome(call),
        if call.retry {
            " <span class=\"sub\">tried again</span>"
        } else {
            ""
        },
        error(call),
    );
    for detail in &call.details {
        write_detail(html, detail, scale);
    }
}

fn times(at: f64, took: f64, class: &str, scale: Scale, words: &str) -> String {
    format!(
        "<span class=\"n\">{}</span><span class=\"n\">{}</span><span class=\"track-cell\">{}</span>",
        units::duration(at),
        units::duration(took),
        waterfall::placed(class, at, took, scale, words)
    )
}

fn outcome(call: &Call) -> String {
    match call.outcome.as_str() {
        "ok" => String::new(),
        "in_flight" => format!(
            "<span class=\"open\">in flight</span> {}",
            Escaped(call.phase.as_deref().unwrap_or_default())
        ),
        _ => format!("<span class=\"bad\">✗ {}</span>", Escaped(&call.code)),
    }
}

fn error(call: &Call) -> String {
    let Some(error) = &call.error else {
        return String::new();
    };
    let deadline = match (call.outcome.as_str(), call.deadline_ms) {
        ("deadline", Some(ms)) => format!(" (the caller's deadline was {})", units::duration(ms)),
        _ => String::new(),
    };
    format!("<span class=\"note\">{}{deadline}</span>", Escaped(error))
}

fn write_detail(html: &mut String, detail: &Detail, scale: Scale) {
    let (class, kind) = match detail.what.as_str() {
        "cni" => ("network", "CNI plugin "),
        "oci" => ("create", "OCI runtime "),
        // The built-in runtime says in words what it does; a name of a span of another one needs to be told whose it is.
        _ if detail.source == "runtime" => ("other", ""),
        _ => ("other", "runtime "),
    };
    let doing = detail
        .doing
        .as_ref()
        .map(|doing| format!(": {doing}"))
        .unwrap_or_default();
    let what = format!("{kind}{}{doing}", detail.name);
    let words = format!("{what}, took {}", units::duration(detail.duration_ms));
    let _ = write!(
        html,
        "<li class=\"detail\">{}<span class=\"what\">{}</span></li>",
        times(detail.offset_ms, detail.duration_ms, class, scale, &words),
        Escaped(what)
    );
}

fn exits(html: &mut String, exits: &[Exit], now: u64) {
    if exits.is_empty() {
        return;
    }
    html.push_str(
        "<h3>Ends of containers</h3><div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Ends of containers\">\
         <table><caption class=\"vh\">Ends of containers, as far as the kubelet asked</caption><thead><tr>\
         <th scope=\"col\">Container</th><th scope=\"col\" class=\"n\">Restarts</th><th scope=\"col\">Why</th>\
         <th scope=\"col\" class=\"n\">Exit code</th><th scope=\"col\" class=\"n\">Had run</th>\
         <th scope=\"col\" class=\"n\">Ago</th></tr></thead><tbody>",
    );
    for exit in exits {
        let class = if exit.reason == "completed" {
            "good"
        } else {
            "bad"
        };
        let _ = write!(
            html,
            "<tr><th scope=\"row\" class=\"name\">{}</th><td class=\"n\">{}</td><td class=\"{class}\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            Escaped(&exit.container),
            exit.attempt,
            Escaped(exit.reason.replace('_', " ")),
            exit.code,
            units::duration(exit.ran_ms),
            units::ago(now, exit.at_unix_us)
        );
    }
    html.push_str("</tbody></table></div>");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::examples;

    #[test]
    fn a_story_says_where_the_time_went() {
        let html = html(&examples::story(examples::slow_cni()));
        for said in [
            "9.50 s in the CNI plugin calico",
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
    fn failures_retries_and_ends_are_told() {
        let text = html(&examples::story(examples::retries()));
        assert!(text.contains("DEADLINE_EXCEEDED") && text.contains("deadline was 4m 00s"));
        assert_eq!(text.matches("tried again</span>").count(), 2);
        let text = html(&examples::story(examples::crash_loop()));
        assert!(text.contains("oom killed") && text.contains("<td class=\"n\">137</td>"));
        let text = html(&examples::story(examples::in_flight()));
        assert!(text.contains("in flight</span> waiting"));
    }
}

//! Images that are being pulled, and pulls that have ended.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};

use super::calls::Format;
use super::page::{Escaped, page_at};
use super::{Sources, links};
use crate::call::CallRecord;
use crate::cri::Method;
use crate::lifecycle::view::{Call, Progress, Pull, Pulls};
use crate::units;

/// Characters that are shown of a digest.
const SHOWN: usize = "sha256:".len() + 12;

/// Pulls that are shown of those that have ended.
const RECENT: usize = 100;

/// Reads how far the pulls of the built-in runtime are.
#[derive(Clone)]
pub struct Pulling(Arc<dyn Fn() -> Vec<Progress> + Send + Sync>);

impl Pulling {
    /// Asks this each time.
    pub fn new(read: impl Fn() -> Vec<Progress> + Send + Sync + 'static) -> Self {
        Self(Arc::new(read))
    }
}

impl std::fmt::Debug for Pulling {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pulling")
    }
}

/// `/debug/images/pulls`
pub async fn page(State(sources): State<Sources>, Query(format): Query<Format>) -> Response {
    let pulls = pulls(&sources);
    match format.is_json() {
        true => Json(pulls).into_response(),
        false => page_at("/debug/images/pulls", "Images", &html(&pulls)).into_response(),
    }
}

/// What is known of pulls now.
pub(super) fn pulls(sources: &Sources) -> Pulls {
    let calls = sources.in_flight.calls();
    let mut recent = sources.recorder.calls();
    recent.retain(|record| record.method == Method::PullImage);
    recent.sort_by_key(|record| std::cmp::Reverse(record.began));
    recent.truncate(RECENT);
    Pulls {
        now_unix_us: units::unix_us(SystemTime::now()),
        in_flight: with_progress(
            calls
                .iter()
                .filter(|call| call.method == Method::PullImage)
                .map(|call| Pull::from(Call::of(&CallRecord::in_flight(call))))
                .collect(),
            sources
                .pulling
                .as_ref()
                .map(|read| (read.0)())
                .unwrap_or_default(),
        ),
        recent: recent.iter().map(Call::of).collect(),
    }
}

/// Finds for each pull how far the built-in runtime is with it. That spells names out: `busybox` is
/// `docker.io/library/busybox:latest` there.
fn with_progress(mut pulls: Vec<Pull>, mut progress: Vec<Progress>) -> Vec<Pull> {
    for pull in &mut pulls {
        let Some(image) = pull.call.image.as_deref().filter(|image| !image.is_empty()) else {
            continue;
        };
        let is_same = |one: &Progress| {
            let tagged = format!("{image}:latest");
            [image, &tagged].into_iter().any(|name| {
                let rest = one.image.strip_suffix(name);
                rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
            })
        };
        if let Some(at) = progress.iter().position(is_same) {
            pull.progress = Some(progress.swap_remove(at));
        }
    }
    pulls
}

fn html(pulls: &Pulls) -> String {
    format!(
        "<section class=\"card\" aria-labelledby=\"now\"><header><h2 id=\"now\">Being pulled</h2></header>{}</section>\
         <section class=\"card\" aria-labelledby=\"then\"><header><h2 id=\"then\">Ended</h2><p>as far as the recorder \
         remembers</p></header>{}</section>",
        in_flight(&pulls.in_flight),
        ended_table(&pulls.recent, pulls.now_unix_us)
    )
}

/// The pulls under way, or that there are none.
pub(super) fn in_flight(pulls: &[Pull]) -> String {
    match pulls.is_empty() {
        true => "<p class=\"none\">No image is being pulled.</p>".to_owned(),
        false => {
            let heads = ["Image", "For", "Since"];
            table("Images being pulled", &heads, pulls, |html, pull| {
                let here = pull.progress.as_ref().map(here).unwrap_or_default();
                write!(html, "{}</tr>", subject(&pull.call, &here))
            })
        }
    }
}

/// How far a pull is, layer by layer. It stands below the image's name, so that it fits into a narrow card.
fn here(progress: &Progress) -> String {
    if progress.layers.is_empty() {
        return "<br><span class=\"sub\">resolving</span>".to_owned();
    }
    let mut html = format!(
        "<progress value=\"{}\" max=\"{}\" aria-hidden=\"true\"></progress>{} of {}",
        progress.bytes,
        progress.of_bytes.max(1),
        units::bytes(progress.bytes),
        units::bytes(progress.of_bytes)
    );
    for layer in progress.layers.iter().filter(|layer| layer.phase != "done") {
        let digest: String = layer.digest.chars().take(SHOWN).collect();
        let how_far = match layer.phase.as_str() {
            "unpacking" => format!("{} so far", units::bytes(layer.unpacked_bytes)),
            _ => format!(
                "{} of {}",
                units::bytes(layer.bytes),
                units::bytes(layer.of_bytes)
            ),
        };
        let _ = write!(
            html,
            "<br><span class=\"sub\">{} {}: {how_far}</span>",
            Escaped(&digest),
            Escaped(&layer.phase),
        );
    }
    html
}

/// Those that have ended, or that there are none.
fn ended_table(pulls: &[Call], now: u64) -> String {
    if pulls.is_empty() {
        return "<p class=\"none\">No pull has ended yet.</p>".to_owned();
    }
    let heads = ["Image", "For", "Took", "Result", "Begun"];
    table("Pulls that have ended", &heads, pulls, |html, pull| {
        let since = units::since(now, pull.began_unix_us);
        write!(
            html,
            "{}<td class=\"msg\">{}</td><td class=\"nw\">{since}</td></tr>",
            subject(pull, ""),
            result(pull)
        )
    })
}

fn table<T>(
    caption: &str,
    heads: &[&str],
    pulls: &[T],
    row: impl Fn(&mut String, &T) -> std::fmt::Result,
) -> String {
    let mut html = format!(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"{caption}\"><table class=\"flow\">\
         <caption class=\"vh\">{caption}</caption><thead><tr>"
    );
    for head in heads {
        let class = match *head {
            "Took" | "Since" => " class=\"n\"",
            _ => "",
        };
        let _ = write!(html, "<th scope=\"col\"{class}>{head}</th>");
    }
    html.push_str("</tr></thead><tbody>");
    for pull in pulls {
        // Writing to a String does not fail.
        let _ = row(&mut html, pull);
    }
    html.push_str("</tbody></table></div>");
    html
}

/// The cells that every pull has.
fn subject(pull: &Call, progress: &str) -> String {
    let pod = match (&pull.namespace, &pull.pod) {
        (Some(namespace), Some(pod)) => links::pod(namespace, pod),
        _ => Escaped(&pull.client).to_string(),
    };
    let image = match pull.image.as_deref().unwrap_or_default() {
        "" => "<span class=\"muted\">not known</span>".to_owned(),
        image => Escaped(image).to_string(),
    };
    format!(
        "<tr><th scope=\"row\" class=\"name\">{image}{progress}</th><td class=\"name\">{pod}</td><td class=\"n\">{}</td>",
        units::duration(pull.duration_ms)
    )
}

fn result(pull: &Call) -> String {
    match pull.outcome.as_str() {
        "ok" => "<span class=\"good\">✓ ok</span>".to_owned(),
        _ => format!(
            "<span class=\"bad\">✗ {}</span> <span class=\"sub\">{}</span>",
            Escaped(&pull.code),
            Escaped(pull.error.as_deref().unwrap_or_default())
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call as Live, Ending, Outcome, Source};
    use crate::cri::subject::{PodIdentity, Subject};
    use crate::lifecycle::view::Layer;

    fn call() -> Live {
        let call = Live::example(Method::PullImage);
        let pod = PodIdentity {
            namespace: "shop".into(),
            name: "<web>".into(),
            ..PodIdentity::default()
        };
        let _ = call.subject.set(Subject {
            pod: Some(Arc::new(pod)),
            image: Some("r.example/<img>:1".into()),
            ..Subject::default()
        });
        call
    }

    #[test]
    fn pulls_are_told_while_they_run_and_afterwards() {
        let call = call();
        let running = Call::of(&CallRecord::in_flight(&call));
        assert_eq!(running.outcome, "in_flight");
        assert_eq!(running.image.as_deref(), Some("r.example/<img>:1"));
        let outcome = Outcome {
            ending: Ending::Error,
            code: tonic::Code::NotFound,
            source: Source::Backend,
            message: Some(Arc::from("no such <image>")),
            elapsed: std::time::Duration::from_millis(1500),
        };
        let done = Call::of(&CallRecord::ended(&call, &outcome));
        assert_eq!(
            (done.code.as_str(), done.duration_ms),
            ("NOT_FOUND", 1500.0)
        );
        let html = html(&Pulls {
            now_unix_us: done.began_unix_us + 5_000_000,
            in_flight: vec![running.into()],
            recent: vec![done],
        });
        assert_eq!(html.matches("r.example/&lt;img&gt;:1").count(), 2, "{html}");
        assert!(html.contains("✗ NOT_FOUND"), "{html}");
        assert!(html.contains("no such &lt;image&gt;") && html.contains("1.50 s"));
        assert!(!html.contains("<img"));
    }

    #[test]
    fn a_pull_shows_how_far_each_layer_is() {
        let layer = |digest: &str, phase: &str| Layer {
            digest: format!("sha256:{digest}"),
            phase: phase.to_owned(),
            bytes: 1 << 20,
            of_bytes: 4 << 20,
            unpacked_bytes: 3 << 20,
        };
        let progress = Progress {
            image: "docker.io/library/web:latest".to_owned(),
            bytes: 3 << 20,
            of_bytes: 12 << 20,
            layers: vec![
                layer("a", "fetching"),
                layer("b", "unpacking"),
                layer("c", "done"),
            ],
            ..Progress::default()
        };
        let pull = Call {
            image: Some("web".to_owned()),
            ..Call::default()
        };
        let html = in_flight(&with_progress(vec![pull.into()], vec![progress]));
        for text in [
            "value=\"3145728\" max=\"12582912\"",
            "3.0 MiB of 12.0 MiB",
            "sha256:a fetching: 1.0 MiB of 4.0 MiB",
            "sha256:b unpacking: 3.0 MiB so far",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert!(!html.contains("sha256:c"), "{html}");
    }

    #[test]
    fn none_is_said_to_be_none() {
        let html = html(&Pulls::default());
        assert!(html.contains("No image is being pulled") && html.contains("No pull has ended"));
    }
}

//! Image pulls: in progress and finished.

use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};

use super::table::{card, number, text, wide_flowing};
use super::verdict::Verdict;
use super::{PageSources, links, pull_verdict};
use crate::call::CallRecord;
use crate::cri::Method;
use crate::lifecycle::view::{CallView, ImagePullList, ImagePullView, PullProgressView};
use crate::units;
use crate::units::times::UnixMicros;

/// Characters shown of a digest.
const DIGEST_CHARACTERS_SHOWN: usize = "sha256:".len() + 12;

/// Most finished pulls shown.
const MAX_FINISHED_PULLS_SHOWN: usize = 100;

/// Reads the progress of the pulls of the built-in runtime.
#[derive(Clone)]
pub struct PullProgressReader {
    running: Arc<dyn Fn() -> Vec<PullProgressView> + Send + Sync>,
    ended: Arc<dyn Fn() -> Vec<EndedPull> + Send + Sync>,
}

/// The end of a pull, and what it fetched.
type EndedPull = (UnixMicros, PullProgressView);

/// A call ends at most this long after its pull.
const CALL_ENDS_AFTER_PULL_WITHIN: Duration = Duration::from_secs(2);

impl PullProgressReader {
    /// Calls `read` for each page.
    pub fn new(read: impl Fn() -> Vec<PullProgressView> + Send + Sync + 'static) -> Self {
        Self {
            running: Arc::new(read),
            ended: Arc::new(Vec::new),
        }
    }

    /// Adds a function that returns the pulls that have ended, the oldest first.
    #[must_use]
    pub fn with_ended(self, read: impl Fn() -> Vec<EndedPull> + Send + Sync + 'static) -> Self {
        Self {
            ended: Arc::new(read),
            ..self
        }
    }
}

impl std::fmt::Debug for PullProgressReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PullProgressReader")
    }
}

/// The pulls in flight, and those in the recorder.
pub(super) fn pulls(sources: &PageSources) -> ImagePullList {
    let calls = sources.in_flight.calls();
    let mut recent = sources.recorder.calls();
    recent.retain(|record| record.method == Method::PullImage);
    recent.sort_by_key(|record| std::cmp::Reverse(record.began));
    recent.truncate(MAX_FINISHED_PULLS_SHOWN);
    ImagePullList {
        now_unix_us: UnixMicros::now(),
        in_flight: with_progress(
            calls
                .iter()
                .filter(|call| call.method == Method::PullImage)
                .map(|call| {
                    ImagePullView::from(CallView::from_record(&CallRecord::in_flight(call)))
                })
                .collect(),
            running(sources),
        ),
        recent: with_sizes(
            recent
                .iter()
                .map(|record| ImagePullView::from(CallView::from_record(record)))
                .collect(),
            sources
                .pulling
                .as_ref()
                .map(|read| (read.ended)())
                .unwrap_or_default(),
        ),
    }
}

/// Progress of pulls that run: those of containerd, then those of the built-in runtime.
fn running(sources: &PageSources) -> Vec<PullProgressView> {
    let mut all = sources.pull_progress.read();
    if let Some(read) = &sources.pulling {
        all.extend((read.running)());
    }
    all
}

/// Adds the progress to each pull. The built-in runtime normalises image names: `busybox` becomes
/// `docker.io/library/busybox:latest`.
fn with_progress(
    mut pulls: Vec<ImagePullView>,
    mut progress: Vec<PullProgressView>,
) -> Vec<ImagePullView> {
    for pull in &mut pulls {
        if let Some(at) = progress.iter().position(|one| is_of(one, &pull.call)) {
            pull.progress = Some(progress.swap_remove(at));
        }
    }
    pulls
}

/// Returns whether this is the progress of a pull of the image of that call.
fn is_of(progress: &PullProgressView, call: &CallView) -> bool {
    let Some(image) = call.image.as_deref().filter(|image| !image.is_empty()) else {
        return false;
    };
    let tagged = format!("{image}:latest");
    [image, &tagged].into_iter().any(|name| {
        let rest = progress.image.strip_suffix(name);
        rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
    })
}

/// Adds the fetched bytes to each pull that ended.
fn with_sizes(mut pulls: Vec<ImagePullView>, mut ended: Vec<EndedPull>) -> Vec<ImagePullView> {
    for pull in &mut pulls {
        let call = &pull.call;
        let end = call.began_unix_us + Duration::from_micros((call.duration_ms * 1e3) as u64);
        let is_same = |(at, progress): &EndedPull| {
            end.abs_diff(*at) < CALL_ENDS_AFTER_PULL_WITHIN && is_of(progress, call)
        };
        if let Some(at) = ended.iter().position(is_same) {
            pull.progress = Some(ended.swap_remove(at).1);
        }
    }
    pulls
}

/// `/debug/images/pulls`
pub(super) fn html(pulls: &ImagePullList) -> (Verdict, Markup) {
    let body = html! {
        (card("now", "In progress", &html! {}, &in_flight(&pulls.in_flight)))
        (card("then", "Finished", &html! { "as long as the recorder remembers them" }, &finished(&pulls.recent, pulls.now_unix_us)))
    };
    (pull_verdict::verdict(pulls), body)
}

/// A table of the pulls in progress.
pub(super) fn in_flight(pulls: &[ImagePullView]) -> Markup {
    if pulls.is_empty() {
        return html! { p.none { "No image is being pulled. A pull is listed with its progress while it runs." } };
    }
    let rows = html! {
        @for pull in pulls {
            tr { (subject(pull, true)) }
        }
    };
    wide_flowing(
        "Images being pulled",
        &html! { (text("Image")) (text("Pod")) (number("Elapsed")) },
        &rows,
    )
}

/// The progress of a pull by layer, below the name of the image so that it fits into a narrow card.
fn layers(progress: &PullProgressView) -> Markup {
    if progress.shared_by > 0 {
        let bytes = units::bytes(progress.bytes);
        return html! { br; span.sub { (progress.shared_by) " pulls share " (bytes) } };
    }
    if progress.layers.is_empty() {
        return html! { br; span.sub { "resolving" } };
    }
    html! {
        @if progress.of_bytes > 0 {
            progress value=(progress.bytes) max=(progress.of_bytes) aria-hidden="true" {}
        }
        (part_done(progress.bytes, progress.of_bytes))
        @for layer in progress.layers.iter().filter(|layer| layer.phase != "done") {
            br;
            span.sub {
                (layer.digest.chars().take(DIGEST_CHARACTERS_SHOWN).collect::<String>()) " " (layer.phase) ": "
                @if layer.phase == "unpacking" && layer.unpacked_bytes == 0 {
                    (units::bytes(layer.bytes))
                } @else if layer.phase == "unpacking" {
                    (units::bytes(layer.unpacked_bytes)) " so far"
                } @else {
                    (part_done(layer.bytes, layer.of_bytes))
                }
            }
        }
    }
}

fn part_done(done: u64, all: u64) -> String {
    match all {
        0 => format!("{} so far", units::bytes(done)),
        all => format!("{} of {}", units::bytes(done), units::bytes(all)),
    }
}

fn finished(pulls: &[ImagePullView], now: UnixMicros) -> Markup {
    if pulls.is_empty() {
        return html! {
            p.none {
                "No pull has finished yet. Pulls stand here with their time, size and result when a pod needs an image that the node does not have, or after "
                code { "crictl pull IMAGE" } "."
            }
        };
    }
    let columns = html! { (text("Image")) (text("Pod")) (number("Took")) (number("Fetched")) (text("Result")) (text("Began")) };
    let rows = html! {
        @for pull in pulls {
            tr {
                (subject(pull, false))
                td.n { (fetched(pull)) }
                td.msg { (result(&pull.call)) }
                td.nw { (units::since(now.since(pull.call.began_unix_us))) }
            }
        }
    };
    wide_flowing("Finished pulls", &columns, &rows)
}

/// The cells that every pull has.
fn subject(pull: &ImagePullView, in_flight: bool) -> Markup {
    let call = &pull.call;
    let progress = pull.progress.as_ref().filter(|_| in_flight);
    html! {
        th.name scope="row" {
            @match call.image.as_deref().unwrap_or_default() {
                "" => span.muted { "unknown" },
                image => (image),
            }
            @if let Some(progress) = progress { (layers(progress)) }
        }
        td.name {
            @match (&call.namespace, &call.pod) {
                (Some(namespace), Some(pod)) => (links::pod(namespace, pod)),
                _ => (call.client),
            }
        }
        td.n {
            (units::duration(call.duration_ms))
            @if let Some(rate) = pull.rate().filter(|_| in_flight) { br; span.sub { (units::bytes(rate)) "/s" } }
            @if let Some(left) = pull.left_ms().filter(|_| in_flight) { br; span.sub { (units::duration(left)) " left" } }
        }
    }
}

/// The bytes that a pull fetched, of those of its image, and how fast.
fn fetched(pull: &ImagePullView) -> Markup {
    let Some(progress) = &pull.progress else {
        return html! {};
    };
    html! {
        (units::bytes(progress.bytes))
        @if progress.bytes < progress.of_bytes { " of " (units::bytes(progress.of_bytes)) }
        @if let Some(rate) = pull.rate() { br; span.sub { (units::bytes(rate)) "/s" } }
    }
}

fn result(pull: &CallView) -> Markup {
    html! {
        @if pull.outcome == "ok" {
            span.good { "✓ ok" }
        } @else {
            span.bad { "✗ " (pull.code) } " " span.sub { (pull.error.as_deref().unwrap_or_default()) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Call as Live, Ending, Outcome, Source};
    use crate::cri::subject::{PodIdentity, Subject};
    use crate::lifecycle::view::LayerProgress;

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
        let running = CallView::from_record(&CallRecord::in_flight(&call));
        assert_eq!(running.outcome, "in_flight");
        assert_eq!(running.image.as_deref(), Some("r.example/<img>:1"));
        let outcome = Outcome {
            ending: Ending::Error,
            code: tonic::Code::NotFound,
            source: Source::Backend,
            message: Some(Arc::from("no such <image>")),
            elapsed: std::time::Duration::from_millis(1500),
        };
        let done = CallView::from_record(&CallRecord::ended(&call, &outcome));
        assert_eq!(
            (done.code.as_str(), done.duration_ms),
            ("NOT_FOUND", 1500.0)
        );
        let (_, html) = html(&ImagePullList {
            now_unix_us: done.began_unix_us + Duration::from_secs(5),
            in_flight: vec![running.into()],
            recent: vec![done.into()],
        });
        let html = html.into_string();
        assert_eq!(html.matches("r.example/&lt;img&gt;:1").count(), 2, "{html}");
        assert!(html.contains("✗ NOT_FOUND"), "{html}");
        assert!(html.contains("no such &lt;image&gt;") && html.contains("1.50 s"));
        assert!(!html.contains("<img"));
    }

    #[test]
    fn a_pull_shows_how_far_each_layer_is() {
        let layer = |digest: &str, phase: &str| LayerProgress {
            digest: format!("sha256:{digest}"),
            phase: phase.to_owned(),
            bytes: 1 << 20,
            of_bytes: 4 << 20,
            unpacked_bytes: 3 << 20,
        };
        let progress = PullProgressView {
            image: "docker.io/library/web:latest".to_owned(),
            bytes: 3 << 20,
            of_bytes: 12 << 20,
            layers: vec![
                layer("a", "fetching"),
                layer("b", "unpacking"),
                layer("c", "done"),
            ],
            ..PullProgressView::default()
        };
        let pull = CallView {
            image: Some("web".to_owned()),
            duration_ms: 2_000.0,
            ..CallView::default()
        };
        let stalled = PullProgressView {
            idle_ms: 9e3,
            ..progress.clone()
        };
        let html_of = |progress| {
            let pulls = with_progress(vec![pull.clone().into()], vec![progress]);
            in_flight(&pulls).into_string()
        };
        assert!(!html_of(stalled).contains(" left"));
        let html = html_of(progress);
        for text in [
            "value=\"3145728\" max=\"12582912\"",
            "3.0 MiB of 12.0 MiB",
            "sha256:a fetching: 1.0 MiB of 4.0 MiB",
            "sha256:b unpacking: 3.0 MiB so far",
            "1.5 MiB/s",
            "6.00 s left",
        ] {
            assert!(html.contains(text), "{text}: {html}");
        }
        assert!(!html.contains("sha256:c"), "{html}");
    }

    #[test]
    fn a_finished_pull_has_its_size_and_rate() {
        let call = |at: u64| {
            ImagePullView::from(CallView {
                image: Some("web:1".to_owned()),
                outcome: "ok".to_owned(),
                began_unix_us: UnixMicros::new(at),
                duration_ms: 2_000.0,
                ..CallView::default()
            })
        };
        let ended = |at, bytes| {
            let image = "docker.io/library/web:1".to_owned();
            let progress = PullProgressView {
                image,
                bytes,
                of_bytes: 4 << 20,
                ..PullProgressView::default()
            };
            (UnixMicros::new(at), progress)
        };
        // The same image twice: the second time all was there.
        let pulls = with_sizes(
            vec![call(60_000_000), call(0)],
            vec![ended(2_000_100, 4 << 20), ended(62_000_100, 0)],
        );
        let html = finished(&pulls, UnixMicros::new(70_000_000)).into_string();
        assert!(
            html.contains("4.0 MiB<br><span class=\"sub\">2.0 MiB/s"),
            "{html}"
        );
        assert!(html.contains("0 B of 4.0 MiB</td>"), "{html}");
        assert_eq!(pulls[0].rate(), None);
    }

    #[test]
    fn none_is_said_to_be_none() {
        let html = html(&ImagePullList::default()).1.into_string();
        assert!(html.contains("No image is being pulled") && html.contains("No pull has finished"));
    }
}

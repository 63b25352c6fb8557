//! The stories of pods: all recent ones, and those of one pod.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::page::{Escaped, Page, framed, page_at};
use super::{Sources, links, nav, near, starts, story};
use crate::story::stories::NO_EPISODE;
use crate::story::view::{Episode, PodStory, Recent, State as Stand, Unknown};

/// Episodes of a list, unless another number is asked for.
const LIMIT: usize = 200;

/// What of the recent episodes is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Filter {
    format: Option<String>,
    /// `start`, `restart`, `stop`, or several with commas.
    kind: Option<String>,
    /// `open`, `ok`, `failed`, or several with commas.
    state: Option<String>,
    namespace: Option<String>,
    /// Anything but `false`: only those in which a call failed.
    failed: Option<String>,
    /// `slowest`; the newest first otherwise.
    sort: Option<String>,
    /// How many at most.
    limit: Option<usize>,
}

/// An empty value asks for nothing: forms send those.
fn asked(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

fn listed(list: Option<&str>, word: &str) -> bool {
    list.is_none_or(|list| list.split(',').any(|entry| entry == word))
}

fn word(state: Stand) -> &'static str {
    match state {
        Stand::Open => "open",
        Stand::Ok => "ok",
        Stand::Failed => "failed",
    }
}

impl Filter {
    fn lets_pass(&self, episode: &Episode) -> bool {
        let failed = asked(self.failed.as_ref()).is_some_and(|it| it != "false");
        listed(asked(self.kind.as_ref()), &episode.kind)
            && listed(asked(self.state.as_ref()), word(episode.state))
            && asked(self.namespace.as_ref()).is_none_or(|it| it == episode.namespace)
            && (!failed || episode.failures > 0 || episode.state == Stand::Failed)
    }

    fn is_slowest(&self) -> bool {
        self.sort.as_deref() == Some("slowest")
    }

    /// What is left, in the order that is asked for.
    fn apply(&self, recent: &mut Recent) {
        recent.episodes.retain(|episode| self.lets_pass(episode));
        if self.is_slowest() {
            recent
                .episodes
                .sort_by(|a, b| b.duration_ms.total_cmp(&a.duration_ms));
        }
        recent.episodes.truncate(self.limit.unwrap_or(LIMIT));
    }
}

/// `/debug/pods`
pub async fn list(State(sources): State<Sources>, Query(filter): Query<Filter>) -> Response {
    let mut recent = sources.stories.recent(&sources.in_flight.calls());
    let known = recent.episodes.len();
    filter.apply(&mut recent);
    match filter.format.as_deref() == Some("json") {
        true => Json(recent).into_response(),
        false => list_page(&recent, &filter, known).into_response(),
    }
}

fn list_page(recent: &Recent, filter: &Filter, known: usize) -> Page {
    let episodes: Vec<_> = recent.episodes.iter().collect();
    let rows = match episodes.is_empty() {
        true if known == 0 => {
            "<p class=\"none\">No pod has been started, restarted or stopped yet.</p>".to_owned()
        }
        true => format!("<p class=\"none\">None of the {known} episodes is of this kind.</p>"),
        false => starts::rows(&episodes, recent.now_unix_us),
    };
    let forgotten = match recent.forgotten {
        0 => String::new(),
        n => format!("; {n} older ones are forgotten"),
    };
    let order = if filter.is_slowest() {
        "slowest"
    } else {
        "newest"
    };
    let body = format!(
        "{}<section class=\"card\" aria-labelledby=\"list\"><header><h2 id=\"list\">Episodes, the {order} first</h2>\
         <p>{} of {known}{forgotten}</p></header>{rows}</section>",
        form(filter),
        episodes.len()
    );
    page_at("/debug/pods", "Pods", &body)
}

/// The filter as a form, which needs no script.
fn form(filter: &Filter) -> String {
    let select = |label: &str, name: &str, chosen: Option<&String>, options: &[(&str, &str)]| {
        let chosen = chosen.map(String::as_str).unwrap_or_default();
        let options: String = options
            .iter()
            .map(|(value, text)| {
                let selected = if *value == chosen { " selected" } else { "" };
                format!("<option value=\"{value}\"{selected}>{text}</option>")
            })
            .collect();
        format!("<label>{label} <select name=\"{name}\">{options}</select></label>")
    };
    format!(
        "<form class=\"filter\" action=\"/debug/pods\">{}{}{}<label>Namespace \
         <input name=\"namespace\" size=\"16\" value=\"{}\"></label><button>Show</button></form>",
        select(
            "Kind",
            "kind",
            filter.kind.as_ref(),
            &[
                ("", "all"),
                ("start", "start"),
                ("restart", "restart"),
                ("stop", "stop")
            ]
        ),
        select(
            "State",
            "state",
            filter.state.as_ref(),
            &[
                ("", "all"),
                ("ok", "ok"),
                ("failed", "failed"),
                ("open", "open")
            ]
        ),
        select(
            "Order",
            "sort",
            filter.sort.as_ref(),
            &[("", "newest first"), ("slowest", "slowest first")]
        ),
        Escaped(filter.namespace.as_deref().unwrap_or_default())
    )
}

/// `?format=json`, and which of the pods of this name.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Which {
    format: Option<String>,
    uid: Option<String>,
}

/// `/debug/pods/NAMESPACE/NAME`
pub async fn one(
    State(sources): State<Sources>,
    Path((namespace, name)): Path<(String, String)>,
    Query(which): Query<Which>,
) -> Response {
    let calls = sources.in_flight.calls();
    let mut found = sources.stories.of_pod(&namespace, &name, &calls);
    if let (Some(story), Some(uid)) = (&mut found, asked(which.uid.as_ref())) {
        of_uid(story, uid);
    }
    let found = found.filter(|story| !(story.episodes.is_empty() && story.sessions.is_empty()));
    let json = which.format.as_deref() == Some("json");
    match found {
        Some(story) if json => Json(story).into_response(),
        Some(story) => pod_page(&story).into_response(),
        None => {
            let recent = sources.stories.recent(&calls);
            let unknown = near::unknown(&namespace, &name, &recent.episodes);
            match json {
                true => (StatusCode::NOT_FOUND, Json(unknown)).into_response(),
                false => unknown_page(&unknown).into_response(),
            }
        }
    }
}

/// Leaves the pod with this uid, and its own sentence.
fn of_uid(story: &mut PodStory, uid: &str) {
    story.episodes.retain(|episode| episode.uid == uid);
    story.sessions.retain(|session| session.uid == uid);
    if story.episodes.is_empty() {
        story.headline = NO_EPISODE.to_owned();
    }
    let told = |episode: &Episode| episode.headline == story.headline;
    if let Some(newest) = story.episodes.last()
        && !story.episodes.iter().any(told)
    {
        story.headline.clone_from(&newest.headline);
    }
}

/// The page of one pod.
pub(super) fn pod_page(it: &PodStory) -> Page {
    let title = format!("{}/{}", it.namespace, it.name);
    let heading = format!(
        "<h1><span class=\"muted\">{}/</span>{}</h1>",
        Escaped(&it.namespace),
        Escaped(&it.name)
    );
    framed(
        &nav::html("/debug/pods"),
        &title,
        &heading,
        &story::html(it),
    )
}

fn unknown_page(unknown: &Unknown) -> Page {
    let mut body = format!("<p class=\"lead\">{}</p>", Escaped(&unknown.error));
    if !unknown.near.is_empty() {
        body.push_str("<p>Did you mean:</p><ul>");
        for near in &unknown.near {
            let (namespace, name) = near.split_once('/').unwrap_or(("", near));
            body.push_str(&format!("<li>{}</li>", links::pod(namespace, name)));
        }
        body.push_str("</ul>");
    }
    body.push_str(
        "<p>Only pods whose calls went through this criscope are known, and the oldest are forgotten. \
         <a href=\"/debug/pods\">All that are known</a>.</p>",
    );
    page_at("", "Not known", &body).status(StatusCode::NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::story::examples;

    fn names(filter: &Filter) -> Vec<String> {
        let mut recent = examples::recent();
        filter.apply(&mut recent);
        recent.episodes.into_iter().map(|it| it.name).collect()
    }

    #[test]
    fn filters_and_order() {
        let all = names(&Filter::default());
        assert_eq!(all.len(), examples::all().len());
        let some = |text: &str| Some(text.to_owned());
        let slowest = names(&Filter {
            sort: some("slowest"),
            limit: Some(2),
            ..Filter::default()
        });
        assert_eq!(slowest, ["db-0", "stuck-1"]);
        let restarts = names(&Filter {
            kind: some("restart"),
            ..Filter::default()
        });
        assert_eq!(restarts, ["leaky-0"]);
        let both = names(&Filter {
            kind: some("start,restart"),
            state: some("failed,open"),
            namespace: some("shop"),
            ..Filter::default()
        });
        assert_eq!(both, ["typo-5c9f", "stuck-1"]);
        let failed = names(&Filter {
            failed: some("true"),
            namespace: some(""),
            ..Filter::default()
        });
        assert_eq!(failed.len(), 3, "two failed, one recovered: {failed:?}");
    }

    #[test]
    fn pods_that_had_the_same_name_are_told_apart_by_uid() {
        let mut story = examples::story(examples::failed_image());
        let other = Episode {
            uid: "other".to_owned(),
            ..examples::slow_cni()
        };
        story.episodes.push(other.clone());
        let mut first = story.clone();
        of_uid(&mut first, &story.episodes[0].uid);
        assert_eq!(
            (first.episodes.len(), &first.headline),
            (1, &story.headline)
        );
        of_uid(&mut story, "other");
        assert_eq!(
            (story.episodes.len(), &story.headline),
            (1, &other.headline)
        );
        of_uid(&mut story, "none");
        assert!(story.episodes.is_empty());
    }

    #[test]
    fn a_container_that_others_wait_for_stands_among_the_calls() {
        let html = pod_page(&examples::story(examples::slow_init())).into_html();
        let row = html
            .find("<strong>init container</strong> migrate")
            .expect("a row");
        let started = html
            .find("<strong>StartContainer</strong> migrate")
            .expect("a call");
        let created = html
            .find("<strong>CreateContainer</strong> postgres")
            .expect("a call");
        assert!(started < row && row < created);
        assert!(
            html.contains("init container <strong>6.50 s</strong> 80 %"),
            "{html}"
        );
    }

    #[test]
    fn hostile_names_stay_text_on_every_page() {
        let recent = examples::recent();
        let filter = Filter {
            namespace: Some("\"><script>".to_owned()),
            ..Filter::default()
        };
        let unknown = near::unknown("<b>", "\"><script>", &recent.episodes);
        for html in [
            list_page(&recent, &filter, 9).into_html(),
            pod_page(&examples::story(examples::hostile())).into_html(),
            unknown_page(&unknown).into_html(),
        ] {
            // One script, ours; no markup of theirs; nothing invisible.
            assert_eq!(html.matches("<script").count(), 1, "{html}");
            assert!(!html.contains("<img") && !html.contains("<b>"), "{html}");
            assert!(!html.contains(['\u{202e}', '\u{200b}', '\u{1b}', '\u{7}']));
        }
    }

    #[test]
    fn a_list_says_when_there_is_nothing() {
        let none = Recent::default();
        let html = list_page(&none, &Filter::default(), 0).into_html();
        assert!(html.contains("No pod has been started"), "{html}");
        let html = list_page(&none, &Filter::default(), 7).into_html();
        assert!(html.contains("None of the 7 episodes"), "{html}");
    }
}

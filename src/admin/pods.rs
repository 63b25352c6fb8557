//! Pods: the list, and the story of one.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::page::{HtmlPage, framed, page_at};
use super::table::card;
use super::{PodPageSources, links, nav, near, starts, story};
use crate::lifecycle::view::{
    EpisodeState as Stand, EpisodeView, PodList, PodStory, PodSummary, RecentEpisodes, UnknownPod,
    crash_loops, sort_pods,
};

/// Most pods on the page, and most episodes of a list, unless `limit` says otherwise.
const DEFAULT_LIST_LIMIT: usize = 200;

/// The query: which pods or episodes, in which order.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodListQuery {
    format: Option<String>,
    /// `pod`: JSON of pods instead of episodes.
    by: Option<String>,
    /// Kinds of episodes: `start`, `restart`, `stop`, or several separated by commas.
    kind: Option<String>,
    /// States. For pods a word that `PodState::is_meant` knows, for episodes `open`, `failing`, `ok`, `failed`, `cancelled`, `crash_loop`; or several
    /// separated by commas.
    state: Option<String>,
    namespace: Option<String>,
    /// A part of the name.
    name: Option<String>,
    /// Anything but `false`: only those with a failed call or of a crash loop.
    failed: Option<String>,
    /// `slowest`: slowest first, after pods in trouble. Otherwise newest first.
    sort: Option<String>,
    limit: Option<usize>,
}

/// Treats an empty value, as forms send it, as absent.
fn asked(value: Option<&String>) -> Option<&str> {
    let value = value.map(|value| value.trim());
    value.filter(|value| !value.is_empty())
}

fn listed(list: Option<&str>, is_meant: impl Fn(&str) -> bool) -> bool {
    list.is_none_or(|list| list.split(',').any(is_meant))
}

fn word(episode: &EpisodeView) -> &'static str {
    match episode.state {
        _ if episode.is_undone() => "crash_loop",
        state => state.name(),
    }
}

impl PodListQuery {
    fn is_named(&self, namespace: &str, name: &str) -> bool {
        asked(self.namespace.as_ref()).is_none_or(|wanted| wanted == namespace)
            && asked(self.name.as_ref()).is_none_or(|part| match part.split_once('/') {
                Some((of, part)) => namespace == of && name.contains(part),
                None => name.contains(part),
            })
    }

    fn only_failed(&self) -> bool {
        asked(self.failed.as_ref()).is_some_and(|value| value != "false")
    }

    fn lets_pass(&self, episode: &EpisodeView) -> bool {
        listed(asked(self.kind.as_ref()), |kind| kind == episode.kind)
            && self.has_state(episode)
            && self.is_named(&episode.namespace, &episode.name)
            && (!self.only_failed()
                || episode.failures > 0
                || episode.state == Stand::Failed
                || episode.crash_loop.is_some())
    }

    fn lets_pod_pass(&self, pod: &PodSummary) -> bool {
        let states = asked(self.state.as_ref());
        listed(states, |state| pod.state.is_meant(state).unwrap_or(false))
            && self.is_named(&pod.namespace, &pod.name)
            && (!self.only_failed() || pod.failures > 0 || pod.state.is_trouble())
    }

    /// A failing episode is open, too.
    fn has_state(&self, episode: &EpisodeView) -> bool {
        listed(asked(self.state.as_ref()), |state| {
            state == word(episode) || (state == "open" && episode.state.is_open())
        })
    }

    fn is_slowest(&self) -> bool {
        self.sort.as_deref() == Some("slowest")
    }

    /// Filters, sorts and truncates.
    fn apply(&self, recent: &mut RecentEpisodes) {
        recent.episodes.retain(|episode| self.lets_pass(episode));
        if self.is_slowest() {
            slowest_first(&mut recent.episodes);
        }
        recent
            .episodes
            .truncate(self.limit.unwrap_or(DEFAULT_LIST_LIMIT));
    }

    /// Filters, sorts and truncates pods; returns how many there were before truncation.
    fn apply_to_pods(&self, pods: &mut PodList, limit: usize) -> usize {
        pods.pods.retain(|pod| self.lets_pod_pass(pod));
        sort_pods(&mut pods.pods, self.is_slowest());
        let found = pods.pods.len();
        pods.pods.truncate(self.limit.unwrap_or(limit));
        found
    }
}

/// The newest restart of each crash loop comes first: it is quick, and yet the worst.
fn slowest_first(episodes: &mut Vec<EpisodeView>) {
    let loops = crash_loops(&*episodes);
    let leads: Vec<_> = loops.iter().map(Option::is_some).collect();
    let mut order: Vec<_> = leads.into_iter().zip(std::mem::take(episodes)).collect();
    order.sort_by(|(lead, a), (other, b)| {
        let slower = b.duration_ms.total_cmp(&a.duration_ms);
        other.cmp(lead).then(slower)
    });
    episodes.extend(order.into_iter().map(|(_, episode)| episode));
}

/// `/debug/pods`
pub async fn list(
    State(sources): State<PodPageSources>,
    Query(filter): Query<PodListQuery>,
) -> Response {
    let calls = sources.in_flight.calls();
    let is_json = filter.format.as_deref() == Some("json");
    if is_json && filter.by.as_deref() != Some("pod") {
        let mut recent = sources.stories.recent(&calls);
        filter.apply(&mut recent);
        return Json(recent).into_response();
    }
    let mut pods = sources.stories.pods(&calls);
    if is_json {
        filter.apply_to_pods(&mut pods, usize::MAX);
        return Json(pods).into_response();
    }
    let found = filter.apply_to_pods(&mut pods, DEFAULT_LIST_LIMIT);
    list_page(&pods, &filter, found).into_response()
}

/// The page of the list; `found` counts the pods that match.
pub(super) fn list_page(pods: &PodList, filter: &PodListQuery, found: usize) -> HtmlPage {
    let shown: Vec<_> = pods.pods.iter().collect();
    let rows = html! {
        @if !shown.is_empty() {
            (starts::rows(&shown, pods.now_unix_us))
        } @else if pods.known == 0 {
            p.none { "No pod has been started, restarted or stopped yet." }
        } @else {
            p.none { "None of the " (pods.known) " pods matches. " a href="/debug/pods" { "All pods" } }
        }
        @if found > shown.len() { p.sub { "and " (found - shown.len()) " more: narrow the search" } }
    };
    let note = html! {
        (found) " of " (pods.known)
        @if pods.forgotten > 0 { "; " (pods.forgotten) " older episodes were dropped" }
    };
    let title = if filter.is_slowest() {
        "In trouble first, then the slowest"
    } else {
        "In trouble first, then the newest"
    };
    let body = html! { (form(filter)) (card("list", title, &note, &rows)) };
    page_at("/debug/pods", "Pods", &body)
}

/// The filter as links and a form, which work without a script.
fn form(filter: &PodListQuery) -> Markup {
    let chosen = asked(filter.state.as_ref()).unwrap_or_default();
    html! {
        form.filter action="/debug/pods" role="search" {
            label {
                "Search "
                input type="search" name="name" size="18" placeholder="part of a name"
                    value=(filter.name.as_deref().unwrap_or_default());
            }
            label {
                "Namespace "
                input name="namespace" size="12" value=(filter.namespace.as_deref().unwrap_or_default());
            }
            @for (label, name, chosen, options) in [
                ("State", "state", chosen, &STATE_FILTERS[..]),
                ("Order", "sort", filter.sort.as_deref().unwrap_or_default(), &ORDER_CHOICES[..]),
            ] {
                label {
                    (label) " "
                    select name=(name) {
                        @for (value, text) in options { option value=(value) selected[*value == chosen] { (text) } }
                    }
                }
            }
            button { "Show" }
            @if chosen != "failing" { a href="/debug/pods?state=failing" { "Failing only" } }
            @else { a href="/debug/pods" { "All pods" } }
        }
    }
}

/// Values and labels of the filter by state.
const STATE_FILTERS: [(&str, &str); 9] = [
    ("", "all"),
    ("failing", "failing, crash loop or failed"),
    ("crash_loop", "crash loop"),
    ("failed", "failed"),
    ("open", "starting or stopping"),
    ("starting", "starting"),
    ("stopping", "stopping"),
    ("ok", "ok"),
    ("gone", "gone"),
];

const ORDER_CHOICES: [(&str, &str); 2] = [("", "newest first"), ("slowest", "slowest first")];

/// `?format=json`, and the uid if several pods had this name.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct PodPageQuery {
    format: Option<String>,
    uid: Option<String>,
}

/// `/debug/pods/NAMESPACE/NAME`
pub async fn one(
    State(sources): State<PodPageSources>,
    Path((namespace, name)): Path<(String, String)>,
    Query(which): Query<PodPageQuery>,
) -> Response {
    let calls = sources.in_flight.calls();
    let uid = asked(which.uid.as_ref());
    let found = sources.stories.pod_story(&namespace, &name, uid, &calls);
    let json = which.format.as_deref() == Some("json");
    match found {
        Some(story) if json => Json(story).into_response(),
        Some(story) => pod_page(&story, sources.trace_url.as_deref()).into_response(),
        None => {
            let recent = sources.stories.recent(&calls);
            let unknown = near::unknown(
                &namespace,
                &name,
                &recent.episodes,
                sources.stories.about_unknown(),
            );
            if json {
                (StatusCode::NOT_FOUND, Json(unknown)).into_response()
            } else {
                unknown_page(&unknown).into_response()
            }
        }
    }
}

/// The page of one pod.
pub(super) fn pod_page(it: &PodStory, trace_url: Option<&str>) -> HtmlPage {
    let title = format!("{}/{}", it.namespace, it.name);
    let heading = html! { span.muted { (it.namespace) "/" } (it.name) };
    framed(
        &nav::html("/debug/pods"),
        &title,
        &heading,
        &story::html(it, trace_url),
    )
}

fn unknown_page(unknown: &UnknownPod) -> HtmlPage {
    let near = unknown
        .near
        .iter()
        .map(|near| near.split_once('/').unwrap_or(("", near)));
    let body = html! {
        p.lead { (unknown.error) }
        @if !unknown.near.is_empty() {
            p { "Did you mean:" }
            ul { @for (namespace, name) in near { li { (links::pod(namespace, name)) } } }
        }
        @if !unknown.notes.is_empty() { ul { @for note in &unknown.notes { li { (note) "." } } } }
        p {
            "Only pods whose calls went through this criscope are recorded, and the oldest are dropped. "
            a href="/debug/pods" { "All pods" } "."
        }
    };
    page_at("", "Unknown pod", &body).status(StatusCode::NOT_FOUND)
}

#[cfg(test)]
mod tests;

//! Pods: the list, and the story of one.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::live::how_pods_appear;
use super::page::{HtmlPage, framed, page_at};
use super::table::card;
use super::verdict::{Verdict, sentence};
use super::{PodPageSources, kubelet_pods, links, nav, near, starts, story};
use crate::lifecycle::view::{
    CauseGroup, EpisodeState as Stand, EpisodeView, PodList, PodStory, PodSummary, PodTrouble,
    RecentEpisodes, UnknownPod, VerdictLevel, crash_loops, sort_pods,
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
    /// States. For pods a word that `PodState::is_meant` knows, or the name of a `PodTrouble`; for episodes `open`, `failing`, `ok`, `failed`, `cancelled`, `crash_loop`; or several
    /// separated by commas.
    state: Option<String>,
    /// Causes: the name of one, or of a group of them (`CauseGroup`), or several separated by commas.
    cause: Option<String>,
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
    /// The query of a URL.
    #[cfg(test)]
    pub(super) fn from_query(query: &str) -> Self {
        let uri = format!("/debug/pods?{query}").parse().expect("a URI");
        let Query(query) = Query::try_from_uri(&uri).expect("a query");
        query
    }

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
            && listed(asked(self.cause.as_ref()), |cause| {
                CauseGroup::selects(
                    cause,
                    CauseGroup::from_cause(&episode.cause),
                    &episode.cause,
                )
            })
            && self.is_named(&episode.namespace, &episode.name)
            && (!self.only_failed()
                || episode.failures > 0
                || episode.state == Stand::Failed
                || episode.crash_loop.is_some())
    }

    fn lets_pod_pass(&self, pod: &PodSummary) -> bool {
        let states = asked(self.state.as_ref());
        let trouble = pod.trouble().map(PodTrouble::name);
        listed(states, |state| {
            pod.state.is_meant(state).unwrap_or(false) || trouble == Some(state)
        }) && listed(asked(self.cause.as_ref()), |cause| {
            CauseGroup::selects(cause, pod.cause_group(), &pod.cause)
        }) && self.is_named(&pod.namespace, &pod.name)
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
    pub(super) fn apply_to_pods(&self, pods: &mut PodList, limit: usize) -> usize {
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
            (how_pods_appear())
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
    let body = html! { (shown_part(filter, found, pods.known)) (form(filter)) (card("list", title, &note, &rows)) };
    page_at(
        "/debug/pods",
        "Pods",
        &Verdict::over_node(&pods.verdict),
        &body,
    )
}

/// A line on the filter of the list, with a link to the whole list.
fn shown_part(filter: &PodListQuery, found: usize, known: usize) -> Markup {
    let filters = [
        ("state", &filter.state),
        ("cause", &filter.cause),
        ("namespace", &filter.namespace),
        ("name", &filter.name),
        ("failed", &filter.failed),
    ];
    let filters = filters
        .into_iter()
        .filter_map(|(key, value)| Some((key, asked(value.as_ref())?)));
    let filters: Vec<_> = filters.collect();
    html! {
        @if !filters.is_empty() {
            p.filtered {
                "Shown: " (found) " of " (known) " pods, with "
                @for (n, (key, value)) in filters.into_iter().enumerate() {
                    @if n > 0 { ", " }
                    (key) " " strong { (words_of_filter(key, value)) }
                }
                ". " a href="/debug/pods" { "Show all" }
            }
        }
    }
}

/// The value of a filter as people say it.
fn words_of_filter(key: &str, value: &str) -> String {
    let label = STATE_FILTERS.iter().find(|(state, _)| *state == value);
    match (key, label) {
        ("state", Some((_, label))) => (*label).to_owned(),
        ("state" | "cause", _) => value.replace('_', " "),
        _ => value.to_owned(),
    }
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
            @if let Some(cause) = asked(filter.cause.as_ref()) { input type="hidden" name="cause" value=(cause); }
            button { "Show" }
            @if chosen != "failing" { a href="/debug/pods?state=failing" { "Failing only" } }
            @else { a href="/debug/pods" { "All pods" } }
        }
    }
}

/// Values and labels of the filter by state.
const STATE_FILTERS: [(&str, &str); 15] = [
    ("", "all"),
    ("failing", "failing, crash loop or failed"),
    ("cannot_start", "cannot start"),
    ("crash_loop", "crash loop"),
    ("cannot_stop", "cannot stop"),
    ("unhealthy", "up, but unhealthy"),
    ("slow_start", "slow to start"),
    ("failed", "failed"),
    ("stopped", "stopped"),
    ("open", "starting or stopping"),
    ("starting", "starting"),
    ("stopping", "stopping"),
    ("ok", "ok"),
    ("completed", "completed"),
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
        Some(story) => {
            let pod = sources.stories.pod(&namespace, &name, uid, &calls);
            let level = pod.map_or(VerdictLevel::Empty, |pod| pod.level());
            pod_page(&story, level, sources.trace_url.as_deref()).into_response()
        }
        None => {
            let known = sources.stories.pods(&calls).pods;
            let active = kubelet_pods::active(sources.kubelet_dir.as_deref()).await;
            let notes = match active {
                Some(active) => sources
                    .stories
                    .about_unknown_pod((&namespace, &name), &active),
                None => sources.stories.about_unknown(),
            };
            let unknown = near::unknown(&namespace, &name, &known, notes);
            if json {
                (StatusCode::NOT_FOUND, Json(unknown)).into_response()
            } else {
                unknown_page(&unknown).into_response()
            }
        }
    }
}

/// The page of one pod, whose trouble has this severity.
pub(super) fn pod_page(story: &PodStory, level: VerdictLevel, trace_url: Option<&str>) -> HtmlPage {
    let title = format!("{}/{}", story.namespace, story.name);
    let heading = html! { span.muted { (story.namespace) "/" } (story.name) };
    framed(
        &nav::html("/debug/pods"),
        &title,
        &heading,
        &Verdict::new(level, &story.headline),
        &story::html(story, trace_url),
    )
}

pub(super) fn unknown_page(unknown: &UnknownPod) -> HtmlPage {
    let near = unknown
        .near
        .iter()
        .map(|near| near.split_once('/').unwrap_or(("", near)));
    let body = html! {
        @if !unknown.near.is_empty() {
            p { "Did you mean:" }
            ul { @for (namespace, name) in near { li { (links::pod(namespace, name)) } } }
        }
        @if !unknown.notes.is_empty() { ul { @for note in &unknown.notes { li { (note) "." } } } }
        p {
            "criscope knows pods whose calls it has seen, and pods that the runtime lists. The oldest episodes are dropped. "
            a href="/debug/pods" { "All pods" } "."
        }
    };
    let verdict = Verdict::warning(sentence(&unknown.error));
    page_at("/debug/pods", "Unknown pod", &verdict, &body).status(StatusCode::NOT_FOUND)
}

#[cfg(test)]
mod tests;

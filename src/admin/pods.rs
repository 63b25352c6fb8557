//! The stories of pods: all recent episodes, and those of one pod.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Deserialize;

use super::page::{Page, framed, page_at};
use super::table::card;
use super::{Sources, links, nav, near, starts, story};
use crate::lifecycle::view::{Episode, PodStory, Recent, State as Stand, Unknown, crash_loops};

/// Most episodes of a list, unless `limit` says otherwise.
const LIMIT: usize = 200;

/// The query: which of the recent episodes, in which order.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Filter {
    format: Option<String>,
    /// `start`, `restart`, `stop`, or several separated by commas.
    kind: Option<String>,
    /// `open`, `ok`, `failed`, `crash_loop`, or several separated by commas.
    state: Option<String>,
    namespace: Option<String>,
    /// Anything but `false`: only episodes with a failed call or of a crash loop.
    failed: Option<String>,
    /// `slowest`: slowest first, after the newest restart of each crash loop. Otherwise newest first.
    sort: Option<String>,
    limit: Option<usize>,
}

/// Treats an empty value, as forms send it, as absent.
fn asked(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

fn listed(list: Option<&str>, word: &str) -> bool {
    list.is_none_or(|list| list.split(',').any(|entry| entry == word))
}

fn word(episode: &Episode) -> &'static str {
    match episode.state {
        _ if episode.is_undone() => "crash_loop",
        Stand::Open => "open",
        Stand::Ok => "ok",
        Stand::Failed => "failed",
    }
}

impl Filter {
    fn lets_pass(&self, episode: &Episode) -> bool {
        let failed = asked(self.failed.as_ref()).is_some_and(|it| it != "false");
        listed(asked(self.kind.as_ref()), &episode.kind)
            && listed(asked(self.state.as_ref()), word(episode))
            && asked(self.namespace.as_ref()).is_none_or(|it| it == episode.namespace)
            && (!failed
                || episode.failures > 0
                || episode.state == Stand::Failed
                || episode.crash_loop.is_some())
    }

    fn is_slowest(&self) -> bool {
        self.sort.as_deref() == Some("slowest")
    }

    /// Filters, sorts and truncates.
    fn apply(&self, recent: &mut Recent) {
        recent.episodes.retain(|episode| self.lets_pass(episode));
        if self.is_slowest() {
            slowest_first(&mut recent.episodes);
        }
        recent.episodes.truncate(self.limit.unwrap_or(LIMIT));
    }
}

/// The newest restart of each crash loop comes first: it is quick, and yet the worst.
fn slowest_first(episodes: &mut Vec<Episode>) {
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
pub async fn list(State(sources): State<Sources>, Query(filter): Query<Filter>) -> Response {
    let mut recent = sources.stories.recent(&sources.in_flight.calls());
    let known = recent.episodes.len();
    filter.apply(&mut recent);
    match filter.format.as_deref() == Some("json") {
        true => Json(recent).into_response(),
        false => list_page(&recent, &filter, known).into_response(),
    }
}

/// The page of the list; `known` counts the episodes before the filter.
pub(super) fn list_page(recent: &Recent, filter: &Filter, known: usize) -> Page {
    let episodes: Vec<_> = recent.episodes.iter().collect();
    let rows = html! {
        @if !episodes.is_empty() {
            (starts::rows(&episodes, recent.now_unix_us))
        } @else if known == 0 {
            p.none { "No pod has been started, restarted or stopped yet." }
        } @else {
            p.none { "None of the " (known) " episodes matches." }
        }
    };
    let note = html! {
        (episodes.len()) " of " (known) @if recent.forgotten > 0 { "; " (recent.forgotten) " older ones were dropped" }
    };
    let title = match filter.is_slowest() {
        true => "Episodes, slowest first",
        false => "Episodes, newest first",
    };
    let body = html! { (form(filter)) (card("list", title, &note, &rows)) };
    page_at("/debug/pods", "Pods", &body)
}

/// The filter as a form, which works without a script.
fn form(filter: &Filter) -> Markup {
    html! {
        form.filter action="/debug/pods" {
            @for (label, name, chosen, options) in [
                ("Kind", "kind", &filter.kind, &[("", "all"), ("start", "start"), ("restart", "restart"), ("stop", "stop")][..]),
                ("State", "state", &filter.state, &[
                    ("", "all"), ("ok", "ok"), ("failed", "failed"), ("crash_loop", "crash loop"), ("open", "open"),
                ]),
                ("Order", "sort", &filter.sort, &[("", "newest first"), ("slowest", "slowest first")]),
            ] {
                label {
                    (label) " "
                    select name=(name) {
                        @for (value, text) in options {
                            option value=(value) selected[*value == chosen.as_deref().unwrap_or_default()] { (text) }
                        }
                    }
                }
            }
            label {
                "Namespace "
                input name="namespace" size="16" value=(filter.namespace.as_deref().unwrap_or_default());
            }
            button { "Show" }
        }
    }
}

/// `?format=json`, and the uid if several pods had this name.
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
    let uid = asked(which.uid.as_ref());
    let found = sources.stories.of_pod(&namespace, &name, uid, &calls);
    let json = which.format.as_deref() == Some("json");
    match found {
        Some(story) if json => Json(story).into_response(),
        Some(story) => pod_page(&story).into_response(),
        None => {
            let recent = sources.stories.recent(&calls);
            let unknown = near::unknown(
                &namespace,
                &name,
                &recent.episodes,
                sources.stories.about_unknown(),
            );
            match json {
                true => (StatusCode::NOT_FOUND, Json(unknown)).into_response(),
                false => unknown_page(&unknown).into_response(),
            }
        }
    }
}

/// The page of one pod.
pub(super) fn pod_page(it: &PodStory) -> Page {
    let title = format!("{}/{}", it.namespace, it.name);
    let heading = html! { span.muted { (it.namespace) "/" } (it.name) };
    framed(
        &nav::html("/debug/pods"),
        &title,
        &heading,
        &story::html(it),
    )
}

fn unknown_page(unknown: &Unknown) -> Page {
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

//! The stories of pods: all recent ones, and those of one pod.

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::page::{Escaped, Page, framed, page_at};
use super::{Sources, links, nav, near, starts, story};
use crate::lifecycle::view::{Episode, PodStory, Recent, State as Stand, Unknown, crash_loops};

/// Episodes of a list, unless another number is asked for.
const LIMIT: usize = 200;

/// What of the recent episodes is asked for.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Filter {
    format: Option<String>,
    /// `start`, `restart`, `stop`, or several with commas.
    kind: Option<String>,
    /// `open`, `ok`, `failed`, `crash_loop`, or several with commas.
    state: Option<String>,
    namespace: Option<String>,
    /// Anything but `false`: only those in which a call failed, or of a crash loop.
    failed: Option<String>,
    /// `slowest`, after one of each crash loop; the newest first otherwise.
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

    /// What is left, in the order that is asked for.
    fn apply(&self, recent: &mut Recent) {
        recent.episodes.retain(|episode| self.lets_pass(episode));
        if self.is_slowest() {
            slowest_first(&mut recent.episodes);
        }
        recent.episodes.truncate(self.limit.unwrap_or(LIMIT));
    }
}

/// Restarts of a crash loop are quick, and yet what is worst: the newest of each stands before the slowest.
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

/// The page of the list, of so many episodes that are known.
pub(super) fn list_page(recent: &Recent, filter: &Filter, known: usize) -> Page {
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
                ("crash_loop", "crash loop"),
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
    let uid = asked(which.uid.as_ref());
    let found = sources.stories.of_pod(&namespace, &name, uid, &calls);
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
mod tests;

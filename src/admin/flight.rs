//! The flight recorder as a page, as JSON and as a trace file: `/debug/flight`.

use std::io;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;

use super::PageSources;
use super::page::page_at;
use super::table::{number, table, text};
use super::tracez::{self, NO_SUCH_METHOD, method_of};
use super::verdict::Verdict;
use crate::lifecycle::recorder::dump::{DumpFilter, RecorderDump};
use crate::lifecycle::view;
use crate::units;
use crate::units::times::UnixMicros;

/// Most calls on the page.
const MAX_CALLS_SHOWN: usize = 100;

/// The query.
#[derive(Debug, Default, Deserialize)]
pub struct FlightRecorderQuery {
    format: Option<String>,
    /// `NAMESPACE/NAME`
    pod: Option<String>,
    method: Option<String>,
}

impl FlightRecorderQuery {
    /// The page, for this method alone if there is one.
    pub(super) fn for_method(method: Option<String>) -> Self {
        Self {
            method,
            ..Self::default()
        }
    }

    /// The filters that the query sets, by name.
    fn filters(&self) -> Vec<(&'static str, &str)> {
        let filters = [("pod", &self.pod), ("method", &self.method)];
        filters
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)))
            .collect()
    }

    /// The filter, or an error about the query.
    fn filter(&self) -> Result<DumpFilter, &'static str> {
        let pod = self.pod.as_deref().map(|pod| {
            let parts = pod.split_once('/').ok_or("pod is NAMESPACE/NAME\n");
            parts.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
        });
        let method = self.method.as_deref();
        let method = method.map(|name| method_of(name).ok_or(NO_SUCH_METHOD));
        Ok(DumpFilter {
            pod: pod.transpose()?,
            method: method.transpose()?,
        })
    }
}

/// `/debug/flight`
pub async fn page(
    State(sources): State<PageSources>,
    Query(wanted): Query<FlightRecorderQuery>,
) -> Response {
    let filter = match wanted.filter() {
        Ok(filter) => filter,
        Err(refusal) => return (StatusCode::BAD_REQUEST, refusal).into_response(),
    };
    // Reading takes milliseconds, which would delay the other tasks of the side thread.
    let page = tokio::task::spawn_blocking(move || answer(&sources, &wanted, &filter)).await;
    page.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
}

fn answer(sources: &PageSources, wanted: &FlightRecorderQuery, filter: &DumpFilter) -> Response {
    let dumps = Arc::clone(&sources.dumps);
    let dump = dumps.collect("http", None, filter);
    let most = dumps.max_bytes();
    match wanted.format.as_deref() {
        Some("json") => file("inline", "flight.json", |out| {
            dump.write_json(out, most).map(drop)
        }),
        Some("perfetto") => file("attachment", "flight.trace.json", |out| {
            dump.write_trace(out, most).map(drop)
        }),
        Some(_) => (StatusCode::BAD_REQUEST, "format is json or perfetto\n").into_response(),
        None => {
            let body = html(&dump, wanted, filter, sources);
            page_at("/debug/flight", "Flight recorder", &verdict(&dump), &body).into_response()
        }
    }
}

fn file(how: &str, name: &str, write: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Response {
    let mut body = Vec::new();
    if let Err(error) = write(&mut body) {
        return failed(&error);
    }
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("{how}; filename=\"criscope-{name}\""),
        ),
    ];
    (headers, body).into_response()
}

/// The verdict over the recorded calls. It names the last one that failed.
fn verdict(dump: &RecorderDump) -> Verdict {
    let memory = dump.memory();
    let all = memory.calls.len() + memory.polls.len();
    let calls = memory.calls.iter().chain(&memory.polls);
    let failed: Vec<_> = calls.filter(|call| call.is_bad()).collect();
    let newest = failed.iter().max_by_key(|call| call.ended_at());
    match (all, newest) {
        (0, _) => Verdict::empty("No call is recorded yet."),
        (_, None) => Verdict::good(format!("None of the {all} recorded calls failed.")),
        (_, Some(newest)) => {
            let since = units::since(UnixMicros::now().since(newest.ended_at()));
            let (failed, method) = (failed.len(), newest.method.name());
            Verdict::warning(format!(
                "{failed} of {all} recorded calls failed; the last was {method}, {since}."
            ))
        }
    }
}

fn html(
    dump: &RecorderDump,
    wanted: &FlightRecorderQuery,
    filter: &DumpFilter,
    sources: &PageSources,
) -> Markup {
    html! {
        (summary(dump, wanted))
        (recorded(dump))
        // Samples belong to a method, not to a pod.
        @if filter.pod.is_none() { (tracez::part(sources, filter.method)) }
        (files(sources))
    }
}

fn summary(dump: &RecorderDump, wanted: &FlightRecorderQuery) -> Markup {
    let memory = dump.memory();
    let filters = wanted.filters();
    html! {
        @for (what, value) in &filters {
            p { "Only " (what) " " code { (value) } ". " a href="/debug/flight" { "All" } }
        }
        p {
            (memory.calls.len()) " calls that changed something, failed or were slow; "
            (memory.polls.len()) " other calls; " (dump.in_flight().len()) " in flight. "
            (memory.forgotten) " older ones were overwritten."
        }
        p {
            a href=(download_link("json", &filters)) { "As JSON" } ", or "
            a href=(download_link("perfetto", &filters)) { "as a trace file" } " for "
            code { "ui.perfetto.dev" } " and " code { "chrome://tracing" } ". "
            code { "?pod=NAMESPACE/NAME" } " and " code { "?method=NAME" } " filter; SIGUSR2 writes both to disk."
        }
    }
}

fn download_link(format: &str, filters: &[(&str, &str)]) -> String {
    let mut link = format!("/debug/flight?format={format}");
    for (key, value) in filters {
        link.extend(["&", key, "="]);
        link.extend(utf8_percent_encode(value, NON_ALPHANUMERIC));
    }
    link
}

fn recorded(dump: &RecorderDump) -> Markup {
    let now = UnixMicros::now();
    let calls = &dump.memory().calls;
    let recent = calls.iter().rev().take(MAX_CALLS_SHOWN);
    let recent: Vec<_> = recent
        .map(|call| view::CallView::from_record(call))
        .collect();
    let in_flight = dump.in_flight().iter().take(MAX_CALLS_SHOWN);
    html! {
        @if !dump.in_flight().is_empty() || !recent.is_empty() {
            h2 { "In flight and recent" }
            (tracez::calls(in_flight.chain(&recent), now))
        }
    }
}

fn files(sources: &PageSources) -> Markup {
    let files = sources.dumps.stored();
    html! {
        h2 { "On disk" }
        p { "In " code { (sources.dumps.dir().display().to_string()) } ", newest first." }
        @if files.is_empty() {
            p.none { "No file is stored yet. SIGUSR2, a panic, or a call that is stuck makes criscope write one." }
        } @else {
            (table(&html! { (text("file")) (number("bytes")) }, &html! {
                @for (name, len) in files { tr { td { (name) } td.n { (len) } } }
            }))
        }
    }
}

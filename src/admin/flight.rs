//! The flight recorder: what it remembers, as a page, as JSON and as a trace file: `/debug/flight`.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::Sources;
use super::page::{Escaped, page_at};
use super::tracez::{CALLS_HEAD, NO_SUCH_METHOD, method_of, write_call};
use crate::lifecycle::recorder::dump::{Dump, Filter};
use crate::lifecycle::view;
use crate::units;

/// Most calls on the page.
const SHOWN: usize = 100;

/// What is asked for.
#[derive(Debug, Default, Deserialize)]
pub struct Wanted {
    format: Option<String>,
    /// `NAMESPACE/NAME`
    pod: Option<String>,
    method: Option<String>,
}

impl Wanted {
    /// Which calls are wanted, or what is wrong with the question.
    fn filter(&self) -> Result<Filter, &'static str> {
        let pod = self.pod.as_deref().map(|pod| {
            let parts = pod.split_once('/').ok_or("pod is NAMESPACE/NAME\n");
            parts.map(|(namespace, name)| (namespace.to_owned(), name.to_owned()))
        });
        let method = self.method.as_deref();
        let method = method.map(|name| method_of(name).ok_or(NO_SUCH_METHOD));
        Ok(Filter {
            pod: pod.transpose()?,
            method: method.transpose()?,
        })
    }
}

/// `/debug/flight`
pub async fn page(State(sources): State<Sources>, Query(wanted): Query<Wanted>) -> Response {
    let filter = match wanted.filter() {
        Ok(filter) => filter,
        Err(refusal) => return (StatusCode::BAD_REQUEST, refusal).into_response(),
    };
    // It takes milliseconds; the side thread has other things to do.
    let work = move || answer(&sources, &wanted, &filter);
    let made = tokio::task::spawn_blocking(work).await;
    made.unwrap_or_else(|error| failed(&error))
}

fn failed(error: &dyn std::error::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response()
}

fn answer(sources: &Sources, wanted: &Wanted, filter: &Filter) -> Response {
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
        None => page_at(
            "/debug/flight",
            "Flight recorder",
            &html(&dump, wanted, sources),
        )
        .into_response(),
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

fn html(dump: &Dump, wanted: &Wanted, sources: &Sources) -> String {
    let mut html = String::new();
    // Writing to a String does not fail.
    let _ = write_summary(&mut html, dump, wanted);
    let _ = write_calls(&mut html, dump);
    let _ = write_files(&mut html, sources);
    html
}

fn write_summary(html: &mut String, dump: &Dump, wanted: &Wanted) -> std::fmt::Result {
    let memory = dump.memory();
    let link = |format: &str| {
        let mut link = format!("/debug/flight?format={format}");
        for (key, value) in [("pod", &wanted.pod), ("method", &wanted.method)] {
            if let Some(value) = value {
                let value = percent_encoding::utf8_percent_encode(
                    value,
                    percent_encoding::NON_ALPHANUMERIC,
                );
                let _ = write!(link, "&amp;{key}={value}");
            }
        }
        link
    };
    for (what, value) in [("pod", &wanted.pod), ("method", &wanted.method)] {
        if let Some(value) = value {
            write!(html, "<p>Only {what} <code>{}</code>. ", Escaped(value))?;
            html.push_str("<a href=\"/debug/flight\">All</a></p>\n");
        }
    }
    writeln!(
        html,
        "<p>{} calls that changed something, failed or were slow; {} other calls; {} in flight. {} that came before are \
         forgotten.</p>\n<p><a href=\"{}\">As JSON</a>, or <a href=\"{}\">as a trace file</a> for \
         <code>ui.perfetto.dev</code> and <code>chrome://tracing</code>. <code>?pod=NAMESPACE/NAME</code> and \
         <code>?method=NAME</code> choose; SIGUSR2 writes both to disk.</p>",
        memory.calls.len(),
        memory.polls.len(),
        dump.in_flight().len(),
        memory.forgotten,
        link("json"),
        link("perfetto"),
    )
}

fn write_calls(html: &mut String, dump: &Dump) -> std::fmt::Result {
    let now = units::unix_us(SystemTime::now());
    let calls = &dump.memory().calls;
    if dump.in_flight().is_empty() && calls.is_empty() {
        return Ok(());
    }
    write!(
        html,
        "<h2>In flight, and the last that mattered</h2>\n{CALLS_HEAD}"
    )?;
    for row in dump.in_flight().iter().take(SHOWN) {
        write_call(html, row, now)?;
    }
    for record in calls.iter().rev().take(SHOWN) {
        write_call(html, &view::Call::of(record), now)?;
    }
    html.push_str("</tbody></table>\n");
    Ok(())
}

fn write_files(html: &mut String, sources: &Sources) -> std::fmt::Result {
    let dumps = &sources.dumps;
    write!(
        html,
        "<h2>On disk</h2>\n<p>In <code>{}</code>, the newest first.</p>\n",
        Escaped(dumps.dir().display())
    )?;
    let files = dumps.stored();
    if files.is_empty() {
        html.push_str("<p>None.</p>\n");
        return Ok(());
    }
    html.push_str(
        "<table><thead><tr><th scope=\"col\">file</th><th scope=\"col\" class=\"n\">bytes</th></tr></thead><tbody>\n",
    );
    for (name, len) in files {
        writeln!(
            html,
            "<tr><td>{}</td><td class=\"n\">{len}</td></tr>",
            Escaped(name)
        )?;
    }
    html.push_str("</tbody></table>\n");
    Ok(())
}

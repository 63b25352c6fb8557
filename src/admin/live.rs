//! The front page: what goes on now, at a glance.

use std::time::SystemTime;

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::backends;
use super::calls::{self, Format};
use super::page::{Escaped, Page, framed, lone};
use super::runtimes::{self, Standing};
use super::{Sources, methods, nav, pulls, sessions, starts};
use crate::lifecycle::tables::{RpcTable, rpc_table};
use crate::lifecycle::view::{Call, Episode, OpenSession, Pull, State as Stand, crash_loops};
use crate::units;
use crate::version;

/// Starts that are shown.
const STARTS: usize = 40;

/// `/?format=json`
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Live {
    /// The time of this answer, in microseconds since 1970.
    pub(super) now_unix_us: u64,
    /// Our version.
    pub(super) version: &'static str,
    /// This machine's name.
    pub(super) host: String,
    /// How long we have been running, in milliseconds.
    pub(super) uptime_ms: f64,
    /// The runtimes.
    pub(super) backends: Vec<Standing>,
    /// Calls in flight, the oldest first.
    pub(super) calls: Vec<Call>,
    /// Sessions of exec, attach and port-forward that are open, the oldest first.
    pub(super) sessions: Vec<OpenSession>,
    /// Rates, errors and latencies by method.
    pub(super) methods: RpcTable,
    /// The newest starts and restarts, without their calls.
    pub(super) starts: Vec<Episode>,
    /// Crash loops, also those of which no restart is among these.
    pub(super) crash_loops: usize,
    /// Images that are being pulled.
    pub(super) pulls: Vec<Pull>,
}

/// `/`
pub async fn page(State(sources): State<Sources>, Query(format): Query<Format>) -> Response {
    let live = live(&sources);
    match format.is_json() {
        true => Json(live).into_response(),
        false => html(&live).into_response(),
    }
}

/// `/` where there is nothing below `/debug`: no names of pods.
pub async fn bare(State(sources): State<Sources>) -> Page {
    let body = format!(
        "<dl class=\"facts\">{}</dl><p>The pages under /debug are turned off (admin.debug).</p>",
        backends::html(&runtimes::standings(&sources))
    );
    lone("criscope", &body)
}

fn live(sources: &Sources) -> Live {
    let mut recent = sources.stories.recent(&sources.in_flight.calls());
    recent.episodes.retain(|episode| episode.kind != "stop");
    let crash_loops = crash_loops(&recent.episodes);
    let crash_loops = crash_loops.iter().flatten().count();
    recent.episodes.truncate(STARTS);
    Live {
        now_unix_us: units::unix_us(SystemTime::now()),
        version: version::with_commit(),
        host: host(),
        uptime_ms: sources.started.elapsed().as_secs_f64() * 1e3,
        backends: runtimes::standings(sources),
        calls: calls::rows(sources),
        sessions: sources.stories.open_sessions(),
        methods: rpc_table(&sources.rates, &sources.in_flight.calls()),
        starts: recent.episodes,
        crash_loops,
        pulls: pulls::pulls(sources).in_flight,
    }
}

pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.unwrap_or_default().trim().to_owned()
}

pub(super) fn html(live: &Live) -> Page {
    let heading = format!(
        "<h1>{} <small class=\"muted\">what goes on between the kubelet and the runtime</small></h1>",
        Escaped(&live.host)
    );
    let body = format!(
        "{}<div class=\"cols\"><div class=\"stack\">{}{}</div><div class=\"stack\">{}{}{}</div></div>",
        facts(live),
        in_flight(live),
        recent_starts(live),
        by_method(live),
        images(live),
        open_sessions(live)
    );
    framed(&nav::html("/"), &live.host, &heading, &body)
}

fn facts(live: &Live) -> String {
    let stuck = live.calls.iter().filter(|row| row.stuck.is_some()).count();
    let stuck = match stuck {
        0 => String::new(),
        n => format!(" <span class=\"warn\">{n} stuck</span>"),
    };
    format!(
        "<dl class=\"facts\">{}{}<div><dt>Calls in flight</dt><dd>{}{stuck}</dd></div>\
         <div><dt>Running for</dt><dd>{}</dd></div><div><dt>criscope</dt><dd>{}</dd></div></dl>",
        backends::html(&live.backends),
        methods::facts(&live.methods),
        live.calls.len(),
        units::duration(live.uptime_ms),
        Escaped(live.version)
    )
}

fn card(id: &str, title: &str, note: &str, content: &str) -> String {
    format!(
        "<section class=\"card\" aria-labelledby=\"{id}\"><header><h2 id=\"{id}\">{title}</h2><p>{note}</p></header>\
         {content}</section>"
    )
}

fn in_flight(live: &Live) -> String {
    card(
        "flight",
        "Calls in flight",
        "the oldest first",
        &calls::table(&live.calls),
    )
}

fn recent_starts(live: &Live) -> String {
    let episodes: Vec<_> = live.starts.iter().collect();
    if episodes.is_empty() {
        let none = "<p class=\"none\">No pod has been started since criscope runs.</p>";
        return card("starts", "Pod starts", "", none);
    }
    let failed = episodes
        .iter()
        .filter(|episode| episode.state == Stand::Failed)
        .count();
    let mut note = "the newest first".to_owned();
    if failed > 0 {
        note.push_str(&format!("; <span class=\"bad\">{failed} failed</span>"));
    }
    if live.crash_loops > 0 {
        let loops = match live.crash_loops {
            1 => "1 crash loop".to_owned(),
            n => format!("{n} crash loops"),
        };
        note.push_str(&format!(
            "; <a class=\"warn\" href=\"/debug/pods?state=crash_loop\">{loops}</a>"
        ));
    }
    let more = "<p class=\"sub\"><a href=\"/debug/pods?sort=slowest\">All that are known, the slowest first</a></p>";
    let rows = starts::rows(&episodes, live.now_unix_us);
    card("starts", "Pod starts", &note, &format!("{rows}{more}"))
}

fn by_method(live: &Live) -> String {
    card(
        "methods",
        "Methods",
        "the last minute; <a href=\"/debug/rpcz\">more</a>",
        &methods::table(&live.methods),
    )
}

fn images(live: &Live) -> String {
    card(
        "images",
        "Images being pulled",
        "<a href=\"/debug/images/pulls\">and those before</a>",
        &pulls::in_flight(&live.pulls),
    )
}

fn open_sessions(live: &Live) -> String {
    let note = match live.sessions.len() {
        0 => "exec, attach and port-forward".to_owned(),
        n => format!("{n}, the oldest first"),
    };
    card(
        "sessions",
        "Open sessions",
        &note,
        &sessions::open(&live.sessions),
    )
}

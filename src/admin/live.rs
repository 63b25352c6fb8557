//! The live page: the current state of the node at a glance.

use axum::Json;
use axum::extract::{Query, State};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use serde::Serialize;

use super::backends;
use super::calls;
use super::page::{FormatQuery, HtmlPage, framed, lone};
use super::runtimes::{self, BackendView};
use super::table::{card, fact};
use super::verdict::Verdict;
use super::{PageSources, faults, methods, nav, pulls, sessions, starts};
use crate::lifecycle::kubelet::relist::RelistState;
use crate::lifecycle::tables::{RpcTable, rpc_table};
use crate::lifecycle::view::{
    CallView, EpisodeView, ImagePullView, NodeVerdict, OpenSessionView, PodState, PodSummary,
    crash_loops,
};
use crate::units;
use crate::units::times::{UnixMicros, millis};
use crate::version;

/// Most pods shown, and starts and restarts as JSON.
const MAX_STARTS_SHOWN: usize = 40;

/// `/?format=json`
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct FrontPageState {
    /// The time of this response.
    pub(super) now_unix_us: UnixMicros,
    /// The version of criscope.
    pub(super) version: &'static str,
    /// The host name of the node.
    pub(super) host: String,
    /// The verdict over the node and its pods.
    pub(super) verdict: NodeVerdict,
    /// Uptime of criscope.
    pub(super) uptime_ms: f64,
    pub(super) backends: Vec<BackendView>,
    /// Calls in flight, oldest first.
    pub(super) calls: Vec<CallView>,
    /// Open sessions of exec, attach and port-forward, oldest first.
    pub(super) sessions: Vec<OpenSessionView>,
    /// Rates, errors and latencies by method.
    pub(super) methods: RpcTable,
    /// The newest starts and restarts, without their calls.
    pub(super) starts: Vec<EpisodeView>,
    /// Pods: those in trouble, then those being started or stopped, then the newest.
    pub(super) pods: Vec<PodSummary>,
    /// Number of pods in memory.
    pub(super) known_pods: usize,
    /// The number of crash loops, including those without a restart in `starts`.
    pub(super) crash_loops: usize,
    /// Image pulls in progress.
    pub(super) pulls: Vec<ImagePullView>,
    /// Faults that are being injected on purpose, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) faults: Vec<String>,
    /// The kubelet's relist, if it takes unusually long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) relist: Option<String>,
    /// Time since the begin of the kubelet's last relist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) relist_ms: Option<f64>,
    /// Since when criscope is bypassed, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bypass: Option<String>,
}

/// `/`
pub async fn page(
    State(sources): State<PageSources>,
    Query(format): Query<FormatQuery>,
) -> Response {
    let mut live = live(&sources);
    if format.is_json() {
        (live.starts, live.crash_loops) = starts_and_loops(&sources);
        Json(live).into_response()
    } else {
        html(&live).into_response()
    }
}

/// `/` without the pages below `/debug`: it names no pods.
pub async fn bare(State(sources): State<PageSources>) -> HtmlPage {
    let backends = runtimes::standings(&sources);
    let body = html! {
        dl.facts { (backends::html(&backends)) }
        p { "The pages under /debug are disabled (admin.debug)." }
    };
    lone("criscope", &runtimes::verdict(&backends), &body)
}

/// The newest starts and restarts, and the number of crash loops among all of them.
fn starts_and_loops(sources: &PageSources) -> (Vec<EpisodeView>, usize) {
    let mut recent = sources.stories.recent(&sources.in_flight.calls());
    recent.episodes.retain(|episode| episode.kind != "stop");
    let loops = crash_loops(&recent.episodes);
    let loops = loops.iter().flatten().count();
    recent.episodes.truncate(MAX_STARTS_SHOWN);
    (recent.episodes, loops)
}

fn live(sources: &PageSources) -> FrontPageState {
    let mut pods = sources.stories.pods(&sources.in_flight.calls());
    let known = pods.pods.iter();
    let crash_loops = known.filter(|pod| pod.state == PodState::CrashLoop);
    let crash_loops = crash_loops.count();
    pods.pods.truncate(MAX_STARTS_SHOWN);
    let relist = sources.stories.relist();
    FrontPageState {
        now_unix_us: UnixMicros::now(),
        version: version::with_commit(),
        host: host(),
        verdict: pods.verdict,
        uptime_ms: sources.started.elapsed().as_secs_f64() * 1e3,
        backends: runtimes::standings(sources),
        calls: calls::rows(sources),
        sessions: sources.stories.open_sessions(),
        faults: faults::sentences(sources),
        relist_ms: relist.as_ref().map(|state| millis(state.since)),
        relist: relist
            .filter(RelistState::is_slow)
            .map(|state| state.to_string()),
        bypass: sources.stories.bypass(),
        methods: rpc_table(&sources.rates, &sources.in_flight.calls()),
        starts: Vec::new(),
        pods: pods.pods,
        known_pods: pods.known,
        crash_loops,
        pulls: pulls::pulls(sources).in_flight,
    }
}

pub(super) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.unwrap_or_default().trim().to_owned()
}

pub(super) fn html(live: &FrontPageState) -> HtmlPage {
    let heading = html! {
        (live.host) " " small.muted { "CRI calls between the kubelet and the runtime" }
    };
    let by_method = html! { "the last minute; " a href="/debug/rpcz" { "more" } };
    let earlier = html! { a href="/debug/images/pulls" { "earlier pulls" } };
    let sessions = html! {
        @match live.sessions.len() { 0 => "exec, attach and port-forward", n => { (n) ", oldest first" } }
    };
    let body = html! {
        @if live.known_pods == 0 { (how_pods_appear()) }
        (facts(live))
        @for fault in &live.faults { p.warn { "Injected fault: " (fault) } }
        @if let Some(bypass) = &live.bypass { p.warn { (bypass) } }
        div.cols {
            div.stack {
                (card("flight", "Calls in flight", &html! { "oldest first" }, &calls::table(&live.calls)))
                (pods(live))
            }
            div.stack {
                (card("methods", "Methods", &by_method, &methods::table(&live.methods)))
                (card("images", "Images being pulled", &earlier, &pulls::in_flight(&live.pulls)))
                (card("sessions", "Open sessions", &sessions, &sessions::open(&live.sessions)))
            }
        }
    };
    let verdict = Verdict::over_node(&live.verdict);
    framed(&nav::html("/"), &live.host, &heading, &verdict, &body)
}

fn facts(live: &FrontPageState) -> Markup {
    let stuck = live.calls.iter().filter(|row| row.stuck.is_some()).count();
    let in_flight = html! {
        (live.calls.len()) @if stuck > 0 { " " span.warn { (stuck) " stuck" } }
    };
    html! {
        dl.facts {
            (backends::html(&live.backends))
            (methods::facts(&live.methods))
            (fact("Calls in flight", in_flight))
            (fact("Uptime", units::duration(live.uptime_ms)))
            (fact("criscope", live.version))
        }
    }
}

/// Advice for a node without a pod.
pub(super) fn how_pods_appear() -> Markup {
    html! {
        p.none {
            "Pods appear when the kubelet starts, restarts or stops them through criscope. "
            code { "criscope doctor" } " checks whether the kubelet uses its socket; " code { "criscope smoke" } " starts a pod of its own."
        }
    }
}

fn pods(live: &FrontPageState) -> Markup {
    let pods: Vec<_> = live.pods.iter().collect();
    if pods.is_empty() {
        let none = html! { p.none { "Each pod stands here with its state, and where the time of its start went." } };
        return card("starts", "Pods", &html! {}, &none);
    }
    let note = html! { "failing pods first, then the newest" };
    let content = html! {
        (starts::rows(&pods, live.now_unix_us))
        p.sub { a href="/debug/pods" { "All " (live.known_pods) " pods" } }
    };
    card("starts", "Pods", &note, &content)
}

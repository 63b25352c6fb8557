//! Liveness and readiness, with reasons.

use std::fmt::Write as _;
use std::time::Instant;

use axum::extract::{RawQuery, State};
use axum::http::StatusCode;

use super::PageSources;
use crate::proxy::backend::Backend;

/// `/livez`: 200 while the request path makes progress.
pub async fn livez(State(sources): State<PageSources>) -> (StatusCode, String) {
    let silent = sources.heartbeat.silence();
    if sources.heartbeat.is_alive() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (
            StatusCode::SERVICE_UNAVAILABLE,
            format!("the request path has made no progress for {silent:.1?}\n"),
        )
    }
}

/// `/readyz`: 200 while every backend answers. With `?verbose`, one line per backend, condition, and the oldest call.
pub async fn readyz(
    State(sources): State<PageSources>,
    RawQuery(query): RawQuery,
) -> (StatusCode, String) {
    let verbose =
        query.is_some_and(|q| q.split('&').any(|p| p.split('=').next() == Some("verbose")));
    let mut text = String::new();
    let mut ready = sources.heartbeat.is_alive();
    for backend in &sources.backends {
        let up = backend.health().is_up();
        ready &= up;
        if verbose || !up {
            describe(&mut text, backend);
        }
    }
    if verbose {
        describe_calls(&mut text, &sources);
    }
    text.push_str(if ready { "ok\n" } else { "not ready\n" });
    let status = if ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (status, text)
}

fn describe(text: &mut String, backend: &Backend) {
    let state = backend.health().state();
    let name = backend.name();
    let since = state
        .since
        .map_or_else(String::new, |t| format!(" for {:.1?}", t.elapsed()));
    // Writing to a String does not fail.
    let _ = match (&state.runtime, state.up) {
        (Some((runtime, version)), true) => {
            writeln!(text, "[+] backend {name}: {runtime} {version} up{since}")
        }
        _ if state.reason.is_empty() => writeln!(text, "[-] backend {name}: not probed yet"),
        _ => writeln!(text, "[-] backend {name}: down{since}: {}", state.reason),
    };
    for condition in &state.conditions {
        let sign = if condition.status { '+' } else { '-' };
        let words = [&*condition.reason, &*condition.message];
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        let _ = if words.is_empty() {
            writeln!(text, "    [{sign}] {}", condition.kind)
        } else {
            writeln!(
                text,
                "    [{sign}] {}: {}",
                condition.kind,
                words.join(": ")
            )
        };
    }
    if let Some(at) = state.last_status {
        let _ = writeln!(text, "    last good Status {:.1?} ago", at.elapsed());
    }
    let reconnects = backend.health().reconnects();
    if reconnects > 0 {
        let _ = writeln!(text, "    reconnected {reconnects} times");
    }
}

fn describe_calls(text: &mut String, sources: &PageSources) {
    let calls = sources.in_flight.calls();
    let now = Instant::now();
    let _ = match calls.first() {
        None => writeln!(text, "[+] no call in flight"),
        Some(oldest) => writeln!(
            text,
            "[+] {} calls in flight, the oldest is {} for {:.1?} ({})",
            calls.len(),
            oldest.method,
            now.saturating_duration_since(oldest.started),
            oldest.stage().name(),
        ),
    };
}

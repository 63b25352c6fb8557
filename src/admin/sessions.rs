//! Sessions of exec, attach and port-forward: in the story of a pod, and the open ones on the live page.

use maud::{Markup, html};

use super::table::{card, number, text, wide, wide_flowing};
use super::{calls, links};
use crate::lifecycle::view::{OpenSessionView, SessionView};
use crate::units;
use crate::units::times::UnixMicros;

/// Most open sessions on the live page.
const MAX_SESSIONS_SHOWN: usize = 40;

/// A card with a row for each session, the open ones first, then the newest; nothing without sessions.
pub(super) fn pod_sessions(sessions: &[SessionView], now: UnixMicros) -> Markup {
    if sessions.is_empty() {
        return html! {};
    }
    let columns = html! {
        (text("Session")) (text("Container")) (text("Requested by")) (text("Protocol")) (text("Outcome"))
        (number("Exit code")) (number("Took")) (number("Bytes in")) (number("Bytes out")) (number("Ago"))
    };
    let rows = html! { @for session in sessions.iter().rev() { (row(session, now)) } };
    let caption = "Exec, attach and port-forward, open sessions first";
    card(
        "sessions",
        "Sessions",
        &html! {},
        &wide("Sessions", caption, &columns, &rows),
    )
}

fn row(session: &SessionView, now: UnixMicros) -> Markup {
    let class = match (session.outcome.as_str(), session.exit_code) {
        ("done", None | Some(0)) => "good",
        ("failed" | "no_streams" | "protocol", _) | (_, Some(1..)) => "bad",
        _ => "",
    };
    let took = units::duration(session.duration_ms);
    let (outcome, took) = if session.is_open() {
        (format!("open, {took} so far"), String::new())
    } else {
        (session.outcome.replace('_', " "), took)
    };
    html! {
        tr {
            th.name scope="row" { (what(session)) }
            td { (session.container.as_deref().unwrap_or_default()) }
            td { (session.client.as_deref().unwrap_or_default()) }
            td { (session.transport) }
            td class=(class) { (outcome) }
            td.n { @if let Some(code) = session.exit_code { (code) } }
            td.n { (took) }
            td.n { (session.bytes_in) }
            td.n { (session.bytes_out) }
            td.n { (units::ago(now.since(session.began_unix_us))) }
        }
    }
}

/// A table of the open sessions, oldest first.
pub(super) fn open(sessions: &[OpenSessionView]) -> Markup {
    if sessions.is_empty() {
        return html! {
            p.none { "No session is open. " code { "kubectl exec" } ", " code { "attach" } " and " code { "port-forward" } " open one." }
        };
    }
    let columns = html! {
        (text("Session")) (number("Open for")) (text("Pod, container")) (text("Requested by"))
    };
    let rows = html! { @for it in sessions.iter().take(MAX_SESSIONS_SHOWN) { (open_row(it)) } };
    let caption = "Open sessions of exec, attach and port-forward, oldest first";
    html! {
        (wide_flowing(caption, &columns, &rows))
        @if sessions.len() > MAX_SESSIONS_SHOWN { p.sub { "and " (sessions.len() - MAX_SESSIONS_SHOWN) " more" } }
    }
}

fn open_row(it: &OpenSessionView) -> Markup {
    let session = &it.session;
    html! {
        tr {
            th.name scope="row" { (what(session)) }
            td.n { (units::duration(session.duration_ms)) }
            td.name {
                @match (&it.namespace, &it.pod) {
                    (Some(namespace), Some(pod)) => (links::pod(namespace, pod)),
                    _ => code { (calls::short(&it.id)) },
                }
                " " span.sub { (session.container.as_deref().unwrap_or_default()) }
            }
            td {
                (session.client.as_deref().unwrap_or_default()) " "
                span.sub { (units::bytes(session.bytes_in)) " in, " (units::bytes(session.bytes_out)) " out" }
            }
        }
    }
}

fn what(session: &SessionView) -> String {
    match &session.program {
        Some(program) => format!("{} {program}", session.kind),
        None => session.kind.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_told_the_newest_first() {
        let session = |program: &str, code| SessionView {
            kind: "exec".into(),
            program: Some(program.into()),
            outcome: "client_gone".into(),
            exit_code: code,
            ..SessionView::default()
        };
        let html = pod_sessions(
            &[session("a<b", None), session("sh", Some(137))],
            UnixMicros::EPOCH,
        )
        .into_string();
        assert!(html.find("exec sh") < html.find("exec a&lt;b"), "{html}");
        assert!(
            html.contains("<td class=\"bad\">client gone</td><td class=\"n\">137</td>"),
            "{html}"
        );
        assert_eq!(pod_sessions(&[], UnixMicros::EPOCH).into_string(), "");
    }

    #[test]
    fn an_open_session_says_so_and_for_how_long() {
        let session = SessionView {
            kind: "attach".into(),
            outcome: SessionView::OPEN.into(),
            duration_ms: 120_000.0,
            ..SessionView::default()
        };
        let html = pod_sessions(&[session], UnixMicros::EPOCH).into_string();
        assert!(
            html.contains("<td class=\"\">open, 2m 00s so far</td>"),
            "{html}"
        );
    }

    #[test]
    fn open_sessions_lead_to_their_pods_or_have_an_id() {
        assert!(open(&[]).into_string().contains("No session is open"));
        let one = |pod: Option<&str>| OpenSessionView {
            id: "c0ffee00112233445566".into(),
            namespace: pod.map(|_| "shop".into()),
            pod: pod.map(str::to_owned),
            session: SessionView {
                kind: "exec".into(),
                program: Some("a<b".into()),
                container: Some("app".into()),
                duration_ms: 120_000.0,
                ..SessionView::default()
            },
        };
        let html = open(&[one(Some("<web>")), one(None)]).into_string();
        assert!(
            html.contains("<a href=\"/debug/pods/shop/%3Cweb%3E\">"),
            "{html}"
        );
        assert!(html.contains("<code>c0ffee0011223</code>"), "{html}");
        assert!(
            html.contains("exec a&lt;b</th><td class=\"n\">2m 00s</td>"),
            "{html}"
        );
        let html = open(&vec![one(None); MAX_SESSIONS_SHOWN + 3]).into_string();
        assert_eq!(html.matches("<code>").count(), MAX_SESSIONS_SHOWN);
        assert!(html.contains("and 3 more"), "{html}");
    }
}

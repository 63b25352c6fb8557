//! Sessions of exec, attach and port-forward: in the story of a pod, and on the front page those that are open.

use std::fmt::Write as _;

use super::page::Escaped;
use super::{calls, links};
use crate::lifecycle::view::{OpenSession, Session};
use crate::units;

/// Open sessions that are shown on the front page.
const SHOWN: usize = 40;

/// A card with a row for each, the open ones first, then the newest.
pub(super) fn write(html: &mut String, sessions: &[Session], now: u64) {
    if sessions.is_empty() {
        return;
    }
    html.push_str(
        "<section class=\"card\" aria-labelledby=\"sessions\"><header><h2 id=\"sessions\">Sessions</h2></header>\
         <div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Sessions\">\
         <table><caption class=\"vh\">Exec, attach and port-forward, first those that are open</caption><thead><tr>\
         <th scope=\"col\">What</th><th scope=\"col\">Container</th><th scope=\"col\">Asked for by</th>\
         <th scope=\"col\">Over</th><th scope=\"col\">How it ended</th><th scope=\"col\" class=\"n\">Exit code</th>\
         <th scope=\"col\" class=\"n\">Took</th><th scope=\"col\" class=\"n\">Bytes in</th>\
         <th scope=\"col\" class=\"n\">Bytes out</th><th scope=\"col\" class=\"n\">Ago</th></tr></thead><tbody>",
    );
    for session in sessions.iter().rev() {
        let class = match (session.outcome.as_str(), session.exit_code) {
            ("done", None | Some(0)) => "good",
            ("failed" | "no_streams" | "protocol", _) | (_, Some(1..)) => "bad",
            _ => "",
        };
        let code = session.exit_code.map(|code| code.to_string());
        let took = units::duration(session.duration_ms);
        let (outcome, took) = match session.is_open() {
            true => (format!("open, {took} so far"), String::new()),
            false => (session.outcome.replace('_', " "), took),
        };
        let _ = write!(
            html,
            "<tr><th scope=\"row\" class=\"name\">{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{took}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            Escaped(what(session)),
            Escaped(session.container.as_deref().unwrap_or_default()),
            Escaped(session.client.as_deref().unwrap_or_default()),
            Escaped(&session.transport),
            Escaped(outcome),
            code.unwrap_or_default(),
            session.bytes_in,
            session.bytes_out,
            units::ago(now, session.began_unix_us),
        );
    }
    html.push_str("</tbody></table></div></section>");
}

/// A table of the open ones, the oldest first, or that there are none.
pub(super) fn open(sessions: &[OpenSession]) -> String {
    if sessions.is_empty() {
        return "<p class=\"none\">No session is open.</p>".to_owned();
    }
    let mut html = String::from(
        "<div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Open sessions\"><table>\
         <caption class=\"vh\">Exec, attach and port-forward that are open, the oldest first</caption><thead><tr>\
         <th scope=\"col\">Session</th><th scope=\"col\" class=\"n\">Open for</th><th scope=\"col\">Pod, container</th>\
         <th scope=\"col\">Asked for by</th><th scope=\"col\" class=\"n\">Bytes in</th>\
         <th scope=\"col\" class=\"n\">Bytes out</th></tr></thead><tbody>",
    );
    for it in sessions.iter().take(SHOWN) {
        let session = &it.session;
        let pod = match (&it.namespace, &it.pod) {
            (Some(namespace), Some(pod)) => links::pod(namespace, pod),
            _ => format!("<code>{}</code>", Escaped(calls::short(&it.id))),
        };
        let _ = write!(
            html,
            "<tr><th scope=\"row\" class=\"name\">{}</th><td class=\"n\">{}</td>\
             <td class=\"name\">{pod} <span class=\"sub\">{}</span></td><td>{}</td><td class=\"n\">{}</td>\
             <td class=\"n\">{}</td></tr>",
            Escaped(what(session)),
            units::duration(session.duration_ms),
            Escaped(session.container.as_deref().unwrap_or_default()),
            Escaped(session.client.as_deref().unwrap_or_default()),
            units::bytes(session.bytes_in),
            units::bytes(session.bytes_out),
        );
    }
    html.push_str("</tbody></table></div>");
    let more = sessions.len().saturating_sub(SHOWN);
    if more > 0 {
        let _ = write!(html, "<p class=\"sub\">and {more} more</p>");
    }
    html
}

fn what(session: &Session) -> String {
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
        let session = |program: &str, code| Session {
            kind: "exec".into(),
            program: Some(program.into()),
            outcome: "client_gone".into(),
            exit_code: code,
            ..Session::default()
        };
        let mut html = String::new();
        write(
            &mut html,
            &[session("a<b", None), session("sh", Some(137))],
            0,
        );
        assert!(html.find("exec sh") < html.find("exec a&lt;b"), "{html}");
        assert!(
            html.contains("<td class=\"bad\">client gone</td><td class=\"n\">137</td>"),
            "{html}"
        );
        let mut none = String::new();
        write(&mut none, &[], 0);
        assert_eq!(none, "");
    }

    #[test]
    fn an_open_session_says_so_and_for_how_long() {
        let session = Session {
            kind: "attach".into(),
            outcome: Session::OPEN.into(),
            duration_ms: 120_000.0,
            ..Session::default()
        };
        let mut html = String::new();
        write(&mut html, &[session], 0);
        assert!(
            html.contains("<td class=\"\">open, 2m 00s so far</td>"),
            "{html}"
        );
    }

    #[test]
    fn open_sessions_lead_to_their_pods_or_have_an_id() {
        assert!(open(&[]).contains("No session is open"));
        let one = |pod: Option<&str>| OpenSession {
            id: "c0ffee00112233445566".into(),
            namespace: pod.map(|_| "shop".into()),
            pod: pod.map(str::to_owned),
            session: Session {
                kind: "exec".into(),
                program: Some("a<b".into()),
                container: Some("app".into()),
                duration_ms: 120_000.0,
                ..Session::default()
            },
        };
        let html = open(&[one(Some("<web>")), one(None)]);
        assert!(
            html.contains("<a href=\"/debug/pods/shop/%3Cweb%3E\">"),
            "{html}"
        );
        assert!(html.contains("<code>c0ffee0011223</code>"), "{html}");
        assert!(
            html.contains("exec a&lt;b</th><td class=\"n\">2m 00s</td>"),
            "{html}"
        );
        let html = open(&vec![one(None); SHOWN + 3]);
        assert_eq!(html.matches("<code>").count(), SHOWN);
        assert!(html.contains("and 3 more"), "{html}");
    }
}

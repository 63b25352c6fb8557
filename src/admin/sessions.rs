//! Sessions of exec, attach and port-forward in the story of a pod.

use std::fmt::Write as _;

use super::page::Escaped;
use crate::story::units;
use crate::story::view::Session;

/// A card with a row for each, the newest first.
pub(super) fn write(html: &mut String, sessions: &[Session], now: u64) {
    if sessions.is_empty() {
        return;
    }
    html.push_str(
        "<section class=\"card\" aria-labelledby=\"sessions\"><header><h2 id=\"sessions\">Sessions</h2></header>\
         <div class=\"wide\" tabindex=\"0\" role=\"region\" aria-label=\"Sessions\">\
         <table><caption class=\"vh\">Exec, attach and port-forward that have ended</caption><thead><tr>\
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
        let _ = write!(
            html,
            "<tr><th scope=\"row\" class=\"name\">{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"{class}\">{}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            Escaped(what(session)),
            Escaped(session.container.as_deref().unwrap_or_default()),
            Escaped(session.client.as_deref().unwrap_or_default()),
            Escaped(&session.transport),
            Escaped(session.outcome.replace('_', " ")),
            code.unwrap_or_default(),
            units::duration(session.duration_ms),
            session.bytes_in,
            session.bytes_out,
            units::ago(now, session.began_unix_us),
        );
    }
    html.push_str("</tbody></table></div></section>");
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
}

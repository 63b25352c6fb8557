//! Draws sessions of exec, attach and port-forward below the story of a pod.

use std::fmt::Write as _;

use super::{TerminalOutput, TextStyle};
use crate::view::{PodStory, SessionView};
use criscope_cri::units;
use criscope_cri::units::times::UnixMicros;

/// Sessions shown without `--all`.
const MAX_SESSIONS_SHOWN: usize = 3;

/// A line for each, the open ones first; all, or the last ones.
pub(super) fn write(text: &mut String, story: &PodStory, all: bool, paper: TerminalOutput) {
    if story.sessions.is_empty() {
        return;
    }
    text.push('\n');
    let limit = if all { usize::MAX } else { MAX_SESSIONS_SHOWN };
    for session in story.sessions.iter().rev().take(limit) {
        for line in paper.wrapped(&line(session, story.now_unix_us), paper.width()) {
            let _ = writeln!(text, "{}", paper.ink(TextStyle::Dim, &line));
        }
    }
    let more = story.sessions.len().saturating_sub(limit);
    if more > 0 {
        let line = format!("and {more} more sessions");
        let _ = writeln!(text, "{}", paper.ink(TextStyle::Dim, &line));
    }
}

fn line(session: &SessionView, now: UnixMicros) -> String {
    let mut line = session.kind.clone();
    if let Some(program) = &session.program {
        let _ = write!(line, " {program}");
    }
    if let Some(container) = &session.container {
        let _ = write!(line, " in container {container}");
    }
    if let Some(client) = &session.client {
        let _ = write!(line, " for {client}");
    }
    let begun = units::since(now.since(session.began_unix_us));
    let took = units::duration(session.duration_ms);
    let _ = if session.is_open() {
        write!(line, ", begun {begun}, open, {took} so far")
    } else {
        write!(
            line,
            ", begun {begun}, {took}: {}",
            session.outcome.replace('_', " ")
        )
    };
    if let Some(code) = session.exit_code {
        let _ = write!(line, ", exit code {code}");
    }
    let _ = write!(
        line,
        ", {} bytes in, {} out",
        session.bytes_in, session.bytes_out
    );
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_one_sentence() {
        let session = SessionView {
            kind: "exec".into(),
            container: Some("app".into()),
            program: Some("sh".into()),
            client: Some("kubelet".into()),
            duration_ms: 1500.0,
            bytes_in: 7,
            bytes_out: 9,
            outcome: "client_gone".into(),
            exit_code: Some(3),
            began_unix_us: UnixMicros::new(1_000_000),
            ..SessionView::default()
        };
        let said = line(&session, UnixMicros::new(11_000_000));
        assert!(
            said.starts_with("exec sh in container app for kubelet, begun "),
            "{said}"
        );
        assert!(
            said.ends_with(": client gone, exit code 3, 7 bytes in, 9 out"),
            "{said}"
        );
        let open = SessionView {
            outcome: SessionView::OPEN.into(),
            exit_code: None,
            duration_ms: 120_000.0,
            ..session
        };
        let said = line(&open, UnixMicros::new(121_000_000));
        assert!(
            said.ends_with(", begun 2 min ago, open, 2m 00s so far, 7 bytes in, 9 out"),
            "{said}"
        );
    }
}

//! The audit trail: one line in the log for each session, at its end.

use super::observe::{Observer, SessionEnd};

/// Writes the line. Commands are shown as the name of their program and the number of arguments, since arguments may
/// hold secrets.
#[derive(Clone, Copy, Debug)]
pub struct AuditLog {
    /// Whether commands are written in full.
    pub commands: bool,
}

impl Observer for AuditLog {
    fn ended(&self, end: &SessionEnd<'_>) {
        let program = end.command.first().map(|path| basename(path));
        let command = self.commands.then(|| shown(end.command));
        tracing::info!(
            event = "stream.session",
            kind = end.kind.name(),
            id = end.id,
            transport = end.transport.name(),
            protocol = end.protocol,
            duration_ms = u64::try_from(end.duration.as_millis()).unwrap_or(u64::MAX),
            bytes_in = end.bytes_in,
            bytes_out = end.bytes_out,
            outcome = end.outcome.name(),
            exit_code = end.exit_code,
            connections = end.connections,
            program,
            arguments = program.map(|_| end.command.len() - 1),
            command = command.filter(|_| program.is_some()),
            "session ended"
        );
    }
}

fn basename(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or(path)
}

/// As a list, so that one can tell where an argument ends.
fn shown(argv: &[String]) -> String {
    format!("{argv:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_without_its_path() {
        assert_eq!(basename("/usr/bin/env"), "env");
        assert_eq!(basename("env"), "env");
        assert_eq!(basename("/usr/bin/"), "bin");
        assert_eq!(basename("/"), "/");
        assert_eq!(basename(""), "");
    }
}

//! The audit log: one line for each session, at its end.

use cri_streaming::{SessionBegin, SessionEnd, SessionKind, SessionObserver};

use crate::units::times::whole_millis;

/// Writes the line. Commands are reduced to the name of their program and the number of arguments, since arguments may
/// contain secrets.
#[derive(Clone, Copy, Debug)]
pub struct SessionAuditLog {
    /// Set if commands are written in full.
    pub commands: bool,
}

impl SessionObserver for SessionAuditLog {
    fn ended(&self, begin: &SessionBegin<'_>, end: &SessionEnd) {
        let program = begin.program();
        let call = super::call(begin.extensions);
        let subject = call.and_then(|call| call.subject.get());
        let pod = subject.and_then(|subject| subject.pod.as_deref());
        let is_pod = begin.kind == SessionKind::PortForward;
        let command = self.commands.then(|| shown(begin.command));
        tracing::info!(
            event = "stream.session",
            stream.kind = begin.kind.name(),
            container.id = (!is_pod).then_some(begin.id),
            criscope.sandbox.id = is_pod.then_some(begin.id),
            stream.transport = begin.transport.name(),
            stream.protocol = begin.protocol,
            duration_ms = whole_millis(end.duration),
            stream.bytes.in = end.bytes_in,
            stream.bytes.out = end.bytes_out,
            stream.outcome = end.outcome.name(),
            process.exit.code = end.exit_code,
            stream.connections = end.connections,
            process.executable.name = program,
            arguments = program.map(|_| begin.command.len() - 1),
            command = command.filter(|_| program.is_some()),
            criscope.client = call.map(|call| call.peer.client.name()),
            criscope.client.comm = call.and_then(|call| call.peer.comm.as_deref()),
            k8s.namespace.name = pod.map(|pod| &*pod.namespace),
            k8s.pod.name = pod.map(|pod| &*pod.name),
            upgrade_ms = end.proxied.and_then(|proxied| proxied.upgrade).map(whole_millis),
            first_to_close = end.proxied.map(|proxied| proxied.first_to_close()),
            "session ended"
        );
    }
}

/// A command as a list, so that arguments are delimited.
fn shown(argv: &[String]) -> String {
    format!("{argv:?}")
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use super::*;
    use cri_streaming::{SessionOutcome, Transport};

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The line of a session's end.
    fn line(log: SessionAuditLog, command: &[&str]) -> serde_json::Value {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt()
            .json()
            .flatten_event(true)
            .with_writer(move || writer.clone())
            .finish();
        let command: Vec<_> = command.iter().map(|&word| word.to_owned()).collect();
        crate::telemetry::logging::testing::apart();
        tracing::subscriber::with_default(subscriber, || {
            let begin = SessionBegin {
                number: 1,
                kind: SessionKind::Exec,
                id: "abc",
                transport: Transport::Spdy,
                protocol: "v4.channel.k8s.io",
                command: &command,
                extensions: &http::Extensions::new(),
                carried: &Arc::default(),
            };
            let end = SessionEnd {
                duration: Duration::from_millis(1500),
                bytes_in: 1,
                bytes_out: 2,
                outcome: SessionOutcome::Done,
                exit_code: Some(3),
                connections: 0,
                proxied: None,
            };
            log.ended(&begin, &end);
        });
        let bytes = written.0.lock().expect("no panic").clone();
        serde_json::from_slice(&bytes).expect("one line of JSON")
    }

    #[test]
    fn a_line_omits_only_the_arguments() {
        let argv = ["/usr/bin/mysql", "--password=hunter2", "db"];
        let said = line(SessionAuditLog { commands: false }, &argv);
        assert!(!said.to_string().contains("hunter2"), "{said}");
        for (field, value) in [
            ("event", "stream.session"),
            ("stream.kind", "exec"),
            ("container.id", "abc"),
            ("stream.transport", "spdy"),
            ("stream.protocol", "v4.channel.k8s.io"),
            ("stream.outcome", "done"),
            ("process.executable.name", "mysql"),
        ] {
            assert_eq!(said[field], value, "{field}");
        }
        for (field, value) in [
            ("duration_ms", 1500),
            ("stream.bytes.in", 1),
            ("stream.bytes.out", 2),
            ("process.exit.code", 3),
            ("arguments", 2),
        ] {
            assert_eq!(said[field], value, "{field}");
        }
        let said = line(SessionAuditLog { commands: true }, &argv);
        assert_eq!(
            said["command"],
            r#"["/usr/bin/mysql", "--password=hunter2", "db"]"#
        );
    }

    #[test]
    fn a_session_without_a_command_has_none() {
        let said = line(SessionAuditLog { commands: true }, &[]);
        for field in ["process.executable.name", "arguments", "command"] {
            assert!(said.get(field).is_none(), "{field}");
        }
    }

    #[test]
    fn a_program_is_named_without_its_path() {
        for (path, name) in [
            ("/usr/bin/env", "env"),
            ("env", "env"),
            ("/usr/bin/", "bin"),
            ("/", "/"),
            ("", ""),
        ] {
            let said = line(SessionAuditLog { commands: false }, &[path]);
            assert_eq!(said["process.executable.name"], name, "{path:?}");
        }
    }
}

//! The event that says that criscope is bypassed. It is about the Node, not about a pod.

use criscope::lifecycle::node::BypassFiles;
use criscope::units::clock;
use criscope::units::times::UnixMicros;
use k8s_openapi::api::events::v1::Event;

use super::node::{NodeEvent, node_event};
use super::{CONTROLLER, time};

/// Notices when criscope is bypassed.
#[derive(Debug)]
pub(super) struct BypassReporter {
    files: BypassFiles,
    /// Begin of the bypass that was reported.
    reported: Option<UnixMicros>,
}

impl BypassReporter {
    pub(super) fn new(files: BypassFiles) -> Self {
        Self {
            files,
            reported: None,
        }
    }

    /// The begin of a bypass that was not reported yet.
    pub(super) fn unreported(&self) -> Option<UnixMicros> {
        self.files
            .since()
            .filter(|since| self.reported != Some(*since))
    }

    pub(super) fn note_reported(&mut self, since: UnixMicros) {
        self.reported = Some(since);
    }
}

/// The event on a bypass. Its name is the same after a restart of the agent.
pub(super) fn event(node: &str, since: UnixMicros) -> Event {
    node_event(&NodeEvent {
        node,
        name: &format!("criscope-bypass-{:x}", since.as_micros() / 1_000_000),
        controller: CONTROLLER,
        at: time(since),
        action: "Bypass",
        reason: "CriscopeBypassed",
        is_warning: true,
        note: &format!(
            "criscope cannot serve: since {} UTC the kubelet's calls reach the runtime without it. Look at journalctl -u criscope on the node",
            clock(since)
        ),
    })
}

#[cfg(test)]
mod tests {
    use criscope::lifecycle::node::BYPASS_SINCE_FILE;

    use super::*;

    #[test]
    fn a_bypass_is_reported_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut reporter = BypassReporter::new(BypassFiles::at(dir.path()));
        assert_eq!(reporter.unreported(), None);
        let begin =
            |text| std::fs::write(dir.path().join(BYPASS_SINCE_FILE), text).expect("written");
        begin("1767268800\n");
        let since = reporter.unreported().expect("a bypass");
        let event = event("node-1", since);
        assert_eq!(
            event.metadata.name.as_deref(),
            Some("node-1.criscope-bypass-695661c0")
        );
        assert!(
            event
                .note
                .is_some_and(|note| note.contains("since 12:00:00 UTC"))
        );
        reporter.note_reported(since);
        assert_eq!(reporter.unreported(), None);
        begin("1767268900\n");
        assert!(reporter.unreported().is_some(), "the next one");
    }
}

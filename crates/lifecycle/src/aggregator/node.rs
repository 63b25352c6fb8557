//! Facts about the node on their way into the store and the journal.

use tokio::task::spawn_blocking;

use super::Aggregator;
use crate::journal::JournalLine;
use crate::node::{NodeFact, NodeFactKind, NodeWatch, unanswered};
use criscope_cri::units::rfc3339;
use criscope_cri::units::times::UnixMicros;

impl Aggregator {
    /// After the journal was replayed: notes how long criscope was down.
    pub(super) async fn begin_node(&mut self) {
        let now = self.now();
        let kubelet = self.parts.stories.store().has_seen_kubelet();
        self.watch.begin(now, kubelet);
        *self.parts.stories.node() = self.watch.status.clone();
        let Some(alive) = self.alive.clone() else {
            return;
        };
        let (boot, last) = (self.boot.clone(), self.journal_until);
        let downtime = spawn_blocking(move || NodeWatch::downtime(&alive, &boot, last, now)).await;
        if let Some(fact) = downtime.ok().flatten() {
            match fact.booted() {
                Some(booted) => tracing::info!(
                    target: "criscope::lifecycle",
                    event = "node.restarted",
                    at = rfc3339(booted),
                    "the node was started again: everything that ran on it has ended"
                ),
                None => tracing::info!(
                    target: "criscope::lifecycle",
                    event = "story.gap",
                    from = rfc3339(fact.from),
                    to = rfc3339(now),
                    "criscope was down: calls in between are not known"
                ),
            }
            self.note(fact);
        }
    }

    /// Looks at the node.
    pub(super) async fn look_at_node(&mut self) {
        let now = self.now();
        let (holding, is_busy) = {
            let store = self.parts.stories.store();
            (store.facts(), store.open_episodes().next().is_some())
        };
        let polls = unanswered(&(self.parts.in_flight)());
        let changes = self.watch.check(now, &holding, &polls).await;
        *self.parts.stories.node() = self.watch.status.clone();
        for fact in changes {
            report(&fact, now);
            self.note(fact);
        }
        if let Some(sample) = self.watch.sample(now, is_busy) {
            self.parts.stories.store().note_pressure(sample);
        }
    }

    /// Before the end: leaves the time.
    pub(super) async fn end_node(&mut self) {
        let now = self.now();
        if let Some(alive) = self.alive.clone() {
            // Without it the next process does not know since when criscope was down, and reports nothing.
            let _ = spawn_blocking(move || alive.write(now)).await;
        }
    }

    fn note(&self, fact: NodeFact) {
        self.write(Some(JournalLine::node(&fact)));
        self.parts.stories.store().note_fact(fact);
    }
}

/// Backends and their conditions are logged by their probes.
fn report(fact: &NodeFact, now: UnixMicros) {
    match (&fact.kind, fact.holds()) {
        (NodeFactKind::NoKubelet, true) => tracing::warn!(
            target: "criscope::lifecycle",
            event = "kubelet.gone",
            since = rfc3339(fact.from),
            "no kubelet is connected"
        ),
        (NodeFactKind::NoKubelet, false) => {
            tracing::info!(target: "criscope::lifecycle", event = "kubelet.back", "{}", fact.sentence(now));
        }
        (NodeFactKind::BackendHangs { backend }, true) => tracing::warn!(
            target: "criscope::lifecycle",
            event = "backend.hangs",
            criscope.backend = backend,
            since = rfc3339(fact.from),
            reason = fact.reason,
            "the runtime does not answer polls"
        ),
        (NodeFactKind::BackendHangs { backend }, false) => tracing::info!(
            target: "criscope::lifecycle",
            event = "backend.answers",
            criscope.backend = backend,
            "{}",
            fact.sentence(now)
        ),
        (NodeFactKind::ImageFsFull { backend }, true) => tracing::warn!(
            target: "criscope::lifecycle",
            event = "node.image_fs",
            criscope.backend = backend,
            reason = fact.reason,
            "the disk of the images is nearly full"
        ),
        _ => {}
    }
}

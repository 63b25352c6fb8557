//! Facts about the node on their way into the store and the journal.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::Aggregator;
use crate::journal::JournalLine;
use crate::kubelet::relist::{self, KubeletPoll};
use crate::node::{NodeFact, NodeFactKind, NodeWatch, unanswered};
use criscope_cri::call::{Call, CallRecord};
use criscope_cri::units::rfc3339;
use criscope_cri::units::times::{UnixMicros, millis};

impl Aggregator {
    /// After the journal was replayed: notes how long criscope was down.
    pub(super) async fn begin_node(&mut self) {
        let now = self.now();
        let kubelet = self.parts.stories.store().has_seen_kubelet();
        self.watch.begin(now, kubelet);
        self.publish_status();
        let last = self.journal_until;
        let bypass = self.watch.bypass.ended_after(last);
        if let Some(fact) = bypass.filter(|_| last > UnixMicros::EPOCH) {
            self.note(fact);
        }
        let alive = self.alive.clone();
        let Some(alive) = alive.filter(|_| !self.handover.was_accepting) else {
            return;
        };
        let boot = self.boot.clone();
        let are_calls_lost = !self.running.unfinished.is_empty();
        let downtime =
            spawn_blocking(move || NodeWatch::downtime(&alive, &boot, last, now, are_calls_lost));
        if let Some(fact) = downtime.await.ok().flatten() {
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
            let from = fact.from;
            self.note(fact);
            self.apply_lost(from);
        }
    }

    /// Shows the state of the node to pages, and its programs to the diagnosis.
    fn publish_status(&self) {
        let status = &self.watch.status;
        let mut store = self.parts.stories.store();
        store.programs.set_backends(&status.backends);
        drop(store);
        *self.parts.stories.node() = status.clone();
    }

    /// Looks at the node.
    pub(super) async fn look_at_node(&mut self) {
        let now = self.now();
        let (holding, is_busy) = {
            let store = self.parts.stories.store();
            (store.facts(), store.open_episodes().next().is_some())
        };
        let calls = (self.parts.in_flight)();
        let polls = unanswered(&calls);
        let is_calling = calls.iter().any(|call| call.peer.is_kubelet());
        let called = self.parts.stories.relists().last_call();
        let called = called.map(|at| at.max(self.kubelet_called));
        self.watch.set_kubelet_call(called.filter(|_| !is_calling));
        let changes = self.watch.check(now, &holding, &polls).await;
        self.publish_status();
        for fact in changes {
            report(&fact, now);
            self.note(fact);
        }
        if let Some(sample) = self.watch.sample(now, is_busy) {
            self.parts.stories.store().note_pressure(sample);
        }
    }

    /// Reports the kubelet's relist when it takes unusually long.
    pub(super) fn watch_relist(&self, calls: &[Arc<Call>], now: UnixMicros) {
        let polls = calls.iter().filter(|call| relist::is_poll(call.method));
        let polls = polls.filter_map(|call| KubeletPoll::from_record(&CallRecord::in_flight(call)));
        let slow = self.parts.stories.relists().tick(now, polls.collect());
        if let Some(state) = slow {
            tracing::warn!(
                target: "criscope::lifecycle",
                event = "kubelet.relist.slow",
                since_ms = millis(state.since),
                "{state}"
            );
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
        (NodeFactKind::CriscopeBypassed, true) => tracing::warn!(
            target: "criscope::lifecycle",
            event = "criscope.bypassed",
            since = rfc3339(fact.from),
            "calls reach the runtime without criscope until it has run for a minute"
        ),
        (NodeFactKind::CriscopeBypassed, false) => {
            tracing::info!(target: "criscope::lifecycle", event = "criscope.bypass.end", "{}", fact.sentence(now));
        }
        (NodeFactKind::NoKubelet, true) => tracing::warn!(
            target: "criscope::lifecycle",
            event = "kubelet.gone",
            since = rfc3339(fact.from),
            "no kubelet is connected"
        ),
        (NodeFactKind::KubeletSilent, true) => tracing::warn!(
            target: "criscope::lifecycle",
            event = "kubelet.silent",
            since = rfc3339(fact.from),
            "the kubelet is connected and makes no call"
        ),
        (NodeFactKind::NoKubelet | NodeFactKind::KubeletSilent, false) => {
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

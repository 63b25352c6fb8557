//! Sentences for a pod that is not known: possible reasons, and the state of the node.

use std::cmp::Reverse;

use super::{BackendState, NodeFact, NodeFactKind, NodeStatus};
use crate::Stories;
use crate::waiting_pods::ActivePods;
use criscope_cri::units::times::UnixMicros;
use criscope_cri::units::{clock, spoken};

/// Most sentences on a pod that is not known.
const MAX_NOTES: usize = 3;

impl Stories {
    /// Sentences on why a pod may be unknown, at most three: what is wrong now, the newest first, then what is known of the past.
    pub fn about_unknown(&self) -> Vec<String> {
        let now = self.now();
        self.notes_on_unknown(self.note_on_waiting(now), now)
    }

    /// The same for a pod, with what the kubelet knows of it. `active`: namespace and name of its active pods.
    pub fn about_unknown_pod(&self, pod: (&str, &str), active: &ActivePods) -> Vec<String> {
        let now = self.now();
        let note = self.note_on_active(pod, active, now);
        self.notes_on_unknown(note.or_else(|| self.note_on_waiting(now)), now)
    }

    fn notes_on_unknown(&self, first: Option<String>, now: UnixMicros) -> Vec<String> {
        if let Some(captured) = &self.captured {
            return captured.notes.clone();
        }
        let (facts, since, forgotten) = {
            let store = self.store();
            let oldest = store.episodes().map(|episode| episode.began).min();
            let began = self.node().began;
            let since = oldest.map_or(began, |oldest| oldest.min(began));
            (store.node_since(since), since, store.forgotten())
        };
        let status = self.node().clone();
        let mut holding: Vec<_> = facts.iter().filter(|fact| fact.holds()).collect();
        holding.sort_by_key(|fact| Reverse(fact.from));
        // A disk that is nearly full keeps only some nodes from admitting pods.
        let (full_disks, holding): (Vec<_>, Vec<_>) = holding
            .into_iter()
            .partition(|fact| matches!(fact.kind, NodeFactKind::ImageFsFull { .. }));
        let mut notes = Vec::from_iter(first);
        notes.extend(holding.into_iter().map(|fact| with_consequence(fact, now)));
        notes.extend(missing_kubelet(&status, now));
        notes.extend(status.backends.iter().filter_map(unprobed_backend));
        notes.push(records_since(since, now));
        notes.extend(
            full_disks
                .into_iter()
                .map(|fact| with_consequence(fact, now)),
        );
        // Older downtimes hardly matter beside the last one.
        let downtimes = facts
            .iter()
            .filter(|fact| fact.is_downtime() && !fact.holds());
        let newest = downtimes.max_by_key(|fact| fact.from);
        notes.extend(newest.map(|fact| fact.sentence(now)));
        if forgotten > 0 {
            notes.push(format!(
                "{forgotten} older episodes were dropped from memory (story.episodes): the pod may have been among them"
            ));
        }
        notes.truncate(MAX_NOTES);
        notes
    }
}

/// A fact that holds, and its consequence.
pub(super) fn with_consequence(fact: &NodeFact, now: UnixMicros) -> String {
    let consequence = match &fact.kind {
        NodeFactKind::NotReady { condition, .. } if condition == "NetworkReady" => {
            "the kubelet starts only pods with hostNetwork"
        }
        NodeFactKind::NotReady { .. }
        | NodeFactKind::BackendDown { .. }
        | NodeFactKind::BackendHangs { .. } => "no pod can start",
        NodeFactKind::NoKubelet | NodeFactKind::KubeletSilent => "no pods are started",
        NodeFactKind::ImageFsFull { .. } => "the kubelet may evict pods and admit no new ones",
        NodeFactKind::CriscopeDown
        | NodeFactKind::CriscopeBypassed
        | NodeFactKind::NodeRestarted { .. } => "calls of that time are unknown",
        NodeFactKind::CriscopeStalled => "calls waited",
    };
    format!("{}; {consequence}", fact.sentence(now))
}

fn records_since(since: UnixMicros, now: UnixMicros) -> String {
    format!(
        "no call for this pod since {} UTC ({}): the kubelet has not asked for a sandbox (scheduling, admission or volumes), the pod started earlier, or the name or the node is wrong",
        clock(since),
        spoken(now.since(since))
    )
}

/// The sentence on a kubelet that has never connected. A kubelet that has gone is a fact of the node.
fn missing_kubelet(status: &NodeStatus, now: UnixMicros) -> Option<String> {
    let began = spoken(now.since(status.began));
    let is_unseen = status.kubelet.is_none();
    is_unseen.then(|| format!("no kubelet has connected since criscope started {began} ago"))
}

/// The sentence on a backend that was not probed yet. A backend that does not answer or is not ready is a fact of the node.
fn unprobed_backend(backend: &BackendState) -> Option<String> {
    let is_unknown = backend.up.is_none();
    is_unknown.then(|| format!("the runtime {} has not been probed yet", backend.name))
}

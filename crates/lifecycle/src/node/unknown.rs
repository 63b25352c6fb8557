//! Sentences for a pod that is not known: possible reasons, and the state of the node.

use super::{BackendState, NodeFact, NodeFactKind, NodeStatus};
use crate::Stories;
use criscope_cri::units::times::{UnixMicros, millis};
use criscope_cri::units::{clock, duration};

impl Stories {
    /// Sentences on why a pod may be unknown, the most telling first.
    pub fn about_unknown(&self) -> Vec<String> {
        if let Some(captured) = &self.captured {
            return captured.notes.clone();
        }
        let now = self.now();
        let (facts, since, forgotten) = {
            let store = self.store();
            let oldest = store.episodes().map(|episode| episode.began).min();
            let began = self.node().began;
            let since = oldest.map_or(began, |oldest| oldest.min(began));
            (store.node_since(since), since, store.forgotten())
        };
        let status = self.node().clone();
        let mut notes: Vec<_> = facts
            .iter()
            .filter(|fact| fact.holds())
            .map(|fact| with_consequence(fact, now))
            .collect();
        notes.push(records_since(since, now));
        let downtimes = facts.iter().filter(|fact| fact.is_downtime());
        notes.extend(downtimes.map(|fact| fact.sentence(now)));
        if forgotten > 0 {
            notes.push(format!(
                "{forgotten} older episodes were dropped from memory (story.episodes): the pod may have been among them"
            ));
        }
        notes.push(kubelet_sentence(&status, now));
        let backends = status.backends.iter();
        notes.extend(backends.map(|backend| backend_sentence(backend, now)));
        notes
    }
}

/// A fact that holds, and its consequence.
fn with_consequence(fact: &NodeFact, now: UnixMicros) -> String {
    let consequence = match &fact.kind {
        NodeFactKind::NotReady { condition, .. } if condition == "NetworkReady" => {
            "the kubelet starts only pods with hostNetwork"
        }
        NodeFactKind::NotReady { .. }
        | NodeFactKind::BackendDown { .. }
        | NodeFactKind::BackendHangs { .. } => "no pod can start",
        NodeFactKind::NoKubelet => "no pods are started",
        NodeFactKind::ImageFsFull { .. } => "the kubelet may evict pods and admit no new ones",
        NodeFactKind::CriscopeDown | NodeFactKind::NodeRestarted { .. } => {
            "nothing is known of that time"
        }
        NodeFactKind::CriscopeStalled => "calls waited",
    };
    format!("{}; {consequence}", fact.sentence(now))
}

fn records_since(since: UnixMicros, now: UnixMicros) -> String {
    format!(
        "since {} UTC ({}), when the records begin, no call has named it: the kubelet has not called RunPodSandbox for it (scheduling, admission, volumes), it started before that, it runs on another node, or the name is wrong",
        clock(since),
        duration(millis(now.since(since)))
    )
}

fn kubelet_sentence(status: &NodeStatus, now: UnixMicros) -> String {
    match status.kubelet {
        Some(true) => "the kubelet is connected".to_owned(),
        Some(false) => "the kubelet is not connected".to_owned(),
        None => format!(
            "no kubelet has connected since criscope started {} ago",
            duration(millis(now.since(status.began)))
        ),
    }
}

fn backend_sentence(backend: &BackendState, now: UnixMicros) -> String {
    let name = &backend.name;
    let time = backend.since.map(UnixMicros::from);
    let time = time.map(|since| duration(millis(now.since(since))));
    match (backend.up, time) {
        (Some(true), Some(time)) if backend.not_ready.is_empty() => {
            format!("the runtime {name} has answered for {time} and is ready")
        }
        (Some(true), Some(time)) => {
            let conditions = backend.not_ready.iter();
            let conditions: Vec<_> = conditions.map(|false_one| &*false_one.condition).collect();
            let conditions = conditions.join(" and ");
            format!("the runtime {name} has answered for {time}, but {conditions} is false")
        }
        (Some(false), Some(time)) => format!("the runtime {name} has not answered for {time}"),
        _ => format!("the runtime {name} has not been probed yet"),
    }
}

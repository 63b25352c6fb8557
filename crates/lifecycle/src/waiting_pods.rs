//! Pods that wait before their first call, in lists and in stories of their own.

use std::collections::{BTreeSet, HashSet};

use super::Stories;
use super::diagnosis::{NextStep, PodPath};
use super::kubelet::waiting::{UNKNOWN_NAMESPACE, WaitingPod};
use super::node::{NodeFact, NodeFactKind, NodePrograms};
use super::timeline::EpisodePhase;
use super::view::{EpisodeState, EpisodeView, PhaseDuration, PodState, PodSummary};
use criscope_cri::call::episode::Kind;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::{UnixMicros, millis};

/// The stable name of the cause.
pub(super) const WAITS_BEFORE_FIRST_CALL: &str = "waits_before_first_call";

/// Namespace and name of each active pod of the kubelet: one that it has admitted and that has not ended.
pub type ActivePods = BTreeSet<(String, String)>;

/// What is told of a pod that waits.
pub(super) struct WaitingPodStory {
    pub(super) uid: Box<str>,
    pub(super) since: UnixMicros,
    pub(super) headline: String,
    pub(super) next: String,
    namespace: String,
    name: String,
}

impl Stories {
    /// Notes the pods that wait now.
    pub(super) fn set_waiting(&self, pods: Vec<WaitingPod>) {
        *self.waiting() = pods;
    }

    /// The pods that wait for their first call, without those that a call has named meanwhile.
    pub(super) fn waiting_pods(&self, now: UnixMicros) -> Vec<WaitingPodStory> {
        let waiting = self.waiting().clone();
        let store = self.store();
        let listed = store.listed_pods().map(|listed| &listed.pod.uid);
        let known: HashSet<_> = store.uids().chain(listed).collect();
        let facts = store.facts();
        let node = (&*facts, &store.programs);
        let waiting = waiting.iter().filter(|pod| !known.contains(&pod.uid));
        let stories = waiting.map(|pod| story(pod, store.pod_of_spans(&pod.uid), node, now));
        stories.collect()
    }

    /// The newest pod of this name that waits. A pod whose name is not known has its uid instead.
    pub(super) fn waiting_pod(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        now: UnixMicros,
    ) -> Option<WaitingPodStory> {
        let pods = self.waiting_pods(now).into_iter();
        let own = pods.filter(|pod| {
            pod.namespace == namespace
                && (pod.name == name || *pod.uid == *name)
                && uid.is_none_or(|uid| *pod.uid == *uid)
        });
        own.max_by_key(|pod| pod.since)
    }

    /// The sentence on a pod that no call has named, from the names of the kubelet's active pods. `None` if they prove nothing: a
    /// kubelet that has just started has no pods yet.
    pub(super) fn note_on_active(
        &self,
        (namespace, name): (&str, &str),
        active: &ActivePods,
        now: UnixMicros,
    ) -> Option<String> {
        let named: HashSet<_> = {
            let store = self.store();
            let listed = store.listed_pods().map(|listed| &*listed.pod);
            let pods = store.episodes().map(|episode| &*episode.pod).chain(listed);
            pods.map(|pod| (pod.namespace.to_string(), pod.name.to_string()))
                .collect()
        };
        let pod = (namespace.to_owned(), name.to_owned());
        if active.is_empty() || named.contains(&pod) {
            return None;
        }
        if !active.contains(&pod) {
            return Some("the kubelet does not have it among its active pods: it was refused at admission, has ended, is on another node or has another name".to_owned());
        }
        let unnamed: Vec<_> = self.unnamed_pods(now).collect();
        let newest = unnamed.iter().max_by_key(|pod| pod.since)?;
        let without_record = active.iter().filter(|pod| !named.contains(*pod)).count();
        // One of the others may have run since before the records.
        if without_record > unnamed.len() {
            return None;
        }
        let headline = &newest.headline;
        Some(match unnamed.len() {
            1 => headline.clone(),
            n => format!("it is one of {n} pods that wait; of the newest: {headline}"),
        })
    }

    /// The pods that wait and whose name is not known.
    fn unnamed_pods(&self, now: UnixMicros) -> impl Iterator<Item = WaitingPodStory> {
        let pods = self.waiting_pods(now).into_iter();
        pods.filter(|pod| pod.name == *pod.uid)
    }

    /// The sentence on pods that wait and whose name is not known, for somebody who looks for a pod that is not known.
    pub(super) fn note_on_waiting(&self, now: UnixMicros) -> Option<String> {
        let unnamed: Vec<_> = self.unnamed_pods(now).collect();
        let newest = unnamed.iter().max_by_key(|pod| pod.since)?;
        let path = format!("{}/{}", newest.namespace, newest.name);
        let headline = &newest.headline;
        Some(match unnamed.len() {
            1 => format!("it may be pod {path}, whose name is not known here yet: {headline}"),
            n => format!(
                "it may be one of {n} pods whose names are not known here yet; of the newest, {path}: {headline}"
            ),
        })
    }
}

/// The story of a pod; `known` is the pod with its name.
fn story(
    pod: &WaitingPod,
    known: Option<&PodIdentity>,
    (facts, programs): (&[NodeFact], &NodePrograms),
    now: UnixMicros,
) -> WaitingPodStory {
    let namespace = match (known, &pod.namespace) {
        (Some(known), _) => known.namespace.to_string(),
        (None, Some(namespace)) => namespace.to_string(),
        (None, None) => UNKNOWN_NAMESPACE.to_owned(),
    };
    let sentence = pod.sentence(now);
    let holding = facts.iter().find(|fact| holds_pods(fact));
    let headline = match holding {
        Some(fact) => format!("{}; {sentence}", fact.sentence(now)),
        None => sentence,
    };
    let next = holding
        .and_then(|fact| NextStep::from_fact(fact, programs))
        .unwrap_or_else(|| NextStep::FindWait {
            pod: known.and_then(PodPath::from_pod),
            unit: programs.kubelet_unit().to_owned(),
            uid: pod.uid.to_string(),
        });
    WaitingPodStory {
        name: known.map_or(&*pod.uid, |known| &known.name).to_owned(),
        uid: pod.uid.clone(),
        since: pod.since,
        headline,
        next: next.to_string(),
        namespace,
    }
}

/// Returns whether pods cannot start while this fact holds.
fn holds_pods(fact: &NodeFact) -> bool {
    matches!(
        fact.kind,
        NodeFactKind::NoKubelet
            | NodeFactKind::KubeletSilent
            | NodeFactKind::BackendDown { .. }
            | NodeFactKind::BackendHangs { .. }
            | NodeFactKind::NotReady { .. }
    )
}

impl WaitingPodStory {
    /// The entry in lists.
    pub(super) fn summary(self, now: UnixMicros) -> PodSummary {
        let duration_ms = millis(now.since(self.since));
        let phase = PhaseDuration {
            phase: EpisodePhase::OutsideCri.name().to_owned(),
            ms: duration_ms,
        };
        PodSummary {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: self.uid.to_string(),
            state: PodState::Starting,
            reason: self.headline.clone(),
            cause: WAITS_BEFORE_FIRST_CALL.to_owned(),
            next: Some(self.next.clone()),
            notable: true,
            began_unix_us: self.since,
            since_unix_us: self.since,
            duration_ms,
            episode: EpisodeView {
                kind: Kind::Start.name().to_owned(),
                namespace: self.namespace,
                name: self.name,
                uid: self.uid.into(),
                state: EpisodeState::Open,
                began_unix_us: self.since,
                duration_ms,
                headline: self.headline,
                next: Some(self.next),
                cause: WAITS_BEFORE_FIRST_CALL.to_owned(),
                phases: vec![phase],
                ..EpisodeView::default()
            },
            ..PodSummary::default()
        }
    }
}

#[cfg(test)]
mod tests;

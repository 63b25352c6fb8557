//! The pods of this node, one entry each, for lists.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::diagnosis::{Diagnoser, PodVerdict};
use super::episode_store::Episode;
use super::kubelet::hanging_probe::HangingProbe;
use super::stories::Stories;
use super::view::{self, NodeVerdict, PodList, PodSummary};
use criscope_cri::call::Call;
use criscope_cri::subject::PodIdentity;
use criscope_cri::units::times::UnixMicros;

impl Stories {
    /// The pods in memory, those in trouble first. Calls in flight are included.
    pub fn pods(&self, in_flight: &[Arc<Call>]) -> PodList {
        let (mut pods, forgotten) = self.summaries(in_flight, |_, _| true);
        view::sort_pods(&mut pods, false);
        PodList {
            now_unix_us: self.now(),
            verdict: NodeVerdict::new(&pods, self.node_troubles()),
            known: pods.len(),
            pods,
            forgotten,
        }
    }

    /// The entry of the newest pod of this name, or of the one with this uid.
    pub fn pod(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        in_flight: &[Arc<Call>],
    ) -> Option<PodSummary> {
        let (mut pods, _) = self.summaries(in_flight, |of, known| of == namespace && known == name);
        pods.retain(|pod| uid.is_none_or(|uid| *pod.uid == *uid));
        pods.into_iter().max_by_key(|pod| pod.began_unix_us)
    }

    /// The entries of the pods whose namespace and name are meant, and the number of episodes that were evicted.
    fn summaries(
        &self,
        in_flight: &[Arc<Call>],
        is_meant: impl Fn(&str, &str) -> bool,
    ) -> (Vec<PodSummary>, u64) {
        let now = self.now();
        let mut pods = Vec::new();
        let forgotten = self.judged_pods(in_flight, now, &is_meant, |_, _, pod| pods.push(pod));
        let known: HashSet<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
        let listed = self.listed_summaries(&known, now).into_iter();
        pods.extend(listed.filter(|pod| is_meant(&pod.namespace, &pod.name)));
        let waiting = self.waiting_pods(now).into_iter();
        let waiting = waiting.filter(|pod| !known.contains(&*pod.uid));
        let waiting = waiting.map(|pod| pod.summary(now));
        pods.extend(waiting.filter(|pod| is_meant(&pod.namespace, &pod.name)));
        if let Some(captured) = &self.captured {
            for pod in &mut pods {
                if let Some(said) = captured.headline(&pod.namespace, &pod.name) {
                    pod.reason.clone_from(&said.headline);
                    pod.cause.clone_from(&said.cause);
                    pod.raw_message.clone_from(&said.raw_message);
                    pod.next.clone_from(&said.next);
                    pod.state = said.state_of(&pod.uid).unwrap_or(pod.state);
                }
            }
        }
        (pods, forgotten)
    }
}

impl Stories {
    /// Passes each pod in memory whose namespace and name are meant to `take`: its episodes, the verdict on it, and its entry in lists.
    /// Returns how many older episodes were dropped.
    pub(super) fn judged_pods(
        &self,
        in_flight: &[Arc<Call>],
        now: UnixMicros,
        is_meant: impl Fn(&str, &str) -> bool,
        mut take: impl FnMut(&[&Episode], &PodVerdict<'_>, PodSummary),
    ) -> u64 {
        let hanging = self.hanging_probes(in_flight, |pod| is_meant(&pod.namespace, &pod.name));
        self.read(
            in_flight,
            |pod| is_meant(&pod.namespace, &pod.name),
            |episodes, store, pulls| {
                for own in by_pod(episodes).into_values() {
                    let node = store.node().with_pulls(pulls.clone());
                    let causes = Diagnoser::new(&own, node, now)
                        .with_probes(store.probes_of(&own))
                        .with_hanging_probes(hanging_probes_of(&own, &hanging));
                    if let Some((verdict, pod)) = judge(&own, &causes, now) {
                        take(&own, &verdict, pod);
                    }
                }
                store.forgotten()
            },
        )
    }
}

/// The episodes by namespace, name and uid of their pod.
fn by_pod<'a>(episodes: &[&'a Episode]) -> BTreeMap<[&'a str; 3], Vec<&'a Episode>> {
    let mut pods = BTreeMap::<_, Vec<_>>::new();
    for episode in episodes {
        let pod = &episode.pod;
        let key = [&*pod.namespace, &*pod.name, &*pod.uid];
        pods.entry(key).or_default().push(*episode);
    }
    pods
}

fn hanging_probes_of(
    own: &[&Episode],
    hanging: &[(Arc<PodIdentity>, HangingProbe)],
) -> Vec<HangingProbe> {
    let newest = own.iter().max_by_key(|episode| episode.began);
    let uid = newest.map(|episode| &episode.pod.uid);
    let own = hanging.iter().filter(|(pod, _)| Some(&pod.uid) == uid);
    own.map(|(_, probe)| probe.clone()).collect()
}

/// The verdict on one pod, and its entry. The reason of the entry is the headline of the pod's own page.
fn judge<'a>(
    own: &[&'a Episode],
    causes: &Diagnoser<'a>,
    now: UnixMicros,
) -> Option<(PodVerdict<'a>, PodSummary)> {
    let shown = own.iter().map(|episode| episode.summary(causes));
    let verdict = causes.newest_verdict()?;
    let pod = PodSummary::from_episodes(shown.collect(), verdict.reason(causes), now)?;
    Some((verdict, pod))
}

#[cfg(test)]
mod tests {
    use crate::stories::tests::stories;
    use crate::tests::scenario::read_calls;
    use crate::view::PodState;

    #[test]
    fn a_list_has_one_entry_per_pod_with_the_headline_of_its_page() {
        let stories = stories(read_calls(
            "run 0 +100; pull web:1 200 +10 fails NOT_FOUND no; pull web:1 9s +10 fails NOT_FOUND no; \
             pod db; run 0 +100; create db 110 +10; start db 130 +10",
        ));
        let pods = stories.pods(&[]);
        let states: Vec<_> = pods
            .pods
            .iter()
            .map(|pod| (&*pod.name, pod.state))
            .collect();
        assert_eq!(
            states,
            [("web", PodState::Failing), ("db", PodState::Starting)]
        );
        let story = stories.pod_story("shop", "web", None, &[]).expect("known");
        assert_eq!(pods.pods[0].reason, story.headline);
        let pod = stories.pod("shop", "web", None, &[]);
        assert_eq!(pod.map(|pod| pod.state), Some(PodState::Failing));
        assert_eq!(stories.pod("shop", "web", Some("other"), &[]), None);
        assert_eq!((pods.known, pods.pods[0].episodes), (2, 1));
    }
}

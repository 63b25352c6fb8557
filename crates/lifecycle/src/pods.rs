//! The pods of this node, one entry each, for lists.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::diagnosis;
use super::episode_store::Episode;
use super::stories::Stories;
use super::usual::NodeContext;
use super::view::{self, PodList};
use criscope_cri::call::Call;
use criscope_cri::units::times::UnixMicros;

impl Stories {
    /// The pods in memory, those in trouble first. Calls in flight are included.
    pub fn pods(&self, in_flight: &[Arc<Call>]) -> PodList {
        let now = self.now();
        let (mut pods, forgotten) = self.read(
            in_flight,
            |_| true,
            |episodes, store, pulls| {
                let pods = by_pod(episodes).into_values();
                let pods = pods.filter_map(|own| {
                    let node = store.node().with_pulls(pulls.clone());
                    summary_of_pod(&own, node, now)
                });
                (pods.collect::<Vec<_>>(), store.forgotten())
            },
        );
        if let Some(captured) = &self.captured {
            for pod in &mut pods {
                let said = captured.headline(&pod.namespace, &pod.name);
                said.into_iter()
                    .for_each(|said| pod.reason.clone_from(&said.headline));
            }
        }
        view::sort_pods(&mut pods, false);
        PodList {
            now_unix_us: now,
            known: pods.len(),
            pods,
            forgotten,
        }
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

/// The entry of one pod. Its reason is the headline of its own page.
fn summary_of_pod(
    own: &[&Episode],
    node: NodeContext<'_>,
    now: UnixMicros,
) -> Option<view::PodSummary> {
    let causes = diagnosis::Diagnoser::new(own, node, now);
    let shown = own.iter().map(|episode| episode.summary(&causes));
    let reason = causes.newest_cause()?;
    view::PodSummary::from_episodes(shown.collect(), reason.to_string(), now)
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
        assert_eq!((pods.known, pods.pods[0].episodes), (2, 1));
    }
}

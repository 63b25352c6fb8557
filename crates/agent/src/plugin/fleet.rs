//! Common traits of the failing and slow pods of a cluster: causes, nodes, images and CNI plugins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use criscope_cri::units;
use criscope_cri::visible::visible;
use criscope_pages::view::{CallView, PodList, PodStory, PodSummary};
use futures_util::StreamExt as _;
use futures_util::stream;

use super::cluster::Cluster;

/// Upper bound of pods whose stories are read for images and plugins.
const MAX_STORIES: usize = 100;

/// Upper bound of stories that are read concurrently.
const MAX_CONCURRENT_REQUESTS: usize = 16;

/// A start that took at least this long is slow.
const SLOW_START_MS: f64 = 5_000.0;

/// A pod that is failing or was slow, and the traits that it may share with others.
#[derive(Clone, Debug)]
struct TroubledPod {
    pod: PodSummary,
    node: String,
    shares: BTreeSet<(SharedTrait, String)>,
}

/// A trait that pods can have in common, in the order of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SharedTrait {
    Cause,
    Node,
    Image,
    Plugin,
    Handler,
}

impl SharedTrait {
    const fn word(self) -> &'static str {
        match self {
            Self::Cause => "cause",
            Self::Node => "node",
            Self::Image => "image",
            Self::Plugin => "CNI plugin",
            Self::Handler => "runtime handler",
        }
    }
}

/// The text, and a line for each node that did not answer.
pub async fn view(cluster: &Cluster, namespace: Option<&str>, top: usize) -> (String, Vec<String>) {
    let mut silent = Vec::new();
    let (mut entries, mut known, mut answered) = (Vec::new(), 0, 0);
    for (agent, reply) in cluster.ask_all("/debug/pods?format=json&by=pod").await {
        let reply = reply.map_err(|error| error.to_string());
        let pods = reply.and_then(|reply| {
            serde_json::from_slice::<PodList>(&reply.body).map_err(|error| error.to_string())
        });
        let pods = match pods {
            Ok(pods) => pods.pods,
            Err(error) => {
                silent.push(format!("node {} did not answer: {error}", agent.node));
                continue;
            }
        };
        answered += 1;
        for pod in pods {
            if namespace.is_some_and(|wanted| wanted != pod.namespace) {
                continue;
            }
            known += 1;
            if pod.state.is_trouble()
                || pod.duration_ms >= SLOW_START_MS && pod.episode.kind != "stop"
            {
                entries.push(TroubledPod::new(pod, &agent.node));
            }
        }
    }
    // The longest come first, since only their stories are read.
    entries.sort_by(|a, b| b.pod.duration_ms.total_cmp(&a.pod.duration_ms));
    add_stories(cluster, &mut entries).await;
    let nodes = (answered, cluster.agents().len());
    (text(&entries, known, nodes, top), silent)
}

impl TroubledPod {
    fn new(pod: PodSummary, node: &str) -> Self {
        let mut shares = BTreeSet::from([(SharedTrait::Node, node.to_owned())]);
        let episode = &pod.episode;
        if !episode.cause.is_empty() {
            shares.insert((SharedTrait::Cause, episode.cause.replace('_', " ")));
        }
        if !episode.handler.is_empty() {
            shares.insert((SharedTrait::Handler, episode.handler.clone()));
        }
        Self {
            pod,
            node: node.to_owned(),
            shares,
        }
    }

    /// Adds the images that were pulled or failed to be, and the plugins at work, from calls that failed or took a quarter of
    /// the time.
    fn add(&mut self, calls: &[CallView], duration_ms: f64) {
        let quarter = duration_ms / 4.0;
        for call in calls
            .iter()
            .filter(|call| call.is_failed() || call.duration_ms >= quarter)
        {
            if let Some(image) = call.image.as_ref().filter(|_| call.method == "PullImage") {
                self.shares.insert((SharedTrait::Image, image.clone()));
            }
            let plugins = call.details.iter().filter(|detail| detail.what == "cni");
            for plugin in plugins.filter(|plugin| call.is_failed() || plugin.duration_ms >= quarter)
            {
                self.shares
                    .insert((SharedTrait::Plugin, plugin.name.clone()));
            }
        }
    }
}

/// Reads the stories of the slowest pods from their nodes, since lists have no calls. Unreadable stories are left out.
async fn add_stories(cluster: &Cluster, entries: &mut [TroubledPod]) {
    let asked = entries
        .iter()
        .take(MAX_STORIES)
        .enumerate()
        .map(|(n, entry)| {
            let PodSummary {
                namespace,
                name,
                uid,
                ..
            } = &entry.pod;
            (
                n,
                &entry.node,
                format!("/debug/pods/{namespace}/{name}?format=json&uid={uid}"),
            )
        });
    let asked: Vec<_> = asked.collect();
    let stories = stream::iter(asked).map(async |(n, node, page)| {
        let agent = cluster.agent_of(node).ok()?;
        let reply = cluster.ask(agent, &page).await.ok()?;
        let story = serde_json::from_slice::<PodStory>(&reply.body).ok()?;
        Some((n, story))
    });
    let stories: Vec<_> = stories
        .buffer_unordered(MAX_CONCURRENT_REQUESTS)
        .collect()
        .await;
    for (n, story) in stories.into_iter().flatten() {
        let began = entries[n].pod.episode.began_unix_us;
        let same = story
            .episodes
            .iter()
            .find(|episode| episode.began_unix_us == began);
        if let Some(episode) = same {
            entries[n].add(&episode.calls, episode.duration_ms);
        }
    }
}

fn text(
    entries: &[TroubledPod],
    known: usize,
    (answered, nodes): (usize, usize),
    top: usize,
) -> String {
    let (failing, slow): (Vec<_>, Vec<_>) = entries
        .iter()
        .partition(|entry| entry.pod.state.is_trouble());
    let mut text = format!(
        "{known} pods on {answered} of {nodes} nodes: {} failing, {} slow to start\n",
        failing.len(),
        slow.len()
    );
    for (title, group) in [("FAILING", failing), ("SLOWEST STARTS", slow)] {
        if group.is_empty() {
            continue;
        }
        let _ = writeln!(text, "\n{title}");
        for entry in group.iter().take(top) {
            let pod = &entry.pod;
            let took = units::duration(pod.duration_ms);
            let reason = visible(&pod.reason);
            let _ = writeln!(
                text,
                "  {took:>8}  {}  {}  {reason}",
                pod.path(),
                entry.node
            );
        }
        if group.len() > top {
            let _ = writeln!(text, "  and {} more", group.len() - top);
        }
        shared(&mut text, &group, top);
    }
    text
}

/// Writes the traits that at least two pods of a group share, the most common first.
fn shared(text: &mut String, group: &[&TroubledPod], top: usize) {
    let mut counts = BTreeMap::<&(SharedTrait, String), usize>::new();
    for share in group.iter().flat_map(|entry| &entry.shares) {
        *counts.entry(share).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().filter(|(_, n)| *n > 1).collect();
    counts.sort_by_key(|(share, n)| (usize::MAX - n, *share));
    if !counts.is_empty() {
        let _ = writeln!(text, "  in common:");
    }
    for ((kind, what), n) in counts.into_iter().take(top) {
        let of = group.len();
        let _ = writeln!(text, "    {n} of {of}  {} {}", kind.word(), visible(what));
    }
}

#[cfg(test)]
mod tests {
    use criscope_pages::view::{CallDetail, PodState};

    use super::*;

    fn entry(name: &str, node: &str, state: PodState, ms: f64) -> TroubledPod {
        let mut pod = PodSummary {
            namespace: "shop".to_owned(),
            name: name.to_owned(),
            state,
            duration_ms: ms,
            reason: "because".to_owned(),
            ..PodSummary::default()
        };
        pod.episode.cause = "slow_network".to_owned();
        TroubledPod::new(pod, node)
    }

    #[test]
    fn what_several_pods_share_is_named_with_the_most_common_first() {
        let mut slow = entry("a", "n1", PodState::Ok, 9_000.0);
        let call = CallView {
            method: "RunPodSandbox".to_owned(),
            duration_ms: 8_900.0,
            outcome: "ok".to_owned(),
            details: ["calico", "portmap"]
                .map(|name| CallDetail {
                    what: "cni".to_owned(),
                    name: name.to_owned(),
                    duration_ms: if name == "calico" { 8_000.0 } else { 1.0 },
                    ..CallDetail::default()
                })
                .into(),
            ..CallView::default()
        };
        slow.add(std::slice::from_ref(&call), 9_000.0);
        let mut other = entry("b", "n2", PodState::Ok, 7_000.0);
        other.add(&[call], 9_000.0);
        let third = entry("c", "n1", PodState::Ok, 6_000.0);
        let broken = entry("d", "n3", PodState::Failing, 60_000.0);
        let text = text(&[slow, other, third, broken], 40, (3, 4), 2);
        assert!(
            text.starts_with("40 pods on 3 of 4 nodes: 1 failing, 3 slow to start\n"),
            "{text}"
        );
        assert!(text.contains("  and 1 more\n"), "{text}");
        let (_, common) = text.rsplit_once("in common:\n").expect("shared");
        assert!(
            common.starts_with("    3 of 3  cause slow network\n    2 of 3  node n1\n"),
            "{text}"
        );
        assert!(!text.contains("portmap"), "{text}");
    }
}

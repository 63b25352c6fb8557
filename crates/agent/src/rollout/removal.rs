//! `criscope-agent uninstall-cluster`: restores all nodes before the objects of the cluster are deleted. It is the hook of
//! `helm uninstall`: deleted first, the DaemonSet would leave every node as it is.
//!
//! It makes the installer's DaemonSet uninstall, and waits for the records of all nodes. The installers take turns as in an
//! installation, and go on if this process ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write as _};
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use kube::api::{Api, ListParams, PostParams};
use tokio::time::{Instant, sleep};

use super::lease_watch::LeaseWatch;
use super::record::{Goal, NodeRecord, NodeState};
use super::summary::RolloutSummary;
use super::turns::is_reachable;
use super::{LEASE_LABEL, is_conflict};
use crate::check::Expectation;

/// The labels of installers.
const SELECTOR: &str = "app.kubernetes.io/name=criscope,app.kubernetes.io/component=installer";

/// Time between two looks at pods and Nodes. Leases are watched.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// How long changes of Leases are collected.
const DEBOUNCE: Duration = Duration::from_secs(1);

/// Restore all nodes: the step before the objects in the cluster are deleted
///
/// Makes the installer's DaemonSet uninstall, and waits until every node is restored. Fails if a node is not, and says why. The
/// nodes go on when this command has ended, so it can be run again, for example when an unreachable node is back.
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// Namespace of the installer
    #[arg(long, value_name = "NS", env = "CRISCOPE_AGENT_NAMESPACE")]
    pub namespace: String,
    /// The installer's DaemonSet
    #[arg(long, value_name = "NAME", default_value = "criscope-installer")]
    pub daemonset: String,
    /// Succeed although nodes that are not reachable keep criscope
    #[arg(long)]
    pub leave_unreachable: bool,
    /// How long nothing may happen before the command fails
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = super::policy::duration)]
    pub patience: Duration,
}

/// The reason why not all nodes were restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RemovalError {
    /// The API server refused a request.
    #[error("{0}: {1}")]
    Api(&'static str, kube::Error),
    /// Nodes have failed.
    #[error("{0}. Mend the node and run `kubectl criscope rollout retry`, then uninstall again")]
    Failed(String),
    /// Nothing has happened for too long.
    #[error(
        "{0}; nothing has happened for {1} s. Nodes that come back are restored; uninstall again then. {LEAVE_HINT}"
    )]
    Stuck(String, u64),
    /// The DaemonSet does not exist any more.
    #[error(
        "DaemonSet {0} does not exist, and criscope is still on {1}: install the chart again and uninstall it then, or run `criscope uninstall` on these nodes"
    )]
    NoInstaller(String, String),
}

/// What a person can do about nodes that never come back.
const LEAVE_HINT: &str = "Nodes that never come back: delete their Node objects, or use --leave-unreachable (uninstall.leaveUnreachable=true in the chart)";

/// Restores all nodes.
///
/// # Errors
/// If a node is not restored.
pub async fn run(args: &Args, client: kube::Client) -> Result<(), RemovalError> {
    let removal = Removal { args, client };
    let has_installer = removal.turn_round().await?;
    let mut watch = LeaseWatch::start(removal.leases(), LEASE_LABEL);
    watch.changed().await;
    let mut cluster = removal.look().await?;
    let mut progress = (String::new(), Instant::now());
    loop {
        let summary = watch.read(|leases| RolloutSummary::from_leases(leases.values()));
        let mut open = cluster.open(&summary);
        if open.is_empty() || cluster.at.elapsed() >= LOOK_INTERVAL {
            cluster = removal.look().await?;
            open = cluster.open(&summary);
        }
        let said = said(&summary, &open);
        if said != progress.0 {
            say(&said);
            progress = (said, Instant::now());
        }
        if open.is_empty() {
            return Ok(());
        }
        let names: Vec<_> = open.keys().map(String::as_str).collect();
        if !has_installer {
            let name = args.daemonset.clone();
            return Err(RemovalError::NoInstaller(name, names.join(", ")));
        }
        let is_at_work = summary.records.iter().any(|record| record.state.has_turn());
        if let Some(failed) = failed(&summary)
            && !is_at_work
        {
            return Err(RemovalError::Failed(failed));
        }
        let is_quiet = progress.1.elapsed() >= args.patience && !is_at_work;
        if is_quiet && summary.paused.is_none() {
            let all_unreachable = open.values().all(|is_reachable| !is_reachable);
            if args.leave_unreachable && all_unreachable {
                say(&format!(
                    "left as they are, because they are not reachable: {}. `criscope uninstall` on the node restores it",
                    names.join(", ")
                ));
                return Ok(());
            }
            return Err(RemovalError::Stuck(progress.0, args.patience.as_secs()));
        }
        tokio::select! {
            () = watch.changed() => sleep(DEBOUNCE).await,
            () = sleep(LOOK_INTERVAL) => {}
        }
    }
}

/// The nodes that have failed to uninstall, with the reasons.
fn failed(summary: &RolloutSummary) -> Option<String> {
    let failed = summary.in_state(NodeState::Failed);
    let failed = failed.filter(|record| record.goal == Goal::Uninstall);
    let failed: Vec<_> = failed
        .map(|record| format!("{}: {}", record.node, record.reason))
        .collect();
    (!failed.is_empty()).then(|| failed.join("; "))
}

fn said(summary: &RolloutSummary, open: &BTreeMap<String, bool>) -> String {
    let total = summary.records.len().max(open.len());
    let mut text = format!("{} of {total} nodes are restored", total - open.len());
    let unreachable = open.iter().filter(|(_, is_reachable)| !**is_reachable);
    let unreachable: Vec<_> = unreachable.map(|(name, _)| &**name).collect();
    if !unreachable.is_empty() {
        text += &format!("; not reachable: {}", unreachable.join(", "));
    }
    if let Some(reason) = summary.stopped.as_ref().or(summary.paused.as_ref()) {
        text += &format!("; stopped: {reason}");
    }
    text
}

fn say(text: &str) {
    // Standard output may be closed; the removal goes on.
    let _ = writeln!(io::stdout().lock(), "{text}");
}

struct Removal<'a> {
    args: &'a Args,
    client: kube::Client,
}

impl Removal<'_> {
    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client.clone(), &self.args.namespace)
    }

    /// Makes the DaemonSet uninstall. Returns `false` if there is none.
    async fn turn_round(&self) -> Result<bool, RemovalError> {
        let sets = Api::<DaemonSet>::namespaced(self.client.clone(), &self.args.namespace);
        let name = &self.args.daemonset;
        let failed = |error| RemovalError::Api("the DaemonSet of the installer", error);
        loop {
            let Some(mut set) = sets.get_opt(name).await.map_err(failed)? else {
                return Ok(false);
            };
            let spec = set
                .spec
                .as_mut()
                .and_then(|spec| spec.template.spec.as_mut());
            if !spec.is_some_and(uninstall) {
                return Ok(true);
            }
            match sets.replace(name, &PostParams::default(), &set).await {
                Ok(_) => return Ok(true),
                Err(error) if is_conflict(&error) => {}
                Err(error) => return Err(failed(error)),
            }
        }
    }

    async fn look(&self) -> Result<ClusterLook, RemovalError> {
        let failed = |error| RemovalError::Api("the pods of the installer", error);
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.args.namespace);
        let pods = pods
            .list(&ListParams::default().labels(SELECTOR))
            .await
            .map_err(failed)?;
        let with_pod = pods.items.into_iter();
        let with_pod = with_pod.filter_map(|pod| pod.spec.and_then(|spec| spec.node_name));
        let nodes = Api::<Node>::all(self.client.clone());
        let nodes = nodes.list(&ListParams::default()).await;
        let nodes = nodes.map_err(|error| RemovalError::Api("the Nodes", error))?;
        let nodes = nodes.iter().filter_map(|node| {
            let name = node.metadata.name.clone()?;
            Some((name, is_reachable(node)))
        });
        Ok(ClusterLook {
            with_pod: with_pod.collect(),
            nodes: nodes.collect(),
            at: Instant::now(),
        })
    }
}

/// What is looked up from time to time.
struct ClusterLook {
    /// Nodes with a pod of the installer.
    with_pod: BTreeSet<String>,
    /// The Nodes, and whether they are reachable.
    nodes: BTreeMap<String, bool>,
    at: Instant,
}

impl ClusterLook {
    /// The nodes that are not restored, and whether they are reachable. A Node that is deleted needs nothing.
    fn open(&self, summary: &RolloutSummary) -> BTreeMap<String, bool> {
        let mut open = self.with_pod.clone();
        for record in &summary.records {
            if is_open(record) {
                open.insert(record.node.clone());
            } else {
                open.remove(&record.node);
            }
        }
        let found = open.into_iter();
        found
            .filter_map(|name| Some((name.clone(), *self.nodes.get(&name)?)))
            .collect()
    }
}

/// Returns whether criscope may still be on a node.
fn is_open(record: &NodeRecord) -> bool {
    match record.goal {
        Goal::Uninstall => !matches!(record.state, NodeState::Done | NodeState::Skipped),
        Goal::Install => record.installed.is_some() || record.state != NodeState::Waiting,
    }
}

/// Changes the pods of an installer so that they uninstall. Returns `false` if they do so already.
fn uninstall(pod: &mut PodSpec) -> bool {
    const UNINSTALL: &str = "--uninstall";
    let installers = pod.init_containers.iter_mut().flatten();
    let mut is_changed = false;
    for container in installers.filter(|container| container.name == "install") {
        let args = container.args.get_or_insert_default();
        if args.iter().any(|arg| arg == UNINSTALL) {
            continue;
        }
        // Arguments of `criscope install`, which `criscope uninstall` does not have.
        if let Some(end) = args.iter().position(|arg| arg == "--") {
            args.truncate(end);
        }
        args.push(UNINSTALL.to_owned());
        is_changed = true;
    }
    for container in pod.containers.iter_mut().filter(|_| is_changed) {
        let probe = container.readiness_probe.as_mut();
        let exec = probe.and_then(|probe| probe.exec.as_mut());
        let words = exec.and_then(|exec| exec.command.as_mut());
        for word in words.into_iter().flatten() {
            if word.starts_with(Expectation::OPTION) {
                *word = format!("{}absent", Expectation::OPTION);
            }
        }
    }
    is_changed
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Container, ExecAction, Probe};

    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn pods_are_turned_round_once_and_keep_the_pace() {
        let install = Container {
            name: "install".to_owned(),
            args: Some(words(&[
                "--max-parallel=10%",
                "--canary=a=b",
                "--",
                "--runtime",
            ])),
            ..Container::default()
        };
        let hold = Container {
            readiness_probe: Some(Probe {
                exec: Some(ExecAction {
                    command: Some(words(&["criscope-agent", "check", "--expect=ready"])),
                }),
                ..Probe::default()
            }),
            ..Container::default()
        };
        let mut pod = PodSpec {
            init_containers: Some(vec![install]),
            containers: vec![hold],
            ..PodSpec::default()
        };
        assert!(uninstall(&mut pod));
        let installer = &pod.init_containers.as_ref().expect("there")[0];
        let args = words(&["--max-parallel=10%", "--canary=a=b", "--uninstall"]);
        assert_eq!(installer.args, Some(args));
        let probe = serde_json::to_string(&pod.containers[0].readiness_probe).expect("JSON");
        assert!(probe.contains("--expect=absent"), "{probe}");
        assert!(!uninstall(&mut pod));
    }
}

//! `kubectl criscope rollout`: the state of the rollout, and what a person decides about it.

use std::io::{self, Write as _};
use std::time::Duration;

use clap::Subcommand;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::sleep;

use super::cluster::said;
use crate::NODE_NAMESPACE_SUFFIX;
use crate::rollout::record::{NodeRecord, NodeState};
use crate::rollout::summary::RolloutSummary;
use crate::rollout::{COORDINATOR_LEASE, LEASE_LABEL, PAUSED_ANNOTATION};

/// Time between two lists of a rollout that is watched.
const WATCH_INTERVAL: Duration = Duration::from_secs(5);

/// A rollout that is watched has stopped when so many lists in a row say so: installers register one after the other.
const STOPPED_LISTS: u32 = 6;

/// Arguments of the commands on the rollout.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RolloutArgs {
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(subcommand)]
    command: Option<RolloutCommand>,
}

#[derive(Clone, Debug, clap::Args)]
struct NamespaceArgs {
    /// Namespace of the installers [default: the agents' namespace with -node at the end]
    #[arg(
        long,
        global = true,
        value_name = "NS",
        env = "CRISCOPE_NODE_NAMESPACE"
    )]
    node_namespace: Option<String>,
}

/// A command on the rollout.
#[derive(Clone, Debug, Subcommand)]
enum RolloutCommand {
    /// Show which nodes are done, wait and have failed, and why (default)
    Status(ShownArgs),
    /// Give no more turns; nodes that are worked on go on
    Pause {
        /// The reason, for others
        #[arg(
            long,
            value_name = "TEXT",
            default_value = "by kubectl criscope rollout pause"
        )]
        reason: String,
    },
    /// Go on: end a pause, and leave out nodes that have failed or were lost
    Resume,
    /// Try nodes that have failed, were lost or left out once more
    Retry {
        /// The nodes [default: all of them]
        #[arg(value_name = "NODE")]
        nodes: Vec<String>,
    },
}

/// Arguments of `kubectl criscope status`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct StatusArgs {
    #[command(flatten)]
    namespace: NamespaceArgs,
    #[command(flatten)]
    shown: ShownArgs,
}

/// What is shown of a rollout.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
struct ShownArgs {
    /// List also nodes that wait or are done
    #[arg(long)]
    all: bool,
    /// Print every change until the rollout is done or needs a person
    #[arg(long, short)]
    watch: bool,
}

/// The reason why a command on the rollout failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum RolloutError {
    #[error("cannot {0} the Leases in namespace {1}: {2}")]
    Api(&'static str, String, String),
    #[error("no installer has registered node {0}")]
    UnknownNode(String),
    #[error("node {0} is {1}: only a node that has failed, was lost or left out is tried again")]
    NotFailed(String, &'static str),
    #[error("the rollout has stopped")]
    Stopped,
}

impl RolloutError {
    /// A recommendation for the user.
    pub(super) const fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Api(..) => Some(
                "a RoleBinding to the Role criscope-rollout in that namespace gives the rights; --node-namespace names another one",
            ),
            _ => None,
        }
    }
}

/// A command on the rollout, and where the rollout is.
pub(super) struct Rollout {
    command: RolloutCommand,
    namespace: Option<String>,
}

impl Rollout {
    /// The command on the rollout, if this is one.
    pub(super) fn asked_for(command: &super::Command) -> Option<Self> {
        let (command, namespace) = match command {
            super::Command::Status(args) => (RolloutCommand::Status(args.shown), &args.namespace),
            super::Command::Rollout(args) => {
                let default = RolloutCommand::Status(ShownArgs::default());
                (args.command.clone().unwrap_or(default), &args.namespace)
            }
            _ => return None,
        };
        Some(Self {
            command,
            namespace: namespace.node_namespace.clone(),
        })
    }

    /// Runs the command and prints its answer.
    pub(super) async fn run(
        self,
        client: kube::Client,
        agent_namespace: &str,
    ) -> Result<(), RolloutError> {
        let namespace = self.namespace;
        let namespace =
            namespace.unwrap_or_else(|| format!("{agent_namespace}{NODE_NAMESPACE_SUFFIX}"));
        let leases = RolloutLeases {
            leases: Api::namespaced(client, &namespace),
            namespace,
        };
        match &self.command {
            RolloutCommand::Status(shown) => leases.status(*shown).await,
            RolloutCommand::Pause { reason } => {
                leases.set_paused(Some(reason)).await?;
                print("paused: `kubectl criscope rollout resume` goes on\n");
                Ok(())
            }
            RolloutCommand::Resume => leases.resume().await,
            RolloutCommand::Retry { nodes } => leases.retry(nodes).await,
        }
    }
}

fn print(text: &str) {
    // Standard output may be closed.
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

/// The Leases of a rollout.
struct RolloutLeases {
    leases: Api<Lease>,
    namespace: String,
}

impl RolloutLeases {
    async fn resume(&self) -> Result<(), RolloutError> {
        self.set_paused(None).await?;
        let stuck = [NodeState::Failed, NodeState::Lost];
        for record in self.summary().await?.records {
            if stuck.contains(&record.state) {
                let reason = format!("left out, {}: {}", record.state.name(), record.reason);
                self.set_state(&record, NodeState::Skipped, &reason).await?;
                print(&format!(
                    "goes on without {} ({})\n",
                    record.node,
                    record.state.name()
                ));
            }
        }
        print("resumed\n");
        Ok(())
    }

    /// Prints the state of the rollout.
    ///
    /// # Errors
    /// If it cannot be read, or a rollout that is watched stops.
    async fn status(&self, args: ShownArgs) -> Result<(), RolloutError> {
        let mut printed = String::new();
        let mut stopped_lists = 0;
        loop {
            let summary = self.summary().await?;
            if !args.watch {
                print(&summary.text(args.all, Timestamp::now()));
                return Ok(());
            }
            let counts = summary.counts();
            if counts != printed {
                print(&summary.text(args.all, Timestamp::now()));
                printed = counts;
            }
            let total = summary.records.len();
            if total > 0
                && summary.count(NodeState::Done) + summary.count(NodeState::Skipped) == total
            {
                return Ok(());
            }
            stopped_lists = if summary.needs_a_person() {
                stopped_lists + 1
            } else {
                0
            };
            if stopped_lists >= STOPPED_LISTS {
                return Err(RolloutError::Stopped);
            }
            sleep(WATCH_INTERVAL).await;
        }
    }

    async fn retry(&self, nodes: &[String]) -> Result<(), RolloutError> {
        let records = self.summary().await?.records;
        let again = [NodeState::Failed, NodeState::Lost, NodeState::Skipped];
        let mut chosen = Vec::new();
        for node in nodes {
            let found = records.iter().find(|record| record.node == *node);
            let found = found.ok_or_else(|| RolloutError::UnknownNode(node.clone()))?;
            if !again.contains(&found.state) {
                return Err(RolloutError::NotFailed(node.clone(), found.state.name()));
            }
            chosen.push(found);
        }
        if nodes.is_empty() {
            chosen.extend(
                records
                    .iter()
                    .filter(|record| again.contains(&record.state)),
            );
        }
        for record in &chosen {
            self.set_state(record, NodeState::Waiting, "").await?;
            print(&format!("{} waits for a turn\n", record.node));
        }
        if chosen.is_empty() {
            print("no node has failed, was lost or left out\n");
        }
        Ok(())
    }

    async fn summary(&self) -> Result<RolloutSummary, RolloutError> {
        let list = self
            .leases
            .list(&ListParams::default().labels(LEASE_LABEL))
            .await;
        let list = list.map_err(|error| self.failed("list", &error))?;
        Ok(RolloutSummary::from_leases(list.items.iter()))
    }

    async fn set_state(
        &self,
        record: &NodeRecord,
        state: NodeState,
        reason: &str,
    ) -> Result<(), RolloutError> {
        let changed = NodeRecord {
            state,
            reason: reason.to_owned(),
            since: Some(Timestamp::now()),
            ..record.clone()
        };
        let changed = json!({"metadata": {"annotations": changed.annotations()}});
        self.patch(&record.node, &changed).await
    }

    async fn set_paused(&self, reason: Option<&str>) -> Result<(), RolloutError> {
        let changed = json!({"metadata": {"annotations": {PAUSED_ANNOTATION: reason}}});
        self.patch(COORDINATOR_LEASE, &changed).await
    }

    async fn patch(&self, name: &str, changed: &serde_json::Value) -> Result<(), RolloutError> {
        let (params, patch) = (PatchParams::default(), Patch::Merge(changed));
        let patched = self.leases.patch(name, &params, &patch).await;
        patched.map_err(|error| self.failed("change", &error))?;
        Ok(())
    }

    fn failed(&self, verb: &'static str, error: &kube::Error) -> RolloutError {
        RolloutError::Api(verb, self.namespace.clone(), said(error))
    }
}

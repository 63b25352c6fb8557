//! `criscope-agent install`: puts criscope on the node of this pod, or takes it off, when it is this node's turn in the rollout.
//!
//! [`crate::rollout`] gives the turns; `work` is what an installer does on its node; `enter` is the part of it that happens in
//! the mount namespace of the node.

mod enter;
mod work;

use std::future::Future;

use criscope::install::AGENT_SOCKET;

pub use self::enter::{EnterArgs, EnterError, enter};
use self::work::InstallWork;
use crate::daemon::DaemonAddress;
use crate::rollout::participant::{InstallerIdentity, Participant, ParticipantError};
use crate::rollout::{Goal, RolloutPolicy, RolloutTiming};

/// Install criscope on the node of this pod, when it is this node's turn
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The name of this node
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: String,
    /// Namespace of the Leases
    #[arg(long, value_name = "NS", env = "CRISCOPE_AGENT_NAMESPACE")]
    namespace: String,
    /// The uid of this pod: a new pod tries again on a node that has failed, a restarted container does not
    #[arg(long, value_name = "UID", env = "POD_UID", default_value = "")]
    pod_uid: String,
    /// The revision of this pod's DaemonSet
    #[arg(
        long,
        value_name = "HASH",
        env = "CRISCOPE_REVISION",
        default_value = ""
    )]
    revision: String,
    /// admin.agent_socket of the daemon as unix:///path, or its admin.listen
    #[arg(long, value_name = "ADDR", default_value = AGENT_SOCKET)]
    daemon: DaemonAddress,
    #[command(flatten)]
    policy: RolloutPolicy,
    #[command(flatten)]
    what: EnterArgs,
}

/// Waits for the turn of this node, installs, waits until the daemon is ready, and ends the turn.
///
/// # Errors
/// If a step fails, which stops the rollout, or at `stop`.
pub async fn run(
    args: &Args,
    client: kube::Client,
    stop: impl Future<Output = ()>,
) -> Result<(), ParticipantError> {
    let goal = if args.what.uninstall {
        Goal::Uninstall
    } else {
        Goal::Install
    };
    let participant = Participant {
        client,
        namespace: args.namespace.clone(),
        identity: InstallerIdentity {
            node: args.node.clone(),
            pod_uid: args.pod_uid.clone(),
            revision: args.revision.clone(),
            goal,
        },
        policy: args.policy.clone(),
        timing: RolloutTiming::default(),
    };
    let work = InstallWork::new(&args.what, &args.daemon);
    participant.run(&work, stop).await
}

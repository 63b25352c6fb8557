//! `kubectl criscope`: the commands of criscope for a whole cluster, through the API server.
//!
//! [`kubeconfig`] finds the API server, [`cluster`] finds and asks agents; `pages` answers the commands of criscope, which draw;
//! [`fleet`] compares the pods of a cluster; [`capture`] makes a capture of a node; `completion` completes arguments.

pub mod capture;
pub mod cluster;
mod completion;
pub mod fleet;
pub mod kubeconfig;
pub mod pages;
mod rollout;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory as _, Parser, Subcommand};
use criscope_cri::visible::visible;
use criscope_pages::commands::calls::CallsArgs;
use criscope_pages::commands::explain::ExplainArgs;
use criscope_pages::commands::pods::{PodsArgs, STATES_HELP};
use criscope_pages::commands::{self, PageCommandError, PodName, PodNameError};

use self::capture::{CaptureError, CaptureRequest};
use self::cluster::{Cluster, ClusterError};
use self::kubeconfig::{ClusterConfigError, KubeconfigArgs};
use self::pages::ClusterPages;
use self::rollout::{Rollout, RolloutArgs, RolloutError, StatusArgs};
use crate::NODE_NAMESPACE_SUFFIX;

/// Why a pod was slow, or is not up: what criscope knows on the nodes of a cluster
///
/// Goes through the API server with your own rights: a RoleBinding to the Role criscope-user in the namespace of the agents is
/// enough.
#[derive(Debug, Parser)]
#[command(
    name = "kubectl-criscope",
    bin_name = "kubectl criscope",
    version,
    max_term_width = 100
)]
struct Cli {
    #[command(flatten)]
    to: ClusterArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct ClusterArgs {
    #[command(flatten)]
    kubeconfig: KubeconfigArgs,
    /// Namespace of criscope's agents
    #[arg(
        long,
        global = true,
        value_name = "NS",
        default_value = "criscope",
        env = "CRISCOPE_AGENT_NAMESPACE",
        help_heading = "Cluster"
    )]
    agent_namespace: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Explain why a pod is slow or will not start
    #[command(mut_arg("namespace", |arg| arg.help("The pod's namespace [default: the context's namespace]")))]
    Explain(ExplainArgs),
    /// List the pods of all nodes with their state, failing pods first
    #[command(after_help = STATES_HELP)]
    #[command(mut_arg("namespace", |arg| arg.help("Only pods in this namespace [default: the context's namespace]")))]
    #[command(mut_arg("all_namespaces", |arg| arg.help("Pods in all namespaces")))]
    Pods {
        #[command(flatten)]
        pods: PodsArgs,
        /// Only pods on this node
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
    },
    /// Show the calls in flight and the rates per method of a node
    Calls {
        /// The node
        #[arg(long, value_name = "NODE")]
        node: String,
        #[command(flatten)]
        calls: CallsArgs,
    },
    /// Write what a node knows to a file, to explain its pods elsewhere with criscope explain --from FILE
    ///
    /// A privileged pod on the node makes it, which is deleted afterwards: that needs the Role criscope-capturer. The file has no
    /// requests, environments, arguments and credentials; names of pods, images and hosts are in it.
    Capture(CaptureArgs),
    /// Show the rollout of criscope over the nodes: which are done, wait and have failed, and why
    Status(StatusArgs),
    /// Show, pause and continue the rollout of criscope over the nodes
    Rollout(RolloutArgs),
    /// Show which nodes, images and causes the failing and slow pods of the cluster share
    Fleet {
        /// Only pods in this namespace [default: all]
        #[arg(long, short, value_name = "NS")]
        namespace: Option<String>,
        /// Show this many of each at most
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
        top: u16,
    },
    /// Print a script that lets kubectl complete the arguments of this plugin
    ///
    /// Write it to a file kubectl_complete-criscope in a directory of PATH, and make it executable (on Windows,
    /// kubectl_complete-criscope.cmd). Releases include it.
    Completion,
    /// Print the words that may follow
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete {
        #[arg(allow_hyphen_values = true, trailing_var_arg = true)]
        words: Vec<String>,
    },
}

#[derive(Debug, Args)]
struct CaptureArgs {
    /// Only this pod, as POD or NAMESPACE/POD, on its node
    #[arg(value_name = "POD", required_unless_present = "node")]
    pod: Option<String>,
    /// The pod's namespace [default: the context's namespace]
    #[arg(long, short, value_name = "NS", requires = "pod")]
    namespace: Option<String>,
    /// All pods of this node
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Only pods with calls in this time until now (30m, 2h)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Namespace of the pod that makes the capture [default: the agents' namespace with -node at the end]
    #[arg(long, value_name = "NS", env = "CRISCOPE_NODE_NAMESPACE")]
    node_namespace: Option<String>,
    /// The file to write [default: criscope-NODE-TIME.tar.gz in the working directory]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl CaptureArgs {
    async fn run(&self, cluster: &Cluster, default: &str) -> Result<(), PluginFailure> {
        let mut args = Vec::new();
        let mut node_of_pod = None;
        if let Some(pod) = &self.pod {
            let pod = PodName::parse(std::slice::from_ref(pod), self.namespace.as_deref())?;
            let namespace = pod.namespace.as_deref().unwrap_or(default);
            args.extend(["--pod".to_owned(), format!("{namespace}/{}", pod.name)]);
            if self.node.is_none() {
                node_of_pod = Some(cluster.node_of(namespace, &pod.name).await?);
            }
        }
        if let Some(since) = &self.since {
            args.extend(["--since".to_owned(), since.clone()]);
        }
        let node = self.node.clone().or(node_of_pod.flatten());
        let node = node.ok_or(CaptureError::Deleted)?;
        let agent = cluster.agent_of(&node)?;
        let namespace = match &self.node_namespace {
            Some(namespace) => namespace.clone(),
            None => format!("{}{NODE_NAMESPACE_SUFFIX}", cluster.namespace()),
        };
        let request = CaptureRequest {
            agent,
            namespace,
            arguments: args,
        };
        let (file, messages) = request.run(cluster, self.output.as_deref()).await?;
        writeln!(io::stdout(), "{}", file.display())?;
        messages.iter().for_each(|message| warn(message));
        Ok(())
    }
}

/// The reason why the plugin failed.
#[derive(Debug, thiserror::Error)]
enum PluginFailure {
    #[error(transparent)]
    Config(#[from] ClusterConfigError),
    #[error("the kubeconfig cannot be used: {0}")]
    Client(kube::Error),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Rollout(#[from] RolloutError),
    #[error(transparent)]
    Command(#[from] PageCommandError),
    #[error(transparent)]
    PodName(#[from] PodNameError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no node answered")]
    Silent,
}

impl PluginFailure {
    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Config(error) => error.hint(),
            Self::Cluster(error) => error.hint(),
            Self::Capture(error) => error.hint(),
            Self::Rollout(error) => error.hint(),
            Self::Command(PageCommandError::Explain(error)) => return error.hint(),
            _ => None,
        };
        hint.map(str::to_owned)
    }

    /// The reader of the output is gone, as in `kubectl criscope pods | head`.
    fn is_closed_output(&self) -> bool {
        match self {
            Self::Io(error) | Self::Command(PageCommandError::Io(error)) => {
                error.kind() == io::ErrorKind::BrokenPipe
            }
            _ => false,
        }
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            Self::PodName(_) | Self::Command(PageCommandError::PodName(_)) => {
                ExitCode::from(EX_USAGE)
            }
            _ => ExitCode::FAILURE,
        }
    }
}

/// Bad arguments: `EX_USAGE` of sysexits(3).
const EX_USAGE: u8 = 64;

/// Runs the plugin with these arguments, program name included.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Standard error may be closed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { EX_USAGE } else { 0 });
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let done = match runtime {
        Ok(runtime) => runtime.block_on(start(cli)),
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) if failure.is_closed_output() => ExitCode::SUCCESS,
        Err(failure) => {
            // Texts of a cluster, a line each; standard error may be closed.
            let mut err = io::stderr().lock();
            let lines: Vec<_> = failure.to_string().lines().map(visible).collect();
            let _ = writeln!(err, "error: {}", lines.join("\n"));
            if let Some(hint) = failure.hint() {
                let _ = writeln!(err, "hint: {}", visible(&hint));
            }
            failure.exit_code()
        }
    }
}

async fn start(cli: Cli) -> Result<(), PluginFailure> {
    match cli.command {
        Command::Completion => {
            io::stdout().write_all(completion::SCRIPT.as_bytes())?;
            return Ok(());
        }
        Command::Complete { words } => {
            let mut command = Cli::command();
            command.build();
            let text = completion::complete(&words, &command).await;
            io::stdout().write_all(text.as_bytes())?;
            return Ok(());
        }
        _ => {}
    }
    let config = cli.to.kubeconfig.load().await?;
    let default = config.default_namespace.clone();
    let server = config.cluster_url.to_string();
    let client = kube::Client::try_from(config).map_err(PluginFailure::Client)?;
    if let Some(rollout) = Rollout::asked_for(&cli.command) {
        return Ok(rollout.run(client, &cli.to.agent_namespace).await?);
    }
    let cluster = Cluster::new(client, &server, &cli.to.agent_namespace).await?;
    show(cli.command, cluster, &default).await
}

async fn show(command: Command, cluster: Cluster, default: &str) -> Result<(), PluginFailure> {
    match command {
        Command::Explain(args) => {
            let PodName { namespace, name } = args.pod_name()?;
            let namespace = namespace.unwrap_or_else(|| default.to_owned());
            // A pod that is deleted may still be known to the node that it was on.
            let node = cluster.node_of(&namespace, &name).await?;
            let pages = pages(cluster, node.as_deref(), None)?;
            let pod = PodName {
                namespace: Some(namespace),
                name,
            };
            finish(&pages, args.run(&pod, &pages).await)
        }
        Command::Pods { mut pods, node } => {
            pods.default_namespace(default);
            let pages = pages(cluster, node.as_deref(), pods.limit())?;
            finish(&pages, commands::pods::run(&pods, &pages).await)
        }
        Command::Calls { node, calls } => {
            let pages = pages(cluster, Some(&node), None)?;
            finish(&pages, commands::calls::run(&calls, &pages).await)
        }
        Command::Capture(args) => args.run(&cluster, default).await,
        Command::Fleet { namespace, top } => {
            let (text, notes) = fleet::view(&cluster, namespace.as_deref(), usize::from(top)).await;
            io::stdout().lock().write_all(text.as_bytes())?;
            notes.iter().for_each(|note| warn(note));
            Ok(())
        }
        // These need no agent, and were run before.
        Command::Status(_)
        | Command::Rollout(_)
        | Command::Completion
        | Command::Complete { .. } => Ok(()),
    }
}

fn pages(
    cluster: Cluster,
    node: Option<&str>,
    limit: Option<usize>,
) -> Result<ClusterPages, ClusterError> {
    let node = node.map(|node| cluster.agent_of(node).cloned());
    Ok(ClusterPages::new(cluster, node.transpose()?, limit))
}

/// Names the nodes that did not answer.
fn finish(pages: &ClusterPages, result: Result<(), PageCommandError>) -> Result<(), PluginFailure> {
    let silent = pages.silent();
    silent.iter().for_each(|node| warn(node));
    match result {
        // The reasons of the nodes were printed above.
        Err(PageCommandError::Page(_)) if !silent.is_empty() => Err(PluginFailure::Silent),
        result => Ok(result?),
    }
}

fn warn(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr().lock(), "warning: {}", visible(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }
}

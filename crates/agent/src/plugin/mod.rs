//! `kubectl criscope`: the commands of criscope for a whole cluster, through the API server.
//!
//! [`cluster`] finds and asks agents; [`pages`] answers the commands of criscope, which draw; [`fleet`] compares the pods of a
//! cluster; [`capture`] makes a capture of a node.

pub mod capture;
pub mod cluster;
pub mod fleet;
pub mod pages;

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand};
use kube::config::{KubeConfigOptions, KubeconfigError};

use self::capture::{CaptureError, CaptureRequest};
use self::cluster::{Cluster, ClusterError};
use self::pages::ClusterPages;
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
    /// The context of the kubeconfig
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of criscope's agents
    #[arg(
        long,
        global = true,
        value_name = "NS",
        default_value = "criscope",
        env = "CRISCOPE_AGENT_NAMESPACE"
    )]
    agent_namespace: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Explain why a pod is slow or will not start
    Explain {
        /// The pod: POD, pod/POD or NAMESPACE/POD
        #[arg(value_name = "POD")]
        pod: String,
        /// The pod's namespace [default: the context's namespace]
        #[arg(long, short, value_name = "NS")]
        namespace: Option<String>,
        /// Only the pod with this uid, of several with the same name
        #[arg(long, value_name = "UID")]
        uid: Option<String>,
        /// Show all episodes in memory, not only the one that matters most
        #[arg(long)]
        all: bool,
        /// Output format, instead of text: json or yaml
        #[arg(long, short, value_name = "FORMAT")]
        output: Option<String>,
    },
    /// List the pods of all nodes with their state, failing pods first
    Pods {
        /// Only pods whose name contains this, or NAMESPACE/NAME
        #[arg(value_name = "NAME")]
        name: Option<String>,
        /// Only pods in this namespace [default: the context's namespace]
        #[arg(long, short, value_name = "NS")]
        namespace: Option<String>,
        /// Pods in all namespaces
        #[arg(long, short = 'A', conflicts_with = "namespace")]
        all_namespaces: bool,
        /// Only pods on this node
        #[arg(long, value_name = "NODE")]
        node: Option<String>,
        /// Only pods in these states, separated by commas: failing, open, crash-loop, failed, starting, stopping, ok, gone
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// Keep the list up to date until Ctrl-C
        #[arg(long, short)]
        watch: bool,
        /// Output format: wide, json or yaml
        #[arg(long, short, value_name = "FORMAT")]
        output: Option<String>,
    },
    /// Show the calls in flight and the rates per method of a node
    Calls {
        /// The node
        #[arg(long, value_name = "NODE")]
        node: String,
        /// Print once
        #[arg(long)]
        once: bool,
    },
    /// Write what a node knows to a file, to explain its pods elsewhere with criscope explain --from FILE
    ///
    /// A privileged pod on the node makes it, which is deleted afterwards: that needs the Role criscope-capturer. The file has no
    /// requests, environments, arguments and credentials; names of pods, images and hosts are in it.
    Capture(CaptureArgs),
    /// Show which nodes, images and causes the failing and slow pods of the cluster share
    Fleet {
        /// Only pods in this namespace [default: all]
        #[arg(long, short, value_name = "NS")]
        namespace: Option<String>,
        /// Show this many of each at most
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
        top: u16,
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
    async fn run(
        &self,
        cluster: &Cluster,
        default: &str,
    ) -> Result<PreparedCommand, PluginFailure> {
        let mut args = Vec::new();
        let mut node_of_pod = None;
        if let Some(pod) = &self.pod {
            let (namespace, name) = parts(pod, self.namespace.as_deref(), default);
            args.extend(["--pod".to_owned(), format!("{namespace}/{name}")]);
            if self.node.is_none() {
                node_of_pod = Some(cluster.node_of(namespace, name).await?);
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
        Ok(PreparedCommand::Text(
            format!("{}\n", file.display()),
            messages,
        ))
    }
}

/// The reason why the plugin failed before a command of criscope could run.
#[derive(Debug, thiserror::Error)]
enum PluginFailure {
    #[error("kubeconfig: {0}")]
    Kubeconfig(#[from] KubeconfigError),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("no node answered")]
    Silent,
}

impl From<kube::Error> for PluginFailure {
    fn from(error: kube::Error) -> Self {
        Self::Cluster(error.into())
    }
}

/// Runs the plugin with these arguments, program name included.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => {
            // Standard error may be closed.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 64 } else { 0 });
        }
    };
    match start(&cli) {
        Ok(code) => code,
        Err(error) => {
            let mut err = io::stderr().lock();
            let _ = writeln!(err, "error: {error}");
            let hint = match &error {
                PluginFailure::Cluster(error) => error.hint(),
                PluginFailure::Capture(error) => error.hint(),
                _ => None,
            };
            if let Some(hint) = hint {
                let _ = writeln!(err, "hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn start(cli: &Cli) -> Result<ExitCode, PluginFailure> {
    // The commands of criscope have a runtime of their own; this one answers them meanwhile.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let dir = tempfile::tempdir()?;
    let socket = dir.path().join("cluster.sock");
    let prepared = runtime.block_on(async {
        let options = KubeConfigOptions {
            context: cli.to.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = match &options.context {
            None => kube::Config::infer()
                .await
                .map_err(kube::Error::InferConfig)?,
            Some(_) => kube::Config::from_kubeconfig(&options).await?,
        };
        let default = config.default_namespace.clone();
        let client = kube::Client::try_from(config)?;
        let cluster = Cluster::new(client, &cli.to.agent_namespace).await?;
        prepare(&cli.command, cluster, &default).await
    })?;
    let (pages, mut line) = match prepared {
        PreparedCommand::Text(text, notes) => {
            io::stdout().lock().write_all(text.as_bytes())?;
            notes.iter().for_each(|note| warn(note));
            return Ok(ExitCode::SUCCESS);
        }
        PreparedCommand::Command(pages, line) => (Arc::new(*pages), line),
    };
    {
        let _entered = runtime.enter();
        pages.serve(&socket)?;
    }
    let mut address = OsString::from("--admin=unix://");
    address.push(&socket);
    line.insert(0, "criscope".into());
    line.insert(2, address);
    let result = criscope::cli::run(line);
    let silent = pages.silent();
    silent.iter().for_each(|node| warn(node));
    match result {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // The reasons of the nodes were printed above.
        Err(criscope::cli::CommandFailure::Ask(_)) if !silent.is_empty() => {
            Err(PluginFailure::Silent)
        }
        Err(failure) => Ok(failure.report()),
    }
}

fn warn(text: &str) {
    // Standard error may be closed.
    let _ = writeln!(io::stderr().lock(), "warning: {text}");
}

enum PreparedCommand {
    /// A command of criscope, and the pages that answer it.
    Command(Box<ClusterPages>, Vec<OsString>),
    /// The output, and warnings.
    Text(String, Vec<String>),
}

async fn prepare(
    command: &Command,
    cluster: Cluster,
    default: &str,
) -> Result<PreparedCommand, PluginFailure> {
    let mut line = CommandLine::default();
    let node = match command {
        Command::Explain {
            pod,
            namespace,
            uid,
            all,
            output,
        } => {
            let (namespace, name) = parts(pod, namespace.as_deref(), default);
            line.add(&["explain", name, "-n", namespace]);
            line.add_option("--uid", uid.as_deref());
            line.add_option("-o", output.as_deref());
            if *all {
                line.add(&["--all"]);
            }
            // A pod that is deleted may still be known to the node that it was on.
            cluster.node_of(namespace, name).await?
        }
        Command::Pods {
            name,
            namespace,
            all_namespaces,
            node,
            state,
            watch,
            output,
        } => {
            line.add(&["pods"]);
            let is_path = name.as_ref().is_some_and(|name| name.contains('/'));
            match namespace {
                Some(namespace) => line.add(&["-n", namespace]),
                None if !*all_namespaces && !is_path => line.add(&["-n", default]),
                None => {}
            }
            line.add_option("--state", state.as_deref());
            line.add_option("-o", output.as_deref());
            if *watch {
                line.add(&["--watch"]);
            }
            if let Some(name) = name {
                line.add(&["--", name]);
            }
            node.clone()
        }
        Command::Calls { node, once } => {
            line.add(&["calls"]);
            if *once {
                line.add(&["--once"]);
            }
            Some(node.clone())
        }
        Command::Capture(args) => return args.run(&cluster, default).await,
        Command::Fleet { namespace, top } => {
            let (text, notes) =
                fleet::view(&cluster, namespace.as_deref(), usize::from(*top)).await;
            return Ok(PreparedCommand::Text(text, notes));
        }
    };
    let node = node
        .map(|node| cluster.agent_of(&node).cloned())
        .transpose()?;
    Ok(PreparedCommand::Command(
        Box::new(ClusterPages::new(cluster, node)),
        line.0,
    ))
}

/// The arguments of a command of criscope.
#[derive(Default)]
struct CommandLine(Vec<OsString>);

impl CommandLine {
    fn add(&mut self, words: &[&str]) {
        self.0.extend(words.iter().map(OsString::from));
    }

    fn add_option(&mut self, name: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(&[name, value]);
        }
    }
}

/// Namespace and name of `POD`, `pod/POD` or `NAMESPACE/POD`.
fn parts<'a>(pod: &'a str, namespace: Option<&'a str>, default: &'a str) -> (&'a str, &'a str) {
    match pod.split_once('/') {
        Some(("pod" | "pods" | "po", name)) => (namespace.unwrap_or(default), name),
        Some((own, name)) => (namespace.unwrap_or(own), name),
        None => (namespace.unwrap_or(default), pod),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn pods_are_named_as_in_kubectl() {
        assert_eq!(parts("web", None, "shop"), ("shop", "web"));
        assert_eq!(parts("pod/web", Some("a"), "shop"), ("a", "web"));
        assert_eq!(parts("a/web", None, "shop"), ("a", "web"));
        assert_eq!(parts("web", Some("a"), "shop"), ("a", "web"));
    }
}

//! `criscope install` and `criscope uninstall`

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};

use super::CommandFailure;
use crate::client;
use crate::cri::visible::visible;
use crate::install::{
    self, FilesystemRoot, InstallError, InstallMode, InstallOptions, InstallPlan, Installer,
    LocalNode, PlanError, RecoveryOutcome, RemovalPlan,
};

/// Put criscope between this node's kubelet and its runtime, or in the runtime's place
///
/// Finds how the kubelet is configured (a unit of its own, kubeadm, K3s, RKE2, MicroK8s), writes units and configuration,
/// starts criscope, points the kubelet at it, restarts the kubelet, and waits until the node is healthy. If it is not, every
/// change is rolled back. Running pods are not affected. An interrupted installation is undone at the next boot.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Run pods with the built-in runtime instead of the one that the kubelet uses
    #[arg(long, conflicts_with_all = ["take_over", "upstream"])]
    runtime: bool,
    /// Listen on the path of the runtime's socket and move the runtime, for a kubelet whose endpoint cannot be changed
    #[arg(long, conflicts_with = "upstream")]
    take_over: bool,
    /// The runtime's socket, if the kubelet uses another one
    #[arg(long, value_name = "URI", value_parser = socket)]
    upstream: Option<PathBuf>,
    /// The kubelet's unit, if it is not found automatically
    #[arg(long, value_name = "UNIT")]
    kubelet_unit: Option<String>,
    /// The name of the cluster, for spans, metrics and log lines that are exported (k8s.cluster.name)
    #[arg(long, value_name = "NAME", value_parser = name)]
    cluster: Option<String>,
    /// Serve criscope-agent, which runs in a pod: adds the drop-in file 50-agent.toml with admin.agent_socket
    #[arg(long)]
    agent: bool,
    /// Whether the kubelet's calls reach the runtime while criscope cannot serve [default: true, or as it was installed before]
    #[arg(long, value_name = "BOOL", conflicts_with = "runtime")]
    bypass: Option<bool>,
    /// Print every change as a diff, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// How long criscope and the kubelet may each take to become healthy
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = crate::pages::commands::duration)]
    timeout: Duration,
    /// Undo or finish an interrupted installation, without starting anything: at boot, before kubelet and runtime
    #[arg(long, hide = true)]
    recover: bool,
}

/// Restore this node's configuration as it was before `criscope install`
///
/// Restores every file byte for byte. In a file that was edited since, only the endpoint changes back. Running pods are not
/// affected.
#[derive(Debug, clap::Args)]
pub(super) struct UninstallArgs {
    /// Print every change as a diff, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// How long the kubelet may take to become healthy
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = crate::pages::commands::duration)]
    timeout: Duration,
}

/// Why an installation fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no plan.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The plan failed.
    #[error(transparent)]
    Run(#[from] InstallError),
    /// Files of the system are changed.
    #[error("this needs root")]
    NotRoot,
    /// `criscope install` needs systemd.
    #[error("systemd does not run on this node")]
    NoSystemd,
}

impl Error {
    /// A recommendation for the user.
    pub(super) fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Plan(error) => error.hint(),
            Self::Run(error) => error.hint(),
            Self::NotRoot => None,
            Self::NoSystemd => {
                Some("run `criscope serve` under your own service manager; docs/INSTALL.md")
            }
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    if install::is_name(text) {
        Ok(text.to_owned())
    } else {
        Err("expected letters, digits, '-', '_' and '.'".to_owned())
    }
}

fn socket(text: &str) -> Result<PathBuf, String> {
    client::socket_path(text).map_err(|error| error.to_string())
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let root = FilesystemRoot::default();
    let machine = machine(args.dry_run)?;
    let installer = Installer {
        root: &root,
        machine: &machine,
        patience: args.timeout,
        say: &say,
    };
    let lock = if args.dry_run {
        None
    } else {
        Some(installer.lock().map_err(Error::from)?)
    };
    if lock.is_some() {
        tell(installer.recover(args.recover).map_err(Error::from)?);
    }
    if args.recover {
        return Ok(());
    }
    let options = InstallOptions {
        mode: match (args.runtime, args.take_over) {
            (true, _) => InstallMode::Runtime,
            (false, true) => InstallMode::TakeOver,
            (false, false) => InstallMode::Front,
        },
        upstream: args.upstream.clone(),
        unit: args.kubelet_unit.clone(),
        cluster: args.cluster.clone(),
        agent: args.agent,
        bypass: args.bypass,
        program: std::env::current_exe()?,
    };
    let plan = InstallPlan::make(&root, &machine, &options).map_err(Error::from)?;
    if args.dry_run {
        return print(&plan.show(&root)?);
    }
    for found in &plan.found {
        say(found);
    }
    if plan.is_empty() {
        say("installed already: nothing changes");
        return Ok(());
    }
    installer.install(&plan).map_err(Error::from)?;
    for note in &plan.notes {
        say(&format!("note: {note}"));
    }
    say("installed; `criscope doctor` checks the node, `criscope uninstall` restores it");
    Ok(())
}

pub(super) fn uninstall(args: &UninstallArgs) -> Result<(), CommandFailure> {
    let root = FilesystemRoot::default();
    let machine = machine(args.dry_run)?;
    let installer = Installer {
        root: &root,
        machine: &machine,
        patience: args.timeout,
        say: &say,
    };
    if args.dry_run {
        let removal = RemovalPlan::make(&root).map_err(Error::from)?;
        return print(&removal.show(&root)?);
    }
    let _lock = installer.lock().map_err(Error::from)?;
    let recovered = installer.recover(false).map_err(Error::from)?;
    tell(recovered);
    if matches!(
        recovered,
        RecoveryOutcome::Removed | RecoveryOutcome::Undone
    ) && matches!(RemovalPlan::make(&root), Err(InstallError::NotInstalled))
    {
        return Ok(());
    }
    let removal = RemovalPlan::make(&root).map_err(Error::from)?;
    installer.uninstall(&removal).map_err(Error::from)?;
    for note in &removal.notes {
        say(&format!("note: {note}"));
    }
    say("uninstalled; the node is as it was before criscope");
    Ok(())
}

fn tell(recovered: RecoveryOutcome) {
    match recovered {
        RecoveryOutcome::Nothing => {}
        RecoveryOutcome::Completed => say("an earlier installation was complete"),
        RecoveryOutcome::Undone => say("an interrupted installation was undone"),
        RecoveryOutcome::Removed => say("an interrupted uninstallation was finished"),
    }
}

/// The node; SIGINT and SIGTERM end an installation by taking it back.
fn machine(dry_run: bool) -> Result<LocalNode, CommandFailure> {
    if !std::path::Path::new("/run/systemd/system").is_dir() {
        return Err(Error::NoSystemd.into());
    }
    if dry_run {
        return Ok(LocalNode::default());
    }
    if !nix::unistd::geteuid().is_root() {
        return Err(Error::NotRoot.into());
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&interrupted);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::spawn(move || {
        runtime.block_on(async {
            let signals = [
                SignalKind::interrupt(),
                SignalKind::terminate(),
                SignalKind::hangup(),
            ];
            let [Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)] = signals.map(signal) else {
                return;
            };
            loop {
                tokio::select! {
                    _ = interrupt.recv() => flag.store(true, Ordering::Relaxed),
                    _ = terminate.recv() => flag.store(true, Ordering::Relaxed),
                    // A lost connection to the terminal is no reason to stop half way.
                    _ = hangup.recv() => {}
                }
            }
        });
    });
    Ok(LocalNode::new(interrupted))
}

fn say(text: &str) {
    // Standard error may be closed; the installation goes on.
    let _ = writeln!(anstream::stderr(), "{}", visible(text));
}

fn print(text: &str) -> Result<(), CommandFailure> {
    let lines = text.lines().map(|line| format!("{}\n", visible(line)));
    Ok(io::stdout()
        .lock()
        .write_all(lines.collect::<String>().as_bytes())?)
}

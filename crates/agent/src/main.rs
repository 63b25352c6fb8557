//! The `criscope-agent` command.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser;
use criscope_agent::{agent, capture, check, install, rollout};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

/// Connects criscope on this node to its Kubernetes cluster
#[derive(Debug, Parser)]
#[command(name = "criscope-agent", version, max_term_width = 100)]
enum Command {
    Serve(agent::Args),
    Install(install::Args),
    Check(check::Args),
    UninstallCluster(rollout::removal::Args),
    /// Do nothing until SIGTERM: the container that stays when the installer of its pod is done
    Hold,
    #[command(hide = true)]
    Enter(install::EnterArgs),
    #[command(hide = true)]
    Capture(capture::Args),
}

fn main() -> ExitCode {
    let command = Command::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    let result = match &command {
        // `enter` needs a process with a single thread.
        Command::Enter(what) => install::enter(what).map_err(Into::into),
        Command::Capture(args) => capture::run(args).map_err(Into::into),
        Command::Serve(args) => serve(args).map_err(Into::into),
        Command::Install(args) => install(args),
        Command::Check(args) => check(args).map_err(Into::into),
        Command::UninstallCluster(args) => uninstall_cluster(args),
        Command::Hold => hold().map_err(Into::into),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The installer, or a person who has run `helm uninstall`, reads this line.
        Err(error) if matches!(command, Command::Enter(_) | Command::UninstallCluster(_)) => {
            let _ = writeln!(io::stderr(), "error: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            tracing::error!(event = "agent.failed", %error, "the agent ends");
            ExitCode::FAILURE
        }
    }
}

// One thread: a few requests a second.
#[tokio::main(flavor = "current_thread")]
async fn serve(args: &agent::Args) -> Result<(), agent::AgentError> {
    let client = kube::Client::try_default().await?;
    let stop = terminated()?;
    agent::run(args, client, stop).await
}

/// Resolves at SIGTERM or SIGINT.
fn terminated() -> io::Result<impl Future<Output = ()>> {
    let mut term = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

#[tokio::main(flavor = "current_thread")]
async fn hold() -> io::Result<()> {
    terminated()?.await;
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn check(args: &check::Args) -> Result<(), check::CheckError> {
    check::run(args).await
}

#[tokio::main(flavor = "current_thread")]
async fn install(args: &install::Args) -> Result<(), Box<dyn std::error::Error>> {
    let client = kube::Client::try_default().await?;
    Ok(install::run(args, client, terminated()?).await?)
}

#[tokio::main(flavor = "current_thread")]
async fn uninstall_cluster(
    args: &rollout::removal::Args,
) -> Result<(), Box<dyn std::error::Error>> {
    let client = kube::Client::try_default().await?;
    Ok(rollout::removal::run(args, client).await?)
}

//! `criscope-agent install`: puts criscope on the node of this pod, one node of the cluster at a time.
//!
//! Kubernetes creates the first pods of a DaemonSet all at once. So installers take turns by a Lease, which names the current
//! node. A healthy node releases the Lease. An unhealthy node keeps it, which stops the rollout.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use criscope::install::AGENT_SOCKET;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, PostParams};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::time::{Instant, sleep};

use crate::daemon::{DaemonAddress, DaemonClient};

/// The Lease, which the manifests create.
const INSTALL_LEASE: &str = "criscope-install";

/// Time between two reads of the Lease.
const LEASE_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// How long the daemon must be ready without interruption.
const READY_FOR: Duration = Duration::from_secs(10);

/// How long the daemon may take to become ready.
const READY_TIMEOUT: Duration = Duration::from_secs(120);

/// Directory of the programs on the node.
const PROGRAM_DIR: &str = "/usr/local/bin";

/// The programs, `criscope` first.
const PROGRAMS: [&str; 2] = ["criscope", "criscope-shim"];

/// Install criscope on the node of this pod, when it is this node's turn
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// The name of this node
    #[arg(long, value_name = "NAME", env = "NODE_NAME")]
    node: String,
    /// Namespace of the Lease
    #[arg(long, value_name = "NS", env = "CRISCOPE_AGENT_NAMESPACE")]
    namespace: String,
    /// admin.agent_socket of the daemon as unix:///path, or its admin.listen
    #[arg(long, value_name = "ADDR", default_value = AGENT_SOCKET)]
    daemon: DaemonAddress,
    #[command(flatten)]
    what: EnterArgs,
}

/// Copy the programs to the node and run one of them there: the part that happens in the node's mount namespace
#[derive(Clone, Debug, clap::Args)]
pub struct EnterArgs {
    /// Restore the node as it was, instead
    #[arg(long)]
    uninstall: bool,
    /// Directory of the programs in the image
    #[arg(long, value_name = "DIR", default_value = "/usr/bin")]
    from: PathBuf,
    /// A process in the mount namespace of the node
    #[arg(long, value_name = "PID", default_value_t = 1)]
    pid: u32,
    /// Further arguments of criscope install
    #[arg(last = true, value_name = "ARGUMENT")]
    more: Vec<String>,
}

/// The reason why the installation failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InstallError {
    /// The Lease cannot be used.
    #[error("lease {INSTALL_LEASE}: {0}")]
    Lease(#[from] kube::Error),
    /// The namespace of the node cannot be entered, or a program not be written or started.
    #[error("{0}: {1}")]
    Node(String, io::Error),
    /// `criscope install` failed. It has printed the reason and restored the node.
    #[error(
        "criscope on the node ended with {0}; no other node is touched until this one is healthy"
    )]
    Command(ExitStatus),
    /// The daemon is not ready.
    #[error("criscope is not ready on this node after {} s; no other node is touched until it is", READY_TIMEOUT.as_secs())]
    Unready,
}

/// Waits for the turn of this node, installs, waits until the daemon is ready, and ends the turn.
///
/// # Errors
/// If a step fails. The node then keeps its turn.
pub async fn run(args: &Args, client: kube::Client) -> Result<(), InstallError> {
    let leases = Api::<Lease>::namespaced(client, &args.namespace);
    acquire(&leases, &args.node).await?;
    tracing::info!(
        event = "agent.install",
        node = args.node,
        "this node's turn"
    );
    let status = command(&args.what).map_err(named("/proc/self/exe"))?;
    if !status.success() {
        return Err(InstallError::Command(status));
    }
    if !args.what.uninstall {
        ready(DaemonClient::new(args.daemon.clone())).await?;
    }
    release(&leases, &args.node).await?;
    tracing::info!(event = "agent.install", node = args.node, "done");
    Ok(())
}

/// Runs a process of one thread, since entering a mount namespace requires one.
fn command(what: &EnterArgs) -> io::Result<ExitStatus> {
    let mut command = Command::new("/proc/self/exe");
    command.arg("enter").arg("--from").arg(&what.from);
    command.arg("--pid").arg(what.pid.to_string());
    if what.uninstall {
        command.arg("--uninstall");
    }
    command.arg("--").args(&what.more).status()
}

/// Enters the node and executes the program there. Returns only with an error, or if there is nothing to uninstall.
///
/// # Errors
/// If the namespace cannot be entered, or a program not be written or started. Call it in a process of one thread.
pub fn enter(what: &EnterArgs) -> Result<(), InstallError> {
    // The programs are read first: the image is not visible from the node.
    let programs = PROGRAMS.map(|name| (name, fs::read(what.from.join(name))));
    let path = format!("/proc/{}/ns/mnt", what.pid);
    let namespace = File::open(&path).map_err(named(&path))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Mount))
        .map_err(|error| InstallError::Node(path, error.into()))?;
    let program = Path::new(PROGRAM_DIR).join(PROGRAMS[0]);
    // The agent of this node reads a socket of the daemon.
    let verb: &[&str] = if what.uninstall {
        &["uninstall"]
    } else {
        &["install", "--agent"]
    };
    if what.uninstall {
        if !program.exists() {
            return Ok(());
        }
    } else {
        for (name, bytes) in programs {
            let path = Path::new(PROGRAM_DIR).join(name);
            bytes
                .and_then(|bytes| place(&path, &bytes))
                .map_err(named(name))?;
        }
    }
    let failed = Command::new(&program).args(verb).args(&what.more).exec();
    Err(InstallError::Node(program.display().to_string(), failed))
}

/// Writes a program atomically, unless the node has it already.
fn place(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut there = Vec::new();
    let found = File::open(path).and_then(|mut file| file.read_to_end(&mut there));
    if found.is_ok() && there == bytes {
        return Ok(());
    }
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o755)
        .open(&new)?;
    file.write_all(bytes)?;
    // A file that an earlier attempt has left may have another mode.
    file.set_permissions(fs::Permissions::from_mode(0o755))?;
    file.sync_all()?;
    fs::rename(&new, path)
}

fn named(what: &str) -> impl FnOnce(io::Error) -> InstallError {
    let what = what.to_owned();
    move |error| InstallError::Node(what, error)
}

async fn ready(daemon: DaemonClient) -> Result<(), InstallError> {
    let end = Instant::now() + READY_TIMEOUT;
    let mut since = None;
    loop {
        let page = daemon.get("/readyz", None).await;
        let is_ready = page.is_ok_and(|page| page.status == http::StatusCode::OK);
        let now = Instant::now();
        since = is_ready.then(|| since.unwrap_or(now));
        if since.is_some_and(|since| now - since >= READY_FOR) {
            return Ok(());
        }
        if now >= end {
            return Err(InstallError::Unready);
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Waits until no other node holds the Lease, and writes this node's name into it.
async fn acquire(leases: &Api<Lease>, node: &str) -> Result<(), InstallError> {
    let mut waited_for = None;
    loop {
        let mut lease = leases.get(INSTALL_LEASE).await?;
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        let holder = spec.holder_identity.clone().unwrap_or_default();
        if holder == node {
            return Ok(());
        }
        if holder.is_empty() {
            spec.holder_identity = Some(node.to_owned());
            spec.acquire_time = Some(MicroTime(Timestamp::now()));
            match leases
                .replace(INSTALL_LEASE, &PostParams::default(), &lease)
                .await
            {
                Ok(_) => return Ok(()),
                // Another node was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
        if waited_for.as_ref() != Some(&holder) {
            tracing::info!(
                event = "agent.install",
                holder,
                "waiting: another node is worked on. If it is gone, or to go on without it, clear holderIdentity of the lease"
            );
            waited_for = Some(holder);
        }
        sleep(LEASE_POLL_INTERVAL).await;
    }
}

async fn release(leases: &Api<Lease>, node: &str) -> Result<(), InstallError> {
    let mut lease = leases.get(INSTALL_LEASE).await?;
    let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
    if spec.holder_identity.as_deref() == Some(node) {
        spec.holder_identity = None;
        spec.acquire_time = None;
        leases
            .replace(INSTALL_LEASE, &PostParams::default(), &lease)
            .await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_replaced_whole_or_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("criscope");
        place(&path, b"one").expect("placed");
        let first = fs::metadata(&path)
            .expect("there")
            .modified()
            .expect("a time");
        place(&path, b"one").expect("the same");
        assert_eq!(
            first,
            fs::metadata(&path)
                .expect("there")
                .modified()
                .expect("a time")
        );
        place(&path, b"two").expect("replaced");
        assert_eq!(fs::read(&path).expect("read"), b"two");
        let mode = fs::metadata(&path).expect("there").permissions().mode();
        assert_eq!(
            (
                mode & 0o777,
                fs::read_dir(dir.path()).expect("read").count()
            ),
            (0o755, 1)
        );
    }
}

//! `criscope-agent check`: the readiness of the installer's pod, which decides whether the rollout goes on to the next node.

use std::io::ErrorKind;

use criscope::install::AGENT_SOCKET;
use http::StatusCode;

use crate::daemon::{DaemonAddress, DaemonClient, DaemonError};

/// Say by the exit code whether criscope on this node is as expected
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// admin.agent_socket of the daemon as unix:///path, or its admin.listen
    #[arg(long, value_name = "ADDR", default_value = AGENT_SOCKET)]
    pub daemon: DaemonAddress,
    /// The expected state
    #[arg(long, value_enum)]
    pub expect: Expectation,
}

/// The expected state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Expectation {
    /// criscope and its runtimes are ready
    Ready,
    /// criscope does not run
    Absent,
}

impl Expectation {
    /// The option of the expected state in the command of a probe.
    pub(crate) const OPTION: &str = "--expect=";
}

/// The difference from the expected state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckError {
    /// criscope does not answer.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// A runtime behind criscope does not answer.
    #[error("criscope is not ready ({0})")]
    Unready(StatusCode),
    /// criscope should be gone.
    #[error("criscope still runs on this node")]
    Running,
}

/// Asks the daemon once.
///
/// # Errors
/// If the node is not as expected.
pub async fn run(args: &Args) -> Result<(), CheckError> {
    let page = DaemonClient::new(args.daemon.clone())
        .get("/readyz", None)
        .await;
    match (args.expect, page) {
        (Expectation::Ready, Ok(page)) if page.status == StatusCode::OK => Ok(()),
        (Expectation::Ready, Ok(page)) => Err(CheckError::Unready(page.status)),
        (Expectation::Absent, Ok(_)) => Err(CheckError::Running),
        (Expectation::Absent, Err(error)) if is_absent(&error) => Ok(()),
        (_, Err(error)) => Err(error.into()),
    }
}

/// Returns whether no process listens. A daemon that hangs or refuses this user is not absent.
fn is_absent(error: &DaemonError) -> bool {
    let DaemonError::Connect(_, error) = error else {
        return false;
    };
    matches!(
        error.kind(),
        ErrorKind::NotFound | ErrorKind::ConnectionRefused
    )
}

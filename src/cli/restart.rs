//! `criscope restart`: restarts the service when that breaks nothing off.

use std::thread::sleep;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::CommandFailure;
use super::ask::{AdminEndpoint, AdminEndpointArgs, block_on};
use super::in_progress::{OpenSession, WorkInProgress};
use super::output;
use crate::install::{LocalNode, NodeOperations, hands_over};
use crate::lifecycle::tables::RpcTable;
use crate::pages::source::{PageError, PageSource as _};

/// Interval of looks at the running criscope.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);

/// Number of looks in a row that must find nothing in progress: calls of one pod follow each other closely.
const MIN_QUIET_LOOKS: u32 = 4;

const FRONT_PAGE: &str = "/?format=json";

/// Restart criscope, if wanted when no calls and sessions are in progress
///
/// Restarts the systemd unit. With criscope-handover.service the old process finishes its calls and sessions while the new one serves. Otherwise calls that
/// take longer than server.drain_timeout and all sessions of exec, attach and port-forward are broken off; `criscope status` says which are in
/// progress. Running pods are not affected.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminEndpointArgs,
    /// Wait until nothing is in progress that a restart would break off
    #[arg(long)]
    when_quiet: bool,
    /// How long to wait; then nothing is restarted, and the exit code is 1
    #[arg(long, value_name = "TIME", default_value = "10m", requires = "when_quiet", value_parser = crate::pages::commands::duration)]
    timeout: Duration,
    /// The unit of criscope
    #[arg(long, value_name = "UNIT", default_value = "criscope.service")]
    unit: String,
}

/// Why criscope is not restarted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something was in progress all the time.
    #[error("not restarted: after {} s {work}", timeout.as_secs())]
    Busy {
        /// How long it was waited for.
        timeout: Duration,
        /// What was in progress at the end.
        work: String,
    },
    /// systemd refused.
    #[error("systemctl restart {unit}: {reason}")]
    Systemctl {
        /// The unit.
        unit: String,
        /// What systemctl said.
        reason: String,
    },
}

/// The part of the front page that is needed.
#[derive(Debug, Default, Deserialize)]
struct ActivityState {
    #[serde(default)]
    methods: RpcTable,
    #[serde(default)]
    sessions: Vec<OpenSession>,
    #[serde(default)]
    backends: Vec<BackendActivity>,
}

#[derive(Debug, Default, Deserialize)]
struct BackendActivity {
    #[serde(default)]
    kept_calls: u64,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    let node = LocalNode::default();
    if args.when_quiet {
        wait(&endpoint, args.timeout)?;
    } else if let Ok(work) = block_on(look(&endpoint))?
        && !work.is_empty()
    {
        output::hint(if hands_over(&node) {
            format!("{work}, and go on in the old process")
        } else {
            format!("{work}; `--when-quiet` waits for the end")
        });
    }
    node.systemctl(&["restart", &args.unit])
        .map_err(|reason| Error::Systemctl {
            unit: args.unit.clone(),
            reason,
        })?;
    output::hint(format!("{} was restarted", args.unit));
    Ok(())
}

async fn look(
    endpoint: &AdminEndpoint,
) -> Result<Result<WorkInProgress, PageError>, CommandFailure> {
    let page = endpoint.json::<ActivityState>(FRONT_PAGE).await;
    Ok(page.map(|page| {
        let kept = page.backends.iter().map(|backend| backend.kept_calls);
        WorkInProgress::new(&page.methods, &page.sessions, kept.sum())
    }))
}

/// Waits until nothing is in progress, and prints the remaining work whenever it changes.
fn wait(endpoint: &AdminEndpoint, timeout: Duration) -> Result<(), CommandFailure> {
    let end = Instant::now() + timeout;
    let (mut quiet, mut before) = (0, WorkInProgress::default());
    loop {
        let work = match block_on(look(endpoint))? {
            Ok(work) => work,
            // There is nothing to wait for in a criscope that does not run.
            Err(PageError::Connect { .. }) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        quiet = if work.is_empty() { quiet + 1 } else { 0 };
        if quiet >= MIN_QUIET_LOOKS {
            return Ok(());
        }
        if work != before && !work.is_empty() {
            output::hint(&work);
        }
        if Instant::now() >= end {
            let work = work.to_string();
            return Err(Error::Busy { timeout, work }.into());
        }
        before = work;
        sleep(LOOK_INTERVAL);
    }
}

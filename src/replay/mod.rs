//! Plays the recorded calls of a capture against another runtime, and compares codes and times (`docs/adr/0048`).
//!
//! `plan` decides which calls are played and which earlier calls they wait for; `play` sends them, with the target's ids (`wire`) and with directories
//! and a cgroup of its own in place of the node's (`stand_ins`); `report` compares.

mod plan;
mod play;
pub mod report;
mod stand_ins;
mod target;
mod wire;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use self::play::CallPlayer;
pub use self::report::ReplayReport;
use self::stand_ins::StandInObjects;
use crate::client::{self, ClientError};
use crate::lifecycle::capture::requests::RecordedCall;

/// Time limit for connecting to the target.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How calls are played.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// How many times as fast as recorded.
    pub speed: f64,
    /// True if pods stay on the target.
    pub keep: bool,
    /// True if volumes are mounted from their recorded paths.
    pub keeps_mounts: bool,
    /// The parent cgroup of the pods, instead of one of criscope's own.
    pub cgroup_parent: Option<String>,
}

/// Why nothing was played.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The target cannot be reached.
    #[error(transparent)]
    Target(#[from] ClientError),
    /// No directory for logs and volumes.
    #[error("directory for logs and volumes: {0}")]
    StandIns(#[from] io::Error),
}

/// Plays calls, sorted by their beginning, against the runtime at `target`, until `stop`.
///
/// # Errors
/// If the target cannot be reached.
pub async fn run(
    calls: Vec<RecordedCall>,
    target: &Path,
    options: &ReplayOptions,
    stop: &CancellationToken,
) -> Result<ReplayReport, Error> {
    let channel = client::connect(target, CONNECT_TIMEOUT).await?;
    let stand_ins = StandInObjects::new(options.cgroup_parent.clone(), options.keeps_mounts)?;
    let steps = Arc::new(plan::plan(calls));
    let player = Arc::new(CallPlayer::new(channel, stand_ins));
    let played = player.play(&steps, options.speed, stop).await;
    let left = if options.keep {
        Vec::new()
    } else {
        player.clean_up().await
    };
    Ok(ReplayReport::new(&steps, &played, left))
}

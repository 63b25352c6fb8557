//! `criscope pods`: the pods of this node, failing pods first.

use super::CommandFailure;
use super::ask::{StateSourceArgs, block_on};
use crate::pages::commands::pods::{self, PodsArgs, STATES_HELP};

/// List pods with their state, failing pods first, deleted pods last
///
/// One row per pod: retries, restarts and a crash loop are one row. Deleted pods come last, as "gone".
/// Times of pods that are failing, starting or stopping count from the beginning of that state. The column REASON is the first
/// line of criscope explain. A pod appears with its first call that passes this criscope; pods that were up before come from the runtime's
/// own list.
#[derive(Debug, clap::Args)]
#[command(after_help = STATES_HELP)]
pub(super) struct Args {
    #[command(flatten)]
    pods: PodsArgs,
    #[command(flatten)]
    admin: StateSourceArgs,
    /// Print the episodes as JSON, like /debug/pods
    #[arg(long, hide = true, conflicts_with_all = ["output", "watch", "sort_by"])]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    block_on(async {
        if args.json {
            return Ok(pods::print_episodes(&args.pods, &endpoint).await?);
        }
        Ok(pods::run(&args.pods, &endpoint).await?)
    })
}

//! `criscope calls`: calls in flight and rates, like top.

use super::CommandFailure;
use super::ask::{StateSourceArgs, block_on};
use crate::pages::commands::calls::{self, CallsArgs};

/// Show calls in flight, open sessions and rates per method, like top
///
/// kubectl exec, attach and port-forward open sessions. Their calls have ended already: a call only fetches the session's URL.
/// Reads from the running criscope. On a terminal it runs until Ctrl-C; otherwise it prints once.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    calls: CallsArgs,
    #[command(flatten)]
    admin: StateSourceArgs,
    /// Short for -o json
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let endpoint = args.admin.endpoint()?;
    block_on(async {
        if args.json {
            return Ok(calls::print_page(&endpoint).await?);
        }
        Ok(calls::run(&args.calls, &endpoint).await?)
    })
}

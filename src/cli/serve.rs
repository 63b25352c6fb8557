//! `criscope serve`

use super::{ConfigArgs, Failure};
use crate::app;

/// Listen for the kubelet and pass its calls on to the runtime
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    Ok(app::serve(args.config.load()?)?)
}

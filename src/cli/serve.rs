//! `criscope serve`

use super::{CommandFailure, ConfigSourceArgs};
use crate::app;

/// Run pods for the kubelet, or forward its calls to another runtime
///
/// Without --upstream, and without a backend in --config, criscope is the container runtime itself: it needs runc or crun,
/// CNI plugins and a network in /etc/cni/net.d, and criscope-shim in its own directory. With --upstream it is a proxy in front
/// of the runtime at that socket. `criscope doctor` with the same arguments reports missing parts.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigSourceArgs,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    Ok(app::serve(args.config.load()?)?)
}

//! `criscope serve`

use std::io::{self, IsTerminal as _};
use std::path::Path;

use super::{CommandFailure, ConfigSourceArgs, DEFAULT_CONFIG_FILE, output};
use crate::app;

/// Run pods for the kubelet, or forward its calls to another runtime
///
/// Without --upstream, and without a backend in --config, criscope is the container runtime itself: it needs runc or crun,
/// CNI plugins and a network in /etc/cni/net.d, and criscope-shim in its own directory. With --upstream it is a proxy in front
/// of the runtime at that socket. Without --config and --upstream it reads /etc/criscope/criscope.toml, if that exists. `criscope doctor` with the same arguments reports missing parts.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigSourceArgs,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    let config = args
        .config
        .or_usual(Path::new(DEFAULT_CONFIG_FILE))
        .load()?;
    if let (true, Some(address)) = (io::stderr().is_terminal(), config.config.admin.listen) {
        output::hint(format!("its pages: http://{address}/"));
    }
    Ok(app::serve(config)?)
}

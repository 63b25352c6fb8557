//! The plugin `kubectl criscope`: kubectl finds programs of this name on the path.

use std::env;
use std::process::ExitCode;

fn main() -> ExitCode {
    criscope_agent::plugin::run(env::args_os())
}

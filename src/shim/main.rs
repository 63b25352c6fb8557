//! The `criscope-shim` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    criscope::shim::main()
}

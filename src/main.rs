//! The `criscope` command.

use std::env;
use std::process::ExitCode;

use criscope::cli;

fn main() -> ExitCode {
    match cli::run(env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

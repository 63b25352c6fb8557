//! The `criscope` command.

use std::env;
use std::process::ExitCode;

use criscope::{cli, version};

/// The commit of this build: set by a packager, else from git's reflog of HEAD, which `build.rs` finds. rustc records both
/// as inputs of this file, so that a new commit recompiles it and not the library.
const COMMIT: &str = match option_env!("CRISCOPE_COMMIT") {
    Some(commit) => commit,
    None => version::head(include_bytes!(env!("CRISCOPE_HEAD_LOG"))),
};

fn main() -> ExitCode {
    version::set_commit(COMMIT);
    match cli::run(env::args_os()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

//! Temporary: only what is needed to run `smoke`.

use std::process::ExitCode;

fn main() -> ExitCode {
    match criscope::cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("criscope: {error}");
            ExitCode::FAILURE
        }
    }
}

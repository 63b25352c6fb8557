//! Temporary: only what is needed to run `smoke`.

use std::process::ExitCode;

use clap::Parser;
use criscope::cli::smoke;

#[derive(Parser)]
enum Command {
    Smoke(smoke::Args),
}

fn main() -> ExitCode {
    let Command::Smoke(args) = Command::parse();
    match smoke::run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("criscope: {error}");
            ExitCode::FAILURE
        }
    }
}

//! Temporary: the commands that are there so far.

mod smoke;

use clap::Parser;

pub use self::smoke::Error;

#[derive(Parser)]
enum Command {
    Smoke(smoke::Args),
}

/// Does what the arguments of the process say.
pub fn run() -> Result<(), Error> {
    let Command::Smoke(args) = Command::parse();
    smoke::run(args)
}

//! `criscope completions`

use std::io::{self, Write};

use clap::CommandFactory;
use clap_complete::Shell;

use super::{CommandFailure, CommandLine};

/// Print a completion script for a shell
///
/// bash: criscope completions bash > /etc/bash_completion.d/criscope. zsh: a file _criscope in a directory of $fpath. fish:
/// /etc/fish/completions/criscope.fish.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    Ok(io::stdout().lock().write_all(&script(args.shell))?)
}

/// Generated in memory: the generator panics on write errors.
fn script(shell: Shell) -> Vec<u8> {
    let mut command = CommandLine::command();
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    script
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn every_shell_learns_the_subcommands() {
        for shell in Shell::value_variants() {
            let script = String::from_utf8(script(*shell)).expect("text");
            for word in [
                "serve",
                "check-config",
                "doctor",
                "explain",
                "pods",
                "upstream",
            ] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}

//! `criscope man`

use std::fs;
use std::path::PathBuf;

use clap::CommandFactory;

use super::{CommandFailure, CommandLine};

/// Write the manual pages into a directory
///
/// One page per command, in section 1; packages contain them: man criscope, man criscope-explain.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The directory; it is created
    dir: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<(), CommandFailure> {
    fs::create_dir_all(&args.dir)?;
    Ok(clap_mangen::generate_to(CommandLine::command(), &args.dir)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page() {
        let dir = tempfile::tempdir().expect("a directory");
        run(&Args {
            dir: dir.path().join("man1"),
        })
        .expect("written");
        let read = |name: &str| fs::read_to_string(dir.path().join("man1").join(name));
        let main = read("criscope.1").expect("a page");
        assert!(main.contains(".TH criscope 1"), "{main}");
        assert!(main.contains("criscope\\-explain(1)"), "{main}");
        let serve = read("criscope-serve.1").expect("a page");
        for word in ["\\-\\-upstream", "fBcriscope serve"] {
            assert!(serve.contains(word), "{word}: {serve}");
        }
        // a command of a command, and none for hidden ones
        assert!(read("criscope-fault-add.1").is_ok());
        assert!(read("criscope-man.1").is_err());
        assert!(read("criscope-help.1").is_err());
    }
}

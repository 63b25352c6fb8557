//! The command line: one file per subcommand, each with its `Args` and a `run`.

mod ask;
mod calls;
mod capture;
mod check_config;
mod client;
mod completions;
mod cri;
mod df;
mod doctor;
mod exec;
mod explain;
mod export;
mod fault;
mod format;
mod habits;
mod http;
mod images;
mod install;
mod load_image;
mod logs;
mod man;
mod migrate_config;
mod output;
mod pods;
mod progress;
mod render;
mod replaced;
mod replay;
mod screen;
mod serve;
mod smoke;
mod status;
mod version;
mod view;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::app;
use crate::config::{Config, ConfigErrors, FlagOverrides, LoadedConfig};
use crate::cri::visible::visible;
use crate::lifecycle::capture::BundleError;
use crate::version as built;

/// Bad flags or a bad configuration: `EX_USAGE` of sysexits(3).
const EX_USAGE: u8 = 64;

/// Store or state on this node belong to another criscope: `EX_CONFIG` of sysexits(3).
const EX_CONFIG: u8 = 78;

/// The configuration file of the units in `deploy/systemd`.
const DEFAULT_CONFIG_FILE: &str = "/etc/criscope/criscope.toml";

/// Printed below the list of commands.
const FIRST_STEPS: &str = "\
First steps:
  criscope doctor                  check this node and recommend fixes
  criscope install --dry-run       show how this node's kubelet would use it; without --dry-run, do it
  criscope serve                   run as the container runtime, with runc or crun and CNI plugins
  criscope serve --upstream unix:///run/containerd/containerd.sock
                                   or as a proxy in front of another runtime
  criscope smoke                   run a pod through it
  criscope status                  whether criscope, the runtime and the pods are well
  criscope explain NAMESPACE/POD   why that pod was slow, or is not up

Exit codes: 0 success, 1 failure, 64 wrong arguments or configuration,
78 store and state do not belong together, or are of a later version;
exec exits with the code of its command";

/// An observable container runtime for the kubelet, or a proxy in front of another one
#[derive(Debug, Parser)]
#[command(name = "criscope", version = built::with_commit(), subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = FIRST_STEPS, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Serve(serve::Args),
    CheckConfig(check_config::Args),
    MigrateConfig(migrate_config::Args),
    Doctor(doctor::Args),
    Install(install::Args),
    Uninstall(install::UninstallArgs),
    Status(status::Args),
    #[command(visible_alias = "ps")]
    Pods(pods::Args),
    #[command(visible_alias = "describe")]
    Explain(explain::Args),
    #[command(visible_alias = "top")]
    Calls(calls::Args),
    Logs(logs::Args),
    Capture(capture::Args),
    View(view::Args),
    Replay(replay::Args),
    #[command(subcommand)]
    Fault(fault::FaultCommand),
    Smoke(smoke::Args),
    Exec(Box<exec::Args>),
    Images(images::Args),
    Prune(images::PruneArgs),
    Df(df::Args),
    LoadImage(load_image::Args),
    Export(export::Args),
    Completions(completions::Args),
    Version(version::Args),
    #[command(hide = true)]
    Man(man::Args),
}

/// Parses the arguments, program name included, and runs the command.
///
/// # Errors
/// Those of the command; [`CommandFailure::report`] prints them and returns the exit code.
pub fn run(args: impl IntoIterator<Item = OsString>) -> Result<(), CommandFailure> {
    match CommandLine::try_parse_from(args)?.command {
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::CheckConfig(args) => check_config::run(&args),
        CliCommand::MigrateConfig(args) => migrate_config::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Install(args) => install::run(&args),
        CliCommand::Uninstall(args) => install::uninstall(&args),
        CliCommand::Status(args) => status::run(&args),
        CliCommand::Pods(args) => pods::run(&args),
        CliCommand::Explain(args) => explain::run(&args),
        CliCommand::Calls(args) => calls::run(&args),
        CliCommand::Logs(args) => logs::run(&args),
        CliCommand::Capture(args) => capture::run(&args),
        CliCommand::View(args) => view::run(&args),
        CliCommand::Replay(args) => replay::run(&args),
        CliCommand::Fault(command) => fault::run(&command),
        CliCommand::Exec(args) => exec::run(&args),
        CliCommand::Smoke(args) => Ok(smoke::run(args)?),
        CliCommand::Images(args) => images::run(&args),
        CliCommand::Prune(args) => images::prune(&args),
        CliCommand::Df(args) => df::run(&args),
        CliCommand::LoadImage(args) => load_image::run(&args),
        CliCommand::Export(args) => export::run(&args),
        CliCommand::Completions(args) => completions::run(&args),
        CliCommand::Version(args) => version::run(&args),
        CliCommand::Man(args) => man::run(&args),
    }
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CommandFailure {
    /// The arguments are wrong, or they ask for help.
    #[error(transparent)]
    Arguments(#[from] clap::Error),
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// The configuration of another runtime cannot be read.
    #[error(transparent)]
    Migrate(#[from] migrate_config::SourceConfigError),
    /// The web configuration file of `[metrics]` is wrong.
    #[error(transparent)]
    WebConfig(#[from] app::WebConfigError),
    /// `serve` failed.
    #[error(transparent)]
    Serve(#[from] app::ServeError),
    /// `smoke` failed.
    #[error(transparent)]
    Smoke(#[from] smoke::Error),
    /// `load-image` has no store.
    #[error(transparent)]
    Load(#[from] app::load::ImageLoaderError),
    /// `export` has not written an archive.
    #[error(transparent)]
    Export(#[from] export::Error),
    /// The running criscope could not be read.
    #[error(transparent)]
    Ask(#[from] http::AdminRequestError),
    /// The CRI socket could not be used.
    #[error(transparent)]
    Cri(#[from] cri::Error),
    /// `exec` has not run its command to the end.
    #[error(transparent)]
    Exec(#[from] exec::Error),
    /// The command of `exec` has failed, or a signal ended it; with the exit code.
    #[error("the command exited with code {0}")]
    Command(u8),
    /// A capture could not be read.
    #[error("{}: {source}", file.display())]
    Capture {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: BundleError,
    },
    /// `install` or `uninstall` failed.
    #[error(transparent)]
    Install(#[from] install::Error),
    /// A capture has no calls to play.
    #[error(transparent)]
    NoRequests(#[from] replay::NoRequests),
    /// `replay` has no target.
    #[error(transparent)]
    Replay(#[from] crate::replay::Error),
    /// `explain` found no pod.
    #[error(transparent)]
    Explain(#[from] explain::Error),
    /// The log could not be read.
    #[error(transparent)]
    Logs(#[from] logs::Error),
    /// The command reports a failure; its findings have been printed.
    #[error("a check failed")]
    Found,
    /// The output could not be written, or a thread or socket could not be created.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl CommandFailure {
    /// Prints the error on standard error and returns the exit code: 64 for bad arguments or configuration, 78 for a
    /// refused store or state, else 1.
    pub fn report(&self) -> ExitCode {
        match self {
            Self::Arguments(error) => {
                // Standard error may be closed.
                let _ = error.print();
            }
            Self::Config(errors) => errors.iter().for_each(output::error),
            Self::Found | Self::Command(_) => {}
            Self::Io(error) if is_broken_pipe(error) => {}
            // These errors quote texts of a runtime or names of pods.
            Self::Cri(_)
            | Self::Exec(_)
            | Self::Export(_)
            | Self::Explain(_)
            | Self::Install(_) => {
                output::error(visible(&self.to_string()));
            }
            _ => output::error(self),
        }
        self.hint().into_iter().for_each(output::hint);
        self.exit_code()
    }

    fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Arguments(error) => return habits::hint(error),
            Self::Explain(error) => return error.hint().map(|hint| visible(&hint)),
            Self::Ask(error) => error.hint(),
            Self::Cri(error) => error.hint(),
            Self::Exec(error) => error.hint(),
            Self::Export(error) => error.hint(),
            Self::Logs(error) => error.hint(),
            Self::Install(error) => error.hint(),
            Self::Serve(error) => error.hint(),
            _ => None,
        };
        hint.map(str::to_owned)
    }

    fn exit_code(&self) -> ExitCode {
        match self {
            // Help was asked for.
            Self::Arguments(error) if !error.use_stderr() => ExitCode::SUCCESS,
            Self::Io(error) if is_broken_pipe(error) => ExitCode::SUCCESS,
            Self::Arguments(_) | Self::Config(_) | Self::WebConfig(_) | Self::Migrate(_) => {
                ExitCode::from(EX_USAGE)
            }
            Self::Export(error) if error.is_usage() => ExitCode::from(EX_USAGE),
            Self::Explain(error) if error.is_usage() => ExitCode::from(EX_USAGE),
            Self::Serve(error) if error.is_refusal() => ExitCode::from(EX_CONFIG),
            Self::Command(code) => ExitCode::from(*code),
            _ => ExitCode::FAILURE,
        }
    }
}

/// Returns whether the reader of the output is gone: `criscope doctor | head` is not an error.
fn is_broken_pipe(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// The source of the configuration, for every command that needs one.
#[derive(Clone, Debug, Default, clap::Args)]
struct ConfigSourceArgs {
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Socket to listen on [default: unix:///run/criscope/criscope.sock]
    #[arg(long, value_name = "URI")]
    listen: Option<String>,
    /// Socket of a runtime to forward calls to, such as unix:///run/containerd/containerd.sock, instead of the built-in one
    #[arg(long, value_name = "URI")]
    upstream: Option<String>,
    /// Address for metrics, health and pages, or "off" [default: 127.0.0.1:9478]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
}

impl ConfigSourceArgs {
    /// Adds the node's default configuration file, if none is given and it exists.
    fn or_usual(&self, usual: &Path) -> Self {
        let mut args = self.clone();
        if args.config.is_none() && args.upstream.is_none() && usual.exists() {
            args.config = Some(usual.to_owned());
        }
        args
    }

    fn load(&self) -> Result<LoadedConfig, ConfigErrors> {
        let overrides = FlagOverrides {
            listen: self.listen.clone(),
            upstream: self.upstream.clone(),
            admin: self.admin.clone(),
        };
        Config::load(self.config.as_deref(), &overrides)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn failure(args: &[&str]) -> CommandFailure {
        let args = ["criscope"].iter().chain(args).map(OsString::from);
        run(args).expect_err("fails")
    }

    fn code(args: &[&str]) -> String {
        format!("{:?}", failure(args).report())
    }

    #[test]
    fn the_definition_is_sound() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn exit_codes_tell_usage_from_failure() {
        let usage = format!("{:?}", ExitCode::from(64));
        assert_eq!(code(&["serve", "--nonsense"]), usage);
        assert_eq!(code(&["no-such-command"]), usage);
        assert_eq!(code(&["serve", "--upstream", "here"]), usage);
        assert_eq!(code(&["check-config", "/no/such/file"]), usage);
        assert_eq!(code(&["explain", "a/b/c"]), usage);
        assert_eq!(code(&["explain", "a/b", "-n", "c"]), usage);
        assert_eq!(code(&["pods", "--admin", "localhost"]), usage);
        assert_eq!(code(&["pods", "--slowest", "0"]), usage);
        assert_eq!(code(&["smoke", "--endpoint", "http://x"]), usage);
        assert_eq!(code(&["smoke", "--timeout", "0s"]), usage);
        let success = format!("{:?}", ExitCode::SUCCESS);
        assert_eq!(code(&["--version"]), success);
        assert_eq!(code(&["help", "serve"]), success);
        let pipe = CommandFailure::Io(io::Error::from(io::ErrorKind::BrokenPipe));
        assert_eq!(format!("{:?}", pipe.report()), success);
    }

    #[test]
    fn the_help_says_where_to_begin() {
        let help = failure(&["--help"]).to_string();
        for command in ["doctor", "serve", "smoke", "explain"] {
            assert!(help.contains(&format!("\n  criscope {command} ")), "{help}");
        }
    }

    #[test]
    fn the_usual_file_counts_if_nothing_else_is_said() {
        let here = tempfile::NamedTempFile::new().expect("a file");
        let usual = |args: &ConfigSourceArgs| args.or_usual(here.path()).config;
        let mut args = ConfigSourceArgs::default();
        assert_eq!(usual(&args).as_deref(), Some(here.path()));
        assert_eq!(args.or_usual(Path::new("/no/such/file")).config, None);
        args.upstream = Some("unix:///a".to_owned());
        assert_eq!(usual(&args), None);
        args.config = Some("/b".into());
        assert_eq!(usual(&args), Some("/b".into()));
    }

    #[test]
    fn the_version_has_the_commit_if_there_is_one() {
        let version = failure(&["--version"]).to_string();
        assert!(version.starts_with("criscope 0."), "{version}");
        // Only the binary has a commit; tests/it/commands.rs checks it.
        assert_eq!(built::commit(), None);
    }
}

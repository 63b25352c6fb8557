//! The command line: one file per subcommand, each with its `Args` and a `run`.

mod ask;
mod calls;
mod capture;
mod check_config;
mod client;
mod completions;
mod cri;
mod daemon_log;
mod df;
mod doctor;
mod exec;
mod explain;
mod export;
mod failure;
mod fault;
mod habits;
mod http;
mod images;
mod in_progress;
mod install;
mod kubelet_log;
mod load_image;
mod man;
mod migrate_config;
mod output;
mod pods;
mod progress;
mod replaced;
mod replay;
mod restart;
mod serve;
mod smoke;
mod status;
mod version;
mod view;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Command, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

pub use self::failure::CommandFailure;
use crate::config::{Config, ConfigErrors, FlagOverrides, LoadedConfig};
use crate::version as built;

/// The configuration file of the units in `deploy/systemd`.
const DEFAULT_CONFIG_FILE: &str = "/etc/criscope/criscope.toml";

/// Printed below the list of commands.
const FIRST_STEPS: &str = "\
First steps:
  criscope doctor                  check this node and recommend fixes
  criscope install --dry-run       show what would change; without --dry-run, change it
  criscope serve                   run as the container runtime, with runc or crun and CNI plugins
  criscope serve --upstream unix:///run/containerd/containerd.sock
                                   or as a proxy in front of another runtime
  criscope smoke                   run a pod through it
  criscope status                  whether criscope, the runtime and the pods are well
  criscope explain POD             why that pod was slow, or is not up

Exit codes: 0 success, 1 failure, 64 wrong arguments or configuration,
78 store and state do not belong together, or are of a later version;
exec exits with the code of its command";

/// Tells why a pod is slow or will not start, between the kubelet and its runtime or as the runtime
#[derive(Debug, Parser)]
#[command(name = "criscope", version = built::with_commit(), subcommand_required = true, arg_required_else_help = true)]
#[command(after_help = FIRST_STEPS, max_term_width = 100)]
struct CommandLine {
    #[command(subcommand)]
    command: CliCommand,
}

/// The commands by what people want, for the help; hidden commands are in none.
const COMMAND_GROUPS: [(&str, &[&str]); 4] = [
    (
        "See what is wrong with pods",
        &["explain", "pods", "status", "calls", "daemon-log", "exec"],
    ),
    (
        "Set up a node",
        &[
            "doctor",
            "install",
            "uninstall",
            "serve",
            "restart",
            "smoke",
            "check-config",
            "migrate-config",
        ],
    ),
    (
        "Look after the images of the built-in runtime",
        &["images", "df", "prune", "load-image", "export"],
    ),
    (
        "Get help from others, and try things out",
        &["capture", "view", "replay", "fault", "version"],
    ),
];

/// The definition of the command line, with its commands in groups, which clap does not have.
fn command_line() -> Command {
    let command = CommandLine::command();
    let mut groups = String::new();
    for (title, names) in COMMAND_GROUPS {
        groups += &format!("\n{title}:\n");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            groups += &format!(
                "  {name:<14}  {}\n",
                about.map(ToString::to_string).unwrap_or_default()
            );
        }
    }
    let template = format!(
        "{{about}}\n\n{{usage-heading}} {{usage}}\n{groups}\nOptions:\n{{options}}\n{{after-help}}"
    );
    command.help_template(template)
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Serve(serve::Args),
    Restart(restart::Args),
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
    DaemonLog(daemon_log::Args),
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
    #[command(hide = true)]
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
    let matches = command_line().try_get_matches_from(args)?;
    match CommandLine::from_arg_matches(&matches)?.command {
        CliCommand::Serve(args) => serve::run(&args),
        CliCommand::Restart(args) => restart::run(&args),
        CliCommand::CheckConfig(args) => check_config::run(&args),
        CliCommand::MigrateConfig(args) => migrate_config::run(&args),
        CliCommand::Doctor(args) => doctor::run(&args),
        CliCommand::Install(args) => install::run(&args),
        CliCommand::Uninstall(args) => install::uninstall(&args),
        CliCommand::Status(args) => status::run(&args),
        CliCommand::Pods(args) => pods::run(&args),
        CliCommand::Explain(args) => explain::run(&args),
        CliCommand::Calls(args) => calls::run(&args),
        CliCommand::DaemonLog(args) => daemon_log::run(&args),
        CliCommand::Capture(args) => capture::run(&args),
        CliCommand::View(args) => view::run(&args),
        CliCommand::Replay(args) => replay::run(&args),
        CliCommand::Fault(command) => fault::run(&command),
        CliCommand::Exec(args) => exec::run(&args),
        CliCommand::Smoke(args) => smoke::run(args),
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
    use std::io;
    use std::process::ExitCode;

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
    fn the_configuration_of_another_runtime_is_not_checked() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "version = 2\n[plugins]\n").expect("written");
        let path = file.path().display().to_string();
        let failure = failure(&["check-config", &path]);
        let expected = format!("{path} is a configuration of containerd, not of criscope");
        assert_eq!(failure.to_string(), expected);
        let hint = format!("criscope migrate-config {path} converts it");
        assert_eq!(failure.hint(), Some(hint));
    }

    #[test]
    fn every_command_is_in_one_group() {
        let command = CommandLine::command();
        let shown = command
            .get_subcommands()
            .filter(|command| !command.is_hide_set());
        let mut shown: Vec<_> = shown.map(Command::get_name).collect();
        let mut grouped = COMMAND_GROUPS.map(|(_, names)| names).concat();
        shown.sort_unstable();
        grouped.sort_unstable();
        assert_eq!(grouped, shown);
        let help = failure(&["--help"]).to_string();
        assert!(help.contains("\nSet up a node:\n  doctor "), "{help}");
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

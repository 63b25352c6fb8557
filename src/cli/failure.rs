//! Why a command failed: what is printed, and the exit code.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use super::{
    cri, daemon_log, exec, export, habits, install, migrate_config, output, replay, restart, smoke,
};
use crate::app;
use crate::config::ConfigErrors;
use crate::cri::visible::visible;
use crate::lifecycle::capture::BundleError;
use crate::pages::commands::{PageCommandError, PodNameError, explain};
use crate::pages::source::PageError;

/// Bad flags or a bad configuration: `EX_USAGE` of sysexits(3).
const EX_USAGE: u8 = 64;

/// Store or state on this node belong to another criscope: `EX_CONFIG` of sysexits(3).
const EX_CONFIG: u8 = 78;

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
    /// The file is the configuration of another runtime.
    #[error("{} is a configuration of {runtime}, not of criscope", file.display())]
    OtherConfig {
        /// The file.
        file: PathBuf,
        /// The runtime.
        runtime: &'static str,
    },
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
    Ask(#[from] PageError),
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
    /// `restart` did not restart criscope.
    #[error(transparent)]
    Restart(#[from] restart::Error),
    /// A capture has no calls to play.
    #[error(transparent)]
    NoRequests(#[from] replay::NoRequests),
    /// `replay` has no target.
    #[error(transparent)]
    Replay(#[from] crate::replay::Error),
    /// `explain` found no pod.
    #[error(transparent)]
    Explain(#[from] explain::Error),
    /// The arguments name no pod.
    #[error(transparent)]
    PodName(#[from] PodNameError),
    /// The log could not be read.
    #[error(transparent)]
    Log(#[from] daemon_log::Error),
    /// The command reports a failure; its findings have been printed.
    #[error("a check failed")]
    Found,
    /// The output could not be written, or a thread or socket could not be created.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl From<PageCommandError> for CommandFailure {
    fn from(error: PageCommandError) -> Self {
        match error {
            PageCommandError::Page(error) => Self::Ask(error),
            PageCommandError::Explain(error) => Self::Explain(error),
            PageCommandError::PodName(error) => Self::PodName(error),
            PageCommandError::Io(error) => Self::Io(error),
        }
    }
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
            Self::Cri(_) | Self::Exec(_) | Self::Export(_) | Self::Install(_) => {
                output::error(visible(&self.to_string()));
            }
            // Possible reasons have a line each.
            Self::Explain(error) => {
                let lines: Vec<_> = error.to_string().lines().map(visible).collect();
                output::error(lines.join("\n"));
            }
            _ => output::error(self),
        }
        self.hint().into_iter().for_each(output::hint);
        self.exit_code()
    }

    pub(super) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Arguments(error) => return habits::hint(error),
            Self::OtherConfig { file, .. } => {
                return Some(format!(
                    "criscope migrate-config {} converts it",
                    file.display()
                ));
            }
            Self::Explain(error) => return error.hint().map(|hint| visible(&hint)),
            Self::Ask(error) => error.hint(),
            Self::Cri(error) => error.hint(),
            Self::Exec(error) => error.hint(),
            Self::Export(error) => error.hint(),
            Self::Log(error) => error.hint(),
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
            Self::Arguments(_)
            | Self::Config(_)
            | Self::OtherConfig { .. }
            | Self::WebConfig(_)
            | Self::Migrate(_)
            | Self::PodName(_) => ExitCode::from(EX_USAGE),
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

//! Moving the socket of a runtime, for `--take-over`: by its own configuration, so that it stays there after a restart.

use std::io;
use std::path::{Path, PathBuf};

use super::detect::WRITTEN_BY_INSTALL;
use super::edit::{TextEditError, flag, table};
use super::machine::{NodeOperations, UnitState};
use super::plan::PlannedSockets;
use super::root::FilesystemRoot;
use super::unit::UnitCommand;
use super::workspace::EditWorkspace;

/// Why the socket of a runtime is not moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TakeOverError {
    /// The runtime is neither containerd nor CRI-O.
    #[error("the socket {} is not that of containerd.service or crio.service, so it cannot be moved", .0.display())]
    Unknown(PathBuf),
    /// The runtime's command line overrides the configuration.
    #[error("{unit} sets {flag} on its command line, which overrides its configuration")]
    CommandLine {
        /// The unit.
        unit: String,
        /// The flag.
        flag: &'static str,
    },
    /// The runtime's configuration has a version with the setting elsewhere.
    #[error("{} has version {version}; --take-over knows versions 2 and 3", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The version.
        version: i64,
    },
    /// The configuration cannot be edited.
    #[error("{}: {source}", path.display())]
    Edit {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: TextEditError,
    },
    /// systemd does not answer.
    #[error("systemd does not answer: {0}")]
    Systemd(String),
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Where the runtime listens afterwards.
pub(super) fn moved(socket: &Path) -> PathBuf {
    socket.with_extension("upstream.sock")
}

/// Edits the configuration of the runtime and returns its unit.
pub(super) fn edit(
    root: &FilesystemRoot,
    machine: &dyn NodeOperations,
    sockets: &PlannedSockets,
    files: &mut EditWorkspace<'_>,
) -> Result<String, TakeOverError> {
    let to = moved(&sockets.old);
    let name = sockets
        .old
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let (unit, options): (_, &[&'static str]) = match &*name {
        "containerd.sock" => ("containerd.service", &["--address", "-a"]),
        "crio.sock" => ("crio.service", &["--listen"]),
        _ => return Err(TakeOverError::Unknown(sockets.old.clone())),
    };
    let state = UnitState::read(machine, unit).map_err(TakeOverError::Systemd)?;
    if !state.loaded {
        return Err(TakeOverError::Unknown(sockets.old.clone()));
    }
    let words = UnitCommand::read(root, &state.fragments)?.arguments();
    let mut options = options.iter();
    if let Some(flag) = options.find(|option| flag::last_in_words(&words, option).is_some()) {
        let unit = unit.to_owned();
        return Err(TakeOverError::CommandLine { unit, flag });
    }
    if name == "crio.sock" {
        let text = format!(
            "{WRITTEN_BY_INSTALL}[crio.api]\nlisten = {:?}\n",
            to.display().to_string()
        );
        files.put("/etc/crio/crio.conf.d/zz-criscope.conf".into(), text);
        return Ok(unit.to_owned());
    }
    let mut flags = ["--config", "-c"].into_iter();
    let path = flags.find_map(|name| flag::last_in_words(&words, name));
    let path = path.map_or("/etc/containerd/config.toml", |(_, value)| value);
    let path = PathBuf::from(path);
    let text = containerd(files.text(&path)?, &sockets.old, &to).map_err(|error| match error {
        EndpointLookupError::Version(version) => TakeOverError::Version {
            path: path.clone(),
            version,
        },
        EndpointLookupError::Edit(source) => TakeOverError::Edit {
            path: path.clone(),
            source,
        },
    })?;
    files.put(path, text);
    Ok(unit.to_owned())
}

enum EndpointLookupError {
    Version(i64),
    Edit(TextEditError),
}

impl From<TextEditError> for EndpointLookupError {
    fn from(error: TextEditError) -> Self {
        Self::Edit(error)
    }
}

/// Running shims report their events to the ttrpc socket. Unless its path is set, it follows the main socket's path.
fn containerd(text: Option<String>, from: &Path, to: &Path) -> Result<String, EndpointLookupError> {
    let text = text.unwrap_or_else(|| format!("{WRITTEN_BY_INSTALL}version = 2\n"));
    // Without a version it is 1 for containerd 1.x, and not read by 2.x.
    let version = table::integer(&text, "version")?.unwrap_or(1);
    if !(2..=3).contains(&version) {
        return Err(EndpointLookupError::Version(version));
    }
    let events = table::get(&text, "ttrpc", "address")?.filter(|address| !address.is_empty());
    let text = table::set(&text, "grpc", "address", &to.display().to_string())?;
    match events {
        Some(_) => Ok(text),
        None => Ok(table::set(
            &text,
            "ttrpc",
            "address",
            &format!("{}.ttrpc", from.display()),
        )?),
    }
}

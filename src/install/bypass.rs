//! The bypass: units by which the kubelet's calls reach the runtime while criscope cannot serve. They hold no file of criscope, so that a
//! missing library or a broken configuration does not end them too. The reasons are in
//! `docs/adr/0089-calls-reach-the-runtime-when-criscope-cannot.md`.

use std::path::{Path, PathBuf};

use super::config;
use super::detect::WRITTEN_BY_INSTALL;
use super::journal::ChangeGroup;
use super::plan::{InstallMode, PlanError, PlannedContent, PlannedEdit, PlannedSockets};
use super::root::FilesystemRoot;
use super::services::SYSTEMD_DIRECTORY;
use crate::config::{Config, FlagOverrides};

const BYPASS_SERVICE: &str = include_str!("../../deploy/systemd/criscope-bypass.service");
const BYPASS_TIMER: &str = include_str!("../../deploy/systemd/criscope-bypass.timer");
const RETRY_SERVICE: &str = include_str!("../../deploy/systemd/criscope-retry.service");
const DROP_IN: &str = include_str!("../../deploy/systemd/criscope-bypass.conf");

/// The unit that passes calls to the runtime.
pub const BYPASS_UNIT: &str = "criscope-bypass.service";

/// Drop-in of criscope's unit that starts the bypass.
pub const BYPASS_DROP_IN: &str = "/etc/systemd/system/criscope.service.d/criscope-bypass.conf";

/// The runtime's socket in the supplied unit.
const UNIT_RUNTIME: &str = "/run/containerd/containerd.sock";
/// systemd's program in the supplied unit.
const UNIT_PROXY: &str = "/usr/lib/systemd/systemd-socket-proxyd";

/// Places of systemd's program; where /usr is not merged it is in /lib.
const PROXY_PROGRAMS: [&str; 2] = [UNIT_PROXY, "/lib/systemd/systemd-socket-proxyd"];

/// What the drop-in says instead of its settings where the bypass is turned off, so that the next installation knows.
const TURNED_OFF: &str =
    "# The bypass is turned off: criscope install --bypass true turns it on.\n";

/// Why a node gets no bypass.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoBypass {
    /// The built-in runtime has nothing behind it.
    #[error("the built-in runtime has no other runtime behind it")]
    BuiltIn,
    /// Calls to one of several runtimes would look as if the pods of the others were gone.
    #[error("criscope has {0} backends, and the pods of all but one would seem to be gone")]
    Backends(usize),
    /// systemd's program is not installed.
    #[error("{UNIT_PROXY} is not installed (a package of systemd has it)")]
    NoProgram,
    /// The administrator does not want it.
    #[error("it is turned off")]
    TurnedOff,
}

/// The bypass of a node, as its units describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledBypass {
    /// systemd's program.
    pub program: PathBuf,
    /// The runtime's socket.
    pub runtime: PathBuf,
}

impl InstalledBypass {
    /// Reads the unit of the bypass; `None` if there is none, or if it is turned off.
    pub fn read(root: &FilesystemRoot) -> Option<Self> {
        let drop_in = root.text(BYPASS_DROP_IN).ok()??;
        let unit = root.text(format!("{SYSTEMD_DIRECTORY}/{BYPASS_UNIT}"));
        let unit = unit
            .ok()?
            .filter(|_| drop_in.contains("criscope-bypass.timer"))?;
        let command = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="))?;
        let mut words = command.split_whitespace();
        Some(Self {
            program: words.next()?.into(),
            runtime: words.next_back()?.into(),
        })
    }
}

/// Places where systemd's program is looked for.
pub fn proxy_program(root: &FilesystemRoot) -> Option<&'static str> {
    PROXY_PROGRAMS.into_iter().find(|path| root.has(path))
}

/// Returns why a configuration allows no bypass.
pub fn obstacle(config: &Config) -> Option<NoBypass> {
    let remote = config.backends.iter();
    let remote = remote.filter(|backend| backend.endpoint.is_some()).count();
    match (remote, config.backends.len()) {
        (1, 1) => None,
        (0, _) => Some(NoBypass::BuiltIn),
        (_, all) => Some(NoBypass::Backends(all)),
    }
}

/// The files of the bypass, or why there are none. `wanted` is what the user asked for now; otherwise an earlier answer counts.
pub(super) fn edits(
    root: &FilesystemRoot,
    mode: InstallMode,
    wanted: Option<bool>,
    sockets: &PlannedSockets,
) -> Result<(Vec<PlannedEdit>, Option<NoBypass>), PlanError> {
    let before = root.text(BYPASS_DROP_IN)?;
    let is_off = before.is_some_and(|text| text.contains(TURNED_OFF));
    if !wanted.unwrap_or(!is_off) {
        let text = format!("{WRITTEN_BY_INSTALL}{TURNED_OFF}");
        let edit = text_file(BYPASS_DROP_IN, text);
        return Ok((vec![edit], Some(NoBypass::TurnedOff)));
    }
    let config = Config::from_text(
        config::CONFIG_PATH,
        &sockets.config,
        &FlagOverrides::default(),
    )?;
    let built_in = (mode == InstallMode::Runtime).then_some(NoBypass::BuiltIn);
    if let Some(obstacle) = built_in.or_else(|| obstacle(&config)) {
        return Ok((Vec::new(), Some(obstacle)));
    }
    let (Some(runtime), Some(program)) = (&sockets.upstream, proxy_program(root)) else {
        return Ok((Vec::new(), Some(NoBypass::NoProgram)));
    };
    let runtime = runtime.display().to_string();
    let service = BYPASS_SERVICE
        .replace(UNIT_RUNTIME, &runtime)
        .replace(UNIT_PROXY, program);
    let units = [
        (BYPASS_UNIT, service),
        ("criscope-bypass.timer", BYPASS_TIMER.to_owned()),
        ("criscope-retry.service", RETRY_SERVICE.to_owned()),
    ];
    let units = units.map(|(name, text)| text_file(format!("{SYSTEMD_DIRECTORY}/{name}"), text));
    let drop_in = text_file(BYPASS_DROP_IN, DROP_IN.to_owned());
    Ok((units.into_iter().chain([drop_in]).collect(), None))
}

fn text_file(path: impl AsRef<Path>, text: String) -> PlannedEdit {
    PlannedEdit {
        path: path.as_ref().to_owned(),
        group: ChangeGroup::Service,
        content: PlannedContent::Text(text, 0o644),
    }
}

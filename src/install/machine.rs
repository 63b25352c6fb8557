//! The node's programs: systemd, the runtime and the kubelet. Tests replace them; everything else of an installation works on
//! real files.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::root::FilesystemRoot;

/// Operations that an installation needs on a node.
pub trait NodeOperations: Debug {
    /// Runs systemctl and returns its output.
    ///
    /// # Errors
    /// What systemctl said.
    fn systemctl(&self, arguments: &[&str]) -> Result<String, String>;
    /// The conditions of the runtime behind a socket.
    ///
    /// # Errors
    /// Why it does not answer.
    fn runtime(&self, socket: &Path) -> Result<RuntimeReadiness, String>;
    /// How many pods the runtime behind a socket has.
    ///
    /// # Errors
    /// Why it does not answer.
    fn pods(&self, socket: &Path) -> Result<usize, String>;
    /// Returns whether the kubelet's `/healthz` answers.
    fn healthz(&self) -> bool;
    /// Returns whether a process of a unit is connected to a socket.
    fn connected(&self, unit: &str, socket: &Path) -> bool;
    /// Waits.
    fn pause(&self, time: Duration);
    /// Called between any two effects on the disk or on processes.
    fn reached(&self, _point: &str) {}
    /// Returns whether the user asked to stop.
    fn interrupted(&self) -> bool {
        false
    }
}

/// Conditions in the runtime's Status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuntimeReadiness {
    /// `RuntimeReady`.
    pub runtime: bool,
    /// `NetworkReady`: false before a network add-on has been installed.
    pub network: bool,
}

/// A unit as systemd knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UnitState {
    pub(super) loaded: bool,
    pub(super) active: bool,
    /// The unit's fragment and drop-ins, in the order in which they count.
    pub(super) fragments: Vec<PathBuf>,
    /// The unit's main process; 0 if there is none.
    pub(super) pid: i32,
    pub(super) restarts: u64,
}

impl UnitState {
    pub(super) fn read(machine: &dyn NodeOperations, unit: &str) -> Result<Self, String> {
        const PROPERTIES: &str =
            "--property=LoadState,ActiveState,FragmentPath,DropInPaths,MainPID,NRestarts";
        let text = machine.systemctl(&["show", PROPERTIES, "--", unit])?;
        let values: BTreeMap<_, _> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .collect();
        let [fragment, drop_ins, pid, restarts] =
            ["FragmentPath", "DropInPaths", "MainPID", "NRestarts"]
                .map(|key| values.get(key).copied().unwrap_or_default());
        let fragment = Some(fragment).filter(|path| !path.is_empty());
        Ok(Self {
            loaded: values.get("LoadState") == Some(&"loaded"),
            active: values.get("ActiveState") == Some(&"active"),
            fragments: fragment
                .into_iter()
                .chain(drop_ins.split_whitespace())
                .map(PathBuf::from)
                .collect(),
            pid: pid.parse().unwrap_or_default(),
            restarts: restarts.parse().unwrap_or_default(),
        })
    }
}

/// The arguments of a process.
pub(crate) fn arguments(root: &FilesystemRoot, pid: i32) -> Vec<String> {
    if pid <= 0 {
        return Vec::new();
    }
    let line = root.read(format!("/proc/{pid}/cmdline"));
    let line = line.ok().flatten().unwrap_or_default();
    let line = String::from_utf8_lossy(&line).into_owned();
    line.split_terminator('\0').map(str::to_owned).collect()
}

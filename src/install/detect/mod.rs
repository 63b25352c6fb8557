//! Finds this node's kubelet: which unit runs it, which CRI socket is in effect, and the place where that is set.

mod kubelet;
mod rancher;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::edit::{TextEditError, document, flag};
use super::machine::{NodeOperations, UnitState};
use super::root::FilesystemRoot;
use super::workspace::EditWorkspace;

/// The kubelet's default (`KubeletConfiguration` v1beta1).
const DEFAULT_ENDPOINT: &str = "unix:///run/containerd/containerd.sock";

/// A kind of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// A kubelet with a unit of its own; kubeadm, kind and most managed services.
    Kubelet,
    /// K3s.
    K3s,
    /// RKE2.
    Rke2,
    /// MicroK8s.
    MicroK8s,
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kubelet => "kubelet",
            Self::K3s => "K3s",
            Self::Rke2 => "RKE2",
            Self::MicroK8s => "MicroK8s",
        })
    }
}

/// The units that are looked for.
const KUBELET_UNITS: [(&str, Distribution); 6] = [
    ("kubelet.service", Distribution::Kubelet),
    ("k3s.service", Distribution::K3s),
    ("k3s-agent.service", Distribution::K3s),
    ("rke2-server.service", Distribution::Rke2),
    ("rke2-agent.service", Distribution::Rke2),
    (
        "snap.microk8s.daemon-kubelite.service",
        Distribution::MicroK8s,
    ),
];

/// Why the kubelet's configuration is not changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DetectError {
    /// There is none.
    #[error("no kubelet found on this node: none of the units {0} exists")]
    None(String),
    /// There are several.
    #[error("several kubelets found: {0}")]
    Several(String),
    /// systemd does not answer.
    #[error("systemd does not answer: {0}")]
    Systemd(String),
    /// The files do not explain what runs.
    #[error(
        "the running kubelet (pid {pid}) has {name} {running:?}, and the files of {unit} say {files:?}"
    )]
    Disagree {
        /// The unit.
        unit: String,
        /// The process.
        pid: i32,
        /// The flag.
        name: &'static str,
        /// Its value in the process; empty if it is absent.
        running: String,
        /// Its value after the files.
        files: String,
    },
    /// The unit starts something else, which starts the kubelet.
    #[error(
        "{unit} runs {program}, not the kubelet itself, so its files do not show the kubelet's flags"
    )]
    Wrapped {
        /// The unit.
        unit: String,
        /// The program.
        program: String,
    },
    /// The command line overrides every file.
    #[error(
        "{unit} sets {flag} on its command line, which overrides files; set it there to {endpoint}"
    )]
    CommandLine {
        /// The unit.
        unit: String,
        /// The flag.
        flag: String,
        /// The new value.
        endpoint: String,
    },
    /// The endpoint is not a unix socket.
    #[error("the kubelet's endpoint {0:?} is not a unix socket")]
    NotUnix(String),
    /// A file cannot be edited.
    #[error("{}: {source}", path.display())]
    Edit {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: TextEditError,
    },
    /// A file cannot be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl DetectError {
    /// A recommendation for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::None(_) => {
                Some("name its unit with --kubelet-unit; docs/INSTALL.md has the steps by hand")
            }
            Self::Several(_) => Some("name the right one with --kubelet-unit"),
            Self::Disagree { .. } => Some(
                "if its files were changed since it started, restart the kubelet first; if a script starts it, follow docs/INSTALL.md by hand",
            ),
            Self::Wrapped { .. } => {
                Some("set the endpoint in that program's configuration, or use --take-over")
            }
            _ => None,
        }
    }
}

/// A setting of the kubelet that names a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketSetting {
    pub(super) flag: &'static str,
    pub(super) key: &'static str,
}

/// The endpoint of the runtime.
pub(super) const RUNTIME_ENDPOINT: SocketSetting = SocketSetting {
    flag: "--container-runtime-endpoint",
    key: "containerRuntimeEndpoint",
};

/// The endpoint of the image service, by default the same.
pub(super) const IMAGE_ENDPOINT: SocketSetting = SocketSetting {
    flag: "--image-service-endpoint",
    key: "imageServiceEndpoint",
};

/// A place where a setting is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SettingPlace {
    /// A key of a `KubeletConfiguration`.
    Document(PathBuf),
    /// A flag in a variable of an environment file.
    Variable(PathBuf, String),
    /// A flag in a file of arguments.
    Flags(PathBuf),
    /// A flag in the unit: a drop-in repeats this setting, up to its value.
    Unit {
        /// The drop-in.
        path: PathBuf,
        /// Its lines, with the flag.
        lines: String,
    },
    /// A drop-in of K3s and RKE2.
    Rancher(PathBuf),
}

impl SettingPlace {
    /// The file that is changed or created.
    pub(super) fn path(&self) -> &Path {
        match self {
            Self::Document(path) | Self::Variable(path, _) => path,
            Self::Flags(path) | Self::Rancher(path) => path,
            Self::Unit { path, .. } => path,
        }
    }

    /// Sets the endpoint in the workspace.
    fn set(
        &self,
        setting: SocketSetting,
        endpoint: &str,
        files: &mut EditWorkspace<'_>,
    ) -> Result<(), DetectError> {
        let path = self.path().to_owned();
        let old = files.text(&path)?;
        let edited = match self {
            Self::Document(_) => {
                let text = old.unwrap_or_else(|| NEW_DOCUMENT.to_owned());
                document::set(&text, setting.key, endpoint)
            }
            Self::Variable(_, variable) => {
                let text = old.unwrap_or_default();
                flag::set_in_variable(&text, variable, setting.flag, endpoint)
                    .ok_or_else(|| TextEditError::Refused(setting.flag.to_owned()))
            }
            Self::Flags(_) => flag::set(&old.unwrap_or_default(), setting.flag, endpoint)
                .ok_or_else(|| TextEditError::Refused(setting.flag.to_owned())),
            Self::Unit { lines, .. } => {
                let text = old.filter(|text| flag::value(text, setting.flag).is_some());
                let text = text.unwrap_or_else(|| {
                    format!("{WRITTEN_BY_INSTALL}# A copy of the unit's setting with another endpoint.\n[Service]\n{lines}\n")
                });
                let with = match flag::value(&text, setting.flag) {
                    Some(_) => text,
                    None => format!("{} {}=x\n", text.trim_end(), setting.flag),
                };
                flag::set(&with, setting.flag, endpoint)
                    .ok_or_else(|| TextEditError::Refused(setting.flag.to_owned()))
            }
            Self::Rancher(_) => Ok(rancher::drop_in(endpoint)),
        };
        match edited {
            Ok(new) => files.put(path, new),
            Err(source) => return Err(DetectError::Edit { path, source }),
        }
        Ok(())
    }
}

/// The first line of files that are ours.
pub(super) const WRITTEN_BY_INSTALL: &str =
    "# Written by `criscope install`; `criscope uninstall` removes it.\n";

/// A new drop-in of `--config-dir`.
const NEW_DOCUMENT: &str = "# Written by `criscope install`; `criscope uninstall` removes it.\n\
    apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// The kubelet of this node.
#[derive(Debug)]
pub(super) struct DetectedKubelet {
    pub(super) distribution: Distribution,
    pub(super) unit: String,
    pub(super) state: UnitState,
    /// The CRI socket in effect.
    pub(super) runtime: PathBuf,
    /// Where that is set.
    pub(super) source: String,
    /// The places to change, the one in effect first.
    places: Vec<(SocketSetting, SettingPlace)>,
    /// The name of the Node, if it is not the host name.
    pub(super) node: Option<String>,
    /// What the user should know or do.
    pub(super) notes: Vec<String>,
}

impl DetectedKubelet {
    /// Finds the kubelet; `named` is the unit that the user named.
    pub(super) fn find(
        root: &FilesystemRoot,
        machine: &dyn NodeOperations,
        named: Option<&str>,
    ) -> Result<Self, DetectError> {
        let (unit, distribution, state) = unit(machine, named)?;
        match distribution {
            Distribution::Kubelet => kubelet::find(root, unit, state),
            Distribution::K3s | Distribution::Rke2 => {
                rancher::find(root, unit, distribution, state)
            }
            Distribution::MicroK8s => kubelet::microk8s(root, unit, state),
        }
    }

    /// Sets the endpoint in all places.
    pub(super) fn set(
        &self,
        endpoint: &str,
        files: &mut EditWorkspace<'_>,
    ) -> Result<(), DetectError> {
        for (setting, place) in &self.places {
            place.set(*setting, endpoint, files)?;
        }
        Ok(())
    }
}

fn unit_state(machine: &dyn NodeOperations, unit: &str) -> Result<UnitState, DetectError> {
    UnitState::read(machine, unit).map_err(DetectError::Systemd)
}

fn unit(
    machine: &dyn NodeOperations,
    named: Option<&str>,
) -> Result<(String, Distribution, UnitState), DetectError> {
    if let Some(name) = named {
        let name = if name.contains('.') {
            name.to_owned()
        } else {
            format!("{name}.service")
        };
        let known = KUBELET_UNITS.iter().find(|(unit, _)| *unit == name);
        let distribution = known.map_or(Distribution::Kubelet, |(_, distribution)| *distribution);
        let state = unit_state(machine, &name)?;
        if !state.loaded {
            return Err(DetectError::None(name));
        }
        return Ok((name, distribution, state));
    }
    let mut found = Vec::new();
    for (unit, distribution) in KUBELET_UNITS {
        let state = unit_state(machine, unit)?;
        if state.loaded {
            found.push((unit.to_owned(), distribution, state));
        }
    }
    if found.len() > 1 && found.iter().any(|(_, _, state)| state.active) {
        found.retain(|(_, _, state)| state.active);
    }
    match found.len() {
        0 => Err(DetectError::None(
            KUBELET_UNITS.map(|(unit, _)| unit).join(", "),
        )),
        1 => Ok(found.swap_remove(0)),
        _ => {
            let names: Vec<_> = found.into_iter().map(|(unit, _, _)| unit).collect();
            Err(DetectError::Several(names.join(", ")))
        }
    }
}

/// The path of an endpoint.
fn socket(endpoint: &str) -> Result<PathBuf, DetectError> {
    crate::client::socket_path(endpoint).map_err(|_| DetectError::NotUnix(endpoint.to_owned()))
}

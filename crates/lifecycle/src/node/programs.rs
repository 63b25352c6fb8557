//! The programs that a node runs pods with: the names of the runtimes, and the systemd units of runtimes, kubelet and criscope, for texts
//! about them.

use std::collections::BTreeMap;
use std::fs;

use serde::{Deserialize, Serialize};

use super::BackendState;
use criscope_cri::call::Peer;

/// The name of a runtime that is not known.
const UNKNOWN_RUNTIME: &str = "runtime";

/// The unit of a runtime that is not known. Most nodes have this one.
const USUAL_RUNTIME_UNIT: &str = "containerd";

/// The units of runtimes by the name that they tell, where the unit has another name.
const RUNTIME_UNITS: [(&str, &str); 2] = [("cri-o", "crio"), ("docker", "cri-docker")];

/// The units of kubelets by the name of the program, where the unit has another name.
const KUBELET_UNITS: [(&str, &str); 4] = [
    ("k3s-server", "k3s"),
    ("k3s-agent", "k3s-agent"),
    ("kubelite", "snap.microk8s.daemon-kubelite"),
    ("microshift", "microshift"),
];

/// The unit of criscope, and of a kubelet without another name.
const CRISCOPE_UNIT: &str = "criscope";
const KUBELET_UNIT: &str = "kubelet";

/// The programs of the node. Kept with the episodes, so that a capture has them too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodePrograms {
    /// The runtime behind each backend, by the name of the backend.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    runtimes: BTreeMap<Box<str>, RuntimeProgram>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kubelet: Option<ProgramUnit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    criscope: Option<ProgramUnit>,
}

/// A runtime.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RuntimeProgram {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<Box<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unit: Option<ProgramUnit>,
    /// The cgroup driver with which criscope answered RuntimeConfig in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answered_driver: Option<Box<str>>,
}

/// The systemd unit of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ProgramUnit {
    /// The unit without `.service`; `None` if the process belongs to no unit.
    name: Option<Box<str>>,
    /// The process. The unit is read once for each.
    #[serde(skip)]
    pid: u32,
}

impl NodePrograms {
    /// Notes the runtimes behind these backends.
    pub(crate) fn set_backends(&mut self, backends: &[BackendState]) {
        for backend in backends {
            let runtime = self.runtimes.entry((*backend.name).into()).or_default();
            if backend.runtime.is_some() {
                runtime.name.clone_from(&backend.runtime);
            }
            runtime.answered_driver.clone_from(&backend.answered_driver);
            if let Some(pid) = backend.pid {
                ProgramUnit::update(&mut runtime.unit, pid, None);
            }
        }
        ProgramUnit::update(&mut self.criscope, std::process::id(), None);
    }

    /// Notes the kubelet that has just called.
    pub(crate) fn set_kubelet(&mut self, peer: &Peer) {
        let usual = peer
            .comm
            .as_deref()
            .and_then(|comm| usual(&KUBELET_UNITS, comm));
        if let Some(pid) = peer.pid.and_then(|pid| u32::try_from(pid).ok()) {
            ProgramUnit::update(&mut self.kubelet, pid, usual);
        }
    }

    /// The runtime behind a backend: `containerd`, or `runtime` if it is not known.
    pub(crate) fn runtime(&self, backend: Option<&str>) -> &str {
        let name = self
            .program(backend)
            .and_then(|program| program.name.as_deref());
        name.unwrap_or(UNKNOWN_RUNTIME)
    }

    /// The unit of the runtime behind a backend. Without a backend it is that of the only one.
    pub(crate) fn runtime_unit(&self, backend: Option<&str>) -> &str {
        let program = self.program(backend);
        let unit = program.and_then(|program| program.unit.as_ref()?.name.as_deref());
        unit.unwrap_or_else(|| {
            let name = program.and_then(|program| program.name.as_deref());
            let name = name.unwrap_or(USUAL_RUNTIME_UNIT);
            usual(&RUNTIME_UNITS, name).unwrap_or(name)
        })
    }

    /// The unit of the kubelet.
    pub(crate) fn kubelet_unit(&self) -> &str {
        let unit = self.kubelet.as_ref().and_then(|unit| unit.name.as_deref());
        unit.unwrap_or(KUBELET_UNIT)
    }

    /// The cgroup driver with which criscope answered RuntimeConfig in place of this backend, if it did.
    pub(crate) fn answered_driver(&self, backend: Option<&str>) -> Option<&str> {
        self.program(backend)?.answered_driver.as_deref()
    }

    /// The unit of criscope.
    pub(crate) fn criscope_unit(&self) -> &str {
        let unit = self.criscope.as_ref().and_then(|unit| unit.name.as_deref());
        unit.unwrap_or(CRISCOPE_UNIT)
    }

    fn program(&self, backend: Option<&str>) -> Option<&RuntimeProgram> {
        let mut programs = self.runtimes.values();
        match (backend, programs.next(), programs.next()) {
            (Some(backend), ..) => self.runtimes.get(backend),
            (None, Some(only), None) => Some(only),
            _ => None,
        }
    }
}

impl ProgramUnit {
    /// The unit of this process, which is read if another process was known before. `usual`: for a process without a unit.
    fn update(known: &mut Option<Self>, pid: u32, usual: Option<&str>) {
        if known.as_ref().is_some_and(|unit| unit.pid == pid) {
            return;
        }
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        let name = unit(&groups).or(usual).map(Into::into);
        *known = Some(Self { name, pid });
    }
}

/// The usual name of this unit's service.
fn usual<'a>(names: &[(&str, &'a str)], name: &str) -> Option<&'a str> {
    let found = names.iter().find(|(known, _)| *known == name);
    found.map(|(_, unit)| *unit)
}

/// The systemd service in `/proc/PID/cgroup` (cgroups(7)), without `.service`.
fn unit(groups: &str) -> Option<&str> {
    let mut services = groups.lines().filter_map(|line| {
        let path = line.splitn(3, ':').nth(2)?;
        path.rsplit('/')
            .find_map(|name| name.strip_suffix(".service"))
    });
    // A container on the node may run a systemd of its own.
    services.find(|name| !name.is_empty() && name.bytes().all(is_in_unit_name))
}

/// Returns whether a unit's name needs no quotes in a shell with this byte.
fn is_in_unit_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_.@:".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_of_a_process_is_read_from_its_cgroups() {
        assert_eq!(unit("0::/system.slice/k3s.service\n"), Some("k3s"));
        let hybrid = "12:cpu:/\n1:name=systemd:/system.slice/containerd.service\n0::/system.slice/containerd.service\n";
        assert_eq!(unit(hybrid), Some("containerd"));
        let below = "0::/system.slice/snap.microk8s.daemon-kubelite.service/kubelet\n";
        assert_eq!(unit(below), Some("snap.microk8s.daemon-kubelite"));
        assert_eq!(unit("0::/user.slice/user-0.slice/session-1.scope\n"), None);
        assert_eq!(unit("0::/system.slice/a b.service\n"), None);
    }

    #[test]
    fn without_a_unit_the_usual_one_is_named() {
        let mut programs = NodePrograms::default();
        assert_eq!(
            (programs.runtime_unit(None), programs.kubelet_unit()),
            ("containerd", "kubelet")
        );
        programs.set_backends(&[BackendState {
            name: "main".into(),
            runtime: Some("cri-o".into()),
            ..BackendState::default()
        }]);
        let of_main = (
            programs.runtime(Some("main")),
            programs.runtime_unit(Some("main")),
        );
        assert_eq!(of_main, ("cri-o", "crio"));
        assert_eq!(programs.runtime(Some("main+other")), "runtime");
    }
}

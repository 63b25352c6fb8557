//! A kubelet with a unit of its own, and MicroK8s.

use std::path::{Path, PathBuf};

use super::super::edit::{document, flag};
use super::super::machine::{UnitState, arguments};
use super::super::root::FilesystemRoot;
use super::super::unit::{self, UnitCommand};
use super::{
    DEFAULT_ENDPOINT, DetectError, DetectedKubelet, Distribution, IMAGE_ENDPOINT, RUNTIME_ENDPOINT,
    SettingPlace, SocketSetting, socket,
};

/// The file from which `kubeadm upgrade` restores the endpoint, 1.34 and later.
const INSTANCE_CONFIG: &str = "/var/lib/kubelet/instance-config.yaml";
/// Flags of kubeadm before 1.34.
const KUBEADM_FLAGS: &str = "/var/lib/kubelet/kubeadm-flags.env";

/// The flag with the name of the Node.
const NODE_NAME_FLAG: &str = "--hostname-override";

const MICROK8S: &str = "/var/snap/microk8s/current/args/kubelet";

/// The name of our drop-in in `--config-dir`: they are merged in the order of their names.
const DROP_IN_FILE: &str = "zz-criscope.conf";

pub(super) fn find(
    root: &FilesystemRoot,
    unit: String,
    state: UnitState,
) -> Result<DetectedKubelet, DetectError> {
    let command = UnitCommand::read(root, &state.fragments)?;
    agrees(root, &unit, &state, &command)?;
    let search = SettingSearch {
        root,
        unit: &unit,
        command: &command,
        words: command.arguments(),
    };
    let runtime = search.locate(RUNTIME_ENDPOINT)?;
    let endpoint = runtime.value.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned());
    let path = socket(&endpoint)?;
    let mut notes = Vec::new();
    let mut places = vec![(RUNTIME_ENDPOINT, runtime.place)];
    let images = search.locate(IMAGE_ENDPOINT)?;
    if let Some(value) = images.value {
        if same(&value, &endpoint) {
            places.push((IMAGE_ENDPOINT, images.place));
        } else {
            notes.push(format!(
                "the kubelet sends image calls to {value} ({}); criscope does not see them",
                images.source
            ));
        }
    }
    places.extend(kubeadm(root, &mut notes)?);
    let node = flag::last_in_words(&search.words, NODE_NAME_FLAG).map(|(_, name)| name.to_owned());
    Ok(DetectedKubelet {
        distribution: Distribution::Kubelet,
        unit,
        state,
        runtime: path,
        source: runtime.source,
        places,
        node,
        notes,
    })
}

fn same(one: &str, other: &str) -> bool {
    matches!((socket(one), socket(other)), (Ok(one), Ok(other)) if one == other)
}

/// The second place of kubeadm.
fn kubeadm(
    root: &FilesystemRoot,
    notes: &mut Vec<String>,
) -> Result<Option<(SocketSetting, SettingPlace)>, DetectError> {
    if let Some(text) = root.text(INSTANCE_CONFIG)? {
        let value =
            document::get(&text, RUNTIME_ENDPOINT.key).map_err(|source| DetectError::Edit {
                path: INSTANCE_CONFIG.into(),
                source,
            })?;
        return Ok(value.map(|_| {
            (
                RUNTIME_ENDPOINT,
                SettingPlace::Document(INSTANCE_CONFIG.into()),
            )
        }));
    }
    if root.has(KUBEADM_FLAGS) {
        notes.push(
            "kubeadm before 1.34 also keeps the socket in an annotation of the Node, which needs the API: kubectl annotate node NODE --overwrite kubeadm.alpha.kubernetes.io/cri-socket=ENDPOINT".to_owned(),
        );
    }
    Ok(None)
}

/// The files must explain the process: a script in between, or a file changed since, would make the edit go to the wrong place.
fn agrees(
    root: &FilesystemRoot,
    unit: &str,
    state: &UnitState,
    command: &UnitCommand,
) -> Result<(), DetectError> {
    let running = arguments(root, state.pid);
    let Some(program) = running.first().filter(|_| state.active) else {
        return Ok(());
    };
    let name = Path::new(program).file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    if !name.contains("kubelet") && !name.contains("hyperkube") {
        return Err(DetectError::Wrapped {
            unit: unit.to_owned(),
            program: program.clone(),
        });
    }
    let words = command.arguments();
    for name in [
        RUNTIME_ENDPOINT.flag,
        IMAGE_ENDPOINT.flag,
        "--config",
        "--config-dir",
    ] {
        let [running, files] = [&running, &words].map(|words| {
            let (_, value) = flag::last_in_words(words, name)?;
            Some(value.to_owned())
        });
        if running != files {
            return Err(DetectError::Disagree {
                unit: unit.to_owned(),
                pid: state.pid,
                name,
                running: running.unwrap_or_default(),
                files: files.unwrap_or_default(),
            });
        }
    }
    Ok(())
}

struct SettingSearch<'a> {
    root: &'a FilesystemRoot,
    unit: &'a str,
    command: &'a UnitCommand,
    words: Vec<String>,
}

/// A setting, its value, and where to change it.
struct LocatedSetting {
    value: Option<String>,
    source: String,
    place: SettingPlace,
}

impl SettingSearch<'_> {
    /// In the kubelet's order: the command line beats the drop-ins of `--config-dir`, and those the file.
    fn locate(&self, setting: SocketSetting) -> Result<LocatedSetting, DetectError> {
        if let Some((index, value)) = flag::last_in_words(&self.words, setting.flag) {
            return self.flag(setting, index, value);
        }
        let file = self.path_flag("--config");
        if let Some(directory) = self.path_flag("--config-dir") {
            return self.drop_in(setting, &directory, file.as_deref());
        }
        if let Some(file) = file {
            return Ok(LocatedSetting {
                value: self.key(&file, setting)?,
                source: file.display().to_string(),
                place: SettingPlace::Document(file),
            });
        }
        // Neither a flag nor a file: the flag is added.
        Ok(LocatedSetting {
            value: None,
            source: "its default".to_owned(),
            place: self.exec(),
        })
    }

    fn path_flag(&self, name: &str) -> Option<PathBuf> {
        let (_, value) = flag::last_in_words(&self.words, name)?;
        Some(PathBuf::from(value))
    }

    fn flag(
        &self,
        setting: SocketSetting,
        word: usize,
        value: &str,
    ) -> Result<LocatedSetting, DetectError> {
        let (source, place) = match self.command.place(word) {
            Some((variable, unit::VariablePlace::File(path)))
                if self.is_flag_in(path, variable, setting.flag, value)? =>
            {
                let place = SettingPlace::Variable(path.clone(), variable.to_owned());
                (path.display().to_string(), place)
            }
            Some((_, unit::VariablePlace::Unit(raw)))
                if flag::value(raw, setting.flag).is_some() =>
            {
                let source = format!("Environment= of {}", self.unit);
                (source, self.drop_in_of_unit(format!("Environment={raw}")))
            }
            // A variable may hold the value alone, `--flag=${VALUE}`: then the command is changed.
            _ => (format!("ExecStart= of {}", self.unit), self.exec()),
        };
        Ok(LocatedSetting {
            value: Some(value.to_owned()),
            source: format!("{} in {source}", setting.flag),
            place,
        })
    }

    /// Returns whether the file assigns the whole flag, and not only its value, to the variable.
    fn is_flag_in(
        &self,
        path: &Path,
        variable: &str,
        flag: &str,
        value: &str,
    ) -> Result<bool, DetectError> {
        let text = self.root.text(path)?.unwrap_or_default();
        Ok(flag::set_in_variable(&text, variable, flag, value).is_some())
    }

    fn exec(&self) -> SettingPlace {
        self.drop_in_of_unit(format!("ExecStart=\nExecStart={}", self.command.raw))
    }

    fn drop_in_of_unit(&self, lines: String) -> SettingPlace {
        let path = format!("/etc/systemd/system/{}.d/zz-criscope.conf", self.unit);
        SettingPlace::Unit {
            path: path.into(),
            lines,
        }
    }

    fn drop_in(
        &self,
        setting: SocketSetting,
        directory: &Path,
        file: Option<&Path>,
    ) -> Result<LocatedSetting, DetectError> {
        let files = self.root.names(directory, &["conf"]);
        let mut found = None;
        for path in file.into_iter().map(Path::to_owned).chain(files.clone()) {
            if let Some(value) = self.key(&path, setting)? {
                found = Some((value, path.display().to_string()));
            }
        }
        let ours = directory.join(DROP_IN_FILE);
        // One whose name comes after ours has the last word.
        let last = files.into_iter().rfind(|path| *path > ours);
        let (value, source) = match found {
            Some((value, source)) => (Some(value), source),
            None => (None, "its default".to_owned()),
        };
        Ok(LocatedSetting {
            value,
            source,
            place: SettingPlace::Document(last.unwrap_or(ours)),
        })
    }

    fn key(&self, path: &Path, setting: SocketSetting) -> Result<Option<String>, DetectError> {
        let text = self.root.text(path)?.unwrap_or_default();
        document::get(&text, setting.key).map_err(|source| DetectError::Edit {
            path: path.to_owned(),
            source,
        })
    }
}

/// MicroK8s: a file with one argument a line, in which a script replaces variables.
pub(super) fn microk8s(
    root: &FilesystemRoot,
    unit: String,
    state: UnitState,
) -> Result<DetectedKubelet, DetectError> {
    let path = PathBuf::from(MICROK8S);
    let text = root.text(&path)?.unwrap_or_default();
    let value =
        flag::value(&text, RUNTIME_ENDPOINT.flag).unwrap_or("${SNAP_COMMON}/run/containerd.sock");
    let runtime = value
        .replace("${SNAP_COMMON}", "/var/snap/microk8s/common")
        .replace("${SNAP_DATA}", "/var/snap/microk8s/current");
    let mut places = vec![(RUNTIME_ENDPOINT, SettingPlace::Flags(path.clone()))];
    if flag::value(&text, IMAGE_ENDPOINT.flag).is_some_and(|images| images == value) {
        places.push((IMAGE_ENDPOINT, SettingPlace::Flags(path)));
    }
    Ok(DetectedKubelet {
        distribution: Distribution::MicroK8s,
        unit,
        state,
        runtime: socket(&runtime)?,
        source: format!("{} in {MICROK8S}", RUNTIME_ENDPOINT.flag),
        places,
        node: flag::value(&text, NODE_NAME_FLAG).map(str::to_owned),
        notes: Vec::new(),
    })
}

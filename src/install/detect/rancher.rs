//! K3s and RKE2: one process that runs containerd and the kubelet.
//!
//! `container-runtime-endpoint` would keep it from starting its containerd. An argument for the kubelet alone moves only the
//! kubelet, and overrides what the process configures for it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::super::edit::{TextEditError, flag};
use super::super::machine::UnitState;
use super::super::root::FilesystemRoot;
use super::super::unit::UnitCommand;
use super::{
    DetectError, DetectedKubelet, Distribution, RUNTIME_ENDPOINT, SettingPlace, WRITTEN_BY_INSTALL,
    socket,
};

/// The socket of their containerd.
const CONTAINERD_SOCKET: &str = "/run/k3s/containerd/containerd.sock";
/// With `docker: true`.
const CRI_DOCKERD_SOCKET: &str = "/run/k3s/cri-dockerd/cri-dockerd.sock";

/// The name of the Node, as a flag and as a key.
const NODE_NAME_FLAG: &str = "--node-name";

/// The kubelet's argument as these spell it.
const ENDPOINT_ARGUMENT: &str = "container-runtime-endpoint=";

pub(super) fn drop_in(endpoint: &str) -> String {
    format!("{WRITTEN_BY_INSTALL}kubelet-arg+:\n  - {ENDPOINT_ARGUMENT}{endpoint}\n")
}

pub(super) fn find(
    root: &FilesystemRoot,
    unit: String,
    distribution: Distribution,
    state: UnitState,
) -> Result<DetectedKubelet, DetectError> {
    let words = UnitCommand::read(root, &state.fragments)?.arguments();
    let named = ["--config", "-c"]
        .iter()
        .find_map(|name| flag::last_in_words(&words, name));
    let name = match distribution {
        Distribution::Rke2 => "rke2",
        _ => "k3s",
    };
    let file = named.map_or_else(
        || PathBuf::from(format!("/etc/rancher/{name}/config.yaml")),
        |(_, value)| PathBuf::from(value),
    );
    let overrides_files = words.iter().any(|word| {
        word.contains(ENDPOINT_ARGUMENT) && word.contains("kubelet-arg")
            || word.starts_with(ENDPOINT_ARGUMENT)
    });
    if overrides_files {
        return Err(DetectError::CommandLine {
            unit,
            flag: format!("kubelet-arg {}", ENDPOINT_ARGUMENT.trim_end_matches('=')),
            endpoint: "criscope's socket".to_owned(),
        });
    }
    let directory = directory(&file);
    let ours = directory.join("zz-criscope.yaml");
    let mut node = RancherConfig::default();
    node.add_flags(&words);
    let files = root.names(&directory, &["yaml", "yml"]);
    for path in std::iter::once(file).chain(files) {
        node.add(root, &path)?;
    }
    let name = node.name.take();
    let (endpoint, source) = node.endpoint();
    Ok(DetectedKubelet {
        distribution,
        unit,
        state,
        runtime: socket(&endpoint)?,
        source,
        places: vec![(RUNTIME_ENDPOINT, SettingPlace::Rancher(ours))],
        node: name,
        notes: Vec::new(),
    })
}

/// The directory `config.yaml.d` next to `config.yaml`.
fn directory(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(".d");
    file.with_file_name(name)
}

/// Settings of the runtime in the configuration; later files win.
#[derive(Default)]
struct RancherConfig {
    /// The endpoint among the kubelet's arguments.
    argument: Option<(String, String)>,
    endpoint: Option<(String, String)>,
    docker: bool,
    name: Option<String>,
}

impl RancherConfig {
    fn add_flags(&mut self, words: &[String]) {
        let name = flag::last_in_words(words, NODE_NAME_FLAG);
        self.name = name.map(|(_, name)| name.to_owned());
        if let Some((_, value)) = flag::last_in_words(words, RUNTIME_ENDPOINT.flag) {
            self.endpoint = Some((value.to_owned(), "its command line".to_owned()));
        }
        self.docker = words.iter().any(|word| word == "--docker");
    }

    fn add(&mut self, root: &FilesystemRoot, path: &Path) -> Result<(), DetectError> {
        let Some(text) = root.text(path)? else {
            return Ok(());
        };
        if text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim().starts_with('#'))
        {
            return Ok(());
        }
        let value: Value = serde_saphyr::from_str(&text).map_err(|_| DetectError::Edit {
            path: path.to_owned(),
            // The parser quotes the file, which has the cluster's token.
            source: TextEditError::Unreadable("not valid YAML".to_owned()),
        })?;
        let shown = path.display().to_string();
        for key in ["kubelet-arg", "kubelet-arg+"] {
            let arguments = match value.get(key) {
                Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
                Some(Value::String(one)) => vec![one.as_str()],
                _ => continue,
            };
            if !key.ends_with('+') {
                self.argument = None;
            }
            let arguments = arguments
                .into_iter()
                .map(|argument| argument.trim_start_matches('-'));
            if let Some(found) = arguments
                .filter_map(|argument| argument.strip_prefix(ENDPOINT_ARGUMENT))
                .next_back()
            {
                self.argument = Some((found.to_owned(), shown.clone()));
            }
        }
        let endpoint = value.get(RUNTIME_ENDPOINT.flag.trim_start_matches('-'));
        if let Some(endpoint) = endpoint.and_then(Value::as_str) {
            self.endpoint = Some((endpoint.to_owned(), shown));
        }
        let name = value.get(NODE_NAME_FLAG.trim_start_matches('-'));
        if let Some(name) = name.and_then(Value::as_str) {
            self.name = Some(name.to_owned());
        }
        self.docker |= value.get("docker") == Some(&Value::Bool(true));
        Ok(())
    }

    fn endpoint(self) -> (String, String) {
        let default = if self.docker {
            (CRI_DOCKERD_SOCKET.to_owned(), "its cri-dockerd".to_owned())
        } else {
            (
                CONTAINERD_SOCKET.to_owned(),
                "its own containerd".to_owned(),
            )
        };
        self.argument.or(self.endpoint).unwrap_or(default)
    }
}

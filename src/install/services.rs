//! criscope's own programs, units and configuration.

use std::path::{Path, PathBuf};

use super::config;
use super::detect::{DetectedKubelet, WRITTEN_BY_INSTALL};
use super::journal::ChangeGroup;
use super::machine::NodeOperations;
use super::plan::{
    InstallMode, InstallOptions, PlanError, PlannedContent, PlannedEdit, PlannedSockets,
};
use super::root::FilesystemRoot;
use crate::settings::show_endpoint;

const PROXY_SERVICE: &str = include_str!("../../deploy/systemd/criscope.service");
const RUNTIME_SERVICE: &str = include_str!("../../deploy/systemd/criscope-runtime.service");
const HANDOVER_SERVICE: &str = include_str!("../../deploy/systemd/criscope-handover.service");
const SOCKET_UNIT: &str = include_str!("../../deploy/systemd/criscope.socket");
const RECOVER_SERVICE: &str = include_str!("../../deploy/systemd/criscope-recover.service");

/// The unit by which a restart hands over; criscope's unit wants it.
const HANDOVER_UNIT: &str = "criscope-handover.service";

/// Drop-in with the names of Node and cluster, for criscope's exports.
const IDENTITY_DROP_IN: &str = "/etc/systemd/system/criscope.service.d/criscope-identity.conf";
const CLUSTER_NAME_ASSIGNMENT: &str = "OTEL_RESOURCE_ATTRIBUTES=k8s.cluster.name=";

/// The socket of the daemon that pods of criscope-agent read, in the directory that they mount.
pub const AGENT_SOCKET: &str = "unix:///run/criscope/agent/criscope.sock";

/// Directory of the socket for criscope-agent.
pub(super) const AGENT_DIRECTORY: &str = "/run/criscope/agent";

/// The drop-in file with that socket.
const AGENT_DROP_IN: &str = "/etc/criscope/conf.d/50-agent.toml";

/// The program in the units.
const UNIT_PROGRAM: &str = "/usr/local/bin/criscope";
const SHIM_PROGRAM: &str = "criscope-shim";

pub(super) const SYSTEMD_DIRECTORY: &str = "/etc/systemd/system";
/// Units of packages; on older systems /lib is another directory.
const PACKAGE_UNIT_DIRECTORIES: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

pub(super) fn edits(
    root: &FilesystemRoot,
    options: &InstallOptions,
    sockets: &PlannedSockets,
    kubelet: &DetectedKubelet,
) -> Result<Vec<PlannedEdit>, PlanError> {
    let mut edits = Vec::new();
    let program = programs(options, &mut edits)?;
    let program = program.display().to_string();

    let recover = PathBuf::from(format!("{SYSTEMD_DIRECTORY}/criscope-recover.service"));
    let before = format!("Before=criscope.service {} ", kubelet.unit);
    let mut unit = RECOVER_SERVICE.replace(UNIT_PROGRAM, &program);
    if !RECOVER_SERVICE.contains(&format!("{} ", kubelet.unit)) {
        unit = unit.replace("Before=criscope.service ", &before);
    }
    edits.push(text_file(recover.clone(), unit, ChangeGroup::Program));
    edits.push(wants_link(
        "multi-user.target",
        &recover,
        ChangeGroup::Program,
    ));

    let service = match options.mode {
        InstallMode::Runtime => RUNTIME_SERVICE,
        InstallMode::Front | InstallMode::TakeOver => PROXY_SERVICE,
    };
    let listen = show_endpoint(&sockets.endpoint);
    let listen = listen.trim_start_matches("unix://");
    let socket = SOCKET_UNIT.replace(config::DEFAULT_LISTEN, listen);
    edits.push(text_file(
        config::CONFIG_PATH.into(),
        sockets.config.clone(),
        ChangeGroup::Service,
    ));
    if options.agent {
        let drop_in = format!("{WRITTEN_BY_INSTALL}[admin]\nagent_socket = {AGENT_SOCKET:?}\n");
        let path = AGENT_DROP_IN.into();
        edits.push(text_file(path, drop_in, ChangeGroup::Service));
    }
    let service = service.replace(UNIT_PROGRAM, &program);
    for (name, unit, target) in [
        ("criscope.service", service, "multi-user.target"),
        ("criscope.socket", socket, "sockets.target"),
    ] {
        let path = match packaged(root, name, &unit)? {
            Some(path) => path,
            None => {
                let path = PathBuf::from(format!("{SYSTEMD_DIRECTORY}/{name}"));
                edits.push(text_file(path.clone(), unit, ChangeGroup::Service));
                path
            }
        };
        edits.push(wants_link(target, &path, ChangeGroup::Service));
    }
    if options.mode != InstallMode::Runtime
        && packaged(root, HANDOVER_UNIT, HANDOVER_SERVICE)?.is_none()
    {
        let path = format!("{SYSTEMD_DIRECTORY}/{HANDOVER_UNIT}").into();
        let unit = HANDOVER_SERVICE.to_owned();
        edits.push(text_file(path, unit, ChangeGroup::Service));
    }
    if let Some(identity) = identity(root, options, kubelet)? {
        let path = IDENTITY_DROP_IN.into();
        edits.push(text_file(path, identity, ChangeGroup::Service));
    }
    Ok(edits)
}

/// Returns whether a restart of criscope hands over on this node.
pub fn hands_over(node: &impl NodeOperations) -> bool {
    let is_active = node.systemctl(&["--quiet", "is-active", HANDOVER_UNIT]);
    is_active.is_ok()
}

fn text_file(path: PathBuf, text: String, group: ChangeGroup) -> PlannedEdit {
    PlannedEdit {
        path,
        group,
        content: PlannedContent::Text(text, 0o644),
    }
}

/// The link by which a target of systemd starts a unit.
fn wants_link(target: &str, unit: &Path, group: ChangeGroup) -> PlannedEdit {
    PlannedEdit {
        path: Path::new(SYSTEMD_DIRECTORY)
            .join(format!("{target}.wants"))
            .join(unit.file_name().unwrap_or_default()),
        group,
        content: PlannedContent::Link(unit.to_owned()),
    }
}

/// A drop-in with the names of Node and cluster, where they are known and not those of the unit. A cluster that an earlier
/// installation was told stays.
fn identity(
    root: &FilesystemRoot,
    options: &InstallOptions,
    kubelet: &DetectedKubelet,
) -> Result<Option<String>, PlanError> {
    let before = root.text(IDENTITY_DROP_IN)?.unwrap_or_default();
    let told = before
        .lines()
        .find_map(|line| line.split_once(CLUSTER_NAME_ASSIGNMENT));
    let cluster = options.cluster.as_deref().or(told.map(|(_, name)| name));
    let node = kubelet.node.as_deref().filter(|name| is_name(name));
    let node = node.map(|node| format!("Environment=NODE_NAME={node}\n"));
    let cluster = cluster.filter(|name| is_name(name));
    let cluster =
        cluster.map(|cluster| format!("Environment={CLUSTER_NAME_ASSIGNMENT}{cluster}\n"));
    let lines: String = node.into_iter().chain(cluster).collect();
    Ok((!lines.is_empty()).then(|| format!("{WRITTEN_BY_INSTALL}[Service]\n{lines}")))
}

/// Returns whether a name needs no quotes and escapes in a unit and in a list of attributes.
pub fn is_name(name: &str) -> bool {
    let mut characters = name.chars();
    !name.is_empty()
        && name.len() <= 253
        && characters.all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
}

/// A unit of a package, if it does the same and none in /etc overrides it.
fn packaged(root: &FilesystemRoot, name: &str, unit: &str) -> Result<Option<PathBuf>, PlanError> {
    if root.has(format!("{SYSTEMD_DIRECTORY}/{name}")) {
        return Ok(None);
    }
    for directory in PACKAGE_UNIT_DIRECTORIES {
        let path = Path::new(directory).join(name);
        if root
            .text(&path)?
            .is_some_and(|text| settings(&text) == settings(unit))
        {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// A unit without its comments.
fn settings(unit: &str) -> Vec<&str> {
    let lines = unit.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with(['#', ';']))
        .collect()
}

/// The path of the program in the units. One that runs from elsewhere, such as a download or a volume of a pod, is copied.
fn programs(options: &InstallOptions, edits: &mut Vec<PlannedEdit>) -> Result<PathBuf, PlanError> {
    let program = &options.program;
    let shim = program.with_file_name(SHIM_PROGRAM);
    if options.mode == InstallMode::Runtime && !shim.exists() {
        return Err(PlanError::NoShim(shim));
    }
    if ["/usr/", "/opt/"]
        .iter()
        .any(|stays| program.starts_with(stays))
    {
        return Ok(program.clone());
    }
    edits.push(program_copy(program, UNIT_PROGRAM.into()));
    if shim.exists() {
        let path = Path::new(UNIT_PROGRAM).with_file_name(SHIM_PROGRAM);
        edits.push(program_copy(&shim, path));
    }
    Ok(UNIT_PROGRAM.into())
}

fn program_copy(from: &Path, path: PathBuf) -> PlannedEdit {
    PlannedEdit {
        path,
        group: ChangeGroup::Program,
        content: PlannedContent::Program(from.to_owned()),
    }
}

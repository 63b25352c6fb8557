//! criscope's own programs, units and configuration.

use std::path::{Path, PathBuf};

use super::config;
use super::detect::{DetectedKubelet, WRITTEN};
use super::journal::ChangeGroup;
use super::plan::{
    InstallMode, InstallOptions, PlanError, PlannedContent, PlannedEdit, PlannedSockets,
};
use super::root::FilesystemRoot;
use crate::settings::show_endpoint;

const PROXY: &str = include_str!("../../deploy/systemd/criscope.service");
const RUNTIME: &str = include_str!("../../deploy/systemd/criscope-runtime.service");
const SOCKET: &str = include_str!("../../deploy/systemd/criscope.socket");
const RECOVER: &str = include_str!("../../deploy/systemd/criscope-recover.service");

/// What the exports of criscope say about where it runs.
const IDENTITY: &str = "/etc/systemd/system/criscope.service.d/criscope-identity.conf";
const CLUSTER: &str = "OTEL_RESOURCE_ATTRIBUTES=k8s.cluster.name=";

/// The socket of the daemon that pods of criscope-agent read, in the directory that they mount.
pub const AGENT_SOCKET: &str = "unix:///run/criscope/agent/criscope.sock";

/// That directory.
pub(super) const AGENT_DIRECTORY: &str = "/run/criscope/agent";

/// The drop-in file with that socket.
const AGENT: &str = "/etc/criscope/conf.d/50-agent.toml";

/// The program in the units.
const PROGRAM: &str = "/usr/local/bin/criscope";
const SHIM: &str = "criscope-shim";

const ETC: &str = "/etc/systemd/system";
/// Units of packages; on older systems /lib is another directory.
const PACKAGED: [&str; 2] = ["/usr/lib/systemd/system", "/lib/systemd/system"];

pub(super) fn edits(
    root: &FilesystemRoot,
    options: &InstallOptions,
    sockets: &PlannedSockets,
    kubelet: &DetectedKubelet,
) -> Result<Vec<PlannedEdit>, PlanError> {
    let mut edits = Vec::new();
    let program = programs(options, &mut edits)?;
    let text = |path: &str, text: String, group| PlannedEdit {
        path: path.into(),
        group,
        content: PlannedContent::Text(text, 0o644),
    };
    let link = |target: &str, unit: &Path, group| PlannedEdit {
        path: Path::new(ETC)
            .join(format!("{target}.wants"))
            .join(unit.file_name().unwrap_or_default()),
        group,
        content: PlannedContent::Link(unit.to_owned()),
    };
    let named = |unit: &str| unit.replace(PROGRAM, &program.display().to_string());

    let recover = PathBuf::from(format!("{ETC}/criscope-recover.service"));
    let before = format!("Before=criscope.service {} ", kubelet.unit);
    let unit = match RECOVER.contains(&format!("{} ", kubelet.unit)) {
        true => named(RECOVER),
        false => named(RECOVER).replace("Before=criscope.service ", &before),
    };
    edits.push(text(
        &recover.display().to_string(),
        unit,
        ChangeGroup::Program,
    ));
    edits.push(link("multi-user.target", &recover, ChangeGroup::Program));

    let service = match options.mode {
        InstallMode::Runtime => RUNTIME,
        InstallMode::Front | InstallMode::TakeOver => PROXY,
    };
    let listen = show_endpoint(&sockets.endpoint);
    let listen = listen.trim_start_matches("unix://");
    let socket = SOCKET.replace(config::ENDPOINT, listen);
    edits.push(text(
        config::PATH,
        sockets.config.clone(),
        ChangeGroup::Service,
    ));
    if options.agent {
        let drop_in = format!("{WRITTEN}[admin]\nagent_socket = {AGENT_SOCKET:?}\n");
        edits.push(text(AGENT, drop_in, ChangeGroup::Service));
    }
    for (name, unit, target) in [
        ("criscope.service", named(service), "multi-user.target"),
        ("criscope.socket", socket, "sockets.target"),
    ] {
        let path = match packaged(root, name, &unit)? {
            Some(path) => path,
            None => {
                let path = PathBuf::from(format!("{ETC}/{name}"));
                edits.push(text(
                    &path.display().to_string(),
                    unit,
                    ChangeGroup::Service,
                ));
                path
            }
        };
        edits.push(link(target, &path, ChangeGroup::Service));
    }
    if let Some(identity) = identity(root, options, kubelet)? {
        edits.push(text(IDENTITY, identity, ChangeGroup::Service));
    }
    Ok(edits)
}

/// A drop-in with the names of Node and cluster, where they are known and not those of the unit. A cluster that an earlier
/// installation was told stays.
fn identity(
    root: &FilesystemRoot,
    options: &InstallOptions,
    kubelet: &DetectedKubelet,
) -> Result<Option<String>, PlanError> {
    let before = root.text(IDENTITY)?.unwrap_or_default();
    let told = before.lines().find_map(|line| line.split_once(CLUSTER));
    let cluster = options.cluster.as_deref().or(told.map(|(_, name)| name));
    let node = kubelet.node.as_deref().filter(|name| is_name(name));
    let node = node.map(|node| format!("Environment=NODE_NAME={node}\n"));
    let cluster = cluster.filter(|name| is_name(name));
    let cluster = cluster.map(|cluster| format!("Environment={CLUSTER}{cluster}\n"));
    let lines: String = node.into_iter().chain(cluster).collect();
    Ok((!lines.is_empty()).then(|| format!("{WRITTEN}[Service]\n{lines}")))
}

/// Returns whether a name needs no quotes and escapes in a unit and in a list of attributes.
pub fn is_name(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= 253 && name.chars().all(is_plain)
}

/// A unit of a package, if it does the same and none in /etc overrides it.
fn packaged(root: &FilesystemRoot, name: &str, unit: &str) -> Result<Option<PathBuf>, PlanError> {
    if root.has(format!("{ETC}/{name}")) {
        return Ok(None);
    }
    for directory in PACKAGED {
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
    let shim = program.with_file_name(SHIM);
    if options.mode == InstallMode::Runtime && !shim.exists() {
        return Err(PlanError::NoShim(shim));
    }
    if ["/usr/", "/opt/"]
        .iter()
        .any(|stays| program.starts_with(stays))
    {
        return Ok(program.clone());
    }
    let mut copy = |from: &Path, to: PathBuf| {
        edits.push(PlannedEdit {
            path: to,
            group: ChangeGroup::Program,
            content: PlannedContent::Program(from.to_owned()),
        });
    };
    copy(program, PROGRAM.into());
    if shim.exists() {
        copy(&shim, Path::new(PROGRAM).with_file_name(SHIM));
    }
    Ok(PROGRAM.into())
}

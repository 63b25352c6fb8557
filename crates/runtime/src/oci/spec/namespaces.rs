//! The namespaces of a container, by mode.

use std::path::PathBuf;

use oci_spec::runtime::{
    LinuxIdMapping, LinuxIdMappingBuilder, LinuxNamespace, LinuxNamespaceType as Type,
};

use super::build::Request;
use super::error::SpecError;
use super::facts::CgroupVersion;
use criscope_cri::v1::{IdMapping, NamespaceMode, UserNamespace};

/// Namespaces, and the mappings of the user namespace.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    pub(super) list: Vec<LinuxNamespace>,
    pub(super) uids: Option<Vec<LinuxIdMapping>>,
    pub(super) gids: Option<Vec<LinuxIdMapping>>,
}

fn namespace(typ: Type, path: Option<PathBuf>) -> LinuxNamespace {
    let mut namespace = LinuxNamespace::default();
    namespace.set_typ(typ).set_path(path);
    namespace
}

fn mode(value: i32) -> Result<NamespaceMode, SpecError> {
    NamespaceMode::try_from(value)
        .map_err(|_| SpecError::Invalid(format!("unknown namespace mode {value}")))
}

pub(super) fn mappings(list: &[IdMapping]) -> Result<Vec<LinuxIdMapping>, SpecError> {
    list.iter()
        .map(|mapping| {
            LinuxIdMappingBuilder::default()
                .host_id(mapping.host_id)
                .container_id(mapping.container_id)
                .size(mapping.length)
                .build()
                .map_err(|error| SpecError::Invalid(error.to_string()))
        })
        .collect()
}

/// The namespaces that a container joins or creates. Network, IPC and UTS are those of the sandbox, or of the host if the
/// sandbox has none.
pub(super) fn namespaces(request: &Request<'_>) -> Result<Namespaces, SpecError> {
    let options = request.context().namespace_options.as_ref();
    let sandbox = request.sandbox;
    let mut all = Namespaces::default();
    all.list.push(namespace(Type::Mount, None));
    for (typ, path) in [
        (Type::Network, &sandbox.network),
        (Type::Ipc, &sandbox.ipc),
        (Type::Uts, &sandbox.uts),
    ] {
        if path.is_some() {
            all.list.push(namespace(typ, path.clone()));
        }
    }
    match mode(options.map_or(NamespaceMode::Pod as i32, |options| options.pid))? {
        NamespaceMode::Node => {}
        NamespaceMode::Container => all.list.push(namespace(Type::Pid, None)),
        // The PID namespace of the pod is the host's. The kubelet sends NODE to such containers too; a container that names no
        // mode has this one, the enum's zero, and containerd starts it.
        NamespaceMode::Pod if request.pod_shares_host_pids() => {}
        NamespaceMode::Pod => {
            let Some(path) = &sandbox.pid else {
                return Err(SpecError::Invalid(
                    "the sandbox has no shared PID namespace".to_owned(),
                ));
            };
            all.list.push(namespace(Type::Pid, Some(path.clone())));
        }
        NamespaceMode::Target => {
            let Some(path) = &sandbox.target_pid else {
                return Err(SpecError::Invalid(
                    "the target container is not running in this pod".to_owned(),
                ));
            };
            all.list.push(namespace(Type::Pid, Some(path.clone())));
        }
    }
    if request.node.cgroup_version == CgroupVersion::V2 && !request.context().privileged {
        all.list.push(namespace(Type::Cgroup, None));
    }
    let own = options.and_then(|options| options.userns_options.as_ref());
    if let Some((uids, gids)) = user_namespace(request.sandbox_userns(), own)? {
        let Some(path) = &sandbox.user else {
            return Err(SpecError::Invalid(
                "the sandbox has no user namespace".to_owned(),
            ));
        };
        all.list.push(namespace(Type::User, Some(path.clone())));
        all.uids = Some(uids);
        all.gids = Some(gids);
    }
    Ok(all)
}

type Mappings = (Vec<LinuxIdMapping>, Vec<LinuxIdMapping>);

/// The id mappings of a container; `None` in the host's user namespace. They must be those of the sandbox: one mapping each,
/// which includes id 0.
fn user_namespace(
    sandbox: Option<&UserNamespace>,
    own: Option<&UserNamespace>,
) -> Result<Option<Mappings>, SpecError> {
    let wanted = checked(sandbox)?;
    if wanted != checked(own)? {
        return Err(SpecError::Invalid(
            "the user namespace of the container differs from the sandbox's".to_owned(),
        ));
    }
    Ok(wanted)
}

/// The validated uid and gid mappings of a pod; `None` for the host's user namespace.
///
/// # Errors
/// [`SpecError::Invalid`] if they are invalid or not supported.
pub fn user_mappings(options: Option<&UserNamespace>) -> Result<Option<Mappings>, SpecError> {
    checked(options)
}

/// Validates the user namespace options.
fn checked(options: Option<&UserNamespace>) -> Result<Option<Mappings>, SpecError> {
    let Some(options) = options else {
        return Ok(None);
    };
    match mode(options.mode)? {
        NamespaceMode::Node if options.uids.is_empty() && options.gids.is_empty() => Ok(None),
        NamespaceMode::Node => Err(invalid("mappings with mode NODE")),
        NamespaceMode::Pod => {
            for list in [&options.uids, &options.gids] {
                let [one] = list.as_slice() else {
                    return Err(invalid(
                        "exactly one uid mapping and one gid mapping are required",
                    ));
                };
                if one.container_id != 0 || one.length == 0 {
                    return Err(invalid("the mapping must begin at id 0 and have a length"));
                }
                if one.host_id.checked_add(one.length).is_none() {
                    return Err(invalid("the mapping exceeds the highest id"));
                }
            }
            Ok(Some((mappings(&options.uids)?, mappings(&options.gids)?)))
        }
        NamespaceMode::Container | NamespaceMode::Target => {
            Err(invalid("only modes POD and NODE are supported"))
        }
    }
}

fn invalid(reason: &str) -> SpecError {
    SpecError::Invalid(format!("user namespace: {reason}"))
}

//! All rules put together.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Linux, Root, Spec, SpecBuilder};

use super::annotations::annotations;
use super::cgroup::cgroup_path;
use super::error::SpecError;
use super::facts::{HandlerOptions, ImageConfig, NodeFacts, SandboxFacts};
use super::host::Host;
use super::mounts::Propagation;
use super::user::{ResolvedUser, UserDatabase, resolve_user};
use super::{cdi, devices, mounts, namespaces, process, resources, seccomp};
use crate::cri::v1::{
    ContainerConfig, LinuxContainerSecurityContext, LinuxSandboxSecurityContext, PodSandboxConfig,
    UserNamespace,
};

/// The version all runtimes in use take; Debian's crun 1.8 refuses any above 1.0.
const OLDEST: &str = "1.0.2";
/// The version that first has mounts with id mappings.
const WITH_ID_MAPPED_MOUNTS: &str = "1.1.0";

/// A context for requests that have none.
static NO_CONTEXT: std::sync::LazyLock<LinuxContainerSecurityContext> =
    std::sync::LazyLock::new(LinuxContainerSecurityContext::default);

/// All a specification is made of.
pub struct Request<'a> {
    /// The id of the container.
    pub id: &'a str,
    /// The configuration of the sandbox.
    pub pod: &'a PodSandboxConfig,
    /// The configuration of the container.
    pub container: &'a ContainerConfig,
    /// The configuration of its image.
    pub image: &'a ImageConfig,
    /// The root file system, made by the caller.
    pub rootfs: &'a Path,
    /// The user and group tables in it.
    pub users: &'a UserDatabase,
    /// What the node can.
    pub node: &'a NodeFacts,
    /// What the sandbox has.
    pub sandbox: &'a SandboxFacts,
    /// The settings of the handler.
    pub handler: &'a HandlerOptions,
    /// Where to look things up.
    pub host: &'a dyn Host,
    /// The CDI devices the node knows; empty without any.
    pub cdi: &'a cdi::Registry,
}

impl std::fmt::Debug for Request<'_> {
    /// The id only: configurations hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Request<'_> {
    /// The security context of the container.
    pub(super) fn context(&self) -> &LinuxContainerSecurityContext {
        let linux = self.container.linux.as_ref();
        linux
            .and_then(|linux| linux.security_context.as_ref())
            .unwrap_or(&NO_CONTEXT)
    }

    fn sandbox_context(&self) -> Option<&LinuxSandboxSecurityContext> {
        self.pod.linux.as_ref()?.security_context.as_ref()
    }

    pub(super) fn sandbox_userns(&self) -> Option<&UserNamespace> {
        let options = self.sandbox_context()?.namespace_options.as_ref()?;
        options.userns_options.as_ref()
    }
}

/// What the caller does before the container is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Make this directory, 0755, with its parents.
    CreateDirectory(PathBuf),
    /// The mount this path lies on must propagate at least so; see [`super::propagation_of`].
    RequirePropagation {
        /// The source of the mount.
        path: PathBuf,
        /// Slave is satisfied by shared too.
        at_least: Propagation,
    },
    /// Give the files below this path an SELinux label; a file system that has none is no error.
    Relabel {
        /// The source of the mount.
        path: PathBuf,
        /// The label.
        label: String,
    },
}

/// A specification and what goes with it.
#[derive(Debug)]
pub struct Built {
    /// What is written to `config.json`. It holds the environment: never print it.
    pub spec: Spec,
    /// What is to be done first, in order.
    pub actions: Vec<Action>,
    /// The user the container runs as, for ContainerStatus.
    pub user: ResolvedUser,
}

/// Makes the specification of a container.
pub fn build(request: &Request<'_>) -> Result<Built, SpecError> {
    check(request)?;
    let context = request.context();
    let user = resolve_user(context, &request.image.user, request.users)?;
    let mut mounts = mounts::mounts(request)?;
    let mut root = Root::default();
    root.set_path(request.rootfs.to_owned())
        .set_readonly(Some(context.readonly_rootfs));
    let version = if mounts.id_mapped {
        WITH_ID_MAPPED_MOUNTS
    } else {
        OLDEST
    };
    let mut spec = SpecBuilder::default()
        .version(version)
        .root(root)
        .process(process::process(request, &user)?)
        .mounts(std::mem::take(&mut mounts.list))
        .annotations(annotations(request))
        .linux(linux(request, mounts.rootfs_propagation.take())?)
        .build()
        .map_err(|error| SpecError::Invalid(error.to_string()))?;
    // The library's sample has one; the sandbox's name is already set, and runc refuses to set it in a joined namespace.
    spec.set_hostname(None).set_domainname(None);
    cdi::apply(request, &mut spec)?;
    Ok(Built {
        spec,
        actions: mounts.actions,
        user,
    })
}

/// What no single rule sees.
fn check(request: &Request<'_>) -> Result<(), SpecError> {
    let named = |metadata: bool, what: &str| match metadata {
        true => Ok(()),
        false => Err(SpecError::Invalid(format!("{what} config has no metadata"))),
    };
    named(request.pod.metadata.is_some(), "sandbox")?;
    named(request.container.metadata.is_some(), "container")?;
    let sandbox_privileged = request
        .sandbox_context()
        .is_some_and(|context| context.privileged);
    if request.context().privileged && !sandbox_privileged {
        return Err(SpecError::Invalid(
            "a privileged container needs a privileged sandbox".to_owned(),
        ));
    }
    if request.context().privileged && request.sandbox.user.is_some() {
        return Err(SpecError::Invalid(
            "a privileged container cannot have a user namespace".to_owned(),
        ));
    }
    Ok(())
}

fn linux(request: &Request<'_>, rootfs_propagation: Option<String>) -> Result<Linux, SpecError> {
    let context = request.context();
    let namespaces = namespaces::namespaces(request)?;
    let devices = devices::devices(request)?;
    let asked = request.container.linux.as_ref();
    let asked = asked
        .and_then(|linux| linux.resources.clone())
        .unwrap_or_default();
    let mut resources = resources::container_resources(&asked, request.node)?;
    resources.set_devices(Some(devices.rules));
    let parent = request.pod.linux.as_ref();
    let parent = parent.map_or("", |linux| linux.cgroup_parent.as_str());
    // Taken as they come: no path means none, and the kubelet sends the defaults.
    let paths = |list: &[String]| match context.privileged {
        true => Vec::new(),
        false => list.to_vec(),
    };
    let mut linux = Linux::default();
    linux
        .set_namespaces(Some(namespaces.list))
        .set_uid_mappings(namespaces.uids)
        .set_gid_mappings(namespaces.gids)
        .set_devices(Some(devices.nodes))
        .set_resources(Some(resources))
        .set_cgroups_path(Some(cgroup_path(
            parent,
            request.id,
            request.node.cgroup_driver,
        )?))
        .set_seccomp(seccomp::container_seccomp(
            context,
            request.node,
            request.host,
        )?)
        .set_masked_paths(Some(paths(&context.masked_paths)))
        .set_readonly_paths(Some(paths(&context.readonly_paths)))
        .set_mount_label(
            request
                .sandbox
                .mount_label
                .clone()
                .filter(|_| request.node.selinux),
        )
        .set_rootfs_propagation(rootfs_propagation);
    Ok(linux)
}

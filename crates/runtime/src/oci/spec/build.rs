//! Builds the specification by applying all rules.

use std::path::{Path, PathBuf};

use oci_spec::runtime::{Linux, Root, Spec, SpecBuilder};

use super::annotations::annotations;
use super::cgroup::cgroup_path;
use super::error::SpecError;
use super::facts::{ImageConfig, NodeFacts, SandboxFacts};
use super::host::Host;
use super::kernel_paths::kernel_paths;
use super::mounts::Propagation;
use super::user::{ResolvedUser, UserDatabase, resolve_user};
use super::{cdi, devices, hooks, mounts, namespaces, process, resources, seccomp};
use crate::sections::Handler;
use criscope_cri::v1::{
    ContainerConfig, LinuxContainerSecurityContext, NamespaceMode, PodSandboxConfig, UserNamespace,
};

/// A version that all common runtimes accept; Debian's crun 1.8 refuses any above 1.0.
const OLDEST: &str = "1.0.2";
/// The first version with id-mapped mounts.
const WITH_ID_MAPPED_MOUNTS: &str = "1.1.0";

/// The security context of requests without one.
static NO_CONTEXT: std::sync::LazyLock<LinuxContainerSecurityContext> =
    std::sync::LazyLock::new(LinuxContainerSecurityContext::default);

/// The inputs of a specification.
pub struct Request<'a> {
    /// The id of the container.
    pub id: &'a str,
    /// The configuration of the sandbox.
    pub pod: &'a PodSandboxConfig,
    /// The configuration of the container.
    pub container: &'a ContainerConfig,
    /// The configuration of its image.
    pub image: &'a ImageConfig,
    /// The root file system, mounted by the caller.
    pub rootfs: &'a Path,
    /// The user and group databases in it.
    pub users: &'a UserDatabase,
    /// The facts of the node.
    pub node: &'a NodeFacts,
    /// The facts of the sandbox.
    pub sandbox: &'a SandboxFacts,
    /// The settings of the handler.
    pub handler: &'a Handler,
    /// Access to the machine.
    pub host: &'a dyn Host,
    /// The CDI devices of the node.
    pub cdi: &'a cdi::Registry,
    /// The hooks of the node.
    pub hooks: &'a hooks::Registry,
}

impl std::fmt::Debug for Request<'_> {
    /// Only the id: configurations contain secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Request")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Request<'_> {
    /// The security context of the container.
    pub(super) fn context(&self) -> &LinuxContainerSecurityContext {
        self.container.security_context().unwrap_or(&NO_CONTEXT)
    }

    /// Returns whether the sandbox uses the PID namespace of the host.
    pub(super) fn pod_shares_host_pids(&self) -> bool {
        let options = self.pod.namespace_options();
        options.is_some_and(|options| options.pid == NamespaceMode::Node as i32)
    }

    pub(super) fn sandbox_userns(&self) -> Option<&UserNamespace> {
        self.pod.namespace_options()?.userns_options.as_ref()
    }
}

/// An action that the caller must perform before creating the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Create this directory and its parents, with mode 0755.
    CreateDirectory(PathBuf),
    /// Check that the mount of this path has at least this propagation; see [`super::propagation_of`].
    RequirePropagation {
        /// The source of the mount.
        path: PathBuf,
        /// The minimum; shared also satisfies slave.
        at_least: Propagation,
    },
    /// Set the SELinux label of the files below this path; ignored on file systems without labels.
    Relabel {
        /// The source of the mount.
        path: PathBuf,
        /// The label.
        label: String,
    },
}

/// A specification, its actions and its user.
#[derive(Debug)]
pub struct Built {
    /// The contents of `config.json`. It includes the environment: never print it.
    pub spec: Spec,
    /// The specification without hooks and CDI devices, with which the finished one is compared.
    pub requested: Spec,
    /// The actions, in order.
    pub actions: Vec<Action>,
    /// The user of the container, for ContainerStatus.
    pub user: ResolvedUser,
}

/// Builds the specification of a container.
pub fn build(request: &Request<'_>) -> Result<Built, SpecError> {
    check(request)?;
    let context = request.context();
    let user = resolve_user(context, request.image, request.users)?;
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
    // The library's default sets one; the sandbox already has its name, and runc refuses to set it in a joined namespace.
    spec.set_hostname(None).set_domainname(None);
    let requested = spec.clone();
    hooks::apply(request, &mut spec)?;
    cdi::apply(request, &mut spec)?;
    Ok(Built {
        spec,
        requested,
        actions: mounts.actions,
        user,
    })
}

/// Checks that involve more than one rule.
fn check(request: &Request<'_>) -> Result<(), SpecError> {
    if request.pod.metadata.is_none() {
        return Err(SpecError::Invalid(
            "sandbox config has no metadata".to_owned(),
        ));
    }
    if request.container.metadata.is_none() {
        return Err(SpecError::Invalid(
            "container config has no metadata".to_owned(),
        ));
    }
    let sandbox_privileged = request
        .pod
        .security_context()
        .is_some_and(|context| context.privileged);
    if request.context().privileged && !sandbox_privileged {
        return Err(SpecError::Invalid(
            "a privileged container needs a privileged sandbox".to_owned(),
        ));
    }
    Ok(())
}

fn linux(request: &Request<'_>, rootfs_propagation: Option<String>) -> Result<Linux, SpecError> {
    let context = request.context();
    let namespaces = namespaces::namespaces(request)?;
    let devices = devices::devices(request)?;
    let requested = request.container.resources().cloned().unwrap_or_default();
    let mut resources = resources::container_resources(&requested, request.node)?;
    resources.set_devices(Some(devices.rules));
    let parent = request.pod.linux.as_ref();
    let parent = parent.map_or("", |linux| linux.cgroup_parent.as_str());
    let paths = kernel_paths(request);
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
        .set_masked_paths(Some(paths.masked))
        .set_readonly_paths(Some(paths.read_only))
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

//! The root file system and the bundle of a container.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use criscope_cri::call::steps::RuntimeStep;
use criscope_cri::v1::PodSandboxConfig;
use criscope_linux::namespace::Kind;
use criscope_linux::rootfs::{self, IdMapped, MountRequest, Rootfs, VolumeLimits};

use super::image_volumes::{VolumeRequest, volume_places};
use super::volumes::error_of_image;
use super::working_directory::check_working_directory;
use crate::Runtime;
use crate::error::{Error, Result};
use crate::failpoint::{Failpoint, failpoint};
use crate::live::Live;
use crate::nri;
use crate::oci::spec::{
    self, Action, FinishRequest, ImageConfig, Machine, PluginChanges, Propagation, ResolvedUser,
    SandboxFacts, UserDatabase, build, propagation_of,
};
use crate::sandbox::files::hostname;
use crate::sandbox::namespaces::mappings;
use crate::selinux;
use crate::store::{ContainerRecord, SandboxRecord, disk};

/// Name of the specification file in a bundle (OCI runtime specification, "Filesystem Bundle").
pub(crate) const SPEC: &str = "config.json";

/// The inputs of a bundle. All methods block.
pub(super) struct Assembly {
    pub(super) runtime: Arc<Runtime>,
    /// The live settings at the beginning of the call.
    pub(super) live: Arc<Live>,
    pub(super) sandbox: Arc<SandboxRecord>,
    /// The configuration of the pod as of this call.
    pub(super) pod: PodSandboxConfig,
    pub(super) image: Arc<criscope_image::ImageConfig>,
    /// Layers of the image, from the bottom up.
    pub(super) layers: Vec<PathBuf>,
    /// Layers of images that are volumes, by container path.
    pub(super) volumes: Vec<(String, Vec<PathBuf>)>,
    /// Limits of the copies to the `Volumes` of the image.
    pub(super) volume_limits: VolumeLimits,
    /// The PID namespace of the target container (namespace mode TARGET).
    pub(super) target: Option<PathBuf>,
}

/// The parts of a bundle's specification that the record of the container repeats.
pub(super) struct Assembled {
    pub(super) user: ResolvedUser,
    /// `linux.cgroupsPath` of an NRI plugin.
    pub(super) cgroup_path: Option<PathBuf>,
}

impl Assembly {
    /// Mounts the root file system and volumes, and writes the bundle. On failure the caller removes the directory.
    pub(super) fn assemble(&self, dir: &Path, record: &ContainerRecord) -> Result<Assembled> {
        self.check_labels(record)?;
        self.let_mapped_users_pass()?;
        let steps = &self.runtime.steps;
        let (root, image_mounts, id_mapped) =
            steps.blocking_step(RuntimeStep::RootfsMount, || {
                let root = Rootfs::new(dir).mount(&MountRequest {
                    layers: self.layers.clone(),
                    read_only: false,
                    label: self.file_label(record),
                    ids: self.ids()?,
                })?;
                let checked = rootfs::check_kernel_dirs(&root);
                checked.map_err(|error| error_of_image(&record.image_name, error))?;
                let image_mounts = self.mount_volumes(dir, record)?;
                Ok::<_, Error>((root, image_mounts, self.mount_mapped(dir, record)?))
            })?;
        failpoint(Failpoint::ContainerRootfs);
        let mounts = SandboxFacts {
            image_mounts,
            id_mapped,
            mount_label: self.file_label(record),
            target_pid: self.target.clone(),
            ..self.runtime.sandbox_facts(&self.sandbox)
        };
        let assembled = steps.blocking_step(RuntimeStep::Spec, || {
            self.write_bundle(dir, record, &root, mounts)
        })?;
        failpoint(Failpoint::ContainerBundle);
        Ok(assembled)
    }

    /// Writes the specification and performs the actions that it requires on the node.
    fn write_bundle(
        &self,
        dir: &Path,
        record: &ContainerRecord,
        root: &Path,
        sandbox: SandboxFacts,
    ) -> Result<Assembled> {
        let sandbox = SandboxFacts {
            image_volumes: self.own_volumes(dir, root, record, &sandbox)?,
            ..sandbox
        };
        let users = UserDatabase::read_below(root)?;
        let mut built = self.specification(record, root, &users, &sandbox)?;
        let classes = &self.live.classes;
        classes.apply(&mut built.spec, &self.pod, &record.config)?;
        let adjusting = self.runtime.nri_create(&self.sandbox, record, &built.spec);
        // The work runs on a thread that may block, and plugins answer within their timeout.
        let adjusted = tokio::runtime::Handle::current().block_on(adjusting)?;
        let mut cgroup_path = None;
        let mut plugins = PluginChanges::default();
        if let Some(adjusted) = adjusted {
            plugins = nri::confinement_changes(&adjusted);
            let registry = self.cdi(!adjusted.cdi_devices.is_empty());
            let node = &self.live.settings.node;
            let more = nri::adjust(
                &mut built.spec,
                &adjusted,
                node,
                &Machine,
                &registry,
                classes,
            )?;
            built.actions.extend(more);
            let linux = built.spec.linux().as_ref();
            cgroup_path = linux.and_then(|linux| linux.cgroups_path().clone());
        }
        // The rules of the finished specification compare the groups of both.
        for spec in [&mut built.requested, &mut built.spec] {
            spec::protect_additional_groups(spec, &users)?;
        }
        self.mount_by_options(dir, &mut built.spec)?;
        // The OCI runtime recorded with the sandbox, which may not be the configured one.
        let handler = self.live.handlers.for_pod(&self.sandbox);
        let finishing = FinishRequest {
            requested: &built.requested,
            plugins,
            handler: &handler.settings,
            support: &handler.features.support,
            host: &Machine,
        };
        let changed = finishing.finish(&mut built.spec)?;
        if !changed.is_empty() {
            let changed = changed.join(", ");
            tracing::warn!(target: "criscope::runtime::container::bundle", event = "runtime.confinement", container.id = %record.id, spec.fields = changed, "NRI plugins or CDI devices replaced what the request confines a container with, or its mounts");
        }
        if let Some(filters) = &handler.filters {
            filters.fill(&mut built.spec);
        }
        check_working_directory(&mut built.spec, root, record)?;
        for action in &built.actions {
            act(action)?;
        }
        let text = serde_json::to_vec(&built.spec)
            .map_err(|error| Error::Internal(format!("specification: {error}")))?;
        write_private(&dir.join(SPEC), &text)?;
        let user = built.user;
        Ok(Assembled { user, cgroup_path })
    }

    /// The id mappings of the pod and its user namespace, if it has one.
    pub(super) fn ids(&self) -> Result<Option<IdMapped>> {
        let mappings = mappings(&self.sandbox)?;
        Ok(mappings.map(|mappings| IdMapped {
            namespace: self.runtime.pins.path(&self.sandbox.id, Kind::User),
            mappings,
        }))
    }

    /// Opens the way to the root file systems of containers for a pod with a user namespace. Without such a pod it stays closed.
    fn let_mapped_users_pass(&self) -> Result<()> {
        if self.ids()?.is_none() {
            return Ok(());
        }
        let paths = &self.runtime.settings.paths;
        disk::let_pass(paths.root())?;
        disk::let_pass(&paths.containers())
    }

    fn specification(
        &self,
        record: &ContainerRecord,
        root: &Path,
        users: &UserDatabase,
        sandbox: &SandboxFacts,
    ) -> Result<spec::Built> {
        let handler = self.live.handlers.get(&record.handler)?;
        let mut node = self.live.settings.node.clone();
        node.recursive_read_only = handler.features.recursive_read_only;
        let image = ImageConfig {
            name: record.image_name.clone(),
            entrypoint: self.image.entrypoint.clone(),
            cmd: self.image.cmd.clone(),
            env: self.image.env.clone(),
            user: self.image.user.clone(),
            working_dir: self.image.working_dir.clone(),
        };
        let cdi = self.cdi(spec::cdi::is_asked(&record.config));
        // Read for every container, so that changes need no restart.
        let hooks = spec::hooks::Registry::read(&self.live.settings.config.pods.hooks_dir);
        Ok(build(&spec::Request {
            id: &record.id,
            pod: &self.pod,
            container: &record.config,
            image: &image,
            rootfs: root,
            users,
            node: &node,
            sandbox,
            handler: &handler.settings,
            host: &Machine,
            cdi: &cdi,
            hooks: &hooks,
        })?)
    }

    /// The CDI devices of the node, unless none is needed.
    fn cdi(&self, needed: bool) -> spec::cdi::Registry {
        if needed {
            // Read for every container: devices and their CDI files may appear at any time.
            spec::cdi::Registry::read(&self.live.settings.config.pods.cdi_spec_dirs)
        } else {
            spec::cdi::Registry::default()
        }
    }

    /// The SELinux label of the container's files.
    pub(super) fn file_label(&self, record: &ContainerRecord) -> Option<String> {
        let context = record.config.security_context();
        let options = context.and_then(|context| context.selinux_options.as_ref());
        selinux::files_of(self.sandbox.mount_label.as_deref(), options)
    }

    /// Refuses SELinux options that make a label unknown to the loaded policy, before anything is mounted with it. Otherwise
    /// the OCI runtime fails, without naming the label.
    fn check_labels(&self, record: &ContainerRecord) -> Result<()> {
        let context = record.config.security_context();
        let (Some(labels), Some(context)) = (&self.runtime.labels, context) else {
            return Ok(());
        };
        let options = context.selinux_options.as_ref();
        let pod = self.sandbox.process_label.as_deref();
        let node = &self.live.settings.node;
        let process = spec::selinux_label(options, context.privileged, pod, node)?;
        let mut all = process.into_iter().chain(self.file_label(record));
        all.try_for_each(|label| labels.require(&label))
    }

    /// The directories of the image's `Volumes`, by where they are mounted.
    fn own_volumes(
        &self,
        dir: &Path,
        root: &Path,
        record: &ContainerRecord,
        sandbox: &SandboxFacts,
    ) -> Result<BTreeMap<String, PathBuf>> {
        let volumes = if self.live.settings.config.pods.ignore_image_defined_volumes {
            &[][..]
        } else {
            &self.image.volumes
        };
        let places = volume_places(&VolumeRequest {
            image: &record.image_name,
            volumes,
            root,
            mounts: &record.config.mounts,
            sandbox,
        })?;
        let places = places.iter().map(String::as_str);
        self.copy_volumes(root, places, dir, record)
    }
}

impl Runtime {
    /// The path of a namespace of a sandbox, if the file exists.
    pub(crate) fn pinned(&self, sandbox: &str, kind: Kind) -> Option<PathBuf> {
        Some(self.pins.path(sandbox, kind)).filter(|path| path.exists())
    }

    /// The namespaces and files of a sandbox, as they exist on the node. Blocks.
    pub(crate) fn sandbox_facts(&self, sandbox: &SandboxRecord) -> SandboxFacts {
        let id = &sandbox.id;
        let dir = self.settings.paths.sandbox(id);
        let shm = self.settings.paths.shm(id);
        let uts = self.pinned(id, Kind::Uts);
        // Not read from the hostname file, which the pod may write.
        let hostname = hostname(&sandbox.config, uts.is_some());
        SandboxFacts {
            id: id.clone(),
            network: self.pinned(id, Kind::Net),
            ipc: self.pinned(id, Kind::Ipc),
            uts,
            user: self.pinned(id, Kind::User),
            pid: self.pinned(id, Kind::Pid),
            hostname,
            hostname_path: Some(dir.join("hostname")),
            hosts_path: Some(dir.join("hosts")),
            resolv_path: Some(dir.join("resolv.conf")),
            shm_path: Some(if shm.exists() { shm } else { "/dev/shm".into() }),
            process_label: sandbox.process_label.clone(),
            ..SandboxFacts::default()
        }
    }
}

fn act(action: &Action) -> Result<()> {
    match action {
        Action::CreateDirectory(path) => {
            fs::create_dir_all(path).map_err(|e| Error::io("make", path, e))
        }
        Action::RequirePropagation { path, at_least } => {
            let table = Path::new("/proc/self/mountinfo");
            let text = fs::read_to_string(table).map_err(|e| Error::io("read", table, e))?;
            match propagation_of(&text, path) {
                Some(found) if satisfies(found, *at_least) => Ok(()),
                _ => Err(Error::invalid(format!(
                    "{} is not on a mount that is {}, as its propagation into the container requires",
                    path.display(),
                    match at_least {
                        Propagation::Shared => "shared",
                        Propagation::Slave | Propagation::Private => "shared or slave",
                    }
                ))),
            }
        }
        Action::Relabel { path, label } => Ok(rootfs::relabel(path, label)?),
    }
}

/// Returns whether the propagation of a mount is sufficient: a shared one also receives.
fn satisfies(found: Propagation, wanted: Propagation) -> bool {
    match wanted {
        Propagation::Private => true,
        Propagation::Slave => found != Propagation::Private,
        Propagation::Shared => found == Propagation::Shared,
    }
}

/// Replaces a file atomically, with mode 0600: a specification contains the environment.
pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<()> {
    let draft = path.with_extension("new");
    let written = write_new(&draft, content).and_then(|()| fs::rename(&draft, path));
    written.map_err(|e| Error::io("write", path, e))
}

/// Writes a draft, with mode 0600.
pub(super) fn write_new(draft: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(draft)
        .and_then(|mut file| file.write_all(content))
}

//! The mounts of a container: the kernel's file systems, the files of the sandbox, the mounts of the request.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use criscope_linux::mountinfo::unescape;
use criscope_linux::rootfs::lexical;
use oci_spec::runtime::Mount;

use super::build::{Action, Request};
use super::cgroup::cgroup_mount;
use super::error::SpecError;
use super::mount_options::AddedOptions;
use super::namespaces::mappings;
use criscope_cri::v1::{self, MountPropagation};

/// Mount propagation (mount_namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// None.
    Private,
    /// From the host to the container.
    Slave,
    /// In both directions.
    Shared,
}

/// Mounts and their requirements.
#[derive(Debug, Default)]
pub(super) struct Mounts {
    pub(super) list: Vec<Mount>,
    pub(super) rootfs_propagation: Option<String>,
    pub(super) actions: Vec<Action>,
    pub(super) id_mapped: bool,
}

pub(super) fn mount(destination: &str, typ: &str, source: &Path, options: &[&str]) -> Mount {
    let mut to = Mount::default();
    to.set_destination(PathBuf::from(destination))
        .set_typ(Some(typ.to_owned()))
        .set_source(Some(source.to_owned()))
        .set_options(Some(
            options.iter().map(|&option| option.to_owned()).collect(),
        ));
    to
}

/// All mounts, parents before children. A mount of the request replaces a default at the same path, and one at `/dev` all
/// defaults below it. Of two mounts at the same path the later one is used: the kubelet appends its own, such as the mount of the
/// termination message, to those of the pod, and containerd accepts both.
pub(super) fn mounts(request: &Request<'_>) -> Result<Mounts, SpecError> {
    let mut all = Mounts::default();
    let mut taken = HashSet::new();
    let mut requested = Vec::new();
    for mount in request.container.mounts.iter().rev() {
        if taken.insert(clean(&mount.container_path)?) {
            requested.push(mount);
        }
    }
    for requested in requested.into_iter().rev() {
        let mount = user_mount(request, requested, &mut all)?;
        all.list.push(mount);
    }
    let own_dev = taken.contains(Path::new("/dev"));
    let mut defaults = kernel_mounts(request);
    defaults.extend(sandbox_mounts(request));
    defaults.extend(image_volumes(request)?);
    defaults.retain(|mount| {
        let at = mount.destination();
        let hidden = own_dev && at.starts_with("/dev");
        !hidden && !taken.contains(at)
    });
    for mount in &defaults {
        if let Some(source) = mount.source()
            && is_written_for_pod(request, source)
        {
            relabel(request, source, &mut all);
        }
    }
    defaults.append(&mut all.list);
    defaults.sort_by_key(|mount| mount.destination().components().count());
    all.list = defaults;
    Ok(all)
}

/// The kernel's file systems.
fn kernel_mounts(request: &Request<'_>) -> Vec<Mount> {
    let privileged = request.context().privileged;
    let write = if privileged { "rw" } else { "ro" };
    let mut all = vec![
        kernel_mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        kernel_mount(
            "/dev",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        kernel_mount(
            "/dev/pts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
                "gid=5",
            ],
        ),
        kernel_mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
    ];
    // Only the owner of the network namespace can mount a new sysfs: with the host network the node's is bind mounted, and
    // read-only for a privileged container too.
    if request.sandbox.user.is_some() && request.sandbox.network.is_none() {
        let options = ["rbind", "nosuid", "noexec", "nodev", "ro"];
        all.push(mount("/sys", "bind", Path::new("/sys"), &options));
    } else {
        all.push(kernel_mount(
            "/sys",
            "sysfs",
            &["nosuid", "noexec", "nodev", write],
        ));
    }
    all.push(cgroup_mount(request));
    all
}

fn kernel_mount(path: &str, typ: &str, options: &[&str]) -> Mount {
    mount(path, typ, Path::new(typ), options)
}

/// The files of the sandbox; read-only in a container with a read-only root file system.
fn sandbox_mounts(request: &Request<'_>) -> Vec<Mount> {
    let sandbox = request.sandbox;
    let write = if request.context().readonly_rootfs {
        "ro"
    } else {
        "rw"
    };
    let files = [
        ("/etc/hostname", &sandbox.hostname_path, write),
        ("/etc/hosts", &sandbox.hosts_path, write),
        ("/etc/resolv.conf", &sandbox.resolv_path, write),
        ("/dev/shm", &sandbox.shm_path, "rw"),
    ];
    files
        .into_iter()
        .filter_map(|(at, path, write)| {
            let path = path.as_deref()?;
            let options = ["rbind", "rprivate", "nosuid", "nodev", "noexec", write];
            Some(mount(at, "bind", path, &options))
        })
        .collect()
}

/// The directories of the image's `Volumes`.
fn image_volumes(request: &Request<'_>) -> Result<Vec<Mount>, SpecError> {
    let volumes = request.sandbox.image_volumes.iter();
    volumes
        .map(|(path, source)| {
            let at = clean(path)?;
            let options = ["rbind", "rprivate", "rw"];
            Ok(mount(&at.to_string_lossy(), "bind", source, &options))
        })
        .collect()
}

/// True if a source is a file or directory that the runtime wrote for the pod or the container: the policy lets no container
/// write those without its label. `/dev/shm` is mounted with its label, or it is the node's.
fn is_written_for_pod(request: &Request<'_>, source: &Path) -> bool {
    let sandbox = request.sandbox;
    let files = [
        &sandbox.hostname_path,
        &sandbox.hosts_path,
        &sandbox.resolv_path,
    ];
    let volumes = sandbox.image_volumes.values();
    volumes
        .chain(files.into_iter().flatten())
        .any(|path| path == source)
}

/// Demands the label of the container's files for a source, if it has one. As with containerd and CRI-O, a container with
/// another level than its pod takes the pod's files from the others.
fn relabel(request: &Request<'_>, source: &Path, all: &mut Mounts) {
    if let Some(label) = &request.sandbox.mount_label
        && request.node.selinux
    {
        all.actions.push(Action::Relabel {
            path: source.to_owned(),
            label: label.clone(),
        });
    }
}

/// Returns a container path that is absolute and has no `.` and `..`.
fn clean(path: &str) -> Result<PathBuf, SpecError> {
    if path.is_empty() {
        return Err(SpecError::Invalid(
            "mount without a container path".to_owned(),
        ));
    }
    Ok(lexical(path))
}

/// Adds one mount of the request.
fn user_mount(
    request: &Request<'_>,
    requested: &v1::Mount,
    all: &mut Mounts,
) -> Result<Mount, SpecError> {
    let destination = clean(&requested.container_path)?;
    let source = source(request, requested, all)?;
    let propagation = MountPropagation::try_from(requested.propagation).map_err(|_| {
        SpecError::Invalid(format!(
            "unknown mount propagation {}",
            requested.propagation
        ))
    })?;
    let mut options = vec!["rbind".to_owned()];
    options.push(propagate(propagation, &source, all).to_owned());
    let added = AddedOptions::read(requested)?;
    options.push(write_mode(request, requested, propagation, &added)?.to_owned());
    options.extend(added.flags.into_iter().map(str::to_owned));
    if requested.selinux_relabel {
        relabel(request, &source, all);
    }
    let mut to = Mount::default();
    to.set_destination(destination)
        .set_typ(Some("bind".to_owned()))
        .set_source(Some(source))
        .set_options(Some(options));
    // The caller maps volumes, and images in a pod with a user namespace.
    let sandbox = request.sandbox;
    let mapped = sandbox.id_mapped.contains_key(&requested.container_path)
        || (sandbox.user.is_some() && sandbox.image_mounts.contains_key(&requested.container_path));
    if !mapped && (!requested.uid_mappings.is_empty() || !requested.gid_mappings.is_empty()) {
        if requested.uid_mappings.is_empty() || requested.gid_mappings.is_empty() {
            return Err(SpecError::Invalid(format!(
                "mount at {}: both uid and gid mappings are required",
                requested.container_path
            )));
        }
        to.set_uid_mappings(Some(mappings(&requested.uid_mappings)?));
        to.set_gid_mappings(Some(mappings(&requested.gid_mappings)?));
        all.id_mapped = true;
    }
    Ok(to)
}

/// The source of a mount: an image mounted by the caller, or a host path with its symbolic links resolved. The caller creates a
/// missing host path.
fn source(
    request: &Request<'_>,
    requested: &v1::Mount,
    all: &mut Mounts,
) -> Result<PathBuf, SpecError> {
    if requested
        .image
        .as_ref()
        .is_some_and(|image| !image.image.is_empty())
    {
        let mounted = request.sandbox.image_mounts.get(&requested.container_path);
        return mounted.cloned().ok_or_else(|| {
            SpecError::NotFound(format!(
                "the image of the mount at {} is not mounted",
                requested.container_path
            ))
        });
    }
    if let Some(mapped) = request.sandbox.id_mapped.get(&requested.container_path) {
        return Ok(mapped.clone());
    }
    let path = Path::new(&requested.host_path);
    if !path.is_absolute() {
        return Err(SpecError::Invalid(format!(
            "mount at {}: host path {:?} is not absolute",
            requested.container_path, requested.host_path
        )));
    }
    let found = request.host.resolve(path).map_err(|source| SpecError::Io {
        path: path.to_owned(),
        source,
    })?;
    Ok(found.unwrap_or_else(|| {
        all.actions.push(Action::CreateDirectory(path.to_owned()));
        path.to_owned()
    }))
}

/// The mount option for a propagation. The root file system needs it, too; the caller checks that the source's mount has it.
fn propagate(propagation: MountPropagation, source: &Path, all: &mut Mounts) -> &'static str {
    let (option, needs) = match propagation {
        MountPropagation::PropagationPrivate => return "rprivate",
        MountPropagation::PropagationHostToContainer => ("rslave", Propagation::Slave),
        MountPropagation::PropagationBidirectional => ("rshared", Propagation::Shared),
    };
    all.actions.push(Action::RequirePropagation {
        path: source.to_owned(),
        at_least: needs,
    });
    if all.rootfs_propagation.as_deref() != Some("rshared") {
        all.rootfs_propagation = Some(option.to_owned());
    }
    option
}

/// `rw`, `ro`, or `rro`, which requires a plain read-only mount without propagation.
fn write_mode(
    request: &Request<'_>,
    requested: &v1::Mount,
    propagation: MountPropagation,
    added: &AddedOptions,
) -> Result<&'static str, SpecError> {
    if requested.recursive_read_only {
        let at = &requested.container_path;
        if !requested.readonly || propagation != MountPropagation::PropagationPrivate {
            return Err(SpecError::Invalid(format!(
                "mount at {at}: recursive read-only needs read-only and private propagation"
            )));
        }
        if !request.node.recursive_read_only {
            return Err(SpecError::Unsupported(format!(
                "mount at {at}: this node does not support recursive read-only mounts"
            )));
        }
        return Ok("rro");
    }
    let image = requested
        .image
        .as_ref()
        .is_some_and(|image| !image.image.is_empty());
    Ok(if requested.readonly || image || added.is_read_only {
        "ro"
    } else {
        "rw"
    })
}

/// The propagation of the mount that contains a path, from the text of `/proc/self/mountinfo`; `None` if there is none.
pub fn propagation_of(mountinfo: &str, path: &Path) -> Option<Propagation> {
    let mut best: Option<(usize, Propagation)> = None;
    for line in mountinfo.lines() {
        let mut fields = line.split(' ');
        let Some(point) = fields.nth(4) else { continue };
        let point = unescape(point.as_bytes());
        if !path.starts_with(&point) {
            continue;
        }
        let tags: Vec<&str> = fields.skip(1).take_while(|field| *field != "-").collect();
        let propagation = if tags.iter().any(|tag| tag.starts_with("shared:")) {
            Propagation::Shared
        } else if tags.iter().any(|tag| tag.starts_with("master:")) {
            Propagation::Slave
        } else {
            Propagation::Private
        };
        // The last of several mounts at the same path is on top.
        let length = point.components().count();
        if best.is_none_or(|(longest, _)| length >= longest) {
            best = Some((length, propagation));
        }
    }
    best.map(|(_, propagation)| propagation)
}

//! The mounts of a container: the kernel's file systems, the sandbox's files, what the request asks.

use std::collections::HashSet;
use std::path::{Component, Path, PathBuf};

use criscope_linux::mountinfo::unescape;
use oci_spec::runtime::Mount;

use super::build::{Action, Request};
use super::error::SpecError;
use super::namespaces::mappings;
use crate::cri::v1::{self, MountPropagation};

/// How mounts travel between a host path and the rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Not at all.
    Private,
    /// From the host here.
    Slave,
    /// Both ways.
    Shared,
}

/// Mounts, and what they need.
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

/// All mounts, parents before children. What the request mounts takes the place of a default at the same path, and a mount at
/// `/dev` of everything below it. Of two at one path the later one stays: the kubelet appends its own, such as that of the
/// termination message, to those of the pod, and containerd takes both.
pub(super) fn mounts(request: &Request<'_>) -> Result<Mounts, SpecError> {
    let mut all = Mounts::default();
    let mut taken = HashSet::new();
    let mut asked = Vec::new();
    for mount in request.container.mounts.iter().rev() {
        if taken.insert(clean(&mount.container_path)?) {
            asked.push(mount);
        }
    }
    for asked in asked.into_iter().rev() {
        let mount = user_mount(request, asked, &mut all)?;
        all.list.push(mount);
    }
    let own_dev = taken.contains(Path::new("/dev"));
    let mut defaults = kernel_mounts(request);
    defaults.extend(sandbox_mounts(request));
    for (path, source) in &request.sandbox.image_volumes {
        defaults.push(mount(
            &clean(path)?.to_string_lossy(),
            "bind",
            source,
            &["rbind", "rprivate", "rw"],
        ));
    }
    defaults.retain(|mount| {
        let at = mount.destination();
        let hidden = own_dev && at.starts_with("/dev");
        !hidden && !taken.contains(at)
    });
    defaults.append(&mut all.list);
    defaults.sort_by_key(|mount| mount.destination().components().count());
    all.list = defaults;
    Ok(all)
}

/// The file systems of the kernel.
fn kernel_mounts(request: &Request<'_>) -> Vec<Mount> {
    let privileged = request.context().privileged;
    let write = if privileged { "rw" } else { "ro" };
    let at = |path: &str, typ: &str, options: &[&str]| mount(path, typ, Path::new(typ), options);
    let mut all = vec![
        at("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        at(
            "/dev",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        at(
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
        at("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
    ];
    // The kernel mounts a new sysfs only for the owner of the network namespace: with the host's it is bound.
    if request.sandbox.user.is_some() && request.sandbox.network.is_none() {
        let options = ["rbind", "nosuid", "noexec", "nodev", write];
        all.push(mount("/sys", "bind", Path::new("/sys"), &options));
    } else {
        all.push(at("/sys", "sysfs", &["nosuid", "noexec", "nodev", write]));
    }
    let options = ["nosuid", "noexec", "nodev", "relatime", write];
    all.push(at("/sys/fs/cgroup", "cgroup", &options));
    all
}

/// The files of the sandbox; read-only in a container with a read-only root.
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
            Some(mount(at, "bind", path, &["rbind", "rprivate", write]))
        })
        .collect()
}

/// A path of the container, absolute and without `.` and `..`.
fn clean(path: &str) -> Result<PathBuf, SpecError> {
    let mut to = PathBuf::from("/");
    if path.is_empty() {
        return Err(SpecError::Invalid(
            "mount without a container path".to_owned(),
        ));
    }
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => {
                to.pop();
            }
            Component::Normal(name) => to.push(name),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Ok(to)
}

/// One mount of the request.
fn user_mount(
    request: &Request<'_>,
    asked: &v1::Mount,
    all: &mut Mounts,
) -> Result<Mount, SpecError> {
    let destination = clean(&asked.container_path)?;
    let source = source(request, asked, all)?;
    let propagation = MountPropagation::try_from(asked.propagation).map_err(|_| {
        SpecError::Invalid(format!("unknown mount propagation {}", asked.propagation))
    })?;
    let mut options = vec!["rbind".to_owned()];
    options.push(propagate(propagation, &source, all).to_owned());
    options.push(write_mode(request, asked, propagation)?.to_owned());
    if asked.selinux_relabel
        && request.node.selinux
        && let Some(label) = &request.sandbox.mount_label
    {
        all.actions.push(Action::Relabel {
            path: source.clone(),
            label: label.clone(),
        });
    }
    let mut to = Mount::default();
    to.set_destination(destination)
        .set_typ(Some("bind".to_owned()))
        .set_source(Some(source))
        .set_options(Some(options));
    let mapped = request
        .sandbox
        .id_mapped
        .contains_key(&asked.container_path);
    if !mapped && (!asked.uid_mappings.is_empty() || !asked.gid_mappings.is_empty()) {
        if asked.uid_mappings.is_empty() || asked.gid_mappings.is_empty() {
            return Err(SpecError::Invalid(format!(
                "mount at {}: mappings of users and groups go together",
                asked.container_path
            )));
        }
        to.set_uid_mappings(Some(mappings(&asked.uid_mappings)?));
        to.set_gid_mappings(Some(mappings(&asked.gid_mappings)?));
        all.id_mapped = true;
    }
    Ok(to)
}

/// Where a mount comes from: an image the caller mounted, or a host path with its links resolved. A host path that is not there is made
/// by the caller.
fn source(
    request: &Request<'_>,
    asked: &v1::Mount,
    all: &mut Mounts,
) -> Result<PathBuf, SpecError> {
    if asked
        .image
        .as_ref()
        .is_some_and(|image| !image.image.is_empty())
    {
        let mounted = request.sandbox.image_mounts.get(&asked.container_path);
        return mounted.cloned().ok_or_else(|| {
            SpecError::NotFound(format!(
                "the image of the mount at {} is not mounted",
                asked.container_path
            ))
        });
    }
    if let Some(mapped) = request.sandbox.id_mapped.get(&asked.container_path) {
        return Ok(mapped.clone());
    }
    let path = Path::new(&asked.host_path);
    if !path.is_absolute() {
        return Err(SpecError::Invalid(format!(
            "mount at {}: host path {:?} is not absolute",
            asked.container_path, asked.host_path
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

/// The option for a propagation. The root must let mounts through too; the source must be a mount that does, which the caller checks.
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

/// `rw`, `ro`, or `rro`, which needs a plain read-only mount without propagation.
fn write_mode(
    request: &Request<'_>,
    asked: &v1::Mount,
    propagation: MountPropagation,
) -> Result<&'static str, SpecError> {
    if asked.recursive_read_only {
        let at = &asked.container_path;
        if !asked.readonly || propagation != MountPropagation::PropagationPrivate {
            return Err(SpecError::Invalid(format!(
                "mount at {at}: recursive read-only needs read-only and private propagation"
            )));
        }
        if !request.node.recursive_read_only {
            return Err(SpecError::Unsupported(format!(
                "mount at {at}: this node cannot mount recursively read-only"
            )));
        }
        return Ok("rro");
    }
    let image = asked
        .image
        .as_ref()
        .is_some_and(|image| !image.image.is_empty());
    Ok(if asked.readonly || image { "ro" } else { "rw" })
}

/// The propagation of the mount a path lies on, by the text of `/proc/self/mountinfo`; `None` when no row covers it.
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
        let tagged = |name: &str| tags.iter().any(|tag| tag.starts_with(name));
        let propagation = match (tagged("shared:"), tagged("master:")) {
            (true, _) => Propagation::Shared,
            (false, true) => Propagation::Slave,
            (false, false) => Propagation::Private,
        };
        // The last of equal ones lies on top.
        let length = point.components().count();
        if best.is_none_or(|(longest, _)| length >= longest) {
            best = Some((length, propagation));
        }
    }
    best.map(|(_, propagation)| propagation)
}

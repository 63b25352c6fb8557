//! Overlays for pods with a user namespace: files of root in the layers belong to root in the pod.
//!
//! The layers are not changed, and are shared with all other containers: each is mounted again with its owners mapped
//! (`MOUNT_ATTR_IDMAP`), and the overlay is created from these mounts. The upper directory is not mapped, because files are
//! written with the writer's ids on the node. This needs Linux 5.19, and a file system with support for id-mapped mounts
//! (ext4, xfs, btrfs and others).
//!
//! Before Linux 6.15 overlayfs accepts only layers that are mounted in a mount namespace. That is the mount namespace of a
//! thread: the mounts are not visible elsewhere, and disappear with the thread, even if the daemon is killed.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use nix::sched::{CloneFlags, unshare};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};

use super::error::{At as _, Error, Result};
use super::overlay::Stack;
use crate::idmap::{Mappings, clone_mapped};
use crate::namespace;

/// The name of the mount in errors.
const ROOT: &str = "root file system";
/// Moves the mount of the descriptor itself.
const HERE: MoveMountFlags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;

/// The user namespace of a root file system.
#[derive(Debug, Clone)]
pub struct IdMapped {
    /// Path of the pinned user namespace.
    pub namespace: PathBuf,
    /// The mappings.
    pub mappings: Mappings,
}

/// Mounts the overlay on `point`, with its lower layers mapped to the user namespace.
pub(super) fn mount(stack: Stack, point: &Path, label: Option<&str>, ids: &IdMapped) -> Result<()> {
    let namespace = namespace::open(&ids.namespace)
        .map_err(io::Error::other)
        .at("open the user namespace", &ids.namespace)?;
    let (place, label) = (point.to_owned(), label.map(str::to_owned));
    let thread = std::thread::Builder::new()
        .name("mount-idmapped".to_owned())
        .spawn(move || in_private(stack, &place, label.as_deref(), &namespace))
        .at("start a thread to mount on", point)?;
    let ended = thread.join();
    let overlay = ended
        .map_err(|_| io::Error::other("the thread ended early"))
        .at("mount on", point)??;
    move_mount(&overlay, "", CWD, point, HERE).at("put an overlay on", point)
}

/// Mounts a file or directory of the node, mapped to the user namespace, on `target`, which is created. Mounts below it are
/// included only with `recursive`.
///
/// # Errors
/// [`Error::Exists`] if `target` exists; an error of the kernel if the file system of `source` does not support it.
pub fn bind(source: &Path, target: &Path, ids: &IdMapped, recursive: bool) -> Result<()> {
    let namespace = namespace::open(&ids.namespace)
        .map_err(io::Error::other)
        .at("open the user namespace", &ids.namespace)?;
    let mapped = clone_mapped(source, &namespace, recursive);
    let mapped = mapped.map_err(|error| refused(error, source, "mount"))?;
    if source.is_dir() {
        std::fs::create_dir(target).at("make", target)?
    } else {
        File::create_new(target).map(drop).at("make", target)?
    }
    move_mount(&mapped, "", CWD, target, HERE).at("put an id-mapped mount on", target)
}

/// Runs on a thread that ends afterwards, because it stays in its mount namespace.
fn in_private(
    stack: Stack,
    point: &Path,
    label: Option<&str>,
    namespace: &File,
) -> Result<OwnedFd> {
    unshare(CloneFlags::CLONE_NEWNS).at("make a mount namespace for", point)?;
    let none = None::<&str>;
    let apart = MsFlags::MS_REC | MsFlags::MS_SLAVE;
    nix::mount::mount(none, "/", none, apart, none).at("part from the node for", point)?;
    let mut open = Vec::new();
    let mut lower = Vec::new();
    for layer in &stack.lower {
        let mapped = clone_mapped(layer, namespace, false);
        let mapped = mapped.map_err(|error| refused(error, layer, ROOT))?;
        // All on one mount point: each is reached through its descriptor.
        move_mount(&mapped, "", CWD, point, HERE).at("put a layer on", point)?;
        lower.push(PathBuf::from(format!(
            "/proc/self/fd/{}",
            mapped.as_raw_fd()
        )));
        open.push(mapped);
    }
    let writable = stack.writable;
    let mounted = Stack { lower, writable }.mount(point, label);
    mounted.map_err(|error| match error {
        Error::Io { source, path, .. } if source.kind() == io::ErrorKind::InvalidInput => {
            refused(source, &path, ROOT)
        }
        other => other,
    })?;
    let copy = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, point, copy).at("take the overlay from", point)
}

fn refused(error: io::Error, path: &Path, what: &str) -> Error {
    match error.kind() {
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => Error::Unsupported(format!(
            "{}: no {what} for a user namespace: it takes Linux 5.19 (tmpfs: 6.3) and a file system that can map owners: \
             {error}",
            path.display()
        )),
        _ => Error::Io {
            action: "map the owners of",
            path: path.to_owned(),
            source: error,
        },
    }
}

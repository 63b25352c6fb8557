//! Overlays for pods with a user namespace of their own: what belongs to root in the layers belongs to root in the pod.
//!
//! The layers are not changed, and shared with all other containers: each is mounted once more with its owners mapped
//! (`MOUNT_ATTR_IDMAP`), and the overlay is made of these mounts. What is written goes to the upper directory as the user
//! of the node that the writer is, so that one is not mapped. It takes Linux 5.19, and a file system that can do it (ext4,
//! xfs, btrfs and others).
//!
//! Before Linux 6.15 overlayfs takes only layers that are mounted somewhere. That happens in a mount namespace of a thread:
//! nobody sees these mounts, and they are gone with the thread, even if the daemon is killed.

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

/// What is moved is the mount of the descriptor itself.
const HERE: MoveMountFlags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;

/// Whose eyes a root file system is seen with.
#[derive(Debug, Clone)]
pub struct IdMapped {
    /// Where the pod's user namespace is pinned.
    pub namespace: PathBuf,
    /// Its mappings.
    pub mappings: Mappings,
}

/// Mounts the overlay on `point`, its lower layers seen through the user namespace.
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

/// Mounts a file or directory of the node on `target`, which is made, seen through the user namespace: what is mounted below it
/// is not seen.
///
/// # Errors
/// [`Error::Exists`] if `target` is there; the file system of `source` may not be able to do it.
pub fn bind(source: &Path, target: &Path, ids: &IdMapped) -> Result<()> {
    let namespace = namespace::open(&ids.namespace)
        .map_err(io::Error::other)
        .at("open the user namespace", &ids.namespace)?;
    let mapped = clone_mapped(source, &namespace).map_err(|error| refused(error, source))?;
    match source.is_dir() {
        true => std::fs::create_dir(target).at("make", target)?,
        false => File::create_new(target).map(drop).at("make", target)?,
    }
    move_mount(&mapped, "", CWD, target, HERE).at("put an id-mapped mount on", target)
}

/// Runs on a thread that ends afterwards: it is in a mount namespace of its own for good.
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
        let mapped = clone_mapped(layer, namespace).map_err(|error| refused(error, layer))?;
        // All on one place: each is reached by its descriptor.
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
            refused(source, &path)
        }
        other => other,
    })?;
    let copy = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    open_tree(CWD, point, copy).at("take the overlay from", point)
}

fn refused(error: io::Error, path: &Path) -> Error {
    match error.kind() {
        io::ErrorKind::Unsupported | io::ErrorKind::InvalidInput => Error::Unsupported(format!(
            "{}: no root file system for a user namespace: it takes Linux 5.19 and a file system that can map owners: \
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

//! The file system of POSIX message queues (mq_overview(7)) of an IPC namespace.

use std::io;

use rustix::fs::{AtFlags, Gid, Uid, chownat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// Gives the root directory of the IPC namespace of the calling thread to a user and group of the node.
///
/// It belongs to the user who created the namespace, and a user namespace does not map the one of the node. Then no process of
/// the pod may change it or set its SELinux label, as OCI runtimes do in the user namespace when they mount it: no container
/// would start. The mount made for this is attached nowhere.
pub(super) fn give((uid, gid): (u32, u32)) -> io::Result<()> {
    let context = match fsopen("mqueue", FsOpenFlags::FSOPEN_CLOEXEC) {
        // A kernel without message queues.
        Err(Errno::NODEV) => return Ok(()),
        opened => opened?,
    };
    fsconfig_create(&context)?;
    let root = fsmount(
        &context,
        FsMountFlags::FSMOUNT_CLOEXEC,
        MountAttrFlags::empty(),
    )?;
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    Ok(chownat(
        &root,
        "",
        Some(uid),
        Some(gid),
        AtFlags::EMPTY_PATH,
    )?)
}

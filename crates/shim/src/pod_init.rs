//! The init of a pod whose containers share their processes: the kernel reaps its children, and it waits.
//!
//! Visible to a container: an empty, read-only root; the pod's network and IPC namespaces and host name; its own cgroup;
//! the user and groups that the pod requests; no capabilities, no new privileges, a seccomp filter of six system calls; one
//! end of a pipe, whose other end the shim holds. Its memory is that of this program, executed again without an
//! environment. It cannot be dumped, and the files that it maps are read-only in its mount namespace.
//!
//! The init receives no signal from inside: an init only gets signals that it handles, and it handles none. (containerd's pause
//! exits on SIGTERM and SIGINT, so any container of the pod can end the pod.) From outside, SIGKILL ends it, as does the
//! exit of the shim; all processes of the namespace end with it.

use std::env;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::process;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::statvfs::{FsFlags, statvfs};
use nix::unistd::{
    ForkResult, Gid, Uid, chdir, dup2_stderr, dup2_stdout, pipe, pivot_root, setgid, setgroups,
    setuid,
};

use rustix::fs::{Mode, OFlags, openat};

use super::{confine, mapped, named, signal, spawn};

fn number(text: &str) -> io::Result<u32> {
    text.parse().map_err(io::Error::other)
}

/// The second stage of [`super::pid_namespace`]: detaches from the node, starts the init, and writes its pid to stdout once
/// it is confined. With `--users`, stderr is the pod's user namespace: the PID namespace must be owned by it, so that no
/// container of the pod can enter another PID namespace.
pub(super) fn run(arguments: impl Iterator<Item = String>) -> io::Result<()> {
    spawn::close_others()?;
    let (mut uid, mut gid, mut groups, mut users) = (None, None, Vec::new(), false);
    let (mut label, mut mount_label) = (None, None);
    for argument in arguments {
        match argument.split_once('=') {
            Some(("--uid", text)) => uid = Some(Uid::from_raw(number(text)?)),
            Some(("--gid", text)) => gid = Some(Gid::from_raw(number(text)?)),
            Some(("--group", text)) => groups.push(Gid::from_raw(number(text)?)),
            Some(("--label", text)) => label = Some((text.to_owned(), File::open("/proc")?)),
            Some(("--mount-label", text)) => mount_label = Some(text.to_owned()),
            _ if argument == "--users" => users = true,
            _ => return Err(io::Error::other(format!("unknown argument {argument}"))),
        }
    }
    let (Some(uid), Some(gid)) = (uid, gid) else {
        return Err(io::Error::other("no user and group"));
    };
    for path in mapped::files()? {
        if !statvfs(&path)?.flags().contains(FsFlags::ST_RDONLY) {
            return Err(named(
                &path.display().to_string(),
                &io::Error::other("it could be written to by way of the init"),
            ));
        }
    }
    leave_root(mount_label.as_deref())?;
    if users {
        let entered = setns(io::stderr(), CloneFlags::CLONE_NEWUSER);
        // From here on, stderr is used for error messages.
        dup2_stderr(io::stdout())?;
        entered?;
    }
    unshare(CloneFlags::CLONE_NEWPID)?;
    let (heard, said) = pipe()?;
    match spawn::fork()? {
        ForkResult::Child => {
            drop(heard);
            if let Some((label, proc)) = label {
                take_label(&label, &proc);
            }
            init(uid, gid, &groups, said.into())
        }
        ForkResult::Parent { child } => {
            drop(said);
            let mut problem = String::new();
            File::from(heard).read_to_string(&mut problem)?;
            if !problem.is_empty() {
                return Err(io::Error::other(problem));
            }
            print!("{child}");
            io::stdout().flush()
        }
    }
}

/// Changes the SELinux label of this process. It must follow the mounts, since a container may not mount, and precede the change of
/// credentials, since the kernel refuses writes with other credentials than at open. Confinement does not depend on it: a
/// policy may forbid a change without an exec.
fn take_label(label: &str, proc: &File) {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    if let Ok(current) = openat(proc, "self/attr/current", flags, Mode::empty()) {
        let _refused = File::from(current).write_all(label.as_bytes());
    }
}

/// Makes an empty, read-only file system the root of this mount namespace, and its only mount. A label is quoted: it may
/// contain commas.
fn leave_root(label: Option<&str>) -> io::Result<()> {
    let here = env::current_dir()?;
    let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    let mut options = "size=4k,nr_inodes=1,mode=555".to_owned();
    if let Some(label) = label {
        options += &format!(",context=\"{label}\"");
    }
    mount(Some("tmpfs"), &here, Some("tmpfs"), flags, Some(&*options))?;
    chdir(&here)?;
    // The old root covers the new one until it is unmounted (pivot_root(2), "Notes").
    pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    Ok(chdir("/")?)
}

/// Exits here, because the filter does not allow what the program does after `main`.
#[allow(clippy::disallowed_methods)]
fn init(uid: Uid, gid: Gid, groups: &[Gid], mut said: File) -> ! {
    if let Err(error) = confine_to(uid, gid, groups) {
        let _ = write!(said, "{error}");
        process::exit(1);
    }
    drop(said);
    let shim = io::stdin();
    let mut room = [0; 64];
    // The shim never writes to it.
    while !matches!(rustix::io::read(&shim, &mut room), Ok(0)) {}
    process::exit(0);
}

fn confine_to(uid: Uid, gid: Gid, groups: &[Gid]) -> io::Result<()> {
    let calls = confine::waiting_only()?;
    // The init needs only one descriptor.
    dup2_stdout(io::stdin())?;
    dup2_stderr(io::stdin())?;
    signal::ignore_children()?;
    confine::bound_capabilities()?;
    setgroups(groups)?;
    setgid(gid)?;
    setuid(uid)?;
    confine::drop_capabilities()?;
    confine::hide()?;
    confine::allow_only(&calls)
}

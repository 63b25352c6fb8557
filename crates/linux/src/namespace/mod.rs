//! The namespaces of a pod: created on a dedicated thread, pinned by bind mounts, entered by short-lived threads.
//!
//! A namespace exists as long as a process or a mount refers to it. No process is needed here: each namespace is mounted on
//! a file in the pod's directory, such as `DIR/ID/net`. A thread of a multithreaded process cannot create a user namespace
//! (unshare(2), EINVAL): a helper process creates all namespaces, so that the user namespace owns them, and they are pinned
//! in the same way before it ends.

mod error;
mod mqueue;
mod pid;
mod thread;
mod user;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::CloneFlags;
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use crate::idmap::Mappings;
use crate::link::{self, Counters};
use crate::sysctl::Sysctl;

pub use self::error::Error;
pub use self::pid::process_namespace;
pub use self::thread::{run, run_in, run_in_each};
use self::user::Maker;

/// A kind of namespace that a pod can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Network.
    Net,
    /// System V IPC and POSIX message queues.
    Ipc,
    /// Host name (UTS).
    Uts,
    /// Processes. Not created here, because a PID namespace needs an init: pinned by [`Pins::pin_pid`].
    Pid,
    /// Users and groups. Created if a request has mappings; owns all namespaces that are created with it.
    User,
}

impl Kind {
    /// All kinds, in the order in which they are pinned and removed.
    pub const ALL: [Self; 5] = [Self::Net, Self::Ipc, Self::Uts, Self::Pid, Self::User];

    /// The name of the file below `/proc/PID/ns` and in the pod's directory.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Pid => "pid",
            Self::User => "user",
        }
    }

    fn flag(self) -> CloneFlags {
        match self {
            Self::Net => CloneFlags::CLONE_NEWNET,
            Self::Ipc => CloneFlags::CLONE_NEWIPC,
            Self::Uts => CloneFlags::CLONE_NEWUTS,
            Self::Pid => CloneFlags::CLONE_NEWPID,
            Self::User => CloneFlags::CLONE_NEWUSER,
        }
    }
}

/// The namespaces to create for a pod.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The kinds to create, without the ones that the pod shares with the node, and without [`Kind::User`], which the mappings
    /// imply.
    pub kinds: Vec<Kind>,
    /// The host name to set; needs [`Kind::Uts`].
    pub hostname: Option<String>,
    /// Kernel parameters to set, each in a namespace that is created.
    pub sysctls: Vec<Sysctl>,
    /// The mappings of a user namespace, which will own the others. Needs [`Pins::with_helper`].
    pub user: Option<Mappings>,
}

/// The state of a pinned namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// The file does not exist.
    Absent,
    /// The file exists without a mount: the node was rebooted, or creation was interrupted.
    Lost,
    /// Mounted.
    Pinned,
}

/// The directory with the pinned namespaces of all pods.
#[derive(Debug, Clone)]
pub struct Pins {
    dir: PathBuf,
    helper: Option<PathBuf>,
}

impl Pins {
    /// Does not access the directory, which [`make`](Self::make) creates. It should not outlive a reboot (`/run`), but may:
    /// [`State::Lost`] detects that.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            helper: None,
        }
    }

    /// Sets `criscope-shim` as the helper that creates user namespaces.
    #[must_use]
    pub fn with_helper(self, program: impl Into<PathBuf>) -> Self {
        Self {
            helper: Some(program.into()),
            ..self
        }
    }

    /// The path on which a namespace of a pod is mounted.
    #[must_use]
    pub fn path(&self, id: &str, kind: Kind) -> PathBuf {
        self.dir.join(id).join(kind.name())
    }

    /// Creates the namespaces, brings `lo` up, sets the host name and the parameters in them, and pins them. A failure is
    /// rolled back. If the future is dropped or the process killed, [`remove`](Self::remove) removes the rest.
    ///
    /// # Errors
    /// [`Error::Exists`] even if only a lost namespace exists.
    pub async fn make(&self, id: &str, request: Request) -> Result<(), Error> {
        let dir = self.pod(id)?;
        if let Some(stray) = request
            .sysctls
            .iter()
            .find(|s| !request.kinds.contains(&s.kind()))
        {
            return Err(stray.shared().into());
        }
        let helper = match (&request.user, &self.helper) {
            (None, _) if request.kinds.is_empty() => return Ok(()),
            (None, _) => None,
            (Some(_), Some(helper)) => Some(helper.clone()),
            (Some(_), None) => {
                return Err(Error::User {
                    id: id.to_owned(),
                    why: "no program is set to make it",
                });
            }
        };
        let id = id.to_owned();
        if request.kinds.contains(&Kind::User) && request.user.is_none() {
            let why = "there are no mappings";
            return Err(Error::User { id, why });
        }
        run("make-namespace", move || {
            make(&dir, id, &request, helper.as_deref())
        })
        .await?
    }

    /// Opens a pinned namespace. The open file keeps it alive.
    ///
    /// # Errors
    /// [`Error::NotPinned`] if nothing is mounted on the file.
    pub fn open(&self, id: &str, kind: Kind) -> Result<File, Error> {
        self.pod(id)?;
        open(&self.path(id, kind))
    }

    /// The state of a namespace.
    ///
    /// # Errors
    /// If the file cannot be opened for another reason, so that the state is unknown.
    pub fn state(&self, id: &str, kind: Kind) -> Result<State, Error> {
        match self.open(id, kind) {
            Ok(_) => Ok(State::Pinned),
            Err(Error::NotPinned { path }) if path.exists() => Ok(State::Lost),
            Err(Error::NotPinned { .. }) => Ok(State::Absent),
            Err(error) => Err(error),
        }
    }

    /// The ids that have a directory, sorted, to find pods without a record.
    ///
    /// # Errors
    /// If the directory exists and cannot be read.
    pub fn list(&self) -> Result<Vec<String>, Error> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(Error::io("read", &self.dir, error)),
        };
        let mut ids = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| Error::io("read", &self.dir, error))?;
            ids.extend(entry.file_name().into_string());
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// Unpins all namespaces of a pod and removes its directory. It succeeds if they do not exist. A namespace ends with
    /// its last process; the kernel removes its interfaces some milliseconds later.
    ///
    /// # Errors
    /// If a system call fails; the rest is still removed.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        let dir = self.pod(id)?;
        run("remove-namespace", move || remove(&dir)).await?
    }

    /// Unpins the IPC and UTS namespaces, the part of [`Self::remove`] that is safe while the network is being detached.
    /// Each unmount makes the kernel wait for its other processors.
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub async fn loosen(&self, id: &str) -> Result<(), Error> {
        let dir = self.pod(id)?;
        run("loosen-namespace", move || {
            let outcomes = [Kind::Ipc, Kind::Uts].map(|kind| unpin(&dir.join(kind.name())));
            outcomes.into_iter().collect()
        })
        .await?
    }

    /// The counters of the interfaces in a pod's network namespace.
    ///
    /// # Errors
    /// [`Error::NotPinned`], or the error of the kernel.
    pub async fn counters(&self, id: &str) -> Result<Vec<Counters>, Error> {
        let path = self.path(id, Kind::Net);
        let (pins, id) = (self.clone(), id.to_owned());
        run_in(move || pins.open(&id, Kind::Net), Kind::Net, link::counters)
            .await?
            .map_err(|error| Error::io("read the counters of", &path, error))
    }

    fn pod(&self, id: &str) -> Result<PathBuf, Error> {
        if matches!(id, "" | "." | "..") || id.contains(['/', '\0']) {
            return Err(Error::Id { id: id.to_owned() });
        }
        Ok(self.dir.join(id))
    }
}

/// Opens a namespace that is mounted on `path`.
///
/// # Errors
/// [`Error::NotPinned`] if the file does not exist or nothing is mounted on it.
pub fn open(path: &Path) -> Result<File, Error> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_pinned(path)),
        Err(error) => return Err(Error::io("open", path, error)),
    };
    let kind = fstatfs(&file).map_err(|error| Error::io("ask the kind of", path, error))?;
    if kind.filesystem_type() == NSFS_MAGIC {
        Ok(file)
    } else {
        Err(not_pinned(path))
    }
}

fn not_pinned(path: &Path) -> Error {
    let path = path.to_owned();
    Error::NotPinned { path }
}

/// Runs on a thread that ends afterwards, because it stays in the new namespaces.
fn make(dir: &Path, id: String, request: &Request, helper: Option<&Path>) -> Result<(), Error> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(|error| Error::io("make", parent, error))?;
    }
    match fs::DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists { id });
        }
        Err(error) => return Err(Error::io("make", dir, error)),
    }
    fill(dir, request, helper).inspect_err(|_| {
        let _ = remove(dir);
    })
}

fn fill(dir: &Path, request: &Request, helper: Option<&Path>) -> Result<(), Error> {
    let mut kinds = request.kinds.clone();
    let maker = match helper {
        Some(program) => {
            kinds.retain(|kind| *kind != Kind::User);
            let maker = Maker::start(program, &kinds)?;
            maker.enter(&kinds)?;
            kinds.push(Kind::User);
            Some(maker)
        }
        None => {
            let flags = kinds
                .iter()
                .fold(CloneFlags::empty(), |all, kind| all | kind.flag());
            nix::sched::unshare(flags)
                .map_err(|error| Error::io("make namespaces for", dir, error))?;
            None
        }
    };
    if request.kinds.contains(&Kind::Net) {
        link::loopback_up().map_err(|error| Error::io("set lo up for", dir, error))?;
    }
    if let Some(hostname) = &request.hostname {
        // Without a UTS namespace it would rename the node.
        if request.kinds.contains(&Kind::Uts) {
            nix::unistd::sethostname(hostname)
                .map_err(|error| Error::io("set the host name for", dir, error))?;
        }
    }
    for sysctl in &request.sysctls {
        sysctl.write()?;
    }
    let mut own = PathBuf::from("/proc/thread-self/ns");
    if let (Some(maker), Some(mappings)) = (&maker, &request.user) {
        // Not earlier: until root is mapped, only the node's root may write all of the namespace's parameters.
        maker.map(mappings)?;
        if request.kinds.contains(&Kind::Ipc) {
            mqueue::give(mappings.host(0, 0))
                .map_err(|error| Error::io("set the owner of message queues for", dir, error))?;
        }
        own = maker.namespaces();
    }
    for kind in kinds {
        pin(&dir.join(kind.name()), &own.join(kind.name()))?;
    }
    Ok(())
}

fn pin(path: &Path, own: &Path) -> Result<(), Error> {
    File::create_new(path).map_err(|error| Error::io("make", path, error))?;
    let (none, bind) = (None::<&str>, MsFlags::MS_BIND);
    mount(Some(own), path, none, bind, none)
        .map_err(|error| Error::io("mount a namespace on", path, error))
}

fn remove(dir: &Path) -> Result<(), Error> {
    let mut first = Ok(());
    let targets = pid::targets(dir);
    let kinds = Kind::ALL.iter().map(|kind| dir.join(kind.name()));
    for path in targets.into_iter().chain(kinds) {
        let outcome = unpin(&path);
        first = first.and(outcome);
    }
    first?;
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", dir, error))
        }
        _ => Ok(()),
    }
}

fn unpin(path: &Path) -> Result<(), Error> {
    // Several mounts can be stacked if two creators raced before a crash; the limit prevents an endless loop.
    for _ in 0..8 {
        match umount2(path, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
            Ok(()) => {}
            Err(Errno::EINVAL | Errno::ENOENT) => break,
            Err(error) => return Err(Error::io("unmount", path, error)),
        }
    }
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::io("remove", path, error))
        }
        _ => Ok(()),
    }
}

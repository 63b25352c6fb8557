//! The namespaces of a pod: made on a thread of their own, kept by bind mounts, entered by threads that end afterwards.
//!
//! A namespace lives as long as a process or a mount holds it. No process stays: each is mounted on a file of the pod's
//! own directory, `DIR/ID/net`. A user namespace cannot be made by a thread of a process that has others
//! (unshare(2), EINVAL): a helper process makes all of them, so that the others belong to it, and they are pinned the
//! same way before it ends.

mod error;
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
pub use self::pid::of_process;
pub use self::thread::{run, run_in};
use self::user::Maker;

/// A kind of namespace a pod can have of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Network.
    Net,
    /// System V IPC and POSIX message queues.
    Ipc,
    /// Host name.
    Uts,
    /// Processes. Not made here, since it needs an init: pinned by [`Pins::pin_pid`].
    Pid,
    /// Users and groups. Made when a request has mappings, and owner of all that are made with it.
    User,
}

impl Kind {
    /// All of them, in the order they are pinned and freed.
    pub const ALL: [Self; 5] = [Self::Net, Self::Ipc, Self::Uts, Self::Pid, Self::User];

    /// The file's name below `/proc/PID/ns` and in the pod's directory.
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

/// What a pod wants of its own.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The kinds to make. Those it shares with the node are left out, and so is [`Kind::User`]: its mappings ask for it.
    pub kinds: Vec<Kind>,
    /// The host name to set; needs [`Kind::Uts`].
    pub hostname: Option<String>,
    /// Kernel parameters to set, each in a namespace that is made.
    pub sysctls: Vec<Sysctl>,
    /// The mappings of a user namespace to be made, which will own the others. Needs [`Pins::with_helper`].
    pub user: Option<Mappings>,
}

/// What is left of a pod's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No file.
    Absent,
    /// A file, nothing mounted on it: the machine was rebooted, or making it was cut short.
    Lost,
    /// Mounted.
    Pinned,
}

/// The directory that holds all pods' namespaces.
#[derive(Debug, Clone)]
pub struct Pins {
    dir: PathBuf,
    helper: Option<PathBuf>,
}

impl Pins {
    /// Nothing is touched until the first [`make`](Self::make). The directory should not outlive a reboot (`/run`), but
    /// may: [`State::Lost`] tells.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            helper: None,
        }
    }

    /// With `criscope-shim`, which makes user namespaces.
    #[must_use]
    pub fn with_helper(self, program: impl Into<PathBuf>) -> Self {
        Self {
            helper: Some(program.into()),
            ..self
        }
    }

    /// Where a namespace of a pod is mounted.
    #[must_use]
    pub fn path(&self, id: &str, kind: Kind) -> PathBuf {
        self.dir.join(id).join(kind.name())
    }

    /// Makes the namespaces, sets `lo` up, the host name and the parameters in them, and pins them. On failure nothing
    /// stays. A caller that goes away, or a kill, leaves at most what [`remove`](Self::remove) takes away.
    ///
    /// # Errors
    /// [`Error::Exists`] also when only a lost one is there.
    pub async fn make(&self, id: &str, request: Request) -> Result<(), Error> {
        let dir = self.pod(id)?;
        let missing = |why| Error::User {
            id: id.to_owned(),
            why,
        };
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
            (Some(_), None) => return Err(missing("no program is set to make it")),
        };
        if request.kinds.contains(&Kind::User) && request.user.is_none() {
            return Err(missing("there are no mappings"));
        }
        let id = id.to_owned();
        run("make-namespace", move || {
            make(&dir, id, &request, helper.as_deref())
        })
        .await?
    }

    /// Opens a pinned namespace: who holds the file holds the namespace.
    ///
    /// # Errors
    /// [`Error::NotPinned`] if nothing is mounted there.
    pub fn open(&self, id: &str, kind: Kind) -> Result<File, Error> {
        self.pod(id)?;
        open(&self.path(id, kind))
    }

    /// What is there.
    ///
    /// # Errors
    /// A file that cannot be opened is neither there nor absent.
    pub fn state(&self, id: &str, kind: Kind) -> Result<State, Error> {
        match self.open(id, kind) {
            Ok(_) => Ok(State::Pinned),
            Err(Error::NotPinned { path }) if path.exists() => Ok(State::Lost),
            Err(Error::NotPinned { .. }) => Ok(State::Absent),
            Err(error) => Err(error),
        }
    }

    /// The ids that have a directory, whatever is in it, sorted: to find what no record names.
    ///
    /// # Errors
    /// When the directory is there and cannot be read.
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

    /// Unpins all namespaces of a pod and removes its directory. What is gone already is fine. A namespace ends when the
    /// last process in it has: the kernel takes its interfaces down some milliseconds later.
    ///
    /// # Errors
    /// When the kernel refuses; the rest is removed all the same.
    pub async fn remove(&self, id: &str) -> Result<(), Error> {
        let dir = self.pod(id)?;
        run("remove-namespace", move || remove(&dir)).await?
    }

    /// Unpins all but the network namespace, and what that belongs to: the part of [`Self::remove`] that can be done while
    /// the pod is detached. The kernel waits for its other processors at each.
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub async fn loosen(&self, id: &str) -> Result<(), Error> {
        let dir = self.pod(id)?;
        let work = move || {
            let outcomes = [Kind::Ipc, Kind::Uts].map(|kind| unpin(&dir.join(kind.name())));
            outcomes.into_iter().collect()
        };
        run("loosen-namespace", work).await?
    }

    /// The counters of the interfaces in a pod's network namespace.
    ///
    /// # Errors
    /// [`Error::NotPinned`], or what the kernel said.
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
/// [`Error::NotPinned`] if there is no such file or nothing is mounted on it.
pub fn open(path: &Path) -> Result<File, Error> {
    let not_pinned = || Error::NotPinned {
        path: path.to_owned(),
    };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(not_pinned()),
        Err(error) => return Err(Error::io("open", path, error)),
    };
    let kind = fstatfs(&file).map_err(|error| Error::io("ask the kind of", path, error))?;
    if kind.filesystem_type() == NSFS_MAGIC {
        Ok(file)
    } else {
        Err(not_pinned())
    }
}

/// Runs on a thread that ends afterwards: it is in the new namespaces for good.
fn make(dir: &Path, id: String, request: &Request, helper: Option<&Path>) -> Result<(), Error> {
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent).map_err(|error| Error::io("make", parent, error))?;
    }
    match fs::DirBuilder::new().mode(0o711).create(dir) {
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
        // Without a host name of its own it would rename the node.
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
        // Not before: as long as nobody is root in there, it is root of the node who may write all its parameters.
        maker.map(mappings)?;
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
    // More than one mount can lie on it if two makers raced before a crash; the bound is one against a loop.
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

//! A connection to the shim of a pod.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::Stdio as Child;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use criscope_linux::environment;
use tokio::io::AsyncWriteExt as _;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::timeout;

use super::error::Error;
use super::event::Event;
use super::exit_waiters::{ExitWaiter, ExitWaiters};
use super::frames::Frames;
use super::hello::read_hello;
use super::listen::listen;
use crate::oci::reason;
use criscope_shim::SOCKET;
use criscope_shim::protocol::{
    self, Answer, Create, Empty, Exec, Hello, Kill, PidNamespace, Request, Resize, Shutdown, State,
    Target, Update, Verb,
};

/// How long a shim may take to start, to accept a connection, and to respond to simple requests.
const SHIM_ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Length of a receiver's event queue. A receiver that falls behind queries the state.
const EVENTS: usize = 256;

/// Length of the queue of requests.
const REQUESTS: usize = 64;

/// The parameters of a shim's start.
#[derive(Clone, Debug)]
pub struct Launch {
    /// `criscope-shim`.
    pub program: PathBuf,
    /// The pod's directory, which must exist.
    pub dir: PathBuf,
    /// Cgroups that the shim moves itself into (one with v2, one per hierarchy with v1), so that a service manager that kills the
    /// daemon's cgroup does not kill the shim.
    pub cgroups: Vec<PathBuf>,
}

/// Size of the read buffer in bytes: small, because there is one per pod and messages are few.
const ROOM: usize = 4 << 10;

/// Pending requests by number; they receive `None` if the response cannot be decoded.
pub(super) type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Option<Answer>>>>>>;

/// The shim of a pod. Cheap to clone; the connection is closed with the last clone. A dropped call continues in the shim, and its
/// result is in [`Shim::state`].
#[derive(Clone, Debug)]
pub struct Shim {
    pub(super) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(super) struct Inner {
    dir: PathBuf,
    requests: mpsc::Sender<Vec<u8>>,
    waiting: Waiting,
    next: AtomicU64,
    events: broadcast::WeakSender<Event>,
    endings: ExitWaiters,
    /// True if it is known to report no statistics.
    pub(super) has_no_stats: AtomicBool,
    reader: tokio::task::AbortHandle,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Shim {
    /// Starts a shim and connects to it. Fails if the pod already has one; see [`Shim::connect`].
    ///
    /// # Errors
    /// [`Error::Launch`], [`Error::Gone`], [`Error::Silent`].
    pub async fn launch(launch: &Launch) -> Result<Self, Error> {
        let failed = |message: String| Error::Launch {
            program: launch.program.clone(),
            message,
        };
        let mut command = Command::new(&launch.program);
        command
            .arg(&launch.dir)
            .stdin(Child::null())
            .stdout(Child::null())
            .kill_on_drop(true);
        for name in environment::SERVICE_MANAGER {
            command.env_remove(name);
        }
        for cgroup in &launch.cgroups {
            command.arg("--cgroup").arg(cgroup);
        }
        command.stderr(Child::piped());
        // Blocks: execve reads the program from disk.
        let launched = async {
            let spawned = tokio::task::spawn_blocking(move || command.spawn()).await;
            let child = spawned.map_err(io::Error::from).flatten()?;
            child.wait_with_output().await
        };
        let output = timeout(SHIM_ANSWER_TIMEOUT, launched).await;
        let output =
            output.map_err(|_| failed(format!("not up within {SHIM_ANSWER_TIMEOUT:?}")))?;
        let output = output.map_err(|e| failed(e.to_string()))?;
        if !output.status.success() {
            return Err(failed(
                String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            ));
        }
        Self::connect(&launch.dir).await
    }

    /// Connects to the shim of a pod. Earlier changes are in [`Shim::state`], later ones in [`Shim::events`]: subscribe first,
    /// then query the state.
    ///
    /// # Errors
    /// [`Error::Gone`] if there is none (then see [`super::exit_records()`]), [`Error::Silent`] if it hangs,
    /// [`Error::Incompatible`] if its version of criscope is too new or too old.
    pub async fn connect(dir: &Path) -> Result<Self, Error> {
        let stream = connect(dir).await?;
        let (read, mut write) = stream.into_split();
        let mut frames = Frames::new(read, ROOM);
        read_hello(&mut frames, dir, SHIM_ANSWER_TIMEOUT).await?;
        let (requests, mut outgoing) = mpsc::channel::<Vec<u8>>(REQUESTS);
        tokio::spawn(async move {
            while let Some(bytes) = outgoing.recv().await {
                if write.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let (events, _) = broadcast::channel(EVENTS);
        let weak = events.downgrade();
        let endings = ExitWaiters::new();
        let hearing = listen(
            dir.to_owned(),
            frames,
            Arc::clone(&waiting),
            events,
            endings.clone(),
        );
        let reader = tokio::spawn(hearing).abort_handle();
        let inner = Inner {
            dir: dir.to_owned(),
            requests,
            waiting,
            next: AtomicU64::new(1),
            events: weak,
            endings,
            has_no_stats: AtomicBool::new(false),
            reader,
        };
        let shim = Self {
            inner: Arc::new(inner),
        };
        shim.greet().await?;
        Ok(shim)
    }

    /// Sends the hello. Also used later as a liveness check.
    ///
    /// # Errors
    /// See [`Error`]; the same applies to all methods below.
    pub async fn greet(&self) -> Result<(), Error> {
        self.done(Request::Hello(Hello::own()), SHIM_ANSWER_TIMEOUT)
            .await
    }

    /// The pod's directory.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }

    /// Subscribes to future events: exits, OOM kills. Closed when the connection ends.
    pub fn events(&self) -> broadcast::Receiver<Event> {
        match self.inner.events.upgrade() {
            Some(events) => events.subscribe(),
            None => broadcast::channel(1).1,
        }
    }

    /// Returns a waiter for the exit of an exec that is about to run: the exit may arrive before the call that runs it returns.
    /// There can be one waiter per exec.
    pub fn ending(&self, exec: Target) -> ExitWaiter {
        self.inner.endings.waiter(exec)
    }

    /// Returns whether the connection has ended.
    pub fn is_gone(&self) -> bool {
        self.inner.events.strong_count() == 0
    }

    /// Returns the state of the shim: its processes and their exits.
    #[allow(clippy::missing_errors_doc)]
    pub async fn state(&self) -> Result<State, Error> {
        match self
            .call(Request::State(Empty {}), SHIM_ANSWER_TIMEOUT)
            .await?
        {
            Answer::State(state) => {
                // Exits whose event was lost or could not be decoded.
                let ended = state.processes.iter().filter_map(|p| p.exit.as_ref());
                ended.for_each(|exit| self.inner.endings.tell(exit));
                Ok(state)
            }
            _ => Err(self.malformed()),
        }
    }

    /// The pid of the init process of a container that was started; `None` if it is not known.
    #[allow(clippy::missing_errors_doc)]
    pub async fn pid_of(&self, container: &str) -> Result<Option<u32>, Error> {
        let processes = self.state().await?.processes;
        let mut inits = processes.iter().filter(|one| one.target.exec.is_empty());
        let found = inits.find(|one| one.target.container == container);
        Ok(found.map(|one| one.pid).filter(|pid| *pid != 0))
    }

    /// Creates a container; returns the pid of its init process.
    #[allow(missing_docs, clippy::missing_errors_doc)]
    pub async fn create(&self, create: Create) -> Result<u32, Error> {
        let time = runtime_time(create.runtime.timeout_ms);
        self.pid(Request::Create(create), time).await
    }

    /// Starts a created container.
    #[allow(clippy::missing_errors_doc)]
    pub async fn start(&self, verb: Verb) -> Result<(), Error> {
        let time = runtime_time(verb.runtime.timeout_ms);
        self.done(Request::Start(verb), time).await
    }

    /// Runs a process in a container; returns its pid.
    #[allow(clippy::missing_errors_doc)]
    pub async fn exec(&self, exec: Exec) -> Result<u32, Error> {
        let time = runtime_time(exec.runtime.timeout_ms);
        self.pid(Request::Exec(exec), time).await
    }

    /// Sends a signal.
    #[allow(clippy::missing_errors_doc)]
    pub async fn kill(&self, kill: Kill) -> Result<(), Error> {
        // Without `all` the shim calls kill(2) itself.
        let time = if kill.all {
            runtime_time(30_000)
        } else {
            SHIM_ANSWER_TIMEOUT
        };
        self.done(Request::Kill(kill), time).await
    }

    /// Kills an exec with the processes that it has started. With a shim of containerd the exec alone is killed.
    #[allow(clippy::missing_errors_doc)]
    pub async fn end_command(&self, exec: Target) -> Result<(), Error> {
        self.done(Request::EndCommand(exec), SHIM_ANSWER_TIMEOUT)
            .await
    }

    /// Deletes a container, and drops its state and that of its execs.
    #[allow(clippy::missing_errors_doc)]
    pub async fn delete(&self, verb: Verb) -> Result<(), Error> {
        let time = runtime_time(verb.runtime.timeout_ms);
        self.done(Request::Delete(verb), time).await
    }

    /// Resizes a terminal.
    #[allow(clippy::missing_errors_doc)]
    pub async fn resize(&self, resize: Resize) -> Result<(), Error> {
        self.done(Request::Resize(resize), SHIM_ANSWER_TIMEOUT)
            .await
    }

    /// Reopens the log of a container.
    #[allow(clippy::missing_errors_doc)]
    pub async fn reopen_log(&self, target: Target) -> Result<(), Error> {
        self.done(Request::ReopenLog(target), SHIM_ANSWER_TIMEOUT)
            .await
    }

    /// Drops the state of an exec, once it has exited.
    #[allow(clippy::missing_errors_doc)]
    pub async fn forget(&self, target: Target) -> Result<(), Error> {
        self.done(Request::Forget(target), SHIM_ANSWER_TIMEOUT)
            .await
    }

    /// Changes the resources of a container that a shim of containerd runs.
    #[allow(clippy::missing_errors_doc)]
    pub async fn update(&self, update: Update) -> Result<(), Error> {
        let time = runtime_time(update.timeout_ms);
        self.done(Request::Update(update), time).await
    }

    /// Creates the pod's PID namespace unless it exists; returns the pid of its init, which is then already confined.
    #[allow(clippy::missing_errors_doc)]
    pub async fn pid_namespace(&self, wanted: PidNamespace) -> Result<u32, Error> {
        let request = Request::PidNamespace(wanted);
        self.pid(request, runtime_time(10_000)).await
    }

    /// Shuts the shim down; with `force` even if it has containers.
    #[allow(clippy::missing_errors_doc)]
    pub async fn shutdown(&self, force: bool) -> Result<(), Error> {
        self.done(Request::Shutdown(Shutdown { force }), SHIM_ANSWER_TIMEOUT)
            .await
    }

    async fn pid(&self, request: Request, time: Duration) -> Result<u32, Error> {
        match self.call(request, time).await? {
            Answer::Pid(pid) => Ok(pid),
            _ => Err(self.malformed()),
        }
    }

    async fn done(&self, request: Request, time: Duration) -> Result<(), Error> {
        match self.call(request, time).await? {
            Answer::Done(_) => Ok(()),
            _ => Err(self.malformed()),
        }
    }

    pub(super) async fn call(&self, request: Request, time: Duration) -> Result<Answer, Error> {
        let number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let mut bytes = Vec::new();
        protocol::encode_request(number, &request, &mut bytes);
        let (tell, told) = oneshot::channel();
        match &mut *lock(&self.inner.waiting) {
            Some(waiting) => drop(waiting.insert(number, tell)),
            None => return Err(gone(self.dir(), io::ErrorKind::ConnectionReset.into())),
        }
        let _waiting = Forget {
            waiting: &self.inner.waiting,
            number,
        };
        let exchange = async {
            self.inner.requests.send(bytes).await.ok()?;
            told.await.ok()
        };
        match timeout(time, exchange).await {
            Err(_) => Err(Error::Silent {
                dir: self.dir().to_owned(),
                after: time,
            }),
            Ok(None) => Err(gone(self.dir(), io::ErrorKind::ConnectionReset.into())),
            Ok(Some(None)) => Err(self.malformed()),
            Ok(Some(Some(answer))) => accepted(answer, self.dir()),
        }
    }

    pub(super) fn malformed(&self) -> Error {
        Error::Malformed {
            dir: self.dir().to_owned(),
        }
    }
}

/// Removes a dropped request from the pending ones.
struct Forget<'a> {
    waiting: &'a Waiting,
    number: u64,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        if let Some(waiting) = &mut *lock(self.waiting) {
            waiting.remove(&self.number);
        }
    }
}

/// The timeout of the OCI runtime plus a margin.
fn runtime_time(timeout_ms: u32) -> Duration {
    Duration::from_millis(timeout_ms.into()) + SHIM_ANSWER_TIMEOUT
}

/// Converts a response to a result.
pub(super) fn accepted(answer: Answer, dir: &Path) -> Result<Answer, Error> {
    let Answer::Failed(failure) = answer else {
        return Ok(answer);
    };
    Err(match failure.kind {
        protocol::PRECONDITION => Error::Precondition(failure.message),
        protocol::NOT_FOUND => Error::NotFound(failure.message),
        protocol::RUNTIME => Error::Runtime(reason(failure.message.as_bytes())),
        protocol::TIMEOUT => Error::Timeout(reason(failure.message.as_bytes())),
        protocol::UNIMPLEMENTED => Error::Unimplemented {
            dir: dir.to_owned(),
        },
        protocol::INCOMPATIBLE => Error::Incompatible {
            dir: dir.to_owned(),
            why: failure.message,
        },
        _ => Error::System(failure.message),
    })
}

pub(super) fn gone(dir: &Path, source: io::Error) -> Error {
    Error::Gone {
        dir: dir.to_owned(),
        source,
    }
}

/// Connects through the descriptor of the directory: the path of a socket is limited to 107 bytes.
pub(super) async fn connect(dir: &Path) -> Result<UnixStream, Error> {
    let own = dir.to_owned();
    let folder = tokio::task::spawn_blocking(move || File::open(own)).await;
    let folder = folder.map_err(io::Error::from).flatten();
    let folder = folder.map_err(|e| gone(dir, e))?;
    let path = format!("/proc/self/fd/{}/{SOCKET}", folder.as_raw_fd());
    let connected = timeout(SHIM_ANSWER_TIMEOUT, UnixStream::connect(path)).await;
    connected
        .map_err(|_| Error::Silent {
            dir: dir.to_owned(),
            after: SHIM_ANSWER_TIMEOUT,
        })?
        .map_err(|e| gone(dir, e))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

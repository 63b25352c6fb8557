//! The event loop of a shim: one `poll` over signals, connections and streams.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd, siginfo};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Pid, geteuid};

use super::connection::Connection;
use super::job::Job;
use super::oom::Oom;
use super::process::Process;
use super::protocol::{self, Event, MAX_CHUNK};
use super::task::Task;
use super::{LOCK, SOCKET, STUCK};

/// Pause before the next accept when the process is out of descriptors.
const FULL_PAUSE: Duration = Duration::from_millis(10);

/// Maximum number of concurrent connections: all sessions (`streaming.max_sessions`, 1000 by default) may belong to one
/// pod. More wait in the kernel's backlog.
const MAX_CONNECTIONS: usize = 1024;

/// Locks the directory; fails if another shim serves it. The lock is released when the process exits.
pub(super) fn lock() -> io::Result<File> {
    let file = File::create(LOCK)?;
    file.try_lock()
        .map_err(|_| io::Error::new(io::ErrorKind::AddrInUse, "a shim has this directory"))?;
    Ok(file)
}

pub(super) fn listen() -> io::Result<UnixListener> {
    let _ = fs::remove_file(SOCKET);
    let listener = UnixListener::bind(SOCKET)?;
    fs::set_permissions(SOCKET, fs::Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// The state of a shim.
#[derive(Debug)]
pub(super) struct Shim {
    pub(super) dir: PathBuf,
    pub(super) connections: Vec<Connection>,
    pub(super) processes: Vec<Process>,
    pub(super) jobs: Vec<Job>,
    pub(super) pid_namespace: u32,
    /// The init of the namespace exits when this is closed.
    pub(super) pid_namespace_held: Option<OwnedFd>,
    pub(super) next: u64,
    pub(super) done: bool,
    /// True if the node is being shut down: the shim then ends with the last process of the pod.
    shutting_down: bool,
    /// The shim of containerd that runs the containers, if one does.
    pub(super) task: Option<Task>,
    /// Buffer for log lines.
    pub(super) room: Vec<u8>,
}

/// A ready event source.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Listener,
    Connection(u64),
    Output(u64, usize),
    Input(u64),
    Oom(u64),
    Task,
}

pub(super) fn serve(dir: PathBuf, listener: &UnixListener, lock: File) -> io::Result<()> {
    set_child_subreaper(true)?;
    // A container that sees the node's processes must not read the shim's memory or descriptors.
    super::confine::hide()?;
    detach()?;
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask.add(Signal::SIGTERM);
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let mut shim = Shim {
        dir,
        connections: Vec::new(),
        processes: Vec::new(),
        jobs: Vec::new(),
        pid_namespace: 0,
        pid_namespace_held: None,
        next: 1,
        done: false,
        shutting_down: false,
        task: None,
        room: Vec::new(),
    };
    let mut ready = Vec::new();
    while !shim.done
        || shim
            .connections
            .iter()
            .any(|c| !c.gone && c.wants_to_write())
    {
        shim.wait(&signals, listener, &mut ready)?;
        for source in ready.drain(..) {
            match source {
                Source::Signals => {
                    while let Some(signal) = signals.read_signal()? {
                        shim.shutting_down |= is_shutdown(&signal);
                    }
                    shim.reap();
                }
                Source::Listener => shim.accept(listener),
                Source::Connection(number) => shim.hear(number),
                Source::Output(number, which) => {
                    shim.pump(number, which);
                }
                Source::Input(number) => shim.with(number, |process| process.streams.flush()),
                Source::Oom(number) => shim.oom(number),
                Source::Task => shim.hear_task(),
            }
        }
        shim.count_again();
        shim.tend_task();
        shim.tidy();
        shim.forget_old();
        shim.done |= shim.shutting_down && shim.is_idle();
    }
    drop(lock);
    Ok(())
}

/// Returns whether a signal announces the shutdown of the node: a SIGTERM of PID 1, which sends it to all processes that are left and
/// waits for them (systemd-shutdown: 90 s). Any other SIGTERM would deprive a running pod of its shim.
fn is_shutdown(signal: &siginfo) -> bool {
    signal.ssi_signo == Signal::SIGTERM as u32 && signal.ssi_pid == 1
}

/// Closes descriptors that the parent left open.
fn detach() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&null)?;
    nix::unistd::dup2_stdout(&null)?;
    nix::unistd::dup2_stderr(&null)?;
    Ok(())
}

impl Shim {
    fn wait(
        &self,
        signals: &SignalFd,
        listener: &UnixListener,
        ready: &mut Vec<Source>,
    ) -> io::Result<()> {
        let mut sources = vec![Source::Signals];
        let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        let mut add = |source: Source, fd, flags| {
            sources.push(source);
            fds.push(PollFd::new(fd, flags));
        };
        if self.connections.len() < MAX_CONNECTIONS {
            add(Source::Listener, listener.as_fd(), PollFlags::POLLIN);
        }
        for connection in &self.connections {
            let mut flags = PollFlags::empty();
            flags.set(PollFlags::POLLIN, self.may_read(connection));
            flags.set(PollFlags::POLLOUT, connection.wants_to_write());
            add(
                Source::Connection(connection.number),
                connection.stream.as_fd(),
                flags,
            );
        }
        for process in self.processes.iter().filter(|process| process.pid != 0) {
            for (which, out) in process.streams.out.iter().enumerate() {
                if let Some(out) = out.as_ref().filter(|_| self.may_pump(process, which)) {
                    add(
                        Source::Output(process.number, which),
                        out.as_fd(),
                        PollFlags::POLLIN,
                    );
                }
            }
            if let Some(input) = process.streams.hungry_input() {
                add(
                    Source::Input(process.number),
                    input.as_fd(),
                    PollFlags::POLLOUT,
                );
            }
            if let Some((fd, flags)) = process.oom.as_ref().and_then(Oom::poll) {
                add(Source::Oom(process.number), fd, flags);
            }
        }
        for (fd, flags) in self.task.iter().flat_map(Task::sources) {
            add(Source::Task, fd, flags);
        }
        poll_now(&mut fds, self.timeout())?;
        ready.extend(
            sources
                .into_iter()
                .zip(&fds)
                .filter(|(_, fd)| fd.revents().is_some_and(|events| !events.is_empty()))
                .map(|(source, _)| source),
        );
        Ok(())
    }

    /// Returns whether no process of the pod runs, and no call of the OCI runtime.
    fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.processes.iter().any(Process::is_alive)
    }

    /// Returns whether to read more input: it stays with the client while the process does not read.
    fn may_read(&self, connection: &Connection) -> bool {
        let Some(attached) = connection.attached else {
            return true;
        };
        let process = self
            .processes
            .iter()
            .find(|process| process.number == attached.process);
        process.is_none_or(|process| process.streams.has_room())
    }

    pub(super) fn may_pump(&self, process: &Process, which: usize) -> bool {
        let mut full = self.connections.iter().filter(|c| c.is_full());
        !process.held
            && !full.any(|c| {
                c.attached
                    .is_some_and(|a| a.process == process.number && a.out[which])
            })
    }

    fn timeout(&self) -> Option<Duration> {
        let jobs = self
            .jobs
            .iter()
            .filter(|job| !job.timed_out)
            .map(|job| job.deadline);
        let stuck = self
            .connections
            .iter()
            .filter_map(|c| c.stuck.map(|since| since + STUCK));
        let counts = self.processes.iter().filter_map(|p| p.oom.as_ref()?.due());
        let next = jobs
            .chain(stuck)
            .chain(counts)
            .chain(self.task_due())
            .min()?;
        Some(next.saturating_duration_since(Instant::now()))
    }

    fn accept(&mut self, listener: &UnixListener) {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                // The pending connection stays ready: without a pause the loop would spin until a descriptor is free.
                if matches!(
                    error.raw_os_error(),
                    Some(nix::libc::EMFILE | nix::libc::ENFILE)
                ) {
                    std::thread::sleep(FULL_PAUSE);
                }
                return;
            }
        };
        let same_user = getsockopt(&stream, PeerCredentials)
            .is_ok_and(|peer| peer.uid() == geteuid().as_raw() || peer.uid() == 0);
        if same_user && stream.set_nonblocking(true).is_ok() {
            let number = self.number();
            let mut connection = Connection::new(number, stream);
            let hello = Event::Hello(protocol::Hello::own());
            connection.send(|out| protocol::encode_event(&hello, out));
            self.connections.push(connection);
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(super) fn process(&self, number: u64) -> Option<&Process> {
        self.processes.iter().find(|one| one.number == number)
    }

    pub(super) fn process_mut(&mut self, number: u64) -> Option<&mut Process> {
        self.processes.iter_mut().find(|one| one.number == number)
    }

    pub(super) fn with(&mut self, number: u64, act: impl FnOnce(&mut Process)) {
        if let Some(process) = self.process_mut(number) {
            act(process);
        }
    }

    /// Reads one piece of output for the log and attached clients; returns whether there may be more.
    pub(super) fn pump(&mut self, number: u64, which: usize) -> bool {
        // Not by `process_mut`: the room and the connections are borrowed too.
        let mut all = self.processes.iter_mut();
        let Some(process) = all.find(|one| one.number == number) else {
            return false;
        };
        let mut piece = [0; MAX_CHUNK];
        let Some(data) = process.streams.read(which, &mut piece) else {
            return false;
        };
        process.log(which, data, &mut self.room);
        let kind = [protocol::stream::STDOUT, protocol::stream::STDERR][which];
        for connection in &mut self.connections {
            if connection
                .attached
                .is_some_and(|a| a.process == number && a.out[which])
            {
                connection.send(|out| protocol::encode_chunk(kind, data, out));
            }
        }
        !data.is_empty()
    }

    /// Reports OOM kills that were not reported yet.
    fn oom(&mut self, number: u64) {
        let mut event = None;
        self.with(number, |process| event = process.count_kills());
        if let Some(event) = event {
            self.tell(&event);
        }
    }

    /// Counts OOM kills again where that is due.
    fn count_again(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self
            .processes
            .iter()
            .filter(|process| {
                let due = process.oom.as_ref().and_then(Oom::due);
                due.is_some_and(|due| due <= now)
            })
            .map(|process| process.number)
            .collect();
        for number in due {
            self.oom(number);
        }
    }

    /// Sends an event to every subscribed connection.
    pub(super) fn tell(&mut self, event: &Event) {
        for connection in self
            .connections
            .iter_mut()
            .filter(|c| c.greeted && c.attached.is_none())
        {
            connection.send(|out| protocol::encode_event(event, out));
        }
    }

    /// Kills calls that have timed out and removes ended ones.
    fn tidy(&mut self) {
        let now = Instant::now();
        for job in self
            .jobs
            .iter_mut()
            .filter(|job| !job.timed_out && job.deadline <= now)
        {
            job.timed_out = true;
            let _ = kill(Pid::from_raw(job.pid as i32), Signal::SIGKILL);
        }
        for connection in &mut self.connections {
            connection.gone |= connection.stuck.is_some_and(|since| since + STUCK <= now);
        }
        while let Some(at) = self.connections.iter().position(|c| c.gone) {
            let connection = self.connections.swap_remove(at);
            if let Some(attached) = connection.attached {
                self.left(attached);
            }
        }
    }
}

fn poll_now(fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
    let timeout = match timeout {
        // Rounded up; otherwise the loop would spin during the last millisecond.
        Some(timeout) => {
            PollTimeout::try_from(timeout + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
        }
        None => PollTimeout::NONE,
    };
    match poll(fds, timeout) {
        Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

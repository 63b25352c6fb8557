//! Containers that a shim of containerd runs (runtime v2) in place of an OCI runtime. For the daemon they are like all others: this
//! shim writes their logs, serves attach, and records their exits.
//!
//! ```text
//! daemon <-- protocol --> criscope-shim <-- ttrpc: Task --> containerd-shim-* --> containers
//!                          |    ^  ^--------- FIFOs ------------'       |
//!                        logs   '------------ ttrpc: Events ------------'
//! ```
//!
//! The first container that is created is that of the sandbox: with it the containerd shim is started, once for the pod.

mod calls;
mod connection;
mod ends;
mod events;
pub(crate) mod fifo;
mod launch;
mod messages;
mod ttrpc;

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use self::connection::Connection;
use self::events::Events;
use super::protocol::{Create, Exit, MAX_CHUNK, TaskShim};
use super::server::Shim;

/// How much of the end of a containerd shim's log is kept, in bytes, to tell why it ended.
const LAST_WORDS: usize = 1024;

/// How long calls may take that no timeout of the daemon applies to.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the exit of a container waits for the end of its output, which a process outside of it may hold open.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// The containerd shim of the pod.
#[derive(Debug)]
pub(super) struct Task {
    spec: TaskShim,
    events: Events,
    log: File,
    last_words: Vec<u8>,
    /// The request that it is started for.
    first: Option<First>,
    connection: Option<Connection>,
    /// Where it listens. A containerd shim that is killed leaves its socket.
    socket: Option<PathBuf>,
    /// Its pid; 0 until it has said.
    pid: u32,
}

/// A request that waits for the start of the containerd shim.
#[derive(Debug)]
struct First {
    asked: (u64, u64),
    process: u64,
    create: Create,
}

/// What is known of a process that a containerd shim runs.
#[derive(Debug, Default)]
pub(super) struct TaskProcess {
    /// The bundle of its container.
    bundle: String,
    /// Its exit, and until when it is held back for the rest of its output.
    ending: Option<(Exit, Instant)>,
    /// Whether the containerd shim was told that the input has ended.
    input_closed: bool,
    /// The request to delete it once it has exited.
    delete: Option<(u64, u64)>,
}

impl Task {
    /// What to wait for.
    pub(super) fn sources(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let read = |fd| (fd, PollFlags::POLLIN);
        let connection = self.connection.as_ref();
        let connection = connection.map(|one| (one.as_fd(), one.interest()));
        let log = std::iter::once(self.log.as_fd());
        let events = self.events.sources();
        connection.into_iter().chain(log.chain(events).map(read))
    }

    /// When a call runs out of time.
    pub(super) fn due(&self) -> Option<Instant> {
        self.connection.as_ref().and_then(Connection::due)
    }

    /// Reads the log, of which the end is kept.
    fn read_log(&mut self, room: &mut [u8]) {
        while let Ok(n @ 1..) = self.log.read(room) {
            self.last_words.extend_from_slice(&room[..n]);
            let surplus = self.last_words.len().saturating_sub(LAST_WORDS);
            self.last_words.drain(..surplus);
        }
    }

    /// Removes its socket, which it may have removed itself.
    fn remove_socket(&mut self) {
        if let Some(socket) = self.socket.take() {
            let _absent = fs::remove_file(socket);
        }
    }

    /// Why it ended, as far as it has said.
    fn reason(&mut self) -> String {
        self.read_log(&mut [0; MAX_CHUNK]);
        let words = String::from_utf8_lossy(&self.last_words);
        match words.trim().rsplit('\n').next() {
            Some(last) if !last.is_empty() => format!("the containerd shim ended: {last}"),
            _ => "the containerd shim ended".to_owned(),
        }
    }
}

impl Shim {
    /// Serves the containerd shim: its answers, events and log.
    pub(super) fn hear_task(&mut self) {
        let mut room = [0; MAX_CHUNK];
        let Some(task) = &mut self.task else { return };
        task.events.serve(&mut room);
        task.read_log(&mut room);
        let Some(connection) = &mut task.connection else {
            return;
        };
        let sent = connection.flush();
        let heard = sent.and_then(|()| connection.fill(&mut room));
        while let Some(connection) = self.connection() {
            match connection.answer() {
                Ok(Some((pending, response))) => self.task_answered(pending, response.into()),
                Ok(None) => break,
                Err(_) => return self.lose_task(),
            }
        }
        if heard.is_err() {
            self.lose_task();
        }
    }

    /// The pid of the sandbox container while it runs; else 0.
    pub(super) fn sandbox_container(&self) -> u32 {
        let Some(task) = &self.task else { return 0 };
        let mut all = self.processes.iter().filter(|process| process.is_init());
        let found = all.find(|process| process.target.container == task.spec.sandbox);
        found.map_or(0, |process| match process.is_alive() {
            true => process.pid,
            false => 0,
        })
    }

    fn connection(&mut self) -> Option<&mut Connection> {
        self.task.as_mut()?.connection.as_mut()
    }

    /// Does what is due: calls that have run out of time, exits whose output has ended, inputs that have ended.
    pub(super) fn tend_task(&mut self) {
        if self.task.is_none() {
            return;
        }
        let now = Instant::now();
        while let Some(late) = self.connection().and_then(|one| one.overdue(now)) {
            self.task_answered(late, calls::timed_out());
        }
        self.close_inputs();
        // An exit that nobody observed is told when the cleanup has ended.
        let over = |(exit, until): &(Exit, Instant), open: bool| {
            *until <= now || (!open && exit.unobserved.is_empty())
        };
        let due: Vec<_> = self
            .processes
            .iter()
            .filter(|process| {
                let open = process.streams.out.iter().any(Option::is_some);
                let ending = process.task.as_ref().and_then(|task| task.ending.as_ref());
                ending.is_some_and(|ending| over(ending, open))
            })
            .map(|process| process.number)
            .collect();
        for number in due {
            self.task_ended(number);
        }
    }

    /// When [`Self::tend_task`] has something to do without an event.
    pub(super) fn task_due(&self) -> Option<Instant> {
        let task = self.task.as_ref()?;
        let tasks = self.processes.iter().filter_map(|one| one.task.as_ref());
        let endings = tasks.filter_map(|task| task.ending.as_ref().map(|(_, until)| *until));
        endings.chain(task.due()).min()
    }
}

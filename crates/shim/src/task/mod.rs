//! Containers that a shim of containerd runs (runtime v2) in place of an OCI runtime. For the daemon they are like all others: this
//! shim writes their logs, serves attach, and records their exits.
//!
//! ```text
//! daemon <-- protocol --> criscope-shim <-- ttrpc: Task --> containerd-shim-* --> containers
//!                          |    ^  ^--------- FIFOs ------------'       |
//!                        logs   '------------ ttrpc: Events ------------'
//! ```
//!
//! The first container that is created is the sandbox's. For each container the program is called to `start`, and says where the
//! shim of this container listens: shims that run all containers of a pod (runc's, Kata's) name the socket of the sandbox container's,
//! others (gVisor's by default) start a process for each.

mod calls;
mod connection;
mod containerd_shim;
mod ends;
mod events;
pub(crate) mod fifo;
mod launch;
mod stats;
mod status;

use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use self::connection::Connection;
use self::containerd_shim::ContainerdShim;
use self::events::Events;
use super::protocol::{Create, Exit, MAX_CHUNK, TaskShim};
use super::server::Shim;

/// How long calls may take that no timeout of the daemon applies to.
const TASK_CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the exit of a container waits for the end of its output, which a process outside of it may hold open.
const LAST_OUTPUT: Duration = Duration::from_secs(2);

/// The containerd shims of the pod.
#[derive(Debug)]
pub(super) struct Task {
    spec: TaskShim,
    events: Events,
    /// The containers whose `start` runs.
    starts: Vec<Start>,
    /// The running shims. The sandbox container's is started first.
    shims: Vec<ContainerdShim>,
    /// How many were started.
    count: u64,
}

/// A request to create a container, which waits for `start`.
#[derive(Debug)]
struct Start {
    asked: (u64, u64),
    process: u64,
    create: Create,
    /// The log of the containerd shim, if this starts one.
    log: File,
}

/// The state of a process that a containerd shim runs.
#[derive(Debug, Default)]
pub(super) struct TaskProcess {
    /// The bundle of its container.
    bundle: String,
    /// The number of its containerd shim; 0 before it is known.
    shim: u64,
    /// The exit, and until when it is held back for the rest of its output.
    ending: Option<(Exit, Instant)>,
    /// True if the containerd shim was told that the input has ended.
    input_closed: bool,
    /// The request to delete it once it has exited.
    delete: Option<(u64, u64)>,
}

impl TaskProcess {
    /// The init of a container.
    fn in_bundle(bundle: String) -> Self {
        Self {
            bundle,
            ..Self::default()
        }
    }

    /// A process in a running container.
    fn in_shim(shim: u64) -> Self {
        Self {
            shim,
            ..Self::default()
        }
    }
}

impl Task {
    fn new(spec: TaskShim, events: Events) -> Self {
        Self {
            spec,
            events,
            starts: Vec::new(),
            shims: Vec::new(),
            count: 0,
        }
    }

    /// The descriptors to wait for.
    pub(super) fn sources(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let events = self.events.sources().map(|fd| (fd, PollFlags::POLLIN));
        let shims = self.shims.iter().flat_map(ContainerdShim::sources);
        shims.chain(events)
    }

    /// When a call runs out of time.
    pub(super) fn due(&self) -> Option<Instant> {
        let shims = self.shims.iter();
        shims.filter_map(|shim| shim.connection.due()).min()
    }

    /// Returns whether the shim of the sandbox container runs: without it the pod is over.
    fn has_sandbox(&self) -> bool {
        self.shims.iter().any(|shim| shim.id == self.spec.sandbox)
    }

    fn shim(&mut self, number: u64) -> Option<&mut ContainerdShim> {
        self.shims.iter_mut().find(|shim| shim.number == number)
    }
}

impl Shim {
    /// Serves the containerd shims: their answers, events and logs.
    pub(super) fn hear_task(&mut self) {
        let mut room = [0; MAX_CHUNK];
        let Some(task) = &mut self.task else { return };
        task.events.serve(&mut room);
        for number in self.containerd_shims() {
            if self.hear_containerd_shim(number, &mut room).is_err() {
                self.lose_containerd_shim(number);
            }
        }
    }

    /// # Errors
    /// When the connection has ended, or what came is no ttrpc.
    fn hear_containerd_shim(&mut self, number: u64, room: &mut [u8]) -> io::Result<()> {
        let Some(shim) = self.containerd_shim(number) else {
            return Ok(());
        };
        shim.read_log(room);
        let sent = shim.connection.flush();
        let heard = sent.and_then(|()| shim.connection.fill(room));
        while let Some(shim) = self.containerd_shim(number) {
            match shim.connection.answer()? {
                Some((pending, response)) => {
                    let result = status::result(pending.call, response);
                    self.task_answered(pending, result);
                }
                None => break,
            }
        }
        heard
    }

    /// The numbers of the containerd shims.
    fn containerd_shims(&self) -> Vec<u64> {
        let shims = self.task.iter().flat_map(|task| &task.shims);
        shims.map(|shim| shim.number).collect()
    }

    fn containerd_shim(&mut self, number: u64) -> Option<&mut ContainerdShim> {
        self.task.as_mut()?.shim(number)
    }

    /// The number of the containerd shim of a process.
    fn containerd_shim_of(&self, process: u64) -> Option<u64> {
        self.process(process)?.task.as_ref().map(|task| task.shim)
    }

    /// The connection to the containerd shim of a process.
    fn connection(&mut self, process: u64) -> Option<&mut Connection> {
        let number = self.containerd_shim_of(process)?;
        Some(&mut self.containerd_shim(number)?.connection)
    }

    /// The pid of the sandbox container while it runs; else 0.
    pub(super) fn sandbox_container(&self) -> u32 {
        let Some(task) = &self.task else { return 0 };
        let mut all = self.processes.iter().filter(|process| process.is_init());
        let found = all.find(|process| process.target.container == task.spec.sandbox);
        found
            .filter(|process| process.is_alive())
            .map_or(0, |process| process.pid)
    }

    /// Handles everything that is due: calls that have run out of time, exits whose output has ended, inputs that have ended.
    pub(super) fn tend_task(&mut self) {
        if self.task.is_none() {
            return;
        }
        let now = Instant::now();
        for number in self.containerd_shims() {
            while let Some(shim) = self.containerd_shim(number)
                && let Some(late) = shim.connection.overdue(now)
            {
                self.task_answered(late, calls::timed_out());
            }
        }
        self.close_inputs();
        // An exit that no process observed is told when the cleanup has ended.
        let due: Vec<_> = self
            .processes
            .iter()
            .filter(|process| {
                let open = process.streams.out.iter().any(Option::is_some);
                let ending = process.task.as_ref().and_then(|task| task.ending.as_ref());
                ending.is_some_and(|(exit, until)| {
                    *until <= now || (!open && exit.unobserved.is_empty())
                })
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

//! A process of the pod: the init of a container, or an exec.

use std::io;

use super::log::{Log, Stream};
use super::oom::Oom;
use super::protocol::{self, Event, Exit, Target};
use super::streams::Streams;
use super::task::TaskProcess;
use super::{clock, record};

#[derive(Debug)]
pub(super) struct Process {
    pub(super) number: u64,
    pub(super) target: Target,
    /// Program and global arguments of the OCI runtime; for an exec, those of its container.
    pub(super) argv: Vec<String>,
    /// 0 until the OCI runtime has created it.
    pub(super) pid: u32,
    pub(super) started_at: u64,
    pub(super) exit: Option<Exit>,
    pub(super) streams: Streams,
    pub(super) log: Option<Log>,
    pub(super) oom: Option<Oom>,
    /// True if output is left in the pipe until a client attaches.
    pub(super) held: bool,
    pub(super) attached: u32,
    /// The connection that requested it.
    pub(super) owner: u64,
    /// True if its exit is no longer of interest.
    pub(super) forgotten: bool,
    /// Set if a shim of containerd runs it.
    pub(super) task: Option<TaskProcess>,
}

impl Process {
    pub(super) fn new(number: u64, target: Target, streams: Streams) -> Self {
        Self {
            number,
            target,
            argv: Vec::new(),
            pid: 0,
            started_at: 0,
            exit: None,
            streams,
            log: None,
            oom: None,
            held: false,
            attached: 0,
            owner: 0,
            forgotten: false,
            task: None,
        }
    }

    /// Sets the pid. An additional process runs from its creation on.
    pub(super) fn created(&mut self, pid: u32) {
        self.pid = pid;
        if self.is_init() {
            self.oom = Oom::watch(pid);
            let _ = record::write_init(&self.target.container, pid);
        } else {
            self.started_at = clock::now();
        }
    }

    pub(super) fn is_init(&self) -> bool {
        self.target.exec.is_empty()
    }

    pub(super) fn is_alive(&self) -> bool {
        self.pid != 0 && self.exit.is_none()
    }

    /// True if it runs as a child of this shim.
    pub(super) fn is_child(&self) -> bool {
        self.is_alive() && self.task.is_none()
    }

    pub(super) fn open_log(&mut self) -> io::Result<()> {
        let spec = &self.streams.spec;
        if !spec.log.is_empty() {
            self.log = Some(Log::open((&spec.log).into(), spec.max_line, spec.tty)?);
        }
        Ok(())
    }

    /// Passes a piece of output to the log. An empty piece is the end of the stream.
    pub(super) fn log(&mut self, which: usize, data: &[u8], room: &mut Vec<u8>) {
        let stream = [Stream::Stdout, Stream::Stderr][which];
        match &mut self.log {
            Some(log) if data.is_empty() => log.end(stream, room),
            Some(log) => log.write(stream, data, room),
            None => {}
        }
    }

    /// Counts OOM kills; returns the event if there are more of them.
    pub(super) fn count_kills(&mut self) -> Option<Event> {
        let oom = self.oom.as_mut()?;
        let id = &self.target.container;
        oom.read().then(|| {
            Event::Oom(protocol::Oom {
                id: id.clone(),
                kills: oom.kills,
            })
        })
    }

    /// The state as a message.
    pub(super) fn report(&self) -> protocol::Process {
        protocol::Process {
            target: self.target.clone(),
            pid: self.pid,
            started_at: self.started_at,
            exit: self.exit.clone(),
            log_lost: self.log.as_ref().map_or(0, |log| log.lost),
            attached: self.attached,
        }
    }
}

//! The handlers of requests.

use std::fs;
use std::io;

use nix::sys::signal::kill;
use nix::unistd::{Pid, getpid};

use super::connection::Attached;
use super::job::Purpose;
use super::process::Process;
use super::protocol::{
    self, Answer, Attach, Empty, Event, Failure, Hello, INCOMPATIBLE, Kill, MAX_CHUNK, NOT_FOUND,
    OLDEST, PRECONDITION, Request, Resize, Runtime, SYSTEM, State, Target, UNIMPLEMENTED, Unread,
    VERSION, Verb,
};
use super::server::Shim;
use super::signal;

/// Maximum number of exited execs that are kept for daemons that have disconnected.
const MAX_ENDED_EXECS: usize = 64;

pub(super) type Result<T = Option<Answer>> = std::result::Result<T, Failure>;

pub(super) fn deleted_meanwhile() -> Failure {
    failure(NOT_FOUND, "deleted meanwhile")
}

pub(super) fn failure(kind: u32, message: impl Into<String>) -> Failure {
    Failure {
        kind,
        message: message.into(),
    }
}

#[allow(clippy::needless_pass_by_value)]
pub(super) fn system(error: io::Error) -> Failure {
    failure(SYSTEM, error.to_string())
}

/// The failure for a request that cannot be decoded; the connection continues.
fn unread(why: Unread) -> Failure {
    match why {
        Unread::Unknown => failure(
            UNIMPLEMENTED,
            format!("protocol {VERSION} has no such request"),
        ),
        Unread::Malformed => failure(PRECONDITION, "the request cannot be read"),
    }
}

pub(super) fn done() -> Result {
    Ok(Some(Answer::Done(Empty {})))
}

impl Shim {
    /// Reads from a connection and handles its frames.
    pub(super) fn hear(&mut self, number: u64) {
        let mut room = [0; MAX_CHUNK];
        let Some(connection) = self.connections.iter_mut().find(|c| c.number == number) else {
            return;
        };
        connection.flush();
        connection.fill(&mut room);
        loop {
            let Some(connection) = self.connections.iter_mut().find(|c| c.number == number) else {
                return;
            };
            match connection.frame() {
                Ok(Some(frame)) => {
                    if let Some(attached) = connection.attached {
                        self.input(attached, &frame);
                    } else if let Ok((asked, request)) = protocol::decode_request(&frame) {
                        let answer = match request {
                            Ok(request) => self.request(number, asked, request),
                            Err(why) => Err(unread(why)),
                        };
                        if let Some(answer) = answer.unwrap_or_else(|e| Some(Answer::Failed(e))) {
                            self.answer(number, asked, &answer);
                        }
                    } else {
                        // The connection stays open: a daemon takes its end for the end of the shim.
                        connection.send(|out| {
                            protocol::encode_event(&Event::Unreadable(Empty {}), out);
                        });
                    }
                }
                Ok(None) => return,
                Err(_) => {
                    connection.gone = true;
                    return;
                }
            }
        }
    }

    pub(super) fn answer(&mut self, connection: u64, number: u64, answer: &Answer) {
        if let Some(connection) = self.connections.iter_mut().find(|c| c.number == connection) {
            connection.send(|out| protocol::encode_answer(number, answer, out));
        }
    }

    /// Handles input of an attached client; an empty frame is the end of input.
    fn input(&mut self, attached: Attached, frame: &[u8]) {
        if let Some((&protocol::stream::STDIN, data)) = frame.split_first()
            && attached.stdin
        {
            self.with(attached.process, |process| match data {
                [] if !process.is_init() || process.streams.spec.stdin_once => {
                    process.streams.end_input()
                }
                [] => {}
                data => process.streams.write(data),
            });
        }
    }

    /// Handles the disconnection of an attached client. A container continues; a command was run for its clients, and
    /// without them its output has no reader.
    pub(super) fn left(&mut self, attached: Attached) {
        self.input(attached, &[protocol::stream::STDIN]);
        self.with(attached.process, |process| {
            process.attached -= 1;
            if process.attached == 0 && !process.is_init() {
                process.streams.abandon();
            }
        });
    }

    fn request(&mut self, connection: u64, number: u64, request: Request) -> Result {
        let asked = (connection, number);
        match request {
            Request::Hello(hello) => {
                let own = Hello::own();
                if !own.fits(&hello) {
                    return Err(failure(
                        INCOMPATIBLE,
                        format!(
                            "the daemon has protocol {} to {}, the shim (criscope {}) {OLDEST} to {VERSION}",
                            hello.oldest, hello.version, own.program
                        ),
                    ));
                }
                let found = self.connections.iter_mut().find(|c| c.number == connection);
                found.into_iter().for_each(|c| c.greeted = true);
                done()
            }
            Request::Create(create) => self.create(asked, create),
            Request::Exec(exec) => self.exec(asked, exec),
            Request::Start(verb) => self.verb(asked, Purpose::Start, verb, &["start"], &[]),
            Request::Delete(verb) => self.verb(asked, Purpose::Delete, verb, &["delete"], &[]),
            Request::Kill(kill) => self.kill(asked, &kill),
            Request::State(_) => Ok(Some(Answer::State(self.state()))),
            Request::Attach(attach) => self.attach(asked, &attach),
            Request::Resize(resize) => self.resize(asked, &resize),
            Request::ReopenLog(target) => {
                let process = self.find(&target)?;
                process
                    .log
                    .as_mut()
                    .map_or(Ok(()), super::log::Log::reopen)
                    .map_err(system)?;
                done()
            }
            Request::CloseStdin(target) => {
                self.find(&target)?.streams.end_input();
                done()
            }
            Request::Forget(target) => self.forget(&target),
            Request::Shutdown(shutdown) => {
                if !shutdown.force && self.processes.iter().any(|p| p.exit.is_none()) {
                    return Err(failure(PRECONDITION, "processes of the pod still run"));
                }
                if self.pid_namespace != 0 {
                    // The child was not reaped, so its pid cannot have been reused.
                    let _ = kill(
                        Pid::from_raw(self.pid_namespace as i32),
                        nix::sys::signal::SIGKILL,
                    );
                }
                self.end_task();
                // Before the response: the daemon may then start a new shim.
                let _ = fs::remove_file(super::SOCKET);
                self.done = true;
                // Shutdown does not wait for slow clients.
                for connection in self.connections.iter_mut().filter(|c| c.attached.is_some()) {
                    connection.make_room();
                }
                done()
            }
            Request::Update(update) => self.update_task(asked, update),
            Request::Stats(stats) => self.stats_task(asked, stats),
            Request::EndCommand(target) => self.end_command(asked, target),
            Request::PidNamespace(wanted) => self.make_pid_namespace(asked, &wanted),
        }
    }

    pub(super) fn find(&mut self, target: &Target) -> Result<&mut Process> {
        self.processes
            .iter_mut()
            .find(|process| process.target == *target)
            .ok_or_else(|| {
                failure(
                    NOT_FOUND,
                    format!("no process {} {}", target.container, target.exec),
                )
            })
    }

    fn state(&self) -> State {
        State {
            pid: getpid().as_raw() as u32,
            pid_namespace: match self.pid_namespace {
                0 => self.sandbox_container(),
                init => init,
            },
            processes: self.processes.iter().map(Process::report).collect(),
        }
    }

    pub(super) fn drop_processes(&mut self, which: impl Fn(&Process) -> bool) {
        let gone: Vec<_> = self
            .processes
            .iter()
            .filter(|process| which(process))
            .map(|p| p.number)
            .collect();
        for connection in &mut self.connections {
            connection.gone |= connection
                .attached
                .is_some_and(|a| gone.contains(&a.process));
        }
        self.processes
            .retain(|process| !gone.contains(&process.number));
    }

    pub(super) fn kill(&mut self, asked: (u64, u64), request: &Kill) -> Result {
        let process = self.find(&request.target)?;
        if process.task.is_some() && process.is_alive() {
            let number = process.number;
            return self.kill_task(asked, number, request);
        }
        if request.all {
            let runtime = Runtime {
                args: vec!["--all".into()],
                timeout_ms: 30_000,
                ..Runtime::default()
            };
            let verb = Verb {
                id: request.target.container.clone(),
                runtime,
            };
            return self.verb(
                asked,
                Purpose::Kill,
                verb,
                &["kill"],
                &[request.signal.to_string()],
            );
        }
        if !process.is_alive() {
            return Err(failure(NOT_FOUND, "the process has ended"));
        }
        // The child was not reaped, so its pid cannot have been reused.
        match signal::send(process.pid, request.signal) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                Err(failure(PRECONDITION, error.to_string()))
            }
            Err(error) => Err(system(error)),
            Ok(()) => done(),
        }
    }

    fn attach(&mut self, (connection, number): (u64, u64), attach: &Attach) -> Result {
        let process = self.find(&attach.target)?;
        process.attached += 1;
        process.held = false;
        let patient = !process.is_init();
        let ended = [0, 1].map(|which| process.streams.out[which].is_none());
        let out = [attach.stdout, attach.stderr];
        let attached = Attached {
            process: process.number,
            stdin: attach.stdin,
            out,
        };
        self.answer(connection, number, &Answer::Done(Empty {}));
        if let Some(connection) = self.connections.iter_mut().find(|c| c.number == connection) {
            connection.attached = Some(attached);
            connection.patient = patient;
            for (which, kind) in [protocol::stream::STDOUT, protocol::stream::STDERR]
                .into_iter()
                .enumerate()
            {
                if out[which] && ended[which] {
                    connection.send(|out| protocol::encode_chunk(kind, &[], out));
                }
            }
        }
        Ok(None)
    }

    fn resize(&mut self, asked: (u64, u64), resize: &Resize) -> Result {
        let process = self.find(&resize.target)?;
        if process.task.is_some() {
            let number = process.number;
            return self.resize_task(asked, number, resize);
        }
        let terminal = process.streams.out[0]
            .as_ref()
            .filter(|_| process.streams.spec.tty);
        let terminal = terminal.ok_or_else(|| failure(PRECONDITION, "no terminal"))?;
        let size = rustix::termios::Winsize {
            ws_row: resize.height.try_into().unwrap_or(u16::MAX),
            ws_col: resize.width.try_into().unwrap_or(u16::MAX),
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(terminal, size)
            .map_err(|e| failure(SYSTEM, e.to_string()))?;
        done()
    }

    fn forget(&mut self, target: &Target) -> Result {
        let process = self.find(target)?;
        if process.is_init() {
            return Err(failure(PRECONDITION, "only an exec can be forgotten"));
        }
        // A running one is removed when it exits.
        process.forgotten = true;
        done()
    }

    /// Drops exited execs: forgotten ones, and the oldest of those whose daemon disconnected before querying them.
    pub(super) fn forget_old(&mut self) {
        let mut ended = self
            .processes
            .iter()
            .filter(|p| !p.is_init() && p.exit.is_some());
        if ended.clone().next().is_none() {
            return;
        }
        let orphans: Vec<_> = ended
            .clone()
            .filter(|process| self.is_orphaned(process))
            .map(|process| process.number)
            .collect();
        let many = orphans.len().saturating_sub(MAX_ENDED_EXECS);
        if many > 0 || ended.any(|p| p.forgotten) {
            self.drop_processes(|process| {
                let forgotten = process.forgotten && process.exit.is_some();
                forgotten || orphans[..many].contains(&process.number)
            });
        }
    }

    fn is_orphaned(&self, process: &Process) -> bool {
        let mut connections = self.connections.iter();
        !process.forgotten
            && process.attached == 0
            && !connections.any(|connection| connection.number == process.owner)
    }
}

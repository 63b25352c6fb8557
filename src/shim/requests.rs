//! What is done for each request.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::Stdio as Child;
use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::{Pid, getpid};

use super::connection::Attached;
use super::job::{Job, Purpose};
use super::oom::Oom;
use super::process::Process;
use super::protocol::{
    self, Answer, Attach, Create, Empty, Exec, Failure, Kill, MAX_CHUNK, NOT_FOUND, PRECONDITION,
    RUNTIME, Request, Resize, Runtime, SYSTEM, State, Stdio, TIMEOUT, Target, Verb,
};
use super::server::Shim;
use super::spawn::{last_words, pipe, spawn};
use super::streams::Streams;
use super::{clock, pid_namespace, record};

/// Ended execs that nobody has asked to forget.
const MAX_ENDED_EXECS: usize = 64;

type Result<T = Option<Answer>> = std::result::Result<T, Failure>;

fn failure(kind: u8, message: impl Into<String>) -> Failure {
    Failure {
        kind,
        message: message.into(),
    }
}

fn system(error: io::Error) -> Failure {
    failure(SYSTEM, error.to_string())
}

fn done() -> Result {
    Ok(Some(Answer::Done(Empty {})))
}

impl Shim {
    /// Reads from a connection and does what it says.
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
                    } else if let Ok((request_number, request)) = protocol::decode_request(&frame) {
                        let answer = self.request(number, request_number, request);
                        if let Some(answer) = answer.unwrap_or_else(|e| Some(Answer::Failed(e))) {
                            self.answer(number, request_number, &answer);
                        }
                    } else {
                        connection.gone = true;
                        return;
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

    fn answer(&mut self, connection: u64, number: u64, answer: &Answer) {
        if let Some(connection) = self.connections.iter_mut().find(|c| c.number == connection) {
            connection.send(|out| protocol::encode_answer(number, answer, out));
        }
    }

    /// Input of an attached client; an empty frame is the end of it.
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

    /// An attached client has gone.
    pub(super) fn left(&mut self, attached: Attached) {
        self.with(attached.process, |process| process.attached -= 1);
        self.input(attached, &[protocol::stream::STDIN]);
    }

    fn request(&mut self, connection: u64, number: u64, request: Request) -> Result {
        let asked = (connection, number);
        match request {
            Request::Hello(_) => {
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
            Request::Resize(resize) => self.resize(&resize),
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
                    let _ = kill(
                        Pid::from_raw(self.pid_namespace as i32),
                        nix::sys::signal::SIGKILL,
                    );
                }
                // Before the answer: who has it may make a new shim.
                let _ = fs::remove_file(super::SOCKET);
                self.done = true;
                done()
            }
            Request::PidNamespace(_) => self.make_pid_namespace(asked),
        }
    }

    fn find(&mut self, target: &Target) -> Result<&mut Process> {
        let missing = || {
            failure(
                NOT_FOUND,
                format!("no process {} {}", target.container, target.exec),
            )
        };
        self.processes
            .iter_mut()
            .find(|process| process.target == *target)
            .ok_or_else(missing)
    }

    fn state(&self) -> State {
        State {
            pid: getpid().as_raw() as u32,
            pid_namespace: self.pid_namespace,
            processes: self.processes.iter().map(Process::report).collect(),
        }
    }

    fn create(&mut self, asked: (u64, u64), create: Create) -> Result {
        let target = Target {
            container: create.id.clone(),
            exec: String::new(),
        };
        let verb = ["create".into(), "--bundle".into(), create.bundle];
        self.make(asked, target, create.stdio, &create.runtime, &verb)
    }

    fn exec(&mut self, asked: (u64, u64), exec: Exec) -> Result {
        let init = self.find(&Target {
            container: exec.target.container.clone(),
            exec: String::new(),
        })?;
        if !init.is_alive() || init.started_at == 0 {
            return Err(failure(
                PRECONDITION,
                format!("container {} does not run", exec.target.container),
            ));
        }
        let runtime = Runtime {
            argv: init.argv.clone(),
            ..exec.runtime
        };
        let verb = [
            "exec".into(),
            "--detach".into(),
            "--process".into(),
            exec.process,
        ];
        self.make(asked, exec.target, exec.stdio, &runtime, &verb)
    }

    /// Has the runtime make a process with streams of its own.
    fn make(
        &mut self,
        asked: (u64, u64),
        target: Target,
        stdio: Stdio,
        runtime: &Runtime,
        verb: &[String],
    ) -> Result {
        if !record::is_name(&target.container)
            || !(target.exec.is_empty() || record::is_name(&target.exec))
        {
            return Err(failure(PRECONDITION, "not a name"));
        }
        if self.find(&target).is_ok() {
            return Err(failure(
                PRECONDITION,
                format!("{} {} exists", target.container, target.exec),
            ));
        }
        let number = self.number();
        let held = stdio.hold;
        let (streams, child) = Streams::new(stdio).map_err(system)?;
        let mut process = Process {
            number,
            target,
            argv: runtime.argv.clone(),
            pid: 0,
            started_at: 0,
            exit: None,
            streams,
            log: None,
            oom: None,
            held,
            attached: 0,
        };
        process.open_log().map_err(system)?;
        let mut argv = runtime.argv.clone();
        argv.extend_from_slice(verb);
        argv.extend(["--pid-file".into(), self.path(number, "pid")]);
        let mut console = None;
        if process.streams.spec.tty {
            let path = self.path(number, "pty");
            let _ = fs::remove_file(&path);
            let listener = UnixListener::bind(&path).map_err(system)?;
            listener.set_nonblocking(true).map_err(system)?;
            console = Some(listener);
            argv.extend(["--console-socket".into(), path]);
            if !process.is_init() {
                argv.push("--tty".into());
            }
        }
        argv.extend(runtime.args.iter().cloned());
        argv.push(process.target.container.clone());
        let started = self.begin(asked, Purpose::Make, number, &argv, runtime, child, None);
        if let Err(error) = started {
            self.clear(number);
            return Err(error);
        }
        self.jobs
            .last_mut()
            .into_iter()
            .for_each(|job| job.console = console.take());
        self.processes.push(process);
        Ok(None)
    }

    fn path(&self, number: u64, suffix: &str) -> String {
        self.dir
            .join(format!(".{number}.{suffix}"))
            .display()
            .to_string()
    }

    fn clear(&self, number: u64) {
        for suffix in ["pid", "pty"] {
            let _ = fs::remove_file(self.path(number, suffix));
        }
    }

    /// Runs another verb of the runtime.
    fn verb(
        &mut self,
        asked: (u64, u64),
        purpose: Purpose,
        verb: Verb,
        name: &[&str],
        last: &[String],
    ) -> Result {
        let process = self.find(&Target {
            container: verb.id.clone(),
            exec: String::new(),
        })?;
        if process.pid == 0 {
            return Err(failure(
                PRECONDITION,
                format!("container {} is being made", verb.id),
            ));
        }
        let number = process.number;
        let mut argv = process.argv.clone();
        argv.extend(name.iter().map(ToString::to_string));
        argv.extend(verb.runtime.args.iter().cloned());
        argv.push(verb.id);
        argv.extend_from_slice(last);
        let (words, child) = pipe(true).map_err(system)?;
        let child = [Child::null(), Child::null(), child.into()];
        self.begin(
            asked,
            purpose,
            number,
            &argv,
            &verb.runtime,
            child,
            Some(words),
        )?;
        Ok(None)
    }

    #[allow(clippy::too_many_arguments)]
    fn begin(
        &mut self,
        (connection, request): (u64, u64),
        purpose: Purpose,
        process: u64,
        argv: &[String],
        runtime: &Runtime,
        child: [Child; 3],
        words: Option<OwnedFd>,
    ) -> Result<()> {
        let pid = spawn(argv, &runtime.env, child).map_err(|e| failure(RUNTIME, e.to_string()))?;
        let deadline = Instant::now() + Duration::from_millis(runtime.timeout_ms.into());
        let timed_out = false;
        self.jobs.push(Job {
            pid,
            purpose,
            process,
            connection,
            request,
            deadline,
            timed_out,
            words,
            console: None,
        });
        Ok(())
    }

    /// A call of the runtime has ended.
    pub(super) fn finish(&mut self, mut job: Job, success: bool) {
        let answer = match job.purpose {
            Purpose::Make => self.made(&job, success),
            Purpose::PidNamespace => {
                self.pid_namespace = job
                    .words
                    .take()
                    .and_then(pid_namespace::read_pid)
                    .unwrap_or(0);
                match self.pid_namespace {
                    0 => Err(failure(SYSTEM, "cannot make a PID namespace")),
                    pid => Ok(Answer::Pid(pid)),
                }
            }
            _ if !success => Err(failure(
                if job.timed_out { TIMEOUT } else { RUNTIME },
                job.words.take().map(last_words).unwrap_or_default(),
            )),
            Purpose::Start => {
                self.with(job.process, |process| process.started_at = clock::now());
                Ok(Answer::Done(Empty {}))
            }
            Purpose::Delete => {
                self.deleted(job.process);
                Ok(Answer::Done(Empty {}))
            }
            Purpose::Kill => Ok(Answer::Done(Empty {})),
        };
        let answer = answer.unwrap_or_else(Answer::Failed);
        self.answer(job.connection, job.request, &answer);
        // It may have ended before its pid was known. The answer first: nobody waits for the end of what was not made.
        if let (Purpose::Make, Answer::Pid(pid)) = (job.purpose, answer)
            && let Some(at) = self.early.iter().position(|(early, ..)| *early == pid)
        {
            let (pid, status, at) = self.early.swap_remove(at);
            self.ended(pid, status, at);
        }
    }

    fn made(&mut self, job: &Job, success: bool) -> Result<Answer> {
        let pid = fs::read_to_string(self.path(job.process, "pid"))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        self.clear(job.process);
        let Some(at) = self
            .processes
            .iter()
            .position(|process| process.number == job.process)
        else {
            return Err(failure(NOT_FOUND, "deleted meanwhile"));
        };
        let process = &mut self.processes[at];
        let result = match (success, pid) {
            (true, Some(pid)) => {
                let terminal = job
                    .console
                    .as_ref()
                    .map_or(Ok(()), |console| process.streams.terminal(console));
                terminal
                    .map(|()| pid)
                    .map_err(|e| failure(RUNTIME, format!("terminal: {e}")))
            }
            _ => {
                let words = process.streams.out[1]
                    .take()
                    .map(|file| last_words(file.into()))
                    .unwrap_or_default();
                Err(failure(
                    if job.timed_out { TIMEOUT } else { RUNTIME },
                    words,
                ))
            }
        };
        let pid: u32 = match result {
            Ok(pid) => pid,
            Err(error) => {
                if let Some(pid) = pid {
                    let _ = kill(Pid::from_raw(pid as i32), nix::sys::signal::SIGKILL);
                }
                self.processes.remove(at);
                return Err(error);
            }
        };
        process.pid = pid;
        if process.is_init() {
            process.oom = Oom::of(pid);
            let _ = record::write_init(&process.target.container, pid);
        } else {
            process.started_at = clock::now();
        }
        Ok(Answer::Pid(pid))
    }

    fn deleted(&mut self, number: u64) {
        let Some(process) = self
            .processes
            .iter()
            .find(|process| process.number == number)
        else {
            return;
        };
        let id = process.target.container.clone();
        record::remove(&id);
        self.drop_processes(|process| process.target.container == id);
    }

    fn drop_processes(&mut self, which: impl Fn(&Process) -> bool) {
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

    fn kill(&mut self, asked: (u64, u64), request: &Kill) -> Result {
        let process = self.find(&request.target)?;
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
        // A child that was not reaped: its pid is nobody else's.
        let signal = nix::sys::signal::Signal::try_from(request.signal)
            .map_err(|e| failure(PRECONDITION, e.to_string()))?;
        kill(Pid::from_raw(process.pid as i32), signal)
            .map_err(|e| failure(SYSTEM, e.to_string()))?;
        done()
    }

    fn attach(&mut self, (connection, number): (u64, u64), attach: &Attach) -> Result {
        let process = self.find(&attach.target)?;
        process.attached += 1;
        process.held = false;
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

    fn resize(&mut self, resize: &Resize) -> Result {
        let process = self.find(&resize.target)?;
        let terminal = process.streams.out[0]
            .as_ref()
            .filter(|_| process.streams.spec.tty);
        let terminal = terminal.ok_or_else(|| failure(PRECONDITION, "no terminal"))?;
        let size = rustix::termios::Winsize {
            ws_row: resize.height,
            ws_col: resize.width,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(terminal, size)
            .map_err(|e| failure(SYSTEM, e.to_string()))?;
        done()
    }

    fn forget(&mut self, target: &Target) -> Result {
        let process = self.find(target)?;
        if process.is_init() || process.exit.is_none() {
            return Err(failure(
                PRECONDITION,
                "only an exec that has ended can be forgotten",
            ));
        }
        self.drop_processes(|process| process.target == *target);
        done()
    }

    /// Ended execs whose daemon died before it could ask: the oldest are forgotten.
    pub(super) fn forget_old(&mut self) {
        let ended = |process: &&Process| !process.is_init() && process.exit.is_some();
        let numbers: Vec<_> = self
            .processes
            .iter()
            .filter(ended)
            .map(|process| process.number)
            .collect();
        if let Some(many) = numbers.len().checked_sub(MAX_ENDED_EXECS) {
            self.drop_processes(|process| numbers[..many].contains(&process.number));
        }
    }

    fn make_pid_namespace(&mut self, asked: (u64, u64)) -> Result {
        if self.pid_namespace != 0 {
            return Ok(Some(Answer::Pid(self.pid_namespace)));
        }
        let (words, child) = pipe(true).map_err(system)?;
        let argv = ["/proc/self/exe".to_owned(), "pid-namespace".to_owned()];
        let runtime = Runtime {
            timeout_ms: 10_000,
            ..Runtime::default()
        };
        let child = [Child::null(), child.into(), Child::null()];
        self.begin(
            asked,
            Purpose::PidNamespace,
            0,
            &argv,
            &runtime,
            child,
            Some(words),
        )?;
        Ok(None)
    }
}

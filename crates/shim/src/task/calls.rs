//! The requests of the daemon as calls of the Task service.

use std::fs;
use std::time::Duration;

use criscope_wire::Any;
use criscope_wire::task::{
    CloseIoRequest, ConnectResponse, CreateTaskRequest, ExecProcessRequest, KillRequest,
    PidResponse, ProcessRequest, ResizePtyRequest, UpdateTaskRequest, WaitResponse,
};
use criscope_wire::ttrpc::FrameError;
use prost::{DecodeError, Message};

use super::super::clock;
use super::super::process::Process;
use super::super::protocol::{
    Answer, Create, Empty, Exec, Failure, Kill, NOT_FOUND, PRECONDITION, Resize, SYSTEM, Stdio,
    TIMEOUT, Target, TaskShim, Update, Verb,
};
use super::super::requests::{Result as Answered, deleted_meanwhile, failure, system};
use super::super::server::Shim;
use super::super::streams::Streams;
use super::connection::{Call, Pending};
use super::events::Events;
use super::launch::not_running;
use super::{TASK_CALL_TIMEOUT, Task, TaskProcess, stats};

/// The types of the JSON objects in calls (containerd, `pkg/runtime-spec`).
const PROCESS: &str = "types.containerd.io/opencontainers/runtime-spec/1/Process";
const RESOURCES: &str = "types.containerd.io/opencontainers/runtime-spec/1/LinuxResources";

/// The result of a call.
pub(super) type Result<T = Vec<u8>> = std::result::Result<T, Failure>;

pub(super) fn timed_out() -> Result {
    Err(failure(TIMEOUT, "the containerd shim did not answer"))
}

#[allow(clippy::needless_pass_by_value)]
fn damaged(error: DecodeError) -> Failure {
    failure(SYSTEM, format!("an answer of the containerd shim: {error}"))
}

#[allow(clippy::needless_pass_by_value)]
fn not_sent(error: FrameError) -> Failure {
    failure(
        PRECONDITION,
        format!("a call of the containerd shim: {error}"),
    )
}

pub(super) fn milliseconds(time: u32) -> Option<Duration> {
    Some(Duration::from_millis(time.into()))
}

fn process(target: &Target) -> ProcessRequest {
    ProcessRequest {
        id: target.container.clone(),
        exec_id: target.exec.clone(),
    }
}

impl Shim {
    /// Creates a container, first the sandbox's.
    pub(crate) fn create_task(
        &mut self,
        asked: (u64, u64),
        create: Create,
        spec: TaskShim,
    ) -> Answered {
        let target = Target {
            container: create.id.clone(),
            exec: String::new(),
        };
        match &self.task {
            Some(task) if !task.has_sandbox() => return Err(not_running()),
            None if spec.sandbox != create.id => return Err(not_running()),
            _ => {}
        }
        let (stdio, bundle) = (create.stdio.clone(), create.bundle.clone());
        let number = self.add(asked, target, stdio, TaskProcess::in_bundle(bundle))?;
        if self.task.is_none() {
            let events = Events::listen().map_err(system);
            self.task = events.map(|events| Some(Task::new(spec, events)))?;
        }
        let begun = self.start_containerd_shim(asked, number, create);
        if begun.is_err() {
            self.processes.retain(|process| process.number != number);
            self.task
                .take_if(|task| task.starts.is_empty() && task.shims.is_empty());
        }
        begun.map(|()| None)
    }

    /// Adds a process with its FIFOs and its log.
    fn add(
        &mut self,
        (owner, _): (u64, u64),
        target: Target,
        stdio: Stdio,
        task: TaskProcess,
    ) -> Answered<u64> {
        self.check_new(&target)?;
        let number = self.number();
        let held = stdio.hold;
        let streams = Streams::for_task(stdio, &self.dir, number).map_err(system)?;
        let mut process = Process {
            held,
            owner,
            task: Some(task),
            ..Process::new(number, target, streams)
        };
        process.open_log().map_err(system)?;
        self.processes.push(process);
        Ok(number)
    }

    pub(super) fn send_create(
        &mut self,
        asked: (u64, u64),
        number: u64,
        create: &Create,
    ) -> Answered<()> {
        let [stdin, stdout, stderr] = self.fifos(number);
        let options = create.runtime.task.as_ref().map(|task| &*task.options);
        let options = options.filter(|options| !options.is_empty());
        let options = options.map(Any::decode).transpose();
        let task = CreateTaskRequest {
            id: create.id.clone(),
            bundle: create.bundle.clone(),
            terminal: create.stdio.tty,
            stdin,
            stdout,
            stderr,
            options: options.map_err(|e| failure(PRECONDITION, e.to_string()))?,
        };
        let timeout = milliseconds(create.runtime.timeout_ms);
        let connection = self.connection(number).ok_or_else(not_running)?;
        connection
            .call(Call::Create, (number, Some(asked)), &task, timeout)
            .map_err(not_sent)
    }

    fn fifos(&self, number: u64) -> [String; 3] {
        let fifos = self
            .process(number)
            .and_then(|process| process.streams.fifos.as_ref());
        fifos.map(super::fifo::Fifos::paths).unwrap_or_default()
    }

    /// Runs a process in a container.
    pub(crate) fn exec_task(&mut self, asked: (u64, u64), exec: Exec) -> Answered {
        let spec = fs::read(&exec.process).map_err(system)?;
        let init = self.task_process(&exec.target.container)?;
        let shim = self.containerd_shim_of(init).unwrap_or_default();
        if self.containerd_shim(shim).is_none() {
            return Err(not_running());
        }
        let terminal = exec.stdio.tty;
        let number = self.add(
            asked,
            exec.target.clone(),
            exec.stdio,
            TaskProcess::in_shim(shim),
        )?;
        let [stdin, stdout, stderr] = self.fifos(number);
        let request = ExecProcessRequest {
            id: exec.target.container,
            exec_id: exec.target.exec,
            terminal,
            stdin,
            stdout,
            stderr,
            spec: Some(Any {
                type_url: PROCESS.to_owned(),
                value: spec,
            }),
        };
        let timeout = milliseconds(exec.runtime.timeout_ms);
        let sent = self.send(Call::Exec, (number, Some(asked)), &request, timeout);
        if sent.is_err() {
            self.drop_processes(|process| process.number == number);
        }
        sent
    }

    pub(super) fn send(
        &mut self,
        call: Call,
        about: (u64, Option<(u64, u64)>),
        message: &impl Message,
        timeout: Option<Duration>,
    ) -> Answered {
        let connection = self.connection(about.0).ok_or_else(not_running)?;
        let sent = connection.call(call, about, message, timeout);
        sent.map(|()| None).map_err(not_sent)
    }

    /// Starts a created container.
    pub(crate) fn start_task(&mut self, asked: (u64, u64), number: u64, verb: &Verb) -> Answered {
        let request = ProcessRequest {
            id: verb.id.clone(),
            ..ProcessRequest::default()
        };
        let timeout = milliseconds(verb.runtime.timeout_ms);
        self.send(Call::Start, (number, Some(asked)), &request, timeout)
    }

    /// Deletes a container. A running one is killed first, and deleted when it has exited.
    pub(crate) fn delete_task(&mut self, asked: (u64, u64), number: u64, verb: &Verb) -> Answered {
        let mut alive = false;
        self.with(number, |process| {
            alive = process.is_alive();
            if let Some(task) = process.task.as_mut().filter(|_| alive) {
                task.delete = Some(asked);
            }
        });
        let kill = KillRequest {
            id: verb.id.clone(),
            exec_id: String::new(),
            signal: nix::sys::signal::SIGKILL as u32,
            all: true,
        };
        if alive {
            // The process may have exited already, which its exit will tell.
            return self.send_other("Kill", (number, None), &kill);
        }
        self.delete_ended(asked, number, &verb.id)
    }

    pub(super) fn delete_ended(&mut self, asked: (u64, u64), number: u64, id: &str) -> Answered {
        if self.connection(number).is_none() {
            // The container was cleaned up when the containerd shim ended.
            self.deleted(number);
            return Ok(Some(Answer::Done(Empty {})));
        }
        let request = ProcessRequest {
            id: id.to_owned(),
            ..ProcessRequest::default()
        };
        let timeout = Some(3 * TASK_CALL_TIMEOUT);
        self.send(Call::Delete, (number, Some(asked)), &request, timeout)
    }

    /// Sends a signal.
    pub(crate) fn kill_task(&mut self, asked: (u64, u64), number: u64, kill: &Kill) -> Answered {
        let request = KillRequest {
            id: kill.target.container.clone(),
            exec_id: kill.target.exec.clone(),
            signal: kill.signal.cast_unsigned(),
            all: kill.all,
        };
        let timeout = Some(TASK_CALL_TIMEOUT);
        self.send(Call::Kill, (number, Some(asked)), &request, timeout)
    }

    /// Resizes a terminal.
    pub(crate) fn resize_task(
        &mut self,
        asked: (u64, u64),
        number: u64,
        resize: &Resize,
    ) -> Answered {
        let request = ResizePtyRequest {
            id: resize.target.container.clone(),
            exec_id: resize.target.exec.clone(),
            width: resize.width,
            height: resize.height,
        };
        self.send_other("ResizePty", (number, Some(asked)), &request)
    }

    fn send_other(
        &mut self,
        method: &str,
        about: (u64, Option<(u64, u64)>),
        message: &impl Message,
    ) -> Answered {
        let connection = self.connection(about.0).ok_or_else(not_running)?;
        let timeout = Some(TASK_CALL_TIMEOUT);
        let sent = connection.call_method(Call::Other, method, about, message, timeout);
        sent.map(|()| None).map_err(not_sent)
    }

    /// Changes the resources of a container.
    pub(crate) fn update_task(&mut self, asked: (u64, u64), update: Update) -> Answered {
        let number = self.task_process(&update.id)?;
        let request = UpdateTaskRequest {
            id: update.id,
            resources: Some(Any {
                type_url: RESOURCES.to_owned(),
                value: update.resources,
            }),
        };
        let timeout = milliseconds(update.timeout_ms);
        self.send(Call::Update, (number, Some(asked)), &request, timeout)
    }

    pub(super) fn task_process(&mut self, id: &str) -> Answered<u64> {
        let process = self.find(&Target {
            container: id.to_owned(),
            exec: String::new(),
        })?;
        match process.task {
            Some(_) => Ok(process.number),
            None => Err(failure(PRECONDITION, "no containerd shim runs it")),
        }
    }

    /// Tells the containerd shim of inputs that have ended.
    pub(super) fn close_inputs(&mut self) {
        let mut closed = Vec::new();
        for process in self.processes.iter_mut().filter(|one| one.is_alive()) {
            let ended = process.streams.has_no_input();
            if let Some(task) = process.task.as_mut().filter(|one| !one.input_closed)
                && ended
            {
                task.input_closed = true;
                closed.push((process.number, process.target.clone()));
            }
        }
        for (number, target) in closed {
            let request = CloseIoRequest {
                id: target.container,
                exec_id: target.exec,
                stdin: true,
            };
            let _ended = self.send_other("CloseIO", (number, None), &request);
        }
    }

    /// Handles the end of a call.
    pub(super) fn task_answered(&mut self, pending: Pending, result: Result) {
        let number = pending.process;
        let answer = match pending.call {
            Call::Create | Call::StartExec => self.task_made(number, result).map(Some),
            Call::Exec => match result {
                Ok(_) => self.start_exec(pending),
                Err(error) => {
                    self.drop_unmade(number);
                    Err(error)
                }
            },
            Call::Start => result.map(|started| {
                self.task_runs(number, &started);
                Some(Answer::Done(Empty {}))
            }),
            Call::Wait => {
                let waited = result.and_then(|payload| decode::<WaitResponse>(&payload));
                self.task_waited(number, waited);
                Ok(None)
            }
            Call::Delete => match result {
                Err(error) if error.kind != NOT_FOUND => Err(error),
                _ => {
                    self.deleted(number);
                    self.retire_containerd_shims();
                    Ok(Some(Answer::Done(Empty {})))
                }
            },
            Call::Connect => {
                let connected = result.and_then(|payload| decode::<ConnectResponse>(&payload));
                if let (Ok(connected), Some(shim)) = (connected, self.containerd_shim(number)) {
                    shim.pid = connected.shim_pid;
                }
                Ok(None)
            }
            Call::Stats => stats::reported(result).map(Some),
            Call::Kill | Call::Update | Call::Other => result.map(|_| Some(Answer::Done(Empty {}))),
        };
        let answer = answer.unwrap_or_else(|error| Some(Answer::Failed(error)));
        if let (Some((connection, request)), Some(answer)) = (pending.asked, answer) {
            self.answer(connection, request, &answer);
        }
    }

    fn start_exec(&mut self, pending: Pending) -> Answered {
        let number = pending.process;
        let found = self.process(number).ok_or_else(deleted_meanwhile)?;
        let request = process(&found.target);
        let about = (number, pending.asked);
        self.send(
            Call::StartExec,
            about,
            &request,
            Some(3 * TASK_CALL_TIMEOUT),
        )
    }

    /// Completes a create or exec: its exit is waited for from now on.
    fn task_made(&mut self, number: u64, result: Result) -> Result<Answer> {
        let pid = match result.and_then(|payload| decode::<PidResponse>(&payload)) {
            Ok(made) => made.pid,
            Err(error) => {
                self.drop_unmade(number);
                return Err(error);
            }
        };
        let found = self.process_mut(number).ok_or_else(deleted_meanwhile)?;
        found.created(pid);
        let request = process(&found.target);
        self.send(Call::Wait, (number, None), &request, None)?;
        Ok(Answer::Pid(pid))
    }

    /// Completes the start of a container. Only now the pid is certain: runwasi's shims answer a create with their own.
    fn task_runs(&mut self, number: u64, started: &[u8]) {
        let pid = decode::<PidResponse>(started).map_or(0, |started| started.pid);
        self.with(number, |process| {
            process.started_at = clock::now();
            if pid != 0 && pid != process.pid && process.is_alive() {
                process.created(pid);
            }
        });
    }

    /// Drops a process that could not be created, here and in the containerd shim.
    fn drop_unmade(&mut self, number: u64) {
        if let Some(found) = self.process(number) {
            let request = process(&found.target);
            let _gone = self.send_other("Delete", (number, None), &request);
        }
        self.drop_processes(|process| process.number == number);
        self.retire_containerd_shims();
    }
}

pub(super) fn decode<T: Message + Default>(payload: &[u8]) -> Result<T> {
    T::decode(payload).map_err(damaged)
}

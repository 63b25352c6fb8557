//! Calls of the OCI runtime: started by a request, answered when they end.

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::Stdio as Child;
use std::time::{Duration, Instant};

use rustix::process::WaitStatus;

use super::job::{Job, Purpose, runtime_failure};
use super::process::Process;
use super::protocol::{
    Answer, Create, Empty, Exec, PRECONDITION, RUNTIME, Runtime, Stdio, Target, Verb,
};
use super::requests::{Result, deleted_meanwhile, failure, system};
use super::server::Shim;
use super::spawn::{last_words, pipe, spawn};
use super::streams::Streams;
use super::{clock, record, signal};

impl Shim {
    pub(super) fn create(&mut self, asked: (u64, u64), create: Create) -> Result {
        if let Some(task) = create.runtime.task.clone() {
            return self.create_task(asked, create, task);
        }
        let target = Target {
            container: create.id.clone(),
            exec: String::new(),
        };
        let verb = ["create".into(), "--bundle".into(), create.bundle];
        self.make(asked, target, create.stdio, &create.runtime, &verb)
    }

    pub(super) fn exec(&mut self, asked: (u64, u64), exec: Exec) -> Result {
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
        if init.task.is_some() {
            return self.exec_task(asked, exec);
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

    /// Starts an OCI runtime call that creates a process whose streams the shim owns.
    fn make(
        &mut self,
        asked: (u64, u64),
        target: Target,
        stdio: Stdio,
        runtime: &Runtime,
        verb: &[String],
    ) -> Result {
        self.check_new(&target)?;
        let number = self.number();
        let held = stdio.hold;
        let (streams, child) = Streams::new(stdio).map_err(system)?;
        let mut process = Process {
            argv: runtime.argv.clone(),
            held,
            owner: asked.0,
            ..Process::new(number, target, streams)
        };
        process.open_log().map_err(system)?;
        let mut argv = runtime.argv.clone();
        // Without a log file, what the OCI runtime logs would end up in the output of the new process.
        argv.extend(["--log".into(), self.path(number, "log")]);
        argv.extend(["--log-format".into(), "json".into()]);
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

    /// Checks the name of a new process.
    pub(super) fn check_new(&mut self, target: &Target) -> Result<()> {
        if !record::is_name(&target.container)
            || !(target.exec.is_empty() || record::is_name(&target.exec))
        {
            return Err(failure(PRECONDITION, "not a name"));
        }
        match self.find(target) {
            Ok(_) => Err(failure(
                PRECONDITION,
                format!("{} {} exists", target.container, target.exec),
            )),
            Err(_) => Ok(()),
        }
    }

    fn path(&self, number: u64, suffix: &str) -> String {
        self.dir
            .join(format!(".{number}.{suffix}"))
            .display()
            .to_string()
    }

    fn clear(&self, number: u64) {
        for suffix in ["log", "pid", "pty"] {
            let _ = fs::remove_file(self.path(number, suffix));
        }
    }

    /// Starts an OCI runtime call of another verb.
    pub(super) fn verb(
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
        if process.task.is_some() {
            return match purpose {
                Purpose::Start => self.start_task(asked, number, &verb),
                _ => self.delete_task(asked, number, &verb),
            };
        }
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
    pub(super) fn begin(
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

    /// Completes an OCI runtime call that has ended.
    pub(super) fn finish(&mut self, mut job: Job, status: WaitStatus) {
        let success = status.exit_status() == Some(0);
        let answer = match job.purpose {
            Purpose::Make => self.made(&job, status),
            Purpose::PidNamespace => self.pid_namespace_made(&mut job, success),
            Purpose::TaskStart => match self.task_started(&mut job, success) {
                // The create that follows is answered.
                Ok(()) => return,
                Err(error) => Err(error),
            },
            Purpose::TaskCleanup => {
                self.kill_left(job.process);
                return self.task_ended(job.process);
            }
            _ if !success => {
                let words = job.words.take().map(last_words).unwrap_or_default();
                Err(runtime_failure(&job, status, words))
            }
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
    }

    fn made(&mut self, job: &Job, status: WaitStatus) -> Result<Answer> {
        let pid = fs::read_to_string(self.path(job.process, "pid"))
            .ok()
            .and_then(|text| text.trim().parse().ok());
        let log = fs::File::open(self.path(job.process, "log"));
        self.clear(job.process);
        let Some(at) = self
            .processes
            .iter()
            .position(|process| process.number == job.process)
        else {
            return Err(deleted_meanwhile());
        };
        let process = &mut self.processes[at];
        let result = match (status.exit_status(), pid) {
            (Some(0), Some(pid)) => {
                let terminal = job
                    .console
                    .as_ref()
                    .map_or(Ok(()), |console| process.streams.terminal(console));
                terminal
                    .map(|()| pid)
                    .map_err(|e| failure(RUNTIME, format!("terminal: {e}")))
            }
            _ => {
                // An OCI runtime that panics, or fails before it opens its log, writes to stderr.
                let words = [log.ok(), process.streams.out[1].take()]
                    .map(|file| file.map(|file| last_words(file.into())).unwrap_or_default());
                Err(runtime_failure(job, status, words.join("\n")))
            }
        };
        let pid: u32 = match result {
            Ok(pid) => pid,
            Err(error) => {
                // The process may have exited and been reaped: the pid may then belong to another process.
                if let Some(pid) = pid.filter(|pid| signal::is_child(*pid)) {
                    let _ = signal::send(pid, nix::sys::signal::SIGKILL as i32);
                }
                self.processes.remove(at);
                return Err(error);
            }
        };
        process.created(pid);
        Ok(Answer::Pid(pid))
    }

    pub(super) fn deleted(&mut self, number: u64) {
        let Some(process) = self.process(number) else {
            return;
        };
        let id = process.target.container.clone();
        record::remove(&id);
        let all = self.processes.iter();
        let all = all.filter(|process| process.target.container == id);
        for number in all.map(|process| process.number).collect::<Vec<_>>() {
            self.pump_rest(number);
        }
        self.drop_processes(|process| process.target.container == id);
    }
}

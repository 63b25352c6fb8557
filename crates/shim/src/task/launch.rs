//! The start of a containerd shim (containerd, `core/runtime/v2/README.md`), and its end.

use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio as Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

use criscope_wire::task::{ProcessRequest, ShutdownRequest};
use nix::sys::signal::SIGKILL;
use nix::unistd::getpid;

use super::super::job::{Job, Purpose};
use super::super::process::Process;
use super::super::protocol::{Create, PRECONDITION, RUNTIME, TIMEOUT, TaskShim};
use super::super::requests::{Result as Answered, deleted_meanwhile, failure, system};
use super::super::server::Shim;
use super::super::signal;
use super::super::spawn::{SELF, last_words, pipe, spawn_in};
use super::connection::{Call, Connection};
use super::containerd_shim::ContainerdShim;
use super::events;
use super::{Start, TASK_CALL_TIMEOUT, Task, fifo};

/// How long a containerd shim may take to end when the pod is removed.
const ENDING: Duration = Duration::from_secs(3);

/// The pause between two looks at a process that is to end.
const PAUSE: Duration = Duration::from_millis(5);

impl Shim {
    /// Calls the program of the containerd shim to `start`, for a container.
    pub(super) fn start_containerd_shim(
        &mut self,
        asked: (u64, u64),
        process: u64,
        create: Create,
    ) -> Answered<()> {
        let task = self.task.as_mut().ok_or_else(not_running)?;
        let bundle = Path::new(&create.bundle);
        let log = fifo::log(bundle).map_err(system)?;
        let (words, said) = pipe(true).map_err(system)?;
        let said_too = said.try_clone().map_err(system)?;
        let (options, stdin) = pipe(false).map_err(system)?;
        // Small enough for the pipe; a containerd shim need not read them.
        let _unread = fs::File::from(options).write_all(&task.spec.options);
        let argv = command(&task.spec, &create.id, &create.bundle, "start").map_err(system)?;
        let child: [Child; 3] = [stdin.into(), said.into(), said_too.into()];
        let started = spawn_in(&argv, &variables(&task.spec), child, Some(bundle));
        let pid = started.map_err(|e| failure(RUNTIME, e.to_string()))?;
        let timeout = Duration::from_millis(create.runtime.timeout_ms.into());
        self.jobs.push(Job {
            pid,
            purpose: Purpose::TaskStart,
            process,
            connection: asked.0,
            request: asked.1,
            deadline: Instant::now() + timeout,
            timed_out: false,
            words: Some(words),
            console: None,
        });
        task.starts.push(Start {
            asked,
            process,
            create,
            log,
        });
        Ok(())
    }

    /// Connects to the containerd shim of a container once `start` has ended, and creates the container.
    pub(crate) fn task_started(&mut self, job: &mut Job, success: bool) -> Answered<()> {
        let words = job.words.take().map(last_words).unwrap_or_default();
        let created = self.create_after_start(job.process, success, &words);
        if created.is_err() {
            self.processes
                .retain(|process| process.number != job.process);
            self.retire_containerd_shims();
            // Without a sandbox container, the next request may be one to create it.
            if self.containerd_shims().is_empty() {
                self.task = None;
            }
        }
        created.map_err(|error| {
            if job.timed_out {
                failure(TIMEOUT, error.message)
            } else {
                error
            }
        })
    }

    fn create_after_start(&mut self, process: u64, success: bool, words: &str) -> Answered<()> {
        let task = self.task.as_mut().ok_or_else(deleted_meanwhile)?;
        let at = task.starts.iter().position(|one| one.process == process);
        let start = task.starts.remove(at.ok_or_else(deleted_meanwhile)?);
        let (asked, create) = (start.asked, start.create.clone());
        let connected = if success {
            task.connect(start, words)
        } else {
            Err(words.to_owned())
        };
        let shim = connected.map_err(|message| failure(RUNTIME, message))?;
        self.with(process, |process| {
            if let Some(task) = &mut process.task {
                task.shim = shim;
            }
        });
        self.send_create(asked, process, &create)
    }

    /// Starts the cleanup of a container whose containerd shim has ended.
    pub(super) fn clean_up(&self, process: &Process) -> io::Result<u32> {
        let (Some(task), Some(own)) = (&self.task, &process.task) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let id = &process.target.container;
        let mut argv = command(&task.spec, id, &own.bundle, "delete")?;
        let verb = argv.pop();
        argv.extend(["-bundle".to_owned(), own.bundle.clone()]);
        argv.extend(verb);
        let child = [Child::null(), Child::null(), Child::null()];
        let dir = Path::new(&own.bundle);
        let _unchanged = fifo::close_log(dir);
        spawn_in(&argv, &variables(&task.spec), child, Some(dir))
    }

    /// Ends the containerd shims with this one. What they still run is cleaned up.
    pub(crate) fn end_task(&mut self) {
        self.stop_containerd_shims();
        if let Some(task) = self.task.take() {
            task.shims.iter().for_each(ContainerdShim::remove_socket);
        }
    }

    /// Ends the containerd shims whose last container is deleted. The pod may stay for long.
    pub(super) fn retire_containerd_shims(&mut self) {
        for number in self.containerd_shims() {
            if self.runs_processes(number) {
                continue;
            }
            if let Some(shim) = self.containerd_shim(number) {
                let shutdown = ShutdownRequest {
                    id: shim.id.clone(),
                    now: true,
                };
                let (call, method) = (Call::Other, "Shutdown");
                let connection = &mut shim.connection;
                let _fits = connection.call_method(call, method, (0, None), &shutdown, None);
            }
        }
    }

    fn runs_processes(&self, shim: u64) -> bool {
        let mut tasks = self.processes.iter().filter_map(|one| one.task.as_ref());
        tasks.any(|task| task.shim == shim)
    }

    fn stop_containerd_shims(&mut self) {
        self.retire_containerd_shims();
        for shim in self.task.iter().flat_map(|task| &task.shims) {
            let retires = !self.runs_processes(shim.number);
            if retires && wait(shim.pid, ENDING) {
                continue;
            }
            if signal::is_child(shim.pid) {
                let _ended = signal::send(shim.pid, SIGKILL as i32);
                wait(shim.pid, ENDING);
            }
        }
        for process in self.processes.iter().filter(|process| process.is_init()) {
            if let Ok(cleaning) = self.clean_up(process) {
                wait(cleaning, ENDING);
            }
        }
    }
}

impl Task {
    /// Connects to the containerd shim that `start` has named, unless it runs already; returns its number.
    fn connect(&mut self, start: Start, words: &str) -> Result<u64, String> {
        let (service, address) = bootstrap(words)?;
        let socket = Path::new(address);
        if let Some(shared) = self.shims.iter().find(|shim| shim.socket == socket) {
            return Ok(shared.number);
        }
        // Removed here, as containerd's shims do: the daemon removes the socket if this shim is killed too.
        let file = Path::new(&start.create.bundle).join("address");
        fs::write(&file, format!("unix://{address}"))
            .map_err(|e| format!("{}: {e}", file.display()))?;
        let stream = UnixStream::connect(socket).map_err(|e| format!("{address}: {e}"))?;
        let connection = Connection::new(stream, service, &self.spec.namespace);
        let mut connection = connection.map_err(|e| e.to_string())?;
        let id = start.create.id;
        let asked = ProcessRequest {
            id: id.clone(),
            ..ProcessRequest::default()
        };
        self.count += 1;
        let (about, timeout) = ((self.count, None), Some(TASK_CALL_TIMEOUT));
        connection
            .call(Call::Connect, about, &asked, timeout)
            .map_err(|error| error.to_string())?;
        self.shims.push(ContainerdShim {
            number: self.count,
            id,
            connection,
            socket: socket.to_owned(),
            pid: 0,
            log: start.log,
            last_words: Vec::new(),
        });
        Ok(self.count)
    }
}

/// Waits for the end of a child; returns whether it has ended.
fn wait(pid: u32, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while signal::is_child(pid) && signal::reap(pid).is_none() {
        if Instant::now() >= end {
            return false;
        }
        sleep(PAUSE);
    }
    true
}

/// The arguments of a containerd shim, which is told where to send events, and with which program if not by ttrpc.
fn command(spec: &TaskShim, id: &str, bundle: &str, verb: &str) -> io::Result<Vec<String>> {
    if bundle.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let publish = fs::read_link(SELF)?.display().to_string();
    let words = [
        &spec.program,
        "-namespace",
        &spec.namespace,
        "-address",
        &address(),
        "-publish-binary",
        &publish,
        "-id",
        id,
        verb,
    ];
    Ok(words.map(ToOwned::to_owned).into())
}

/// The path of the socket for events. That of the pod's directory may be too long for a socket.
fn address() -> String {
    format!("/proc/{}/cwd/{}", getpid(), events::SOCKET)
}

fn variables(spec: &TaskShim) -> Vec<String> {
    let mut all = vec![
        format!("TTRPC_ADDRESS={}", address()),
        format!("NAMESPACE={}", spec.namespace),
        "MAX_SHIM_VERSION=3".to_owned(),
    ];
    if env::var_os("GOMAXPROCS").is_none() {
        // The value that containerd sets: a Go program would otherwise have a thread for each core of the node.
        all.push("GOMAXPROCS=2".to_owned());
    }
    all
}

/// The service and the socket in the output of `start`: an address, or since version 3 an object with one.
fn bootstrap(words: &str) -> Result<(&'static str, &str), String> {
    let line = words.lines().last().unwrap_or_default().trim();
    let object = line.starts_with('{');
    let (address, version, protocol) = if object {
        (
            field(line, "address").unwrap_or_default(),
            field(line, "version").unwrap_or_default(),
            field(line, "protocol").unwrap_or_default(),
        )
    } else {
        (line, "2", "")
    };
    let service = match (version, protocol) {
        ("2", "" | "ttrpc") => "containerd.task.v2.Task",
        ("3", "" | "ttrpc") => "containerd.task.v3.Task",
        _ => {
            return Err(format!(
                "the containerd shim has version {version:?} of its API over {protocol:?}; 2 and 3 over ttrpc are supported"
            ));
        }
    };
    match address.strip_prefix("unix://") {
        Some(path) if path.starts_with('/') => Ok((service, path)),
        _ => Err(format!(
            "the output of the containerd shim has no socket: {words:?}"
        )),
    }
}

/// The value of a field of a flat JSON object, without escapes, which paths and numbers have none of.
fn field<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = object.split_once(&format!("\"{name}\""))?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    match value.strip_prefix('"') {
        Some(text) => text.split('"').next(),
        None => value.split([',', '}']).next().map(str::trim),
    }
}

/// The error for the create of a container other than the sandbox's without a containerd shim.
pub(super) fn not_running() -> super::super::protocol::Failure {
    failure(
        PRECONDITION,
        "the containerd shim of the pod does not run: create the pod again",
    )
}

#[cfg(test)]
mod tests {
    use super::bootstrap;

    #[test]
    fn addresses_of_both_versions_are_read() {
        let path = "/run/containerd/s/0a";
        for (words, service) in [
            ("unix:///run/containerd/s/0a", "containerd.task.v2.Task"),
            (
                "level=warning\nunix:///run/containerd/s/0a\n",
                "containerd.task.v2.Task",
            ),
            (
                r#"{"version":3,"address":"unix:///run/containerd/s/0a","protocol":"ttrpc"}"#,
                "containerd.task.v3.Task",
            ),
            (
                r#"{ "version" : 2, "address" : "unix:///run/containerd/s/0a" }"#,
                "containerd.task.v2.Task",
            ),
        ] {
            assert_eq!(bootstrap(words), Ok((service, path)), "{words}");
        }
        for words in [
            "",
            "panic",
            "unix://relative",
            r#"{"version":3,"address":"unix:///a","protocol":"grpc"}"#,
            r#"{"version":4,"address":"unix:///a","protocol":"ttrpc"}"#,
            r#"{"version":3}"#,
        ] {
            bootstrap(words).expect_err(words);
        }
    }
}

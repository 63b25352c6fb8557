//! Child processes: output to a log file, memory from `/proc`, always terminated and reaped.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, io, thread};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use serde::Serialize;
use tokio::net::UnixStream;

use crate::PATIENCE;
use crate::error::{Error, IoContext, Result};

const START_LIMIT: Duration = Duration::from_secs(20);
const END_LIMIT: Duration = Duration::from_secs(5);

/// Bytes from the end of a log that are shown on failure.
const TAIL: usize = 8000;

/// Finds a program in `PATH` or in Debian's directories for daemons.
///
/// # Errors
/// [`Error::Missing`], which names the Debian package.
pub fn find(program: &str, package: &str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or_else(|| Error::Missing {
            program: program.to_owned(),
            package: package.to_owned(),
        })
}

/// The first line with a digit that a program prints for its version flag, on either stream.
pub fn version(program: &Path, flag: &str) -> String {
    let Ok(output) = Command::new(program).arg(flag).output() else {
        return "unknown".to_owned();
    };
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text)
        .lines()
        .find(|line| line.chars().any(|c| c.is_ascii_digit()))
        .unwrap_or("unknown")
        .trim()
        .to_owned()
}

/// Makes this process a subreaper, or not. A subreaper becomes the parent of orphaned descendants, such as the workers
/// of nginx and the containers of runc, and can reap them.
///
/// # Errors If prctl(2) fails.
pub fn adopt_orphans(adopt: bool) -> Result<()> {
    set_child_subreaper(adopt)
        .map_err(io::Error::from)
        .during(|| "becoming a subreaper".to_owned())
}

/// Stops a process (SIGSTOP) and waits until all of its threads have stopped. On a busy machine that takes some milliseconds: the
/// thread that receives the signal stops the others.
///
/// # Panics
/// If there is no such process, or after [`PATIENCE`].
pub fn halt(pid: Pid) {
    kill(pid, Signal::SIGSTOP).expect("SIGSTOP");
    let deadline = Instant::now() + PATIENCE;
    while !has_stopped(pid) {
        assert!(Instant::now() < deadline, "process {pid} does not stop");
        thread::sleep(Duration::from_millis(1));
    }
}

fn has_stopped(pid: Pid) -> bool {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process");
    tasks.flatten().all(|task| {
        // A thread that has ended is not in the way.
        let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        state.is_none_or(|state| state.starts_with('T'))
    })
}

/// A child and its process group. Dropping it terminates the group: SIGTERM, then SIGKILL after five seconds. If the
/// thread panics, the end of the log is printed.
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command` in a new process group. Stdout and stderr are appended to `log`.
    ///
    /// # Errors If the program or its log file cannot be opened.
    pub fn spawn(name: &'static str, command: &mut Command, log: PathBuf) -> Result<Self> {
        let opening = || format!("opening {}", log.display());
        let output = fs::File::options().create(true).append(true).open(&log);
        let output = output.during(opening)?;
        let errors = output.try_clone().during(opening)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .during(|| format!("starting {}", command.get_program().display()))?;
        Ok(Self { name, child, log })
    }

    /// Like [`Process::spawn`], but the kernel sends the child SIGTERM when the calling thread exits, so call it on the
    /// main thread. For benchmarks, which may be killed.
    ///
    /// # Errors
    /// As [`Process::spawn`].
    pub fn spawn_bound(name: &'static str, command: &Command, log: PathBuf) -> Result<Self> {
        let mut bound = Command::new(find("setpriv", "util-linux")?);
        bound.args(["--pdeathsig", "TERM", "--"]);
        bound.arg(command.get_program()).args(command.get_args());
        let set = command
            .get_envs()
            .filter_map(|(key, value)| Some((key, value?)));
        Self::spawn(name, bound.envs(set), log)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the child accepts connections on `socket`.
    ///
    /// # Errors [`Error::Process`] if the child exits first or takes longer than 20 s.
    pub async fn wait_for_socket(&mut self, socket: &Path) -> Result<()> {
        let start = Instant::now();
        while UnixStream::connect(socket).await.is_err() {
            self.check()?;
            if start.elapsed() > START_LIMIT {
                let problem = format!("did not listen on {}", socket.display());
                return Err(self.problem(problem));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Checks that the child is still running.
    ///
    /// # Errors
    /// [`Error::Process`] with the end of its log.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.problem(format!("ended: {status}"))),
            Err(error) => Err(self.problem(error.to_string())),
        }
    }

    /// An error about this child, with the end of its log.
    pub fn problem(&self, problem: String) -> Error {
        Error::Process {
            name: self.name,
            pid: self.pid(),
            problem,
            log: self.log.clone(),
            tail: self.tail(),
        }
    }

    /// Kills the child alone with SIGKILL and reaps it.
    ///
    /// # Errors If waiting for it fails.
    pub fn kill(&mut self) -> io::Result<ExitStatus> {
        // It may have exited already.
        let _ = self.child.kill();
        self.child.wait()
    }

    /// Sends the child SIGTERM and waits until it has exited. Dropping it does the same, but blocks the thread and with it the tasks
    /// of a client, and a gRPC server waits for its clients to acknowledge its GOAWAY before it exits.
    ///
    /// # Errors
    /// [`Error::Process`] if that takes longer than five seconds.
    pub async fn terminate(&mut self) -> Result<()> {
        // It may have exited already.
        let _ = kill(Pid::from_raw(self.pid().cast_signed()), Signal::SIGTERM);
        let start = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if start.elapsed() > END_LIMIT {
                return Err(self.problem(format!("did not exit within {END_LIMIT:?} of SIGTERM")));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    /// Resident memory, in bytes.
    ///
    /// # Errors
    /// If `/proc` cannot be read, for example because the child has exited.
    pub fn rss(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// Anonymous resident memory, in bytes: without file-backed pages.
    ///
    /// # Errors If `/proc` cannot be read, for example because the child has exited.
    pub fn anonymous(&self) -> Result<u64> {
        self.status("RssAnon:")
    }

    /// Peak resident memory since the start or the last [`Process::reset_peak`], in bytes.
    ///
    /// # Errors
    /// If `/proc` cannot be read, for example because the child has exited.
    pub fn peak_rss(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    /// Resets the peak to the current value (proc(5), `clear_refs`).
    ///
    /// # Errors If the file cannot be written.
    pub fn reset_peak(&self) -> Result<()> {
        let file = format!("/proc/{}/clear_refs", self.pid());
        fs::write(&file, "5").during(|| format!("writing {file}"))
    }

    fn status(&self, key: &str) -> Result<u64> {
        let file = format!("/proc/{}/status", self.pid());
        kibibytes(&file, key)?.ok_or_else(|| self.problem(format!("has no {key} in {file}")))
    }

    fn tail(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text[text.len().saturating_sub(TAIL)..]).into_owned()
    }

    /// Returns whether the child or another process of its group is still running. Exited ones are reaped.
    fn is_alive(&mut self, group: Pid) -> bool {
        if let Ok(None) = self.child.try_wait() {
            return true;
        }
        let any = Pid::from_raw(-group.as_raw());
        // An error means that no children are left.
        waitpid(any, Some(WaitPidFlag::WNOHANG)).is_ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("log of {}:\n{}", self.name, self.tail());
        }
        // The child leads its group: its pid is the group's id until every process in it is reaped.
        let group = Pid::from_raw(self.child.id().cast_signed());
        let mut signal = Signal::SIGTERM;
        let start = Instant::now();
        let mut due = true;
        while self.is_alive(group) {
            if std::mem::take(&mut due) {
                let _ = killpg(group, signal);
            }
            if start.elapsed() > END_LIMIT && signal == Signal::SIGTERM {
                (signal, due) = (Signal::SIGKILL, true);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The memory of a process, in bytes, with its part of what it shares with others (proc(5), `smaps_rollup`).
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub struct Proportional {
    /// `Pss`: all of it.
    pub total: u64,
    /// `Pss_Anon`: without the pages of files, such as the code.
    pub anonymous: u64,
}

impl Proportional {
    /// Of this process.
    ///
    /// # Errors
    /// If it cannot be read, for example because the process has exited.
    pub fn of(pid: u32) -> Result<Self> {
        let file = format!("/proc/{pid}/smaps_rollup");
        let read = |key: &str| {
            let missing = || Error::Setup(format!("{file} has no {key}"));
            kibibytes(&file, key)?.ok_or_else(missing)
        };
        Ok(Self {
            total: read("Pss:")?,
            anonymous: read("Pss_Anon:")?,
        })
    }
}

/// The value of a line `KEY N kB` of a file in `/proc`, in bytes.
///
/// # Errors If the file cannot be read.
pub fn kibibytes(file: &str, key: &str) -> Result<Option<u64>> {
    let text = fs::read_to_string(file).during(|| format!("reading {file}"))?;
    let value = text.lines().find_map(|line| line.strip_prefix(key));
    let number = value.and_then(|value| value.trim().strip_suffix(" kB"));
    let number = number.and_then(|value| value.trim().parse::<u64>().ok());
    Ok(number.map(|kib| kib * 1024))
}

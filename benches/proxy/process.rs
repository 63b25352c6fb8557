//! Child processes: started with their output in a file, waited for, looked into through `/proc`, and always ended.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use tokio::net::UnixStream;

use crate::error::{Error, IoContext, Result};

const START_LIMIT: Duration = Duration::from_secs(20);
const END_LIMIT: Duration = Duration::from_secs(5);

/// Where a program is, looked for in `PATH` and where Debian keeps its daemons.
///
/// # Errors
/// [`Error::Missing`], which names the Debian package.
pub(crate) fn find(program: &'static str, package: &'static str) -> Result<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .ok_or(Error::Missing { program, package })
}

/// The first line of what a program says about its version, on either stream.
pub(crate) fn version(program: &Path, flag: &str) -> String {
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

/// A running child and the processes it forked. Dropping it ends them all and waits for it.
pub(crate) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `program` in a process group of its own, with both outputs in `log`. Should this benchmark be killed, the
    /// kernel sends the child SIGTERM.
    ///
    /// Has to be called on the main thread: the kernel looks at the thread that forked.
    ///
    /// # Errors
    /// When the program or its log file cannot be opened.
    pub(crate) fn start<A: AsRef<OsStr>>(
        name: &'static str,
        program: &Path,
        args: impl IntoIterator<Item = A>,
        env: &[(&str, String)],
        log: PathBuf,
    ) -> Result<Self> {
        let setpriv = find("setpriv", "util-linux")?;
        let output = fs::File::create(&log).during(|| format!("creating {}", log.display()))?;
        let errors = output
            .try_clone()
            .during(|| format!("opening {}", log.display()))?;
        let child = Command::new(setpriv)
            .args(["--pdeathsig", "TERM", "--"])
            .arg(program)
            .args(args)
            .envs(env.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .process_group(0)
            .spawn()
            .during(|| format!("starting {}", program.display()))?;
        Ok(Self { name, child, log })
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until something accepts connections on `socket`.
    ///
    /// # Errors
    /// [`Error::Process`] if the child ends first or takes longer than 20 s.
    pub(crate) async fn wait_for_socket(&mut self, socket: &Path) -> Result<()> {
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

    /// Makes sure that the child still runs.
    ///
    /// # Errors
    /// [`Error::Process`] with the end of its log.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.problem(format!("ended: {status}"))),
            Err(error) => Err(self.problem(error.to_string())),
        }
    }

    /// An error about this child, with the end of its log.
    pub(crate) fn problem(&self, problem: String) -> Error {
        let text = fs::read(&self.log).unwrap_or_default();
        let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned();
        Error::Process {
            name: self.name,
            pid: self.pid(),
            problem,
            log: self.log.clone(),
            tail,
        }
    }

    /// Whether the child, or then any of those it left to us, still runs. Those that do not are waited for.
    fn someone_left(&mut self, group: Pid) -> bool {
        if let Ok(None) = self.child.try_wait() {
            return true;
        }
        let any = Pid::from_raw(-group.as_raw());
        // An error means that there are no more.
        waitpid(any, Some(WaitPidFlag::WNOHANG)).is_ok()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The child leads its group, so its pid is the group's id as long as anyone in it has not been waited for.
        let group = Pid::from_raw(self.child.id().cast_signed());
        let mut signal = Signal::SIGTERM;
        let _ = killpg(group, signal);
        let start = Instant::now();
        while self.someone_left(group) {
            if start.elapsed() > END_LIMIT && signal == Signal::SIGTERM {
                signal = Signal::SIGKILL;
                let _ = killpg(group, signal);
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

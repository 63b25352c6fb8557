//! `checkpoint`, `pause` and `resume`: verbs of runc that the OCI runtime specification does not have. crun has `checkpoint` only if it
//! was built with CRIU.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use criscope_linux::environment;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::error::OciError;
use super::runtime::{OciRuntime, failure_of};
use crate::steps::traceparent;

const VERB: &str = "checkpoint";
/// The state of a paused container.
const PAUSED: &str = "paused";
/// How often the end of a dump is looked for: it takes from 100 ms to minutes.
const PERIOD: Duration = Duration::from_millis(10);
/// How much longer than that a dump may run before it is killed. CRIU cannot be told to stop, and only it can take its code out of
/// the processes at once.
const GRACE: Duration = Duration::from_secs(300);

/// The options of `checkpoint`.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The directory for CRIU's images.
    pub images: PathBuf,
    /// The directory for CRIU's log and statistics, and the log of the runtime.
    pub work: PathBuf,
    /// When it should be over.
    pub until: Instant,
}

impl OciRuntime {
    /// Returns whether the program has the verb `checkpoint`.
    ///
    /// # Errors
    /// If it cannot be run.
    pub async fn can_checkpoint(&self) -> Result<bool, OciError> {
        if self.shim.is_some() {
            return Ok(false);
        }
        let argv = [VERB.into(), "--help".into()];
        Ok(self.run(VERB, &argv, None).await?.status.success())
    }

    /// Returns whether a container is paused.
    ///
    /// # Errors
    /// If its state cannot be read.
    pub async fn is_paused(&self, id: &str) -> Result<bool, OciError> {
        Ok(self.state(id).await?.status == PAUSED)
    }

    /// Freezes all processes of a running container.
    ///
    /// # Errors
    /// If the freezer cannot be used.
    pub async fn pause(&self, id: &str) -> Result<(), OciError> {
        self.verb("pause", id, &["pause", id], None).await?;
        Ok(())
    }

    /// Thaws a paused container.
    ///
    /// # Errors
    /// If it is not paused.
    pub async fn resume(&self, id: &str) -> Result<(), OciError> {
        self.verb("resume", id, &["resume", id], None).await?;
        Ok(())
    }

    /// Dumps the processes of a container with CRIU, and leaves them running. Blocks.
    ///
    /// The program is not killed when the daemon stops: CRIU must take its code out of the processes again. So it has no pipe either, whose other
    /// end would be gone.
    ///
    /// # Errors
    /// If it fails, or has not ended in time: then it is let end first, and killed after five minutes more.
    pub fn checkpoint(&self, id: &str, options: &Checkpoint) -> Result<(), OciError> {
        let log = options.work.join("runtime.log");
        let said = options.work.join("runtime.stderr");
        let mut argv = self.argv(Some(&log), &[VERB, "--leave-running", "--file-locks"]);
        argv.extend(["--image-path".into(), options.images.clone().into()]);
        argv.extend(["--work-path".into(), options.work.clone().into()]);
        argv.push(id.into());
        let mut command = Command::new(&self.path);
        for name in environment::SERVICE_MANAGER {
            command.env_remove(name);
        }
        let stderr = File::create(&said).map_err(|source| OciError::Io {
            path: said.clone(),
            source,
        })?;
        command
            .args(argv)
            .envs(traceparent().map(|trace| ("TRACEPARENT", trace)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .process_group(0);
        let status = self.finish(command, options.until)?;
        if status.success() {
            return Ok(());
        }
        let stderr = std::fs::read(&said).unwrap_or_default();
        Err(failure_of(VERB, id, &status.to_string(), &log, &stderr))
    }

    fn finish(&self, mut command: Command, until: Instant) -> Result<ExitStatus, OciError> {
        let began = Instant::now();
        let mut child = command.spawn().map_err(|source| OciError::Start {
            path: self.path.clone(),
            source,
        })?;
        let end = until.checked_add(GRACE).unwrap_or(until);
        while Instant::now() < end {
            let waited = child.try_wait();
            if let Some(status) = waited.map_err(|source| self.io_error(source))? {
                return if Instant::now() < until {
                    Ok(status)
                } else {
                    Err(timed_out(began))
                };
            }
            sleep(PERIOD);
        }
        // Not reaped, so its number is not reused.
        let _ended_meanwhile = killpg(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL);
        child.wait().map_err(|source| self.io_error(source))?;
        Err(timed_out(began))
    }

    fn io_error(&self, source: io::Error) -> OciError {
        OciError::Io {
            path: self.path.clone(),
            source,
        }
    }
}

fn timed_out(began: Instant) -> OciError {
    OciError::Timeout {
        verb: VERB,
        after: began.elapsed(),
    }
}

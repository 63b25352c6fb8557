//! Runs a short-lived program with limits on time and output; it is killed if the future is dropped.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use criscope_linux::environment;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// Maximum output kept of each stream: 1 MiB. The rest is read and discarded, so that the program does not block.
const OUTPUT_LIMIT: usize = 1 << 20;
/// How long the streams are read after the exit: a child may keep them open.
const DRAIN: Duration = Duration::from_millis(500);

/// The result of a program.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) status: ExitStatus,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// Why a program did not finish.
#[derive(Debug)]
pub(super) enum Fault {
    Start(io::Error),
    Wait(io::Error),
    Timeout,
}

/// Kills the process group of a program on drop, unless the program was reaped.
struct Group(Option<Pid>);

impl Group {
    /// Disarms the guard: the program was reaped.
    fn release(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The process may have exited already.
            let _gone = killpg(group, Signal::SIGKILL);
        }
    }
}

/// A call of a program.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) path: &'a Path,
    pub(super) args: &'a [OsString],
    /// The working directory; `None` for the daemon's.
    pub(super) dir: Option<&'a Path>,
    pub(super) env: &'a [(String, String)],
    pub(super) stdin: Option<&'a [u8]>,
    pub(super) limit: Duration,
}

/// Runs a program in a new process group, which is killed at the timeout or when the future is dropped.
pub(super) async fn run(call: Call<'_>) -> Result<Finished, Fault> {
    let mut command = command(&call);
    // Blocks: execve reads the program from disk.
    let spawned = tokio::task::spawn_blocking(move || command.spawn()).await;
    let spawned = spawned.map_err(io::Error::from).flatten();
    let child = spawned.map_err(Fault::Start)?;
    tokio::time::timeout(call.limit, finish(child, call.stdin))
        .await
        .map_err(|_| Fault::Timeout)?
        .map_err(Fault::Wait)
}

fn command(call: &Call<'_>) -> Command {
    let mut command = Command::new(call.path);
    for name in environment::SERVICE_MANAGER {
        command.env_remove(name);
    }
    if let Some(dir) = call.dir {
        command.current_dir(dir);
    }
    command
        .args(call.args)
        .envs(call.env.iter().map(|(name, value)| (name, value)))
        .stdin(if call.stdin.is_some() {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    command
}

/// Feeds a program its input, reads its output and waits for its exit. Its process group is killed if the future is dropped before.
async fn finish(mut child: Child, stdin: Option<&[u8]>) -> io::Result<Finished> {
    let mut group = Group(child.id().map(|id| Pid::from_raw(id.cast_signed())));
    let (pipe, mut out, mut err) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let feed = async {
        if let (Some(mut pipe), Some(bytes)) = (pipe, stdin) {
            // A program that does not read its input reports its own error.
            let _refused = pipe.write_all(bytes).await;
        }
        std::future::pending::<()>().await;
    };
    let status = {
        let reads = async {
            tokio::join!(
                drain(out.as_mut(), &mut stdout),
                drain(err.as_mut(), &mut stderr)
            );
        };
        tokio::pin!(reads);
        tokio::pin!(feed);
        let mut read = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => {
                    // The pid may be reused from here on.
                    group.release();
                    break status;
                }
                () = &mut reads, if !read => read = true,
                () = &mut feed => {}
            }
        };
        if !read {
            let _held_open = tokio::time::timeout(DRAIN, &mut reads).await;
        }
        status
    };
    Ok(Finished {
        status: status?,
        stdout,
        stderr,
    })
}

/// Reads to the end, keeping the first [`OUTPUT_LIMIT`] bytes.
async fn drain(from: Option<&mut (impl AsyncRead + Unpin)>, to: &mut Vec<u8>) {
    let Some(from) = from else { return };
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let room = OUTPUT_LIMIT - to.len();
        to.extend_from_slice(&buffer[..read.min(room)]);
    }
}

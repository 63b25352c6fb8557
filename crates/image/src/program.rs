//! Programs that are asked about an image: their output has a limit, and their children end with them.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use zeroize::Zeroizing;

/// Limit of each output of a program; the rest is read and dropped.
pub(crate) const MAX_OUTPUT: usize = 32 << 10;
/// Characters of an output in an error.
const MAX_SHOWN: usize = 1000;

/// A program that has ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The beginning of its output, which may be a secret.
    pub(crate) stdout: Zeroizing<Vec<u8>>,
    /// True if there was more.
    pub(crate) is_cut: bool,
    /// The beginning of its messages, on one line.
    pub(crate) messages: String,
}

/// Runs a program with this input in a process group of its own. The error is a reason for people.
pub(crate) async fn run(
    command: &mut Command,
    input: &[u8],
    timeout: Duration,
) -> Result<Ended, String> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    // Also the ones that it started, which hold its pipes open.
    let group = Group::from_child(&child);
    match tokio::time::timeout(timeout, converse(&mut child, input)).await {
        Ok(ended) => {
            group.ended();
            ended.map_err(|error| error.to_string())
        }
        Err(_) => Err(no_answer(timeout)),
    }
}

/// The reason of one that takes too long.
pub(crate) fn no_answer(timeout: Duration) -> String {
    format!("no answer within {} s", timeout.as_secs_f32())
}

/// The beginning of an output, on one line.
pub(crate) fn line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let shown = text.trim().chars().take(MAX_SHOWN);
    shown
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
}

/// Writes the input, reads the outputs, and waits for the end.
async fn converse(child: &mut Child, input: &[u8]) -> io::Result<Ended> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async move {
        if let Some(mut stdin) = stdin {
            // The program may exit without reading; only its answer matters.
            let _ = stdin.write_all(input).await;
        }
    };
    let ((), stdout, stderr, status) =
        tokio::join!(write, beginning(stdout), beginning(stderr), child.wait());
    let (stdout, is_cut) = stdout?;
    Ok(Ended {
        status: status?,
        stdout,
        is_cut,
        messages: line(&stderr?.0),
    })
}

/// Reads everything and returns the beginning, and whether there was more.
async fn beginning(pipe: Option<impl AsyncRead + Unpin>) -> io::Result<(Zeroizing<Vec<u8>>, bool)> {
    // Allocated at full size, so that no copy is left behind when it grows.
    let mut kept = Zeroizing::new(Vec::with_capacity(MAX_OUTPUT));
    let mut buffer = Zeroizing::new(vec![0; 8 << 10]);
    let mut is_cut = false;
    let Some(mut pipe) = pipe else {
        return Ok((kept, is_cut));
    };
    loop {
        let length = pipe.read(&mut buffer).await?;
        if length == 0 {
            return Ok((kept, is_cut));
        }
        let room = MAX_OUTPUT - kept.len();
        is_cut |= length > room;
        kept.extend_from_slice(&buffer[..length.min(room)]);
    }
}

/// Kills a process group when dropped.
struct Group(Option<Pid>);

impl Group {
    fn from_child(child: &Child) -> Self {
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        Self(pid.and_then(Pid::from_raw))
    }

    /// Nothing is left that holds the pipes. The number may now belong to others.
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // The program may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

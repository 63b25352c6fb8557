//! `criscope-agent capture`: the part of `kubectl criscope capture` that runs on the node, in a pod of its own.
//! Standard output gets everything, in the form of `capture_log`.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::capture_log::{CAPTURE_BEGIN, CAPTURE_END};

/// Bytes per line; base64 has 4 characters for 3 bytes.
const BYTES_PER_LINE: usize = 57;

/// Capture what criscope knows of the node, and print it in base64
#[derive(Clone, Debug, clap::Args)]
pub struct Args {
    /// A process in the mount namespace of the node
    #[arg(long, value_name = "PID", default_value_t = 1)]
    pid: u32,
    /// Where criscope is on the node: the first that exists
    #[arg(long, value_name = "FILE", default_values = ["/usr/local/bin/criscope", "/usr/bin/criscope"])]
    program: Vec<PathBuf>,
    /// Further arguments of criscope capture
    #[arg(last = true, value_name = "ARGUMENT")]
    more: Vec<String>,
}

/// The reason why there is no capture.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The namespace of the node cannot be entered, or a program not be started.
    #[error("{0}: {1}")]
    Node(String, io::Error),
    /// criscope is not installed on the node.
    #[error("criscope is not installed on this node")]
    Missing,
    /// `criscope capture` failed, and has printed the reason.
    #[error("criscope capture ended with {0}")]
    Command(ExitStatus),
    /// Standard output is closed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Enters the node, runs `criscope capture` there, and prints the file.
///
/// # Errors
/// If a step fails. Call it in a process of one thread.
pub fn run(args: &Args) -> Result<(), CaptureError> {
    let path = format!("/proc/{}/ns/mnt", args.pid);
    let entered = File::open(&path).and_then(|namespace| {
        let mount = Some(LinkNameSpaceType::Mount);
        Ok(move_into_link_name_space(namespace.as_fd(), mount)?)
    });
    entered.map_err(|error| CaptureError::Node(path, error))?;
    let program = args.program.iter().find(|program| program.exists());
    let program = program.ok_or(CaptureError::Missing)?;
    let mut command = Command::new(program);
    command.args(["capture", "-o", "-"]).args(&args.more);
    let output = command.stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| CaptureError::Node(program.display().to_string(), error))?;
    let mut out = io::stdout().lock();
    out.write_all(&output.stderr)?;
    if !output.status.success() {
        return Err(CaptureError::Command(output.status));
    }
    Ok(print(&output.stdout, &mut out)?)
}

/// Prints a capture between the marker lines.
///
/// # Errors
/// If writing fails.
fn print(capture: &[u8], out: &mut impl Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    writeln!(out, "{CAPTURE_BEGIN}")?;
    for line in capture.chunks(BYTES_PER_LINE) {
        writeln!(out, "{}", STANDARD.encode(line))?;
    }
    writeln!(out, "{CAPTURE_END}")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture_log::read;

    #[test]
    fn a_capture_in_a_log_is_whole_or_absent() {
        let capture: Vec<u8> = (0..100_000_u32).map(|n| ((n * 31) >> 3) as u8).collect();
        let mut log = b"hint: half of it\n".to_vec();
        print(&capture, &mut log).expect("written");
        log.extend(b"hint: the end\n");
        let log = String::from_utf8(log).expect("text");
        let (found, messages) = read(&log);
        assert_eq!(found, Some(capture));
        assert_eq!(messages, ["hint: half of it", "hint: the end"]);
        // The beginning or the end of a log may be rotated away, or a line be damaged.
        let cut = log.len() / 2;
        assert_eq!(read(&log[..cut]).0, None);
        assert_eq!(read(&log[cut..]).0, None);
        assert_eq!(read(&log.replacen('A', "!", 40)).0, None);
        assert_eq!(read("").0, None);
    }
}

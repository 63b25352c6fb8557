//! Processes of containerd shims.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;

use nix::poll::PollFlags;

use super::super::protocol::MAX_CHUNK;
use super::connection::Connection;

/// How much of the end of its log is kept, in bytes, to tell why it ended.
const LAST_WORDS: usize = 1024;

/// A process of a containerd shim, with the connection to it.
#[derive(Debug)]
pub(super) struct ContainerdShim {
    /// Counts them, from 1.
    pub(super) number: u64,
    /// The id of the container that it was started for.
    pub(super) id: String,
    pub(super) connection: Connection,
    /// Where it listens. One that is killed leaves its socket.
    pub(super) socket: PathBuf,
    /// The pid; 0 until it has said.
    pub(super) pid: u32,
    pub(super) log: File,
    pub(super) last_words: Vec<u8>,
}

impl ContainerdShim {
    /// The descriptors to wait for.
    pub(super) fn sources(&self) -> [(BorrowedFd<'_>, PollFlags); 2] {
        [
            (self.connection.as_fd(), self.connection.interest()),
            (self.log.as_fd(), PollFlags::POLLIN),
        ]
    }

    /// Reads its log and keeps the end.
    pub(super) fn read_log(&mut self, room: &mut [u8]) {
        while let Ok(n @ 1..) = self.log.read(room) {
            self.last_words.extend_from_slice(&room[..n]);
            let surplus = self.last_words.len().saturating_sub(LAST_WORDS);
            self.last_words.drain(..surplus);
        }
    }

    /// Removes its socket, which it may have removed itself.
    pub(super) fn remove_socket(&self) {
        let _absent = fs::remove_file(&self.socket);
    }

    /// The reason of its end, if its log has one.
    pub(super) fn reason(&mut self) -> String {
        self.read_log(&mut [0; MAX_CHUNK]);
        let words = String::from_utf8_lossy(&self.last_words);
        match last_trouble(&words, self.last_words.len() == LAST_WORDS) {
            Some(last) => format!("the containerd shim ended: {last}"),
            None => "the containerd shim ended".to_owned(),
        }
    }
}

/// The last line of a log that is not an ordinary message of logrus. The first line of a log that was cut may lack its level.
fn last_trouble(words: &str, cut: bool) -> Option<&str> {
    let lines: Vec<_> = words.trim().split('\n').map(str::trim).collect();
    let from = usize::from(cut && lines.len() > 1);
    let mut troubles = lines[from..].iter().rev();
    let found = troubles.find(|line| !line.is_empty() && !is_ordinary(line));
    found.copied()
}

fn is_ordinary(line: &str) -> bool {
    ["info", "debug", "trace"].iter().any(|level| {
        line.contains(&format!(" level={level} "))
            || line.contains(&format!("\"level\":\"{level}\""))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_messages_are_no_reason() {
        let info =
            "time=\"2026-11-26T01:43:18Z\" level=info msg=\"starting signal loop\" pid=6311\n";
        let json = "{\"level\":\"debug\",\"msg\":\"unregistered\"}\n";
        let error = "time=\"2026-11-26T01:43:19Z\" level=error msg=\"no memory\"\n";
        assert_eq!(last_trouble(&format!("{info}{json}"), false), None);
        let all = format!("{error}{info}{json}\n");
        assert_eq!(last_trouble(&all, false), Some(error.trim()));
        assert_eq!(last_trouble("panic: x\nfatal\n", false), Some("fatal"));
        assert_eq!(last_trouble("", false), None);
    }

    #[test]
    fn a_line_that_was_cut_is_no_reason_beside_others() {
        let rest = "vel=info msg=x\nt level=info msg=y\n";
        assert_eq!(last_trouble(rest, true), None);
        assert_eq!(last_trouble("one long line", true), Some("one long line"));
    }
}

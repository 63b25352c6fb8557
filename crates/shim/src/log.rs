//! A container log in the kubelet's format: lines of `TIME stdout|stderr P|F CONTENT`.
//!
//! The behaviour is that of containerd's `internal/cri/io/logger.go`: a line longer than the limit is split into partial
//! lines, an unterminated tail is partial, and an error of the file never stops reading of the pipe.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;

use criscope_linux::log_file;

use super::clock::{self, Stamp};

/// Default limit of the content of a line, in bytes.
pub const DEFAULT_MAX_LINE: usize = 16 << 10;

/// The stream of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// The log of one process.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
    file: File,
    max_line: usize,
    /// Strips CR before LF, which a terminal adds.
    strip_cr: bool,
    /// Data after the last LF, per stream.
    pending: [Vec<u8>; 2],
    /// True if the last write ended within a line.
    torn: bool,
    /// Bytes that could not be written.
    pub(crate) lost: u64,
}

impl Log {
    /// Opens the file for appending, and creates it with its directories. `path` has no links: none is followed.
    pub(crate) fn open(path: PathBuf, max_line: u32, strip_cr: bool) -> io::Result<Self> {
        Ok(Self {
            file: log_file::append(&path)?,
            path,
            max_line: if max_line == 0 {
                DEFAULT_MAX_LINE
            } else {
                max_line as usize
            },
            strip_cr,
            pending: [Vec::new(), Vec::new()],
            torn: false,
            lost: 0,
        })
    }

    /// Reopens the file by its path. If that fails, the old file remains in use.
    pub(crate) fn reopen(&mut self) -> io::Result<()> {
        self.file = log_file::append(&self.path)?;
        self.torn = false;
        Ok(())
    }

    /// Writes data of a stream. `out` is a buffer for lines.
    pub(crate) fn write(&mut self, stream: Stream, mut data: &[u8], out: &mut Vec<u8>) {
        let now = clock::stamp(clock::now());
        out.clear();
        let mut pending = std::mem::take(&mut self.pending[stream as usize]);
        while let Some(at) = data.iter().position(|byte| *byte == b'\n') {
            let line = if pending.is_empty() {
                &data[..at]
            } else {
                pending.extend_from_slice(&data[..at]);
                &pending
            };
            self.line(&now, stream, line, out);
            pending.clear();
            data = &data[at + 1..];
        }
        pending.extend_from_slice(data);
        // A piece of exactly the limit is kept back as well: if LF follows, it is a full line.
        let whole = pending.len().saturating_sub(1) / self.max_line * self.max_line;
        for piece in pending[..whole].chunks(self.max_line) {
            put(&now, stream, b'P', piece, out);
        }
        pending.drain(..whole);
        if pending.is_empty() {
            pending = Vec::new();
        }
        self.pending[stream as usize] = pending;
        self.flush(out);
    }

    /// Writes the unterminated tail of a stream that has ended.
    pub(crate) fn end(&mut self, stream: Stream, out: &mut Vec<u8>) {
        let rest = std::mem::take(&mut self.pending[stream as usize]);
        if !rest.is_empty() {
            out.clear();
            put(&clock::stamp(clock::now()), stream, b'P', &rest, out);
            self.flush(out);
        }
    }

    fn line(&self, now: &Stamp, stream: Stream, mut line: &[u8], out: &mut Vec<u8>) {
        if self.strip_cr {
            line = line.strip_suffix(b"\r").unwrap_or(line);
        }
        while line.len() > self.max_line {
            let (head, rest) = line.split_at(self.max_line);
            put(now, stream, b'P', head, out);
            line = rest;
        }
        put(now, stream, b'F', line, out);
    }

    fn flush(&mut self, out: &[u8]) {
        if out.is_empty() {
            return;
        }
        // A line that was cut by an error is terminated first, so that the next one is complete.
        if self.torn && self.file.write_all(b"\n").is_err() {
            self.lost += out.len() as u64;
            return;
        }
        let mut rest = out;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => break,
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.lost += rest.len() as u64;
        self.torn =
            !rest.is_empty() && rest.len() < out.len() && out[out.len() - rest.len() - 1] != b'\n';
    }
}

fn put(now: &Stamp, stream: Stream, tag: u8, content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(now);
    out.extend_from_slice(match stream {
        Stream::Stdout => b" stdout ",
        Stream::Stderr => b" stderr ",
    });
    out.extend_from_slice(&[tag, b' ']);
    out.extend_from_slice(content);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};

    use super::*;

    fn written(max_line: u32, tty: bool, pieces: &[&str]) -> Vec<String> {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("a/b.log");
        let mut log = Log::open(path.clone(), max_line, tty).expect("log");
        let mut room = Vec::new();
        for piece in pieces {
            log.write(Stream::Stdout, piece.as_bytes(), &mut room);
        }
        log.end(Stream::Stdout, &mut room);
        let text = fs::read_to_string(path).expect("text");
        text.split_terminator('\n')
            .map(|line| line.split_once(" stdout ").expect("stream").1.to_owned())
            .collect()
    }

    #[test]
    fn lines_are_split_and_tails_are_partial() {
        assert_eq!(
            written(0, false, &["a\nb", "c\n\n", "tail"]),
            ["F a", "F bc", "F ", "P tail"]
        );
        assert_eq!(
            written(4, false, &["abcdefgh\n", "abcdefghi\n"]),
            ["P abcd", "F efgh", "P abcd", "P efgh", "F i"]
        );
        assert_eq!(
            written(4, false, &["abcdef", "gh", "ij\n"]),
            ["P abcd", "P efgh", "F ij"]
        );
    }

    #[test]
    fn the_cr_of_a_terminal_is_stripped() {
        assert_eq!(written(0, true, &["a\r\nb\rc\r", "\n"]), ["F a", "F b\rc"]);
        assert_eq!(written(0, false, &["a\r\n"]), ["F a\r"]);
    }

    #[test]
    fn only_regular_files_are_opened_as_logs() {
        let dir = tempfile::tempdir().expect("dir");
        let path = |name: &str| dir.path().join(name);
        fs::write(path("victim"), "kept").expect("victim");
        std::os::unix::fs::symlink(path("victim"), path("link")).expect("link");
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
        for refused in [path("link"), path("pipe"), "/dev/full".into()] {
            Log::open(refused, 0, false).expect_err("no log");
        }
        // Nor is it reopened as another type of file.
        let mut log = Log::open(path("log"), 0, false).expect("log");
        fs::remove_file(path("log")).expect("renamed by the kubelet");
        std::os::unix::fs::symlink(path("victim"), path("log")).expect("link");
        log.reopen().expect_err("a link");
        log.write(Stream::Stdout, b"abc\n", &mut Vec::new());
        assert_eq!(log.lost, 0, "the old file is still written to");
        assert_eq!(fs::read(path("victim")).expect("victim"), b"kept");
    }

    #[test]
    fn a_log_is_not_reopened_behind_a_directory_that_became_a_link() {
        let dir = tempfile::tempdir().expect("dir");
        let path = |name: &str| dir.path().join(name);
        let mut log = Log::open(path("pod/app/0.log"), 0, false).expect("log");
        fs::create_dir(path("victims")).expect("dir");
        fs::rename(path("pod/app"), path("pod/old")).expect("renamed");
        std::os::unix::fs::symlink(path("victims"), path("pod/app")).expect("link");
        log.reopen().expect_err("a link on the way");
        log.write(Stream::Stdout, b"abc\n", &mut Vec::new());
        assert_eq!(fs::read_dir(path("victims")).expect("dir").count(), 0);
        let old = fs::read_to_string(path("pod/old/0.log")).expect("the old file");
        assert!(old.ends_with("abc\n"), "{old}");
    }

    #[test]
    fn a_write_error_is_counted_and_the_next_line_is_complete() {
        let dir = tempfile::tempdir().expect("dir");
        let mut log = Log::open(dir.path().join("a.log"), 0, false).expect("log");
        let full = OpenOptions::new().append(true).open("/dev/full");
        log.file = full.expect("/dev/full");
        log.write(Stream::Stdout, b"abc\n", &mut Vec::new());
        assert!(log.lost > 3);
    }
}

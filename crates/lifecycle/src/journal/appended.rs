//! Lines that other processes append to the journal: what lies between this process's own writes.

use std::fs::File;
use std::io::Seek as _;
use std::os::unix::fs::FileExt as _;

/// Most bytes of others that are kept until they are taken; a process that hands over writes a few kilobytes.
const MAX_KEPT_LEN: usize = 4 << 20;

/// Lines of other processes in the journal.
#[derive(Debug, Default)]
pub(super) struct AppendedLines {
    /// Everything in the current file before this offset was written by this process, or read.
    known: u64,
    /// The file before, and the offset in it.
    full: Option<(File, u64)>,
    read: Vec<u8>,
}

impl AppendedLines {
    /// Lines that are appended after this offset.
    pub(super) fn after(known: u64) -> Self {
        Self {
            known,
            ..Self::default()
        }
    }

    /// Where the current file is known to end.
    pub(super) fn known(&self) -> u64 {
        self.known
    }

    /// Leaves out the last `len` bytes before the position of the file, which this process has written; reads what lies before them.
    pub(super) fn skip_own(&mut self, mut file: &File, len: u64) {
        // With O_APPEND the position is that behind the last write.
        let Ok(end) = file.stream_position() else {
            return;
        };
        read(file, self.known, end.saturating_sub(len), &mut self.read);
        self.known = end;
    }

    /// Goes on with a new file. Others may still write to the full one.
    pub(super) fn begin_file(&mut self, full: Option<File>) {
        self.take_full();
        self.full = full.map(|file| (file, self.known));
        self.known = 0;
    }

    /// Takes the whole lines that were appended since.
    pub(super) fn take(&mut self, file: Option<&File>) -> Vec<u8> {
        self.take_full();
        if let Some(file) = file {
            self.known = read_lines(file, self.known, &mut self.read);
        }
        std::mem::take(&mut self.read)
    }

    fn take_full(&mut self) {
        if let Some((file, known)) = &mut self.full {
            *known = read_lines(file, *known, &mut self.read);
        }
    }
}

/// Reads whole lines from an offset to the end. Returns the offset behind them.
fn read_lines(file: &File, from: u64, lines: &mut Vec<u8>) -> u64 {
    let Ok(metadata) = file.metadata() else {
        return from;
    };
    let before = lines.len();
    read(file, from, metadata.len(), lines);
    // A line that is being written is read the next time.
    let end = lines[before..].iter().rposition(|byte| *byte == b'\n');
    let len = end.map_or(0, |end| end + 1);
    lines.truncate(before + len);
    from + len as u64
}

fn read(file: &File, from: u64, to: u64, lines: &mut Vec<u8>) {
    let len = usize::try_from(to.saturating_sub(from)).unwrap_or(usize::MAX);
    if len == 0 || lines.len() + len > MAX_KEPT_LEN {
        return;
    }
    let mut part = vec![0; len];
    if file.read_exact_at(&mut part, from).is_ok() {
        lines.extend_from_slice(&part);
    }
}

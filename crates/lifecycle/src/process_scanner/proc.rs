//! Reads `/proc` (proc(5)): few files, few fields, and one buffer that is cleared after each use.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Upper bound for bytes of an environment or a command line.
pub(super) const MAX_STRINGS_LEN: usize = 64 << 10;

/// Upper bound for bytes of a `stat`: 52 numbers and a name.
const MAX_STAT_LEN: usize = 2048;

/// Upper bound for bytes of a short file.
const MAX_SHORT_FILE_LEN: usize = 8 << 10;

/// Longest name that is shown, in characters.
const MAX_NAME_LEN: usize = 64;

/// The reason why a file of a process could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcReadError {
    /// The process is gone.
    Gone,
    /// This process may not read it.
    Denied,
}

impl From<io::Error> for ProcReadError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Self::Denied,
            // ENOENT, ESRCH and other errors concern one process only.
            _ => Self::Gone,
        }
    }
}

/// The kernel's name of a process: at most 15 bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessComm {
    bytes: [u8; 15],
    len: u8,
}

impl ProcessComm {
    pub(super) fn new(name: &[u8]) -> Self {
        let mut comm = Self::default();
        let len = name.len().min(comm.bytes.len());
        comm.bytes[..len].copy_from_slice(&name[..len]);
        comm.len = u8::try_from(len).unwrap_or_default();
        comm
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Returns whether a program with this name has this comm.
    pub(super) fn is(&self, program: &str) -> bool {
        *self == Self::new(program.as_bytes())
    }
}

impl fmt::Debug for ProcessComm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(self.bytes()))
    }
}

/// A name that is safe to show: letters, digits and `._-+:`, of at most 64 characters.
pub(super) fn shown(name: &[u8]) -> Arc<str> {
    if name.is_empty() {
        return "unknown".into();
    }
    let name = name.iter().take(MAX_NAME_LEN).map(|byte| match byte {
        b if b.is_ascii_alphanumeric() || b"._-+:".contains(b) => char::from(*b),
        _ => '_',
    });
    name.collect::<String>().into()
}

/// Fields of `/proc/PID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) comm: ProcessComm,
    /// The letter of the process's state.
    pub(super) state: u8,
    pub(super) ppid: u32,
    /// Start time, in ticks since boot.
    pub(super) start: u64,
}

impl ProcessStat {
    /// Parses the file. The name may contain anything, parentheses and spaces too, so it ends at the last parenthesis.
    fn parse(text: &[u8]) -> Option<Self> {
        let open = text.iter().position(|b| *b == b'(')?;
        let close = text.iter().rposition(|b| *b == b')')?;
        let comm = ProcessComm::new(text.get(open + 1..close)?);
        let rest = std::str::from_utf8(text.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.bytes().next()?;
        let ppid = fields.next()?.parse().ok()?;
        // Field 22 of the manual page; `ppid` is the fourth.
        let start = fields.nth(22 - 5)?.parse().ok()?;
        Some(Self {
            comm,
            state,
            ppid,
            start,
        })
    }

    /// Returns whether the process is a zombie.
    pub(super) fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }
}

/// A mounted `/proc`.
pub(super) struct ProcFs {
    root: PathBuf,
    buffer: Vec<u8>,
}

impl fmt::Debug for ProcFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the buffer, which may hold secrets.
        f.debug_struct("Proc")
            .field("root", &self.root)
            .finish_non_exhaustive()
    }
}

impl ProcFs {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            buffer: Vec::new(),
        }
    }

    fn path(&self, pid: u32, file: &str) -> PathBuf {
        self.root.join(format!("{pid}/{file}"))
    }

    /// The ids of all processes.
    ///
    /// # Errors
    /// If there is no such directory.
    pub(super) fn pids(&self) -> io::Result<impl Iterator<Item = u32> + use<>> {
        let entries = fs::read_dir(&self.root)?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
    }

    /// State, parent and start time of a process.
    pub(super) fn stat(&self, pid: u32) -> Result<ProcessStat, ProcReadError> {
        let mut text = [0; MAX_STAT_LEN];
        let len = fill(&mut File::open(self.path(pid, "stat"))?, &mut text)?;
        ProcessStat::parse(&text[..len]).ok_or(ProcReadError::Gone)
    }

    /// Passes at most [`MAX_STRINGS_LEN`] bytes of a file of NUL-separated strings to `visit`, then clears the buffer. A string
    /// that is cut off is left out.
    pub(super) fn texts<T>(
        &mut self,
        pid: u32,
        file: &str,
        visit: impl FnOnce(&[u8]) -> T,
    ) -> Result<T, ProcReadError> {
        let mut from = File::open(self.path(pid, file))?;
        self.buffer.resize(MAX_STRINGS_LEN, 0);
        let read = fill(&mut from, &mut self.buffer);
        let len = *read.as_ref().unwrap_or(&MAX_STRINGS_LEN);
        let whole = match len {
            MAX_STRINGS_LEN => self.buffer.iter().rposition(|b| *b == 0).unwrap_or(0),
            len => len,
        };
        let seen = read.map(|_| visit(&self.buffer[..whole]));
        self.buffer[..len].fill(0);
        Ok(seen?)
    }

    /// The directory of a process, or of one of its threads.
    pub(super) fn dir(&self, pid: u32, thread: Option<u32>) -> PathBuf {
        match thread {
            Some(thread) => self.path(pid, &format!("task/{thread}")),
            None => self.path(pid, ""),
        }
    }

    /// The threads of a process.
    pub(super) fn threads(
        &self,
        pid: u32,
    ) -> Result<impl Iterator<Item = u32> + use<>, ProcReadError> {
        let entries = fs::read_dir(self.path(pid, "task"))?;
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
    }

    /// The state of a thread, as the letter in its `stat`.
    pub(super) fn thread_state(&self, pid: u32, thread: u32) -> Result<u8, ProcReadError> {
        let mut text = [0; MAX_STAT_LEN];
        let path = self.path(pid, &format!("task/{thread}/stat"));
        let len = fill(&mut File::open(path)?, &mut text)?;
        let stat = ProcessStat::parse(&text[..len]).ok_or(ProcReadError::Gone)?;
        Ok(stat.state)
    }

    /// A short file of a process or thread that holds no strings of its own: `syscall`, `wchan`, `stack`, `cgroup`.
    pub(super) fn short(
        &self,
        pid: u32,
        thread: Option<u32>,
        file: &str,
    ) -> Result<String, ProcReadError> {
        let mut text = vec![0; MAX_SHORT_FILE_LEN];
        let len = fill(
            &mut File::open(self.dir(pid, thread).join(file))?,
            &mut text,
        )?;
        text.truncate(len);
        String::from_utf8(text).map_err(|_| ProcReadError::Gone)
    }

    /// The kernel functions that a thread is in, the innermost first: all of them if criscope may read them, or the one it
    /// waits in.
    pub(super) fn kernel_functions(&self, pid: u32, thread: u32) -> Vec<String> {
        let [stack, waits_in] = ["stack", "wchan"].map(|file| {
            let text = self.short(pid, Some(thread), file);
            text.unwrap_or_default()
        });
        // `[<0>] rpc_wait_bit_killable+0x1a/0xb0 [sunrpc]`
        let functions = stack.lines().filter_map(|line| {
            let function = line.split_once("] ")?.1;
            let name = function.split(['+', ' ']).next()?;
            (!name.is_empty()).then(|| name.to_owned())
        });
        let mut functions: Vec<_> = functions.collect();
        if functions.is_empty() && !matches!(waits_in.as_str(), "" | "0") {
            functions.push(waits_in);
        }
        functions
    }

    /// The mount namespace of a process: `mnt:[4026531841]`.
    pub(super) fn mount_namespace(&self, pid: u32) -> Result<PathBuf, ProcReadError> {
        Ok(fs::read_link(self.path(pid, "ns/mnt"))?)
    }

    /// The file name of a process's program.
    pub(super) fn program(&self, pid: u32) -> Result<Vec<u8>, ProcReadError> {
        use std::os::unix::ffi::OsStrExt;
        let link = fs::read_link(self.path(pid, "exe"))?;
        let link = link.as_os_str().as_bytes();
        let link = link.strip_suffix(b" (deleted)").unwrap_or(link);
        let name = link.rsplit(|b| *b == b'/').next().unwrap_or(link);
        Ok(name.to_vec())
    }
}

/// Reads until the end or until the buffer is full.
fn fill(from: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match from.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = |comm: &str| {
            let text = format!("42 ({comm}) S 7 1 1 0 -1 0 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 2 3");
            ProcessStat::parse(text.as_bytes())
        };
        for name in ["runc", "a b", ") S 1 (", "((", "", "(sd-pam)"] {
            let stat = stat(name).expect(name);
            assert_eq!((stat.ppid, stat.start, stat.state), (7, 987_654, b'S'));
            assert_eq!(stat.comm.bytes(), name.as_bytes());
        }
        for broken in ["", "42", "42 (x", "42 (x) S", "42 (x) S 7 1", "42 )x( S 1"] {
            assert_eq!(ProcessStat::parse(broken.as_bytes()), None, "{broken}");
        }
    }

    #[test]
    fn the_kernel_tells_of_ourselves() {
        let proc = ProcFs::new(Path::new("/proc"));
        let stat = proc.stat(std::process::id()).expect("stat");
        assert_eq!(stat.ppid, std::os::unix::process::parent_id());
        assert!(proc.pids().expect("pids").any(|p| p == std::process::id()));
    }

    #[test]
    fn nothing_is_left_of_what_was_read() {
        let root = tempfile::tempdir().expect("dir");
        let dir = root.path().join("5");
        fs::create_dir(&dir).expect("dir");
        let mut proc = ProcFs::new(root.path());
        // A huge one, whose last string is cut; one without NUL; one that ends in the middle.
        let huge = b"A=hunter2\0".repeat(MAX_STRINGS_LEN);
        let without = b"hunter2".repeat(MAX_STRINGS_LEN);
        for (content, texts) in [
            (&huge[..], MAX_STRINGS_LEN / 10),
            (&without[..], 0),
            (b"B=hunter2", 1),
        ] {
            fs::write(dir.join("environ"), content).expect("write");
            let seen = proc.texts(5, "environ", |texts| {
                texts.split(|b| *b == 0).filter(|t| !t.is_empty()).count()
            });
            assert_eq!(seen, Ok(texts));
            assert!(proc.buffer.iter().all(|b| *b == 0));
        }
        assert_eq!(proc.texts(6, "environ", |_| ()), Err(ProcReadError::Gone));
    }

    #[test]
    fn names_are_made_fit() {
        assert_eq!(&*shown(b"calico"), "calico");
        assert_eq!(&*shown(b"<b>\n\xff"), "_b___");
        assert_eq!(shown(&[b'x'; 300]).len(), 64);
        assert_eq!(&*shown(b""), "unknown");
        assert!(ProcessComm::new(b"containerd-shim").is("containerd-shim-runc-v2"));
    }
}

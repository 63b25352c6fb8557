//! The FIFOs between a process of a containerd shim and our shim: the containerd shim opens them by their paths, whenever it likes.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use nix::libc::O_NONBLOCK;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

/// The paths of the FIFOs of a process, in the order of its streams; removed with this.
#[derive(Debug, Default)]
pub(crate) struct Fifos {
    paths: [Option<PathBuf>; 3],
    /// Write ends of the outputs: without them an output that the containerd shim has not opened yet would look as if it had ended.
    held: [Option<File>; 2],
}

impl Fifos {
    /// Creates the ones that are `wanted` (stdin, stdout, stderr) and opens our ends: input and outputs.
    pub(crate) fn new(
        dir: &Path,
        number: u64,
        wanted: [bool; 3],
    ) -> io::Result<(Self, Option<File>, [Option<File>; 2])> {
        let mut fifos = Self::default();
        for (at, name) in ["in", "out", "err"].into_iter().enumerate() {
            if wanted[at] {
                let path = dir.join(format!(".{number}.{name}"));
                let _left = fs::remove_file(&path);
                mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
                fifos.paths[at] = Some(path);
            }
        }
        let [input, outputs @ ..] = &fifos.paths;
        // Also for reading, since there may be no reader yet.
        let input = input.as_deref().map(|path| open(path, true, true));
        let mut ours = [None, None];
        for (at, path) in outputs.iter().enumerate() {
            if let Some(path) = path {
                ours[at] = Some(open(path, true, false)?);
                fifos.held[at] = Some(open(path, false, true)?);
            }
        }
        Ok((fifos, input.transpose()?, ours))
    }

    /// The paths for the request that creates the process; empty for none.
    pub(crate) fn paths(&self) -> [String; 3] {
        [0, 1, 2].map(|at| {
            let path = self.paths[at].as_ref();
            path.map(|path| path.display().to_string())
                .unwrap_or_default()
        })
    }

    /// Lets the outputs end when the containerd shim closes them.
    pub(crate) fn release(&mut self) {
        self.held = [None, None];
    }
}

impl Drop for Fifos {
    fn drop(&mut self) {
        for path in self.paths.iter().flatten() {
            let _gone = fs::remove_file(path);
        }
    }
}

fn open(path: &Path, read: bool, write: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(read).write(write).custom_flags(O_NONBLOCK);
    options.open(path)
}

/// The name of the log of a containerd shim in its bundle.
const LOG: &str = "log";

/// Creates the FIFO into which a containerd shim logs, and opens it.
pub(crate) fn log(bundle: &Path) -> io::Result<File> {
    let path = bundle.join(LOG);
    let _left = fs::remove_file(&path);
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR)?;
    open(&path, true, true)
}

/// Replaces that FIFO, which nothing reads any more, by a link to the null device. Shims that log in every verb (runwasi's) open it before they
/// delete a container: they would wait for a reader for ever, and fail if there is no file.
///
/// # Errors
/// If the directory cannot be changed. Something other than a FIFO is left alone.
pub fn close_log(bundle: &Path) -> io::Result<()> {
    let path = bundle.join(LOG);
    match fs::symlink_metadata(&path) {
        Ok(found) if !found.file_type().is_fifo() => return Ok(()),
        Ok(_) => fs::remove_file(&path)?,
        Err(_) => {}
    }
    symlink("/dev/null", &path)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn an_output_ends_with_its_last_writer_once_it_is_released() {
        let dir = tempfile::tempdir().expect("dir");
        let made = Fifos::new(dir.path(), 7, [false, true, false]);
        let (mut fifos, input, [out, err]) = made.expect("fifos");
        assert!(input.is_none() && err.is_none());
        let [stdin, stdout, stderr] = fifos.paths();
        assert_eq!((stdin.as_str(), stderr.as_str()), ("", ""));
        let mut out = out.expect("stdout");
        let mut room = [0; 16];
        let nothing = out.read(&mut room).expect_err("nothing was written");
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let mut late = open(Path::new(&stdout), false, true).expect("the containerd shim");
        fifos.release();
        late.write_all(b"last").expect("written");
        drop(late);
        assert_eq!(out.read(&mut room).expect("last words"), 4);
        assert_eq!(out.read(&mut room).expect("the end"), 0);
        drop(fifos);
        assert!(!Path::new(&stdout).exists());
    }

    #[test]
    fn a_log_without_a_reader_blocks_no_shim() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join(LOG);
        for before in ["none", "a FIFO", "closed"] {
            if before == "a FIFO" {
                drop(log(dir.path()).expect("a log"));
            }
            close_log(dir.path()).expect(before);
            // Opened as by runwasi's shims: that would wait for a reader of a FIFO.
            let written = OpenOptions::new().write(true).open(&path);
            written
                .expect("a log")
                .write_all(b"words")
                .expect("dropped");
        }
        log(dir.path()).expect("a log again");
    }
}

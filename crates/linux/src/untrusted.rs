//! Reads files whose content or name is untrusted: controlled by images, pod authors or containers.
//!
//! Such a file may be a FIFO without a writer, a device that acts on being opened or never ends, a symbolic link to another
//! place, or a sparse file of a terabyte. Only regular files are opened, and they are read up to a limit.
//! [`open_in_root`](crate::rootfs::open_in_root) opens files below the root of a container.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, fstat};

/// Opens a regular file for reading, without blocking. Links are followed.
///
/// # Errors
/// The error of the system, or [`io::ErrorKind::InvalidInput`] for anything but a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let found = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    reopen(&found)?.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"))
}

/// Opens the file of an `O_PATH` descriptor for reading; `None` if it is not a regular file, which is then not opened.
///
/// # Errors
/// The error of the system.
pub fn reopen(found: impl AsFd) -> io::Result<Option<File>> {
    let found = found.as_fd();
    if FileType::from_raw_mode(fstat(found)?.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    // Still the checked file, even if its path has been replaced.
    File::open(format!("/proc/self/fd/{}", found.as_raw_fd())).map(Some)
}

/// Reads to the end, at most `limit` bytes.
///
/// # Errors
/// The error of the system, or [`io::ErrorKind::FileTooLarge`] if there is more: a truncated file may have another meaning.
pub fn read(from: impl Read, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let error = format!("more than {limit} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(bytes)
}

/// Reads the beginning of a file, at most `most` bytes. For `/proc` files of untrusted processes: a process may claim that
/// its arguments and environment are as large as its address space (prctl(2), `PR_SET_MM_MAP`).
///
/// # Errors
/// The error of the system.
pub fn read_start(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a text file as [`open`] and [`read`] do.
///
/// # Errors
/// Their errors, and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, limit: u64) -> io::Result<String> {
    let bytes = read(open(path)?, limit)?;
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_up_to_the_limit_are_read() {
        let dir = tempfile::tempdir().expect("dir");
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("full"), "12345").expect("file");
        assert_eq!(read_text(&path("full"), 5).expect("fits"), "12345");
        let kind = |name: &str, limit| read_text(&path(name), limit).expect_err(name).kind();
        assert_eq!(kind("full", 4), io::ErrorKind::FileTooLarge);
        let sparse = File::create(path("sparse")).expect("file");
        sparse.set_len(1 << 40).expect("sparse");
        assert_eq!(kind("sparse", 1 << 20), io::ErrorKind::FileTooLarge);
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRWXU).expect("pipe");
        assert_eq!(kind("pipe", 5), io::ErrorKind::InvalidInput);
        std::os::unix::fs::symlink("/dev/zero", path("zero")).expect("link");
        assert_eq!(kind("zero", 5), io::ErrorKind::InvalidInput);
        assert_eq!(kind("absent", 5), io::ErrorKind::NotFound);
        let zeros = read_start(Path::new("/dev/zero"), 7).expect("read");
        assert_eq!(zeros, [0; 7]);
    }
}

//! Binds the socket file, or takes the socket that systemd passes.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::FromRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::unistd::geteuid;

use super::settings::ServerSettings;
use crate::settings::FileOwner;

/// Longest path of a unix socket, in bytes: `sun_path` without the final NUL (unix(7)).
pub const MAX_PATH: usize = 107;

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum SocketBindError {
    /// The path is too long.
    #[error("{}: {} bytes are too long for a unix socket, the kernel takes at most {MAX_PATH}", path.display(), path.as_os_str().len())]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// Another process listens on it.
    #[error("{}: another process is listening on this socket; stop it first, or choose another path", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The path is a file of another kind.
    #[error("{}: exists and is not a socket; it was not replaced", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// A system call failed.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The failed operation.
        action: &'static str,
        /// The path.
        path: PathBuf,
        /// The system call's error.
        source: io::Error,
    },
    /// systemd passed something other than a listening unix socket.
    #[error("the socket passed by the service manager cannot be used: {0}")]
    Activation(io::Error),
}

/// A bound socket.
#[derive(Debug)]
pub struct BoundSocket {
    listener: UnixListener,
    file: Option<SocketFile>,
}

/// The socket file, removed on drop if it is still ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|m| m.dev() == self.device && m.ino() == self.inode);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl BoundSocket {
    /// Takes the first socket that systemd passed (`LISTEN_FDS`), or binds the configured path.
    ///
    /// # Errors
    /// See [`SocketBindError`].
    pub fn open(server: &ServerSettings) -> Result<Self, SocketBindError> {
        match activated().map_err(SocketBindError::Activation)? {
            Some(listener) => Ok(Self {
                listener,
                file: None,
            }),
            None => Self::bind(&server.listen, server.mode, server.owner),
        }
    }

    /// Binds a path with these permission bits and owner. A stale socket is replaced atomically.
    ///
    /// # Errors
    /// See [`SocketBindError`].
    pub fn bind(path: &Path, mode: u32, owner: Option<FileOwner>) -> Result<Self, SocketBindError> {
        if path.as_os_str().len() > MAX_PATH {
            return Err(SocketBindError::TooLong {
                path: path.to_owned(),
            });
        }
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir).map_err(io_error("create the directory", dir))?;
        }
        check_free(path)?;

        // Bound under another name, with owner and mode set, and then renamed: the socket is never visible with wrong
        // permissions, and a stale one is replaced atomically.
        let draft = draft_path(path);
        let _ = fs::remove_file(&draft);
        let listener = UnixListener::bind(&draft).map_err(io_error("bind", path))?;
        let published = publish(&draft, path, mode, owner);
        if published.is_err() {
            let _ = fs::remove_file(&draft);
        }
        let file = published?;
        listener
            .set_nonblocking(true)
            .map_err(io_error("set non-blocking", path))?;
        Ok(Self {
            listener,
            file: Some(file),
        })
    }

    /// Binds a path for a group (mode 0660). If the directory is missing, it is created so that the group can enter it, with any
    /// umask; an existing one is left as it is.
    ///
    /// # Errors
    /// See [`SocketBindError`].
    pub fn bind_for_group(path: &Path, gid: u32) -> Result<Self, SocketBindError> {
        if let Some(directory) = path.parent() {
            make_for_group(directory, gid).map_err(io_error("create the directory", directory))?;
        }
        let uid = geteuid().as_raw();
        Self::bind(path, 0o660, Some(FileOwner { uid, gid }))
    }

    /// Returns whether systemd owns the socket, and keeps it when criscope stops.
    pub fn is_activated(&self) -> bool {
        self.file.is_none()
    }

    /// The listener, and the file, which is removed when dropped; `None` for systemd's.
    pub fn into_parts(self) -> (UnixListener, Option<SocketFile>) {
        (self.listener, self.file)
    }
}

fn io_error<'a>(
    action: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SocketBindError + 'a {
    move |source| SocketBindError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}

/// Creates a directory with mode 0710 for a group, unless it exists.
fn make_for_group(directory: &Path, gid: u32) -> io::Result<()> {
    if let Some(parent) = directory.parent() {
        fs::create_dir_all(parent)?;
    }
    match fs::create_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        created => created?,
    }
    chown(directory, None, Some(gid))?;
    fs::set_permissions(directory, fs::Permissions::from_mode(0o710))
}

/// A short name in the same directory, no longer than the final one.
fn draft_path(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(std::process::id().to_string());
    path.with_file_name(name)
}

/// Fails if the path is a live socket or another kind of file.
fn check_free(path: &Path) -> Result<(), SocketBindError> {
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error("stat it", path)(e)),
    };
    if !kind.is_socket() {
        return Err(SocketBindError::NotASocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(SocketBindError::InUse {
            path: path.to_owned(),
        }),
        Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(e) => Err(io_error("check for a listener", path)(e)),
    }
}

fn publish(
    draft: &Path,
    path: &Path,
    mode: u32,
    owner: Option<FileOwner>,
) -> Result<SocketFile, SocketBindError> {
    if let Some(owner) = owner {
        chown(draft, Some(owner.uid), Some(owner.gid))
            .map_err(io_error("change the owner", path))?;
    }
    fs::set_permissions(draft, fs::Permissions::from_mode(mode))
        .map_err(io_error("change the mode", path))?;
    let metadata = fs::symlink_metadata(draft).map_err(io_error("stat it", path))?;
    fs::rename(draft, path).map_err(io_error("rename the socket", path))?;
    Ok(SocketFile {
        path: path.to_owned(),
        device: metadata.dev(),
        inode: metadata.ino(),
    })
}

/// The socket of systemd's socket activation, if there is one (sd_listen_fds(3)).
fn activated() -> io::Result<Option<UnixListener>> {
    let Some(fd) = sd_notify::listen_fds()?.next() else {
        return Ok(None);
    };
    let listener = from_raw(fd);
    // Fails for anything but a unix socket.
    listener.local_addr()?;
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

#[allow(unsafe_code)]
fn from_raw(fd: std::os::fd::RawFd) -> UnixListener {
    // SAFETY: the service manager passed this descriptor to this process, and `open` is the only one to take it.
    unsafe { UnixListener::from_raw_fd(fd) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::testing::{until_stale, with_umask};

    fn server(path: PathBuf) -> ServerSettings {
        let mut server = Config::with_upstream("/x".into()).server;
        server.listen = path;
        server
    }

    fn bind(server: &ServerSettings) -> Result<BoundSocket, SocketBindError> {
        BoundSocket::bind(&server.listen, server.mode, server.owner)
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_refused() {
        let dir = tempfile::tempdir().expect("dir");
        let mut settings = server(dir.path().join("deep/cri.sock"));
        settings.mode = 0o600;

        let first = bind(&settings).expect("free");
        let mode = fs::metadata(&settings.listen).expect("bound").mode();
        assert_eq!(mode & 0o777, 0o600);
        let error = bind(&settings).expect_err("live");
        assert!(matches!(error, SocketBindError::InUse { .. }), "{error}");

        // As after a SIGKILL: the file remains, without a listener.
        let (listener, cleanup) = first.into_parts();
        drop(listener);
        std::mem::forget(cleanup);
        assert!(settings.listen.exists());
        until_stale(&settings.listen);
        let second = bind(&settings).expect("stale");
        UnixStream::connect(&settings.listen).expect("listening again");
        drop(second);
        assert!(!settings.listen.exists(), "removed at the end");
        let left = fs::read_dir(settings.listen.parent().expect("parent")).expect("dir");
        assert_eq!(left.count(), 0, "no draft left");
    }

    #[test]
    fn a_successor_keeps_its_socket() {
        let dir = tempfile::tempdir().expect("dir");
        let settings = server(dir.path().join("cri.sock"));
        let (listener, cleanup) = bind(&settings).expect("free").into_parts();
        drop(listener);
        until_stale(&settings.listen);
        let _second = bind(&settings).expect("stale");
        drop(cleanup);
        UnixStream::connect(&settings.listen).expect("the second one's socket is still there");
    }

    #[test]
    fn errors_name_the_configured_socket() {
        // No user may create a socket there, not even root.
        let settings = server("/proc/self/cri.sock".into());
        let error = bind(&settings).expect_err("no socket there");
        let text = error.to_string();
        assert!(
            text.starts_with("/proc/self/cri.sock: cannot bind: "),
            "{text}"
        );
    }

    #[test]
    fn a_group_can_enter_the_directory_of_its_socket_whatever_the_umask() {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("run/agent/criscope.sock");
        let gid = nix::unistd::getegid().as_raw();
        let bound = with_umask(0o077, || BoundSocket::bind_for_group(&path, gid));
        let mode = |path: &Path| fs::metadata(path).expect("there").mode() & 0o777;
        let directory = path.parent().expect("a directory");
        assert_eq!((mode(directory), mode(&path)), (0o710, 0o660));
        drop(bound.expect("bound"));

        fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("changed");
        let _again = BoundSocket::bind_for_group(&path, gid).expect("bound again");
        assert_eq!(mode(directory), 0o755, "one of the kubelet, say");
    }

    #[test]
    fn other_files_are_left_alone() {
        let dir = tempfile::tempdir().expect("dir");
        let settings = server(dir.path().join("cri.sock"));
        fs::write(&settings.listen, "precious").expect("write");
        let error = bind(&settings).expect_err("a file");
        assert!(
            matches!(error, SocketBindError::NotASocket { .. }),
            "{error}"
        );
        assert_eq!(fs::read(&settings.listen).expect("read"), b"precious");
    }

    #[test]
    fn errors_explain_a_long_path() {
        let path = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        let error = bind(&server(path)).expect_err("too long");
        assert!(
            error.to_string().contains("205 bytes are too long"),
            "{error}"
        );
    }
}

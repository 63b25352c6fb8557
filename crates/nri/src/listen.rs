//! The socket that plugins connect to.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::Path;

use tokio::net::UnixListener;

use crate::error::ListenError;

/// Binds the socket, for root only. A socket without a listener is replaced.
pub(crate) fn bind(path: &Path) -> Result<UnixListener, ListenError> {
    if let Some(dir) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(failed("make", dir))?;
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => {
            let taken = io::Error::new(io::ErrorKind::AddrInUse, "another runtime listens there");
            return Err(failed("listen", path)(taken));
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed("replace", path))?;
        }
        Err(_) => {}
    }
    let listener = UnixListener::bind(path).map_err(failed("listen", path))?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed("restrict", path))?;
    Ok(listener)
}

fn failed(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ListenError {
    let path = path.to_owned();
    move |source| ListenError {
        action,
        path,
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_socket_is_for_root_and_of_one_runtime() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("nri/nri.sock");
        let listener = bind(&path).expect("binds");
        let mode = |path: &Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&dir.path().join("nri"))), (0o600, 0o700));
        let error = bind(&path).expect_err("in use");
        assert!(error.to_string().contains("another runtime"), "{error}");
        drop(listener);
        drop(bind(&path).expect("a stale socket is replaced"));
    }
}

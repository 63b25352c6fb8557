//! Sockets for commands that the CRI has no method for. Only root can access them. A client passes an open file, not a path (the
//! daemon may have another mount namespace than the user), and then both sides send one JSON object per line.

use std::fs::{self, DirBuilder, File};
use std::future::Future;
use std::io::ErrorKind::{ConnectionRefused, NotFound};
use std::io::{self, BufRead, IoSlice, IoSliceMut, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as Blocking;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;

/// How long to wait for a client.
const REQUEST_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after a failed accept, for example when descriptors are exhausted.
const PAUSE: Duration = Duration::from_secs(1);

/// Creates a socket. Only one process uses an image store: an existing socket file belongs to one that has exited.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    let dir = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    // Applies to an existing directory, too.
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

/// Connects to a socket; `None` if no runtime listens on it.
pub(super) fn connect(path: &Path) -> io::Result<Option<Blocking>> {
    match Blocking::connect(path) {
        Err(error) if matches!(error.kind(), NotFound | ConnectionRefused) => Ok(None),
        stream => stream.map(Some),
    }
}

/// Returns whether a runtime listens on a socket, even if this user has no access.
pub(super) fn is_served(path: &Path) -> bool {
    !matches!(connect(path), Ok(None))
}

/// Serves clients until it is dropped, `at_once` of them; others wait in the backlog of the socket.
pub(super) async fn serve<F>(
    listener: UnixListener,
    at_once: usize,
    answer: impl Fn(Blocking) -> F,
) -> io::Result<()>
where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(at_once));
    let mut clients = tokio::task::JoinSet::new();
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else {
            return Ok(());
        };
        while clients.try_join_next().is_some() {}
        let accepted = listener.accept().await;
        match accepted.and_then(|(stream, _)| opened(stream)) {
            Ok(stream) => {
                let answered = answer(stream);
                clients.spawn(async move {
                    if let Err(error) = answered.await {
                        tracing::debug!(target: "criscope::runtime::command_socket", event = "image.command", error.message = %error, "a client has disconnected");
                    }
                    drop(turn);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

fn opened(stream: UnixStream) -> io::Result<Blocking> {
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_READ_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_READ_TIMEOUT))?;
    Ok(stream)
}

/// Returns whether the client is root, or the user of this process.
pub(super) fn is_root(stream: &Blocking) -> io::Result<bool> {
    let uid = rustix::net::sockopt::socket_peercred(stream)?.uid;
    Ok(uid.is_root() || uid == rustix::process::geteuid())
}

/// Sends text of at least one byte (an empty message cannot carry a descriptor) and a descriptor in one message.
pub(super) fn send(stream: &Blocking, text: &str, file: impl AsFd) -> io::Result<()> {
    let fds = [file.as_fd()];
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(
        stream,
        &[IoSlice::new(text.as_bytes())],
        &mut control,
        SendFlags::NOSIGNAL,
    )?;
    Ok(())
}

/// Receives text of at most `most` bytes and a descriptor.
pub(super) fn receive(stream: &Blocking, most: usize) -> io::Result<(String, File)> {
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut text = vec![0; most];
    let got = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut text)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let file = File::from(file.ok_or_else(|| io::Error::other("no file was passed"))?);
    Ok((
        String::from_utf8_lossy(&text[..got.bytes]).into_owned(),
        file,
    ))
}

pub(super) fn write_message(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    to.write_all(&line)
}

pub(super) fn read_message<T: DeserializeOwned>(from: &mut impl BufRead) -> io::Result<T> {
    let mut line = String::new();
    if from.read_line(&mut line)? == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_str(&line)?)
}

/// A line fits into the socket buffer, so this blocks only if the client does not read.
pub(super) async fn say(
    stream: &Blocking,
    message: impl Serialize + Send + 'static,
) -> io::Result<()> {
    let own = stream.try_clone()?;
    tokio::task::spawn_blocking(move || write_message(&own, &message)).await?
}

//! The daemon's side of the load socket.

use std::fs::{self, DirBuilder, File};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream as Blocking;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::interval;

use super::{Answer, Loaded, MESSAGE, socket, write_answer};
use criscope_image::ImageStore;

/// Interval of progress messages, which also detect a client that disconnected.
const PROGRESS: Duration = Duration::from_millis(250);

/// How long to wait for the request of a client.
const PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of concurrent imports; others wait in the backlog of the socket.
const AT_ONCE: usize = 4;

/// Pause after a failed accept, for example when descriptors are exhausted.
const PAUSE: Duration = Duration::from_secs(1);

/// Imports the archives of clients until it is dropped. Unfinished imports are discarded.
///
/// # Errors
/// The socket cannot be created.
pub(in crate::runtime) async fn serve(images: ImageStore, state: PathBuf) -> io::Result<()> {
    let path = socket(&state);
    let listener = bind(&path)?;
    tracing::info!(event = "image.load.ready", socket = %path.display(), "images can be loaded by command");
    let turns = Arc::new(Semaphore::new(AT_ONCE));
    let mut clients = tokio::task::JoinSet::new();
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else {
            return Ok(());
        };
        while clients.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let images = images.clone();
                clients.spawn(async move {
                    if let Err(error) = answer(stream, &images).await {
                        tracing::debug!(event = "image.load", error.message = %error, "a client of criscope load-image disconnected");
                    }
                    drop(turn);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Only one process uses an image store: an existing socket file belongs to one that has exited.
fn bind(path: &Path) -> io::Result<UnixListener> {
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

async fn answer(stream: UnixStream, images: &ImageStore) -> io::Result<()> {
    let uid = stream.peer_cred()?.uid();
    let stream = stream.into_std()?;
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    if uid != 0 && uid != nix::unistd::geteuid().as_raw() {
        return say(
            &stream,
            Answer::Failed("only root may load images".to_owned()),
        )
        .await;
    }
    let own = stream.try_clone()?;
    let received = tokio::task::spawn_blocking(move || receive(&own)).await?;
    let (name, file) = match received {
        Ok(received) => received,
        Err(error) => return say(&stream, Answer::Failed(error.to_string())).await,
    };
    let import = images.import_file(file, Path::new(&name));
    tokio::pin!(import);
    let mut ticks = interval(PROGRESS);
    loop {
        tokio::select! {
            result = &mut import => {
                let last = match result {
                    Ok(images) => Answer::Loaded(images.into_iter().map(Loaded::from).collect()),
                    Err(error) => Answer::Failed(error.to_string()),
                };
                return say(&stream, last).await;
            }
            _ = ticks.tick() => {
                let pulls = images.pulls();
                let own = pulls.iter().find(|pull| pull.reference == name);
                let (done, all) = own.map_or((0, 0), |own| (own.bytes_done, own.bytes_total));
                // A client that disconnects cancels its import.
                say(&stream, Answer::Progress(done, all)).await?;
            }
        }
    }
}

/// A line fits into the socket buffer, so this blocks only if the client does not read.
async fn say(stream: &Blocking, answer: Answer) -> io::Result<()> {
    let own = stream.try_clone()?;
    tokio::task::spawn_blocking(move || write_answer(&own, &answer)).await?
}

fn receive(stream: &Blocking) -> io::Result<(String, File)> {
    let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut room);
    let mut name = vec![0; MESSAGE];
    let got = recvmsg(
        stream,
        &mut [IoSliceMut::new(&mut name)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let file = File::from(file.ok_or_else(|| io::Error::other("no archive was passed"))?);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("the archive is no regular file"));
    }
    Ok((
        String::from_utf8_lossy(&name[..got.bytes]).into_owned(),
        file,
    ))
}

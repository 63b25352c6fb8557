//! The daemon's side of the export socket.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, fcntl_getfl, fcntl_setfl, fstat};
use tokio::time::interval;

use super::{Answer, Exported, Failure, REQUEST, Request, socket};
use crate::command_socket::{bind, is_root, read_message, receive, say, serve as serve_clients};
use crate::error::shown;
use criscope_image::{ExportOptions, ExportWatch, ImageStore};
use criscope_telemetry::BackgroundJob;

/// Interval of progress messages, which also detect a client that disconnected.
const PROGRESS: Duration = Duration::from_millis(250);

/// Maximum number of concurrent exports.
const CONCURRENT_EXPORTS: usize = 2;

/// How long to wait for space in the pipe before checking again whether the export was cancelled.
const ROOM: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};

/// Exports images for clients until it is dropped.
///
/// # Errors
/// The socket cannot be created.
pub(crate) async fn serve(images: impl Fn() -> ImageStore, state: PathBuf) -> io::Result<()> {
    let path = socket(&state);
    let listener = bind(&path)?;
    tracing::info!(target: "criscope::runtime::export::server", event = "image.export.ready", socket = %path.display(), "images can be exported by command");
    serve_clients(listener, CONCURRENT_EXPORTS, |stream| {
        answer(stream, images())
    })
    .await
}

/// Ends the export when the client or the daemon does.
struct Cancelling(Arc<ExportWatch>);

impl Drop for Cancelling {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn answer(stream: UnixStream, images: ImageStore) -> io::Result<()> {
    if !is_root(&stream)? {
        return say(&stream, failed("only root may export images".to_owned())).await;
    }
    let own = stream.try_clone()?;
    let received = tokio::task::spawn_blocking(move || request(&own)).await?;
    let (request, pipe) = match received {
        Ok(received) => received,
        Err(error) => return say(&stream, failed(error.to_string())).await,
    };
    let job = BackgroundJob::ImageExport.begin();
    let watch = Cancelling(Arc::default());
    let (own, options) = (Arc::clone(&watch.0), ExportOptions::from(request));
    let mut export = tokio::task::spawn_blocking(move || {
        let to = PipeEnd {
            pipe,
            watch: Arc::clone(&own),
        };
        images.export(&options, to, &own)
    });
    let mut ticks = interval(PROGRESS);
    loop {
        tokio::select! {
            result = &mut export => {
                let last = match result? {
                    Ok(images) => {
                        job.count("criscope.images", images.len());
                        Answer::Exported(images.into_iter().map(Exported::from).collect())
                    }
                    Err(error) => {
                        job.failed("export", &shown(&error));
                        Answer::Failed(error.into())
                    }
                };
                return say(&stream, last).await;
            }
            _ = ticks.tick() => {
                say(&stream, Answer::Progress(watch.0.progress().into())).await?;
            }
        }
    }
}

fn failed(reason: String) -> Answer {
    Answer::Failed(Failure {
        reason,
        is_decrypted: false,
    })
}

/// Receives the end of a pipe, then the request.
fn request(stream: &UnixStream) -> io::Result<(Request, File)> {
    let (_, pipe) = receive(stream, 1)?;
    if FileType::from_raw_mode(fstat(&pipe)?.st_mode) != FileType::Fifo {
        return Err(io::Error::other("what was passed is no pipe"));
    }
    fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
    let request = read_message(&mut BufReader::new(stream.take(REQUEST)))?;
    Ok((request, pipe))
}

/// Waits for room in the pipe, until the export is cancelled.
struct PipeEnd {
    pipe: File,
    watch: Arc<ExportWatch>,
}

impl Write for PipeEnd {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.pipe.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.watch.is_cancelled() {
                        return Err(io::Error::other("cancelled"));
                    }
                    let mut fds = [PollFd::new(&self.pipe, PollFlags::OUT)];
                    poll(&mut fds, Some(&ROOM))?;
                }
                written => return written,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

//! The daemon's side of the load socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::interval;

use super::{Answer, Loaded, MESSAGE, socket};
use crate::command_socket::{bind, is_root, receive, say, serve as serve_clients};
use criscope_image::ImageStore;

/// Interval of progress messages, which also detect a client that disconnected.
const PROGRESS: Duration = Duration::from_millis(250);

/// Maximum number of concurrent imports.
const CONCURRENT_IMPORTS: usize = 4;

/// Imports the archives of clients until it is dropped. Unfinished imports are discarded.
///
/// # Errors
/// The socket cannot be created.
pub(crate) async fn serve(images: impl Fn() -> ImageStore, state: PathBuf) -> io::Result<()> {
    let path = socket(&state);
    let listener = bind(&path)?;
    tracing::info!(target: "criscope::runtime::load::server", event = "image.load.ready", socket = %path.display(), "images can be loaded by command");
    serve_clients(listener, CONCURRENT_IMPORTS, |stream| {
        answer(stream, images())
    })
    .await
}

async fn answer(stream: UnixStream, images: ImageStore) -> io::Result<()> {
    if !is_root(&stream)? {
        let reason = "only root may load images".to_owned();
        return say(&stream, Answer::Failed(reason)).await;
    }
    let own = stream.try_clone()?;
    let received = tokio::task::spawn_blocking(move || receive(&own, MESSAGE)).await?;
    let (name, file) = match received {
        Ok(received) => received,
        Err(error) => return say(&stream, Answer::Failed(error.to_string())).await,
    };
    if !file.metadata()?.is_file() {
        let reason = "the archive is no regular file".to_owned();
        return say(&stream, Answer::Failed(reason)).await;
    }
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

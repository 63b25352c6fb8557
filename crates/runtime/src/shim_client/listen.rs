//! Receives the messages of a shim, and dispatches responses to pending requests and events to subscribers.

use std::path::PathBuf;

use tokio::io::AsyncRead;
use tokio::sync::broadcast;

use super::client::{Waiting, lock};
use super::event::{Event, Unreadable};
use super::exit_waiters::ExitWaiters;
use super::frames::Frames;
use criscope_shim::protocol::{self, Incoming, Unread};

/// Receives messages until the connection ends.
pub(super) async fn listen<R: AsyncRead + Unpin>(
    dir: PathBuf,
    mut frames: Frames<R>,
    waiting: Waiting,
    events: broadcast::Sender<Event>,
    endings: ExitWaiters,
) {
    // There may be no subscriber yet: a new one queries the state.
    let tell = |event| drop(events.send(event));
    let unreadable = |what: Unreadable| {
        tracing::warn!(target: "criscope::runtime::shim_client::listen", event = "runtime.shim", shim = %dir.display(), what = what.name(), "a message of a shim cannot be decoded: it is of another version, or damaged");
        tell(Event::Unreadable(what));
    };
    while let Some(frame) = frames.next().await {
        match protocol::decode_incoming(&frame) {
            Ok(Incoming::Answer(number, answer)) => {
                if answer.is_err() {
                    unreadable(Unreadable::Answer);
                }
                let waits = lock(&waiting)
                    .as_mut()
                    .and_then(|waiting| waiting.remove(&number));
                waits.map(|waits| waits.send(answer.ok()));
            }
            Ok(Incoming::Event(Ok(event))) => match event {
                protocol::Event::Hello(_) => {}
                protocol::Event::Exit(exit) => {
                    endings.tell(&exit);
                    tell(Event::Exit(exit));
                }
                protocol::Event::Oom(oom) => tell(Event::Oom(oom)),
                protocol::Event::PidNamespaceEnded(_) => tell(Event::PidNamespaceEnded),
                protocol::Event::Unreadable(_) => unreadable(Unreadable::Request),
            },
            Ok(Incoming::Event(Err(Unread::Unknown))) => unreadable(Unreadable::UnknownEvent),
            Ok(Incoming::Event(Err(Unread::Malformed))) => unreadable(Unreadable::Event),
            Err(_) => unreadable(Unreadable::Frame),
        }
    }
    // Pending requests see their sender dropped.
    lock(&waiting).take();
    endings.close();
}
